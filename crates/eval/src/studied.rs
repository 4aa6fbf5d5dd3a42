//! What the commands print of records, of whichever kind these are.

use crate::error::{Context, Error, Result};
use crate::output::print_line;
use crate::{idle, launch, record, study};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The study of one record.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Studied {
    Switches(Box<study::Studies>),
    Launches(Box<launch::study::LaunchStudy>),
    Idle(Box<idle::study::IdleStudy>),
}

impl Studied {
    fn of(path: &Path) -> Result<Self> {
        Ok(match record::first_kind(path)?.as_str() {
            "launches" => Self::Launches(Box::new(launch::study::study(path)?)),
            "idle" => Self::Idle(Box::new(idle::study::study(path)?)),
            _ => Self::Switches(Box::new(study::study(path)?)),
        })
    }

    /// The study of a record that somebody asks about.
    fn of_samples(path: &Path) -> Result<Self> {
        let studied = Self::of(path)?;
        let is_empty = match &studied {
            Self::Switches(studies) => studies.is_empty(),
            Self::Launches(study) => study.is_empty(),
            Self::Idle(study) => study.is_empty(),
        };
        match is_empty {
            true => {
                let cause = "it holds no samples yet: its run can go on with --resume";
                Err(Error::new("study", path.display(), cause))
            }
            false => Ok(studied),
        }
    }

    /// Whether launches were measured, and every one was discarded.
    fn is_in_vain(&self) -> bool {
        match self {
            Self::Launches(study) => {
                !study.discarded.is_empty() && study.sample_counts().all(|count| count == 0)
            }
            Self::Switches(_) | Self::Idle(_) => false,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Switches(studies) => study::text::show(studies),
            Self::Launches(study) => launch::text::show(study),
            Self::Idle(study) => idle::text::show(study),
        }
    }
}

/// Prints what the record of a run that is over says.
///
/// # Errors
/// Where it cannot be read, or holds launches of which every one was discarded.
pub fn print_run(record: &Path) -> Result<()> {
    let studied = Studied::of(record)?;
    print_line(studied.show())?;
    print_line(format_args!("record: {}", record.display()))?;
    match studied.is_in_vain() {
        true => {
            let cause =
                "every launch was discarded, as is said above: the next try takes another file";
            Err(Error::new("measure into", record.display(), cause))
        }
        false => Ok(()),
    }
}

/// Prints what these records say, as tables or as JSON.
///
/// # Errors
/// Where one cannot be read, or holds no samples.
pub fn print_studies(records: &[PathBuf], json: bool) -> Result<()> {
    let studies = records
        .iter()
        .map(|path| Studied::of_samples(path))
        .collect::<Result<Vec<_>>>()?;
    if json {
        let text = serde_json::to_string_pretty(&studies).context("encode", "study")?;
        print_line(text)
    } else {
        studies
            .iter()
            .try_for_each(|study| print_line(study.show()))
    }
}
