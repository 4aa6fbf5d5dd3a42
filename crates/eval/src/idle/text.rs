//! A study of services that sat idle as tables of text.

use super::mode::IdleMode;
use super::study::{Goal, IdleStudy, Measured, ModeRow, OfSwitches, RATIO_GOAL, ServiceRow};
use crate::statistics::Estimate;
use crate::study::text::{add_discarded, add_tables, cells, interval};
use std::fmt::Write;

/// The whole study.
pub fn show(study: &IdleStudy) -> String {
    let mut out = format!("{}; medians with 95 % intervals\n", heading(study));
    for service in &study.services {
        let _ = writeln!(out, "\n{}", service_words(service));
        let tables = [time_rows(service), goal_rows(service), switch_rows(service)];
        add_tables(&mut out, &tables);
        for row in service.modes.iter().filter(|row| row.is_left_alone()) {
            let _ = writeln!(out, "\n  {}", left_alone(row));
        }
    }
    add_discarded(&mut out, &study.discarded);
    out
}

/// What was measured, in words.
pub fn heading(study: &IdleStudy) -> String {
    let p = &study.run.parameters;
    let seconds = p.window_ms as f64 / 1e3;
    format!(
        "services that sat idle, swapped out to {} (seed {}): the first response and the first {seconds} s",
        p.swap.word(),
        p.seed
    )
}

/// What a service is and holds, in words.
pub fn service_words(service: &ServiceRow) -> String {
    let facts = &service.facts;
    format!(
        "{}: {} keys, {} MiB, {} requests a second",
        facts.service,
        facts.keys,
        facts.anon_bytes >> 20,
        facts.rate_hz
    )
}

/// In how many of the wakeups of a mode with help prepage acted; nothing of others.
pub fn acted(row: &ModeRow) -> Option<String> {
    let is_helped = row.mode.is_helped();
    is_helped.then(|| format!("{} of {}", row.acted, row.samples))
}

/// What a mode says in which prepage did next to nothing.
pub fn left_alone(row: &ModeRow) -> String {
    format!(
        "{}: prepage left the service alone in {} of {} wakeups. These times are not of help.",
        row.mode.word(),
        row.samples - row.acted,
        row.samples
    )
}

/// More digits where there is less.
fn time(estimate: Option<Estimate>) -> String {
    let decimals = match estimate {
        Some(e) if e.value >= 100.0 => 0,
        Some(e) if e.value >= 10.0 => 1,
        _ => 2,
    };
    interval(estimate, decimals)
}

/// A row for each mode: its times.
pub fn time_rows(service: &ServiceRow) -> Vec<Vec<String>> {
    let mut rows = vec![cells(&[
        "mode",
        "n",
        "prepage acted",
        "ahead by, ms",
        "first response, ms",
        "p50, ms",
        "p99, ms",
        "first second's p99",
        "longest, ms",
        "demand faults",
        "prepage's CPU, ms",
    ])];
    for row in &service.modes {
        rows.push(vec![
            row.mode.word().into(),
            row.samples.to_string(),
            acted(row).unwrap_or_else(|| "-".into()),
            match row.mode {
                IdleMode::FullRestore => time(row.ahead_ms.median),
                _ => "-".into(),
            },
            time(row.first_ms.median),
            time(row.p50_ms.median),
            time(row.p99_ms.median),
            time(row.first_second_p99_ms.median),
            time(row.max_ms.median),
            interval(row.majflt.median, 0),
            interval(row.prepage_cpu_ms.median, 0),
        ]);
    }
    rows
}

/// A ratio and what became of the goal; of resident, that it is the bound.
fn against_goal(mode: IdleMode, measured: &Measured) -> String {
    let ratio = measured.ratio_to_control;
    match ratio {
        Some(_) if mode.is_resident() => format!("{} bound", interval(ratio, 2)),
        Some(e) => format!("{} {}", interval(ratio, 2), Goal::of(e).word()),
        None => "-".into(),
    }
}

/// A row for each mode that has a control: over that, and what became of the goal.
pub fn goal_rows(service: &ServiceRow) -> Vec<Vec<String>> {
    let goal = format!("goal: at most {RATIO_GOAL:.2}");
    let mut rows = vec![cells(&[
        &goal,
        "over",
        "pairs",
        "prepage acted",
        "first response",
        "p99",
        "first second's p99",
        "longest",
        "demand faults",
    ])];
    let compared = |row: &ModeRow| {
        let control = row.mode.control()?;
        Some(vec![
            row.mode.word().into(),
            control.word().into(),
            row.first_ms.ratio_to_control.map_or(0, |e| e.n).to_string(),
            acted(row).unwrap_or_else(|| "-".into()),
            against_goal(row.mode, &row.first_ms),
            against_goal(row.mode, &row.p99_ms),
            interval(row.first_second_p99_ms.ratio_to_control, 2),
            interval(row.max_ms.ratio_to_control, 2),
            interval(row.majflt.ratio_to_control, 2),
        ])
    };
    rows.extend(service.modes.iter().filter_map(compared));
    rows
}

/// What prepage says of the first switch of a wakeup: medians, each with the number of wakeups that it is of; a row for each
/// number, a column for each mode with help.
pub fn switch_rows(service: &ServiceRow) -> Vec<Vec<String>> {
    let helped = || service.modes.iter().filter(|row| row.mode.is_helped());
    let mut names: Vec<&str> = helped()
        .flat_map(|row| row.switch.keys().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut rows = vec![cells(&[
        "prepage's own, of the first switch: median (wakeups)",
    ])];
    rows[0].extend(helped().map(|row| row.mode.word().to_owned()));
    rows.extend(names.into_iter().map(|name| {
        let mut row = vec![name.to_owned()];
        let cell = |of: Option<&OfSwitches>| {
            of.map_or("-".into(), |of| format!("{:.0} ({})", of.median, of.n))
        };
        row.extend(helped().map(|of| cell(of.switch.get(name))));
        row
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::super::study::{study_lines, tests::lines};
    use super::*;

    #[test]
    fn the_tables_say_what_was_reached() {
        let text = show(&study_lines(lines()));
        assert!(text.contains("swapped out to zram"), "{text}");
        assert!(text.contains("0.80 [0.80, 0.80] missed"), "{text}");
        assert!(text.contains("0.25 [0.25, 0.25] reached"), "{text}");
        assert!(text.contains("0.02 [0.02, 0.02] bound"), "{text}");
        assert_eq!(text.matches("reached").count(), 1, "{text}");
        // Its records of switches are empty.
        assert!(
            text.contains("full_begin: prepage left the service alone in 6 of 6"),
            "{text}"
        );
    }
}
