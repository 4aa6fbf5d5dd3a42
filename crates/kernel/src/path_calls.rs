//! The paths that a process, and all that it starts, opens, stats, reads as links, lists, connects to and executes, missing ones
//! too: FAST's system-call profiler (section 4.2; the paper ran strace). By ptrace, at both ends of every system call.
//!
//! **Why every call.** A seccomp filter (SECCOMP_RET_TRACE, or a user notification) would stop at calls with paths only.
//! But a filter cannot be taken back: once the tracer is gone, its calls fail with `ENOSYS`, for the rest of the
//! application's life. Tracepoints name an address, and reading the path from there afterwards gets 15 % of them
//! wrong, unnoticed; those of newer kernels that have the text cut it at 128 bytes or less. fanotify sees nothing that
//! does not exist.
//!
//! **What it costs.** Two stops for every call of any kind: 6 us a call, 12 where each stop wakes an idle core of a
//! virtual machine (examples/launch_cost.rs). It is for a first launch, to learn from.
//!
//! **What the application notices.** Its time, and the TracerPid in its /proc/self/status. Signals, job control and
//! exit statuses pass through. If the tracer ends, even by SIGKILL, the application runs on ([`crate::ptrace`]).
//! A process can have one tracer: whoever asks to be traced by its parent is let go, and where a process of the tree
//! attaches to another (a debugger, a crash reporter) all are. Under a tracer without CAP_SYS_PTRACE, the kernel would
//! execute a set-user-id program without its rights: a process about to do so is let go too (but for scripts whose
//! *interpreter* is one), and so is one that makes a call of another ABI than ours (32-bit programs), which may be that.
//! Where one begins to serve a file system (FUSE), as an AppImage's does, all are let go: it would wait for us at its next
//! call, and we for it, in a look-up of a path there or with the memory of a program that was executed there. What the kernel
//! does is not all hidden: a signal that is ignored interrupts a call that waits (`EINTR`) as one that is handled does.
//!
//! **What is missed.** Opens by io_uring; what a process does once it was let go.

use crate::error::{Error, Result};
use crate::fault_around::FaultAround;
use crate::path_resolution::{Resolved, resolve};
use crate::path_syscalls::{ARCHITECTURE, is_found, path_call};
use crate::ptrace::{self, Resume, Seen, Stop, SyscallInfo};
use crate::{clock, credentials, process, sched, signals};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

pub use crate::path_syscalls::PathCallKind;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCall<'a> {
    /// The process that made it.
    pub pid: i32,
    /// What it did.
    pub kind: PathCallKind,
    /// The path, absolute: as given, or appended to the directory that it was relative to. That process's root may be
    /// another than ours ([`crate::open::process_root`]).
    pub path: &'a [u8],
    /// Whether it exists: false after `ENOENT` and `ENOTDIR`.
    pub found: bool,
    /// When it began, on CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
}

/// How a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// All processes have ended, or were let go one by one.
    NobodyLeft,
    /// We were told to.
    Told,
    /// One process of the tree wants to trace another.
    OtherTracer,
    /// One process of the tree begins to serve a file system.
    FileServer,
}

/// What a trace did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Calls given to the caller.
    pub calls: u64,
    /// Calls whose path could not be read, or was relative to a directory without a path.
    pub unresolved: u64,
    /// Why it ended.
    pub end: TraceEnd,
}

/// Threads whose calls are decoded at a time; those of further ones are let pass.
const THREADS_MAX: usize = 65_536;

/// Threads that are resumed in one go.
const BATCH_MAX: usize = 256;

/// Between kicks: one that comes just before the wait is lost.
const KICK_INTERVAL_US: u64 = 200;

/// A tracing thread. Dropping it ends the trace.
#[derive(Debug)]
pub struct PathTracer {
    told: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Traced>>>,
}

impl PathTracer {
    /// Traces the process `pid`, which has one thread and is no child of ours (better one that waits before its exec,
    /// [`crate::spawn`]), and what it starts from now on. Returns once it is traced.
    ///
    /// `visit` gets each call when it has ended, on the tracing thread, which holds up every traced thread that makes
    /// a call meanwhile: it should only take note.
    ///
    /// `EPERM` without the right to ptrace-attach, or where the process has a tracer already; `ENOSYS` on
    /// architectures whose system calls are not known here.
    pub fn start(pid: i32, visit: impl FnMut(PathCall<'_>) + Send + 'static) -> Result<PathTracer> {
        let subject = || format!("process {pid}");
        let failed = |what: &str| Error::malformed("trace", subject(), what);
        if ARCHITECTURE == 0 {
            return Err(Error::new("trace", subject(), rustix::io::Errno::NOSYS));
        }
        if process::threads(pid)?.len() != 1 {
            return Err(failed(
                "it has several threads: trace it before it starts them",
            ));
        }
        if process::stat(pid)?.ppid == rustix::process::getpid().as_raw_nonzero().get() {
            return Err(failed("it is our child: its exit status would be lost"));
        }
        signals::interrupts(signals::KICK)?;
        let told = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = sync_channel(1);
        let thread = std::thread::spawn({
            let told = Arc::clone(&told);
            move || {
                let traced = attach(pid).and_then(|()| Tracer::new(visit).run(&told, &ready));
                // Whoever waits for `ready` is told why instead.
                drop(ready);
                traced
            }
        });
        let mut tracer = PathTracer {
            told,
            thread: Some(thread),
        };
        match is_ready.recv() {
            Ok(()) => Ok(tracer),
            Err(_) => match tracer.join() {
                Err(error) => Err(error),
                // It ended before it could be stopped.
                Ok(_) => Err(Error::new("trace", subject(), rustix::io::Errno::SRCH)),
            },
        }
    }

    /// Whether nobody is traced any more.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the tree to end.
    pub fn wait(mut self) -> Result<Traced> {
        self.join()
    }

    /// Lets go of all processes, which run on and notice nothing.
    pub fn detach(mut self) -> Result<Traced> {
        self.kick();
        self.join()
    }

    fn kick(&mut self) {
        self.told.store(true, Ordering::Relaxed);
        while let Some(thread) = self.thread.as_ref().filter(|thread| !thread.is_finished()) {
            signals::send_to_thread(thread, signals::KICK);
            sched::sleep_us(KICK_INTERVAL_US);
        }
    }

    fn join(&mut self) -> Result<Traced> {
        let thread = self.thread.take().map(JoinHandle::join);
        match thread {
            Some(Ok(traced)) => traced,
            _ => Err(Error::malformed("trace", "own thread", "it panicked")),
        }
    }
}

impl Drop for PathTracer {
    fn drop(&mut self) {
        self.kick();
    }
}

/// Has the process stop at once, so that it stops at its system calls from there on.
fn attach(pid: i32) -> Result<()> {
    signals::unblock(signals::KICK)?;
    ptrace::seize(pid)?;
    ptrace::interrupt(pid)
}

/// A call that has begun.
struct Pending {
    kind: PathCallKind,
    path: Vec<u8>,
    time_ns: u64,
}

/// What is known of a traced thread.
struct Thread {
    pid: i32,
    pending: Option<Pending>,
}

/// What is to happen to a thread at the entry of a system call.
enum Entry {
    Continue,
    LetGo,
    EndTrace(TraceEnd),
}

struct Tracer<Visit> {
    visit: Visit,
    threads: HashMap<i32, Thread>,
    fault_around: FaultAround,
    /// Whether the kernel lets set-user-id programs keep their rights under us.
    keeps_rights: bool,
    traced: Traced,
}

impl<Visit: FnMut(PathCall<'_>)> Tracer<Visit> {
    fn new(visit: Visit) -> Self {
        const CAP_SYS_PTRACE: u32 = 19;
        let capabilities = credentials::effective_capabilities().unwrap_or(0);
        Tracer {
            visit,
            threads: HashMap::new(),
            fault_around: FaultAround::new(),
            keeps_rights: capabilities >> CAP_SYS_PTRACE & 1 != 0,
            traced: Traced {
                calls: 0,
                unresolved: 0,
                end: TraceEnd::Told,
            },
        }
    }

    /// Until nobody is left, or we are told to end; who is traced still is let go when this thread ends.
    fn run(&mut self, told: &AtomicBool, ready: &SyncSender<()>) -> Result<Traced> {
        let mut stopped: Vec<(i32, Stop)> = Vec::new();
        while !told.load(Ordering::Relaxed) {
            let seen = match stopped.len() {
                BATCH_MAX => Seen::Nothing,
                count => ptrace::wait(count == 0)?,
            };
            match seen {
                Seen::Stopped(tid, Stop::Signal(signal)) => {
                    ptrace::resume(tid, Resume::WithSignal(signal))?;
                }
                Seen::Stopped(tid, stop) => {
                    // Where another thread executes a program, the stop of the first one, whose number it takes, is none any more.
                    stopped.retain(|(other, _)| *other != tid);
                    stopped.push((tid, stop));
                }
                Seen::Ended(tid) => self.forget(tid),
                Seen::Interrupted => {}
                Seen::Nothing => {
                    for (tid, stop) in stopped.drain(..) {
                        if let Some(end) = self.stopped(tid, stop)? {
                            self.traced.end = end;
                            return Ok(self.traced);
                        }
                    }
                    // The first to stop was the one that was attached to; later the channel is full, or nobody listens.
                    let _ = ready.try_send(());
                }
                Seen::NoTracee => {
                    self.traced.end = TraceEnd::NobodyLeft;
                    break;
                }
            }
        }
        Ok(self.traced)
    }

    /// Resumes the thread, where the trace has not to end instead.
    fn stopped(&mut self, tid: i32, stop: Stop) -> Result<Option<TraceEnd>> {
        let resume = match stop {
            Stop::Syscall => return self.syscall(tid),
            Stop::Signal(signal) => Resume::WithSignal(signal),
            Stop::GroupStop => Resume::Listen,
            Stop::Exec => {
                self.renumber(tid);
                self.fault_around.executed(tid);
                Resume::ToSyscall
            }
            Stop::Begun => {
                self.fault_around.begun(tid);
                Resume::ToSyscall
            }
            Stop::Other => Resume::ToSyscall,
        };
        ptrace::resume(tid, resume)?;
        Ok(None)
    }

    /// This thread has ended, or is none of ours any more.
    fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
        self.fault_around.ended(tid);
    }

    /// The thread that executed a program has the number of its process now, and its call is still pending.
    fn renumber(&mut self, tid: i32) {
        let Ok(former) = ptrace::former_tid(tid) else {
            return;
        };
        if let Some(thread) = self.threads.remove(&former) {
            self.threads.insert(tid, thread);
        }
    }

    fn syscall(&mut self, tid: i32) -> Result<Option<TraceEnd>> {
        let info = match ptrace::syscall(tid) {
            // Killed at its stop.
            Err(error) if error.is_gone() => return Ok(None),
            info => info?,
        };
        let mut resume = Resume::ToSyscall;
        let mut ended = None;
        match info {
            SyscallInfo::Entry {
                architecture: ARCHITECTURE,
                number,
                arguments,
            } => {
                self.fault_around.call_begins(tid, number, &arguments);
                match self.entry(tid, number, &arguments) {
                    Entry::Continue => {}
                    Entry::LetGo => resume = Resume::Detach,
                    Entry::EndTrace(end) => return Ok(Some(end)),
                }
            }
            SyscallInfo::Exit { result } => {
                self.fault_around.call_ends(tid, result);
                let pending = self.threads.get_mut(&tid);
                ended = pending.and_then(|thread| {
                    Some((thread.pid, thread.pending.take()?, is_found(result)))
                });
            }
            SyscallInfo::Entry { .. } => resume = Resume::Detach,
            SyscallInfo::None => {}
        }
        // First the application, then our notes.
        ptrace::resume(tid, resume)?;
        if resume == Resume::Detach {
            self.forget(tid);
        }
        if let Some((pid, call, found)) = ended {
            self.traced.calls += 1;
            (self.visit)(PathCall {
                pid,
                kind: call.kind,
                path: &call.path,
                found,
                time_ns: call.time_ns,
            });
        }
        Ok(None)
    }

    fn entry(&mut self, tid: i32, number: u64, arguments: &[u64; 6]) -> Entry {
        if number == libc::SYS_ptrace as u64 {
            return wanted_tracer(arguments[0]);
        }
        let Some((kind, argument)) = path_call(number) else {
            return Entry::Continue;
        };
        let may_lose_rights = kind == PathCallKind::Exec && !self.keeps_rights;
        let path = match resolve(tid, argument, arguments) {
            Resolved::Path(path) => path,
            _ if may_lose_rights => return Entry::LetGo,
            Resolved::Unknown => {
                self.traced.unresolved += 1;
                return Entry::Continue;
            }
            Resolved::Nothing => return Entry::Continue,
        };
        if serves_files(kind, &path) {
            return Entry::EndTrace(TraceEnd::FileServer);
        }
        if may_lose_rights && gives_rights(&path) {
            return Entry::LetGo;
        }
        let pending = Some(Pending {
            kind,
            path,
            time_ns: clock::monotonic_ns(),
        });
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.pending = pending;
        } else if self.threads.len() < THREADS_MAX
            && let Ok(pid) = process::process_of_thread(tid)
        {
            self.threads.insert(tid, Thread { pid, pending });
        }
        Entry::Continue
    }
}

/// What to do about a process that calls ptrace with this request.
fn wanted_tracer(request: u64) -> Entry {
    match u32::try_from(request) {
        Ok(libc::PTRACE_TRACEME) => Entry::LetGo,
        Ok(libc::PTRACE_ATTACH | libc::PTRACE_SEIZE) => Entry::EndTrace(TraceEnd::OtherTracer),
        _ => Entry::Continue,
    }
}

/// Whether a process that makes this call is about to serve a file system: it opens FUSE's device, or has a program of libfuse's
/// do so, which has the right to mount.
fn serves_files(kind: PathCallKind, path: &[u8]) -> bool {
    let mut parts = path.rsplit(|&byte| byte == b'/');
    match kind {
        PathCallKind::Open => path == b"/dev/fuse",
        PathCallKind::Exec => parts
            .next()
            .is_some_and(|name| name.starts_with(b"fusermount")),
        _ => false,
    }
}

/// Whether executing the file may give a process rights that it has not: set-user-id, set-group-id, file capabilities. Which file
/// it is that a process calls so by /proc/self, it alone knows.
fn gives_rights(path: &[u8]) -> bool {
    if [&b"/proc/self/"[..], b"/proc/thread-self/"]
        .iter()
        .any(|own| path.starts_with(own))
    {
        return true;
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let set_id = std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o6000 != 0);
    set_id || rustix::fs::getxattr(path, c"security.capability", &mut [0_u8; 64]).is_ok()
}
