//! readahead(2) and posix_fadvise(2): bringing file pages into the page cache, and out of it.

use crate::error::{Error, Result, fd_subject};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Advice, fadvise};
use std::num::NonZeroU64;

/// Submits reads of `len_bytes` from `offset_bytes` on. The kernel silently caps a call at the larger of the device's
/// max_sectors_kb and read_ahead_kb, so ask in pieces that are no larger ([`crate::block::BlockDevice::readahead_cap_kib`]), and
/// returns when the requests are submitted. Pages are charged to the calling thread's memory cgroup.
///
/// `EINVAL` for what has no page cache of its own (pipes, some special files).
pub fn readahead(fd: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<()> {
    let offset = i64::try_from(offset_bytes).unwrap_or(i64::MAX);
    let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
    // SAFETY: takes no pointers; `fd` is open for as long as it is borrowed.
    match unsafe { libc::readahead(fd.as_raw_fd(), offset, len) } {
        0 => Ok(()),
        _ => Err(Error::last("readahead", fd_subject(fd))),
    }
}

/// posix_fadvise(POSIX_FADV_DONTNEED): drops clean, unmapped pages that lie wholly in the range. Dirty pages and pages
/// mapped by anyone stay. A length of 0 means to the end.
pub fn fadvise_dontneed(fd: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<()> {
    fadvise(
        fd,
        offset_bytes,
        NonZeroU64::new(len_bytes),
        Advice::DontNeed,
    )
    .map_err(|error| Error::new("posix_fadvise", fd_subject(fd), error))
}
