//! poll(2) of one descriptor, for so long at most.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, Result};
use rustix::time::Timespec;
use std::time::{Duration, Instant};

/// Waits until a descriptor is readable, or at its end, for so long at most, signals notwithstanding. Returns whether it is.
pub fn readable_within(fd: BorrowedFd<'_>, limit: Duration) -> Result<bool> {
    let begin = Instant::now();
    loop {
        let left = limit.saturating_sub(begin.elapsed());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&left),
        ) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}
