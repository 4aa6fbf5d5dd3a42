//! Commands that are held before their first instruction: everything that starting them costs, entering their control
//! groups above all, is over when the clock begins to run.

use crate::clock::now_ns;
use crate::display::session::entering;
use crate::error::{Context, Error, Result};
use crate::log::with_last_words;
use prepage_kernel::readable::readable_within;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Where and how a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Circumstance<'a> {
    /// The `cgroup.procs` files of its groups.
    pub procs: &'a [PathBuf],
    /// Its whole environment.
    pub environment: &'a [(String, OsString)],
    /// Its directory.
    pub directory: &'a Path,
    /// Where its messages go.
    pub log: &'a Path,
}

/// A command that waits to be let go.
#[derive(Debug)]
pub struct Held {
    child: Child,
    gate: UnixStream,
}

/// A command that was let go.
#[derive(Debug)]
pub struct Running {
    /// `CLOCK_MONOTONIC` when it was.
    pub t0_ns: u64,
    child: Child,
    pidfd: OwnedFd,
}

impl Held {
    /// Starts the command up to the point where only its exec is left.
    pub fn start(command: &[OsString], at: Circumstance<'_>) -> Result<Self> {
        let (mut gate, theirs) = UnixStream::pair().context("make", "a pair of sockets")?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(at.log)
            .context("open", at.log.display())?;
        let output = log.try_clone().context("share", at.log.display())?;
        let program = command.first().cloned().unwrap_or_default();
        let child = entering(at.procs, true)?
            .arg("--")
            .args(command)
            .env_clear()
            .envs(at.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(at.directory)
            .stdin(OwnedFd::from(theirs))
            .stdout(output)
            .stderr(log)
            .spawn()
            .context("start", program.display())?;
        let mut ready = [0];
        gate.read_exact(&mut ready).map_err(|_| {
            let cause = with_last_words("it ended", at.log);
            Error::new("start", program.display(), cause)
        })?;
        Ok(Self { child, gate })
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Lets it go.
    pub fn release(mut self) -> Result<Running> {
        let pid = Pid::from_child(&self.child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("watch", "a process")?;
        let t0_ns = now_ns();
        self.gate.write_all(b"g").context("let go", "a process")?;
        Ok(Running {
            t0_ns,
            child: self.child,
            pidfd,
        })
    }
}

impl Running {
    /// Waits for its exit until a moment of the monotonic clock. Returns the moment of the exit and the status.
    pub fn wait_until(&mut self, until_ns: u64) -> Result<Option<(u64, ExitStatus)>> {
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        if !readable_within(self.pidfd.as_fd(), left).context("wait for", "a process")? {
            return Ok(None);
        }
        let t_ns = now_ns();
        let status = self.child.wait().context("wait for", "a process")?;
        Ok(Some((t_ns, status)))
    }

    /// Takes the status of a process that has been ended.
    pub fn reap(mut self) {
        let _ = self.child.wait();
    }
}
