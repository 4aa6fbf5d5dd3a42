//! Programs that are executed, anybody's: how a launch is seen that nobody announces.

use prepage_core::machine::Nanos;
use prepage_kernel::exec_trace::ExecTrace;
use prepage_kernel::perf::{TracepointRings, Wakeup};
use prepage_kernel::tracefs::Tracefs;
use prepage_kernel::{Result, sched};
use rustix::fd::BorrowedFd;

/// Pages of each core's ring: more than a hundred execs with long paths.
const RING_PAGES: usize = 8;

/// Execs looked at at once; more at once are a build, and no person's launch.
const EXECS_MAX: usize = 64;

/// A process executed a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// When.
    pub at: Nanos,
    /// Which process.
    pub pid: i32,
    /// The file, as it was given to execve(2): a script's own path; what is no text in it is replaced.
    pub path: String,
}

/// The kernel's reports.
#[derive(Debug)]
pub struct Execs {
    trace: ExecTrace,
    rings: TracepointRings,
    is_on: bool,
}

impl Execs {
    /// Opens the rings, silent.
    ///
    /// # Errors
    /// Where tracefs or system-wide sampling is not to be had.
    pub fn open() -> Result<Self> {
        let trace = ExecTrace::find(&Tracefs::open()?)?;
        let cpus = sched::online_cpus()?;
        let wakeup = Wakeup::Events(1);
        let rings = TracepointRings::open(&[trace.event_id()], &cpus, RING_PAGES, wakeup)?;
        Ok(Self {
            trace,
            rings,
            is_on: false,
        })
    }

    /// Readable when a program was executed.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.fds()
    }

    /// Whether execs are reported: while they are not, they cost nothing.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn listen(&mut self, on: bool) -> Result<()> {
        match (self.is_on, on) {
            (false, true) => self.rings.enable()?,
            (true, false) => self.rings.disable()?,
            _ => {}
        }
        self.is_on = on;
        Ok(())
    }

    /// The execs since the last call, of which it `wants` the process and the file, oldest first.
    pub fn drain(&mut self, wants: impl Fn(i32, &str) -> bool) -> Vec<Exec> {
        let (trace, mut execs) = (&self.trace, Vec::new());
        self.rings.drain(|sample| {
            let event = trace.decode(sample.event_id, sample.raw);
            let path = event.map(|event| String::from_utf8_lossy(event.path));
            if let Some(path) =
                path.filter(|path| execs.len() < EXECS_MAX && wants(sample.pid, path))
            {
                execs.push(Exec {
                    at: sample.time_ns,
                    pid: sample.pid,
                    path: path.into_owned(),
                });
            }
        });
        execs.sort_by_key(|exec| exec.at);
        execs
    }
}
