//! The running times of FAST Table 4, whose figures are lost: what prepage's own work costs a launch. Pure.

use super::measures::time_ms;
use super::record::Launch;
use super::scenario::Scenario;
use crate::statistics::{Estimate, median_estimate};
use serde::Serialize;

/// One case of one program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OverheadRow {
    /// Which one.
    pub case: &'static str,
    /// How long it runs; nothing of too few launches.
    pub time_ms: Option<Estimate>,
}

/// What of a launch a case measures.
#[derive(Clone, Copy, Debug)]
enum Runs {
    /// The launch itself.
    Launch,
    /// What comes after it: parts of prepage's report of it, in microseconds.
    After([&'static str; 2]),
}

/// The paper's seven cases by its numbers, and what it cures `uname` by. The runtime of 4 and 7 is in nobody's way.
const CASES: [(&str, Scenario, Runs); 8] = [
    ("1: application alone", Scenario::Cold, Runs::Launch),
    (
        "2: path profiler, recorder, application",
        Scenario::Profile,
        Runs::Launch,
    ),
    ("3: recorder, application", Scenario::Generate, Runs::Launch),
    (
        "4: generation, afterwards",
        Scenario::Generate,
        Runs::After(["after.named_us", "after.learned_us"]),
    ),
    (
        "5: prefetch, application",
        Scenario::FastUnrecorded,
        Runs::Launch,
    ),
    (
        "6: prefetch, recorder, application",
        Scenario::FastRecorded,
        Runs::Launch,
    ),
    (
        "7: miss ratio, afterwards",
        Scenario::FastRecorded,
        Runs::After(["after.named_us", "after.misses_us"]),
    ),
    (
        "application that is left alone",
        Scenario::LeftAlone,
        Runs::Launch,
    ),
];

/// The cases of one program; none where none of those beyond a usual run was measured.
pub fn overheads(launches: &[Launch]) -> Vec<OverheadRow> {
    let own = [Scenario::Profile, Scenario::Generate, Scenario::LeftAlone];
    if !launches.iter().any(|l| own.contains(&l.slot.scenario)) {
        return Vec::new();
    }
    let row = |(case, scenario, runs): (&'static str, Scenario, Runs)| {
        let of = launches.iter().filter(|l| l.slot.scenario == scenario);
        let times_ms: Vec<f64> = of.filter_map(|launch| runs.time_ms(launch)).collect();
        OverheadRow {
            case,
            time_ms: median_estimate(&times_ms),
        }
    };
    CASES.into_iter().map(row).collect()
}

impl Runs {
    fn time_ms(self, launch: &Launch) -> Option<f64> {
        match self {
            Self::Launch => Some(time_ms(launch)),
            Self::After(parts) => {
                let us: Option<f64> = parts.iter().map(|part| launch.reported(part)).sum();
                us.map(|us| us / 1e3)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::launch;
    use super::*;

    #[test]
    fn what_comes_after_a_launch_is_in_its_report() {
        let mut launches = Vec::new();
        for block in 0..4 {
            for scenario in [Scenario::Cold, Scenario::Generate] {
                launches.push(launch("git", block, scenario, 20.0));
            }
        }
        for launch in &mut launches {
            let after = serde_json::json!({"named_us": 3_000, "learned_us": 500});
            if let Some(report) = &mut launch.report {
                report["after"] = after;
            }
        }
        let rows = overheads(&launches);
        let time = |case: &str| {
            let row = rows.iter().find(|row| row.case.starts_with(case));
            row.and_then(|row| row.time_ms).map(|e| e.value)
        };
        assert_eq!(time("1"), Some(20.0));
        assert_eq!(time("3"), Some(20.0));
        assert_eq!(time("4"), Some(3.5));
        assert_eq!(time("7"), None);
        launches.retain(|launch| launch.slot.scenario == Scenario::Cold);
        assert!(overheads(&launches).is_empty());
    }
}
