//! How large the launch sequences are (FAST Table 3), and what launches miss in them (FAST section 5.2). Pure.

use super::record::Launch;
use super::scenario::Scenario;
use crate::statistics::median;
use prepage_core::launch::misses::Misses;
use serde::Serialize;

/// One program's sequence.
#[derive(Clone, Debug, Serialize)]
pub struct SequenceRow {
    /// Its pages.
    pub pages: u64,
    /// Its files.
    pub files: u64,
    /// What prepage keeps of the program, in bytes.
    pub store_bytes: u64,
    /// What its launches miss in it; nothing where none was helped and recorded.
    pub missed: Option<MissedRow>,
}

/// Block requests of helped launches that the sequence does not hold: means over the launches, of the sequence's requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MissedRow {
    /// Launches.
    pub n: usize,
    /// Requests of the sequence, the median.
    pub requests: f64,
    /// All that were missed.
    pub share: f64,
    /// The same in the launch that missed most.
    pub highest: f64,
    /// The paper's first class: for files that daemons opened at boot.
    pub daemons: Option<f64>,
    /// Its second: of the journal. `None` where that was not known in any launch.
    pub journal: Option<f64>,
    /// Its second, too: of swap. `None` as of the journal.
    pub swap: Option<f64>,
    /// Its third: for files made or renamed since the launch before.
    pub transient: f64,
    /// In none of its classes.
    pub others: f64,
}

/// Of the launches of one program.
pub fn sequence(launches: &[Launch]) -> Option<SequenceRow> {
    // Of a warm launch the state is of other pages.
    let cold = launches
        .iter()
        .filter(|l| l.slot.scenario != Scenario::Warm);
    let state = cold.rev().find_map(|launch| launch.state)?;
    Some(SequenceRow {
        pages: state.pages,
        files: state.files,
        store_bytes: launches.last().map_or(0, |launch| launch.store_bytes),
        missed: missed(launches),
    })
}

fn missed(launches: &[Launch]) -> Option<MissedRow> {
    let counted = [Scenario::Fast, Scenario::FastRecorded];
    let all: Vec<Misses> = launches
        .iter()
        .filter(|launch| counted.contains(&launch.slot.scenario) && launch.is_helped())
        .filter_map(|launch| misses(launch.report.as_ref()?))
        .filter(|misses| misses.sequence_requests > 0)
        .collect();
    let requests: Vec<f64> = all.iter().map(|m| m.sequence_requests as f64).collect();
    // Of those launches in which the class is known.
    let mean_known = |of: fn(&Misses) -> Option<u64>| {
        let shares = all
            .iter()
            .filter_map(|m| Some(of(m)? as f64 / m.sequence_requests as f64));
        let shares: Vec<f64> = shares.collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    let mean = |of: fn(&Misses) -> u64| {
        let shares = all
            .iter()
            .map(|m| of(m) as f64 / m.sequence_requests as f64);
        shares.sum::<f64>() / all.len() as f64
    };
    let ratios = all.iter().map(Misses::ratio);
    Some(MissedRow {
        n: all.len(),
        requests: median(&requests)?,
        share: ratios.clone().sum::<f64>() / all.len() as f64,
        highest: ratios.fold(0.0, f64::max),
        daemons: mean_known(|m| m.daemons),
        journal: mean_known(|m| m.journal),
        swap: mean_known(|m| m.swap),
        transient: mean(|m| m.transient),
        others: mean(|m| m.others),
    })
}

fn misses(report: &serde_json::Value) -> Option<Misses> {
    serde_json::from_value(report.get("request_misses")?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::launch;
    use super::*;

    #[test]
    fn misses_are_shares_of_the_requests_of_the_sequence() {
        let mut launches: Vec<Launch> = (0..2)
            .map(|block| launch("git", block, Scenario::Fast, 20.0))
            .collect();
        assert!(sequence(&launches).expect("a row").missed.is_none());
        for (launch, daemons) in launches.iter_mut().zip([0, 10]) {
            let misses = Misses {
                daemons: Some(daemons),
                swap: Some(daemons / 10).filter(|&swap| swap > 0),
                others: 5,
                sequence_requests: 100,
                ..Misses::default()
            };
            let report = launch.report.as_mut().expect("a report");
            report["request_misses"] = serde_json::to_value(misses).expect("JSON");
        }
        let row = sequence(&launches).expect("a row");
        let missed = row.missed.expect("misses");
        assert_eq!((missed.n, missed.requests), (2, 100.0));
        let is_near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(is_near(missed.share, 0.105) && is_near(missed.highest, 0.16));
        assert!(is_near(missed.daemons.expect("known"), 0.05) && is_near(missed.others, 0.05));
        // What is not known in a launch is not none.
        assert!(is_near(missed.swap.expect("known in one"), 0.01));
        assert_eq!(missed.journal, None);
    }

    /// They counted journal and swap, where nothing told which requests these were.
    #[test]
    fn of_records_of_old_builds_journal_and_swap_are_not_known() {
        let mut launches = vec![launch("git", 0, Scenario::Fast, 20.0)];
        let report = launches[0].report.as_mut().expect("a report");
        report["request_misses"] = serde_json::json!({
            "daemons": 1, "journal_or_swap": 0, "transient": 0, "others": 2, "sequence_requests": 100,
        });
        let missed = sequence(&launches).expect("a row").missed.expect("misses");
        assert_eq!((missed.journal, missed.swap), (None, None));
        assert_eq!((missed.daemons, missed.others), (Some(0.01), 0.02));
    }
}
