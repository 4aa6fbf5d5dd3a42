//! The thread that writes profiles, so that nobody else waits for the disk.

use super::PROFILE_BYTES_MAX;
use super::files::{failed, is_newer_at, replace};
use super::format::{self, write_left_alone};
use crate::error::Result;
use crate::locked::locked;
use crate::thread;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The thread, and what it is given to do.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Sender<Word>,
    due: Arc<Mutex<Due>>,
    thread: JoinHandle<()>,
}

/// What is to be done, by file: only the last of several versions needs writing, however long the disk takes.
pub(super) type Due = BTreeMap<PathBuf, Task>;

/// What is to be done to a file.
#[derive(Debug)]
pub(super) enum Task {
    /// To have these bytes, and no others at any moment.
    Write(Vec<u8>),
    /// Only the launches that the application is still left alone for.
    LeftAlone(u32),
    Remove,
}

/// What the thread that writes is told.
enum Word {
    /// Something is due, where nothing was.
    Due,
    /// Answer when everything before has been done, or could not be.
    Flush(Sender<Result<()>>),
    /// Who is told from now on of what could not be kept.
    WarnBy(fn(&str)),
}

impl Writer {
    pub(super) fn start() -> Result<Self> {
        let (queue, words) = channel();
        let due = Arc::new(Mutex::default());
        let thread = thread::spawn("prepage-store", {
            let due = Arc::clone(&due);
            move || run_writer(&words, &due)
        })?;
        Ok(Self { queue, due, thread })
    }

    /// Has this done to a file, soon. Returns at once.
    pub(super) fn queue(&self, path: PathBuf, task: Task) {
        let mut due = locked(&self.due);
        let is_first = due.is_empty();
        match (due.get_mut(&path), task) {
            (Some(Task::Write(bytes)), Task::LeftAlone(left)) => {
                format::set_left_alone(bytes, left);
            }
            (_, task) => drop(due.insert(path, task)),
        }
        drop(due);
        if is_first {
            self.tell(Word::Due);
        }
    }

    /// Has `warn` told of what could not be kept.
    pub(super) fn warn_by(&self, warn: fn(&str)) {
        self.tell(Word::WarnBy(warn));
    }

    /// Waits until all that was queued is done. An error is of a file for which it could not be.
    pub(super) fn flush(&self) -> Result<()> {
        let (done, wait) = channel();
        self.tell(Word::Flush(done));
        // Where the thread is gone there is nothing to wait for.
        wait.recv().unwrap_or(Ok(()))
    }

    /// Does what is queued, and ends.
    pub(super) fn stop(self) {
        drop(self.queue);
        // A panic of the thread has been reported by itself.
        let _ = self.thread.join();
    }

    /// What is to be done, for tests.
    #[cfg(test)]
    pub(super) fn due(&self) -> Arc<Mutex<Due>> {
        Arc::clone(&self.due)
    }

    fn tell(&self, word: Word) {
        // The thread ends only when the queue is dropped.
        let _ = self.queue.send(word);
    }
}

fn run_writer(words: &Receiver<Word>, due: &Mutex<Due>) {
    let mut warn: fn(&str) = |warning| eprintln!("{warning}");
    // A full disk fails every write: the first says it.
    let mut is_failing = false;
    // What is not as it was to be, and why: a number of launches is of what was to be there.
    let mut outdated = BTreeMap::new();
    while let Ok(first) = words.recv() {
        let mut waiting = Vec::new();
        for word in std::iter::once(first).chain(words.try_iter()) {
            match word {
                Word::Due => {}
                Word::Flush(done) => waiting.push(done),
                Word::WarnBy(by) => warn = by,
            }
        }
        let taken = std::mem::take(&mut *locked(due));
        for (path, task) in taken {
            let result = match task {
                Task::Write(..) if is_newer_at(&path) => Err(std::io::Error::other(
                    "a newer version's profile is there, and stays",
                )),
                Task::Write(bytes) if bytes.len() > PROFILE_BYTES_MAX => Err(
                    std::io::Error::other(format!("larger than {PROFILE_BYTES_MAX} bytes")),
                ),
                Task::Write(bytes) => replace(&path, &bytes),
                Task::LeftAlone(..) if outdated.contains_key(&path) => continue,
                Task::LeftAlone(left) => write_left_alone(&path, left),
                Task::Remove => remove(&path),
            };
            match result {
                Ok(()) => {
                    is_failing = false;
                    outdated.remove(&path);
                }
                Err(error) => {
                    if !is_failing {
                        let path = path.display();
                        warn(&format!("what was learned is not kept: {path}: {error}"));
                    }
                    is_failing = true;
                    outdated.insert(path, error);
                }
            }
        }
        for done in waiting {
            let _ = done.send(none_of(&outdated));
        }
    }
}

/// Removes a file; one that was to be removed before it was written is none.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn none_of(outdated: &BTreeMap<PathBuf, std::io::Error>) -> Result<()> {
    match outdated.first_key_value() {
        None => Ok(()),
        Some((path, error)) => {
            let error = std::io::Error::new(error.kind(), error.to_string());
            Err(failed("writing", path, error))
        }
    }
}
