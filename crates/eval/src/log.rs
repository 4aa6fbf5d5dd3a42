//! What programs that are measured say.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The file of a program's messages in a directory.
pub fn log_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.log"))
}

/// What went wrong with a program, and its last words: the last lines of its messages, the latest first.
pub fn with_last_words(cause: impl Display, log: &Path) -> String {
    let messages = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = messages.lines().rev().take(5).collect();
    let said = match lines.is_empty() {
        true => "nothing".into(),
        false => lines.join(" | "),
    };
    format!("{cause}; it said: {said}")
}

/// The same of an application, and what can be done where its last words are that it is not for root.
pub fn with_last_words_of_application(cause: impl Display, log: &Path) -> String {
    let told = with_last_words(cause, log);
    let lower = told.to_lowercase();
    match lower.contains("root") || lower.contains("superuser") {
        true => format!("{told} (where it refuses root: --user nobody, or another user)"),
        false => told,
    }
}
