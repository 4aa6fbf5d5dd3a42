//! Which applications a name means that a user typed.

use super::program::base_name;
use crate::interpreters::is_multi_call;
use prepage_core::identity::{AppId, AppKind};

/// What a user typed for an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// As it was typed.
    pub text: String,
    /// The executable that a command of this name is: `gimp` may be a link to `gimp-2.10`.
    pub executable: Option<String>,
    /// Where that is a shell's script in a directory of the application's own: this directory. What the script runs lies there.
    pub directory: Option<String>,
}

impl Named {
    /// Whether it means this application.
    pub fn means(&self, app: &AppId) -> bool {
        let executable = self.executable.as_deref();
        let is_executable = app.kind == AppKind::Executable
            && (executable == Some(&*app.name)
                || executable.is_some_and(|file| self.calls(file, &app.name))
                || self.lies_there(&app.name));
        is_executable || matches(app, &self.text)
    }

    /// Whether it is what this file is called that is many by their names, `rustup cargo`.
    fn calls(&self, file: &str, name: &str) -> bool {
        let called = name
            .strip_prefix(base_name(file))
            .and_then(|n| n.strip_prefix(' '));
        is_multi_call(base_name(file)) && called == Some(base_name(&self.text))
    }

    /// Whether it is a program in that directory, but what waits there for crashes.
    fn lies_there(&self, path: &str) -> bool {
        let split = path.rsplit_once('/');
        let base = split.filter(|(directory, _)| self.directory.as_deref() == Some(directory));
        base.is_some_and(|(_, base)| !base.contains("crash"))
    }

    /// The last parts of the paths by which the executable that it means, if it means one, may be executed: what was typed, and
    /// where that leads.
    pub fn executable_names(&self) -> [&str; 2] {
        let id = || self.text.strip_prefix("executable:")?.rsplit_once('@');
        let typed = base_name(id().map_or(&*self.text, |(name, _owner)| name));
        [typed, self.executable.as_deref().map_or(typed, base_name)]
    }
}

/// Whether what a user typed means this application: its whole id, its name, the last part of the executable's
/// path, or the last part of a desktop id.
pub fn matches(app: &AppId, text: &str) -> bool {
    let name: &str = &app.name;
    if app.to_string() == text || name == text {
        return true;
    }
    match app.kind {
        AppKind::Executable => base_name(name) == text,
        AppKind::Desktop => name
            .rsplit('.')
            .next()
            .is_some_and(|l| l.eq_ignore_ascii_case(text)),
        AppKind::Unit => name.strip_suffix(".service") == Some(text),
        AppKind::Container | AppKind::Named => false,
    }
}

/// Where commands are looked for that users name: everybody's directories, since whoever asks may not be who is asked.
pub const COMMAND_DIRECTORIES: [&str; 8] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/games",
    "/usr/games",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
];
