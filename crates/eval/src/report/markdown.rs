//! The summary as Markdown.

use super::Chapter;
use crate::study::text::show;
use std::fmt::Write;

/// The tables of every record, as they are printed, under headings.
pub fn summary(chapters: &[Chapter]) -> String {
    let mut out = String::from("# prepage-eval\n");
    for chapter in chapters {
        let run = &chapter.study.run;
        let _ = write!(
            out,
            "\n## {}, {:?}\n\n{} cores of {}, kernel {}\n\n```\n{}```\n",
            run.parameters.app,
            run.parameters.setting,
            run.machine.cores,
            run.machine.cpu_model,
            run.machine.kernel.split(' ').next().unwrap_or_default(),
            show(&chapter.study)
        );
    }
    out
}
