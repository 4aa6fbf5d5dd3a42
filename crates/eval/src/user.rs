//! Whom somebody's own command runs as: some applications refuse to be run by root, who measures them.

use crate::error::{Context, Error, Result};
use std::ffi::OsString;
use std::os::unix::fs::lchown;
use std::path::Path;
use std::process::Command;

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    gid: u32,
}

impl User {
    /// The user of this name, as id(1) finds it, with its own group.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(name: &str) -> Result<Self> {
        Ok(Self {
            uid: ask_id("-u", name)?,
            gid: ask_id("-g", name)?,
        })
    }

    /// Gives it a directory, with all that is in it.
    ///
    /// # Errors
    /// Where root may not.
    pub fn own(self, directory: &Path) -> Result<()> {
        lchown(directory, Some(self.uid), Some(self.gid)).context("give", directory.display())?;
        if directory.is_symlink() || !directory.is_dir() {
            return Ok(());
        }
        let entries = directory.read_dir().context("list", directory.display())?;
        for entry in entries {
            self.own(&entry.context("list", directory.display())?.path())?;
        }
        Ok(())
    }
}

/// What becomes `command`, run by this user with all its groups, by setpriv(1) of util-linux in the same process; by whoever runs it
/// where there is nobody named.
///
/// # Errors
/// Where there is no such user.
pub fn command_of(user: Option<&str>, command: &[String]) -> Result<Vec<OsString>> {
    let mut words = Vec::new();
    if let Some(name) = user {
        let User { uid, gid } = User::find(name)?;
        words.extend(["setpriv".into(), format!("--reuid={uid}").into()]);
        words.extend([format!("--regid={gid}").into(), "--init-groups".into()]);
        words.push("--".into());
    }
    words.extend(command.iter().map(OsString::from));
    Ok(words)
}

fn ask_id(what: &str, name: &str) -> Result<u32> {
    let output = Command::new("id").args([what, "--", name]).output();
    let output = output.context("run", "id")?;
    let said = match output.status.success() {
        true => &output.stdout,
        false => &output.stderr,
    };
    let said = String::from_utf8_lossy(said);
    let said = said.trim();
    said.parse()
        .map_err(|_| Error::new("find", format!("the user {name}"), said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_user_is_found_by_name_and_told_where_there_is_none() {
        let words = ["app".to_owned(), "-x".to_owned()];
        let by_root = command_of(Some("root"), &words).unwrap();
        let setpriv = "setpriv --reuid=0 --regid=0 --init-groups -- app -x";
        assert_eq!(by_root.join(OsStr::new(" ")), setpriv);
        assert_eq!(command_of(None, &words).unwrap(), ["app", "-x"]);
        let error = User::find("no-such-user").unwrap_err().to_string();
        assert!(error.contains("find the user no-such-user"), "{error}");
    }
}
