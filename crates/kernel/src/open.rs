//! openat2(2) (5.6+): opening an application's files below that application's root, and regular files only.

use crate::error::{Error, Result, fd_subject};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What stat says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Device (`st_dev`). Trace points and maps may give another number for the same file on btrfs and overlay.
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change of the contents, in ns since 1970 (negative before).
    pub mtime_ns: i128,
    /// What kind of file.
    pub kind: FileKind,
}

/// The kinds of files that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Regular.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link (only where links are not followed).
    Symlink,
    /// Device, FIFO or socket: never opened.
    Special,
}

/// Renames above a path make openat2 answer EAGAIN; so many tries.
const RETRIES_MAX: usize = 8;

/// How paths are resolved.
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// The root directory of a process, for [`open_in_root`] and the others (O_PATH on /proc/PID/root; containers have
/// their own). Needs the right to ptrace-read the process.
pub fn process_root(pid: i32) -> Result<OwnedFd> {
    open_directory_path(&format!("/proc/{pid}/root"))
}

/// The root directory of a process as a path that we see: paths of its files, as /proc and fanotify show them, begin
/// with it. `/` for that of another mount namespace, whose paths are shown as there. Needs the right to ptrace-read the
/// process.
pub fn process_root_path(pid: i32) -> Result<PathBuf> {
    let path = format!("/proc/{pid}/root");
    std::fs::read_link(&path).map_err(|error| Error::new("readlink", path, error))
}

fn open_directory_path(path: &str) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Error::new("open", path, error))
}

/// Opens a regular file for reading, resolved as a process with the root directory `root` would: absolute paths and
/// links start there, `..` does not leave it, and magic links (/proc/PID/fd) are not followed.
///
/// Anything but a regular file is an error (kind `Unsupported`, no errno) and is never opened: the path is first
/// opened with O_PATH, which has no effect on devices and FIFOs, and reopened only after fstat. The rights are those
/// of the calling thread ([`crate::credentials`]). O_NOATIME where the caller may; a file lease is `EAGAIN`.
pub fn open_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<(OwnedFd, FileStat)> {
    let failed = |operation, error: Errno| Error::new(operation, path.to_string_lossy(), error);
    let handle = open_path(root, path, OFlags::empty())?;
    let stat = rustix::fs::fstat(&handle).map_err(|error| failed("fstat", error))?;
    if file_stat(&stat).kind != FileKind::Regular {
        let reason = std::io::Error::new(std::io::ErrorKind::Unsupported, "not a regular file");
        return Err(Error::new("open", path.to_string_lossy(), reason));
    }
    let file = reopen(&handle, OFlags::empty()).map_err(|error| failed("open", error))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| failed("fstat", error))?;
    Ok((file, file_stat(&stat)))
}

/// Stats a path resolved as in [`open_in_root`], following links: reads directories and inodes from the disk into the
/// caches, and opens nothing. `ENOENT` is a normal answer ([`Error::is_not_found`]) that the kernel caches too.
pub fn stat_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<FileStat> {
    let handle = open_path(root, path, OFlags::empty())?;
    let stat = rustix::fs::fstat(&handle)
        .map_err(|error| Error::new("fstat", path.to_string_lossy(), error))?;
    Ok(file_stat(&stat))
}

/// Stats a path as [`stat_in_root`] does, by what the kernel's caches hold alone: no device is read and no server asked, so
/// that it takes no time. `EAGAIN` where they do not hold the path, or it leads through a link; `EINVAL` before 5.12.
pub fn cached_stat_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<FileStat> {
    let failed = |operation, error: Errno| Error::new(operation, path.to_string_lossy(), error);
    let handle = cached_handle(root, path, IN_ROOT).map_err(|error| failed("openat2", error))?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&handle, c"", flags, StatxFlags::BASIC_STATS)
        .map_err(|error| failed("statx", error))?;
    let mtime = stat.stx_mtime;
    Ok(FileStat {
        dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size_bytes: stat.stx_size,
        mtime_ns: i128::from(mtime.tv_sec) * 1_000_000_000 + i128::from(mtime.tv_nsec),
        kind: file_kind(FileType::from_raw_mode(stat.stx_mode.into())),
    })
}

fn cached_handle(
    directory: BorrowedFd<'_>,
    path: &Path,
    resolve: ResolveFlags,
) -> std::result::Result<OwnedFd, Errno> {
    let (flags, resolve) = (
        OFlags::PATH | OFlags::CLOEXEC,
        resolve | ResolveFlags::CACHED,
    );
    rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve)
}

/// Looks a path up as [`stat_in_root`] does, for the sake of the caches only: with two system calls instead of three.
/// Returns whether it exists, as far as the caller may see.
pub fn look_up_in_root(root: BorrowedFd<'_>, path: &Path) -> bool {
    path_handle(root, path, OFlags::empty()).is_ok()
}

/// As [`stat_in_root`], of the link itself where the path ends in one.
pub fn lstat_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<FileStat> {
    let handle = open_path(root, path, OFlags::NOFOLLOW)?;
    let stat = rustix::fs::fstat(&handle)
        .map_err(|error| Error::new("fstat", path.to_string_lossy(), error))?;
    Ok(file_stat(&stat))
}

/// Reads where a symbolic link leads, resolved as in [`open_in_root`] but for the link itself. `EINVAL` for what is no
/// link.
pub fn read_link_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<OsString> {
    let handle = open_path(root, path, OFlags::NOFOLLOW)?;
    // An empty path means the handle itself (2.6.39+).
    let target = rustix::fs::readlinkat(&handle, c"", Vec::new())
        .map_err(|error| Error::new("readlink", path.to_string_lossy(), error))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Opens a directory for reading, resolved as in [`open_in_root`].
pub fn open_directory_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let handle = open_path(root, path, OFlags::DIRECTORY)?;
    reopen(&handle, OFlags::DIRECTORY)
        .map_err(|error| Error::new("open", path.to_string_lossy(), error))
}

/// Reads a directory's entries (at most `entries_max`), resolved as in [`open_in_root`], for the sake of the caches.
/// Returns how many there are.
pub fn read_directory_in_root(
    root: BorrowedFd<'_>,
    path: &Path,
    entries_max: usize,
) -> Result<usize> {
    let failed = |error: Errno| Error::new("readdir", path.to_string_lossy(), error);
    let directory = open_directory_in_root(root, path)?;
    let mut entries = rustix::fs::Dir::new(directory).map_err(failed)?;
    let mut count = 0;
    while count < entries_max {
        match entries.next() {
            Some(Ok(_)) => count += 1,
            Some(Err(error)) => return Err(failed(error)),
            None => break,
        }
    }
    Ok(count)
}

fn open_path(root: BorrowedFd<'_>, path: &Path, more: OFlags) -> Result<OwnedFd> {
    path_handle(root, path, more)
        .map_err(|error| Error::new("openat2", path.to_string_lossy(), error))
}

fn path_handle(
    root: BorrowedFd<'_>,
    path: &Path,
    more: OFlags,
) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), IN_ROOT) {
            Err(Errno::AGAIN | Errno::INTR) if tries < RETRIES_MAX => tries += 1,
            result => return result,
        }
    }
}

/// Opens for reading what an O_PATH handle holds. Our own /proc/self/fd is usable under any fsuid.
pub(crate) fn reopen(handle: &OwnedFd, more: OFlags) -> std::result::Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    match rustix::fs::open(path.as_str(), flags | OFlags::NOATIME, Mode::empty()) {
        // O_NOATIME is for the owner and CAP_FOWNER only.
        Err(Errno::PERM) => rustix::fs::open(path.as_str(), flags, Mode::empty()),
        result => result,
    }
}

/// The mount by which a file was opened, or that a path leads through: an id of [`crate::mountinfo`]. `path` may be
/// empty: `fd` itself, of which no server is asked. `None` where the kernel does not say (before 5.8).
pub fn mount_id(fd: BorrowedFd<'_>, path: &Path) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, path, flags, StatxFlags::MNT_ID).ok()?;
    mount_id_in(&stat)
}

/// The mount that one of our paths leads through, as [`mount_id`] has it, by what the kernel's caches hold alone, as
/// [`cached_stat_in_root`] has it.
pub(crate) fn cached_mount_id(path: &Path) -> Option<u64> {
    let handle = cached_handle(rustix::fs::CWD, path, ResolveFlags::NO_MAGICLINKS).ok()?;
    mount_id(handle.as_fd(), Path::new(""))
}

/// The mount that statx was asked for (STATX_MNT_ID), where the kernel says it.
pub(crate) fn mount_id_in(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// What fstat says of an open file.
pub fn fstat(fd: BorrowedFd<'_>) -> Result<FileStat> {
    let stat = rustix::fs::fstat(fd).map_err(|error| Error::new("fstat", fd_subject(fd), error))?;
    Ok(file_stat(&stat))
}

// The widths of struct stat's fields differ between architectures.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
fn file_stat(stat: &Stat) -> FileStat {
    FileStat {
        dev: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: i128::from(stat.st_mtime) * 1_000_000_000 + stat.st_mtime_nsec as i128,
        kind: file_kind(FileType::from_raw_mode(stat.st_mode as _)),
    }
}

fn file_kind(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    }
}
