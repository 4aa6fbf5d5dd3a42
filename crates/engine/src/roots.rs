//! The root directories in which an application's files are to be found.

use crate::members::{Member, Rights};
use crate::observe::files::InodeKey;
use crate::observe::resolve::version_of;
use prepage_core::identity::FileId;
use prepage_kernel::credentials::FsUser;
use prepage_kernel::open::{self, FileKind, FileStat, open_in_root, process_root, stat_in_root};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Most roots of one application.
const ROOTS_MAX: usize = 4;

/// Whose root directories are an application's: its oldest process first, and those with the same rights as that one.
///
/// The oldest is outside of the sandbox that it makes (Flatpak's bwrap); a browser's younger ones may be in an empty one.
pub fn processes(members: &[Arc<Member>]) -> Vec<Arc<Member>> {
    let mut members = members.to_vec();
    members.sort_by_key(|member| (member.instance.start_ticks, member.instance.pid));
    if let Some(oldest) = members.first().cloned() {
        members.retain(|member| member.rights == oldest.rights);
    }
    members
}

/// Root directories of an application's processes, each once, in their processes' order.
#[derive(Debug)]
pub struct Roots {
    directories: Vec<(i32, OwnedFd)>,
    /// Whose rights files are looked up with, where those of the thread are others.
    rights: Option<Rights>,
}

/// What became of a file that was learned.
#[derive(Debug)]
pub enum Found {
    /// It is as it was.
    Same(OwnedFd),
    /// It is gone, or another version.
    Stale,
    /// Not to be read by this user, or busy: that may change.
    Denied,
}

impl Roots {
    /// Those of these processes. One that has ended has none.
    pub fn of(processes: &[Arc<Member>]) -> Self {
        let (mut roots, mut seen) = (Vec::new(), BTreeSet::new());
        for member in processes {
            let pid = member.instance.pid;
            let root = process_root(pid).ok();
            // The pid of one that has ended may be another's by now.
            let Some(root) = root.filter(|_| member.process.is_alive()) else {
                continue;
            };
            // Two mount namespaces may have one directory for their root, and different things mounted below it.
            let mount = open::mount_id(root.as_fd(), Path::new(""));
            let directory = open::fstat(root.as_fd()).map(|stat| (stat.dev, stat.inode));
            if seen.insert((mount, directory.ok())) {
                roots.push((pid, root));
            }
            if roots.len() == ROOTS_MAX {
                break;
            }
        }
        Self {
            directories: roots,
            rights: None,
        }
    }

    /// The same, in which files are looked up with these rights.
    pub fn seen_by(self, rights: &Rights) -> Self {
        Self {
            rights: Some(rights.clone()),
            ..self
        }
    }

    /// Processes that have them, one for each.
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.directories.iter().map(|(pid, _)| *pid)
    }

    fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.directories.iter().map(|(_, root)| root.as_fd())
    }

    /// Enters the rights, while what is returned lives; `None` where the kernel refuses.
    fn enter(&self) -> Option<Option<FsUser>> {
        self.rights.as_ref().map(Rights::enter).transpose().ok()
    }

    /// The present version of the file that `path` names in the first of them that has it, if it is a regular file.
    pub fn present_version(&self, key: InodeKey, path: &Arc<str>) -> Option<FileId> {
        let _user = self.enter()?;
        let mut stats = self
            .directories()
            .filter_map(|root| stat_in_root(root, Path::new(&**path)).ok());
        let is_it = |stat: &FileStat| stat.kind == FileKind::Regular && stat.inode == key.1;
        stats
            .find(is_it)
            .map(|stat| version_of(Arc::clone(path), key.0, &stat))
    }

    /// As [`open_version`], in the first of them that has it. Where there is none, nothing is known of the file.
    pub fn open(&self, file: &FileId) -> Found {
        let user = self.enter().filter(|_| !self.directories.is_empty());
        let Some(_user) = user else {
            return Found::Denied;
        };
        let mut found = Found::Stale;
        for root in self.directories() {
            match open_version(root, file) {
                Found::Same(fd) => return Found::Same(fd),
                Found::Denied => found = Found::Denied,
                Found::Stale => {}
            }
        }
        found
    }
}

/// Opens a file below this root directory in the version that was learned, with the rights of the calling thread.
pub fn open_version(root: BorrowedFd<'_>, file: &FileId) -> Found {
    match open_in_root(root, Path::new(&*file.path)) {
        Ok((fd, stat)) if is_version(file, &stat) => Found::Same(fd),
        Err(error) if !error.is_no_file() => Found::Denied,
        _ => Found::Stale,
    }
}

/// Whether an open file is the version that was learned. The device number is not compared: on btrfs and overlay,
/// stat's differs from the tracepoints'.
fn is_version(file: &FileId, stat: &FileStat) -> bool {
    (file.inode, file.size, i128::from(file.mtime_ns))
        == (stat.inode, stat.size_bytes, stat.mtime_ns)
}
