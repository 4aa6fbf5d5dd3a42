//! How much of a file is in the page cache.

use crate::cachestat::cachestat;
use crate::error::Result;
use crate::mincore;
use rustix::fd::BorrowedFd;

/// How many pages of a file's byte range are in the page cache.
///
/// By cachestat(2), which counts what is still being read, too; before 6.5 by mincore(2), which does not, and for which a file
/// is there as a whole that the caller may not write and does not own.
///
/// # Errors
/// Those of these calls: a device, for instance, or the lack of rights.
pub fn cached(file: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<u64> {
    match cachestat(file, offset_bytes, len_bytes) {
        Ok(stat) => Ok(stat.cached),
        Err(error) if error.is_unsupported() => {
            let resident = mincore::resident(file, offset_bytes, len_bytes)?;
            Ok(resident.into_iter().filter(|&resident| resident).count() as u64)
        }
        Err(error) => Err(error),
    }
}
