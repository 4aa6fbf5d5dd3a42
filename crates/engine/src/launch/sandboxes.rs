//! Processes of a launch that have other things mounted than the one that it began with, as what Flatpak, snap or Firejail runs.
//!
//! A sandbox is made of directories of the machine's own file systems, mounted elsewhere: `/usr/lib/x.so` in a Flatpak is
//! `/var/lib/flatpak/runtime/.../files/lib/x.so` to the process that makes it. The next launch is helped before its sandbox is there,
//! so files are known by their paths outside.

use crate::launch::track::PROCESSES_MAX;
use prepage_kernel::mountinfo::{self, Mount, ProcessMounts, same_file_here};
use prepage_kernel::process::mount_namespace;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// Most sandboxes of one launch: a browser makes one for each page.
const SANDBOXES_MAX: usize = 16;

/// The mount namespace of a process, by its number.
type Namespace = u64;

/// The sandboxes of one launch.
#[derive(Debug)]
pub struct Sandboxes {
    /// Where the launch began; `None` where that is not to be read, so that nothing counts as a sandbox.
    outside: Option<Namespace>,
    /// What is mounted there, until the first sandbox is seen: few launches have one.
    unread: Option<ProcessMounts>,
    mounted_outside: Vec<Mount>,
    by_process: HashMap<i32, Namespace>,
    mounted: HashMap<Namespace, Vec<Mount>>,
}

impl Sandboxes {
    /// Those of a launch that begins with this process.
    pub fn of(root_pid: i32) -> Self {
        Self {
            outside: mount_namespace(root_pid).ok(),
            unread: ProcessMounts::open(root_pid).ok(),
            mounted_outside: Vec::new(),
            by_process: HashMap::new(),
            mounted: HashMap::new(),
        }
    }

    /// Looks where a process is that may have entered a sandbox. Returns what is mounted there, if it is in one: all is in its
    /// place only when the application is executed. Of a process that has ended what was known stays.
    pub fn look_at(&mut self, pid: i32) -> Option<&[Mount]> {
        let outside = self.outside?;
        let namespace = mount_namespace(pid).ok()?;
        if self.by_process.len() < PROCESSES_MAX || self.by_process.contains_key(&pid) {
            self.by_process.insert(pid, namespace);
        }
        let is_kept = self.mounted.len() < SANDBOXES_MAX || self.mounted.contains_key(&namespace);
        if namespace == outside || !is_kept {
            return None;
        }
        let mounted = mountinfo::read_of(pid).ok()?;
        if let Some(unread) = self.unread.take() {
            self.mounted_outside = unread.read().unwrap_or_default();
        }
        self.mounted.insert(namespace, mounted);
        self.mounted.get(&namespace).map(Vec::as_slice)
    }

    /// Whether a process was never looked at.
    pub fn is_new(&self, pid: i32) -> bool {
        !self.by_process.contains_key(&pid)
    }

    /// The sandbox that a process is in, as far as was looked.
    pub fn of_process(&self, pid: i32) -> Option<Sandbox<'_>> {
        let mounted = self.mounted.get(self.by_process.get(&pid)?)?;
        Some(self.sandbox(mounted))
    }

    /// What the launch's first process calls the file of this path, as a process of the launch means it: the same, unless that is in
    /// a sandbox, and `None` as of [`Sandbox::outside`].
    pub fn outside<'a>(&self, pid: i32, path: &'a str) -> Option<Cow<'a, str>> {
        match self.of_process(pid) {
            Some(sandbox) => sandbox.outside(Path::new(path)).map(Cow::from),
            None => Some(path.into()),
        }
    }

    /// The sandbox that this mount is in: its process may have ended.
    pub fn of_mount(&self, id: u64) -> Option<Sandbox<'_>> {
        let mut mounted = self.mounted.values();
        let mounted = mounted.find(|mounted| mounted.iter().any(|mount| mount.id == id))?;
        Some(self.sandbox(mounted))
    }

    fn sandbox<'a>(&'a self, mounted: &'a [Mount]) -> Sandbox<'a> {
        Sandbox {
            mounted,
            mounted_outside: &self.mounted_outside,
        }
    }
}

/// What is mounted in a sandbox, and where the launch began.
#[derive(Clone, Copy, Debug)]
pub struct Sandbox<'a> {
    mounted: &'a [Mount],
    mounted_outside: &'a [Mount],
}

impl Sandbox<'_> {
    /// What the launch's first process calls the file of this path; `None` where the sandbox has it from elsewhere (a tmpfs, an
    /// overlay), or as no text.
    pub fn outside(&self, path: &Path) -> Option<String> {
        let found = same_file_here(path, self.mounted, self.mounted_outside)?;
        let found = found.into_os_string().into_string().ok()?;
        Some(by_active_deployment(found))
    }
}

/// Digits of a commit of OSTree's.
const COMMIT_DIGITS: usize = 64;

/// A path in Flatpak's deployment of a commit, `.../ID/ARCH/BRANCH/COMMIT/files/...`, by the link that leads to the one in use: an
/// update is another commit, whose unchanged files are links to the same inodes.
fn by_active_deployment(path: String) -> String {
    let is_commit = |part: &str| {
        part.len() == COMMIT_DIGITS && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts: Vec<&str> = path.split('/').collect();
    let deployment = parts
        .windows(2)
        .position(|pair| is_commit(pair[0]) && pair[1] == "files");
    match deployment {
        Some(at) => {
            parts[at] = "active";
            parts.join("/")
        }
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::by_active_deployment;

    #[test]
    fn an_update_leaves_the_names_of_a_flatpaks_files() {
        let of =
            |commit: &str| format!("/var/lib/flatpak/app/org.x.Y/x86_64/stable/{commit}/files");
        let commit = "0123456789abcdef".repeat(4);
        for (path, name) in [
            (of(&commit) + "/bin/x", of("active") + "/bin/x"),
            (of(&commit), of("active")),
            (of(&commit[1..]), of(&commit[1..])),
            (of(&commit.replace('0', "g")), of(&commit.replace('0', "g"))),
            (format!("/{commit}/file"), format!("/{commit}/file")),
            ("/usr/lib/x.so".into(), "/usr/lib/x.so".into()),
        ] {
            assert_eq!(by_active_deployment(path), name);
        }
    }
}
