//! An application that is not of the table: somebody's own command, used by keys that most applications understand.

use super::{App, Content, ContextAction};
use crate::display::input;
use crate::error::{Context, Error, Result};
use crate::packages;
use crate::user::command_of;
use prepage_core::wrappers::wrapped;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What is said of such an application; it goes into the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Program and arguments.
    pub command: Vec<String>,
    /// What its window's title contains once it can be used; where this is empty, its window is that which is active once it
    /// has come to rest.
    pub window_title: String,
    /// The key that goes with a switch and is to be answered visibly; where this is empty, it is found when the application
    /// runs.
    pub answer_key: String,
    /// Whether a click into the middle is needed before keys reach the content.
    pub click_first: bool,
    /// Whom it runs as; root where there is nobody named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What a reader does in most applications that show something longer than a page. Of four switches, each with an answer key that
/// may read on, none leads away from the beginning in the mean: at its end, a list of pictures answers nothing any more.
const CONTEXTS: &[ContextAction] = &[
    ContextAction {
        name: "read_on",
        keys: &["Next", "Next"],
    },
    ContextAction {
        name: "read_back",
        keys: &["Prior", "Prior", "Prior", "Prior", "Prior", "Prior"],
    },
    ContextAction {
        name: "begin",
        keys: &["ctrl+Home"],
    },
    ContextAction {
        name: "step",
        keys: &["Down", "Down", "Right"],
    },
];

/// What a command is called that is not of a table: by its program, or by that which it only runs in other surroundings.
///
/// # Errors
/// Where it names no program.
pub fn name_of(command: &[impl AsRef<OsStr>]) -> Result<String> {
    let mut words = command;
    loop {
        let program = words.first().map(|word| Path::new(word.as_ref()));
        let name = program.and_then(Path::file_name);
        let name = name.ok_or_else(|| Error::new("launch", "a command", "it names no program"))?;
        let name = name.to_string_lossy();
        match wrapped(&name, words) {
            Some(run) => words = run,
            None => return Ok(name.into_owned()),
        }
    }
}

/// Where somebody's own command runs, since it may name files there: the directory in which this program was called.
///
/// # Errors
/// Where that is gone.
pub fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().context("find", "the current directory")
}

impl Given {
    /// As an application like those of the table, whose words are never given back: they are as long as a command line.
    ///
    /// # Errors
    /// Where there is no such program, no such key or no such user.
    pub fn app(&self) -> Result<App> {
        let name = name_of(&self.command)?;
        if !self.answer_key.is_empty() {
            input::symbols(&self.answer_key)?;
        }
        let program = &self.command[0];
        let environment = packages::environment_of_own(program)?;
        let command = command_of(self.user.as_deref(), &self.command)?;
        Ok(App {
            name: name.leak(),
            packages: &[],
            executable: program.clone().leak(),
            version_command: &[],
            content: Content::Given(command.leak()),
            environment,
            window_class: "",
            ready_title: self.window_title.clone().leak(),
            click_first: self.click_first,
            answer_key: self.answer_key.clone().leak(),
            contexts: CONTEXTS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(command: &[&str], answer_key: &str) -> Given {
        Given {
            command: command.iter().map(ToString::to_string).collect(),
            window_title: String::new(),
            answer_key: answer_key.into(),
            click_first: false,
            user: None,
        }
    }

    #[test]
    fn what_a_wrapper_runs_has_the_name() {
        let name = |command: &[&str]| name_of(command).unwrap();
        assert_eq!(name(&["/usr/bin/env", "A=b", "C=", "/bin/sh", "-c"]), "sh");
        assert_eq!(name(&["env", "-C", "/", "nice", "/bin/sh"]), "sh");
        assert_eq!(name(&["env", "A=b"]), "env");
        assert_eq!(name(&["/opt/a=b/sh", "A=b"]), "sh");
        let with_bus = ["env", "A=b", "dbus-run-session", "--", "/bin/sh", "a"];
        assert_eq!(name(&with_bus), "sh");
    }

    #[test]
    fn a_command_is_an_application_named_after_its_program() {
        for key in ["ctrl+Next", ""] {
            let app = given(&["/bin/sh", "-c", "exit"], key).app().unwrap();
            assert_eq!((app.name, app.executable), ("sh", "/bin/sh"));
            assert_eq!(app.answer_key, key);
            assert!(matches!(app.content, Content::Given(words) if words.len() == 3));
        }
        for context in CONTEXTS {
            for key in context.keys {
                input::symbols(key).unwrap();
            }
        }
    }

    #[test]
    fn what_cannot_be_run_or_pressed_is_told_before_anything_is_started() {
        for (command, key, told) in [
            (&["no-such-program"][..], "Next", "no-such-program"),
            (&["sh"], "ctrl+Nxt", "Nxt"),
            (&["/"], "Next", "names no program"),
            (&[], "Next", "names no program"),
        ] {
            let error = given(command, key).app().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
