//! userfaultfd(2) in the child: pages that are missing until their monitor, the same child, answers.

use super::role::contents;
use crate::page::page_size;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

/// The monitor's descriptor, for the life of the child, and the features that it was opened with.
static MONITOR: OnceLock<(OwnedFd, u64)> = OnceLock::new();

const API: u64 = 0xaa;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
/// 6.4+: pages without a page can be write-protected, by a marker in the page table.
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;

// Requests of linux/userfaultfd.h, whose arguments are arrays of u64.
const UFFDIO_API: u32 = rustix::ioctl::opcode::read_write::<[u64; 3]>(0xaa, 0x3f);
const UFFDIO_REGISTER: u32 = rustix::ioctl::opcode::read_write::<[u64; 4]>(0xaa, 0);
const UFFDIO_COPY: u32 = rustix::ioctl::opcode::read_write::<[u64; 5]>(0xaa, 3);
const UFFDIO_WRITEPROTECT: u32 = rustix::ioctl::opcode::read_write::<[u64; 3]>(0xaa, 6);

fn ask<const N: usize>(fd: &OwnedFd, request: u32, mut argument: [u64; N], what: &str) {
    // SAFETY: `argument` is as long as the request says; what UFFDIO_COPY points to is a live page of ours, and its
    // target, as that of the others, is memory to which this child holds no references.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request.into(), argument.as_mut_ptr()) };
    assert_eq!(result, 0, "{what}: {}", std::io::Error::last_os_error());
}

fn open(features: u64) -> OwnedFd {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    assert!(
        fd >= 0,
        "these tests need userfaultfd: {}",
        std::io::Error::last_os_error()
    );
    // SAFETY: a descriptor that the kernel has just made for us and that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let what = match features & FEATURE_WP_UNPOPULATED {
        0 => "UFFDIO_API",
        _ => "this test needs UFFD_FEATURE_WP_UNPOPULATED (6.4)",
    };
    ask(&fd, UFFDIO_API, [API, features, 0], what);
    fd
}

/// Features are for what needs them alone: a kernel that lacks one refuses all. They are chosen once.
fn register(pages: &[*mut u8], mode: u64, features: u64) -> &'static OwnedFd {
    let (fd, chosen) = MONITOR.get_or_init(|| (open(features), features));
    assert_eq!(
        chosen & features,
        features,
        "a child marks pages before it monitors others"
    );
    for &page in pages {
        ask(
            fd,
            UFFDIO_REGISTER,
            [page as u64, page_size(), mode, 0],
            "UFFDIO_REGISTER",
        );
    }
    fd
}

/// Registers pages: a fault on one that is missing waits for the monitor.
pub(super) fn monitor(pages: &[*mut u8]) {
    register(pages, MODE_MISSING, 0);
}

/// Registers pages that are missing, and write-protects them: the page table then holds markers, which pagemap gives
/// as swap entries.
pub(super) fn mark(pages: &[*mut u8]) {
    let features = FEATURE_PAGEFAULT_FLAG_WP | FEATURE_WP_UNPOPULATED;
    let fd = register(pages, MODE_MISSING | MODE_WP, features);
    for &page in pages {
        let argument = [page as u64, page_size(), WRITEPROTECT_MODE_WP];
        ask(fd, UFFDIO_WRITEPROTECT, argument, "UFFDIO_WRITEPROTECT");
    }
}

/// How long [`hold`] lets a fault wait at least.
const HOLD: Duration = Duration::from_millis(30);

/// Has a thread of its own read each of these monitored pages, and lets each of its faults wait.
pub(super) fn hold(pages: &[*mut u8]) {
    for &page in pages {
        let address = page as usize;
        let reader = std::thread::spawn(move || {
            // SAFETY: a page that this child mapped and holds no references to; its monitor fills it.
            unsafe { std::ptr::read_volatile(address as *const u8) }
        });
        std::thread::sleep(HOLD);
        answer(&[page]);
        reader.join().expect("the reader");
    }
}

/// The monitor answers: the missing pages get their contents, and whoever waits goes on.
pub(super) fn answer(pages: &[*mut u8]) {
    let (fd, _) = MONITOR.get().expect("a monitor");
    for &page in pages {
        let contents = contents(page);
        let argument = [page as u64, contents.as_ptr() as u64, page_size(), 0, 0];
        ask(fd, UFFDIO_COPY, argument, "UFFDIO_COPY");
    }
}
