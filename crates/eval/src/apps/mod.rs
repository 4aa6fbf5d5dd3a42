//! The measured applications: each a value that says how it is launched, recognized and used.

pub mod chromium;
pub mod versions;

use crate::display::session::Places;
use crate::error::{Error, Result};
use std::ffi::OsString;

/// One application.
#[derive(Clone, Copy, Debug)]
pub struct App {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// The command that says its version.
    pub version_command: &'static [&'static str],
    /// Makes its content, a function of the seed, and returns its command line.
    pub prepare: fn(&Places, &str, u64) -> Result<Vec<OsString>>,
    /// Its environment beyond the session's.
    pub environment: &'static [(&'static str, &'static str)],
    /// What its window's class contains.
    pub window_class: &'static str,
    /// What its window's title contains once it can be used.
    pub ready_title: &'static str,
    /// How long it may take until then.
    pub ready_limit_ms: u64,
    /// Whether a click into the middle is needed before keys reach the content.
    pub click_first: bool,
    /// The key that goes with a switch and must visibly be answered.
    pub answer_key: &'static str,
    /// What a person does in it between switches.
    pub contexts: &'static [ContextAction],
}

/// One thing that a person does in an application.
#[derive(Clone, Copy, Debug)]
pub struct ContextAction {
    /// Its name in records.
    pub name: &'static str,
    /// The keys, in order.
    pub keys: &'static [&'static str],
}

/// Every application there is.
pub const APPS: &[App] = &[chromium::CHROMIUM];

/// Finds an application by its name.
pub fn find(name: &str) -> Result<App> {
    APPS.iter()
        .find(|app| app.name == name)
        .copied()
        .ok_or_else(|| {
            let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
            Error::new(
                "find",
                format!("application {name}"),
                format!("known are: {}", names.join(", ")),
            )
        })
}
