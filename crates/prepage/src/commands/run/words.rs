//! What is said of a launch; and why a command does not run, in a shell's words and with its exit status (POSIX.1-2017,
//! XCU 2.8.2: 127 where it is not found, 126 where it is found and cannot be executed). Where its interpreter is not
//! found, shells end with 127.

use super::super::launches::phase;
use crate::api::LaunchBeginReply;
use crate::launch::decide::Decided;
use crate::launch::record::DecisionRecord;
use prepage_core::identity::AppId;
use prepage_core::launch::manager::{LaunchState, Learned, Phase};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Exit status: there is no such command.
const NOT_FOUND: u8 = 127;

/// Exit status: it cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// A program's name as it is said: one that is empty would not be seen.
pub fn shown(program: &OsStr) -> Cow<'_, str> {
    match program.is_empty() {
        true => "''".into(),
        false => program.to_string_lossy(),
    }
}

/// The exit status and what to say.
pub fn refusal(program: &OsStr, error: &prepage_kernel::Error) -> (u8, String) {
    let name = shown(program);
    let is_path = program.as_bytes().contains(&b'/');
    let path = Path::new(program);
    let code = error.errno().map(rustix::io::Errno::from_raw_os_error);
    match code {
        Some(Errno::NOENT) if !is_path => (NOT_FOUND, format!("{name}: command not found")),
        Some(Errno::NOENT) if path.exists() => (
            NOT_FOUND,
            format!(
                "{name}: its interpreter is not found: see its first line, or the loader it names"
            ),
        ),
        Some(Errno::NOENT | Errno::NOTDIR) => {
            (NOT_FOUND, format!("{name}: No such file or directory"))
        }
        Some(Errno::ACCESS) if is_path && path.is_dir() => {
            (NOT_EXECUTABLE, format!("{name}: Is a directory"))
        }
        Some(Errno::ACCESS | Errno::PERM) => (NOT_EXECUTABLE, format!("{name}: Permission denied")),
        Some(Errno::NOEXEC) => (
            NOT_EXECUTABLE,
            format!("{name}: cannot execute: wrong format"),
        ),
        _ => (NOT_EXECUTABLE, error.to_string()),
    }
}

/// What was decided.
pub fn decision(app: &AppId, decided: &Decided) -> String {
    let numbers = DecisionRecord::from(decided);
    let does_something = decided.does_something();
    described(
        &app.to_string(),
        decided.state.phase,
        &numbers,
        does_something,
    )
}

fn described(app: &str, at: Phase, numbers: &DecisionRecord, does_something: bool) -> String {
    let mut parts = vec![format!("{app}: {}", phase(at))];
    if numbers.prefetch_pages + numbers.paths > 0 {
        parts.push(format!(
            "fetching {} pages and {} paths",
            numbers.prefetch_pages, numbers.paths
        ));
    }
    if numbers.held_out {
        parts.push("held out, to measure what help is worth".into());
    }
    if numbers.records {
        parts.push("recording".into());
    }
    if !does_something {
        parts.push("nothing is done".into());
    }
    parts.join(", ")
}

/// What the service decided.
pub fn begun(begun: &LaunchBeginReply) -> String {
    let app = &begun.app;
    let LaunchBeginReply {
        launch,
        phase: at,
        decision,
        ..
    } = begun;
    described(app, *at, decision, launch.is_some())
}

/// What a launch that is over changed.
pub fn learned(app: &AppId, learned: &Learned, state: &LaunchState) -> String {
    let what = match learned {
        Learned::Nothing => "nothing new",
        Learned::Recorded => "recorded",
        Learned::Relearning(_) => "files changed, which are learned anew",
        Learned::Generation => "enough is known to help",
        Learned::Deleted => "too much was missed: it is learned anew",
        Learned::Off(_) => "it is left alone from now on",
    };
    let pages = state.sequence.pages();
    format!(
        "{app}: launch over, {what}; {}, {pages} pages known",
        phase(state.phase)
    )
}
