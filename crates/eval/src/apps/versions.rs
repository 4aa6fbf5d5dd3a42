//! Versions of the applications that take part in a run.

use super::App;
use crate::packages;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What a program says to `--version`, or nothing. Some write a profile even then: into `home`, not the person's.
fn first_line(command: &[&str], home: &Path) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let output = Command::new(program)
        .args(arguments)
        .env("HOME", home)
        .env_remove("DISPLAY")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The versions of the applications and their packages.
pub fn versions(apps: &[App], home: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for app in apps {
        found.extend(first_line(app.version_command, home).map(|line| (app.name.to_owned(), line)));
        for package in app.packages {
            found.extend(packages::version(package).map(|v| (format!("package:{package}"), v)));
        }
    }
    found
}
