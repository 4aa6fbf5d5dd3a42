//! Debian's packages: whether a program is there, its package's version, and how what is missing is installed.

use crate::error::{Context, Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where measured programs are looked for, and found by those that launch them.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/games";

/// A program that is needed, and the packages that bring it.
#[derive(Clone, Copy, Debug)]
pub struct Needed {
    /// The executable.
    pub executable: &'static str,
    /// The packages.
    pub packages: &'static [&'static str],
}

/// Where an executable is, in [`PATH`].
pub fn locate(executable: &str) -> Option<PathBuf> {
    locate_in(PATH, executable)
}

fn locate_in(path: &str, executable: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|directory| directory.join(executable))
        .find(|path| path.is_file())
}

/// The environment in which somebody's own command is found: [`PATH`], and then the one with which this program was called.
/// It is never given back.
///
/// # Errors
/// Where there is no such program.
pub fn environment_of_own(program: &str) -> Result<&'static [(&'static str, &'static str)]> {
    let callers = std::env::var("PATH").unwrap_or_default();
    let path = [PATH, &callers].join(":");
    let found = match program.contains('/') {
        true => Some(PathBuf::from(program)).filter(|path| path.is_file()),
        false => locate_in(&path, program),
    };
    if found.is_none() {
        let cause = format!("it is neither in {PATH} nor in your PATH, and no path of a file");
        return Err(Error::new("find", program, cause));
    }
    Ok(vec![("PATH", &*path.leak())].leak())
}

/// The packages of the programs that are not there.
pub fn missing(needed: &[Needed]) -> Vec<&'static str> {
    let absent = needed.iter().filter(|n| locate(n.executable).is_none());
    absent.flat_map(|n| n.packages.iter().copied()).collect()
}

/// What a person is told of packages that are missing.
pub fn how_to_install(missing: &[&str]) -> String {
    format!(
        "not installed: apt-get install --no-install-recommends {} (or --install)",
        missing.join(" ")
    )
}

/// Sees to it that programs are there: installs what is missing, or says how that is done.
///
/// # Errors
/// Where one is missing and not to be installed, or cannot be.
pub fn require(what: &str, needed: &[Needed], installs: bool) -> Result<()> {
    if installs {
        install(&missing(needed))?;
    }
    match &missing(needed)[..] {
        [] => Ok(()),
        missing => Err(Error::new("find", what, how_to_install(missing))),
    }
}

/// Installs packages by apt-get. Nothing is run where there are none.
///
/// # Errors
/// Where apt-get cannot be run or fails.
pub fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("installing {} ...", packages.join(" "));
    let apt = |arguments: &[&str]| {
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status();
        match status.context("run", "apt-get")? {
            status if status.success() => Ok(()),
            status => Err(Error::new("run", "apt-get", status)),
        }
    };
    apt(&["update", "-qq"])?;
    let install = ["install", "-y", "-qq", "--no-install-recommends"];
    apt(&[&install[..], packages].concat())
}

/// The installed version of a package; `None` if it is not installed.
pub fn version(package: &str) -> Option<String> {
    let query = ["-W", "-f=${Version}", package];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    (!version.is_empty()).then_some(version)
}

/// These packages with their versions, those that are installed.
pub fn versions(packages: &[&str]) -> BTreeMap<String, String> {
    let version = |package: &&str| Some((package.to_string(), version(package)?));
    packages.iter().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_packages() {
        let absent = Needed {
            executable: "no such program",
            packages: &["some-package"],
        };
        let there = Needed {
            executable: "sh",
            packages: &["dash"],
        };
        let missing = missing(&[absent, there]);
        assert_eq!(missing, ["some-package"]);
        assert!(how_to_install(&missing).contains("recommends some-package"));
    }
}
