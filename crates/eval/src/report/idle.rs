//! The section of the page about services that sat idle.

use super::html::{
    discarded_words, escape, figure, folded, machine_rows, pairs, source_line, table,
};
use super::plot::{Mark, Strip, strips};
use crate::idle::mode::IdleMode;
use crate::idle::study::{Goal, IdleStudy, Measured, ModeRow, RATIO_GOAL, ServiceRow};
use crate::idle::text;
use crate::study::text::interval;
use std::fmt::Write;

/// The whole section of one record.
pub fn section(study: &IdleStudy) -> String {
    let mut out = format!("<section><h2>{}</h2>\n", escape(&text::heading(study)));
    out += &source_line(&study.source);
    for service in &study.services {
        out += &service_html(service);
    }
    out += &discarded(study);
    out += &circumstances(study);
    out + "</section>\n"
}

fn service_html(service: &ServiceRow) -> String {
    let name = escape(&service.facts.service);
    let mut out = format!("<h3>{}</h3>\n", escape(&text::service_words(service)));
    out += &key_numbers(service);
    for row in service.modes.iter().filter(|row| row.is_left_alone()) {
        let _ = writeln!(out, "<p>{}</p>", escape(&text::left_alone(row)));
    }
    let caption = "A dot is a wakeup; the bar is the median, the band its interval; the line is the goal, half of off. 0/5: of five wakeups \
                   prepage acted in none.";
    out += &figure(
        &format!("{name}: until the first response"),
        caption,
        &plot(service, |row| &row.first_ms),
    );
    out += &figure(
        &format!("{name}: the 99th percentile of the latencies"),
        caption,
        &plot(service, |row| &row.p99_ms),
    );
    for rows in [
        text::time_rows(service),
        text::goal_rows(service),
        text::switch_rows(service),
    ] {
        out += &table(&rows);
    }
    out
}

/// The ratios that have a goal.
fn key_numbers(service: &ServiceRow) -> String {
    let mut out = String::from("<div class=\"keys\">");
    for row in service.modes.iter().filter(|row| row.mode.is_helped()) {
        let Some(control) = row.mode.control() else {
            continue;
        };
        for (what, measured) in [("first response", &row.first_ms), ("p99", &row.p99_ms)] {
            let Some(ratio) = measured.ratio_to_control else {
                continue;
            };
            let _ = write!(
                out,
                "<div><b style=\"color:{}\">{}</b><span>{}</span> of {}'s {what}: goal {}</div>",
                colour(row.mode),
                named(row),
                interval(Some(ratio), 2),
                words(control),
                Goal::of(ratio).word()
            );
        }
    }
    out + "</div>\n"
}

/// A mode; of one with help, also in how many wakeups prepage acted.
fn named(row: &ModeRow) -> String {
    let acted = text::acted(row).map(|acted| format!(" (prepage acted in {acted})"));
    words(row.mode) + &acted.unwrap_or_default()
}

fn words(mode: IdleMode) -> String {
    mode.word().replace('_', " ")
}

/// The colour of a mode, by the rule of the others: what has a counterpart among the modes of a switch has its colour.
fn colour(mode: IdleMode) -> &'static str {
    match mode {
        IdleMode::Resident => "#2a9d5c",
        IdleMode::Off => "#d1495b",
        IdleMode::OffThaw => "#9a8c98",
        IdleMode::FullOnset => "#3d7ea6",
        IdleMode::FullThaw => "#c77dba",
        IdleMode::FullBegin => "#e09f3e",
        IdleMode::FullRestore => "#6a4c93",
    }
}

/// A mode in a plot; of one with help, also in how many of its wakeups prepage acted.
fn row_name(row: &ModeRow) -> String {
    match row.mode.is_helped() {
        true => format!("{}, {}/{}", words(row.mode), row.acted, row.samples),
        false => words(row.mode),
    }
}

fn plot(service: &ServiceRow, of: fn(&ModeRow) -> &Measured) -> String {
    let strip = |row: &ModeRow| Strip {
        name: row_name(row),
        colour: colour(row.mode),
        values: of(row).values.clone(),
        median: of(row).median,
    };
    let rows: Vec<Strip> = service.modes.iter().map(strip).collect();
    let off = service.modes.iter().find(|row| row.mode == IdleMode::Off);
    let goal = off.and_then(|row| of(row).median).map(|median| Mark {
        value: median.value * RATIO_GOAL,
        name: "goal".into(),
    });
    strips(&rows, "ms", goal.as_ref())
}

fn discarded(study: &IdleStudy) -> String {
    format!("<p>{}</p>\n", discarded_words("wakeups", &study.discarded))
}

fn circumstances(study: &IdleStudy) -> String {
    let run = &study.run;
    let mut rows = machine_rows(&study.source, &run.machine);
    rows.push(vec!["versions".into(), pairs(&run.versions)]);
    for service in &study.services {
        let facts = &service.facts;
        let text = format!("{} ({})", facts.command.join(" "), pairs(&facts.packages));
        rows.push(vec![facts.service.clone(), text]);
    }
    let parameters = serde_json::to_string(&run.parameters).unwrap_or_default();
    rows.push(vec!["parameters".into(), parameters]);
    folded("Circumstances", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::study::{study_lines, tests::lines};

    #[test]
    fn a_service_has_two_plots_and_its_goals() {
        let html = section(&study_lines(lines()));
        assert_eq!(html.matches("<svg").count(), 2);
        // Six wakeups of three modes in each plot.
        assert_eq!(html.matches("<circle").count(), 2 * 3 * 6);
        assert!(html.contains("goal missed") && html.contains("goal reached"));
        assert!(!html.contains("NaN"));
    }
}
