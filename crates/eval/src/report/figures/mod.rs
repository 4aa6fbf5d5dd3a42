//! The figures of the paper on switches (ASAP), drawn from a record, under the paper's numbers.

mod footprints;
mod times;
mod uses;

use super::Chapter;
use super::html::{escape, headed, table};
use super::limits;
use crate::study::rows::{beside_rows, footprint_rows, overhead_rows, policy_rows};
use crate::study::text::comparison_rows;

/// What a record has of the paper's figures, in their order, with the table of its numbers beside the paper's.
pub fn section(chapter: &Chapter) -> String {
    let studies = &chapter.studies;
    let mut out = beside(chapter);
    out += &times::from_memory(studies);
    out += &uses::shares(studies);
    out += &footprints::recurrence(&chapter.switches);
    out += &footprints::sizes(studies);
    out += &footprints::by_file_size(&chapter.switches);
    out += &table(&footprint_rows(studies));
    out += &times::by_mode(studies);
    if let [only] = studies.apps.as_slice() {
        out += &table(&comparison_rows(only));
    }
    out += &times::estimators(studies);
    out += &uses::timelines(&chapter.switches);
    out += &times::by_policy(studies);
    if let Some(cores) = limits::of_cores(chapter) {
        out += &format!("<p class=\"note\">{}</p>\n", escape(&cores));
    }
    out += &table(&policy_rows(studies));
    out += &headed(
        "Section 6.6. What help costs",
        &table(&overhead_rows(studies)),
    );
    out
}

fn beside(chapter: &Chapter) -> String {
    match chapter.studies.beside.is_empty() {
        true => String::new(),
        false => format!(
            "<h3>Beside the paper</h3>\n<p class=\"note\">ASAP (USENIX ATC 2021) measured eight applications on two phones of eight \
             cores; empty where its text states no number. Another machine, other applications: to be read for orientation.</p>\n{}",
            table(&beside_rows(&chapter.studies.beside))
        ),
    }
}
