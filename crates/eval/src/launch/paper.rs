//! What FAST reached on its machine beside what was measured here: for orientation, not as a comparison. Pure.

use super::overall::{Group, OverallRow, of_group};
use super::scenario::Scenario;
use super::study::{LaunchStudy, ScenarioRow, SimultaneousRow};
use super::tables;
use super::text::change;
use crate::study::text::{Shown, cells, shown_or_not};

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
        "several at once, fast: until the last has ended",
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

/// What the paper's section 5 shows, and whether these records have it: where not, how it is measured.
pub fn inventory(studies: &[LaunchStudy]) -> Vec<Vec<String>> {
    const SHOWN: [Shown<LaunchStudy>; 7] = [
        (
            "Figure 5: size of the launch sequence by recordings",
            |study| study.programs.iter().any(|p| p.learned_pages.len() > 1),
            "prepage learned from no program more than once",
        ),
        (
            "Figure 6: launch times by scenario",
            |study| !study.overall.is_empty(),
            "it takes four launches of each scenario: --runs 4 or more",
        ),
        (
            "Figure 7: use of processors and disk over time",
            |study| study.programs.iter().any(|p| !p.usage.is_empty()),
            "launches of their own: --timelines 5",
        ),
        (
            "Figure 8: several programs at once",
            |study| study.simultaneous.iter().any(|s| s.last_ms.is_some()),
            "launches of their own: --simultaneous 2,5,10,15, with --runs 4 or more",
        ),
        (
            "Table 3: launch sequences",
            |study| study.programs.iter().any(|p| p.sequence.is_some()),
            "launches that prepage helped: --scenarios cold,fast",
        ),
        (
            "Table 4: running times of what FAST does itself",
            |study| study.programs.iter().any(|p| !p.overheads.is_empty()),
            "scenarios of its own: --overheads",
        ),
        (
            "Launches after an update, in the text",
            |study| tables::mismatch_rows(study).len() > 1,
            "scenarios of its own: --mismatch",
        ),
    ];
    let mut rows = shown_or_not("FAST section 5", &SHOWN, studies);
    rows.push(cells(&[
        "Figure 9: cold and warm launches on a telephone",
        "not measured: it is of a telephone, and without FAST",
    ]));
    rows
}

fn mean(study: &LaunchStudy, scenarios: &[Scenario]) -> Option<String> {
    let of = |group| {
        let mut rows = scenarios.iter();
        rows.find_map(|&scenario| of_group(&study.overall, group, scenario))
    };
    let words =
        |row: &OverallRow| format!("{} of {}", change(row.ratio_to_cold), row.ratio_to_cold.n);
    match (of(Group::Complete), of(Group::All)) {
        (Some(complete), Some(all)) => Some(format!("{}; {}, all", words(complete), words(all))),
        (complete, all) => Some(words(complete.or(all)?)),
    }
}

fn uname(study: &LaunchStudy, scenarios: &[Scenario]) -> Option<String> {
    let program = study.programs.iter().find(|p| p.program == "uname")?;
    let is_wanted = |row: &&ScenarioRow| scenarios.contains(&row.scenario);
    let row = program.scenarios.iter().find(is_wanted)?;
    let ratio = row.ratio_to_cold?;
    Some(format!("{} ({} pairs)", change(ratio), ratio.n))
}

fn at_once(study: &LaunchStudy) -> Option<String> {
    let fast = |row: &&SimultaneousRow| row.scenario == Scenario::Fast;
    let each = study.simultaneous.iter().filter(fast).filter_map(|row| {
        let ratio = row.ratio_to_cold?;
        Some(format!(
            "{} of {} ({} times)",
            change(ratio),
            row.count,
            ratio.n
        ))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join(", "))
}

fn missed(study: &LaunchStudy) -> Option<String> {
    let sequences = study.programs.iter().filter_map(|p| p.sequence.as_ref());
    let rows: Vec<_> = sequences.filter_map(|s| s.missed).collect();
    let mean = rows.iter().map(|row| row.share).sum::<f64>() / rows.len() as f64;
    let highest = rows.iter().map(|row| row.highest).fold(0.0, f64::max);
    let text = format!(
        "{:.1} %, at most {:.1} of one launch ({} programs)",
        mean * 100.0,
        highest * 100.0,
        rows.len()
    );
    (!rows.is_empty()).then_some(text)
}

fn kept(study: &LaunchStudy) -> Option<String> {
    let sequences = study.programs.iter().filter_map(|p| p.sequence.as_ref());
    let bytes: Vec<u64> = sequences.map(|s| s.store_bytes).collect();
    let megabytes = bytes.iter().sum::<u64>() as f64 / 1e6;
    (!bytes.is_empty()).then(|| format!("{megabytes:.1} MB of {} programs", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::super::study::study_lines;
    use super::super::study::tests::lines;
    use super::*;

    #[test]
    fn what_is_not_measured_is_listed_with_how_it_is() {
        let rows = inventory(&[study_lines(lines())]);
        let here = |what: &str| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row[0].starts_with(what));
            row.map(|row| row[1].clone()).unwrap_or_default()
        };
        assert_eq!(here("Figure 6"), "shown above");
        assert_eq!(here("Table 3"), "shown above");
        for (what, how) in [
            ("Figure 7", "--timelines"),
            ("Figure 8", "--simultaneous"),
            ("Table 4", "--overheads"),
        ] {
            assert!(here(what).starts_with("not measured") && here(what).contains(how));
        }
    }

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
        assert!(rows[1][2].starts_with("-40 %") && rows[1][2].ends_with(" of 4"));
        assert_eq!(rows[3][2], "0.0 MB of 4 programs");
    }
}
