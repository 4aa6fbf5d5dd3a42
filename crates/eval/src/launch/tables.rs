//! The tables that only FAST's section 5 asks for: running times, updates, launch sequences and what they miss.

use super::scenario::Scenario;
use super::study::{LaunchStudy, ProgramRow, ScenarioRow};
use super::text::{scenarios, time};
use crate::statistics::Estimate;
use crate::study::text::{cells, counts, interval};

/// A row for each case of FAST Table 4, a column for each program.
pub fn overhead_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let measured: Vec<&ProgramRow> = study
        .programs
        .iter()
        .filter(|program| !program.overheads.is_empty())
        .collect();
    let mut rows = vec![cells(&["runs (FAST Table 4): median (n)"])];
    let of = |estimate: Option<Estimate>| match estimate {
        Some(e) => format!("{} ({})", time(estimate), e.n),
        None => "-".into(),
    };
    rows[0].extend(measured.iter().map(|program| program.program.clone()));
    let cases = measured
        .first()
        .map_or(0, |program| program.overheads.len());
    for index in 0..cases {
        let mut row = vec![measured[0].overheads[index].case.to_owned()];
        row.extend(measured.iter().map(|p| of(p.overheads[index].time_ms)));
        rows.push(row);
    }
    rows
}

/// A row for each program and scenario in which what prepage knows does not match.
pub fn mismatch_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let shown = [
        Scenario::FastUnrecorded,
        Scenario::OtherOffsets,
        Scenario::OtherProgram,
        Scenario::OtherVersions,
    ];
    let mut rows = vec![cells(&[
        "update",
        "what is known",
        "n",
        "pages fetched",
        "over cold",
    ])];
    for program in &study.programs {
        let is_shown = |row: &&ScenarioRow| shown.contains(&row.scenario);
        let of_it: Vec<&ScenarioRow> = program.scenarios.iter().filter(is_shown).collect();
        // What matches is shown for comparison only.
        let mismatches = of_it
            .iter()
            .any(|row| row.scenario != Scenario::FastUnrecorded);
        rows.extend(of_it.iter().filter(|_| mismatches).map(|row| {
            vec![
                program.program.clone(),
                what_is_known(row),
                counts(row.ratio_to_cold.map(|e| e.n)),
                row.fetched_pages.map_or("-".into(), |n| format!("{n:.0}")),
                interval(row.ratio_to_cold, 2),
            ]
        }));
    }
    rows
}

fn what_is_known(row: &ScenarioRow) -> String {
    match row.scenario {
        Scenario::OtherOffsets => "other pages of its files".into(),
        Scenario::OtherVersions => "other versions of its files".into(),
        Scenario::OtherProgram => {
            let others: Vec<&str> = row.other_programs.iter().map(String::as_str).collect();
            format!("the sequence of {}", others.join(", "))
        }
        _ => "its own sequence".into(),
    }
}

/// The size of a program's sequence by the recordings that it was learned from, of which the paper shows ten (FAST
/// Figure 5). It ends where prepage begins to leave the program alone, and keeps none.
pub fn recorded_pages(program: &ProgramRow) -> &[u64] {
    const RECORDINGS_MAX: usize = 10;
    let pages = &program.learned_pages;
    let kept = pages.iter().position(|&pages| pages == 0);
    &pages[..kept.unwrap_or(pages.len()).min(RECORDINGS_MAX)]
}

/// A row for each program: the same in numbers.
pub fn learning_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let all = study.programs.iter();
    let learned = all.filter(|program| !program.learned_pages.is_empty());
    let count = learned.clone().map(|program| recorded_pages(program).len());
    let count = count.max().unwrap_or(0);
    let mut rows = vec![cells(&["pages known after recording"])];
    rows[0].extend((1..=count).map(|n| n.to_string()));
    for program in learned {
        let mut row = vec![program.program.clone()];
        row.extend(recorded_pages(program).iter().map(u64::to_string));
        row.resize(count + 1, "-".into());
        rows.push(row);
    }
    rows
}

/// A row for each program: its launch sequence (FAST Table 3), and the requests that launches miss in it.
pub fn sequence_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "launch sequence",
        "pages",
        "files",
        "kept, KiB",
        "requests",
        "launches",
        "missed",
        "at most",
        "daemons'",
        "journal",
        "swap",
        "transient",
        "others",
    ])];
    for program in &study.programs {
        let Some(sequence) = &program.sequence else {
            continue;
        };
        let mut row = vec![program.program.clone()];
        let counts = [sequence.pages, sequence.files, sequence.store_bytes / 1024];
        row.extend(counts.map(|count| count.to_string()));
        let missed = sequence.missed.as_ref();
        row.push(missed.map_or("-".into(), |m| format!("{:.0}", m.requests)));
        row.push(missed.map_or("-".into(), |m| m.n.to_string()));
        let shares = missed.map(|m| {
            let (all, rest) = ([m.share, m.highest], [m.transient, m.others]);
            let classes = [m.daemons, m.journal, m.swap];
            [&all.map(Some)[..], &classes, &rest.map(Some)].concat()
        });
        let shares = shares.unwrap_or_default().into_iter();
        row.extend(shares.map(|share| {
            share.map_or("not known".into(), |share| {
                format!("{:.1} %", share * 100.0)
            })
        }));
        row.resize(rows[0].len(), "-".into());
        rows.push(row);
    }
    rows
}

/// A row for each program and scenario of which launches were read over time (FAST Figure 7), in hundredths of their time.
pub fn usage_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "busy, % of the launch",
        "scenario",
        "launches",
        "CPU",
        "CPU, first quarter",
        "disk",
        "both at once",
        "a reading, us",
    ])];
    for program in &study.programs {
        rows.extend(program.usage.iter().map(|row| {
            vec![
                program.program.clone(),
                row.scenario.word().into(),
                row.launches.to_string(),
                interval(row.cpu_percent, 0),
                interval(row.first_cpu_percent, 0),
                interval(row.disk_percent, 0),
                interval(row.both_percent, 0),
                interval(row.reading_us, 0),
            ]
        }));
    }
    rows
}

/// What the tables do not say by themselves.
pub fn notes(study: &LaunchStudy) -> Vec<&'static str> {
    let has = |scenario| scenarios(study).contains(&scenario);
    let is_missed = |p: &ProgramRow| p.sequence.as_ref().is_some_and(|s| s.missed.is_some());
    let all = [
        (has(Scenario::Preload), PRELOAD),
        (has(Scenario::Generate), OVERHEADS),
        (has(Scenario::OtherVersions), MISMATCH),
        (study.programs.iter().any(is_missed), MISSED),
    ];
    let due = all.into_iter().filter(|(is_due, _)| *is_due);
    due.map(|(_, note)| note).collect()
}

const PRELOAD: &str = "\
    preload: Debian's daemon, configured as in its package but for a cycle of 2 s. It saw all programs run at once three times, \
    for three cycles each. It is begun when the cache was dropped, as after boot, and all that it predicts is read before the \
    program begins: the time for that is not counted.";

const OVERHEADS: &str = "\
    Cases 4 and 7 come after the launch, in nobody's way. Case 2 happens once, 3 while prepage learns, 6 and 7 every n_chk \
    launches.";

const MISMATCH: &str = "\
    Other versions: every file was updated since. prepage sees that, reads no page of them and replays the paths; the next launch \
    is learned from. Other pages, or another program's sequence, are what the paper's prefetcher fetches after an update, since it \
    knows names only; prepage fetches so where a program comes to do something else, until its miss ratio is checked.";

const MISSED: &str = "\
    Missed: block requests of helped, recorded launches that the sequence does not hold, of the sequence's requests, in the \
    paper's classes; means over so many launches: daemons' files, journal, swap, files made or renamed since the launch before; others are what an \
    update looks like. Where nobody could tell where the journal or swap lie, their requests are among the daemons' and the others.";

#[cfg(test)]
mod tests {
    use super::super::record::Line;
    use super::super::record::tests::{launch, run};
    use super::super::study::study_lines;
    use super::*;

    /// Four launches of each of these scenarios.
    fn study(scenarios: &[Scenario]) -> LaunchStudy {
        let mut lines = vec![Line::Launches(Box::new(run(scenarios)))];
        // The last one: it is left alone.
        for (pages, known_pages) in [(1, 900), (2, 700), (3, 0)] {
            let mut learned = launch("git", pages, Scenario::Record, 30.0);
            learned.known_pages = Some(known_pages);
            lines.push(Line::LearningLaunch(Box::new(learned)));
        }
        for block in 0..4 {
            for (&scenario, ms) in scenarios.iter().zip([20.0, 40.0, 24.0, 22.0]) {
                let mut one = launch("git", block, scenario, ms);
                one.other_program = (scenario == Scenario::OtherProgram).then(|| "gcc".into());
                lines.push(Line::Launch(Box::new(one)));
            }
        }
        study_lines(lines)
    }

    #[test]
    fn each_case_of_table_4_has_a_row() {
        let rows = overhead_rows(&study(&[Scenario::Cold, Scenario::Profile]));
        assert_eq!(rows[0][1], "git");
        assert_eq!(rows[1], ["1: application alone", "20.0 [20.0, 20.0] (4)"]);
        assert_eq!(rows[2][1], "40.0 [40.0, 40.0] (4)");
        // Not measured.
        assert_eq!(rows[3][1], "-");
        assert_eq!(overhead_rows(&study(&[Scenario::Cold])).len(), 1);
    }

    #[test]
    fn a_mismatch_says_what_was_known_and_what_it_cost() {
        let scenarios = [Scenario::Cold, Scenario::OtherProgram];
        let study_of_both = study(&scenarios);
        let rows = mismatch_rows(&study_of_both);
        let expected = [
            "git",
            "the sequence of gcc",
            "4",
            "100",
            "2.00 [2.00, 2.00]",
        ];
        assert_eq!(rows[1], expected);
        // What matches is no mismatch.
        let scenarios = [Scenario::Cold, Scenario::FastUnrecorded];
        assert_eq!(mismatch_rows(&study(&scenarios)).len(), 1);
    }

    #[test]
    fn sequences_shrink_with_the_recordings() {
        let rows = learning_rows(&study(&[Scenario::Cold]));
        assert_eq!(rows[0][1..], ["1", "2"]);
        assert_eq!(rows[1], ["git", "900", "700"]);
    }
}
