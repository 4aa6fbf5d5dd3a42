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
        let Some(first) = chapter.switches.first() else {
            continue;
        };
        let (title, factors) = (chapter.title(), chapter.factors());
        let title: Vec<String> = title.into_iter().chain(factors).collect();
        let tables = show(&chapter.studies);
        section(&mut out, &title.join("; "), &first.run.machine, &tables);
    }
    for study in launches {
        let tables = launch::text::show(study);
        section(
            &mut out,
            &launch::text::heading(study),
            &study.run.machine,
            &tables,
        );
    }
    if !launches.is_empty() {
        let rows = launch::paper::inventory(launches);
        let _ = write!(out, "\n```\n{}```\n", table(&rows));
    }
    for study in idle {
        let tables = idle::text::show(study);
        section(
            &mut out,
            &idle::text::heading(study),
            &study.run.machine,
            &tables,
        );
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
