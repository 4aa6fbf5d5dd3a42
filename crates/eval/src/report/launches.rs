//! The section of the page about launches.

use super::fast;
use super::html::{
    discarded_words, escape, figure, folded, headed, machine_rows, pairs, source_line, table,
};
use super::plot::{Mark, Strip, scenario_colour, strips};
use crate::launch::overall::{Group, GroupRow, OverallRow};
use crate::launch::paper;
use crate::launch::scenario::Scenario;
use crate::launch::study::{LaunchStudy, ProgramRow, ScenarioRow};
use crate::launch::{tables, text};
use crate::study::text::mean_percent;
use std::fmt::Write;

/// The whole section of one record.
pub fn section(study: &LaunchStudy) -> String {
    let mut out = format!("<section><h2>{}</h2>\n", escape(&text::heading(study)));
    out += &source_line(&study.source);
    out += &key_numbers(study);
    out += &table(&paper::rows(study));
    out += &fast::over_cold(study);
    out += &table(&text::time_rows(study));
    out += &table(&text::ratio_rows(study));
    out += &table(&text::unhelped_rows(study));
    out += &table(&text::last_block_rows(study));
    out += &table(&text::over_bound_rows(study));
    out += &bounds(study);
    out += &fast::usage(study);
    out += &fast::at_once(study);
    out += &table(&text::simultaneous_rows(study));
    out += &headed(
        "FAST's Table 4. What prepage's own work costs",
        &table(&tables::overhead_rows(study)),
    );
    out += &table(&tables::mismatch_rows(study));
    out += &fast::sequence_sizes(study);
    out += &table(&tables::learning_rows(study));
    out += &headed(
        "FAST's Table 3. Launch sequences, and what launches miss in them",
        &table(&tables::sequence_rows(study)),
    );
    out += &table(&text::cost_rows(study));
    for note in tables::notes(study) {
        let _ = writeln!(out, "<p>{}</p>", escape(note));
    }
    out += &every_launch(study);
    out += &discarded(study);
    out += &circumstances(study);
    out + "</section>\n"
}

/// A plot of each program, shown when asked for.
fn every_launch(study: &LaunchStudy) -> String {
    let plot = |program: &ProgramRow| {
        figure(
            &escape(&program.program),
            "A dot is a launch; the bar is the median, the band its interval.",
            &program_plot(program),
        )
    };
    let launched = study.programs.iter().filter(|p| !p.scenarios.is_empty());
    let plots: String = launched.map(plot).collect();
    match plots.is_empty() {
        true => plots,
        false => format!("<details><summary>Every launch</summary>{plots}</details>\n"),
    }
}

/// What the paper's Figure 6 ends with: the mean over the programs.
fn key_numbers(study: &LaunchStudy) -> String {
    let mut out = String::from("<div class=\"keys\">");
    for group in &study.overall {
        for row in &group.scenarios {
            out += &key_number(group, row);
        }
    }
    let notes = text::left_out(study)
        .into_iter()
        .chain(text::left_out_of_gap(study));
    let notes = notes.map(|note| format!("<p class=\"note\">{}</p>\n", escape(&note)));
    out + "</div>\n" + &notes.collect::<String>()
}

/// Of programs that lack scenarios, and of all with these, only what a user gets.
fn key_number(group: &GroupRow, row: &OverallRow) -> String {
    let is_used = [Scenario::Fast, Scenario::Detected].contains(&row.scenario);
    let n = row.ratio_to_cold.n;
    let of = match group.group {
        Group::Complete => format!("the {n} programs in every scenario"),
        Group::Others if is_used => {
            format!("the {n} others ({})", escape(&group.programs.join(", ")))
        }
        Group::All if is_used => format!("all {n} programs"),
        Group::Others | Group::All => return String::new(),
    };
    let gap = row.gap_closed.filter(|_| group.group == Group::Complete);
    let gap = gap.map_or_else(String::new, |gap| {
        format!("; gap closed: {}", mean_percent(Some(gap)))
    });
    format!(
        "<div><b style=\"color:{}\">{}</b><span>{}</span> against cold, mean of {of}{gap}</div>",
        scenario_colour(row.scenario),
        words(row.scenario),
        text::change(row.ratio_to_cold),
    )
}

fn bounds(study: &LaunchStudy) -> String {
    let rows = table(&text::bound_rows(study));
    match rows.as_str() {
        "" => rows,
        _ => format!(
            "<p>The bound above takes the overlap of device and processor for perfect. A launch waits for each page when it \
             needs it, and goes on from there: the least time is the device's until a page is in and the warm launch's from \
             its first access to the end, the largest over all pages. Certain needs alone make it too low; with the pages that \
             a fault maps along, as if they were needed then, it is too high. A program of several threads may be faster, \
             where not all of them wait for a page.</p>\n{rows}"
        ),
    }
}

fn words(scenario: Scenario) -> String {
    scenario.word().replace('_', " ")
}

fn program_plot(program: &ProgramRow) -> String {
    let row = |scenario: &ScenarioRow| Strip {
        name: words(scenario.scenario),
        colour: scenario_colour(scenario.scenario),
        values: scenario.times_ms.clone(),
        median: scenario.time_ms,
    };
    let rows: Vec<Strip> = program.scenarios.iter().map(row).collect();
    let bound = program.bound_ms.map(|bound| Mark {
        value: bound.value,
        name: "bound".into(),
    });
    strips(&rows, "ms", bound.as_ref())
}

fn discarded(study: &LaunchStudy) -> String {
    format!("<p>{}</p>\n", discarded_words("launches", &study.discarded))
}

fn circumstances(study: &LaunchStudy) -> String {
    let run = &study.run;
    let mut rows = machine_rows(&study.source, &run.machine);
    rows.push(vec!["versions".into(), pairs(&run.versions)]);
    for program in &run.programs {
        let packages = pairs(&program.packages);
        let text = format!("{} ({packages})", program.command.join(" "));
        rows.push(vec![program.name.clone(), text]);
    }
    let parameters = serde_json::to_string(&run.parameters).unwrap_or_default();
    rows.push(vec!["parameters".into(), parameters]);
    folded("Circumstances", &rows)
}
