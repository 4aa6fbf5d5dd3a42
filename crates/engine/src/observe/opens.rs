//! The paths that processes open during a switch, from fanotify.
//!
//! Tracepoints name files by inode. A file that is mapped or held open has its path in /proc; one that is opened, read
//! and closed within the switch has it only here.

use crate::observe::files::InodeKey;
use prepage_kernel::fanotify::Fanotify;
use prepage_kernel::mountinfo;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Most file systems watched.
const FILE_SYSTEMS_MAX: usize = 16;

/// Most openings kept for the switches under way.
const OPENINGS_MAX: usize = 4096;

/// A process opened a file.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Process id (thread group).
    pub pid: i32,
    /// The file's device and inode, as stat gives them.
    pub key: InodeKey,
    /// Its path.
    pub path: PathBuf,
}

/// A watch on all file systems of block devices.
#[derive(Debug)]
pub struct Opens {
    watch: Fanotify,
    seen: Vec<Opening>,
}

impl Opens {
    /// Begins to watch. `None` where fanotify is not to be had: such files then stay with demand paging.
    pub fn start() -> Option<Self> {
        let watch = Fanotify::new().ok()?;
        let mut devices = BTreeSet::new();
        for mount in mountinfo::read().ok()? {
            let is_disk = mount.source.to_string_lossy().starts_with("/dev/");
            if is_disk && devices.len() < FILE_SYSTEMS_MAX && devices.insert(mount.dev) {
                // A file system without an id cannot be watched.
                let _ = watch.mark_filesystem(&mount.mount_point);
            }
        }
        Some(Self {
            watch,
            seen: Vec::new(),
        })
    }

    /// What was opened since the watch began.
    pub fn seen(&mut self) -> &[Opening] {
        let room = OPENINGS_MAX.saturating_sub(self.seen.len());
        let seen = &mut self.seen;
        // What cannot be read now is not resolved.
        let _ = self.watch.drain(room, |opened| {
            let dev = opened.stat.dev;
            seen.push(Opening {
                pid: opened.pid,
                key: (
                    (rustix::fs::major(dev), rustix::fs::minor(dev)),
                    opened.stat.inode,
                ),
                path: opened.path,
            });
        });
        &self.seen
    }
}
