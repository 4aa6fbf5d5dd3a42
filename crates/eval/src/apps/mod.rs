//! The measured applications: each a value that says how it is launched, recognized and used.

mod blender;
pub mod chromium;
mod evince;
mod firefox;
mod geany;
mod gimp;
pub mod given;
mod mozilla;
mod thunderbird;
pub mod versions;
mod web_page;
mod writer;

use crate::error::{Error, Result};
use crate::packages::{self, Needed};
use crate::site::Site;
use given::Given;
use std::ffi::OsString;

/// One application.
#[derive(Clone, Copy, Debug)]
pub struct App {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// Debian's packages that it needs.
    pub packages: &'static [&'static str],
    /// The executable that must be there, or another file by its path.
    pub executable: &'static str,
    /// The command that says its version.
    pub version_command: &'static [&'static str],
    /// Its content and its command line.
    pub content: Content,
    /// Its environment beyond the session's.
    pub environment: &'static [(&'static str, &'static str)],
    /// What its window's class contains.
    pub window_class: &'static str,
    /// What its window's title contains once it can be used.
    pub ready_title: &'static str,
    /// Whether a click into the middle is needed before keys reach the content.
    pub click_first: bool,
    /// The key that goes with a switch and must visibly be answered, whatever was done before. Where it is empty, none goes with
    /// it: the application answers by drawing again what it had drawn.
    pub answer_key: &'static str,
    /// What a person does in it between switches (ASAP's Table 2).
    pub contexts: &'static [ContextAction],
}

/// What an application shows.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Made by a function of the seed, which returns the command line.
    Made(fn(&Site<'_>) -> Result<Vec<OsString>>),
    /// There already, and named in this command line.
    Given(&'static [OsString]),
}

impl Content {
    /// Makes what has to be made. Returns program and arguments.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn prepare(&self, site: &Site<'_>) -> Result<Vec<OsString>> {
        match self {
            Self::Made(make) => make(site),
            Self::Given(command) => Ok(command.to_vec()),
        }
    }
}

/// One thing that a person does in an application.
#[derive(Clone, Copy, Debug)]
pub struct ContextAction {
    /// Its name in records.
    pub name: &'static str,
    /// The keys, in order, as [`crate::display::input::symbols`] reads them.
    pub keys: &'static [&'static str],
}

/// How long an application may take until its window can be used, in milliseconds.
pub const READY_LIMIT_MS: u64 = 60_000;

/// Every application there is.
pub const APPS: &[App] = &[
    chromium::CHROMIUM,
    firefox::FIREFOX,
    writer::WRITER,
    gimp::GIMP,
    geany::GEANY,
    evince::EVINCE,
    thunderbird::THUNDERBIRD,
    blender::BLENDER,
];

/// The application that was given, or else those of these names.
///
/// # Errors
/// As of [`Given::app`] and [`named`].
pub fn chosen(names: &[String], given: Option<&Given>) -> Result<Vec<App>> {
    match given {
        Some(given) => Ok(vec![given.app()?]),
        None => named(names),
    }
}

/// The applications of these names, or every one for `all`; each once, in the order given.
///
/// # Errors
/// Where a name is unknown, is there twice, or there is none.
fn named(names: &[String]) -> Result<Vec<App>> {
    if names == ["all"] {
        return Ok(APPS.to_vec());
    }
    let known = || {
        let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
        format!("known are: all, {}", names.join(", "))
    };
    let mut found: Vec<App> = Vec::with_capacity(names.len());
    for name in names {
        let subject = || format!("application {name}");
        let app = APPS.iter().find(|app| app.name == name);
        let app = app.ok_or_else(|| Error::new("find", subject(), known()))?;
        if found.iter().any(|earlier| earlier.name == app.name) {
            return Err(Error::new("choose", subject(), "it is named twice"));
        }
        found.push(*app);
    }
    if found.is_empty() {
        return Err(Error::new("choose", "applications", known()));
    }
    Ok(found)
}

/// Sees to it that applications are there: installs what is missing, or says how that is done.
///
/// # Errors
/// Where one is missing and not to be installed, or cannot be.
pub fn require(apps: &[App], installs: bool) -> Result<()> {
    let needed: Vec<Needed> = apps.iter().map(App::needed).collect();
    packages::require("applications", &needed, installs)
}

impl App {
    fn needed(&self) -> Needed {
        Needed {
            executable: self.executable,
            packages: self.packages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::path::Path;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn there_are_eight_applications_and_each_is_used_in_four_ways_at_least() {
        let names: HashSet<&str> = APPS.iter().map(|app| app.name).collect();
        assert_eq!((names.len(), APPS.len()), (8, 8));
        for app in APPS {
            let ways: HashSet<&str> = app.contexts.iter().map(|c| c.name).collect();
            assert!(ways.len() >= 4, "{}", app.name);
            assert_eq!(ways.len(), app.contexts.len(), "{}", app.name);
            assert!(!app.packages.is_empty() && !app.ready_title.is_empty());
        }
    }

    #[test]
    fn names_are_chosen_in_order_and_mistakes_are_told() {
        let chosen = named(&strings(&["gimp", "chromium"])).unwrap();
        let names: Vec<&str> = chosen.iter().map(|app| app.name).collect();
        assert_eq!(names, ["gimp", "chromium"]);
        assert_eq!(named(&strings(&["all"])).unwrap().len(), APPS.len());
        let unknown = named(&strings(&["gmp"])).unwrap_err().to_string();
        assert!(unknown.contains("gmp") && unknown.contains("gimp"));
        assert!(named(&strings(&["gimp", "gimp"])).is_err());
        assert!(named(&[]).is_err());
    }

    #[test]
    fn a_missing_application_names_its_packages() {
        let absent = App {
            executable: "no such program",
            packages: &["some-package"],
            ..APPS[0]
        };
        let error = require(&[absent], false).unwrap_err().to_string();
        assert!(error.contains("apt-get install") && error.contains("some-package"));
    }

    /// Every file below a directory, by name.
    fn files(directory: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files(&path));
            } else {
                found.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn content_is_a_function_of_the_seed_and_stays_in_the_directory() {
        let scratch = std::env::temp_dir().join(format!("prepage-apps-{}", std::process::id()));
        for app in APPS {
            let directory = scratch.join(app.name);
            let made = |seed| {
                std::fs::create_dir_all(&directory).unwrap();
                let site = Site {
                    directory: &directory,
                    seed,
                };
                let command = app.content.prepare(&site).unwrap();
                let files = files(&directory);
                std::fs::remove_dir_all(&directory).unwrap();
                (command, files)
            };
            let one = made(1);
            // Another file that must be there, by its path, is not what is run.
            let program = match app.executable.starts_with('/') {
                true => app.version_command[0],
                false => app.executable,
            };
            assert!(one.0.iter().any(|word| word == program), "{}", app.name);
            assert!(one == made(1), "{}: not a function of the seed", app.name);
            assert!(one.1 != made(2).1, "{}: the seed is not used", app.name);
            assert_eq!(files(&scratch), [], "{}", app.name);
        }
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}
