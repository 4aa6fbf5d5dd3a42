//! cachestat(2) (6.5+): how many pages of a file range are in the page cache.

use crate::error::{Error, Result, fd_subject};
use rustix::fd::{AsRawFd, BorrowedFd};

/// The number of the system call, which libc does not name on every target. The same on all architectures (since 5.1
/// new calls are numbered alike everywhere).
const SYS_CACHESTAT: libc::c_long = 451;

/// Page cache counts of a file range, in pages (struct cachestat of linux/mman.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// In the page cache, also those still being read.
    pub cached: u64,
    /// Of these, dirty.
    pub dirty: u64,
    /// Of these, being written back.
    pub writeback: u64,
    /// Evicted, with a shadow entry left.
    pub evicted: u64,
    /// Evicted so recently that reading them back would make them active.
    pub recently_evicted: u64,
}

#[repr(C)]
struct CacheStatRange {
    offset: u64,
    len: u64,
}

/// Counts the pages of `fd` in the byte range; a length of 0 means to the end of the file. On swapped-out shmem the
/// evicted counts are what is in swap. On overlay all counts are 0: the pages are those of the layer's file
/// ([`crate::mincore::resident`] sees them).
///
/// `ENOSYS` before 6.5 (see [`crate::mincore::resident`]), `EOPNOTSUPP` on hugetlbfs, `EPERM` (6.13+) on files that the
/// caller could neither write nor owns.
pub fn cachestat(fd: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<CacheStat> {
    let range = CacheStatRange {
        offset: offset_bytes,
        len: len_bytes,
    };
    let mut stat = CacheStat::default();
    // SAFETY: both pointers are to live values with the layouts of linux/mman.h; the kernel writes only `stat`.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut stat),
            0_u32,
        )
    };
    match result {
        0 => Ok(stat),
        _ => Err(Error::last("cachestat", fd_subject(fd))),
    }
}
