//! The summary as Markdown.

use super::Chapter;
use crate::idle::{self, study::IdleStudy};
use crate::launch::{self, study::LaunchStudy};
use crate::record::Machine;
use crate::study::text::{show, table};
use std::fmt::Write;

/// The tables of every record, as they are printed, under headings.
pub fn summary(chapters: &[Chapter], launches: &[LaunchStudy], idle: &[IdleStudy]) -> String {
    let mut out = String::from("# prepage-eval\n");
    for chapter in chapters {
        let (Some(first), Some(title), Some(factors)) =
            (chapter.switches.first(), chapter.title(), chapter.factors())
        else {
            continue;
        };
        let (title, tables) = (format!("{title}; {factors}"), show(&chapter.studies));
        section(&mut out, &title, &first.run.machine, &tables);
    }
    for study in launches {
        let (title, tables) = (launch::text::heading(study), launch::text::show(study));
        section(&mut out, &title, &study.run.machine, &tables);
    }
    if !launches.is_empty() {
        let rows = launch::paper::inventory(launches);
        let _ = write!(out, "\n```\n{}```\n", table(&rows));
    }
    for study in idle {
        let (title, tables) = (idle::text::heading(study), idle::text::show(study));
        section(&mut out, &title, &study.run.machine, &tables);
    }
    out
}

fn section(out: &mut String, title: &str, machine: &Machine, tables: &str) {
    let _ = write!(
        out,
        "\n## {title}\n\n{} cores of {}, kernel {}\n\n```\n{tables}```\n",
        machine.cores,
        machine.cpu_model,
        machine.kernel.split(' ').next().unwrap_or_default(),
    );
}
