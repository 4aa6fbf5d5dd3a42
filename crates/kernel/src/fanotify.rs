//! fanotify(7): which paths are opened on a file system, by whom.

use crate::error::{Error, Result};
use crate::open::{self, FileStat};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A group of marks, non-blocking.
#[derive(Debug)]
pub struct Fanotify {
    fd: OwnedFd,
    /// Kept aligned and away from the stack; 24 bytes an event.
    buffer: Vec<u8>,
}

/// A file was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// By this process (in our pid namespace; 0 outside of it).
    pub pid: i32,
    /// Its path as we see it, at the time of the drain; ` (deleted)` is appended where it was removed.
    pub path: PathBuf,
    /// What fstat says. Tracepoints may give another device on btrfs and overlay: see [`crate::mountinfo::Devices`].
    pub stat: FileStat,
    /// The mount that it was opened by; `None` where the kernel does not say (before 5.8).
    pub mount_id: Option<u64>,
}

/// What a drain did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events given to the caller.
    pub opened: usize,
    /// How often the kernel's queue (16,384 events) was full: events were lost.
    pub overflows: usize,
    /// Events whose file could not be opened for us, or not be named or stat'ed any more.
    pub unresolved: usize,
}

/// struct fanotify_event_metadata: u32 event_len, u8 vers, u8 reserved, u16 metadata_len, u64 mask, i32 fd, i32 pid.
const METADATA_BYTES: usize = 24;
const EVENTS_PER_READ: usize = 64;

/// One raw event, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawEvent {
    overflow: bool,
    fd: i32,
    pid: i32,
    len: usize,
}

impl Fanotify {
    /// A new group; needs CAP_SYS_ADMIN. The kernel opens a read-only descriptor for each event, in the reading process
    /// and without further events for it.
    pub fn new() -> Result<Fanotify> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        let event_flags = libc::O_RDONLY
            | libc::O_NONBLOCK
            | libc::O_NOATIME
            | libc::O_CLOEXEC
            | libc::O_LARGEFILE;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::fanotify_init(flags, event_flags as libc::c_uint) };
        if fd < 0 {
            return Err(Error::last("fanotify_init", "fanotify"));
        }
        // SAFETY: a descriptor that the kernel has just made for us and that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Fanotify {
            fd,
            buffer: vec![0; METADATA_BYTES * EVENTS_PER_READ],
        })
    }

    /// Reports every open on the file system that holds `path` (FAN_MARK_FILESYSTEM, 4.20+). `EXDEV` or `ENODEV` on
    /// file systems without an id, as some btrfs subvolumes and FUSE.
    pub fn mark_filesystem(&self, path: &Path) -> Result<()> {
        let failed = |error| Error::new("fanotify_mark", path.to_string_lossy(), error);
        let c_path = std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|error| failed(error.into()))?;
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: `c_path` is a NUL-terminated string that outlives the call.
        let result = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                flags,
                libc::FAN_OPEN,
                libc::AT_FDCWD,
                c_path.as_ptr(),
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(failed(std::io::Error::last_os_error())),
        }
    }

    /// The descriptor, readable (POLLIN) when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes about `events_max` of the queued events (rounded up to a multiple of 64).
    pub fn drain(&mut self, events_max: usize, mut visit: impl FnMut(Opened)) -> Drained {
        let mut drained = Drained::default();
        let mut seen = 0;
        while seen < events_max {
            let len = match rustix::io::read(&self.fd, self.buffer.as_mut_slice()) {
                Ok(len) => len,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                // The file could not be opened for us (EACCES, ENXIO, EMFILE, whatever its file system says): the event is
                // consumed all the same, unless events before it were read.
                Err(_) => {
                    drained.unresolved += 1;
                    seen += 1;
                    continue;
                }
            };
            let mut rest = &self.buffer[..len];
            while let Some(event) = parse_event(rest) {
                rest = &rest[event.len..];
                seen += 1;
                take(event, &mut drained, &mut visit);
            }
        }
        drained
    }
}

fn take(event: RawEvent, drained: &mut Drained, visit: &mut impl FnMut(Opened)) {
    if event.overflow {
        drained.overflows += 1;
    }
    if event.fd < 0 {
        return;
    }
    // SAFETY: the kernel made this descriptor for us with the event; each event is taken once.
    let fd = unsafe { OwnedFd::from_raw_fd(event.fd) };
    let path = std::fs::read_link(format!("/proc/thread-self/fd/{}", event.fd));
    match (path, open::fstat(fd.as_fd())) {
        (Ok(path), Ok(stat)) => {
            drained.opened += 1;
            visit(Opened {
                pid: event.pid,
                path,
                stat,
                mount_id: open::mount_id(fd.as_fd(), Path::new("")),
            });
        }
        _ => drained.unresolved += 1,
    }
}

/// The first event in the bytes; `None` where there is no whole one.
fn parse_event(bytes: &[u8]) -> Option<RawEvent> {
    let len = crate::ring::u32_at(bytes, 0)? as usize;
    if len < METADATA_BYTES || len > bytes.len() || bytes[4] != libc::FANOTIFY_METADATA_VERSION {
        return None;
    }
    Some(RawEvent {
        overflow: crate::ring::u64_at(bytes, 8)? & libc::FAN_Q_OVERFLOW != 0,
        fd: crate::ring::u32_at(bytes, 16)? as i32,
        pid: crate::ring::u32_at(bytes, 20)? as i32,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_bounded_by_their_length() {
        let mut bytes = 24_u32.to_ne_bytes().to_vec();
        bytes.extend([libc::FANOTIFY_METADATA_VERSION, 0, 24, 0]);
        bytes.extend(libc::FAN_Q_OVERFLOW.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(9_i32.to_ne_bytes());
        let event = RawEvent {
            overflow: true,
            fd: -1,
            pid: 9,
            len: 24,
        };
        assert_eq!(parse_event(&bytes), Some(event));
        assert_eq!(parse_event(&bytes[..23]), None);
        bytes[0] = 8;
        assert_eq!(parse_event(&bytes), None);
        bytes[0] = 24;
        bytes[4] = 99;
        assert_eq!(parse_event(&bytes), None);
    }
}
