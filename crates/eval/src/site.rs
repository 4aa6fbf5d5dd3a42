//! Where a measured program's content is made: a directory of its own, filled from the seed.

use crate::error::{Context, Error, Result};
use crate::packages::PATH;
use crate::random::Random;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where a program's content is made.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The program's own directory, which is there.
    pub directory: &'a Path,
    /// The seed.
    pub seed: u64,
}

impl Site<'_> {
    /// The stream of the program's content: another one in each directory.
    pub fn random(&self) -> Random {
        let name = self.directory.file_name().unwrap_or_default();
        Random::stream(self.seed, &name.to_string_lossy())
    }

    /// Writes a file of the directory, with the directories above it.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = self.directory.join(name);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).context("make", above.display())?;
        }
        fs::write(&path, contents).context("write", path.display())
    }

    /// A file of the directory, as a word of a command line.
    pub fn path(&self, name: &str) -> OsString {
        self.directory.join(name).into()
    }

    /// Runs a command that makes content, with its input from a file of the directory.
    pub fn make(&self, command: &[&str], input: &str) -> Result<()> {
        let path = self.directory.join(input);
        let input = fs::File::open(&path).context("open", path.display())?;
        let output = Command::new(command[0])
            .args(&command[1..])
            .current_dir(self.directory)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", self.directory)
            .stdin(input)
            .stdout(Stdio::null())
            .output()
            .context("run", command.join(" "))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::new("run", command.join(" "), said))
    }
}

/// Words of a command line.
pub fn words(command: &[&str]) -> Vec<OsString> {
    command.iter().map(OsString::from).collect()
}
