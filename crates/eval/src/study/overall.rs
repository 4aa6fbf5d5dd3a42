//! Several applications of one record taken together.

use super::measures::{comparison, gap_closed, median_ratio, triples};
use super::switches::{Block, Switches, settled_ms};
use crate::record::Mode;
use crate::statistics::{Estimate, bootstrap_mean};
use serde::Serialize;

/// A mode over all applications of a record.
#[derive(Clone, Debug, Serialize)]
pub struct Overall {
    /// The mode.
    pub mode: Mode,
    /// Applications whose ratio to off has an interval.
    pub apps: usize,
    /// The mean over these of the ratio to off; nothing where one of the record's applications has none.
    pub ratio_to_off: Option<Estimate>,
    /// The mean of the gap closed; nothing where one of the record's applications has none.
    pub gap_closed: Option<Estimate>,
    /// Applications that are faster than without: the whole interval of the ratio is below 1.
    pub faster: usize,
    /// Applications that are not slower than without: the interval excludes a loss of 3 %.
    pub not_slower: usize,
    /// Applications that are slower than without: the whole interval is above 1.
    pub slower: usize,
}

/// "Not slower" excludes a loss of so much.
pub const LOSS_MAX: f64 = 0.03;

/// A row for each mode but off and those in which nothing is out; none of a single application, nor of samples too few to
/// compare.
pub fn overall(apps: &[Switches]) -> Vec<Overall> {
    let mut modes: Vec<Mode> = apps.iter().flat_map(Switches::modes).collect();
    modes.sort_unstable();
    modes.dedup();
    modes.retain(|mode| *mode != Mode::Off && mode.is_taken_out());
    match apps {
        [] | [_] => Vec::new(),
        several => {
            let rows = modes.iter().map(|&mode| of_mode(several, mode));
            rows.filter(|row| row.apps > 0).collect()
        }
    }
}

fn of_mode(apps: &[Switches], mode: Mode) -> Overall {
    let ratios: Vec<Estimate> = apps
        .iter()
        .filter_map(|app| comparison(app, mode).ratio_to_off)
        .collect();
    let count = |holds: fn(&Estimate) -> bool| ratios.iter().filter(|e| holds(e)).count();
    Overall {
        mode,
        apps: ratios.len(),
        ratio_to_off: mean_ratio(apps, mode, Mode::Off),
        gap_closed: mean(
            apps,
            |app| triples(app, mode),
            |blocks, drawn| gap_closed(blocks, drawn, mode),
        ),
        faster: count(|e| e.high < 1.0),
        not_slower: count(|e| e.high < 1.0 + LOSS_MAX),
        slower: count(|e| e.low > 1.0),
    }
}

/// The mean over the applications of the median of the blocks' ratios of a mode to another: of the time to the settled
/// picture.
pub fn mean_ratio(apps: &[Switches], mode: Mode, other: Mode) -> Option<Estimate> {
    mean(
        apps,
        |app| app.blocks(&[mode, other]),
        |blocks, drawn| median_ratio(blocks, drawn, (mode, other), settled_ms),
    )
}

/// The mean over the applications of a statistic of their blocks.
fn mean(
    apps: &[Switches],
    blocks: impl Fn(&Switches) -> Vec<Block<'_>>,
    statistic: impl Fn(&[Block<'_>], &[usize]) -> Option<f64>,
) -> Option<Estimate> {
    let blocks: Vec<Vec<Block<'_>>> = apps.iter().map(blocks).collect();
    let sizes: Vec<usize> = blocks.iter().map(Vec::len).collect();
    bootstrap_mean(&sizes, |i, drawn| statistic(&blocks[i], drawn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};

    /// Of each application: its name, and what it takes resident, off and full, in ms.
    fn record(apps: &[(&str, f64, f64, f64)]) -> Vec<Switches> {
        let modes = [Mode::Resident, Mode::Off, Mode::Full];
        let mut circumstances = run(&modes);
        circumstances.parameters.apps = apps.iter().map(|app| app.0.to_owned()).collect();
        let mut lines = vec![Line::Run(Box::new(circumstances))];
        for block in 0..6 {
            for &(name, resident, off, full) in apps {
                for (mode, ms) in modes.into_iter().zip([resident, off, full]) {
                    let mut sample = switch(block, mode, ms);
                    sample.slot.app = name.to_owned();
                    lines.push(Line::Sample(Box::new(sample)));
                }
            }
        }
        Switches::by_app(lines)
    }

    #[test]
    fn applications_count_alike_and_each_is_judged() {
        let apps = [
            ("chromium", 100.0, 400.0, 200.0),
            ("gimp", 10.0, 110.0, 60.0),
            ("evince", 10.0, 20.0, 22.0),
        ];
        let rows = overall(&record(&apps));
        assert_eq!(rows.len(), 1);
        let full = &rows[0];
        assert_eq!(
            (full.apps, full.faster, full.not_slower, full.slower),
            (3, 2, 2, 1)
        );
        let gap = full.gap_closed.unwrap();
        assert!(
            (gap.value - (2.0 / 3.0 + 0.5 - 0.2) / 3.0).abs() < 1e-9,
            "{gap:?}"
        );
        let ratio = full.ratio_to_off.unwrap();
        let expected = (0.5 + 60.0 / 110.0 + 1.1) / 3.0;
        assert!((ratio.value - expected).abs() < 1e-6, "{ratio:?}");
        assert_eq!(ratio.n, 3);
    }

    #[test]
    fn a_mean_without_one_of_the_applications_is_not_printed() {
        let apps = [("a", 100.0, 400.0, 200.0), ("b", 30.0, 20.0, 20.0)];
        let rows = overall(&record(&apps));
        assert!(rows[0].gap_closed.is_none(), "b has no gap");
        assert!(rows[0].ratio_to_off.is_some());
        assert!(overall(&record(&apps[..1])).is_empty());
    }
}
