//! What programs that are measured say.

use std::path::{Path, PathBuf};

/// The file of a program's messages in a directory.
pub fn log_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.log"))
}

/// The last lines of a program's messages, the latest first.
pub fn said(log: &Path) -> String {
    let messages = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = messages.lines().rev().take(5).collect();
    match lines.is_empty() {
        true => "nothing".into(),
        false => lines.join(" | "),
    }
}
