//! How long the application itself waited in a switch, in all and at a time, beside how long the switch took.

use super::switches::Switches;
use super::text::{cells, interval};
use super::{Studies, Study};
use crate::record::{Longest, Mode, Switch};
use crate::statistics::{Estimate, median_estimate};
use serde::Serialize;

/// Median times in which some task of the application waited, from the activation until watching ended (PSI), and how long
/// at a time. One that waits for what is read into memory may be counted under both.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stalls {
    /// For memory: swapped out, or taken out of the page cache and wanted again.
    pub memory_ms: Option<Estimate>,
    /// For the disk.
    pub io_ms: Option<Estimate>,
    /// For a processor.
    pub cpu_ms: Option<Estimate>,
    /// The longest single page fault.
    pub longest_fault_ms: Option<LongestOf>,
    /// The longest single call that changes an address space.
    pub longest_call_ms: Option<LongestOf>,
}

/// The longest of each of several switches, which are no samples.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LongestOf {
    /// Their median, where they are enough for an interval.
    pub median: Option<Estimate>,
    /// The longest of all.
    pub most: f64,
    /// Switches.
    pub n: usize,
}

/// What a table of stalls does not say by itself.
pub const NOTE: &str = "\
    Stalled: time in which some task of the application waited, in all, from the activation until watching ended, as the kernel \
    counts it (PSI): of pages swapped in, only those that were in use when they were taken out count as a wait for memory. The \
    longest fault, and the longest mmap, munmap, mremap, mprotect or brk, of any of its threads in that time, are those of \
    switches that are no samples, since measuring them takes time of each fault: their median, and the most.";

/// Of one mode.
pub fn stalls(switches: &Switches, mode: Mode) -> Stalls {
    let of = |resource: &str| {
        let stalled_ms = |s: &Switch| Some(*s.stalled_us.get(resource)? as f64 / 1e3);
        median_estimate(&switches.known_values(mode, stalled_ms))
    };
    Stalls {
        memory_ms: of("memory"),
        io_ms: of("io"),
        cpu_ms: of("cpu"),
        longest_fault_ms: longest(switches, mode, |longest| Some(longest.fault_ns)),
        longest_call_ms: longest(switches, mode, |longest| longest.call_ns),
    }
}

fn longest(
    switches: &Switches,
    mode: Mode,
    ns: impl Fn(&Longest) -> Option<u64>,
) -> Option<LongestOf> {
    let of_mode = switches.stalls.iter().filter(|s| s.slot.mode == mode);
    let ms = of_mode.filter_map(|s| Some(ns(s.longest.as_ref()?)? as f64 / 1e6));
    let ms: Vec<f64> = ms.collect();
    Some(LongestOf {
        median: median_estimate(&ms),
        most: ms.iter().copied().reduce(f64::max)?,
        n: ms.len(),
    })
}

/// The heads of [`stall_cells`].
pub const HEADS: [&str; 5] = [
    "longest fault ms",
    "longest mmap etc. ms",
    "stalled, memory ms",
    "stalled, I/O ms",
    "stalled, CPU ms",
];

/// A cell for each single wait, and one for each resource.
pub fn stall_cells(stalls: &Stalls) -> [String; 5] {
    let [fault, call] = [stalls.longest_fault_ms, stalls.longest_call_ms].map(longest_cell);
    let [memory, io, cpu] =
        [stalls.memory_ms, stalls.io_ms, stalls.cpu_ms].map(|estimate| interval(estimate, 1));
    [fault, call, memory, io, cpu]
}

fn longest_cell(longest: Option<LongestOf>) -> String {
    let Some(LongestOf { median, most, n }) = longest else {
        return "-".into();
    };
    format!("{}, most {most:.1} of {n}", interval(median, 1))
}

impl Stalls {
    fn is_known(&self) -> bool {
        self.memory_ms.or(self.io_ms).is_some() || self.longest_fault_ms.is_some()
    }
}

/// A row for each application and each mode in which its memory was out; nothing where no stall was recorded.
pub fn stall_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&["application", "mode", "n", "settled ms"])];
    rows[0].extend(cells(&HEADS));
    for study in &studies.apps {
        let modes = study.modes.iter();
        for row in modes.filter(|row| row.mode.is_taken_out() && row.stalls.is_known()) {
            let mut line = cells(&[&study.app, row.mode.word()]);
            line.extend([row.samples.to_string(), interval(row.settled_ms, 0)]);
            line.extend(stall_cells(&row.stalls));
            rows.push(line);
        }
    }
    rows
}

/// Whether any stall of an application was recorded.
pub fn is_known(study: &Study) -> bool {
    study.modes.iter().any(|row| row.stalls.is_known())
}

/// Of how many switches of an application events are missing, so that the longest may have been longer.
pub fn incomplete(switches: &Switches) -> usize {
    let lost = |s: &&Switch| s.longest.as_ref().is_some_and(|longest| longest.lost > 0);
    switches.stalls.iter().filter(lost).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};
    use crate::study::study_apps;
    use crate::study::text::remarks;

    fn record(is_recorded: bool) -> Vec<Line> {
        let mut lines = vec![Line::Run(Box::new(run(&[Mode::Off])))];
        for block in 0..8 {
            let mut sample = switch(block, Mode::Off, 400.0);
            if is_recorded {
                sample.stalled_us = [("memory", 63), ("io", 36_600), ("cpu", 95_000)]
                    .map(|(resource, us)| (resource.to_owned(), us))
                    .into();
            }
            lines.push(Line::Sample(Box::new(sample)));
        }
        lines
    }

    fn studies(is_recorded: bool) -> Studies {
        study_apps(&Switches::by_app(record(is_recorded)))
    }

    /// Switches that took twice as long, with a longest fault of so many ms each.
    fn for_stalls(longest_ms: &[u64], has_calls: bool) -> Vec<Line> {
        let line = |(block, &ms): (u32, &u64)| {
            let mut stalled = switch(block, Mode::Off, 800.0);
            stalled.longest = Some(Longest {
                fault_ns: ms * 1_000_000,
                faults: 1_000,
                call_ns: has_calls.then_some(ms * 500_000),
                lost: ms / 9,
                ..Longest::default()
            });
            Line::Stalls(Box::new(stalled))
        };
        (1 << 15..).zip(longest_ms).map(line).collect()
    }

    #[test]
    fn stalls_stand_beside_the_times_in_ms() {
        let studies = studies(true);
        let rows = stall_rows(&studies);
        let expected = ["0.1 [0.1, 0.1]", "36.6 [36.6, 36.6]", "95.0 [95.0, 95.0]"];
        assert_eq!(rows[1][..4], ["chromium", "off", "8", "400 [400, 400]"]);
        assert_eq!(rows[1][4..6], ["-", "-"], "not measured");
        assert_eq!(rows[1][6..], expected);
        assert!(is_known(&studies.apps[0]));
    }

    #[test]
    fn the_longest_single_waits_are_of_switches_whose_times_do_not_count() {
        let lines = [record(false), for_stalls(&[6, 7, 7, 9], true)].concat();
        let switches = Switches::by_app(lines);
        let rows = stall_rows(&study_apps(&switches));
        assert_eq!(rows[1][..4], ["chromium", "off", "8", "400 [400, 400]"]);
        assert_eq!(rows[1][4], "7.0 [6.0, 9.0], most 9.0 of 4");
        assert_eq!(rows[1][5], "3.5 [3.0, 4.5], most 4.5 of 4");
        let study = &study_apps(&switches).apps[0];
        assert_eq!(study.incomplete_stalls, 1);
        assert!(remarks(study).iter().any(|line| line.contains("missing")));
    }

    #[test]
    fn few_single_waits_have_no_interval_and_calls_that_nobody_sees_are_not_zero() {
        let lines = [record(false), for_stalls(&[6, 7], false)].concat();
        let rows = stall_rows(&study_apps(&Switches::by_app(lines)));
        assert_eq!(rows[1][4..6], ["-, most 7.0 of 2", "-"]);
    }

    #[test]
    fn what_was_not_recorded_is_no_stall_of_zero() {
        let studies = studies(false);
        assert!(stall_rows(&studies).len() == 1 && !is_known(&studies.apps[0]));
        assert_eq!(stall_cells(&studies.apps[0].modes[0].stalls), ["-"; 5]);
    }
}
