//! User namespaces (user_namespaces(7)), by ioctl_ns(2) (4.11+): who has every right in those that processes are in.

use crate::error::{Error, Result, fd_subject};
use crate::open::fstat;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

const NS_GET_PARENT: u32 = rustix::ioctl::opcode::none(0xb7, 2);
const NS_GET_OWNER_UID: u32 = rustix::ioctl::opcode::none(0xb7, 4);

/// Most user namespaces within each other that the kernel makes.
const LEVELS_MAX: usize = 33;

/// What tells a namespace from all others: device and inode number of its file.
type Identity = (u64, u64);

/// Who made the user namespace that a process is in, the outermost of several that lie between its own and ours: a user id there.
/// `None` where the process is in ours, which takes one stat(2).
///
/// `EPERM` where it is in none below ours.
pub fn owner(pid: i32) -> Result<Option<u32>> {
    let own = own()?;
    let path = path(&pid.to_string());
    if identity(&path)? == own {
        return Ok(None);
    }
    let mut namespace = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::new("open", &path, error))?;
    for _ in 0..LEVELS_MAX {
        let parent = parent(namespace.as_fd())?;
        let stat = fstat(parent.as_fd())?;
        if (stat.dev, stat.inode) == own {
            return owner_uid(namespace.as_fd()).map(Some);
        }
        namespace = parent;
    }
    let what = "more levels than the kernel has";
    Err(Error::malformed("ioctl(NS_GET_PARENT)", path, what))
}

/// This process's, which stays in it.
fn own() -> Result<Identity> {
    static OWN: OnceLock<Identity> = OnceLock::new();
    match OWN.get() {
        Some(own) => Ok(*own),
        None => identity(&path("self")).map(|own| *OWN.get_or_init(|| own)),
    }
}

fn path(process: &str) -> String {
    format!("/proc/{process}/ns/user")
}

fn identity(path: &str) -> Result<Identity> {
    match std::fs::metadata(path) {
        Ok(namespace) => Ok((namespace.dev(), namespace.ino())),
        Err(error) => Err(Error::new("stat", path, error)),
    }
}

fn parent(namespace: BorrowedFd<'_>) -> Result<OwnedFd> {
    // SAFETY: this ioctl has no argument.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT as _) };
    match fd {
        0.. => {
            // SAFETY: the kernel has just made this descriptor, close-on-exec, and nobody else knows of it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(Error::last("ioctl(NS_GET_PARENT)", fd_subject(namespace))),
    }
}

fn owner_uid(namespace: BorrowedFd<'_>) -> Result<u32> {
    let mut uid: libc::uid_t = 0;
    // SAFETY: the kernel writes a uid_t where the argument points, which lives through the call.
    let result = unsafe {
        libc::ioctl(
            namespace.as_raw_fd(),
            NS_GET_OWNER_UID as _,
            std::ptr::from_mut(&mut uid),
        )
    };
    match result {
        0 => Ok(uid),
        _ => Err(Error::last(
            "ioctl(NS_GET_OWNER_UID)",
            fd_subject(namespace),
        )),
    }
}
