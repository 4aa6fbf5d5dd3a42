//! How launches overlap the use of processors and disk (FAST's Figure 7). Pure.

use super::activity::Stretch;
use super::measures::time_ms;
use super::record::Launch;
use super::scenario::Scenario;
use crate::statistics::{Estimate, median_estimate};
use serde::Serialize;

/// The launches of one scenario over time: medians of shares of their time, in hundredths.
#[derive(Clone, Debug, Serialize)]
pub struct UsageRow {
    /// The scenario.
    pub scenario: Scenario,
    /// Launches.
    pub launches: usize,
    /// One core at least had a task to run.
    pub cpu_percent: Option<Estimate>,
    /// The same of the first quarter of the launch.
    pub first_cpu_percent: Option<Estimate>,
    /// The disk had a request in flight, or a task waited for it.
    pub disk_percent: Option<Estimate>,
    /// Both were so.
    pub both_percent: Option<Estimate>,
    /// What a reading took, in microseconds.
    pub reading_us: Option<Estimate>,
    /// The launch whose time is the lower median, which is drawn.
    #[serde(skip)]
    pub typical: Typical,
}

/// One launch over time.
#[derive(Clone, Debug, Default)]
pub struct Typical {
    /// How long it took.
    pub time_ms: f64,
    /// What it used when.
    pub stretches: Vec<Stretch>,
}

/// A row for each scenario of which a program's launches were read over time.
pub fn usage(launches: &[Launch]) -> Vec<UsageRow> {
    let mut scenarios: Vec<Scenario> = launches.iter().map(|l| l.slot.scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    let row = |&scenario| {
        let own = launches.iter().filter(|l| l.slot.scenario == scenario);
        usage_row(scenario, own)
    };
    scenarios.iter().filter_map(row).collect()
}

fn usage_row<'a>(
    scenario: Scenario,
    launches: impl Iterator<Item = &'a Launch>,
) -> Option<UsageRow> {
    let mut all = Vec::new();
    let mut readings_us = Vec::new();
    for launch in launches {
        let Some(activity) = launch.activity.as_ref().filter(|a| a.t_us.len() > 1) else {
            continue;
        };
        readings_us.push(activity.reading_us as f64 / activity.t_us.len() as f64);
        let time_ms = time_ms(launch);
        all.push(Typical {
            time_ms,
            stretches: activity.stretches(time_ms).collect(),
        });
    }
    all.sort_by(|a, b| a.time_ms.total_cmp(&b.time_ms));
    let typical = all.get(all.len().saturating_sub(1) / 2)?.clone();
    let percent = |part: f64, is_so: fn(&Stretch) -> bool| {
        let of_each = all.iter().map(|one| one.percent(part, is_so));
        median_estimate(&of_each.collect::<Vec<f64>>())
    };
    const QUARTER: f64 = 0.25;
    Some(UsageRow {
        scenario,
        launches: all.len(),
        cpu_percent: percent(1.0, |s| s.is_cpu_busy),
        first_cpu_percent: percent(QUARTER, |s| s.is_cpu_busy),
        disk_percent: percent(1.0, |s| s.is_disk_busy),
        both_percent: percent(1.0, |s| s.is_cpu_busy && s.is_disk_busy),
        reading_us: median_estimate(&readings_us),
        typical,
    })
}

impl Typical {
    /// Hundredths of the first `part` of a launch in which something was so.
    fn percent(&self, part: f64, is_so: fn(&Stretch) -> bool) -> f64 {
        let until_ms = part * self.time_ms;
        let length = |s: &Stretch| (s.to_ms.min(until_ms) - s.from_ms).max(0.0);
        let so = self.stretches.iter().filter(|s| is_so(s)).map(length);
        100.0 * so.sum::<f64>() / until_ms.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::activity::Activity;
    use super::super::record::tests::launch;
    use super::*;

    /// Launches over time of 80 ms, of which the processors are busy for the last half, the disk for the first three quarters.
    pub fn over_time(program: &str, scenario: Scenario) -> Vec<Launch> {
        let of_block = |block| Launch {
            activity: Some(Activity {
                t_us: vec![0, 20_000, 40_000, 60_000, 81_000],
                runnable: vec![0, 0, 1, 2, 0],
                waiting: vec![1, 0, 0, 0, 0],
                in_flight: vec![0, 3, 1, 0, 0],
                reading_us: 100,
            }),
            ..launch(program, block, scenario, 80.0)
        };
        (0..4).map(of_block).collect()
    }

    #[test]
    fn shares_are_of_the_launch_and_overlap() {
        let mut launches = over_time("gimp", Scenario::Cold);
        launches.push(launch("gimp", 9, Scenario::Fast, 70.0));
        let rows = usage(&launches);
        let [cold] = &rows[..] else {
            panic!("what was not read has no row: {rows:?}")
        };
        let value = |estimate: Option<Estimate>| estimate.expect("four launches").value;
        assert_eq!((cold.scenario, cold.launches), (Scenario::Cold, 4));
        assert_eq!(value(cold.cpu_percent), 50.0);
        assert_eq!(value(cold.first_cpu_percent), 0.0);
        assert_eq!(value(cold.disk_percent), 75.0);
        assert_eq!(value(cold.both_percent), 25.0);
        assert_eq!(value(cold.reading_us), 20.0);
        assert_eq!(cold.typical.stretches.last().map(|s| s.to_ms), Some(80.0));
    }
}
