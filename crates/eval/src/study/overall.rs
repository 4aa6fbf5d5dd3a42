//! Several applications of one record taken together.

use super::Study;
use super::measures::{gap_closed, median_ratio, ratio_to_off, triples};
use super::switches::{Block, Switches, settled_ms};
use crate::record::{Mode, Setting};
use crate::statistics::{Estimate, bootstrap_mean, bootstrap_mean_jointly};
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
    /// The mean of the gap closed, without [`without_gap`]; nothing where one of the others has none.
    pub gap_closed: Option<Estimate>,
    /// Applications that are faster than without: the whole interval of the ratio is below 1.
    pub faster: usize,
    /// Applications whose interval excludes a loss of 3 % ([`LOSS_MAX`]).
    pub no_loss: usize,
    /// Applications that are slower than without: the whole interval is above 1.
    pub slower: usize,
    /// The others: whether they lose 3 % is open.
    pub open: usize,
}

/// What "no application slower" means: the 95 % interval of each excludes a loss of so much. Of an application whose interval
/// does not, it is open.
pub const LOSS_MAX: f64 = 0.03;

/// A row for each mode but off and those in which nothing is out; none of a single application, nor of samples too few to
/// compare. The mean of gaps is without these applications ([`without_gap`]).
pub fn overall(apps: &[Switches], without_gap: &[String]) -> Vec<Overall> {
    let mut modes: Vec<Mode> = apps.iter().flat_map(Switches::modes).collect();
    modes.sort_unstable();
    modes.dedup();
    modes.retain(|mode| *mode != Mode::Off && mode.is_taken_out());
    match apps {
        [] | [_] => Vec::new(),
        several => {
            let rows = modes
                .iter()
                .map(|&mode| of_mode(several, without_gap, mode));
            rows.filter(|row| row.apps > 0).collect()
        }
    }
}

/// The applications that are not clearly slower swapped out than resident. What of such a gap is closed is a matter of
/// chance, and would outweigh all others in a mean.
pub fn without_gap(apps: &[Study]) -> Vec<String> {
    let lacking = apps.iter().filter(|app| app.has_gap == Some(false));
    lacking.map(|app| app.app.clone()).collect()
}

fn of_mode(apps: &[Switches], without_gap: &[String], mode: Mode) -> Overall {
    let ratios: Vec<Estimate> = apps
        .iter()
        .filter_map(|app| ratio_to_off(app, mode, settled_ms))
        .collect();
    let count = |holds: fn(&Estimate) -> bool| ratios.iter().filter(|e| holds(e)).count();
    Overall {
        mode,
        apps: ratios.len(),
        ratio_to_off: mean_ratio(apps, mode, Mode::Off),
        gap_closed: mean(
            apps.iter().filter(|app| !without_gap.contains(&app.app)),
            |app| triples(app, mode),
            |blocks, drawn| gap_closed(blocks, drawn, mode),
        ),
        faster: count(|e| e.high < 1.0),
        no_loss: count(|e| e.high < 1.0 + LOSS_MAX),
        slower: count(|e| e.low > 1.0),
        open: count(|e| e.high >= 1.0 + LOSS_MAX && e.low <= 1.0),
    }
}

/// The mean over the applications of the median of the blocks' ratios of a mode to another: of the time to the settled
/// picture.
pub fn mean_ratio(apps: &[Switches], mode: Mode, other: Mode) -> Option<Estimate> {
    mean(
        apps.iter(),
        |app| app.blocks(&[mode, other]),
        |blocks, drawn| median_ratio(blocks, drawn, (mode, other), settled_ms),
    )
}

/// The mean over applications of a statistic of their blocks.
fn mean<'a>(
    apps: impl Iterator<Item = &'a Switches> + Clone,
    blocks: impl Fn(&'a Switches) -> Vec<Block<'a>>,
    statistic: impl Fn(&[Block<'a>], &[usize]) -> Option<f64>,
) -> Option<Estimate> {
    let setting = apps.clone().next()?.run.parameters.setting;
    let blocks: Vec<Vec<Block<'a>>> = apps.map(blocks).collect();
    mean_of_blocks(setting, &blocks, statistic)
}

/// The mean over applications of a statistic of each one's blocks. Where they share memory, a block is a round of them all.
pub fn mean_of_blocks<'a>(
    setting: Setting,
    blocks: &[Vec<Block<'a>>],
    statistic: impl Fn(&[Block<'a>], &[usize]) -> Option<f64>,
) -> Option<Estimate> {
    let of_app = |i: usize, drawn: &[usize]| statistic(&blocks[i], drawn);
    match setting {
        Setting::Together => {
            let numbers = blocks
                .iter()
                .map(|of_app| of_app.iter().map(number).collect());
            bootstrap_mean_jointly(&numbers.collect::<Vec<_>>(), of_app)
        }
        // One application after another.
        Setting::Reclaimed | Setting::Pressure => {
            let sizes: Vec<usize> = blocks.iter().map(Vec::len).collect();
            bootstrap_mean(&sizes, of_app)
        }
    }
}

/// A block's number.
pub fn number(block: &Block<'_>) -> u32 {
    block.values().next().map_or(0, |switch| switch.slot.block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};
    use crate::study::study_apps;

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
        let rows = study_apps(&record(&apps)).overall;
        assert_eq!(rows.len(), 1);
        let full = &rows[0];
        assert_eq!(
            (full.apps, full.faster, full.no_loss, full.slower, full.open),
            (3, 2, 2, 1, 0)
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
    fn an_application_without_a_gap_is_left_out_of_the_mean_of_gaps_alone() {
        let apps = [("a", 100.0, 400.0, 200.0), ("b", 20.0, 20.0, 10.0)];
        let record = record(&apps);
        let studies = study_apps(&record);
        assert_eq!(studies.without_gap, ["b"]);
        let rows = studies.overall;
        let gap = rows[0].gap_closed.expect("a has a gap");
        assert!(
            (gap.value - 2.0 / 3.0).abs() < 1e-9 && gap.n == 1,
            "{gap:?}"
        );
        assert_eq!(
            rows[0].ratio_to_off.map(|ratio| (ratio.value, ratio.n)),
            Some((0.5, 2))
        );
        assert!(
            study_apps(&record[1..]).overall.is_empty(),
            "one alone has no mean"
        );
    }

    #[test]
    fn an_interval_that_reaches_a_loss_of_3_percent_leaves_it_open() {
        let mut record = record(&[("a", 10.0, 100.0, 60.0), ("b", 10.0, 100.0, 98.0)]);
        // Half of the second's switches take longer with help, by more than 3 %.
        for sample in &mut record[1].samples {
            if sample.slot.mode == Mode::Full && sample.slot.block % 2 == 0 {
                sample.t_settled_ns = 110_000_000;
            }
        }
        let full = &study_apps(&record).overall[0];
        assert_eq!((full.no_loss, full.slower, full.open), (1, 0, 1));
    }

    #[test]
    fn where_none_has_a_gap_there_is_no_mean_of_it() {
        let apps = [("a", 9.0, 8.0, 7.0), ("b", 20.0, 20.0, 10.0)];
        let rows = study_apps(&record(&apps)).overall;
        assert!(rows[0].gap_closed.is_none() && rows[0].ratio_to_off.is_some());
    }
}
