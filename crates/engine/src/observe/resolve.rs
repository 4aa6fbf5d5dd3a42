//! From inodes, as tracepoints name files, to versions of files.

use crate::members::Member;
use crate::observe::files::InodeKey;
use prepage_core::identity::FileId;
use prepage_kernel::open::{FileKind, FileStat, process_root, stat_in_root};
use prepage_kernel::{fds, maps};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// Most paths remembered for one application.
const PATHS_MAX: usize = 4096;

/// Longest path remembered, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// The paths of the inodes that one application accessed.
#[derive(Debug, Default)]
pub struct Paths {
    by_inode: HashMap<InodeKey, Arc<str>>,
}

impl Paths {
    /// Remembers the file that an inode was.
    pub fn remember(&mut self, file: &FileId) {
        self.insert((file.device, file.inode), &file.path);
    }

    /// The path that an inode was last known by.
    pub fn get(&self, key: &InodeKey) -> Option<&Arc<str>> {
        self.by_inode.get(key)
    }

    /// Forgets an inode: its path names another file now.
    pub fn forget(&mut self, key: &InodeKey) {
        self.by_inode.remove(key);
    }

    /// Looks for the paths of inodes among what the processes map and hold open.
    pub fn find(&mut self, members: &[Arc<Member>], mapped: bool, opened: bool) {
        for member in members {
            let pid = member.instance.pid;
            if mapped {
                for mapping in maps::read(pid).unwrap_or_default() {
                    if let (Some(path), false) = (&mapping.path, mapping.deleted) {
                        self.insert_path((mapping.dev, mapping.inode), path);
                    }
                }
            }
            if opened {
                for file in fds::open_files(pid).unwrap_or_default() {
                    let dev = (rustix::fs::major(file.dev), rustix::fs::minor(file.dev));
                    self.insert_path((dev, file.inode), &file.path);
                }
            }
        }
    }

    fn insert_path(&mut self, key: InodeKey, path: &Path) {
        // A path that is not text cannot be shipped or shown; its pages stay with demand paging.
        let path = path.to_str().filter(|p| p.starts_with('/'));
        if let (Some(path), false) = (path, self.by_inode.contains_key(&key)) {
            self.insert(key, path);
        }
    }

    fn insert(&mut self, key: InodeKey, path: &str) {
        if self.by_inode.len() < PATHS_MAX && path.len() <= PATH_BYTES_MAX {
            self.by_inode.insert(key, path.into());
        }
    }
}

/// The present version of the file that `path` names for this process, if it is a regular file.
pub fn present_version(member: &Member, key: InodeKey, path: &Arc<str>) -> Option<FileId> {
    let root = process_root(member.instance.pid).ok()?;
    let stat = stat_in_root(root.as_fd(), Path::new(&**path)).ok()?;
    let is_it = stat.kind == FileKind::Regular && stat.inode == key.1;
    is_it.then(|| version_of(path, key, &stat))
}

fn version_of(path: &Arc<str>, key: InodeKey, stat: &FileStat) -> FileId {
    FileId {
        path: Arc::clone(path),
        device: key.0,
        inode: key.1,
        size: stat.size_bytes,
        mtime_ns: i64::try_from(stat.mtime_ns).unwrap_or(i64::MAX),
    }
}
