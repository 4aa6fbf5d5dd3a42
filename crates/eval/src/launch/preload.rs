//! Debian's daemon `preload` (0.6.4, package `preload`): what people install today to have programs launch faster. It
//! looks at the running processes once a cycle, keeps for each pair of programs how their running goes together, and
//! reads what the programs map that are likely to be run next.
//!
//! It is given what suits it best. Its configuration is the package's but for the cycle, 2 s for 20, so that it need not
//! learn for an hour. It learns only programs that run for half a cycle at least: those that are shorter are stopped before
//! their end and stay for some cycles. All programs run at the same times, so that each tells of all others. Before a
//! launch it is begun with what it has learned, as after boot, and it is done before the program begins.

use super::bench::{Bench, Learned};
use super::held::Running;
use super::record::{Parameters, Preloaded};
use super::sample;
use crate::clock::{now_ns, sleep_ms};
use crate::display::session::command_in;
use crate::error::{Context, Error, Result};
use crate::group::Group;
use crate::log::with_last_words;
use crate::processes;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Where the package has it.
const COMMAND: &str = "/usr/sbin/preload";

/// The package's configuration, with another cycle.
const CONFIGURATION: &str = "\
[model]
cycle = 2
usecorrelation = true
minsize = 2000000
memtotal = -10
memfree = 50
memcached = 0

[system]
doscan = true
dopredict = true
autosave = 3600
mapprefix = /usr/;/lib;/var/cache/;!/
exeprefix = !/usr/sbin/;!/usr/local/sbin/;/usr/;!/
processes = 30
sortstrategy = 3
";

/// How often the programs are run, for it to learn.
const SESSIONS: u32 = 3;
/// How long they run: three cycles and a margin.
const OPEN_MS: u64 = 6_500;
/// How long none of them runs, which it has to see, too: two cycles.
const CLOSED_MS: u64 = 4_000;
/// When a program that exits is stopped, in hundredths of a warm launch: it has mapped nearly everything by then.
const STOPPED_AT_PERCENT: u64 = 75;
/// How long it may take to be done with what it predicts.
const PREDICTED_LIMIT_MS: u64 = 20_000;
/// What is left to it then: readahead(2) returns when its reads are submitted, and the disk is not done with them.
const READ_MS: u64 = 200;
/// How long it may take to save what it has learned and end.
const END_LIMIT_MS: u64 = 5_000;

/// Whether it is installed.
pub fn is_installed() -> bool {
    Path::new(COMMAND).is_file()
}

/// The daemon with what it has learned, in a directory and a control group of the run.
#[derive(Clone, Debug)]
pub struct Preload {
    directory: PathBuf,
    group: Group,
}

/// The daemon while it runs.
struct Daemon {
    child: Child,
}

impl Preload {
    /// Lets it learn these programs.
    ///
    /// # Errors
    /// Where the package's own daemon runs: both would read ahead. Where it does not start, learn or end.
    pub fn learn(bench: &mut Bench, parameters: &Parameters, programs: &[Learned]) -> Result<Self> {
        if processes::are_running("preload") {
            let hint =
                "it runs already: stop it (service preload stop), it would help every launch";
            return Err(Error::new("start", "preload", hint));
        }
        let directory = bench.ground.places.disk.join("preload");
        fs::create_dir_all(&directory).context("make", directory.display())?;
        let preload = Self {
            directory,
            group: bench.ground.group("preload")?,
        };
        let configuration = preload.file("conf");
        fs::write(&configuration, CONFIGURATION).context("write", configuration.display())?;
        let mut times_ms = Vec::with_capacity(programs.len());
        for learned in programs {
            sample::warm_up(bench, parameters, &learned.program)?;
            let t_end_ns = sample::warm_up(bench, parameters, &learned.program)?;
            times_ms.push(t_end_ns / 1_000_000);
        }
        let daemon = preload.start("learned")?;
        for _ in 0..SESSIONS {
            let running = open(bench, programs, &times_ms)?;
            sleep_ms(OPEN_MS);
            bench.end_processes();
            running.into_iter().for_each(Running::reap);
            sleep_ms(CLOSED_MS);
        }
        daemon.end()?;
        Ok(preload)
    }

    /// Begins it as after boot, and ends it when everything that it predicts is in memory.
    ///
    /// # Errors
    /// Where it does not start, predict or end.
    pub fn fetch(&self) -> Result<Preloaded> {
        let (learned, state) = (self.file("learned"), self.file("state"));
        // It learns from what it sees now, too: each launch begins with the same knowledge.
        fs::copy(&learned, state).context("copy", learned.display())?;
        let began = now_ns();
        let daemon = self.start("state")?;
        let until = began + PREDICTED_LIMIT_MS * 1_000_000;
        let predicted = loop {
            let messages = fs::read_to_string(self.file("log")).unwrap_or_default();
            if let Some(predicted) = predicted(&messages) {
                break predicted;
            }
            if now_ns() > until {
                let cause = with_last_words("it predicts nothing", &self.file("log"));
                return Err(Error::new("wait for", "preload", cause));
            }
            sleep_ms(10);
        };
        let t_end_ns = now_ns() - began;
        sleep_ms(READ_MS);
        daemon.end()?;
        Ok(Preloaded {
            t_end_ns,
            ..predicted
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn start(&self, state: &str) -> Result<Daemon> {
        let log = self.file("log");
        fs::write(&log, "").context("write", log.display())?;
        let child = command_in(&self.group, COMMAND)?
            .args(["--foreground", "--verbose", "9", "--conffile"])
            .arg(self.file("conf"))
            .arg("--statefile")
            .arg(self.file(state))
            .arg("--logfile")
            .arg(log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start", COMMAND)?;
        Ok(Daemon { child })
    }
}

impl Daemon {
    /// Ends it; it saves what it has learned.
    fn end(mut self) -> Result<()> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = now_ns() + END_LIMIT_MS * 1_000_000;
        while now_ns() < until {
            if let Some(status) = self.child.try_wait().context("end", "preload")? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(Error::new("end", "preload", status)),
                };
            }
            sleep_ms(10);
        }
        // Whatever it is about: it must not read ahead for others.
        let _ = self.child.kill();
        let _ = self.child.wait();
        Err(Error::new(
            "end",
            "preload",
            "it did not end when it was told to",
        ))
    }
}

/// Runs all programs at once, each as far as it is to be seen.
fn open(bench: &Bench, programs: &[Learned], times_ms: &[u64]) -> Result<Vec<Running>> {
    let mut running = Vec::with_capacity(programs.len());
    let (windowed, exiting): (Vec<_>, Vec<_>) = programs
        .iter()
        .zip(times_ms)
        .partition(|(learned, _)| learned.program.window.is_some());
    for (learned, time_ms) in exiting {
        let program = &learned.program;
        running.push(bench.hold(program, &program.command)?.release()?);
        sleep_ms(time_ms * STOPPED_AT_PERCENT / 100);
        for pid in bench.group.pids().into_iter().filter_map(Pid::from_raw) {
            // One that has ended meanwhile was too fast to be seen this time.
            let _ = kill_process(pid, Signal::STOP);
        }
    }
    for (learned, time_ms) in windowed {
        let program = &learned.program;
        running.push(bench.hold(program, &program.command)?.release()?);
        sleep_ms(*time_ms);
    }
    Ok(running)
}

/// What it says that it has read; `None` until it is done.
fn predicted(said: &str) -> Option<Preloaded> {
    let (said, _) = said.split_once("state predicting end")?;
    let number = |before: &str, after: &str| -> u64 {
        let found = said.lines().find_map(|line| {
            let (_, rest) = line.split_once(before)?;
            rest.split_once(after)?.0.trim().parse().ok()
        });
        found.unwrap_or(0)
    };
    Some(Preloaded {
        files: number("] readahead ", " files"),
        kib: number("using ", "kb of it"),
        t_end_ns: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_read_is_known_when_it_is_done() {
        let begun = "[x] state predicting begin\n[x] 9220750kb available for preloading, using 101776kb of it\n";
        assert_eq!(predicted(begun), None);
        let done = format!("{begun}[x] readahead 18 files\n[x] state predicting end\n");
        let expected = Preloaded {
            files: 18,
            kib: 101_776,
            t_end_ns: 0,
        };
        assert_eq!(predicted(&done), Some(expected));
        let nothing = "[x] nothing to readahead\n[x] state predicting end\n";
        assert_eq!(predicted(nothing), Some(Preloaded::default()));
    }
}
