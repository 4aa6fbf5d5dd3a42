//! process_vm_readv(2): faulting pages of another process in, and mapping them there; reading its memory.

use crate::error::{Error, Result};
use crate::page::{address_of, page_size};

/// Pages per system call. The kernel takes up to 1024 vectors (UIO_MAXIOV); the array is cleared for each call, and
/// batches are small.
pub const PAGES_PER_CALL_MAX: usize = 128;

/// Reads one byte of each page (page numbers, any order) of process `pid`. The read fault swaps the page in, or reads
/// it from its file, and maps it in that process; a read never breaks copy-on-write sharing.
///
/// Returns how many pages from the front were read. Fewer than asked means that the page at that index could not be
/// read (a hole, PROT_NONE, a device, a guard page), also when it is the first: `Ok(0)`. Resume after it.
/// [`Error::is_gone`] when the process has exited. pids are reused: check [`crate::Process::is_alive`] around it.
///
/// The fault runs with the caller's CPU time, holding the target's mmap_lock or the mapping's lock per page: small
/// batches with a pause between them leave the application alone. It is charged to the target's memory cgroup. Needs
/// the right to ptrace-attach (3.2+).
pub fn touch(pid: i32, pages: &[u64]) -> Result<usize> {
    let mut touched = 0;
    for batch in pages.chunks(PAGES_PER_CALL_MAX) {
        let count = touch_batch(pid, batch)?;
        touched += count;
        if count < batch.len() {
            break;
        }
    }
    Ok(touched)
}

fn touch_batch(pid: i32, pages: &[u64]) -> Result<usize> {
    let empty = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut remote = [empty; PAGES_PER_CALL_MAX];
    let (mut vectors, mut count) = (0, 0);
    while let Some(&page) = pages.get(count) {
        // A page number beyond the address space is unreadable, like a hole.
        let Some(address) = address_of(page) else {
            break;
        };
        // The last byte of a page and the first of the next one, where both are asked for: the kernel takes the
        // address space's lock and looks up the mapping once for each vector.
        let pair = pages.get(count + 1) == Some(&(page + 1));
        remote[vectors] = libc::iovec {
            iov_base: (address + u64::from(pair) * (page_size() - 1)) as usize as *mut _,
            iov_len: 1 + usize::from(pair),
        };
        vectors += 1;
        count += 1 + usize::from(pair);
    }
    let mut sink = [0_u8; PAGES_PER_CALL_MAX];
    let local = libc::iovec {
        iov_base: sink.as_mut_ptr().cast(),
        iov_len: count,
    };
    // SAFETY: `local` describes the exclusively owned `sink`, of which at most `count` bytes are written, and
    // `pages` is no longer than it; `remote` holds `vectors` addresses of another process, which the kernel checks there.
    let read = unsafe {
        libc::process_vm_readv(pid, &local, 1, remote.as_ptr(), vectors as libc::c_ulong, 0)
    };
    counted(pid, read)
}

/// Reads the text of process (or thread) `pid` from `address` to its first NUL, without it, into `text`, which is
/// emptied first. False where it is not readable, or has `text_bytes_max` bytes or more.
/// [`Error::is_gone`] when the process has exited. Needs the right to ptrace-attach (3.2+).
pub fn read_text(
    pid: i32,
    address: u64,
    text_bytes_max: usize,
    text: &mut Vec<u8>,
) -> Result<bool> {
    text.clear();
    while text.len() < text_bytes_max {
        let Some(from) = address.checked_add(text.len() as u64) else {
            return Ok(false);
        };
        // Up to the page's end at most: the next one may not be there.
        let in_page = page_size() - from % page_size();
        let len = (text_bytes_max - text.len()).min(in_page as usize);
        let end = text.len();
        text.resize(end + len, 0);
        let read = read(pid, from, &mut text[end..])?;
        text.truncate(end + read);
        if let Some(len) = text.iter().position(|&byte| byte == 0) {
            text.truncate(len);
            return Ok(true);
        }
        if read < len {
            return Ok(false);
        }
    }
    Ok(false)
}

/// How many bytes could be read: fewer than asked for where a page could not.
pub(crate) fn read(pid: i32, address: u64, bytes: &mut [u8]) -> Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as usize as *mut _,
        iov_len: bytes.len(),
    };
    // SAFETY: `local` describes `bytes`, exclusively borrowed; `remote` is of another process, and checked there.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    counted(pid, read)
}

fn counted(pid: i32, read: isize) -> Result<usize> {
    if let Ok(read) = usize::try_from(read) {
        return Ok(read);
    }
    let error = Error::last("process_vm_readv", format!("process {pid}"));
    match error.errno() {
        Some(libc::EFAULT) => Ok(0),
        _ => Err(error),
    }
}
