//! The setting together by its sequences: the orders in which the applications are gone through (ASAP's Table 3). What is out
//! of memory when an application's turn comes depends on which ones came before it.

use super::Studies;
use super::measures::median_ratio;
use super::overall::{mean_of_blocks, number};
use super::switches::{Block, Switches, settled_ms};
use super::text::{cells, interval};
use crate::record::{Mode, Setting};
use crate::statistics::{Estimate, bootstrap, median_estimate};
use serde::Serialize;

/// One application in one sequence.
#[derive(Clone, Debug, Serialize)]
pub struct SequenceRow {
    /// The application; nothing of the mean over all.
    pub app: Option<String>,
    /// The sequence, from 1.
    pub sequence: u32,
    /// Rounds that have both modes; of the mean, applications.
    pub n: usize,
    /// Median time to the settled picture without help.
    pub off_ms: Option<Estimate>,
    /// The same with all of it.
    pub full_ms: Option<Estimate>,
    /// Full over off: median of the rounds' ratios.
    pub ratio: Option<Estimate>,
}

/// A row for each application and sequence, then the means; nothing in other settings, nor of one sequence.
pub fn sequences(apps: &[Switches]) -> Vec<SequenceRow> {
    let Some(parameters) = apps.first().map(|app| &app.run.parameters) else {
        return Vec::new();
    };
    let is_several = parameters.setting == Setting::Together && parameters.sequences > 1;
    if !is_several || parameters.rounds == 0 {
        return Vec::new();
    }
    let numbers = || 0..parameters.sequences;
    let of_sequence = |app, sequence| blocks(app, parameters.rounds, sequence);
    let ratio = |blocks: &[Block<'_>], drawn: &[usize]| {
        median_ratio(blocks, drawn, (Mode::Full, Mode::Off), settled_ms)
    };
    let mut rows = Vec::new();
    for app in apps {
        for number in numbers() {
            let blocks = of_sequence(app, number);
            let median = |mode| {
                let times = blocks.iter().map(|block| settled_ms(block[&mode]));
                median_estimate(&times.collect::<Vec<f64>>())
            };
            rows.push(SequenceRow {
                app: Some(app.app.clone()),
                sequence: number + 1,
                n: blocks.len(),
                off_ms: median(Mode::Off),
                full_ms: median(Mode::Full),
                ratio: bootstrap(blocks.len(), |drawn| ratio(&blocks, drawn)),
            });
        }
    }
    for number in numbers() {
        let of_each: Vec<Vec<Block<'_>>> =
            apps.iter().map(|app| of_sequence(app, number)).collect();
        rows.push(SequenceRow {
            app: None,
            sequence: number + 1,
            n: apps.len(),
            off_ms: None,
            full_ms: None,
            ratio: mean_of_blocks(parameters.setting, &of_each, ratio),
        });
    }
    rows.retain(|row| row.ratio.is_some());
    rows
}

/// The blocks of a sequence of so many rounds that have both modes.
fn blocks(app: &Switches, rounds: u32, sequence: u32) -> Vec<Block<'_>> {
    let mut blocks = app.blocks(&[Mode::Off, Mode::Full]);
    blocks.retain(|block| number(block) / rounds == sequence);
    blocks
}

/// The same as a table.
pub fn sequence_rows(studies: &Studies) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "by sequence",
        "sequence",
        "n",
        "off ms",
        "full ms",
        "settled, ratio",
    ])];
    rows.extend(studies.sequences.iter().map(|row| {
        vec![
            row.app
                .clone()
                .unwrap_or_else(|| "mean of applications".into()),
            row.sequence.to_string(),
            row.n.to_string(),
            interval(row.off_ms, 0),
            interval(row.full_ms, 0),
            interval(row.ratio, 2),
        ]
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;
    use crate::record::tests::{run, switch};
    use crate::study::study_apps;

    fn record(setting: Setting) -> Vec<Switches> {
        let modes = [Mode::Off, Mode::Full];
        let mut circumstances = run(&modes);
        let parameters = &mut circumstances.parameters;
        parameters.apps = ["a", "b"].map(String::from).into();
        (parameters.setting, parameters.sequences, parameters.rounds) = (setting, 2, 6);
        let mut lines = vec![Line::Run(Box::new(circumstances))];
        for block in 0..12 {
            // In the second sequence help does nothing.
            let full_ms = if block < 6 { 50.0 } else { 100.0 };
            for app in ["a", "b"] {
                for (mode, ms) in modes.into_iter().zip([100.0, full_ms]) {
                    let mut sample = switch(block, mode, ms);
                    sample.slot.app = app.into();
                    lines.push(Line::Sample(Box::new(sample)));
                }
            }
        }
        Switches::by_app(lines)
    }

    #[test]
    fn each_sequence_has_its_medians() {
        let rows = sequence_rows(&study_apps(&record(Setting::Together)));
        let shown: Vec<(&str, &str, &str)> = rows[1..]
            .iter()
            .map(|row| (&*row[0], &*row[1], &*row[5]))
            .collect();
        let mean = "mean of applications";
        let expected = [
            ("a", "1", "0.50 [0.50, 0.50]"),
            ("a", "2", "1.00 [1.00, 1.00]"),
            ("b", "1", "0.50 [0.50, 0.50]"),
            ("b", "2", "1.00 [1.00, 1.00]"),
            (mean, "1", "0.50 [0.50, 0.50]"),
            (mean, "2", "1.00 [1.00, 1.00]"),
        ];
        assert_eq!(shown, expected);
        assert_eq!(rows[1][2..5], ["6", "100 [100, 100]", "50 [50, 50]"]);
    }

    #[test]
    fn other_settings_have_no_sequences() {
        assert!(sequences(&record(Setting::Reclaimed)).is_empty());
    }
}
