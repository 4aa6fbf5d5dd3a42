//! What applications, process instances and files are known by.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What kind of thing names an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppKind {
    /// A desktop entry's id, as in a systemd scope `app-ID-N.scope`.
    Desktop,
    /// A systemd unit.
    Unit,
    /// A container.
    Container,
    /// An executable's path.
    Executable,
    /// A name given by the user.
    Named,
}

impl AppKind {
    /// Whether it is named as its systemd unit is: others may run in that one's control group.
    pub const fn is_of_unit(self) -> bool {
        matches!(self, Self::Desktop | Self::Unit)
    }
}

/// An application: stable across restarts of it and of the service, the same for launch and switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AppId {
    /// What kind of thing the name is.
    pub kind: AppKind,
    /// Its name.
    pub name: Arc<str>,
    /// User id of its owner.
    pub owner: u32,
}

/// An application's id, `executable:/usr/bin/gimp@1000`, on one line: whoever names a program chooses what its path holds, and
/// this goes to logs and terminals.
impl std::fmt::Display for AppId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            AppKind::Desktop => "desktop",
            AppKind::Unit => "unit",
            AppKind::Container => "container",
            AppKind::Executable => "executable",
            AppKind::Named => "named",
        };
        write!(f, "{kind}:{}@{}", printable(&self.name), self.owner)
    }
}

/// A text with its control characters as Rust writes them, `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.into(),
    };
    text.chars().map(escaped).collect::<String>().into()
}

/// Who owns most, by the owners of all that there is, of several the highest user id: who gives way where a table that all users
/// share is full, so that nobody loses what is theirs by what others do.
pub fn owner_of_most(owners: impl IntoIterator<Item = u32>) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for owner in owners {
        *counts.entry(owner).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|&(owner, count)| (count, owner));
    most.map(|(owner, _)| owner)
}

/// A process instance: what a pid meant while one program ran in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// Process id.
    pub pid: i32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Changes with every exec: an address space belongs to one program.
    pub exec: u64,
}

/// A version of a file. Two equal ids name the same content, as far as the file system tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// Absolute path, in the application's root directory.
    pub path: Arc<str>,
    /// Major and minor number of the file system's device, as the kernel's tracepoints and `/proc/PID/maps` give
    /// them. Not kept across boots in its meaning, hence not compared by [`FileId::is_version_of`].
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Size, in bytes.
    pub size: u64,
    /// Time of last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

impl FileId {
    /// Whether both name the same content of the same path: what a profile from before a reboot is checked by.
    pub fn is_version_of(&self, other: &Self) -> bool {
        (&self.path, self.inode, self.size, self.mtime_ns)
            == (&other.path, other.inode, other.size, other.mtime_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_gives_way() {
        let of = |owners: &[u32]| owner_of_most(owners.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[0, 1001, 1000, 1001]), Some(1001));
        assert_eq!(of(&[1001, 0, 0, 1001]), Some(1001));
    }
}
