//! Versions of the programs that take part in a run.

use super::App;
use std::collections::BTreeMap;
use std::process::Command;

/// What a program says to `--version`, or nothing.
fn first_line(command: &[&str]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The versions of this program, the application and its package.
pub fn versions(app: &App) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    found.insert(
        "prepage-eval".to_owned(),
        env!("CARGO_PKG_VERSION").to_owned(),
    );
    if let Some(line) = first_line(app.version_command) {
        found.insert(app.name.to_owned(), line);
    }
    let query = ["dpkg-query", "-W", "-f=${Version}", app.package];
    if let Some(version) = first_line(&query) {
        found.insert(format!("package:{}", app.package), version);
    }
    found
}
