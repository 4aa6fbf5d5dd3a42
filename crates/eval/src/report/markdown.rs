//! The summary as Markdown.

use super::{Chapter, limits};
use crate::idle::{self, study::IdleStudy};
use crate::launch::{self, study::LaunchStudy};
use crate::record::Machine;
use crate::source::Source;
use crate::statistics::COVERAGE;
use crate::study::text::show;
use std::fmt::Write;

/// The tables of every record, as they are printed, under headings.
pub fn summary(chapters: &[Chapter], launches: &[LaunchStudy], idle: &[IdleStudy]) -> String {
    let mut out = format!("# prepage-eval\n\n{COVERAGE}\n");
    for chapter in chapters {
        let (Some(first), Some(title), Some(factors)) =
            (chapter.switches.first(), chapter.title(), chapter.factors())
        else {
            continue;
        };
        let cores = limits::of_cores(chapter).map(|said| format!("\n  {said}\n"));
        let tables = show(&chapter.studies) + &cores.unwrap_or_default();
        let title = format!("{title}; {factors}");
        section(
            &mut out,
            &title,
            &chapter.source,
            &first.run.machine,
            &tables,
        );
    }
    if !chapters.is_empty() {
        let rows = limits::inventory(chapters);
        let _ = write!(
            out,
            "\n## What ASAP shows, and what this hardware cannot show\n\n{}",
            list(&rows)
        );
    }
    for study in launches {
        let (title, tables) = (launch::text::heading(study), launch::text::show(study));
        section(&mut out, &title, &study.source, &study.run.machine, &tables);
    }
    if !launches.is_empty() {
        let rows = launch::paper::inventory(launches);
        let _ = write!(out, "\n## What FAST shows\n\n{}", list(&rows));
    }
    for study in idle {
        let (title, tables) = (idle::text::heading(study), idle::text::show(study));
        section(&mut out, &title, &study.source, &study.run.machine, &tables);
    }
    out
}

/// Rows of a name and what is said of it, as sentences; the first is the head.
fn list(rows: &[Vec<String>]) -> String {
    let rows = rows.iter().skip(1);
    rows.map(|row| format!("- {}\n", row.join(" - "))).collect()
}

fn section(out: &mut String, title: &str, source: &Source, machine: &Machine, tables: &str) {
    let _ = write!(
        out,
        "\n## {title}\n\n{}; {} cores of {}, kernel {}\n\n```\n{tables}```\n",
        source.words(),
        machine.cores,
        machine.cpu_model,
        machine.kernel.split(' ').next().unwrap_or_default(),
    );
}
