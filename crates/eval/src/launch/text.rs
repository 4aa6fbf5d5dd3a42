//! A study of launches as tables of text.

use super::overall::{Group, GroupRow, of_group, without_gap};
use super::paper;
use super::record::Learn;
use super::scenario::Scenario;
use super::study::{LaunchStudy, ProgramRow, ScenarioRow, USED};
use super::tables;
use crate::statistics::{Estimate, SAMPLES_MIN};
use crate::study::text::{
    add_discarded, add_tables, cells, counts, gap_percent, interval, mean_percent,
};
use std::fmt::Write;

/// The whole study.
pub fn show(study: &LaunchStudy) -> String {
    let mut out = format!("{}; medians with 95 % intervals\n", heading(study));
    let tables = [
        time_rows(study),
        last_block_rows(study),
        ratio_rows(study),
        unhelped_rows(study),
        over_bound_rows(study),
        bound_rows(study),
        tables::usage_rows(study),
        tables::overhead_rows(study),
        tables::mismatch_rows(study),
        simultaneous_rows(study),
        tables::learning_rows(study),
        tables::sequence_rows(study),
        cost_rows(study),
        paper::rows(study),
    ];
    add_tables(&mut out, &tables);
    let notes = tables::notes(study).into_iter().map(String::from);
    for note in left_out(study)
        .into_iter()
        .chain(left_out_of_gap(study))
        .chain(too_few(study))
        .chain(notes)
    {
        let _ = writeln!(out, "\n  {note}");
    }
    add_discarded(&mut out, &study.discarded);
    out
}

/// Why some numbers are not there.
fn too_few(study: &LaunchStudy) -> Option<String> {
    let is_too_few = |samples: usize| (1..SAMPLES_MIN).contains(&samples);
    study.sample_counts().any(is_too_few).then(|| {
        format!(
            "-: of fewer than {SAMPLES_MIN} samples there is no interval, and a number without one is not printed: --runs {SAMPLES_MIN} --resume adds to them"
        )
    })
}

/// What was measured, in words.
pub fn heading(study: &LaunchStudy) -> String {
    let p = &study.run.parameters;
    let learned = match p.learn {
        Learn::Cold => "cold",
        Learn::Warm => "warm",
    };
    let disk = p
        .throttle
        .map_or(String::new(), |limits| format!(", disk held to {limits}"));
    let what = what(study);
    format!("{what} (seed {}), learned {learned}{disk}, in ms", p.seed)
}

/// What of launches a record is about: those of a report stand beside each other.
fn what(study: &LaunchStudy) -> &'static str {
    let p = &study.run.parameters;
    let has = |scenario| p.scenarios.contains(&scenario);
    match () {
        () if !p.simultaneous.is_empty() => "launches, several at once",
        () if p.timelines > 0 => "launches over time",
        () if has(Scenario::Generate) => "launches, and what prepage's own work costs them",
        () if has(Scenario::OtherOffsets) => "launches after updates",
        () => "launches",
    }
}

/// The scenarios that any program has, in order.
pub fn scenarios(study: &LaunchStudy) -> Vec<Scenario> {
    let rows = study.programs.iter().flat_map(|p| &p.scenarios);
    let mut scenarios: Vec<Scenario> = rows.map(|row| row.scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    scenarios
}

fn row_of(program: &ProgramRow, scenario: Scenario) -> Option<&ScenarioRow> {
    program.scenarios.iter().find(|s| s.scenario == scenario)
}

/// The programs of which launches were timed, and not only read over time.
fn timed(study: &LaunchStudy) -> impl Iterator<Item = &ProgramRow> {
    study.programs.iter().filter(|p| !p.scenarios.is_empty())
}

/// More digits where there is less.
pub fn time(estimate: Option<Estimate>) -> String {
    let decimals = usize::from(estimate.is_some_and(|e| e.value < 100.0));
    interval(estimate, decimals)
}

/// A row for each program, a column for each scenario: the time; and the bounds, where there are any.
pub fn time_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let scenarios = scenarios(study);
    let mut rows = vec![cells(&["program", "n"])];
    rows[0].extend(scenarios.iter().map(|s| s.word().to_owned()));
    let has_bounds = study.programs.iter().any(|p| p.bound_ms.is_some());
    if has_bounds {
        rows[0].extend(cells(&["bound", "order bound"]));
    }
    for program in timed(study) {
        let samples = program.scenarios.iter().map(|s| s.samples);
        let mut row = vec![program.program.clone(), counts(samples)];
        row.extend(scenarios.iter().map(|&scenario| {
            let found = row_of(program, scenario);
            let at_least = found.is_some_and(|s| s.capped > 0);
            let text = time(found.and_then(|s| s.time_ms));
            if at_least { format!(">= {text}") } else { text }
        }));
        if has_bounds {
            row.push(time(program.bound_ms));
            row.push(time(program.order_bound.map(|bound| bound.mapped.time_ms)));
        }
        rows.push(row);
    }
    rows
}

/// A row for each program, a column for each scenario: until the last block was read for it, which the paper takes for the
/// launch's end. Only of launches that prepage recorded; nothing in records of builds that did not report it.
pub fn last_block_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let recorded = |s: &ScenarioRow| s.last_block_ms.is_some();
    let has_any = |&scenario: &Scenario| {
        let rows = study.programs.iter().filter_map(|p| row_of(p, scenario));
        rows.into_iter().any(recorded)
    };
    let scenarios: Vec<Scenario> = scenarios(study).into_iter().filter(has_any).collect();
    let mut rows = vec![cells(&["last block read, ms (n)"])];
    rows[0].extend(scenarios.iter().map(|s| s.word().to_owned()));
    for program in timed(study).filter(|p| p.scenarios.iter().any(recorded)) {
        let mut row = vec![program.program.clone()];
        row.extend(scenarios.iter().map(|&scenario| {
            let estimate = row_of(program, scenario).and_then(|s| s.last_block_ms);
            let of = estimate.map(|e| format!("{} ({})", time(estimate), e.n));
            of.unwrap_or_else(|| "-".into())
        }));
        rows.push(row);
    }
    rows
}

/// The measured scenarios that are what a user gets.
fn used(scenarios: &[Scenario]) -> impl Iterator<Item = Scenario> {
    let used = USED.into_iter();
    used.filter(|scenario| scenarios.contains(scenario))
}

/// A row for each program and the mean: time over cold, and of what a user gets the gap closed, and in how many launches
/// prepage really helped; of the service also how soon after the exec.
pub fn ratio_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let scenarios = scenarios(study);
    let compared = || {
        let compared = scenarios.iter().copied();
        compared.filter(|s| *s != Scenario::Cold && s.runs_program())
    };
    if compared().next().is_none() {
        return Vec::new();
    }
    let mut rows = vec![cells(&["time over cold, paired", "n"])];
    rows[0].extend(compared().map(|s| s.word().to_owned()));
    for scenario in used(&scenarios) {
        let gap_closed = format!("gap closed by {}", scenario.word());
        rows[0].extend([gap_closed, "helped".into()]);
    }
    if scenarios.contains(&Scenario::Detected) {
        rows[0].push("noticed, us (n)".into());
    }
    for program in timed(study) {
        let pairs = compared().filter_map(|s| Some(row_of(program, s)?.ratio_to_cold?.n));
        let mut row = vec![program.program.clone(), counts(pairs)];
        row.extend(
            compared().map(|scenario| {
                interval(row_of(program, scenario).and_then(|s| s.ratio_to_cold), 2)
            }),
        );
        for scenario in used(&scenarios) {
            let of_it = row_of(program, scenario);
            row.push(gap_percent(
                of_it.and_then(|s| s.gap_closed),
                gap_of(program, scenario),
            ));
            row.push(of_it.map_or("-".into(), helped));
        }
        if scenarios.contains(&Scenario::Detected) {
            let detected = row_of(program, Scenario::Detected);
            let noticed_us = detected.and_then(|s| s.noticed_us);
            row.push(with_count(noticed_us));
        }
        rows.push(row);
    }
    for group in &study.overall {
        let mut row = vec![group_words(group), group.programs.len().to_string()];
        let of = |scenario| group.scenarios.iter().find(|o| o.scenario == scenario);
        row.extend(compared().map(|scenario| interval(of(scenario).map(|o| o.ratio_to_cold), 2)));
        for scenario in used(&scenarios) {
            let gap = of(scenario).and_then(|o| o.gap_closed);
            row.extend([mean_percent(gap), String::new()]);
        }
        row.resize(rows[0].len(), String::new());
        rows.push(row);
    }
    rows
}

/// Whether it has a gap of which a scenario may close something: nothing of one that was not compared.
fn gap_of(program: &ProgramRow, scenario: Scenario) -> Option<bool> {
    let compared = row_of(program, scenario).and_then(|s| s.ratio_to_cold);
    program.has_gap.filter(|_| compared.is_some())
}

/// An estimate and what it is of.
fn with_count(estimate: Option<Estimate>) -> String {
    let of = estimate.map(|e| format!("{} ({})", interval(estimate, 0), e.n));
    of.unwrap_or_else(|| "-".into())
}

/// What the mean is over.
fn group_words(group: &GroupRow) -> String {
    match group.group {
        Group::Complete => "mean of those in every scenario",
        Group::Others => "mean of the others",
        Group::All => "mean of all",
    }
    .to_owned()
}

/// Which programs lack a scenario, so that scenarios are held against each other without them; nothing where none does.
pub fn left_out(study: &LaunchStudy) -> Option<String> {
    let names_of = |group| {
        let found = study.overall.iter().find(|row| row.group == group);
        found.map(|row| &row.programs[..])
    };
    let (all, complete) = (names_of(Group::All)?, names_of(Group::Complete)?);
    let names = all.iter().filter(|name| !complete.contains(name));
    let names: Vec<&str> = names.map(String::as_str).collect();
    let is_left_alone = |name: &&str| {
        let program = study.programs.iter().find(|p| p.program == *name);
        let fast = program.and_then(|program| row_of(program, Scenario::Fast));
        fast.is_some_and(|row| row.left_alone > 0 && row.helped == 0)
    };
    let alone = names.iter().filter(|name| is_left_alone(name)).count();
    Some(format!(
        "Scenarios are held against each other over the {} programs that have all of them. The {} others: {}; {alone} of these are \
         left alone by prepage run, which keeps nothing of them that sorted and the like could prefetch.",
        complete.len(),
        names.len(),
        names.join(", "),
    ))
}

/// Which programs the mean gap closed leaves out, and why; nothing where it leaves out none, or there is no such mean.
pub fn left_out_of_gap(study: &LaunchStudy) -> Option<String> {
    let mut rows = study.overall.iter().flat_map(|group| &group.scenarios);
    let has_mean = rows.any(|row| row.gap_closed.is_some());
    let names = without_gap(&study.programs).join(", ");
    (has_mean && !names.is_empty()).then(|| {
        format!(
            "The mean gap closed leaves out {names}: no gap that is clear (the interval of warm over cold, of their medians, reaches 1)."
        )
    })
}

/// A row for each program and the mean: of what a user gets, the time over t_bound.
pub fn over_bound_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let scenarios = scenarios(study);
    let mut rows = vec![cells(&["time over t_bound", "n"])];
    rows[0].extend(used(&scenarios).map(|s| s.word().to_owned()));
    for program in timed(study) {
        let ratio = |scenario| row_of(program, scenario).and_then(|s| s.ratio_to_bound);
        let of_each: Vec<Option<Estimate>> = used(&scenarios).map(ratio).collect();
        if of_each.iter().any(Option::is_some) {
            let blocks = counts(of_each.iter().flatten().map(|e| e.n));
            let mut row = vec![program.program.clone(), blocks];
            row.extend(of_each.into_iter().map(|estimate| interval(estimate, 2)));
            rows.push(row);
        }
    }
    rows.extend(mean_over_bound(study, &scenarios));
    rows
}

/// The mean over all programs that have a bound.
fn mean_over_bound(study: &LaunchStudy, scenarios: &[Scenario]) -> Option<Vec<String>> {
    let of_each: Vec<Option<Estimate>> = used(scenarios)
        .map(|scenario| {
            let mut rows = [Group::All, Group::Complete].into_iter();
            rows.find_map(|group| of_group(&study.overall, group, scenario)?.ratio_to_bound)
        })
        .collect();
    let means = of_each.iter().flatten();
    let programs = counts(means.map(|mean| mean.n));
    of_each.iter().any(Option::is_some).then(|| {
        let mut row = vec!["mean of the programs".to_owned(), programs];
        row.extend(of_each.into_iter().map(|mean| interval(mean, 2)));
        row
    })
}

/// A row for each program of which no launch was helped in a scenario that a user gets: what being left alone, or not yet
/// known, costs it.
pub fn unhelped_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let scenarios = scenarios(study);
    let mut rows = vec![cells(&["not helped: over cold, ms, paired", "n"])];
    rows[0].extend(used(&scenarios).map(|s| s.word().to_owned()));
    for program in timed(study) {
        let over_cold_ms = |scenario| {
            let not_helped = row_of(program, scenario).filter(|s| s.helped == 0);
            not_helped.and_then(|s| s.over_cold_ms)
        };
        let of_each: Vec<Option<Estimate>> = used(&scenarios).map(over_cold_ms).collect();
        if of_each.iter().any(Option::is_some) {
            let pairs = counts(of_each.iter().flatten().map(|e| e.n));
            let mut row = vec![program.program.clone(), pairs];
            row.extend(of_each.into_iter().map(|estimate| interval(estimate, 2)));
            rows.push(row);
        }
    }
    rows
}

/// In how many launches prepage helped; whether it left the others alone.
fn helped(row: &ScenarioRow) -> String {
    match (row.left_alone, row.helped) {
        (0, helped) => format!("{helped}/{}", row.samples),
        (_, 0) => "left alone".into(),
        (left_alone, helped) => format!("{helped}/{}, left alone {left_alone}", row.samples),
    }
}

/// A row for each program: what the order of its accesses leaves to any prefetch that runs beside it.
pub fn bound_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "order bound",
        "n",
        "certain needs only",
        "gap closable",
        "with pages mapped",
        "gap closable",
        "closed by fast",
    ])];
    for program in &study.programs {
        let Some(bound) = &program.order_bound else {
            continue;
        };
        let pairs = bound.mapped.time_ms.n.to_string();
        let mut row = vec![program.program.clone(), pairs];
        for bound in [bound.certain, bound.mapped] {
            let closable = gap_percent(bound.closable, program.has_gap);
            row.extend([time(Some(bound.time_ms)), closable]);
        }
        let fast = row_of(program, Scenario::Fast);
        let closed = fast.and_then(|s| s.gap_closed);
        row.push(gap_percent(closed, gap_of(program, Scenario::Fast)));
        rows.push(row);
    }
    rows
}

/// A time over cold as a change in hundredths.
pub fn change(ratio_to_cold: Estimate) -> String {
    let e = ratio_to_cold.map(|ratio| (ratio - 1.0) * 100.0);
    format!("{:+.0} % [{:+.0}, {:+.0}]", e.value, e.low, e.high)
}

/// A row for each number of programs and scenario.
pub fn simultaneous_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "at once",
        "scenario",
        "n",
        "last finished",
        "over cold",
        "each over cold, mean",
    ])];
    rows.extend(study.simultaneous.iter().map(|several| {
        vec![
            several.count.to_string(),
            several.scenario.word().into(),
            counts(several.last_ms.map(|e| e.n)),
            time(several.last_ms),
            interval(several.ratio_to_cold, 2),
            interval(several.each_to_cold, 2),
        ]
    }));
    rows
}

/// What prepage took: medians, each with the number of launches that it is of; a row for each program, a column for each cost.
pub fn cost_rows(study: &LaunchStudy) -> Vec<Vec<String>> {
    let mut names: Vec<&str> = Vec::new();
    for cost in study.programs.iter().flat_map(|p| &p.costs) {
        if !names.contains(&cost.name) {
            names.push(cost.name);
        }
    }
    let mut rows = vec![cells(&["prepage's own: median (launches)"])];
    rows[0].extend(names.iter().map(|name| (*name).to_owned()));
    for program in &study.programs {
        let of = |name: &&str| {
            let found = program.costs.iter().find(|cost| cost.name == *name);
            found.map_or("-".into(), |cost| {
                format!("{:.0} ({})", cost.median, cost.n)
            })
        };
        let mut row = vec![program.program.clone()];
        row.extend(names.iter().map(of));
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::overall::tests::with_one_without_gap;
    use super::super::record::Line;
    use super::super::scenario;
    use super::super::study::study_lines;
    use super::super::study::tests::{lines, with_detected};
    use super::*;

    #[test]
    fn every_table_says_what_was_measured() {
        let study = study_lines(lines());
        let text = show(&study);
        for part in [
            "seed 7",
            "prefetch_only",
            "0.60 [0.60, 0.60]",
            "80 % [80, 80]",
            "10/10",
            "mean of those in every scenario",
            "store, bytes",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert_eq!(time_rows(&study).len(), 5);
        // Nobody was launched at once: no empty table.
        assert!(!text.contains("at once"), "{text}");
    }

    #[test]
    fn the_last_block_stands_beside_the_time_where_the_record_has_it() {
        let mut lines = lines();
        let rows = last_block_rows(&study_lines(lines.clone()));
        assert_eq!(rows.len(), 1, "records of old builds have none: {rows:?}");
        for line in &mut lines {
            if let Line::Launch(launch) = line
                && launch.slot.program == "git"
                && launch.slot.scenario == Scenario::Fast
            {
                let report = launch.report.as_mut().expect("a report");
                report["last_block_us"] = 50_000.into();
            }
        }
        let study = study_lines(lines);
        let rows = last_block_rows(&study);
        assert_eq!(rows[0], ["last block read, ms (n)", "fast"]);
        assert_eq!(rows[1], ["git", "50.0 [50.0, 50.0] (10)"]);
        assert_eq!(rows.len(), 2);
        assert!(show(&study).contains("last block read"));
    }

    #[test]
    fn what_a_user_of_the_service_gets_stands_beside_what_prepage_run_gives() {
        let rows = ratio_rows(&study_lines(with_detected()));
        let of = |what: &str| {
            let at = rows[0].iter().position(|cell| cell == what);
            at.map(|at| &*rows[1][at])
        };
        assert_eq!(of("detected"), Some("0.65 [0.65, 0.65]"));
        assert_eq!(of("gap closed by fast"), Some("80 % [80, 80]"));
        assert_eq!(of("gap closed by detected"), Some("70 % [70, 70]"));
        assert_eq!(of("noticed, us (n)"), Some("400 [400, 400] (10)"));
        // Records from before the scenario was have no column for it.
        let rows = ratio_rows(&study_lines(lines()));
        assert!(rows[0].iter().all(|cell| !cell.contains("detected")));
        assert_eq!(rows[0].last().map(String::as_str), Some("helped"));
    }

    #[test]
    fn who_is_left_out_of_the_mean_gap_is_said_with_why() {
        let text = show(&study_lines(with_one_without_gap()));
        let said = "The mean gap closed leaves out vim: no gap that is clear";
        assert!(text.contains(said), "{text}");
        assert_eq!(left_out_of_gap(&study_lines(lines())), None);
    }

    #[test]
    fn what_is_closed_where_no_gap_is_clear_has_no_number() {
        let study = study_lines(with_one_without_gap());
        let vim = ratio_rows(&study).into_iter().find(|row| row[0] == "vim");
        assert!(vim.is_some_and(|row| row.contains(&"no clear gap".to_owned())));
    }

    #[test]
    fn a_gap_is_clear_by_the_medians_that_it_is_made_of() {
        let mut lines = lines();
        for line in &mut lines {
            let Line::Launch(launch) = line else { continue };
            let is_slow = launch.slot.block % 2 == 1;
            let ms = match (launch.slot.scenario, launch.slot.block) {
                // One of ten, which makes half of the warm launches and more slow ones.
                (Scenario::Warm, 0) => 300,
                (Scenario::Warm, _) => 90 * (1 + 2 * u64::from(is_slow)),
                _ => 100 * (1 + 2 * u64::from(is_slow)),
            };
            launch.t_end_ns = ms * 1_000_000;
        }
        let study = study_lines(lines);
        let warm = row_of(&study.programs[0], Scenario::Warm).and_then(|row| row.ratio_to_cold);
        assert!(warm.is_some_and(|ratio| ratio.high < 1.0));
        assert_eq!(study.programs[0].has_gap, Some(false));
    }

    #[test]
    fn time_over_the_bound_stands_with_its_mean() {
        let rows = over_bound_rows(&study_lines(lines()));
        assert_eq!(rows[0], ["time over t_bound", "n", "fast"]);
        assert_eq!(rows[1], ["git", "10", "1.20 [1.20, 1.20]"]);
        assert_eq!(rows[5][..2], ["mean of the programs", "4"]);
        let mut without_bound = lines();
        without_bound.retain(
            |line| !matches!(line, Line::Launch(l) if l.slot.scenario == Scenario::PrefetchOnly),
        );
        assert_eq!(over_bound_rows(&study_lines(without_bound)).len(), 1);
    }

    #[test]
    fn what_is_not_helped_is_held_against_cold_in_milliseconds() {
        let mut lines = with_detected();
        assert_eq!(unhelped_rows(&study_lines(lines.clone())).len(), 1);
        for line in &mut lines {
            if let Line::Launch(launch) = line
                && launch.slot.program == "git"
                && launch.slot.scenario == Scenario::Detected
            {
                (launch.report, launch.left_alone) = (None, true);
            }
        }
        let study = study_lines(lines);
        let rows = unhelped_rows(&study);
        assert_eq!(rows[1], ["git", "10", "-", "-105.00 [-140.00, -70.00]"]);
        assert!(show(&study).contains("left alone"));
    }

    #[test]
    fn a_program_that_is_left_alone_is_said_to_be() {
        let mut study = study_lines(lines());
        let fast = |row: &&mut ScenarioRow| row.scenario == Scenario::Fast;
        let row = study.programs[0]
            .scenarios
            .iter_mut()
            .find(fast)
            .expect("it was helped");
        (row.left_alone, row.helped) = (row.samples, 0);
        assert!(show(&study).contains("left alone"));
    }

    #[test]
    fn what_the_cap_ended_took_at_least_so_long() {
        let mut study = study_lines(lines());
        study.programs[0].scenarios[0].capped = 1;
        let rows = time_rows(&study);
        assert!(rows[1][2].starts_with(">= "), "{rows:?}");
    }

    #[test]
    fn records_of_one_report_are_told_apart() {
        let with = |change: fn(&mut super::super::record::Parameters)| {
            let mut study = study_lines(lines());
            change(&mut study.run.parameters);
            heading(&study)
        };
        let headings = [
            with(|_| {}),
            with(|p| p.simultaneous = vec![2]),
            with(|p| p.timelines = 5),
            with(|p| p.scenarios = scenario::OVERHEADS.to_vec()),
            with(|p| p.scenarios = scenario::MISMATCH.to_vec()),
        ];
        let different: std::collections::BTreeSet<_> = headings.iter().collect();
        assert_eq!(different.len(), headings.len(), "{headings:?}");
    }
}
