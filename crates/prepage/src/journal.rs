//! Log lines on standard error. Under systemd each begins with its level, which the journal takes off and keeps.

use prepage_core::identity::printable;
use std::io::Write;
use std::sync::OnceLock;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something that was to be done is not done.
    Error,
    /// It is done worse than it could be.
    Warning,
    /// What an operator wants to know.
    Info,
}

/// Writes one line. A line that cannot be written is lost: there is nowhere to complain.
pub fn log(level: Level, message: std::fmt::Arguments<'_>) {
    let (number, word) = match level {
        Level::Error => (3, "error: "),
        Level::Warning => (4, "warning: "),
        Level::Info => (6, ""),
    };
    // What it names may have been named by anybody.
    let message = message.to_string();
    let message = printable(&message);
    let line = match goes_to_journal() {
        true => format!("<{number}>{message}\n"),
        false => format!("prepaged: {word}{message}\n"),
    };
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// systemd says in this variable which device and inode its journal has.
fn goes_to_journal() -> bool {
    static JOURNAL: OnceLock<bool> = OnceLock::new();
    *JOURNAL.get_or_init(|| {
        let Ok(stat) = rustix::fs::fstat(std::io::stderr()) else {
            return false;
        };
        let here = format!("{}:{}", stat.st_dev, stat.st_ino);
        std::env::var("JOURNAL_STREAM").is_ok_and(|journal| journal == here)
    })
}

/// Logs an error, as `format!` takes it.
#[macro_export]
macro_rules! log_error {
    ($($part:tt)*) => { $crate::journal::log($crate::journal::Level::Error, format_args!($($part)*)) };
}

/// Logs a warning, as `format!` takes it.
#[macro_export]
macro_rules! log_warning {
    ($($part:tt)*) => { $crate::journal::log($crate::journal::Level::Warning, format_args!($($part)*)) };
}

/// Logs what an operator wants to know, as `format!` takes it.
#[macro_export]
macro_rules! log_info {
    ($($part:tt)*) => { $crate::journal::log($crate::journal::Level::Info, format_args!($($part)*)) };
}
