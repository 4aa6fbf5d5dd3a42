//! clone(2) and fork(2): a launch in the caller's own process, observed by another that it never notices.
//!
//! Whoever launches a command for somebody else (a shell, a desktop, a service manager) must pass on its terminal, its
//! job control, its signals and its exit status. All of them are right by construction where the process that was asked
//! *becomes* the command: it splits off a detached process, which sets up what it needs meanwhile, and executes the
//! command under its own pid.
//!
//! ```text
//!     original ---- fork_detached ---- Held::wait ------ exec: it is the command now
//!                        \                  ^
//!                         detached: set up, release, observe, end
//! ```
//!
//! The detached process is nobody's child that matters: it was forked twice, so that init or a subreaper takes care of
//! it, and the command never sees a SIGCHLD or a child that it does not know. It is in a session of its own (no Ctrl-C,
//! no hangup), has /dev/null for its standard streams and nothing else open that the command inherits (a pipe's
//! reader would wait for it), and keeps no directory busy. It stays in the original's control group.

use crate::error::{Error, Result};
use crate::exec::exec;
use crate::process;
use crate::readable::readable_within;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::time::{Duration, Instant};

/// The original's end.
#[derive(Debug)]
pub struct Held {
    socket: OwnedFd,
}

/// Why [`Held::wait`] returned. None of them is a reason not to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The detached process is ready.
    Released,
    /// It is about to do something that takes longer, and asks to be waited for once more.
    AskedForMore,
    /// It has ended.
    Abandoned,
    /// It took too long.
    TimedOut,
}

/// The detached process's end.
#[derive(Debug)]
pub struct Detached {
    socket: OwnedFd,
    original_pid: i32,
}

/// What became of the original, as [`Detached::wait_exec`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// It executes the command (or was killed before).
    Yes,
    /// exec failed with this error number.
    Failed(i32),
    /// Not yet.
    TimedOut,
}

/// Messages are one i32. From the detached process: 0 to release, -1 to ask for more time, its pid to ask for the right to
/// trace. From the original: 0 to grant it, or the error number of its exec; the end of the stream says that it has
/// executed, since the socket is closed by exec.
const GO: i32 = 0;
const MORE: i32 = -1;
const GRANTED: i32 = 0;

/// Exit status of the detached process where `work` panics, as Rust's own.
const STATUS_PANICKED: i32 = 101;

/// Splits off a detached process, which runs `work` and ends with its result as exit status; it never returns from
/// here. What the two say to each other afterwards goes by [`Held`] and [`Detached`].
///
/// The process must have one thread: another's locks would stay locked in the copy forever. It must not be the init of a
/// pid namespace or a subreaper, to which the detached process would fall, and so to the command.
pub fn fork_detached(work: impl FnOnce(Detached) -> i32) -> Result<Held> {
    let original_pid = rustix::process::getpid().as_raw_nonzero().get();
    may_fork(original_pid)?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| Error::new("socketpair", "own process", error))?;
    // No exit signal, where fork has SIGCHLD: the command could inherit it as a pending one.
    const NONE: libc::c_long = 0;
    // SAFETY: a fork by the system call itself, of a process with one thread (all arguments are 0, in whatever order the
    // architecture has them). The copy only forks again and ends.
    match unsafe { libc::syscall(libc::SYS_clone, NONE, NONE, NONE, NONE, NONE) } {
        -1 => Err(Error::last("clone", "own process")),
        0 => {
            // SAFETY: the process has one thread. libc's fork, since this copy lives on and must know its own tid.
            let status = match unsafe { libc::fork() } {
                0 => {
                    drop(ours);
                    run_detached(theirs, original_pid, work)
                }
                -1 => Error::last("fork", "").errno().unwrap_or(libc::EAGAIN),
                _ => 0,
            };
            exit_now(status)
        }
        between => {
            drop(theirs);
            reap(between as libc::pid_t)?;
            Ok(Held { socket: ours })
        }
    }
}

fn may_fork(pid: i32) -> Result<()> {
    let refused = |what: &str| Err(Error::malformed("fork", "own process", what));
    if process::threads(pid)?.len() != 1 {
        return refused("it has several threads");
    }
    let subreaper = rustix::process::child_subreaper()
        .map_err(|error| Error::new("prctl(PR_GET_CHILD_SUBREAPER)", "own process", error))?;
    if pid == 1 || subreaper.is_some() {
        return refused("orphans are given to it, as to an init: the command would get ours");
    }
    Ok(())
}

/// Waits for the process between the original and the detached one, which ends at once.
fn reap(between: libc::pid_t) -> Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one int. Children without an exit signal are waited for by __WALL only.
        if unsafe { libc::waitpid(between, &mut status, libc::__WALL) } == between {
            break;
        }
        let error = Error::last("waitpid", format!("process {between}"));
        match error.errno() {
            Some(libc::EINTR) => {}
            // Whoever started us ignores SIGCHLD: nothing is left to wait for.
            Some(libc::ECHILD) => return Ok(()),
            _ => return Err(error),
        }
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        errno => Err(Error::new(
            "fork",
            "own process",
            Errno::from_raw_os_error(errno),
        )),
    }
}

/// Ends this process without what belongs to the original: its buffered output, its exit handlers.
fn exit_now(status: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(status) }
}

fn run_detached(socket: OwnedFd, original_pid: i32, work: impl FnOnce(Detached) -> i32) -> i32 {
    // The original's frames are above us and must not be unwound in this copy.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match detach() {
        Ok(()) => work(Detached {
            socket,
            original_pid,
        }),
        Err(_) => 1,
    }));
    result.unwrap_or(STATUS_PANICKED)
}

fn detach() -> Result<()> {
    let failed = |operation| move |error: Errno| Error::new(operation, "own process", error);
    rustix::process::setsid().map_err(failed("setsid"))?;
    rustix::process::chdir("/").map_err(failed("chdir"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::new("open", "/dev/null", error))?;
    rustix::stdio::dup2_stdin(&null).map_err(failed("dup2"))?;
    rustix::stdio::dup2_stdout(&null).map_err(failed("dup2"))?;
    rustix::stdio::dup2_stderr(&null).map_err(failed("dup2"))?;
    close_inherited()
}

/// Closes what was open when this program was executed: all descriptors that exec would pass on. Those of this
/// program itself are all marked to be closed by exec.
fn close_inherited() -> Result<()> {
    const PATH: &str = "/proc/self/fd";
    let failed = |error| Error::new("read directory", PATH, error);
    let entries = std::fs::read_dir(PATH).map_err(failed)?;
    let numbers = entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|n| n.parse().ok())));
    let numbers: std::io::Result<Vec<Option<i32>>> = numbers.collect();
    for fd in numbers.map_err(failed)?.into_iter().flatten() {
        if fd > libc::STDERR_FILENO && is_inheritable(fd) {
            // SAFETY: a descriptor that this program did not open, and so has no owner in it. An error leaves it closed.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

fn is_inheritable(fd: i32) -> bool {
    // SAFETY: used for one call only, in which a number that is not open any more (that of the directory) is EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

fn send(socket: &OwnedFd, message: i32) -> Result<()> {
    // NOSIGNAL: the other end may have gone.
    rustix::net::send(socket, &message.to_ne_bytes(), SendFlags::NOSIGNAL)
        .map(drop)
        .map_err(|error| Error::new("send", "the other process", error))
}

enum Received {
    Message(i32),
    End,
    TimedOut,
}

fn receive(socket: &OwnedFd, since: Instant, wait_max: Duration) -> Result<Received> {
    let failed = |operation| move |error: Errno| Error::new(operation, "the other process", error);
    let left = wait_max.saturating_sub(since.elapsed());
    if !readable_within(socket.as_fd(), left).map_err(failed("poll"))? {
        return Ok(Received::TimedOut);
    }
    let mut message = [0; 4];
    loop {
        match rustix::net::recv(socket, &mut message, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(Received::End),
            Ok(_) => return Ok(Received::Message(i32::from_ne_bytes(message))),
            // Said once, before what the other end has sent, where it was closed with a message that nobody had read: by a
            // command that did not wait for it.
            Err(Errno::CONNRESET) => {}
            Err(error) => return Err(failed("recv")(error)),
        }
    }
}

impl Held {
    /// Waits for the detached process to get ready, at most `hold_max`; grants it the right to trace us if it asks.
    pub fn wait(&self, hold_max: Duration) -> Result<Hold> {
        let since = Instant::now();
        loop {
            match receive(&self.socket, since, hold_max)? {
                Received::Message(GO) => return Ok(Hold::Released),
                Received::Message(MORE) => return Ok(Hold::AskedForMore),
                Received::Message(pid) => {
                    permit_tracer(pid);
                    send(&self.socket, GRANTED)?;
                }
                Received::End => return Ok(Hold::Abandoned),
                Received::TimedOut => return Ok(Hold::TimedOut),
            }
        }
    }

    /// [`exec`], and tells the detached process where it fails.
    pub fn exec(self, program: &OsStr, arguments: &[impl AsRef<OsStr>]) -> Error {
        let error = exec(program, arguments);
        // It may have ended.
        let _ = send(&self.socket, error.errno().unwrap_or(libc::EINVAL));
        error
    }
}

/// Yama (ptrace_scope 1, the default of some distributions) lets only ancestors trace; this makes one exception, for
/// one process and as long as it lives, also across our exec.
fn permit_tracer(pid: i32) {
    // SAFETY: takes a number. `EINVAL` without Yama, where nothing has to be permitted.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0) };
}

impl Detached {
    /// The process that is, or becomes, the command.
    pub fn original_pid(&self) -> i32 {
        self.original_pid
    }

    /// Has the original permit us to trace it ([`crate::path_calls`]), which unprivileged users may need. It answers
    /// while it waits; at most `answer_max` is waited for.
    pub fn ask_to_trace(&self, answer_max: Duration) -> Result<()> {
        send(
            &self.socket,
            rustix::process::getpid().as_raw_nonzero().get(),
        )?;
        match receive(&self.socket, Instant::now(), answer_max)? {
            Received::Message(GRANTED) => Ok(()),
            _ => Err(Error::new("ask to trace", "the original", Errno::TIMEDOUT)),
        }
    }

    /// Asks the original for more time than it would wait ([`Hold::AskedForMore`]). It may have given up waiting: then
    /// this does nothing.
    pub fn ask_for_more_time(&self) {
        let _ = send(&self.socket, MORE);
    }

    /// Lets the original go on. It may have given up waiting: then this does nothing.
    pub fn release(&self) {
        let _ = send(&self.socket, GO);
    }

    /// Waits, at most `wait_max`, until the command is executed.
    pub fn wait_exec(&self, wait_max: Duration) -> Result<Launched> {
        Ok(match receive(&self.socket, Instant::now(), wait_max)? {
            Received::End => Launched::Yes,
            Received::Message(errno) => Launched::Failed(errno),
            Received::TimedOut => Launched::TimedOut,
        })
    }
}
