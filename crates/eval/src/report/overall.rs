//! The section of the page about all applications of a record.

use super::html::{escape, figure, table};
use super::plot::{Interval, Mark, colour, intervals};
use crate::study::text::{app_rows, overall_rows, percent, setting_words};
use crate::study::{Comparison, Studies, Study};
use std::fmt::Write;

/// The whole section; nothing where there are not several applications.
pub fn section(studies: &Studies) -> String {
    let (Some(first), false) = (studies.apps.first(), studies.overall.is_empty()) else {
        return String::new();
    };
    let mut out = format!(
        "<section><h2>{} applications: {}</h2>\n",
        studies.apps.len(),
        setting_words(first.run.parameters.setting)
    );
    out += &key_numbers(studies);
    out += &figure(
        "Time to the settled picture over that without prepage",
        "The median of the pairs with its interval, of each application.",
        &ratios(studies),
    );
    out += &table(&app_rows(studies));
    out += &table(&overall_rows(studies));
    out + "</section>\n"
}

fn key_numbers(studies: &Studies) -> String {
    let mut out = String::from("<div class=\"keys\">");
    for o in &studies.overall {
        let (name, colour) = (o.mode.word(), colour(o.mode));
        if let Some(gap) = o.gap_closed {
            let _ = write!(
                out,
                "<div><b style=\"color:{colour}\">{name}</b><span>{}</span> of the gap closed, mean of {} applications</div>",
                percent(Some(gap)),
                gap.n
            );
        }
        let _ = write!(
            out,
            "<div><b style=\"color:{colour}\">{name}</b><span>{} of {}</span> applications faster with 95 % confidence</div>",
            o.faster, o.apps
        );
    }
    out + "</div>\n"
}

fn ratios(studies: &Studies) -> String {
    let mark = |c: &Comparison| {
        Some(Interval {
            word: c.mode.word(),
            colour: colour(c.mode),
            estimate: c.ratio_to_off?,
        })
    };
    let row = |study: &Study| {
        let shown = study.comparisons.iter().filter(|c| !c.mode.is_resident());
        (escape(&study.app), shown.filter_map(mark).collect())
    };
    let rows: Vec<(String, Vec<Interval>)> = studies.apps.iter().map(row).collect();
    let off = Mark {
        value: 1.0,
        name: "off".into(),
    };
    intervals(&rows, "time over off", &off)
}
