//! What has a process make a userfaultfd of its own: a few instructions in what its program's text leaves free of its last
//! page, which the process goes through when it begins.
//!
//! A process that was executed begins with all registers clear, and the stub leaves them clear. One that was forked has those of
//! the call that made it, whose result is 0 in it, and which the stub leaves as they are but for those that a system call
//! changes anyway (rcx, r11). Where it goes on lies on its own stack, below the 128 bytes that its ABI lets functions use without
//! saying so (the red zone).

use crate::maps::{self, Mapping};
use crate::page::page_size;
use crate::ring::{u32_at, u64_at};
use crate::{process, process_vm, ptrace};

/// What both stubs do: a descriptor is made, and closed.
#[cfg(target_arch = "x86_64")]
const MAKE: [&[u8]; 6] = [
    &[0xb8, 0x43, 0x01, 0x00, 0x00], // mov eax, SYS_userfaultfd
    &[0xbf, 0x01, 0x00, 0x08, 0x00], // mov edi, O_CLOEXEC | UFFD_USER_MODE_ONLY
    &SYSCALL,
    &[0x89, 0xc7],                   // mov edi, eax
    &[0xb8, 0x03, 0x00, 0x00, 0x00], // mov eax, SYS_close
    &SYSCALL,
];
#[cfg(not(target_arch = "x86_64"))]
const MAKE: [&[u8]; 0] = [];

/// What an executed process goes on with; the distance to where it was to begin follows.
const TO_ENTRY: [&[u8]; 4] = [
    &[0x31, 0xc0, 0x31, 0xff], // xor eax, eax; xor edi, edi
    &[0x31, 0xc9],             // xor ecx, ecx
    &[0x45, 0x31, 0xdb],       // xor r11d, r11d
    &[0xe9],                   // jmp, by four bytes
];

/// What a forked process begins with, its stack pointer at where it goes on, below its red zone: push rdi.
const FROM_FORK: [u8; 1] = [0x57];

/// What it goes on with. No flag is changed, by these or by [`MAKE`].
const TO_FORK: [&[u8]; 5] = [
    &[0x5f],                                           // pop rdi
    &[0xb8, 0x00, 0x00, 0x00, 0x00],                   // mov eax, 0
    &[0x59],                                           // pop rcx
    &[0x48, 0x8d, 0xa4, 0x24, 0x80, 0x00, 0x00, 0x00], // lea rsp, [rsp + 128]
    &[0xff, 0xe1], // jmp rcx: a return would not match the shadow stack
];

/// syscall, which a forked process goes on after as well.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Both are written in words.
const ALIGN_BYTES: u64 = 16;

/// Whether this architecture has any.
pub(super) const fn is_known() -> bool {
    !MAKE.is_empty()
}

/// The stub of an executed process at address `at`, which goes on at `entry`; `None` where that is too far, or there is none.
fn at_exec(at: u64, entry: u64) -> Option<Vec<u8>> {
    const DISTANCE_BYTES: u64 = 4;
    let mut code = [MAKE.concat(), TO_ENTRY.concat()].concat();
    let end = at.checked_add(code.len() as u64 + DISTANCE_BYTES)?;
    let distance = i32::try_from(entry.wrapping_sub(end).cast_signed()).ok()?;
    code.extend(distance.to_le_bytes());
    is_known().then_some(code)
}

/// The stub of a forked process, wherever it lies.
fn at_fork() -> Vec<u8> {
    [FROM_FORK.to_vec(), MAKE.concat(), TO_FORK.concat()].concat()
}

/// What an executed process has been given besides the stub that it begins at.
pub(super) struct Given {
    /// Where the stub for those that it forks lies; there may be no room for one.
    pub fork_stub: Option<u64>,
}

/// Has a process that was just executed begin at a stub that goes on where it was to begin.
pub(super) fn begin_executed(pid: i32) -> Option<Given> {
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
    let at = at.checked_next_multiple_of(ALIGN_BYTES)?;
    let mut code = at_exec(at, entry)?;
    let room = usize::try_from(text.end.checked_sub(at)?).ok()?;
    let fork_at = code.len().next_multiple_of(ALIGN_BYTES as usize);
    let forked = at_fork();
    let has_fork = fork_at + forked.len() <= room;
    if has_fork {
        code.resize(fork_at, 0);
        code.extend(forked);
    }
    if code.len() > room {
        return None;
    }
    ptrace::write(pid, at, &code).ok()?;
    ptrace::jump(pid, at).ok()?;
    Some(Given {
        fork_stub: has_fork.then_some(at + fork_at as u64),
    })
}

/// Has a process that was just forked, with memory of its own, begin at the stub for that, which lies at `at` as it did in its
/// parent, and go on where it was to begin.
pub(super) fn begin_forked(pid: i32, at: u64) -> Option<()> {
    const RED_ZONE_BYTES: u64 = 128;
    const WORD_BYTES: u64 = size_of::<u64>() as u64;
    if process::has_seccomp_filter(pid).unwrap_or(true) {
        return None;
    }
    let code = at_fork();
    let mut there = vec![0; code.len()];
    process_vm::read(pid, at, &mut there).ok()?;
    if there != code {
        return None;
    }
    let next = ptrace::instruction_pointer(pid).ok()?;
    let mut call = [0; SYSCALL.len()];
    process_vm::read(pid, next.checked_sub(call.len() as u64)?, &mut call).ok()?;
    // Another instruction keeps registers that this one does not.
    if call != SYSCALL {
        return None;
    }
    let stack = ptrace::stack_pointer(pid).ok()?;
    let top = stack.checked_sub(RED_ZONE_BYTES + WORD_BYTES)?;
    // One word more is pushed: there is room for both, or nothing is changed.
    let pushed = top.checked_sub(WORD_BYTES)?;
    let words = [0, next].map(u64::to_ne_bytes).concat();
    ptrace::write(pid, pushed, &words).ok()?;
    ptrace::go_on_at(pid, at, top).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine::Lcg;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_stub_goes_on_at_the_entry() {
        for (at, entry) in [(0x40_1000, 0x40_0123), (0x1000, 0x7fff_0000)] {
            let code = at_exec(at, entry).expect("near enough");
            let distance = code.last_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            let end = at + code.len() as u64;
            assert_eq!(
                end.checked_add_signed(distance.expect("4 bytes").into()),
                Some(entry)
            );
        }
        assert_eq!(at_exec(0x1000, 1 << 40), None, "too far");
        assert_eq!(at_exec(u64::MAX, 0), None);
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
