//! How long the application itself waited in a switch, beside how long the switch took.

use super::switches::Switches;
use super::text::{cells, interval};
use super::{Studies, Study};
use crate::record::{Mode, Switch};
use crate::statistics::{Estimate, median_estimate};
use serde::Serialize;

/// Median times in which some task of the application waited, from the activation until watching ended (PSI). One that
/// waits for what is read into memory may be counted under both.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stalls {
    /// For memory: swapped out, or taken out of the page cache and wanted again.
    pub memory_ms: Option<Estimate>,
    /// For the disk.
    pub io_ms: Option<Estimate>,
    /// For a processor.
    pub cpu_ms: Option<Estimate>,
}

/// What a table of stalls does not say by itself.
pub const NOTE: &str = "\
    Stalled: time in which some task of the application waited, in all, from the activation until watching ended, as the kernel \
    counts it (PSI): of pages swapped in, only those that were in use when they were taken out count as a wait for memory. How \
    long the longest single fault or mmap took is not in the record.";

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
    }
}

/// The heads of [`stall_cells`].
pub const HEADS: [&str; 3] = ["stalled, memory ms", "stalled, I/O ms", "stalled, CPU ms"];

/// A cell for each resource.
pub fn stall_cells(stalls: &Stalls) -> [String; 3] {
    [stalls.memory_ms, stalls.io_ms, stalls.cpu_ms].map(|estimate| interval(estimate, 1))
}

/// A row for each application and each mode in which its memory was out; nothing where no stall was recorded.
pub fn stall_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&["application", "mode", "n", "settled ms"])];
    rows[0].extend(cells(&HEADS));
    let is_known = |stalls: &Stalls| stalls.memory_ms.or(stalls.io_ms).is_some();
    for study in &studies.apps {
        let modes = study.modes.iter();
        for row in modes.filter(|row| row.mode.is_taken_out() && is_known(&row.stalls)) {
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
    let mut stalls = study.modes.iter().map(|row| row.stalls);
    stalls.any(|s| s.memory_ms.or(s.io_ms).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};
    use crate::study::study_apps;

    fn studies(is_recorded: bool) -> Studies {
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
        study_apps(&Switches::by_app(lines))
    }

    #[test]
    fn stalls_stand_beside_the_times_in_ms() {
        let studies = studies(true);
        let rows = stall_rows(&studies);
        let expected = ["0.1 [0.1, 0.1]", "36.6 [36.6, 36.6]", "95.0 [95.0, 95.0]"];
        assert_eq!(rows[1][..4], ["chromium", "off", "8", "400 [400, 400]"]);
        assert_eq!(rows[1][4..], expected);
        assert!(is_known(&studies.apps[0]));
    }

    #[test]
    fn what_was_not_recorded_is_no_stall_of_zero() {
        let studies = studies(false);
        assert!(stall_rows(&studies).len() == 1 && !is_known(&studies.apps[0]));
        assert_eq!(
            stall_cells(&studies.apps[0].modes[0].stalls),
            ["-", "-", "-"]
        );
    }
}
