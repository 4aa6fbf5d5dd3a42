//! What was measured here, number by number beside the paper's.

use super::footprint::{self, FootprintRow};
use super::measures::{pooled, ratio_to_off, share_counts, wasted_pages};
use super::overall::mean_ratio;
use super::paper::{self, Reported};
use super::switches::{Switches, of_prepage, settled_ms};
use super::text::counts;
use super::utilization::{self, Value};
use crate::record::{Mode, Switch};
use crate::statistics::{Estimate, SAMPLES_MIN, bootstrap_mean, median_of};
use serde::Serialize;

/// One number of the paper, and the same of a record.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The paper's.
    #[serde(flatten)]
    pub reported: Reported,
    /// The record's: the mean over its applications, where the paper's is.
    pub value: f64,
    /// Its interval, `low` and `high`; nothing of what is counted, and of what is the most that was seen.
    pub interval: Option<(f64, f64)>,
    /// Applications it is of: those that have enough samples for it.
    pub apps: usize,
    /// Of so many.
    pub of_apps: usize,
    /// What else it is of, where the paper's is of another number.
    pub of: Option<String>,
}

/// A row for each of the paper's numbers that the record has, in the paper's order.
pub fn beside(apps: &[Switches]) -> Vec<Beside> {
    let mut rows = times(apps);
    rows.extend(of_utilization(apps));
    rows.extend(of_footprints(apps));
    rows.extend(of_help(apps));
    rows.extend(of_shares(apps));
    rows.extend(of_overheads(apps));
    for row in &mut rows {
        row.of_apps = apps.len();
    }
    // Figures first, by number; then what has none.
    rows.sort_by_key(|row| row.reported.figure.parse::<u32>().unwrap_or(u32::MAX));
    rows
}

fn estimated(reported: Reported, estimate: Option<Estimate>) -> Option<Beside> {
    estimate.map(|e| Beside {
        reported,
        value: e.value,
        interval: Some((e.low, e.high)),
        apps: e.n,
        of_apps: e.n,
        of: None,
    })
}

fn counted(reported: Reported, values: &[f64], value: Option<f64>) -> Option<Beside> {
    value.map(|value| Beside {
        reported,
        value,
        interval: None,
        apps: values.len(),
        of_apps: values.len(),
        of: None,
    })
}

fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Figure 1: modes over resident.
fn times(apps: &[Switches]) -> Vec<Beside> {
    let over_resident = |mode| mean_ratio(apps, mode, Mode::Resident);
    let rows = [
        estimated(paper::FILES_SLOWDOWN, over_resident(Mode::FilesDropped)),
        estimated(paper::SLOWDOWN, over_resident(Mode::Off)),
    ];
    rows.into_iter().flatten().collect()
}

/// The mean of the median of a number, over the applications that have enough of it.
fn mean_of_medians(apps: &[Switches], values: impl Fn(&Switches) -> Vec<f64>) -> Option<Estimate> {
    let groups = apps.iter().map(values);
    let groups: Vec<Vec<f64>> = groups.filter(|v| v.len() >= SAMPLES_MIN).collect();
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    bootstrap_mean(&sizes, |i, drawn| median_of(&groups[i], drawn))
}

/// Figures 2, 3, 13 and 14.
fn of_utilization(apps: &[Switches]) -> Vec<Beside> {
    let off =
        |value: Value| mean_of_medians(apps, |app| utilization::values(app, Mode::Off, value));
    let full = |value: Value| {
        mean_of_medians(apps, |app| {
            utilization::ratios_to_off(app, Mode::Full, value)
        })
    };
    let rows = [
        estimated(paper::CPU_OFF, off(utilization::cpu_percent)),
        estimated(paper::DISK_OFF, off(utilization::disk_percent)),
        estimated(paper::CPU_RATIO, full(utilization::cpu_percent)),
        estimated(paper::DISK_RATIO, full(utilization::disk_mb_per_s)),
    ];
    rows.into_iter().flatten().collect()
}

/// Figures 5, 6 and 10. The paper's are of ten switches: pages of all but one at most, or of fewer than half. The same shares
/// of another number of switches stand beside them, with that number: the fewer switches, the more pages recur in all but one.
fn of_footprints(apps: &[Switches]) -> Vec<Beside> {
    const SWITCHES: usize = 10;
    let footprints = apps
        .iter()
        .filter_map(|app| app.application.footprint.as_ref());
    let rows: Vec<FootprintRow> = footprints.filter_map(footprint::row).collect();
    let switches = || rows.iter().map(|row| row.switches);
    let is_other = switches().any(|switches| switches != SWITCHES);
    let of_switches = is_other.then(|| format!("of {} switches", counts(switches())));
    let of = |reported, value: fn(&FootprintRow) -> f64| {
        let values: Vec<f64> = rows.iter().map(value).collect();
        let row = counted(reported, &values, mean_of(&values))?;
        Some(Beside {
            of: of_switches.clone(),
            ..row
        })
    };
    let all = [
        of(paper::FILE_RECURRENT, |row| row.file_recurrent_percent),
        of(paper::FILE_RARE, |row| row.file_rare_percent),
        of(paper::ANON_RECURRENT, |row| row.anon_recurrent_percent),
        of(paper::LARGE_FILES, |row| row.large_files_percent),
    ];
    all.into_iter().flatten().collect()
}

/// Figure 11.
fn of_help(apps: &[Switches]) -> Vec<Beside> {
    let change = |ratio: f64| 100.0 * (ratio - 1.0);
    let of_mode = |mode| mean_ratio(apps, mode, Mode::Off).map(|ratio| ratio.map(change));
    let each: Vec<f64> = apps
        .iter()
        .filter_map(|app| ratio_to_off(app, Mode::Full, settled_ms))
        .map(|ratio| change(ratio.value))
        .collect();
    let best = each.iter().copied().reduce(f64::min);
    let rows = [
        estimated(paper::TIME_ANON, of_mode(Mode::Anon)),
        estimated(paper::TIME_FILE, of_mode(Mode::File)),
        estimated(paper::TIME_FULL, of_mode(Mode::Full)),
        // Of one application there is no best.
        best.filter(|_| each.len() > 1)
            .and_then(|best| counted(paper::TIME_FULL_BEST, &each, Some(best))),
    ];
    rows.into_iter().flatten().collect()
}

/// Figure 12: the mean over the applications of each one's pooled share.
fn of_shares(apps: &[Switches]) -> Vec<Beside> {
    let of = |reported, of: &str, share: &str| {
        let counts = apps.iter().map(|app| share_counts(app, of, share));
        let counts: Vec<Vec<(f64, f64)>> = counts.filter(|c| c.len() >= SAMPLES_MIN).collect();
        let sizes: Vec<usize> = counts.iter().map(Vec::len).collect();
        let percent = bootstrap_mean(&sizes, |i, drawn| pooled(&counts[i], drawn));
        estimated(reported, percent)
    };
    let rows = [
        of(paper::ANON_PRECISION, "anon", "precision"),
        of(paper::ANON_RECALL, "anon", "holdout_recall"),
        of(paper::FILE_PRECISION, "file", "precision"),
        of(paper::FILE_RECALL, "file", "holdout_recall"),
    ];
    rows.into_iter().flatten().collect()
}

/// Section 6.6. Of the worst cases, the most that was seen in mode full; of what is wasted, the mean of the medians.
fn of_overheads(apps: &[Switches]) -> Vec<Beside> {
    let full = |app: &Switches, value: &dyn Fn(&Switch) -> Option<f64>| -> Vec<f64> {
        let samples = app.samples.iter().filter(|s| s.slot.mode == Mode::Full);
        samples.filter_map(value).collect()
    };
    let most_ms = |reported, path: &str| {
        let most = |app| {
            let values = full(app, &|s| of_prepage(s, path));
            values.into_iter().reduce(f64::max)
        };
        let each: Vec<f64> = apps.iter().filter_map(most).collect();
        let most = each.iter().copied().reduce(f64::max);
        counted(reported, &each, most.map(|us| us / 1e3))
    };
    let wasted_mb = |reported, of: &str| {
        let mean = mean_of_medians(apps, |app| {
            let page_mb = app.run.machine.page_bytes as f64 / 1e6;
            full(app, &|s| Some(wasted_pages(s, of)? * page_mb))
        });
        estimated(reported, mean)
    };
    let tables: Vec<f64> = apps
        .iter()
        .filter_map(|app| Some(app.application.table_bytes? as f64 / 1e3))
        .collect();
    let rows = [
        most_ms(paper::SWITCH_PATH, "timing.switch_path_us"),
        most_ms(paper::MANAGEMENT, "timing.management_cpu_us"),
        counted(paper::TABLES, &tables, mean_of(&tables)),
        wasted_mb(paper::ANON_WASTE, "anon"),
        wasted_mb(paper::FILE_WASTE, "file"),
    ];
    rows.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};
    use crate::record::{Application, Footprint, Line};

    /// Two applications of which so many switches were observed; the second has too few that say how precise anonymous pages
    /// were, where it is so.
    fn record_of(observed: usize, is_second_imprecise: bool) -> Vec<Switches> {
        let modes = [Mode::Resident, Mode::FilesDropped, Mode::Off, Mode::Full];
        let mut circumstances = run(&modes);
        circumstances.parameters.apps = ["a", "b"].map(String::from).into();
        let mut lines = vec![Line::Run(Box::new(circumstances))];
        for (app, full_ms) in [("a", 200.0), ("b", 300.0)] {
            for block in 0..6 {
                for (mode, ms) in modes.into_iter().zip([100.0, 150.0, 400.0, full_ms]) {
                    let mut sample = switch(block, mode, ms);
                    sample.slot.app = app.into();
                    if mode == Mode::Full && (app == "a" || block == 0 || !is_second_imprecise) {
                        sample.prepage = vec![serde_json::json!({
                            "void": null,
                            "anon": {"precision": {"hits": 9, "of": 10}, "unused": 1000, "gap": 0},
                            "timing": {"switch_path_us": 100 * u64::from(block), "management_cpu_us": 2000}
                        })];
                    }
                    lines.push(Line::Sample(Box::new(sample)));
                }
            }
            lines.push(Line::Application(Box::new(Application {
                app: app.into(),
                table_bytes: Some(100_000),
                footprint: Some(Footprint {
                    switches: observed,
                    anon_by_recurrence: [vec![0; observed - 1], vec![1]].concat(),
                    file_by_recurrence: [vec![1], vec![0; observed - 2], vec![3]].concat(),
                    anon_by_switch: vec![1; observed],
                    file_by_switch: vec![3; observed],
                    file_by_size: vec![1, 30],
                }),
            })));
        }
        Switches::by_app(lines)
    }

    #[test]
    fn every_number_stands_beside_the_papers() {
        let rows = beside(&record_of(10, false));
        let value = |reported: Reported| {
            let row = rows.iter().find(|row| row.reported == reported);
            row.map(|row| (row.value * 1e3).round() / 1e3)
        };
        for (reported, expected) in [
            (paper::SLOWDOWN, 4.0),
            (paper::FILES_SLOWDOWN, 1.5),
            (paper::TIME_FULL, -37.5),
            (paper::TIME_FULL_BEST, -50.0),
            (paper::FILE_RECURRENT, 75.0),
            (paper::ANON_RECURRENT, 100.0),
            (paper::ANON_PRECISION, 90.0),
            (paper::SWITCH_PATH, 0.5),
            (paper::MANAGEMENT, 2.0),
            (paper::TABLES, 100.0),
            (paper::ANON_WASTE, 4.096),
        ] {
            assert_eq!(value(reported), Some(expected), "{reported:?}");
        }
        assert_eq!(value(paper::CPU_OFF), None, "no timeline was recorded");
        assert!(
            rows.windows(2)
                .all(|pair| pair[0].reported.figure != "-" || pair[1].reported.figure == "-")
        );
    }

    #[test]
    fn what_is_of_other_numbers_than_the_papers_says_of_which() {
        let row = |rows: &[Beside], reported: Reported| {
            let found = rows.iter().find(|row| row.reported == reported);
            found.expect("it is there").clone()
        };
        let ten = beside(&record_of(10, false));
        assert_eq!(row(&ten, paper::FILE_RECURRENT).of, None);
        let eight = beside(&record_of(8, true));
        let recurrent = row(&eight, paper::FILE_RECURRENT);
        assert_eq!(recurrent.of.as_deref(), Some("of 8 switches"));
        assert_eq!((recurrent.value, recurrent.apps), (75.0, 2));
        // The other application has one switch that tells.
        let precision = row(&eight, paper::ANON_PRECISION);
        assert_eq!((precision.apps, precision.of_apps), (1, 2));
    }
}
