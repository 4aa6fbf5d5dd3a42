//! `report`: one self-contained HTML page, with plots as inline SVG and nothing from a network, and a Markdown summary.

pub mod fast;
pub mod figures;
pub mod html;
pub mod idle;
pub mod launches;
pub mod markdown;
pub mod overall;
pub mod plot;

use crate::error::{Context, Result};
use crate::idle as idle_services;
use crate::launch;
use crate::record;
use crate::study::switches::Switches;
use crate::study::{Studies, study_apps};
use std::fs;
use std::path::{Path, PathBuf};

/// One record, studied.
#[derive(Debug)]
pub struct Chapter {
    /// Its samples by application, for the plots.
    pub switches: Vec<Switches>,
    /// Its numbers.
    pub studies: Studies,
}

/// Reads and studies records of switches.
pub fn chapters(records: &[&PathBuf]) -> Result<Vec<Chapter>> {
    records
        .iter()
        .map(|path| {
            let switches = Switches::by_app(record::read(path)?);
            let studies = study_apps(&switches);
            Ok(Chapter { switches, studies })
        })
        .collect()
}

/// Writes the page, and the summary where one is asked for, of records of switches, of launches and of services
/// that sat idle.
pub fn report(records: &[PathBuf], out: &Path, summary: Option<&Path>) -> Result<()> {
    let (mut of_switches, mut launches, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for path in records {
        match record::first_kind(path)?.as_str() {
            "launches" => launches.push(launch::study::study(path)?),
            "idle" => idle.push(idle_services::study::study(path)?),
            _ => of_switches.push(path),
        }
    }
    let chapters = chapters(&of_switches)?;
    let page = html::page(&chapters, &launches, &idle);
    fs::write(out, page).context("write", out.display())?;
    match summary {
        Some(path) => {
            let text = markdown::summary(&chapters, &launches, &idle);
            fs::write(path, text).context("write", path.display())
        }
        None => Ok(()),
    }
}
