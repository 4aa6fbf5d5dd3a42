//! `report`: one self-contained HTML page, with plots as inline SVG and nothing from a network, and a Markdown summary.

pub mod fast;
pub mod figures;
pub mod html;
pub mod idle;
pub mod launches;
pub mod limits;
pub mod markdown;
pub mod overall;
pub mod plot;

use crate::circumstances::factors_line;
use crate::error::{Context, Result};
use crate::idle as idle_services;
use crate::launch;
use crate::record;
use crate::source::Source;
use crate::study::switches::Switches;
use crate::study::text::setting_words;
use crate::study::{Studies, study_apps};
use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

/// One record, studied.
#[derive(Debug)]
pub struct Chapter {
    /// Which record.
    pub source: Source,
    /// Its samples by application, for the plots.
    pub switches: Vec<Switches>,
    /// Its numbers.
    pub studies: Studies,
}

impl Chapter {
    /// What the record is of; nothing where it holds no switch.
    pub fn title(&self) -> Option<String> {
        let apps = &self.studies.apps;
        let setting = setting_words(&apps.first()?.run.parameters);
        let of = match apps.as_slice() {
            [only] => only.app.clone(),
            several => format!("{} applications", several.len()),
        };
        Some(format!("{of}: {setting}"))
    }

    /// Swap, disk and mTHP of the record.
    pub fn factors(&self) -> Option<String> {
        let run = &self.studies.apps.first()?.run;
        Some(factors_line(&run.machine, run.parameters.factors.throttle))
    }
}

/// Reads and studies records of switches. What was measured of most applications comes first: it is what the others vary.
pub fn chapters(records: &[&PathBuf]) -> Result<Vec<Chapter>> {
    let studied = records.iter().map(|path| {
        let switches = Switches::by_app(record::read(path)?);
        let studies = study_apps(&switches);
        let begun = studies
            .apps
            .first()
            .map_or(0, |study| study.run.time_unix_s);
        Ok(Chapter {
            source: Source::of(path, begun),
            switches,
            studies,
        })
    });
    let mut chapters = studied.collect::<Result<Vec<Chapter>>>()?;
    chapters.sort_by_key(|chapter| Reverse(chapter.studies.apps.len()));
    Ok(chapters)
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
