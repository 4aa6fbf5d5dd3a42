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
        let (p, machine) = (&first.run.parameters, &first.run.machine);
        let title = format!("{}, {:?}", p.apps.join(", "), p.setting);
        section(&mut out, &title, machine, &show(&chapter.studies));
    }
    for study in launches {
        let tables = launch::text::show(study);
        section(&mut out, "Launches", &study.run.machine, &tables);
    }
    if !launches.is_empty() {
        let rows = launch::paper::inventory(launches);
        let _ = write!(out, "\n```\n{}```\n", table(&rows));
    }
    for study in idle {
        let tables = idle::text::show(study);
        section(&mut out, "Idle services", &study.run.machine, &tables);
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
