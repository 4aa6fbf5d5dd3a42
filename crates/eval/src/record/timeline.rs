//! Use of processors and disk during one switch, over time.

use serde::{Deserialize, Serialize};

/// Counters at one moment; all but the time count up from an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub t_ns: u64,
    /// CPU time of the application.
    pub app_cpu_us: u64,
    /// CPU time of prepage.
    pub service_cpu_us: u64,
    /// CPU time of display server, window manager and this program.
    pub others_cpu_us: u64,
    /// Sectors of 512 bytes read from the disk, by anyone.
    pub disk_read_sectors: u64,
    /// Major faults of the application.
    pub majflt: u64,
    /// Pages swapped in, by anyone.
    pub pswpin: u64,
    /// How long reading all this took.
    pub took_ns: u64,
}

/// What happened between readings, from the activation until the picture settled. All lists have one entry a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// When each reading was taken, since the activation.
    pub t_us: Vec<u64>,
    /// CPU time of the application since the reading before.
    pub app_cpu_us: Vec<u64>,
    /// CPU time of prepage.
    pub service_cpu_us: Vec<u64>,
    /// CPU time of display server, window manager and the measuring program.
    pub others_cpu_us: Vec<u64>,
    /// Sectors of 512 bytes that were read from the disk.
    pub disk_read_sectors: Vec<u64>,
    /// Major faults of the application: pages that it demanded.
    pub majflt: Vec<u64>,
    /// Pages that were swapped in, on demand or by prepage.
    pub pswpin: Vec<u64>,
    /// What taking the readings took, in all.
    pub reading_us: u64,
}

impl Timeline {
    /// What readings say of a switch that was asked for at `t0_ns` and settled `t_settled_ns` later. The first reading
    /// precedes the activation; the last one that is kept is the first after the settled picture.
    pub fn of(readings: &[Reading], t0_ns: u64, t_settled_ns: u64) -> Self {
        let mut timeline = Self::default();
        for pair in readings.windows(2) {
            let (before, now) = (&pair[0], &pair[1]);
            if before.t_ns >= t0_ns + t_settled_ns {
                break;
            }
            let since = |value: fn(&Reading) -> u64| value(now).saturating_sub(value(before));
            timeline.t_us.push(now.t_ns.saturating_sub(t0_ns) / 1_000);
            timeline.app_cpu_us.push(since(|r| r.app_cpu_us));
            timeline.service_cpu_us.push(since(|r| r.service_cpu_us));
            timeline.others_cpu_us.push(since(|r| r.others_cpu_us));
            let sectors = since(|r| r.disk_read_sectors);
            timeline.disk_read_sectors.push(sectors);
            timeline.majflt.push(since(|r| r.majflt));
            timeline.pswpin.push(since(|r| r.pswpin));
            timeline.reading_us += now.took_ns / 1_000;
        }
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_become_differences_until_the_picture_settled() {
        let reading = |ms: u64| Reading {
            t_ns: ms * 1_000_000,
            app_cpu_us: 500 * ms,
            disk_read_sectors: 8 * ms,
            took_ns: 100_000,
            ..Reading::default()
        };
        let readings = [99, 110, 120, 130, 140].map(reading);
        let timeline = Timeline::of(&readings, 100_000_000, 21_000_000);
        assert_eq!(timeline.t_us, [10_000, 20_000, 30_000]);
        assert_eq!(timeline.app_cpu_us, [5_500, 5_000, 5_000]);
        assert_eq!(timeline.disk_read_sectors, [88, 80, 80]);
        assert_eq!((timeline.majflt, timeline.reading_us), (vec![0; 3], 300));
        assert_eq!(Timeline::of(&readings[..1], 0, 1), Timeline::default());
    }
}
