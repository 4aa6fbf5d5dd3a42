//! The paths that processes open during a switch, from fanotify.
//!
//! Tracepoints name files by inode. A file that is mapped or held open has its path in /proc; one that is opened, read
//! and closed within the switch has it only here. Both to begin and to take an opening asks file systems, and may hang.

use prepage_kernel::fanotify::Fanotify;
use prepage_kernel::mountinfo::{self, Mount};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Most file systems watched.
const FILE_SYSTEMS_MAX: usize = 16;

/// Most openings taken of one switch.
const OPENINGS_MAX: usize = 4096;

/// A process opened a file.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Process id (thread group).
    pub pid: i32,
    /// Its device, as stat gives it.
    pub dev: u64,
    /// Its inode number.
    pub inode: u64,
    /// The mount that it was opened by, where the kernel says.
    pub mount_id: Option<u64>,
    /// Its path.
    pub path: PathBuf,
}

/// A watch on all file systems of block devices, and on overlays.
#[derive(Debug)]
pub struct Opens(Fanotify);

impl Opens {
    /// Begins to watch. `None` where fanotify is not to be had: such files then stay with demand paging.
    pub fn start() -> Option<Self> {
        let watch = Fanotify::new().ok()?;
        let mounts = mountinfo::read().ok()?;
        // A process serves FUSE: to open a file once more for an event may wait for it.
        let is_disk = |m: &&Mount| m.source.starts_with("/dev") && !m.fs_type.starts_with("fuse");
        let disks = mounts.iter().filter(is_disk);
        // A machine may have as many overlays as containers.
        let overlays = mounts.iter().filter(|m| m.fs_type == "overlay");
        let mut devices = BTreeSet::new();
        for mount in disks.chain(overlays) {
            if devices.len() < FILE_SYSTEMS_MAX && devices.insert(mount.dev) {
                // A file system without an id cannot be watched.
                let _ = watch.mark_filesystem(&mount.mount_point);
            }
        }
        Some(Self(watch))
    }

    /// What was opened since the watch began, and nobody has taken.
    pub fn seen(&mut self) -> Vec<Opening> {
        let mut seen = Vec::new();
        self.drain(OPENINGS_MAX, |opening| seen.push(opening));
        seen
    }

    /// Takes about so many of the openings that nobody has taken, in order. Returns how often some were lost before the
    /// last of these, since the kernel's queue was full.
    pub fn drain(&mut self, openings_max: usize, mut visit: impl FnMut(Opening)) -> u64 {
        let drained = self.0.drain(openings_max, |opened| {
            visit(Opening {
                pid: opened.pid,
                dev: opened.stat.dev,
                inode: opened.stat.inode,
                mount_id: opened.mount_id,
                path: opened.path,
            });
        });
        drained.overflows as u64
    }
}
