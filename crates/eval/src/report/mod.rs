//! `report`: one self-contained HTML page, with plots as inline SVG and nothing from a network, and a Markdown summary.

pub mod html;
pub mod markdown;
pub mod plot;

use crate::error::{Context, Result};
use crate::record;
use crate::study::switches::Switches;
use crate::study::{Study, study_switches};
use std::fs;
use std::path::{Path, PathBuf};

/// One record, studied.
#[derive(Debug)]
pub struct Chapter {
    /// Its samples, for the plots.
    pub switches: Switches,
    /// Its numbers.
    pub study: Study,
}

/// Reads and studies records.
pub fn chapters(records: &[PathBuf]) -> Result<Vec<Chapter>> {
    records
        .iter()
        .map(|path| {
            let switches = Switches::of(record::read(path)?);
            let study = study_switches(&switches);
            Ok(Chapter { switches, study })
        })
        .collect()
}

/// Writes the page, and the summary where one is asked for.
pub fn report(records: &[PathBuf], out: &Path, summary: Option<&Path>) -> Result<()> {
    let chapters = chapters(records)?;
    fs::write(out, html::page(&chapters)).context("write", out.display())?;
    match summary {
        Some(path) => {
            fs::write(path, markdown::summary(&chapters)).context("write", path.display())
        }
        None => Ok(()),
    }
}
