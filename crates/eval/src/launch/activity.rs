//! When processors and disk are busy over the time of a launch (FAST's Figure 7).

use crate::clock::now_ns;
use crate::readings::Pace;
use crate::sysfs;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A reading takes some 10 us of one core; the longest launches take seconds.
pub const PACE: Pace = Pace {
    interval_ns: 1_000_000,
    readings_max: 10_000,
};

/// What is read: what the paper's modified kernel counted, as a stock one tells it. Both say what is so at that moment,
/// of the whole machine.
#[derive(Clone, Debug)]
pub struct Instruments {
    /// The `inflight` file of the disk under the programs' files (Documentation/ABI/stable/sysfs-block).
    pub disk_inflight: Option<PathBuf>,
}

/// The state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub t_ns: u64,
    /// Tasks that run or are ready to, without the one that reads.
    pub runnable: u64,
    /// Tasks that wait for I/O.
    pub waiting: u64,
    /// Requests that the disk has in flight.
    pub in_flight: u64,
    /// How long reading all this took.
    pub took_ns: u64,
}

impl Instruments {
    /// Reads them.
    pub fn read(&self) -> Reading {
        let t_ns = now_ns();
        let stat = sysfs::read("/proc/stat").unwrap_or_default();
        let (running, waiting) = tasks(&stat);
        let in_flight = self.disk_inflight.as_ref().and_then(sysfs::read);
        let mut reading = Reading {
            t_ns,
            runnable: running.saturating_sub(1),
            waiting,
            in_flight: in_flight.as_deref().map_or(0, sum),
            took_ns: 0,
        };
        reading.took_ns = now_ns() - t_ns;
        reading
    }
}

/// Tasks that run or are ready to, and those that wait for I/O, by `/proc/stat` (proc_stat(5)).
fn tasks(stat: &str) -> (u64, u64) {
    let mut counts = sysfs::parse_pairs(stat);
    let mut count = |wanted| counts.find(|(name, _)| *name == wanted).map_or(0, |c| c.1);
    (count("procs_running"), count("procs_blocked"))
}

/// Reads and writes together.
fn sum(inflight: &str) -> u64 {
    let numbers = inflight.split_whitespace();
    numbers.filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// What was so during one launch. All lists have one entry a reading: what it says holds until the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// When each reading was taken, since the launch began; the last one is the first after its end.
    pub t_us: Vec<u64>,
    /// Tasks that ran or were ready to.
    pub runnable: Vec<u64>,
    /// Tasks that waited for I/O.
    pub waiting: Vec<u64>,
    /// Requests that the disk had in flight.
    pub in_flight: Vec<u64>,
    /// What taking the readings took, in all.
    pub reading_us: u64,
}

/// A stretch of time, from and to, in which processors and disk were busy or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Its beginning, in milliseconds since that of the launch.
    pub from_ms: f64,
    /// Its end.
    pub to_ms: f64,
    /// Whether one core at least had a task to run.
    pub is_cpu_busy: bool,
    /// Whether a request was in flight or a task waited for I/O.
    pub is_disk_busy: bool,
}

impl Activity {
    /// What readings say of a launch that began at `t0_ns` and was over `t_end_ns` later. The first reading precedes it.
    pub fn of(readings: &[Reading], t0_ns: u64, t_end_ns: u64) -> Self {
        let mut activity = Self::default();
        let before = readings.partition_point(|r| r.t_ns <= t0_ns);
        for reading in &readings[before.saturating_sub(1)..] {
            activity
                .t_us
                .push(reading.t_ns.saturating_sub(t0_ns) / 1_000);
            activity.runnable.push(reading.runnable);
            activity.waiting.push(reading.waiting);
            activity.in_flight.push(reading.in_flight);
            activity.reading_us += reading.took_ns / 1_000;
            if reading.t_ns >= t0_ns + t_end_ns {
                break;
            }
        }
        activity
    }

    /// The stretches between readings, up to the end of a launch that took so long.
    pub fn stretches(&self, end_ms: f64) -> impl Iterator<Item = Stretch> + '_ {
        let ms = |us: u64| us as f64 / 1e3;
        let until = self.t_us.iter().skip(1).map(move |us| ms(*us).min(end_ms));
        until.enumerate().map(move |(i, to_ms)| Stretch {
            from_ms: ms(self.t_us[i]).min(end_ms),
            to_ms,
            is_cpu_busy: self.runnable[i] > 0,
            is_disk_busy: self.in_flight[i] > 0 || self.waiting[i] > 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_found() {
        let stat = "cpu  1 2 3\nintr 5 0 1\nctxt 9\nprocesses 7\nprocs_running 3\nprocs_blocked 2\nsoftirq 1 2\n";
        assert_eq!(tasks(stat), (3, 2));
        assert_eq!(sum("       2        1\n"), 3);
        let own = Instruments {
            disk_inflight: None,
        };
        let reading = own.read();
        assert!(reading.took_ns > 0 && reading.in_flight == 0, "{reading:?}");
    }

    #[test]
    fn readings_hold_until_the_next_and_end_with_the_launch() {
        let reading = |(ms, runnable, waiting, in_flight): (u64, u64, u64, u64)| Reading {
            t_ns: ms * 1_000_000,
            runnable,
            waiting,
            in_flight,
            took_ns: 20_000,
        };
        let readings = [
            (97, 9, 9, 9),
            (99, 0, 0, 0),
            (101, 1, 0, 0),
            (103, 0, 1, 0),
            (104, 2, 0, 4),
            (106, 0, 0, 0),
            (107, 5, 5, 5),
        ]
        .map(reading);
        let activity = Activity::of(&readings, 100_000_000, 5_500_000);
        assert_eq!(activity.t_us, [0, 1_000, 3_000, 4_000, 6_000]);
        assert_eq!(activity.reading_us, 100);
        let stretches: Vec<_> = activity
            .stretches(5.5)
            .map(|s| (s.from_ms, s.to_ms, s.is_cpu_busy, s.is_disk_busy))
            .collect();
        let expected = [
            (0.0, 1.0, false, false),
            (1.0, 3.0, true, false),
            (3.0, 4.0, false, true),
            (4.0, 5.5, true, true),
        ];
        assert_eq!(stretches, expected);
        assert_eq!(Activity::of(&[], 0, 1), Activity::default());
    }
}
