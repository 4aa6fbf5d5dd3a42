//! Proactive reclaim: the kernel is asked to free memory while nobody waits for it. What goes, it chooses as ever, by its LRU
//! lists and swappiness. That counts as nobody's stall in pressure stall information (5.19+).

use crate::cgroup::{Cgroup, Hierarchy, Version};
use crate::credentials::FsUser;
use crate::error::{Error, Result};
use crate::{sched, signals, text};
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Reclaimed at a time: some milliseconds.
const STEP_BYTES: u64 = 1 << 20;

/// What memory is reclaimed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// A cgroup, with those below it.
    Cgroup(Cgroup),
    /// The whole machine: by the root of v2, where memory is controlled there, else by its NUMA nodes (6.17+).
    Machine {
        /// Where a number of bytes is written: `memory.reclaim`, or the nodes' `reclaim`.
        files: Vec<PathBuf>,
    },
}

impl Domain {
    /// The whole machine. `None` where this kernel does not offer it.
    pub fn machine(hierarchies: &[Hierarchy]) -> Option<Domain> {
        let root = hierarchies
            .iter()
            .find(|hierarchy| hierarchy.version == Version::V2)
            .map(|hierarchy| hierarchy.mount_point.join("memory.reclaim"));
        let files: Vec<_> = match root.filter(|file| file.exists()) {
            Some(root) => vec![root],
            None => node_files(Path::new("/sys/devices/system/node")),
        };
        (!files.is_empty()).then_some(Domain::Machine { files })
    }

    /// Reclaims at least so many bytes, or as many as can be had, step by step, as long as `goes_on` says so, which is asked
    /// before each step, or in v1 every half millisecond. Waits until it is done. Returns the bytes reclaimed; in v1 less what others
    /// charged meanwhile.
    ///
    /// # Errors
    /// Where the kernel has no such file (memory.reclaim came with 5.19), or one may not write to it.
    pub fn reclaim(&self, bytes: u64, goes_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        match self {
            Domain::Cgroup(group) if group.version == Version::V1 => {
                empty_in_part(group, bytes, goes_on)
            }
            Domain::Cgroup(group) => {
                reclaim_by(&[group.directory.join("memory.reclaim")], bytes, goes_on)
            }
            Domain::Machine { files } => reclaim_by(files, bytes, goes_on),
        }
    }
}

fn node_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let nodes = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("node"));
    let mut files: Vec<PathBuf> = nodes.map(|node| node.path().join("reclaim")).collect();
    files.retain(|file| file.exists());
    files.sort();
    files
}

/// Writes numbers of bytes to the files in turns.
fn reclaim_by(files: &[PathBuf], bytes: u64, goes_on: &mut dyn FnMut() -> bool) -> Result<u64> {
    let mut reclaimed = 0;
    let mut turns: VecDeque<&PathBuf> = files.iter().collect();
    while reclaimed < bytes && goes_on() {
        let Some(file) = turns.pop_front() else { break };
        match write_as_owner(file, &STEP_BYTES.to_string()) {
            Ok(()) => {
                reclaimed += STEP_BYTES;
                turns.push_back(file);
            }
            // Less than that could be had there.
            Err(error) if error.errno() == Some(libc::EAGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(reclaimed)
}

/// With the rights of the file's owner: where a part of the hierarchy was handed to a user, the files there are the user's, and
/// root's identity alone opens them no more than anybody's.
fn write_as_owner(file: &Path, text: &str) -> Result<()> {
    let failed = |error| Error::new("stat", file.to_string_lossy(), error);
    let owner = rustix::fs::stat(file).map_err(failed)?;
    let _rights = FsUser::enter(owner.st_uid, owner.st_gid, None)?;
    text::write_text(file, text)
}

/// From one look at what is used to the next, in microseconds.
const LOOK_US: u64 = 500;

/// Version 1 has no measure: memory.force_empty reclaims, 32 pages at a time, until nothing is left, or a signal comes.
fn empty_in_part(group: &Cgroup, bytes: u64, goes_on: &mut dyn FnMut() -> bool) -> Result<u64> {
    let before = group.memory_usage_bytes()?;
    let enough = before.saturating_sub(bytes);
    if !goes_on() {
        return Ok(0);
    }
    signals::interrupts(signals::KICK)?;
    let file = group.directory.join("memory.force_empty");
    let thread = std::thread::spawn(move || empty(&file));
    let mut stops = false;
    while !thread.is_finished() {
        stops |= group.memory_usage_bytes().is_ok_and(|used| used <= enough) || !goes_on();
        if stops {
            // Again and again: one that comes before the call has begun is lost.
            signals::send_to_thread(&thread, signals::KICK);
        }
        sched::sleep_us(LOOK_US);
    }
    thread.join().unwrap_or(Ok(()))?;
    Ok(before.saturating_sub(group.memory_usage_bytes()?))
}

/// Empties a cgroup until a signal comes.
fn empty(file: &Path) -> Result<()> {
    let subject = || file.to_string_lossy();
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, flags, Mode::empty());
    let fd = opened.map_err(|error| Error::new("open", subject(), error))?;
    signals::unblock(signals::KICK)?;
    match rustix::io::write(&fd, b"0") {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::new("write", subject(), error)),
    }
}
