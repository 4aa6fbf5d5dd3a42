//! ptrace(2), by PTRACE_SEIZE (3.4+) and PTRACE_GET_SYSCALL_INFO (5.3+): stopping a process, and all that it starts, at
//! its system calls.
//!
//! Every request belongs to the calling *thread*: the tracer. The kernel lets go of all tracees when that thread ends,
//! however it ends, and they run on:
//! - PTRACE_O_EXITKILL is not set.
//! - PTRACE_O_TRACESYSGOOD is: the number of a system call's stop is then no valid signal, so that a tracee that is
//!   let go at such a stop gets none. Without it, it would get SIGTRAP.
//! - The stop of a tracee that gets a signal is looked at and not consumed (WNOWAIT): the kernel forgets the signal when
//!   it is, and a tracer that ended before it resumed the tracee would take the signal with it.
//!
//! Ending the thread is also the only way to let go that no tracee notices: PTRACE_DETACH needs a stopped tracee, and
//! stopping one (PTRACE_INTERRUPT) makes epoll_wait(2) and a few other calls fail with `EINTR`.

use crate::error::{Error, Result};
use crate::ring::{u32_at, u64_at};

/// struct ptrace_syscall_info has grown, and the kernel writes what fits.
const SYSCALL_INFO_BYTES: usize = 88;
/// What PTRACE_O_TRACESYSGOOD makes of SIGTRAP.
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// Why a tracee stands still, until it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At a system call: [`syscall`] says which, and at which end.
    Syscall,
    /// Its program was replaced. All other threads of the process are gone; this one has taken the number of the process.
    /// [`former_tid`] says which it had.
    Exec,
    /// It gets this signal when it is resumed with it.
    Signal(i32),
    /// Its process is stopped by a signal, as by Ctrl-Z: it must be resumed by [`Resume::Listen`], which leaves it so.
    GroupStop,
    /// It was just attached to, by us or as the child of one that is traced, and stands where it begins; or it was interrupted, or
    /// continued after its process was stopped.
    Begun,
    /// It has started another process or thread.
    Other,
}

/// What [`wait`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A tracee stopped. [`Stop::Signal`] is seen until it is resumed, any other stop once.
    Stopped(i32, Stop),
    /// A tracee ended.
    Ended(i32),
    /// Nothing that lasts: a signal handler ran in this thread, or a tracee was killed at its stop.
    Interrupted,
    /// Nothing new, and we were not to wait.
    Nothing,
    /// There is no tracee.
    NoTracee,
}

/// How to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until the next end of a system call, or another stop.
    ToSyscall,
    /// The same, with this signal delivered first.
    WithSignal(i32),
    /// Not at all, but for SIGCONT (PTRACE_LISTEN).
    Listen,
    /// For good: it is no tracee any more.
    Detach,
}

/// One end of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallInfo {
    /// It begins.
    Entry {
        /// AUDIT_ARCH_*: a process may use several ABIs.
        architecture: u32,
        /// The number, as this ABI counts.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It ends.
    Exit {
        /// The negative error number where it failed.
        result: i64,
    },
    /// Neither.
    None,
}

const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;

/// Makes the calling thread the tracer of one thread, and of all threads and processes that it starts (but those made
/// with CLONE_UNTRACED). It is not stopped, and stops at no system call until it was stopped and resumed once.
///
/// `EPERM` without the right to ptrace-attach (security/commoncap.c; Yama's ptrace_scope), and where it has a tracer.
pub fn seize(tid: i32) -> Result<()> {
    let operation = "ptrace(PTRACE_SEIZE)";
    // SAFETY: takes options, no pointer.
    unsafe { request(operation, libc::PTRACE_SEIZE, tid, 0, OPTIONS as usize) }
}

/// Has a tracee stop once, with [`Stop::Begun`].
pub fn interrupt(tid: i32) -> Result<()> {
    let operation = "ptrace(PTRACE_INTERRUPT)";
    // SAFETY: takes no pointer.
    unsafe { request(operation, libc::PTRACE_INTERRUPT, tid, 0, 0) }
}

/// Resumes a stopped tracee. One that was killed meanwhile is not an error: [`wait`] will tell.
pub fn resume(tid: i32, how: Resume) -> Result<()> {
    let (operation, code, signal) = match how {
        Resume::ToSyscall => ("ptrace(PTRACE_SYSCALL)", libc::PTRACE_SYSCALL, 0),
        Resume::WithSignal(signal) => ("ptrace(PTRACE_SYSCALL)", libc::PTRACE_SYSCALL, signal),
        Resume::Listen => ("ptrace(PTRACE_LISTEN)", libc::PTRACE_LISTEN, 0),
        Resume::Detach => ("ptrace(PTRACE_DETACH)", libc::PTRACE_DETACH, 0),
    };
    // SAFETY: these take a signal's number, no pointer.
    match unsafe { request(operation, code, tid, 0, signal as usize) } {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

/// Which end of which system call a tracee stands at ([`Stop::Syscall`]).
pub fn syscall(tid: i32) -> Result<SyscallInfo> {
    let mut info = [0_u8; SYSCALL_INFO_BYTES];
    let address = info.as_mut_ptr() as usize;
    let operation = "ptrace(PTRACE_GET_SYSCALL_INFO)";
    let code = libc::PTRACE_GET_SYSCALL_INFO;
    // SAFETY: the kernel writes at most as many bytes as are said to be there, into `info`, which is exclusively ours.
    unsafe { request(operation, code, tid, info.len(), address) }?;
    Ok(parse_info(&info).unwrap_or(SyscallInfo::None))
}

/// u8 op, pad[3]; u32 arch; u64 instruction_pointer, stack_pointer; then of an entry u64 nr, args[6], of an exit
/// i64 rval; u8 is_error.
fn parse_info(bytes: &[u8]) -> Option<SyscallInfo> {
    Some(match *bytes.first()? {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            let mut arguments = [0; 6];
            for (index, argument) in arguments.iter_mut().enumerate() {
                *argument = u64_at(bytes, 32 + 8 * index)?;
            }
            SyscallInfo::Entry {
                architecture: u32_at(bytes, 4)?,
                number: u64_at(bytes, 24)?,
                arguments,
            }
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => SyscallInfo::Exit {
            result: u64_at(bytes, 24)? as i64,
        },
        _ => SyscallInfo::None,
    })
}

/// What the calling thread's tracees do: waits for it, or only looks. A child of this very *process* must not be among
/// them: its exit status would be taken from whoever waits for it.
///
/// The kernel looks at the youngest tracee first. Whoever resumes each at once starves the older ones: take all that
/// have stopped, then resume them.
pub fn wait(blocking: bool) -> Result<Seen> {
    let looking = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
    let looking = if blocking {
        looking
    } else {
        looking | libc::WNOHANG
    };
    let (tid, code, status) = match wait_for(libc::P_ALL, 0, looking) {
        Ok((0, ..)) => return Ok(Seen::Nothing),
        Ok(seen) => seen,
        Err(error) => match error.errno() {
            Some(libc::EINTR) => return Ok(Seen::Interrupted),
            Some(libc::ECHILD) => return Ok(Seen::NoTracee),
            _ => return Err(error),
        },
    };
    // One at a signal stays as it is; an exit is told to the parent only after we have taken note.
    let (consuming, seen) = match code {
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => (libc::WEXITED, Seen::Ended(tid)),
        _ => match stop(status) {
            Stop::Signal(signal) => return Ok(Seen::Stopped(tid, Stop::Signal(signal))),
            stop => (libc::WSTOPPED, Seen::Stopped(tid, stop)),
        },
    };
    match wait_for(libc::P_PID, tid as libc::id_t, consuming | libc::WNOHANG) {
        // Killed at its stop: its end will be seen.
        Ok((0, ..)) => Ok(Seen::Interrupted),
        Ok(_) => Ok(seen),
        Err(error) => match error.errno() {
            Some(libc::ECHILD) => Ok(Seen::Interrupted),
            _ => Err(error),
        },
    }
}

/// Where a stopped tracee goes on. Known on x86-64 only; elsewhere `ENOSYS`.
pub(crate) fn instruction_pointer(tid: i32) -> Result<u64> {
    register(tid, INSTRUCTION_POINTER)
}

/// Has a stopped tracee go on at this address. As [`instruction_pointer`].
pub(crate) fn jump(tid: i32, address: u64) -> Result<()> {
    set_register(tid, INSTRUCTION_POINTER, address)
}

/// Where the stack of a stopped tracee ends that it uses. As [`instruction_pointer`].
pub(crate) fn stack_pointer(tid: i32) -> Result<u64> {
    register(tid, STACK_POINTER)
}

/// Has a stopped tracee go on at this address with its stack ending there: both are set or neither, whatever becomes of the
/// tracer. As [`instruction_pointer`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn go_on_at(tid: i32, address: u64, stack: u64) -> Result<()> {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    let data = registers.as_mut_ptr() as usize;
    // SAFETY: the kernel writes one user_regs_struct, to `registers`, which is exclusively ours.
    unsafe { request("ptrace(PTRACE_GETREGS)", libc::PTRACE_GETREGS, tid, 0, data) }?;
    // SAFETY: plain numbers, zeroed above.
    let registers = libc::user_regs_struct {
        rip: address,
        rsp: stack,
        ..unsafe { registers.assume_init() }
    };
    let data = std::ptr::from_ref(&registers) as usize;
    // SAFETY: the kernel reads one user_regs_struct; what the tracee executes and writes is its own memory.
    unsafe { request("ptrace(PTRACE_SETREGS)", libc::PTRACE_SETREGS, tid, 0, data) }
}

/// As [`instruction_pointer`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn go_on_at(tid: i32, _address: u64, _stack: u64) -> Result<()> {
    known("ptrace(PTRACE_SETREGS)", tid, None).map(|_| ())
}

/// Where a register lies in the user area, in bytes; nothing where that is not known.
type RegisterOffset = Option<usize>;

#[cfg(target_arch = "x86_64")]
const INSTRUCTION_POINTER: RegisterOffset = Some(std::mem::offset_of!(libc::user_regs_struct, rip));
#[cfg(target_arch = "x86_64")]
const STACK_POINTER: RegisterOffset = Some(std::mem::offset_of!(libc::user_regs_struct, rsp));
#[cfg(not(target_arch = "x86_64"))]
const INSTRUCTION_POINTER: RegisterOffset = None;
#[cfg(not(target_arch = "x86_64"))]
const STACK_POINTER: RegisterOffset = None;

fn register(tid: i32, offset: RegisterOffset) -> Result<u64> {
    const OPERATION: &str = "ptrace(PTRACE_PEEKUSER)";
    let mut word = 0_u64;
    let address = known(OPERATION, tid, offset)?;
    let data = std::ptr::from_mut(&mut word) as usize;
    // SAFETY: the call itself, which glibc's wrapper is not: the kernel writes one word, to `word`, which is exclusively ours.
    match unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKUSER, tid, address, data) } {
        0 => Ok(word),
        _ => Err(Error::last(OPERATION, of_thread(tid))),
    }
}

fn set_register(tid: i32, offset: RegisterOffset, value: u64) -> Result<()> {
    const OPERATION: &str = "ptrace(PTRACE_POKEUSER)";
    let offset = known(OPERATION, tid, offset)?;
    let code = libc::PTRACE_POKEUSER;
    // SAFETY: takes a word, no pointer; what the tracee executes and writes is its own memory.
    unsafe { request(OPERATION, code, tid, offset, value as usize) }
}

fn known(operation: &'static str, tid: i32, offset: RegisterOffset) -> Result<usize> {
    offset.ok_or_else(|| Error::new(operation, of_thread(tid), rustix::io::Errno::NOSYS))
}

/// Writes to the memory of a stopped tracee, to its text as well: the page becomes its own. Zeros fill the last word.
pub(crate) fn write(tid: i32, at: u64, bytes: &[u8]) -> Result<()> {
    const OPERATION: &str = "ptrace(PTRACE_POKETEXT)";
    let words = bytes.chunks(size_of::<usize>());
    for (address, chunk) in (at as usize..).step_by(size_of::<usize>()).zip(words) {
        let mut word = [0; size_of::<usize>()];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = usize::from_ne_bytes(word);
        // SAFETY: takes a word, no pointer into our memory.
        unsafe { request(OPERATION, libc::PTRACE_POKETEXT, tid, address, word) }?;
    }
    Ok(())
}

/// The number that a thread had before [`Stop::Exec`].
pub fn former_tid(tid: i32) -> Result<i32> {
    let mut message: libc::c_ulong = 0;
    let address = std::ptr::from_mut(&mut message) as usize;
    let operation = "ptrace(PTRACE_GETEVENTMSG)";
    // SAFETY: the kernel writes one unsigned long, to `message`, which is exclusively ours.
    unsafe { request(operation, libc::PTRACE_GETEVENTMSG, tid, 0, address) }?;
    i32::try_from(message).map_err(|_| Error::malformed(operation, of_thread(tid), "no thread"))
}

fn of_thread(tid: i32) -> String {
    format!("process {tid}")
}

/// # Safety
/// What `data` points to, if the request has the kernel write there, must have the room and be exclusively borrowed.
unsafe fn request(
    operation: &'static str,
    code: libc::c_uint,
    tid: i32,
    address: usize,
    data: usize,
) -> Result<()> {
    // SAFETY: as the caller promises; no request that is used here writes to our memory otherwise.
    match unsafe { libc::ptrace(code as _, tid, address, data) } {
        -1 => Err(Error::last(operation, of_thread(tid))),
        _ => Ok(()),
    }
}

/// A thread's number, CLD_* and what goes with it.
fn wait_for(kind: libc::idtype_t, id: libc::id_t, flags: libc::c_int) -> Result<(i32, i32, i32)> {
    let flags = flags | libc::__WALL | libc::__WNOTHREAD;
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes one siginfo_t, to `info`.
    if unsafe { libc::waitid(kind, id, info.as_mut_ptr(), flags) } != 0 {
        return Err(Error::last("waitid", "the tracees"));
    }
    // SAFETY: plain numbers, zeroed above, and filled by the kernel as that of a SIGCHLD, which has pid and status.
    unsafe {
        let info = info.assume_init();
        Ok((info.si_pid(), info.si_code, info.si_status()))
    }
}

fn stop(status: i32) -> Stop {
    let (signal, event) = (status & 0xff, status >> 8);
    match (signal, event) {
        (SYSCALL_STOP, 0) => Stop::Syscall,
        (signal, 0) => Stop::Signal(signal),
        (_, libc::PTRACE_EVENT_EXEC) => Stop::Exec,
        (
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU,
            libc::PTRACE_EVENT_STOP,
        ) => Stop::GroupStop,
        (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Begun,
        _ => Stop::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_told_apart() {
        assert_eq!(stop(libc::SIGTRAP | 0x80), Stop::Syscall);
        assert_eq!(stop(libc::SIGTRAP), Stop::Signal(libc::SIGTRAP));
        assert_eq!(stop(libc::SIGSTOP), Stop::Signal(libc::SIGSTOP));
        let event = |event: i32, signal: i32| stop(event << 8 | signal);
        assert_eq!(
            event(libc::PTRACE_EVENT_STOP, libc::SIGTSTP),
            Stop::GroupStop
        );
        assert_eq!(event(libc::PTRACE_EVENT_STOP, libc::SIGTRAP), Stop::Begun);
        assert_eq!(event(libc::PTRACE_EVENT_EXEC, libc::SIGTRAP), Stop::Exec);
        assert_eq!(event(libc::PTRACE_EVENT_VFORK, libc::SIGTRAP), Stop::Other);
    }

    #[test]
    fn entries_and_exits() {
        let mut bytes = [0; SYSCALL_INFO_BYTES];
        assert_eq!(parse_info(&bytes), Some(SyscallInfo::None));
        bytes[0] = libc::PTRACE_SYSCALL_INFO_ENTRY;
        bytes[4..8].copy_from_slice(&0xc000_003e_u32.to_ne_bytes());
        for (word, value) in [257_u64, 1, 2, 3, 4, 5, 6].into_iter().enumerate() {
            bytes[24 + 8 * word..32 + 8 * word].copy_from_slice(&value.to_ne_bytes());
        }
        let entry = SyscallInfo::Entry {
            architecture: 0xc000_003e,
            number: 257,
            arguments: [1, 2, 3, 4, 5, 6],
        };
        assert_eq!(parse_info(&bytes), Some(entry));
        assert_eq!(parse_info(&bytes[..79]), None, "truncated");
        bytes[0] = libc::PTRACE_SYSCALL_INFO_EXIT;
        bytes[24..32].copy_from_slice(&(-2_i64).to_ne_bytes());
        assert_eq!(parse_info(&bytes), Some(SyscallInfo::Exit { result: -2 }));
    }
}
