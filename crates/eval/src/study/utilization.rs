//! How much of processors and disk a switch uses (ASAP's Figures 2, 3, 13 and 14).

use super::switches::Switches;
use crate::record::{Machine, Mode, Switch, Timeline};
use crate::statistics::{Estimate, median_estimate};
use serde::Serialize;

/// What a mode uses from the activation until the picture settled: medians over its switches.
#[derive(Clone, Debug, Serialize)]
pub struct Utilization {
    /// The mode.
    pub mode: Mode,
    /// Hundredths of all cores that the application, prepage, display and measurement use together.
    pub cpu_percent: Option<Estimate>,
    /// The application's part of it.
    pub app_percent: Option<Estimate>,
    /// prepage's part.
    pub service_percent: Option<Estimate>,
    /// What is read from the disk, in 10^6 bytes a second.
    pub disk_mb_per_s: Option<Estimate>,
    /// The same, in hundredths of what the disk reads sequentially; nothing where that was not measured.
    pub disk_percent: Option<Estimate>,
    /// CPU use over that of mode off, in pairs.
    pub cpu_ratio_to_off: Option<Estimate>,
    /// Disk use over that of mode off, in pairs.
    pub disk_ratio_to_off: Option<Estimate>,
    /// What a reading of the counters took, while the switch was under way.
    pub reading_us: Option<Estimate>,
}

/// A number of one switch, on a machine.
pub type Value = fn(&Switch, &Machine) -> Option<f64>;

/// A row for each mode of which switches were recorded over time.
pub fn utilization(switches: &Switches) -> Vec<Utilization> {
    let of_mode = |mode| {
        let estimate = |value| median_estimate(&values(switches, mode, value));
        Utilization {
            mode,
            cpu_percent: estimate(cpu_percent),
            app_percent: estimate(app_percent),
            service_percent: estimate(service_percent),
            disk_mb_per_s: estimate(disk_mb_per_s),
            disk_percent: estimate(disk_percent),
            cpu_ratio_to_off: ratio_to_off(switches, mode, cpu_percent),
            disk_ratio_to_off: ratio_to_off(switches, mode, disk_mb_per_s),
            reading_us: estimate(reading_us),
        }
    };
    let rows = switches.modes().into_iter().map(of_mode);
    rows.filter(|row| row.cpu_percent.is_some()).collect()
}

/// A number of every switch of a mode that has it.
pub fn values(switches: &Switches, mode: Mode, value: Value) -> Vec<f64> {
    let of_mode = switches.samples.iter().filter(|s| s.slot.mode == mode);
    of_mode
        .filter_map(|s| value(s, &switches.run.machine))
        .collect()
}

/// The ratios of a mode to off, of blocks that have both.
pub fn ratios_to_off(switches: &Switches, mode: Mode, value: Value) -> Vec<f64> {
    let machine = &switches.run.machine;
    let blocks = switches.blocks(&[mode, Mode::Off]);
    let ratio = |block: &super::switches::Block<'_>| {
        let off = value(block[&Mode::Off], machine)?;
        Some(value(block[&mode], machine)? / off).filter(|ratio| ratio.is_finite())
    };
    blocks.iter().filter_map(ratio).collect()
}

fn ratio_to_off(switches: &Switches, mode: Mode, value: Value) -> Option<Estimate> {
    match mode {
        Mode::Off => None,
        _ => median_estimate(&ratios_to_off(switches, mode, value)),
    }
}

/// The timeline of a switch, and how long it is.
fn timed(switch: &Switch) -> Option<(&Timeline, f64)> {
    let timeline = switch.timeline.as_ref()?;
    let us = *timeline.t_us.last()? as f64;
    (us > 0.0).then_some((timeline, us))
}

fn sum(counts: &[u64]) -> f64 {
    counts.iter().sum::<u64>() as f64
}

fn share_of_cores(switch: &Switch, machine: &Machine, cpu_us: fn(&Timeline) -> f64) -> Option<f64> {
    let (timeline, us) = timed(switch)?;
    Some(100.0 * cpu_us(timeline) / us / machine.cores.max(1) as f64)
}

/// Hundredths of all cores in use.
pub fn cpu_percent(switch: &Switch, machine: &Machine) -> Option<f64> {
    share_of_cores(switch, machine, |t| {
        sum(&t.app_cpu_us) + sum(&t.service_cpu_us) + sum(&t.others_cpu_us)
    })
}

fn app_percent(switch: &Switch, machine: &Machine) -> Option<f64> {
    share_of_cores(switch, machine, |t| sum(&t.app_cpu_us))
}

fn service_percent(switch: &Switch, machine: &Machine) -> Option<f64> {
    share_of_cores(switch, machine, |t| sum(&t.service_cpu_us))
}

/// 10^6 bytes a second read from the disk.
pub fn disk_mb_per_s(switch: &Switch, _: &Machine) -> Option<f64> {
    const SECTOR_BYTES: f64 = 512.0;
    let (timeline, us) = timed(switch)?;
    Some(sum(&timeline.disk_read_sectors) * SECTOR_BYTES / us)
}

/// Hundredths of what the disk reads sequentially.
pub fn disk_percent(switch: &Switch, machine: &Machine) -> Option<f64> {
    let most_mb_per_s = machine.disk_read_bytes_per_s? as f64 / 1e6;
    Some(100.0 * disk_mb_per_s(switch, machine)? / most_mb_per_s)
}

fn reading_us(switch: &Switch, _: &Machine) -> Option<f64> {
    let timeline = switch.timeline.as_ref()?;
    Some(timeline.reading_us as f64 / timeline.t_us.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};

    #[test]
    fn use_is_of_all_cores_and_of_what_the_disk_can() {
        let mut circumstances = run(&[Mode::Off, Mode::Full]);
        circumstances.machine.disk_read_bytes_per_s = Some(1_024_000_000);
        let mut lines = vec![Line::Run(Box::new(circumstances))];
        for block in 0..4 {
            for (mode, prepage_us) in [(Mode::Off, 0), (Mode::Full, 5_000)] {
                let mut sample = switch(block, mode, 20.0);
                sample.timeline = Some(Timeline {
                    t_us: vec![10_000, 20_000],
                    app_cpu_us: vec![5_000, 3_000],
                    service_cpu_us: vec![prepage_us, 0],
                    others_cpu_us: vec![1_000, 1_000],
                    disk_read_sectors: vec![4_000, 0],
                    ..Timeline::default()
                });
                lines.push(Line::Sample(Box::new(sample)));
            }
        }
        let rows = utilization(&Switches::by_app(lines).remove(0));
        let value = |estimate: Option<Estimate>| estimate.expect("four switches").value;
        assert_eq!(rows.len(), 2);
        assert_eq!(value(rows[0].cpu_percent), 25.0);
        assert_eq!(value(rows[1].service_percent), 12.5);
        assert_eq!(value(rows[1].cpu_ratio_to_off), 1.5);
        assert_eq!(value(rows[0].disk_mb_per_s), 102.4);
        assert_eq!(value(rows[0].disk_percent), 10.0);
        assert!(rows[0].cpu_ratio_to_off.is_none());
    }

    #[test]
    fn records_from_before_have_no_row() {
        let lines = vec![
            Line::Run(Box::new(run(&[Mode::Off]))),
            Line::Sample(Box::new(switch(0, Mode::Off, 20.0))),
        ];
        assert!(utilization(&Switches::by_app(lines).remove(0)).is_empty());
    }
}
