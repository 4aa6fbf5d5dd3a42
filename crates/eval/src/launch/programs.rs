//! The programs whose launches are measured: a table of real programs that do real work or show a window.

use super::record::{Ends, Given, ProgramFacts};
use super::workloads as work;
use crate::apps::Content;
use crate::apps::chromium::CHROMIUM;
use crate::apps::given::{current_dir, name_of};
use crate::display::session::Places;
use crate::error::{Context, Error, Result};
use crate::packages::{self, Needed};
use crate::site::Site;
use crate::user::command_of;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// One program of the table.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// Debian's packages that it needs.
    pub packages: &'static [&'static str],
    /// The executable that must be there.
    pub executable: &'static str,
    /// Its window, if its launch ends with a picture.
    pub window: Option<Window>,
    /// Its environment beyond the common one.
    pub environment: &'static [(&'static str, &'static str)],
    /// Whether it is measured if no program is named.
    pub is_default: bool,
    /// What it works on.
    pub content: Content,
}

/// How the window of a program is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// What its class contains.
    pub class: &'static str,
    /// What its title contains when the content is there.
    pub ready_title: &'static str,
}

/// A program that does its work and exits.
const fn exits(
    name: &'static str,
    packages: &'static [&'static str],
    is_default: bool,
    prepare: fn(&Site<'_>) -> Result<Vec<OsString>>,
) -> Program {
    Program {
        name,
        packages,
        executable: name,
        window: None,
        environment: &[],
        is_default,
        content: Content::Made(prepare),
    }
}

/// Every program there is.
pub const PROGRAMS: &[Program] = &[
    Program {
        executable: "chromium",
        window: Some(Window {
            class: CHROMIUM.window_class,
            ready_title: CHROMIUM.ready_title,
        }),
        environment: CHROMIUM.environment,
        ..exits("chromium", &["chromium"], true, work::chromium)
    },
    Program {
        executable: "soffice",
        ..exits(
            "libreoffice",
            &["libreoffice-writer-nogui"],
            true,
            work::libreoffice,
        )
    },
    Program {
        window: Some(Window {
            class: "imp",
            ready_title: "picture",
        }),
        ..exits("gimp", &["gimp"], true, work::gimp)
    },
    exits("emacs", &["emacs-nox"], true, work::emacs),
    exits("inkscape", &["inkscape"], true, work::inkscape),
    exits("python3", &["python3"], true, work::python3),
    exits("node", &["nodejs"], true, work::node),
    exits("javac", &["default-jdk-headless"], true, work::javac),
    exits("git", &["git"], true, work::git),
    exits("gcc", &["gcc", "libc6-dev"], true, work::gcc),
    exits("perl", &["perl"], false, work::perl),
    exits("ruby", &["ruby"], false, work::ruby),
    exits("ffmpeg", &["ffmpeg"], false, work::ffmpeg),
    exits("vim", &["vim"], false, work::vim),
    exits("gdb", &["gdb"], false, work::gdb),
    exits("gs", &["ghostscript"], false, work::gs),
    exits("dot", &["graphviz"], false, work::dot),
    exits("sqlite3", &["sqlite3"], false, work::sqlite3),
    // The paper's example of a program that is too small.
    exits("uname", &["coreutils"], false, work::uname),
];

/// A program with its content made, ready to be launched again and again.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The name.
    pub name: String,
    /// The packages.
    pub packages: &'static [&'static str],
    /// Its window, if its launch ends with a picture.
    pub window: Option<Window>,
    /// Its environment beyond the common one.
    pub environment: &'static [(&'static str, &'static str)],
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// The directory in which it runs.
    pub directory: PathBuf,
}

/// The command that is given, or else the programs of these names ([`choose`]).
pub fn asked(given: Option<&Given>, names: &[String], installs: bool) -> Result<Vec<Program>> {
    match given {
        Some(given) => Ok(vec![given.program()?]),
        None => choose(names, installs),
    }
}

impl Given {
    /// As a program like those of the table, whose words are never given back: they are as long as a command line.
    ///
    /// # Errors
    /// Where it names no program, or one that is not there.
    fn program(&self) -> Result<Program> {
        let name = name_of(&self.command)?;
        let environment = packages::environment_of_own(&self.command[0])?;
        let command = command_of(self.user.as_deref(), &self.command)?;
        Ok(Program {
            name: name.leak(),
            packages: &[],
            executable: self.command[0].clone().leak(),
            window: self.window_title.clone().map(Window::titled),
            environment,
            is_default: false,
            content: Content::Given(command.leak()),
        })
    }
}

/// The programs of these names, the default ones if there are no names. What is missing is installed if `installs`, left
/// out with a word if it was not named, and an error if it was.
fn choose(names: &[String], installs: bool) -> Result<Vec<Program>> {
    let mut chosen = named(names)?;
    let needed = |programs: &[Program]| programs.iter().map(Program::needed).collect::<Vec<_>>();
    if installs {
        packages::install(&packages::missing(&needed(&chosen)))?;
    }
    let missing = packages::missing(&needed(&chosen));
    if missing.is_empty() {
        return Ok(chosen);
    }
    let how = packages::how_to_install(&missing);
    if names.is_empty() {
        chosen.retain(|program| packages::locate(program.executable).is_some());
        eprintln!("some programs are left out, {how}");
        Ok(chosen)
    } else {
        Err(Error::new("find", "programs", how))
    }
}

fn named(names: &[String]) -> Result<Vec<Program>> {
    if names.is_empty() {
        return Ok(PROGRAMS.iter().filter(|p| p.is_default).copied().collect());
    }
    if names == ["all"] {
        return Ok(PROGRAMS.to_vec());
    }
    let find = |name: &String| {
        let found = PROGRAMS.iter().find(|p| p.name == name).copied();
        found.ok_or_else(|| {
            let known: Vec<&str> = PROGRAMS.iter().map(|p| p.name).collect();
            let known = format!("known are: all, {}", known.join(", "));
            Error::new("find", format!("program {name}"), known)
        })
    };
    names.iter().map(find).collect()
}

impl Program {
    fn needed(&self) -> Needed {
        Needed {
            executable: self.executable,
            packages: self.packages,
        }
    }

    /// When its launch is over.
    pub fn ends(&self) -> Ends {
        Ends::of(self.window)
    }

    /// Makes the content.
    pub fn prepare(&self, places: &Places, seed: u64) -> Result<Prepared> {
        let directory = places.disk.join(self.name);
        fs::create_dir_all(&directory).context("make", directory.display())?;
        let site = Site {
            directory: &directory,
            seed,
        };
        let command = self.content.prepare(&site)?;
        let directory = match self.content {
            Content::Made(_) => directory,
            Content::Given(_) => current_dir()?,
        };
        Ok(Prepared {
            name: self.name.to_owned(),
            packages: self.packages,
            window: self.window,
            environment: self.environment,
            command,
            directory,
        })
    }
}

impl Ends {
    /// Of a program with this window, or without one.
    pub fn of(window: Option<Window>) -> Self {
        match window {
            Some(_) => Self::Picture,
            None => Self::Exit,
        }
    }
}

impl Window {
    /// The one whose title contains this. What it is made from is never given back: a run makes it once.
    fn titled(title: String) -> Self {
        Self {
            class: "",
            ready_title: title.leak(),
        }
    }
}

impl Prepared {
    /// What the record says of it.
    pub fn facts(&self) -> ProgramFacts {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        ProgramFacts {
            name: self.name.clone(),
            ends: Ends::of(self.window),
            command: self.command.iter().map(text).collect(),
            packages: packages::versions(self.packages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_ten_are_the_default() {
        let names: HashSet<&str> = PROGRAMS.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), PROGRAMS.len());
        assert_eq!(named(&[]).unwrap().len(), 10);
        assert_eq!(named(&["all".into()]).unwrap().len(), PROGRAMS.len());
        let exiting = PROGRAMS.iter().filter(|p| p.window.is_none()).count();
        assert!(exiting >= 15, "Figure 8 launches 15 at once: {exiting}");
    }

    #[test]
    fn an_unknown_program_is_an_error_that_lists_the_known() {
        let error = named(&["gti".into()]).unwrap_err().to_string();
        assert!(error.contains("gti") && error.contains("git"), "{error}");
    }
}
