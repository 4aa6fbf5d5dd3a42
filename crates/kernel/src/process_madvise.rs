//! process_madvise(2) (5.10+): advice on another process's memory.

use crate::error::{Error, Result};
use crate::page::{address_of, page_size};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ops::Range;

/// Ranges per system call: the kernel's UIO_MAXIOV (IOV_MAX).
pub const RANGES_PER_CALL_MAX: usize = 1024;

/// The kinds of advice that another process's memory takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// MADV_WILLNEED: read ahead into the swap cache or page cache. Maps nothing; returns before the pages are there.
    WillNeed,
    /// MADV_COLD (5.4+): to the inactive list, no longer referenced.
    Cold,
    /// MADV_PAGEOUT (5.4+): reclaim now. Pages mapped by several processes stay.
    PageOut,
}

impl Advice {
    fn raw(self) -> i32 {
        match self {
            Advice::WillNeed => libc::MADV_WILLNEED,
            Advice::Cold => libc::MADV_COLD,
            Advice::PageOut => libc::MADV_PAGEOUT,
        }
    }
}

/// [`advise`] with [`Advice::PageOut`].
pub fn pageout(pidfd: BorrowedFd<'_>, ranges: &[Range<u64>]) -> Result<u64> {
    advise(pidfd, Advice::PageOut, ranges)
}

/// One system call: advises at most [`RANGES_PER_CALL_MAX`] of `ranges` (page numbers) and returns how many pages from
/// the front were advised.
///
/// Fewer than asked means that it stopped, at the first range with a hole (`ENOMEM`; its mapped pages were advised, but
/// are not counted), at one that takes no such advice (`EINVAL`: locked, huge or device memory, or a kernel without
/// this advice), or at the kernel's limit of 2 GiB a call. All else is an error; [`Error::is_gone`] when the process
/// has exited. Needs CAP_SYS_NICE (or, from 6.13 on, nothing for oneself) and the right to ptrace-read.
pub fn advise(pidfd: BorrowedFd<'_>, advice: Advice, ranges: &[Range<u64>]) -> Result<u64> {
    let mut vectors = Vec::with_capacity(ranges.len().min(RANGES_PER_CALL_MAX));
    for range in ranges.iter().take(RANGES_PER_CALL_MAX) {
        let (Some(start), Some(end)) = (address_of(range.start), address_of(range.end)) else {
            break;
        };
        vectors.push(libc::iovec {
            iov_base: start as usize as *mut libc::c_void,
            iov_len: end.saturating_sub(start) as usize,
        });
    }
    if vectors.iter().all(|vector| vector.iov_len == 0) {
        return Ok(0);
    }
    // SAFETY: `vectors` is a valid array of its length; its addresses are of another process (or, for a pidfd of our
    // own, take advice that changes no contents), and the kernel only reads the array.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vectors.as_ptr(),
            vectors.len(),
            advice.raw(),
            0_u32,
        )
    };
    if let Ok(bytes) = u64::try_from(advised) {
        return Ok(bytes / page_size());
    }
    let error = Error::last("process_madvise", format!("pidfd {}", pidfd.as_raw_fd()));
    match error.errno() {
        Some(libc::ENOMEM | libc::EINVAL) => Ok(0),
        _ => Err(error),
    }
}

/// What [`advise_all`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advised {
    /// Pages in the ranges that took the advice.
    pub pages: u64,
    /// Ranges that did not, or only in part.
    pub ranges_skipped: u64,
    /// Pages in those; where the cause was a hole, the mapped ones among them took the advice all the same.
    pub pages_skipped: u64,
}

/// Advises all of `ranges` (page numbers), resuming after each that fails.
pub fn advise_all(pidfd: BorrowedFd<'_>, advice: Advice, ranges: &[Range<u64>]) -> Result<Advised> {
    let mut total = Advised::default();
    let mut rest: Vec<Range<u64>> = ranges
        .iter()
        .filter(|range| !range.is_empty())
        .cloned()
        .collect();
    let mut next = 0;
    while next < rest.len() {
        let batch_end = (next + RANGES_PER_CALL_MAX).min(rest.len());
        let mut advised = advise(pidfd, advice, &rest[next..batch_end])?;
        total.pages += advised;
        let made_progress = advised > 0;
        while next < batch_end && rest[next].end - rest[next].start <= advised {
            advised -= rest[next].end - rest[next].start;
            next += 1;
        }
        if next == batch_end {
            continue;
        }
        // Stopped inside or at the start of rest[next]. After progress, ask again from there, since the cause may have
        // been the limit per call; without, this range is the one that fails.
        rest[next].start += advised;
        if !made_progress {
            total.ranges_skipped += 1;
            total.pages_skipped += rest[next].end - rest[next].start;
            next += 1;
        }
    }
    Ok(total)
}
