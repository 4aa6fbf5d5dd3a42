//! Records switches in mode observe, as the replay simulator reads them: one JSON line for each.

use crate::log_warning;
use prepage_core::app::Observation;
use prepage_core::identity::{AppId, FileId, Instance};
use prepage_core::machine::Event;
use prepage_core::params::Mode;
use prepage_core::replay::{RecordedAnon, RecordedFile, RecordedSwitch};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// What happened to an application since its last recorded switch.
#[derive(Debug, Default)]
struct Since {
    started: Vec<Instance>,
    ended: Vec<Instance>,
    changed: Vec<FileId>,
}

/// The file that is appended to.
#[derive(Debug)]
pub struct Recording {
    file: File,
    since: BTreeMap<AppId, Since>,
}

impl Recording {
    /// Opens it, or makes it.
    ///
    /// # Errors
    /// Where it cannot be written to.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self {
            file: file.map_err(|e| format!("recording to {}: {e}", path.display()))?,
            since: BTreeMap::new(),
        })
    }

    /// Takes in an event that the machine is given.
    pub fn see(&mut self, event: &Event, mode: Mode) {
        match event {
            Event::InstanceStarted { app, instance } => {
                self.since
                    .entry(app.clone())
                    .or_default()
                    .started
                    .push(*instance);
            }
            Event::InstanceEnded { app, instance } => {
                let since = self.since.entry(app.clone()).or_default();
                // One that came and went between two switches is in none of them.
                match since.started.iter().position(|started| started == instance) {
                    Some(index) => drop(since.started.swap_remove(index)),
                    None => since.ended.push(*instance),
                }
            }
            Event::Untracked { app } => drop(self.since.remove(app)),
            Event::FileChanged { app, file } => {
                self.since
                    .entry(app.clone())
                    .or_default()
                    .changed
                    .push(file.clone());
            }
            Event::Observed {
                app, observation, ..
            } => {
                let is_truth = mode == Mode::Observe && observation.void.is_none();
                if is_truth && fetched_nothing(observation) {
                    self.write(app, observation);
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, app: &AppId, seen: &Observation) {
        let since = self.since.remove(app).unwrap_or_default();
        let mut changed = since.changed;
        changed.extend(seen.stale_files.iter().cloned());
        let anon = seen.anon.iter().map(|(instance, seen)| RecordedAnon {
            instance: *instance,
            accessed: seen.accessed(),
            swapped: None,
        });
        let files = seen.files.iter().map(|(file, seen)| RecordedFile {
            file: file.clone(),
            accessed: seen.accessed.clone(),
            demanded: seen.demanded.clone(),
            unknown: seen.unknown.clone(),
        });
        let recorded = RecordedSwitch {
            app: app.clone(),
            ended: since.ended,
            started: since.started,
            changed,
            anon: anon.collect(),
            files: files.collect(),
        };
        let line = serde_json::to_string(&recorded).map(|line| line + "\n");
        let written = line
            .map_err(Into::into)
            .and_then(|l| self.file.write_all(l.as_bytes()));
        if let Err(error) = written {
            log_warning!("a switch of {app} was not recorded: {error}");
        }
    }
}

fn fetched_nothing(seen: &Observation) -> bool {
    let anon = seen.anon.values().all(|a| a.fetched.is_empty());
    anon && seen.files.values().all(|f| f.fetched.is_empty())
}
