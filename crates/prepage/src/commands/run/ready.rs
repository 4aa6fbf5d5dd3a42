//! A launch that was decided ahead: the command is executed at once, and a process that is split off before that fetches for it. What
//! the launch taught is learned when it is over, by `prepage-launch`: nothing else runs beside the command.

use super::alone::{END_AFTER_S, EXEC_MAX};
use super::{Ahead, Found, RunArguments, complain, execute, execute_held, prepare};
use prepage_core::identity::AppId;
use prepage_core::machine::Nanos;
use prepage_engine::{Accompanied, ReadyLaunch};
use prepage_kernel::clock::{monotonic_ns, wall_ns};
use prepage_kernel::spawn::{Detached, Launched, fork_detached};
use prepage_kernel::{Process, signals};
use rustix::fs::MemfdFlags;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The word that gives `prepage-launch` a launch that is over, on its standard input.
pub const OVER: &str = "over";

/// Most bytes of it.
const OVER_BYTES_MAX: u64 = 4 << 20;

/// A launch that has begun, and what it takes to learn from it. Paths are absolute.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begun {
    /// The application.
    pub app: AppId,
    /// Its executable.
    pub exe: Option<String>,
    /// Where its profile is.
    pub store: OsString,
    /// The configuration that was named.
    pub config: Option<OsString>,
    /// The file for a report.
    pub report: Option<OsString>,
    /// What was found before it.
    pub found: Found,
    /// When it began, on the monotonic clock.
    pub began: Nanos,
    /// The same in nanoseconds since 1970.
    pub began_wall_ns: i64,
}

/// A launch that is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct Over {
    /// As it began.
    pub begun: Begun,
    /// What it was.
    pub launch: Accompanied,
}

impl Over {
    /// What standard input holds; `None` where that is nothing of the kind.
    pub fn read() -> Option<Self> {
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(OVER_BYTES_MAX);
        input.read_to_end(&mut bytes).ok()?;
        postcard::from_bytes(&bytes).ok()
    }

    /// Has `program` learn from it.
    fn hand_over(&self, program: &Path) -> Option<()> {
        let bytes = postcard::to_stdvec(self).ok()?;
        let memory = rustix::fs::memfd_create(OVER, MemfdFlags::CLOEXEC).ok()?;
        let mut memory = File::from(memory);
        memory.write_all(&bytes).ok()?;
        memory.rewind().ok()?;
        // Not executed by this process: a thread of a prefetch that hangs would have to end first.
        Command::new(program).arg(OVER).stdin(memory).spawn().ok()?;
        Some(())
    }
}

/// Runs the command, helped by what is ready; `learner` is the program that learns from it.
pub fn run(arguments: &RunArguments, ahead: Ahead, asked: Nanos, learner: &Path) -> ExitCode {
    let began = monotonic_ns();
    if let Some(refused) = prepare(arguments) {
        complain(refused);
        return ExitCode::from(1);
    }
    let mut absolute = arguments.clone();
    absolute.make_absolute();
    let Ahead {
        ready,
        app,
        exe,
        store,
    } = ahead;
    let begun = Begun {
        app,
        exe,
        store: absolute.store.unwrap_or(store).into(),
        config: absolute.config.map(Into::into),
        report: absolute.report.map(Into::into),
        found: Found {
            asked,
            not_left_alone: began,
        },
        began,
        began_wall_ns: wall_ns(),
    };
    let held = fork_detached(move |detached| {
        // What is refused costs what was learned, at most; and so does whatever else goes wrong.
        let _ = signals::ends_after(Signal::TERM.as_raw(), END_AFTER_S);
        begun.accompany(ready, &detached, learner);
        0
    });
    match held {
        Ok(held) => execute_held(Some(held), arguments),
        Err(_) => execute(arguments),
    }
}

impl Begun {
    /// Accompanies it, in the process that was split off.
    fn accompany(self, ready: ReadyLaunch, detached: &Detached, learner: &Path) -> Option<()> {
        let root = Process::open(detached.original_pid()).ok();
        let wait_exec = || matches!(detached.wait_exec(EXEC_MAX), Ok(Launched::Yes));
        let launch = ready
            .accompany(root.as_ref(), self.began, wait_exec)
            .ok()??;
        let over = Over {
            begun: self,
            launch,
        };
        over.hand_over(learner)
    }
}
