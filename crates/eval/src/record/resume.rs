//! A run that was interrupted goes on with its record: what that holds is not measured again.

use super::Writer;
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;

fn is_there(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Checks that a run may write there, before anything else is done: nothing is there yet, or it is to go on with that.
///
/// # Errors
/// Where it may not.
pub fn check_out(path: &Path, resume: bool) -> Result<()> {
    if path.extension().is_some_and(|name| name == "gz") {
        let cause = "a compressed record is only read: name one without .gz, or uncompress it to go on with it";
        return Err(Error::new("write", path.display(), cause));
    }
    if resume || !is_there(path) {
        return Ok(());
    }
    let cause = format!(
        "{} is there already, and stays: go on with it by --resume, or name another file",
        path.display()
    );
    Err(Error::new("begin", "a record", cause))
}

/// A line of a record that a run can go on with.
pub trait Resumable: Sized {
    /// What a run was asked for.
    type Parameters;
    /// What identifies a sample.
    type Key: Eq + Hash;

    /// Reads a record.
    fn read(path: &Path) -> Result<Vec<Self>>;

    /// Whether a run with these parameters can go on with a record that begins with this line: they may differ in the
    /// number of samples only.
    fn admits(&self, parameters: &Self::Parameters) -> bool;

    /// Which sample this line is; `None` if it is none.
    fn key(&self) -> Option<Self::Key>;
}

/// What a record holds already.
#[derive(Debug)]
pub struct Earlier<L: Resumable> {
    is_there: bool,
    done: HashSet<L::Key>,
}

impl<L: Resumable> Earlier<L> {
    /// Reads the record of the run before, where there is one and this run is to go on with it.
    ///
    /// # Errors
    /// As of [`check_out`]; where it is no such record, or of a run with other parameters.
    pub fn read(path: &Path, resume: bool, parameters: &L::Parameters) -> Result<Self> {
        // A run that was waited for may have written it.
        check_out(path, resume)?;
        let lines = match resume && is_there(path) {
            true => L::read(path)?,
            false => Vec::new(),
        };
        match lines.first() {
            Some(first) if !first.admits(parameters) => {
                let cause = format!(
                    "{} was made with other parameters: say them again, or name another record with --out",
                    path.display()
                );
                Err(Error::new("resume", "the record", cause))
            }
            _ => Ok(Self {
                is_there: !lines.is_empty(),
                done: lines.iter().filter_map(L::key).collect(),
            }),
        }
    }

    /// Whether the record holds this sample.
    pub fn has(&self, key: &L::Key) -> bool {
        self.done.contains(key)
    }

    /// Opens the record for what is still to be measured.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn writer(&self, path: &Path) -> Result<Writer> {
        Writer::open(path, self.is_there)
    }
}
