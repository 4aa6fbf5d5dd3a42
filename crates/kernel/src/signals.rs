//! signalfd(2): signals as something to poll for, instead of handlers that interrupt; and the one that interrupts.

use crate::error::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Signals that are blocked in the calling thread, and in those it creates later, and that arrive here instead.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

impl SignalFd {
    /// Blocks these signals (numbers as in signal(7)) and opens a descriptor that is readable when one has arrived. To
    /// be called before any other thread is created, since a thread that does not block them would take them.
    pub fn block_and_open(signals: &[i32]) -> Result<SignalFd> {
        let set = set_of(signals)?;
        change_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: -1 asks for a new descriptor; the set is initialised.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last("signalfd", "own thread"));
        }
        // SAFETY: a descriptor that the kernel has just made for us and that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(SignalFd { fd })
    }

    /// Takes the next signal that has arrived, if any: its number.
    pub fn read(&self) -> Result<Option<i32>> {
        let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has room for `size` bytes.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read == size as isize {
            // SAFETY: the kernel has filled the whole structure, which is plain numbers.
            let info = unsafe { info.assume_init() };
            return Ok(i32::try_from(info.ssi_signo).ok());
        }
        let error = std::io::Error::last_os_error();
        match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(None),
            _ => Err(Error::new("read", "signalfd", error)),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set_of(signals: &[i32]) -> Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the pointer is to.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for &signal in signals {
        // SAFETY: the set was initialised above; a number that is no signal is refused with EINVAL.
        if unsafe { libc::sigaddset(set.as_mut_ptr(), signal) } != 0 {
            return Err(Error::last("sigaddset", format!("signal {signal}")));
        }
    }
    // SAFETY: initialised above.
    Ok(unsafe { set.assume_init() })
}

/// Of the calling thread.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> Result<()> {
    // SAFETY: the set is initialised; a null pointer says that the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => {
            let error = std::io::Error::from_raw_os_error(error);
            Err(Error::new("pthread_sigmask", "own thread", error))
        }
    }
}

/// The signal that gets a thread of ours out of a call: see [`interrupts`]. Ignored by default, so that nothing dies of it.
pub const KICK: i32 = libc::SIGURG;

/// Lets the calling thread get this signal.
pub fn unblock(signal: i32) -> Result<()> {
    change_mask(libc::SIG_UNBLOCK, &set_of(&[signal])?)
}

/// Has this signal do nothing but interrupt: a system call that the thread which gets it waits in fails with `EINTR`.
/// For the whole process; to be used for a signal that nobody else uses.
pub fn interrupts(signal: i32) -> Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // Without SA_RESTART, calls are not resumed.
    let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    change_action(signal, Some(&action(handler, 0))).map(drop)
}

/// Has this signal end the process only so many seconds after it first came, by SIGALRM: enough to complete what it is about.
/// Where it is ignored, it stays so.
pub fn ends_after(signal: i32, seconds: u32) -> Result<()> {
    static SECONDS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn end_later(_signal: libc::c_int) {
        match SECONDS.swap(0, Ordering::Relaxed) {
            0 => {}
            // SAFETY: takes a number, and may be called by a handler (signal-safety(7)).
            seconds => _ = unsafe { libc::alarm(seconds) },
        }
    }
    if change_action(signal, None)?.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    SECONDS.store(seconds, Ordering::Relaxed);
    change_action(libc::SIGALRM, Some(&action(libc::SIG_DFL, 0)))?;
    unblock(libc::SIGALRM)?;
    let handler = end_later as extern "C" fn(libc::c_int) as libc::sighandler_t;
    change_action(signal, Some(&action(handler, libc::SA_RESTART))).map(drop)
}

fn action(handler: libc::sighandler_t, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: plain numbers and an empty set, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// What a signal does, until now. The new action, if there is one, must be a handler that any thread may run at any time.
fn change_action(signal: i32, new: Option<&libc::sigaction>) -> Result<libc::sigaction> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let mut old = action(libc::SIG_DFL, 0);
    // SAFETY: both are initialised, or null where none is to be set; handlers are those above, which may run anywhere.
    match unsafe { libc::sigaction(signal, new, &mut old) } {
        0 => Ok(old),
        _ => Err(Error::last("sigaction", format!("signal {signal}"))),
    }
}

/// Sends a signal to a thread of ours that was not joined yet. One that has ended gets none.
pub fn send_to_thread<T>(thread: &std::thread::JoinHandle<T>, signal: i32) {
    use std::os::unix::thread::JoinHandleExt;
    // SAFETY: the handle was not joined, so that its pthread_t is valid, even if the thread has ended.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), signal) };
}
