//! What the switches of an application have in common, and where it lies (ASAP's Figures 5, 6, 7 and 10). Counts of a fixed
//! number of switches: they have no interval.

use crate::record::Footprint;
use crate::statistics::median;
use serde::Serialize;

/// The paper's Figure 10 reads: so much of the pages is in the largest 15 % of the files.
const LARGE_FILES_PERCENT: f64 = 15.0;

/// What a footprint comes to. Shares are in hundredths of the pages that any of its switches accessed.
#[derive(Clone, Debug, Serialize)]
pub struct FootprintRow {
    /// Switches.
    pub switches: usize,
    /// Anonymous pages of a switch, the median.
    pub anon_pages: f64,
    /// File pages of a switch, the median.
    pub file_pages: f64,
    /// Anonymous pages that all switches but one, at most, accessed.
    pub anon_recurrent_percent: f64,
    /// File pages likewise.
    pub file_recurrent_percent: f64,
    /// File pages that fewer than half of the switches accessed.
    pub file_rare_percent: f64,
    /// Accessed pages that lie in the largest 15 % of the accessed files.
    pub large_files_percent: f64,
}

/// What a footprint comes to; `None` of too few switches to say what recurs.
pub fn row(footprint: &Footprint) -> Option<FootprintRow> {
    const SWITCHES_MIN: usize = 4;
    let of_switch = |pages: &[u64]| median(&pages.iter().map(|&n| n as f64).collect::<Vec<f64>>());
    if footprint.switches < SWITCHES_MIN {
        return None;
    }
    let half = footprint.switches.div_ceil(2);
    let recurrent = |bars: &[u64]| share(bars, |times| times + 1 >= footprint.switches);
    Some(FootprintRow {
        switches: footprint.switches,
        anon_pages: of_switch(&footprint.anon_by_switch)?,
        file_pages: of_switch(&footprint.file_by_switch)?,
        anon_recurrent_percent: recurrent(&footprint.anon_by_recurrence),
        file_recurrent_percent: recurrent(&footprint.file_by_recurrence),
        file_rare_percent: share(&footprint.file_by_recurrence, |times| times < half),
        large_files_percent: 100.0 - cumulated_percent(footprint, 100.0 - LARGE_FILES_PERCENT),
    })
}

/// Hundredths of the pages that were accessed so many times.
fn share(bars: &[u64], counts: impl Fn(usize) -> bool) -> f64 {
    let all: u64 = bars.iter().sum();
    let numbered = bars.iter().zip(1..);
    let counted: u64 = numbered
        .filter(|(_, times)| counts(*times))
        .map(|(n, _)| n)
        .sum();
    100.0 * counted as f64 / all.max(1) as f64
}

/// Hundredths of the accessed pages that lie in so many hundredths of the files, the smallest first.
fn cumulated_percent(footprint: &Footprint, files_percent: f64) -> f64 {
    let files = &footprint.file_by_size;
    let count = (files.len() as f64 * files_percent / 100.0).round() as usize;
    let sum = |pages: &[u64]| pages.iter().sum::<u64>() as f64;
    100.0 * sum(&files[..count.min(files.len())]) / sum(files).max(1.0)
}

/// The curve of Figure 10: hundredths of the files, the smallest first, and of the accessed pages in them.
pub fn curve(footprint: &Footprint) -> Vec<(f64, f64)> {
    const POINTS: u32 = 100;
    let point = |percent: f64| (percent, cumulated_percent(footprint, percent));
    (0..=POINTS).map(|i| point(f64::from(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_recurs_and_where_it_lies() {
        let footprint = Footprint {
            switches: 10,
            anon_by_recurrence: vec![10, 0, 0, 0, 0, 0, 0, 0, 10, 20],
            file_by_recurrence: vec![5, 0, 0, 5, 0, 0, 0, 0, 0, 90],
            anon_by_switch: vec![30; 10],
            file_by_switch: vec![94; 10],
            file_by_size: [vec![1; 17], vec![20, 33, 30]].concat(),
        };
        let row = row(&footprint).unwrap();
        assert_eq!((row.anon_pages, row.file_pages), (30.0, 94.0));
        assert_eq!(row.anon_recurrent_percent, 75.0);
        assert_eq!(row.file_recurrent_percent, 90.0);
        assert_eq!(row.file_rare_percent, 10.0);
        assert!((row.large_files_percent - 83.0).abs() < 1e-9);
        let curve = curve(&footprint);
        assert_eq!((curve[0], curve[100]), ((0.0, 0.0), (100.0, 100.0)));
        assert!(super::row(&Footprint::default()).is_none());
    }
}
