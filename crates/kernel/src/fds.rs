//! /proc/PID/fd: the regular files a process holds open.

use crate::error::{Error, Result};
use std::os::unix::fs::MetadataExt;
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

/// The regular files that a process holds open; needs the right to ptrace-read it. Descriptors that are closed
/// meanwhile are left out, and nothing is opened.
pub fn open_files(pid: i32) -> Result<Vec<OpenFile>> {
    let directory = format!("/proc/{pid}/fd");
    let failed = |error| Error::new("read directory", directory.as_str(), error);
    let mut files = Vec::new();
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
        let Ok(metadata) = std::fs::metadata(entry.path()) else {
            continue;
        };
        if metadata.is_file() {
            files.push(OpenFile {
                fd,
                path,
                dev: metadata.dev(),
                inode: metadata.ino(),
                mount_id: crate::open::mount_id(rustix::fs::CWD, &entry.path()),
            });
        }
    }
    Ok(files)
}
