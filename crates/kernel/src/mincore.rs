//! mincore(2): which pages of a file are in the page cache, exactly and on every kernel.

use crate::error::{Error, Result, fd_subject};
use crate::page::page_size;
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Whether each page that the byte range touches is in the page cache and up to date. Pages beyond the end of the file
/// are not. The file must be open for reading.
///
/// From 5.2 on, a file that the caller could neither write nor owns is reported as wholly resident.
pub fn resident(fd: BorrowedFd<'_>, offset_bytes: u64, len_bytes: u64) -> Result<Vec<bool>> {
    let failed = |operation, error| Error::new(operation, fd_subject(fd), error);
    if len_bytes == 0 {
        return Ok(Vec::new());
    }
    let start = offset_bytes - offset_bytes % page_size();
    let end = offset_bytes.checked_add(len_bytes);
    let len = end
        .and_then(|end| usize::try_from(end - start).ok())
        .ok_or_else(|| failed("mmap", rustix::io::Errno::OVERFLOW))?;
    // SAFETY: a new mapping at an address of the kernel's choice; it is never accessed, so a file that shrinks does no
    // harm.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            fd,
            start,
        )
    }
    .map_err(|error| failed("mmap", error))?;
    let mut bytes = vec![0_u8; crate::page::pages_of(len as u64) as usize];
    // SAFETY: `base` is the page-aligned mapping of `len` bytes made above, and `bytes` has one byte for each page.
    let result = unsafe { libc::mincore(base, len, bytes.as_mut_ptr()) };
    let outcome = match result {
        0 => Ok(bytes.iter().map(|byte| byte & 1 != 0).collect()),
        _ => Err(Error::last("mincore", fd_subject(fd))),
    };
    // SAFETY: the mapping made above, of the same length; nothing refers to it any more.
    unsafe { munmap(base, len) }.map_err(|error| failed("munmap", error))?;
    outcome
}
