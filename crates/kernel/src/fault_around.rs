//! Keeps the kernel from mapping pages around a fault (fault-around) in traced processes, so that each page that they
//! access shows.
//!
//! Where a page of a file faults, the kernel maps those around it as well that are in memory, up to 64 KiB
//! (fault_around_bytes), and nobody sees accesses to these. It does not in a region that userfaultfd(2) may write-protect
//! (uffd_disable_fault_around in mm/memory.c), and as such any private mapping can be registered where protection is
//! asynchronous (UFFD_FEATURE_WP_ASYNC, 6.7+). Nothing is ever protected, and no fault waits for anybody.
//!
//! **The descriptor** has to be made by the process itself. Its exec has set it to begin at an address, with all
//! registers clear; the tracer has it begin at a [stub](STUB) instead, in what its text leaves free of its last page:
//! that calls userfaultfd(2), closes what it got, and goes on where it was to begin. After the first of these calls the
//! tracer takes a copy of the descriptor (pidfd_getfd(2), 5.6+), and registers with it what the process has mapped, and
//! what it maps from then on. The stub needs nobody: a tracer that ends meanwhile changes nothing. When the copy
//! is closed, as it is when the tracer ends, however it ends, the kernel forgets the registration and maps around
//! faults again.
//!
//! **What the process notices**: 0.6 us for each page that would have been mapped around another, and a page of its text
//! that is its own now.
//!
//! **Left as they are**: processes with a seccomp filter, which may end them for an unexpected call; children until they
//! execute a program; shared mappings, some of which are devices'; text that fills its last page; other architectures than
//! x86-64. There an access shows with what was mapped around it.

use crate::error::{Error, Result};
use crate::maps::{self, Mapping};
use crate::page::page_size;
use crate::ring::{u32_at, u64_at};
use crate::{process, process_vm, ptrace};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::{HashMap, HashSet};

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

/// What a process executes first; the distance to where it was to begin follows.
#[cfg(target_arch = "x86_64")]
const STUB: [&[u8]; 10] = [
    &[0xb8, 0x43, 0x01, 0x00, 0x00], // mov eax, SYS_userfaultfd
    &[0xbf, 0x01, 0x00, 0x08, 0x00], // mov edi, O_CLOEXEC | UFFD_USER_MODE_ONLY
    &[0x0f, 0x05],                   // syscall
    &[0x89, 0xc7],                   // mov edi, eax
    &[0xb8, 0x03, 0x00, 0x00, 0x00], // mov eax, SYS_close
    &[0x0f, 0x05],                   // syscall
    &[0x31, 0xc0, 0x31, 0xff],       // xor eax, eax; xor edi, edi
    &[0x31, 0xc9],                   // xor ecx, ecx
    &[0x45, 0x31, 0xdb],             // xor r11d, r11d
    &[0xe9],                         // jmp, by four bytes
];
#[cfg(not(target_arch = "x86_64"))]
const STUB: [&[u8]; 0] = [];

/// It is written in words.
const STUB_ALIGN_BYTES: u64 = 16;

/// The stub at address `at`, which goes on at `entry`; `None` where that is too far, or there is none.
fn stub(at: u64, entry: u64) -> Option<Vec<u8>> {
    const DISTANCE_BYTES: u64 = 4;
    let mut code = STUB.concat();
    let end = at.checked_add(code.len() as u64 + DISTANCE_BYTES)?;
    let distance = i32::try_from(entry.wrapping_sub(end).cast_signed()).ok()?;
    code.extend(distance.to_le_bytes());
    (!STUB.is_empty()).then_some(code)
}

/// The processes in which each page faults by itself.
#[derive(Debug, Default)]
pub(crate) struct FaultAround {
    /// Threads that are about to call userfaultfd(2) in the stub.
    beginning: HashSet<i32>,
    /// Threads in that call.
    opening: HashSet<i32>,
    of_processes: HashMap<i32, OwnedFd>,
    /// Threads that are mapping a file, and so many bytes of it.
    mapping: HashMap<i32, u64>,
}

impl FaultAround {
    /// This process has executed a program, and stands before its first instruction.
    pub fn executed(&mut self, pid: i32) {
        self.ended(pid);
        if begin_at_stub(pid).is_some() {
            self.beginning.insert(pid);
        }
    }

    /// This thread has ended.
    pub fn ended(&mut self, tid: i32) {
        self.beginning.remove(&tid);
        self.opening.remove(&tid);
        self.mapping.remove(&tid);
        self.of_processes.remove(&tid);
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
    if STUB.is_empty() {
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

/// Has a process begin at a stub that goes on where it was to begin.
fn begin_at_stub(pid: i32) -> Option<()> {
    // A filter survives an exec.
    if process::has_seccomp_filter(pid).unwrap_or(true) {
        return None;
    }
    let entry = ptrace::instruction_pointer(pid).ok()?;
    let mappings = maps::read(pid).ok()?;
    let text = mappings
        .iter()
        .find(|m| (m.start..m.end).contains(&entry))?;
    let at = end_of_text(pid, &mappings, text, entry)?;
    let at = at.checked_next_multiple_of(STUB_ALIGN_BYTES)?;
    let code = stub(at, entry)?;
    if at.checked_add(code.len() as u64)? > text.end {
        return None;
    }
    ptrace::write_text(pid, at, &code).ok()?;
    ptrace::jump(pid, at).ok()
}

/// Where what the program has of this mapping ends, which holds its entry: the rest of the page is nobody's.
fn end_of_text(pid: i32, mappings: &[Mapping], text: &Mapping, entry: u64) -> Option<u64> {
    let is_of_file = |m: &&Mapping| (m.dev, m.inode) == (text.dev, text.inode);
    let first = mappings.iter().filter(is_of_file).find(|m| m.offset == 0)?;
    if text.inode == 0 || text.shared {
        return None;
    }
    let mut header = vec![0; page_size().min(first.end - first.start) as usize];
    let read = process_vm::read(pid, first.start, &mut header).ok()?;
    let at = entry.checked_sub(first.start)?;
    end_of_segment(header.get(..read)?, at)?.checked_add(first.start)
}

/// Where the segment ends that holds the byte `at`, both from the first byte of an ELF file as it is mapped. `None` where
/// zeros follow it, and of programs that are not of the stub's ABI.
fn end_of_segment(header: &[u8], at: u64) -> Option<u64> {
    let identity = [0x7f, b'E', b'L', b'F', libc::ELFCLASS64, libc::ELFDATA2LSB];
    if !header.starts_with(&identity) || u16_at(header, 18)? != libc::EM_X86_64 {
        return None;
    }
    let table = usize::try_from(u64_at(header, 32)?).ok()?;
    let entries = (0..usize::from(u16_at(header, 56)?)).map_while(|index| {
        let entry = header.get(table.checked_add(index * size_of::<libc::Elf64_Phdr>())?..)?;
        let (kind, offset) = (u32_at(entry, 0)?, u64_at(entry, 8)?);
        let (address, in_file) = (u64_at(entry, 16)?, u64_at(entry, 32)?);
        Some((kind, offset, address, in_file, u64_at(entry, 40)?))
    });
    let loaded: Vec<_> = entries.filter(|entry| entry.0 == libc::PT_LOAD).collect();
    let (.., base, _, _) = loaded.iter().find(|(_, offset, ..)| *offset == 0)?;
    let of_segment = |&(_, _, address, in_file, in_memory): &(u32, u64, u64, u64, u64)| {
        let start = address.checked_sub(*base)?;
        let end = start.checked_add(in_file)?;
        ((start..end).contains(&at) && in_file == in_memory).then_some(end)
    };
    loaded.iter().find_map(of_segment)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_ne_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine::Lcg;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_stub_goes_on_at_the_entry() {
        for (at, entry) in [(0x40_1000, 0x40_0123), (0x1000, 0x7fff_0000)] {
            let code = stub(at, entry).expect("near enough");
            let distance = code.last_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            let end = at + code.len() as u64;
            assert_eq!(
                end.checked_add_signed(distance.expect("4 bytes").into()),
                Some(entry)
            );
        }
        assert_eq!(stub(0x1000, 1 << 40), None, "too far");
        assert_eq!(stub(u64::MAX, 0), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_end_of_our_own_text_is_in_its_last_page() {
        let pid = process::own_pid();
        let entry = the_end_of_our_own_text_is_in_its_last_page as fn() as usize as u64;
        let mappings = maps::read(pid).expect("own maps");
        let text = mappings.iter().find(|m| (m.start..m.end).contains(&entry));
        let text = text.expect("the function is mapped");
        let end = end_of_text(pid, &mappings, text, entry).expect("an ELF file");
        assert!(entry < end && end <= text.end && text.end - end < page_size());
        // The stack holds no program.
        let stack = mappings
            .iter()
            .find(|m| m.label.as_deref() == Some("[stack]"));
        let stack = stack.expect("we have one");
        assert_eq!(end_of_text(pid, &mappings, stack, stack.start), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn programs_of_another_abi_are_left_as_they_are() {
        let exe = std::fs::read("/proc/self/exe").expect("own program");
        let entry = u64_at(&exe, 24).expect("e_entry");
        let end = |at: usize, byte: u8| {
            let mut header = exe[..4096].to_vec();
            header[at] = byte;
            end_of_segment(&header, entry)
        };
        assert!(end(4, libc::ELFCLASS64).is_some());
        assert_eq!(end(4, libc::ELFCLASS32), None);
        assert_eq!(end(18, libc::EM_386 as u8), None);
        assert_eq!(end(0, b'#'), None);
    }

    #[test]
    fn no_header_is_trusted() {
        let exe = std::fs::read("/proc/self/exe").expect("own program");
        let mut random = Lcg(1);
        for _ in 0..100_000 {
            let mut header = exe[..1024].to_vec();
            for _ in 0..8 {
                // Behind what says that it is ours.
                header[20 + random.below(1_004) as usize] = random.below(256) as u8;
            }
            header.truncate(random.below(1025) as usize);
            let _ = end_of_segment(&header, random.below(1 << 20));
        }
    }
}
