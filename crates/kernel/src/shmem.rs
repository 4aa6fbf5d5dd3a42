//! Shared memory objects (memfd, POSIX and System V shared memory): how much of one is swapped out.

use crate::cachestat::cachestat;
use crate::error::{Error, Result, fd_subject};
use crate::page::page_size;
use rustix::fd::BorrowedFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// How many pages of an object are swapped out, of those in the byte range.
///
/// By cachestat(2) (6.5+), which counts of such an object as evicted what is in swap; before, all pages that it [holds](held):
/// of these too none is made by being touched, and one that is in memory takes a minor fault.
///
/// # Errors
/// Where neither can be asked, such as of what is no file.
pub fn swapped_out(object: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<u64> {
    match cachestat(object, offset_bytes, len_bytes) {
        Ok(counted) => Ok(counted.evicted),
        Err(error) if error.is_unsupported() => held(object, offset_bytes, len_bytes),
        Err(error) => Err(error),
    }
}

/// How many pages an object has in the byte range, in memory or in swap: what SEEK_DATA of lseek(2) calls data. The range
/// begins at a page. The offset of the open file moves.
///
/// # Errors
/// Those of lseek(2).
pub fn held(object: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<u64> {
    let end = offset_bytes.saturating_add(len_bytes);
    let (mut bytes, mut at) = (0, offset_bytes);
    while let Some(data) = seek_within(object, SeekFrom::Data(at), end)? {
        at = seek_within(object, SeekFrom::Hole(data), end)?.unwrap_or(end);
        bytes += at - data;
    }
    Ok(bytes.div_ceil(page_size()))
}

/// Where it seeks to, before the end.
fn seek_within(object: BorrowedFd<'_>, to: SeekFrom, end: u64) -> Result<Option<u64>> {
    match seek(object, to) {
        Ok(found) => Ok(Some(found).filter(|&found| found < end)),
        // Behind the last data, or the end of the object.
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(Error::new("lseek", fd_subject(object), error)),
    }
}
