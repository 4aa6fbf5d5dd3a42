//! What FAST reached on its machine beside what was measured here: for orientation, not as a comparison. Pure.

use super::scenario::Scenario;
use super::study::{LaunchStudy, OverallRow, ScenarioRow, SimultaneousRow};
use super::text::change;
use crate::study::text::cells;

/// Rows of what, the paper's, ours; only what was measured.
pub fn rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "FAST section 5, time against cold",
        "paper",
        "here",
    ])];
    let mut add = |what: &str, paper: &str, here: Option<String>| {
        rows.extend(here.map(|here| vec![what.to_owned(), paper.to_owned(), here]));
    };
    let mean = |scenarios: &[Scenario]| mean(study, scenarios);
    let fast = [Scenario::Fast, Scenario::FastUnrecorded];
    add(
        "fast, mean of the programs",
        "-28 %, from -16 to -46 (22 programs, Intel X25-M)",
        mean(&fast),
    );
    add("sorted, mean", "-7 %", mean(&[Scenario::Sorted]));
    add("warm, mean", "about -37 %", mean(&[Scenario::Warm]));
    add("uname, fast", "+5 % (2.2 to 2.3 ms)", uname(study, &fast));
    add(
        "other pages of the same files",
        "-4 % (Firefox)",
        mean(&[Scenario::OtherOffsets]),
    );
    add(
        "another program's sequence",
        "+7 % (Firefox, Gimp's)",
        mean(&[Scenario::OtherProgram]),
    );
    add(
        "several at once, fast",
        "-20 % of 5 to -7 % of 20",
        at_once(study),
    );
    add(
        "requests missed, mean",
        "1.6 %, from 0 to 6.1",
        missed(study),
    );
    add("kept of all programs", "7.2 MB of 22", kept(study));
    rows
}

fn mean(study: &LaunchStudy, scenarios: &[Scenario]) -> Option<String> {
    let is_wanted = |row: &&OverallRow| scenarios.contains(&row.scenario);
    let row = study.overall.iter().find(is_wanted)?;
    Some(change(row.ratio_to_cold))
}

fn uname(study: &LaunchStudy, scenarios: &[Scenario]) -> Option<String> {
    let program = study.programs.iter().find(|p| p.program == "uname")?;
    let is_wanted = |row: &&ScenarioRow| scenarios.contains(&row.scenario);
    let row = program.scenarios.iter().find(is_wanted)?;
    Some(change(row.ratio_to_cold?))
}

fn at_once(study: &LaunchStudy) -> Option<String> {
    let fast = |row: &&SimultaneousRow| row.scenario == Scenario::Fast;
    let each = study.simultaneous.iter().filter(fast).filter_map(|row| {
        let less = (row.ratio_to_cold?.value - 1.0) * 100.0;
        Some(format!("{less:+.0} % of {}", row.count))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join(", "))
}

fn missed(study: &LaunchStudy) -> Option<String> {
    let sequences = study.programs.iter().filter_map(|p| p.sequence.as_ref());
    let rows: Vec<_> = sequences.filter_map(|s| s.missed).collect();
    let mean = rows.iter().map(|row| row.share).sum::<f64>() / rows.len() as f64;
    let highest = rows.iter().map(|row| row.highest).fold(0.0, f64::max);
    let text = format!("{:.1} %, at most {:.1}", mean * 100.0, highest * 100.0);
    (!rows.is_empty()).then_some(text)
}

fn kept(study: &LaunchStudy) -> Option<String> {
    let sequences = study.programs.iter().filter_map(|p| p.sequence.as_ref());
    let bytes: Vec<u64> = sequences.map(|s| s.store_bytes).collect();
    let megabytes = bytes.iter().sum::<u64>() as f64 / 1e6;
    (!bytes.is_empty()).then(|| format!("{megabytes:.1} MB of {}", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::super::study::study_lines;
    use super::super::study::tests::lines;
    use super::*;

    #[test]
    fn only_what_was_measured_stands_beside_the_paper() {
        let rows = rows(&study_lines(lines()));
        let names: Vec<&str> = rows.iter().map(|row| &*row[0]).collect();
        let expected = [
            "FAST section 5, time against cold",
            "fast, mean of the programs",
            "warm, mean",
            "kept of all programs",
        ];
        assert_eq!(names, expected);
        assert_eq!(rows[1][2], "-40 % [-40, -40]");
        assert_eq!(rows[3][2], "0.0 MB of 4");
    }
}
