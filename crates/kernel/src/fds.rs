//! /proc/PID/fd: the regular files a process holds open.

use crate::error::{Error, Result};
use crate::open::mount_id_in;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use std::path::PathBuf;

/// A regular file (or memfd) that a process holds open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The descriptor's number in that process.
    pub fd: i32,
    /// Its path now, as the kernel sees it (` (deleted)` appended where it was removed).
    pub path: PathBuf,
    /// Device, as stat gives it (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
    /// The mount that it was opened by; `None` where the kernel does not say (before 5.8).
    pub mount_id: Option<u64>,
}

/// At most this many descriptors of one process are looked at.
pub const OPEN_FILES_MAX: usize = 65_536;

/// Bytes of the paths of one process's open files, after which no more are looked at: of as many as there may be, with 256 bytes
/// each. A path may have 4,096.
const PATHS_BYTES_MAX: usize = 16 << 20;

/// The regular files that a process holds open; needs the right to ptrace-read it. Descriptors that are closed
/// meanwhile are left out, as are those beyond the bounds, and nothing is opened.
pub fn open_files(pid: i32) -> Result<Vec<OpenFile>> {
    let directory = format!("/proc/{pid}/fd");
    let failed = |error| Error::new("read directory", directory.as_str(), error);
    let (mut files, mut paths_bytes) = (Vec::new(), 0);
    for entry in std::fs::read_dir(&directory)
        .map_err(failed)?
        .take(OPEN_FILES_MAX)
    {
        let entry = entry.map_err(failed)?;
        let Some(fd) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(path) = std::fs::read_link(entry.path()) else {
            continue;
        };
        // Sockets and pipes read as "socket:[1]". stat through the link asks the inode, and opens nothing.
        if !path.is_absolute() {
            continue;
        }
        // No server is asked.
        let (flags, mask) = (
            AtFlags::STATX_DONT_SYNC,
            StatxFlags::BASIC_STATS | StatxFlags::MNT_ID,
        );
        let Ok(stat) = rustix::fs::statx(CWD, entry.path(), flags, mask) else {
            continue;
        };
        if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile {
            paths_bytes += path.as_os_str().len();
            if paths_bytes > PATHS_BYTES_MAX {
                break;
            }
            files.push(OpenFile {
                fd,
                path,
                dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
                mount_id: mount_id_in(&stat),
            });
        }
    }
    Ok(files)
}
