//! Keeps the kernel from mapping pages around a fault (fault-around) in traced processes, so that each page that they
//! access shows.
//!
//! Where a page of a file faults, the kernel maps those around it as well that are in memory, up to 64 KiB
//! (fault_around_bytes), and nobody sees accesses to these. It does not in a region that userfaultfd(2) may write-protect
//! (uffd_disable_fault_around in mm/memory.c), and as such any private mapping can be registered where protection is
//! asynchronous (UFFD_FEATURE_WP_ASYNC, 6.7+). Nothing is ever protected, and no fault waits for anybody.
//!
//! **The descriptor** has to be made by the process itself. Its exec has set it to begin at an address, with all
//! registers clear; the tracer has it begin at a [stub] instead, in what its text leaves free of its last page:
//! that calls userfaultfd(2), closes what it got, and goes on where it was to begin. So does a process that was forked: what
//! its parent has registered is not registered in it. After the first of these calls the
//! tracer takes a copy of the descriptor (pidfd_getfd(2), 5.6+), and registers with it what the process has mapped, and
//! what it maps from then on. The stub needs nobody: a tracer that ends meanwhile changes nothing. When the copy
//! is closed, as it is when the tracer ends, however it ends, the kernel forgets the registration and maps around
//! faults again.
//!
//! **What the process notices**: 0.6 us for each page that would have been mapped around another, and a page of its text
//! that is its own now.
//!
//! **Left as they are**: processes with a seccomp filter, which may end them for an unexpected call; children that share
//! their parent's memory, until they execute a program; shared mappings, some of which are devices'; text that leaves too
//! little of its last page; other architectures than x86-64; everything before 6.7. There an access shows with
//! what was mapped around it.

mod stub;

use crate::error::{Error, Result};
use crate::maps;
use crate::page::page_size;
use crate::process;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// UFFD_USER_MODE_ONLY (5.11+): such a descriptor needs no rights. The stub has its value.
const USER_MODE_ONLY: i32 = 1;
/// UFFD_API, UFFD_FEATURE_WP_ASYNC and UFFDIO_REGISTER_MODE_WP.
const API: u64 = 0xaa;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const MODE_WP: u64 = 2;

/// Results from its negative on are errors (MAX_ERRNO).
const ERRNO_MAX: i64 = 4_095;

// Requests of linux/userfaultfd.h, whose arguments are arrays of u64.
const UFFDIO_API: u32 = rustix::ioctl::opcode::read_write::<[u64; 3]>(0xaa, 0x3f);
const UFFDIO_REGISTER: u32 = rustix::ioctl::opcode::read_write::<[u64; 4]>(0xaa, 0);

/// The processes in which each page faults by itself.
#[derive(Debug, Default)]
pub(crate) struct FaultAround {
    /// Whether this kernel can ([`probe`]). Where it cannot, no process is changed for it.
    is_possible: bool,
    /// Threads that are about to call userfaultfd(2) in the stub.
    beginning: HashSet<i32>,
    /// Threads in that call.
    opening: HashSet<i32>,
    of_processes: HashMap<i32, OwnedFd>,
    /// Where the stub for those that a process forks lies.
    fork_stubs: HashMap<i32, u64>,
    /// Threads that have stood where they began.
    begun: HashSet<i32>,
    /// Threads that are mapping a file, and so many bytes of it.
    mapping: HashMap<i32, u64>,
}

impl FaultAround {
    /// Of a tracer that has no tracee yet. Asks the kernel once.
    pub fn new() -> Self {
        static IS_POSSIBLE: OnceLock<bool> = OnceLock::new();
        Self {
            is_possible: *IS_POSSIBLE.get_or_init(|| probe().is_ok()),
            ..Self::default()
        }
    }

    /// This thread stands where it begins; or, if that was seen before, is interrupted or continued.
    pub fn begun(&mut self, tid: i32) {
        if self.begun.insert(tid)
            && !self.fork_stubs.is_empty()
            && let Some(at) = self.fork_stub(tid)
            && stub::begin_forked(tid, at).is_some()
        {
            self.beginning.insert(tid);
            self.fork_stubs.insert(tid, at);
        }
    }

    /// Where the stub lies in a process that was forked by one that has it, and has memory of its own.
    fn fork_stub(&self, tid: i32) -> Option<u64> {
        let parent = process::stat(tid).ok()?.ppid;
        let at = *self.fork_stubs.get(&parent)?;
        let is_process = process::process_of_thread(tid).ok()? == tid;
        (is_process && !process::share_memory(tid, parent)).then_some(at)
    }

    /// This process has executed a program, and stands before its first instruction.
    pub fn executed(&mut self, pid: i32) {
        self.forget(pid);
        if self.is_possible
            && let Some(given) = stub::begin_executed(pid)
        {
            self.beginning.insert(pid);
            self.fork_stubs.extend(given.fork_stub.map(|at| (pid, at)));
        }
    }

    /// This thread has ended, or is not traced any more.
    pub fn ended(&mut self, tid: i32) {
        self.forget(tid);
        self.begun.remove(&tid);
    }

    fn forget(&mut self, tid: i32) {
        self.beginning.remove(&tid);
        self.opening.remove(&tid);
        self.mapping.remove(&tid);
        self.of_processes.remove(&tid);
        self.fork_stubs.remove(&tid);
    }

    /// This thread begins a system call.
    pub fn call_begins(&mut self, tid: i32, number: u64, arguments: &[u64; 6]) {
        if self.beginning.remove(&tid) && number == libc::SYS_userfaultfd as u64 {
            self.opening.insert(tid);
        }
        let [_, bytes, _, flags, descriptor, _] = *arguments;
        let kind = flags as i32 & (libc::MAP_TYPE | libc::MAP_ANONYMOUS);
        let maps_file = kind == libc::MAP_PRIVATE && descriptor as i32 >= 0;
        if number == libc::SYS_mmap as u64 && maps_file && !self.of_processes.is_empty() {
            self.mapping.insert(tid, bytes);
        }
    }

    /// It ends, with this result.
    pub fn call_ends(&mut self, tid: i32, result: i64) {
        if self.opening.remove(&tid) {
            if let Some(descriptor) = copy_of(tid, result) {
                register_files(tid, &descriptor);
                self.of_processes.insert(tid, descriptor);
            }
        } else if let Some(bytes) = self.mapping.remove(&tid)
            && !(-ERRNO_MAX..0).contains(&result)
            && let Ok(pid) = process::process_of_thread(tid)
            && let Some(descriptor) = self.of_processes.get(&pid)
        {
            register(descriptor, result as u64, bytes);
        }
    }
}

/// Whether a process could be kept from mapping around faults: the kernel's answer to a descriptor of our own. `ENOSYS` on
/// architectures without a stub, `EINVAL` before 6.7.
pub(crate) fn probe() -> Result<()> {
    if !stub::is_known() {
        return Err(Error::new(
            "trace",
            "single pages",
            rustix::io::Errno::NOSYS,
        ));
    }
    let flags = libc::O_CLOEXEC | USER_MODE_ONLY;
    // SAFETY: takes no pointer.
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if descriptor < 0 {
        return Err(Error::last("userfaultfd", "own memory"));
    }
    // SAFETY: a descriptor that the kernel has just made for us and that nobody else owns.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
    match ask(&descriptor, UFFDIO_API, [API, FEATURE_WP_ASYNC, 0]) {
        true => Ok(()),
        false => Err(Error::last("ioctl(UFFDIO_API)", "own memory")),
    }
}

/// Our own copy of a process's new descriptor, ready to register with.
fn copy_of(pid: i32, descriptor: i64) -> Option<OwnedFd> {
    let descriptor = i32::try_from(descriptor).ok().filter(|fd| *fd >= 0)?;
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let copy = pidfd_getfd(pidfd, descriptor, PidfdGetfdFlags::empty()).ok()?;
    ask(&copy, UFFDIO_API, [API, FEATURE_WP_ASYNC, 0]).then_some(copy)
}

fn register_files(pid: i32, descriptor: &OwnedFd) {
    let mappings = maps::read(pid).unwrap_or_default();
    let of_files = mappings.iter().filter(|m| m.inode != 0 && !m.shared);
    for mapping in of_files {
        register(descriptor, mapping.start, mapping.end - mapping.start);
    }
}

/// What cannot be registered stays as it is.
fn register(descriptor: &OwnedFd, start: u64, bytes: u64) {
    if let Some(bytes) = bytes.checked_next_multiple_of(page_size()) {
        ask(descriptor, UFFDIO_REGISTER, [start, bytes, MODE_WP, 0]);
    }
}

fn ask<const N: usize>(descriptor: &OwnedFd, request: u32, mut argument: [u64; N]) -> bool {
    // SAFETY: `argument` is as long as the request says, and exclusively ours. No page is protected or filled: the requests
    // change the contents of no memory, whosever it is.
    let result = unsafe {
        libc::ioctl(
            descriptor.as_raw_fd(),
            request.into(),
            argument.as_mut_ptr(),
        )
    };
    result == 0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::ptrace::{self, Seen};
    use crate::testing::sleeping::Sleeping;

    /// Whether a process that has executed a program, and stands still, is to go on elsewhere.
    fn is_changed(fault_around: &mut FaultAround) -> bool {
        let process = Sleeping::spawn();
        let pid = process.pid();
        ptrace::seize(pid).expect("seize");
        ptrace::interrupt(pid).expect("interrupt");
        while !matches!(ptrace::wait(true).expect("wait"), Seen::Stopped(tid, _) if tid == pid) {}
        let before = ptrace::instruction_pointer(pid).expect("its registers");
        fault_around.executed(pid);
        before != ptrace::instruction_pointer(pid).expect("its registers")
    }

    #[test]
    fn no_process_is_changed_where_the_kernel_cannot_keep_from_mapping_around_faults() {
        let mut never = FaultAround::default();
        assert!(!is_changed(&mut never));
        assert!(never.beginning.is_empty() && never.fork_stubs.is_empty());
        let mut as_here = FaultAround::new();
        assert_eq!(is_changed(&mut as_here), probe().is_ok());
    }
}
