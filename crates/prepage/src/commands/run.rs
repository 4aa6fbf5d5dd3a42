//! `run`: launches a command, helped. The process that was asked becomes the command, so that its pid, its terminal, its
//! signals and its exit status are the command's; whatever is done for the launch is done beside it, by the service or,
//! where there is none, by a process that was split off.

mod alone;
mod by_service;
mod known;
mod own_cost;
mod plain;
mod progress;
pub mod ready;
mod tracer;
mod words;

pub use alone::learn;
pub use known::{Ahead, Found, Known, known};
pub use plain::plain;

use crate::client::Client;
use crate::config::{self, Config};
use crate::identity;
use crate::launch::command::future_process;
use crate::launch::options::{LaunchOptions, Record, parse_word};
use crate::launch::record::LaunchRecord;
use clap::Args;
use prepage_core::identity::AppId;
use prepage_core::machine::Nanos;
use prepage_core::params::launch::{LaunchOrder, LaunchStart};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::exec::exec;
use prepage_kernel::spawn::Held;
use progress::{Progress, during};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long the service may take to answer before the command runs all the same.
const ANSWER_MAX: Duration = Duration::from_millis(50);

/// Launch a command, helped: fetch what its launches read, ahead of it and beside it
///
/// The first launches (launch.n_rawseq, 2) are recorded; from then on what they have in common is fetched. The command
/// is this process: its pid, terminal, signals and exit status are its own. With the service running, the service
/// helps; without it, root is helped all the same, and any other user's command just runs.
///
/// An application is known by its executable, or by the script, jar or module that is run: `python3 x.py`,
/// `bash x.sh`, `java -jar x.jar`, `node x.js`. So is what a command runs that only runs others: `nice x`, `timeout 9 x`,
/// `sh -c 'x y'`. What a shell is given that is more than one command is known by a digest of its text.
#[derive(Clone, Debug, PartialEq, Args, Default)]
#[command(after_long_help = "\
ORDER:
  launch       as launches first access the pages
  lba          by their place on the disk
  whole-files  every file from beginning to end
  none         nothing is fetched
START:
  together     the command runs beside its prefetch
  before       the prefetch is complete before the command runs
  only         the command is not run
WHEN:
  auto         while there is something to learn
  always, never

Exit status: the command's; 126 where it cannot be executed, 127 where it is not
found, or its interpreter; with --start only, 0 where it is; 1 where --report or
--cold cannot be done, 2 wrong usage.

Examples:
  prepage run gimp
  prepage run -v -- python3 tool.py --flag       and say what is done
  prepage run --start only gimp                  fetch what gimp will need,
                                                 without launching it
  sudo prepage run --cold --report r.json git status
                                                 measured: with a cold page
                                                 cache, one JSON line about it
What is learned is kept for each user: under sudo it is root's.")]
pub struct RunArguments {
    /// Drop what the page cache holds right before: for measurements (root).
    #[arg(long)]
    cold: bool,
    /// Fetch in this order: launch, lba, whole-files or none. Default: launch.order of the configuration, launch; and now
    /// and then not at all, to measure whether it helps.
    #[arg(long, value_name = "ORDER", value_parser = |text: &str| parse_word::<LaunchOrder>(text))]
    order: Option<LaunchOrder>,
    /// When the command runs, seen from its prefetch: together, before or only. Default: launch.start of the configuration,
    /// together.
    #[arg(long, value_name = "START", value_parser = |text: &str| parse_word::<LaunchStart>(text))]
    start: Option<LaunchStart>,
    /// Record the launch, to learn from it: auto, always or never.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = |text: &str| parse_word::<Record>(text))]
    record: Record,
    /// Say on standard error what is done, and what is not and why.
    #[arg(short, long)]
    verbose: bool,
    /// Directory of the profiles; then the service is not asked. Default: service.state of the configuration,
    /// /var/lib/prepage.
    #[arg(long, value_name = "DIR", env = "PREPAGE_STORE")]
    store: Option<PathBuf>,
    /// The configuration of a launch without the service; FILE.d/*.toml are its drop-ins. Where it is wrong, that is said,
    /// and the defaults are used. Default: /etc/prepage/prepage.toml, where it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Append one JSON line about the launch to FILE once it is over, which may be after the command.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The command and its arguments: from its first word on nothing is an option of prepage's.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// One launch that was asked for.
#[derive(Debug)]
struct Asked {
    /// The application that the command is.
    app: AppId,
    /// The process that it becomes.
    process: identity::ProcessFacts,
    options: LaunchOptions,
    arguments: RunArguments,
    /// When, in nanoseconds of the monotonic clock.
    at: Nanos,
    /// When it was found that the application is not left alone, if it was.
    not_left_alone: Option<Nanos>,
}

impl RunArguments {
    fn options(&self) -> LaunchOptions {
        LaunchOptions {
            order: self.order,
            start: self.start,
            record: self.record,
        }
    }

    /// The process that is split off has the root directory for its own.
    fn make_absolute(&mut self) {
        let paths = [&mut self.store, &mut self.report, &mut self.config];
        for path in paths.into_iter().flatten() {
            // Only an empty path has none: it is refused where it is used.
            *path = std::path::absolute(&*path).unwrap_or_default();
        }
    }

    /// Says something, if that is wanted.
    fn say(&self, text: impl std::fmt::Display) {
        if self.verbose {
            complain(text);
        }
    }

    /// What is said where a prefetch that was asked for before the command, or without it, takes long. Beside a command nothing
    /// is: standard error is the command's.
    fn progress(&self) -> Progress {
        Progress::begin(match self.start {
            Some(LaunchStart::Before) => {
                Some("fetching what the command will need, before it runs")
            }
            Some(LaunchStart::Only) => Some("fetching what the command would need"),
            Some(LaunchStart::Together) | None => None,
        })
    }

    /// Whether nothing is asked for that only a launch can give which is not left alone.
    fn may_be_left_alone(&self) -> bool {
        self.options().is_default() && self.report.is_none()
    }

    fn runs_command(&self) -> bool {
        self.start != Some(LaunchStart::Only)
    }
}

/// `prepage run`, of which this may have been found. Returns only where the command is not run.
pub fn run(socket: &Path, mut arguments: RunArguments, found: Option<Found>) -> ExitCode {
    let at = found.map_or_else(monotonic_ns, |found| found.asked);
    arguments.make_absolute();
    if let Some(refused) = prepare(&arguments) {
        complain(refused);
        return ExitCode::from(1);
    }
    let command = arguments.command.clone();
    let owner = rustix::process::geteuid().as_raw();
    let process = future_process(&command, owner);
    let app = process.as_ref().and_then(identity::program);
    let (Some(process), Some(app)) = (process, app) else {
        if !arguments.runs_command() {
            let name = command.into_iter().next().unwrap_or_default();
            complain(format_args!(
                "{}: no such program to fetch for",
                words::shown(&name)
            ));
            return ExitCode::from(127);
        }
        // exec knows best why.
        return execute(&arguments);
    };
    let asked = Asked {
        options: arguments.options(),
        app,
        process,
        arguments,
        at,
        not_left_alone: found.map(|found| found.not_left_alone),
    };
    // A store that was named is not the service's.
    if asked.arguments.store.is_none() {
        match Client::connect_within(socket, ANSWER_MAX) {
            Ok(client) => {
                if let Some(config) = &asked.arguments.config {
                    complain(format_args!(
                        "configuration {}: not read: the service helps, by its own; --store launches without it",
                        config.display()
                    ));
                }
                return by_service::run(client, socket, &asked);
            }
            Err(error) if owner != 0 => {
                asked.arguments.say(format_args!("not helped: {error}"));
                return execute(&asked.arguments);
            }
            Err(_) => {}
        }
    }
    alone::run(asked)
}

/// Says something to whoever called.
pub(super) fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "prepage: {text}");
}

/// What comes before anything else: the report's file, so that its reader finds it, and the cold cache.
fn prepare(arguments: &RunArguments) -> Option<String> {
    if let Some(path) = &arguments.report
        && let Err(error) = append(path, "")
    {
        return Some(format!("report {}: {error}", path.display()));
    }
    if arguments.cold {
        let dropped = during("--cold: writing back and dropping the page cache", || {
            rustix::fs::sync();
            std::fs::write("/proc/sys/vm/drop_caches", "3")
        });
        return dropped
            .err()
            .map(|e| format!("--cold needs root: /proc/sys/vm/drop_caches: {e}"));
    }
    None
}

/// Appends to a file; one write, so that lines of several launches do not mix.
fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// Appends a launch's line to its report.
fn append_record(path: &Path, record: &LaunchRecord) -> std::io::Result<()> {
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    append(path, &line)
}

/// The configuration; the defaults where it is wrong, since nothing waits for that to be mended. Somebody wrote it, and hears so.
pub(super) fn configuration(file: Option<&Path>) -> Config {
    config::load(file).unwrap_or_else(|error| {
        complain(format_args!("the defaults are used: {error}"));
        Config::default()
    })
}

/// Becomes the command. Returns where that fails, with a shell's words and status.
pub fn execute(arguments: &RunArguments) -> ExitCode {
    execute_by(arguments, exec)
}

/// The same, with the process that this one has split off, which learns of it.
fn execute_held(held: Option<Held>, arguments: &RunArguments) -> ExitCode {
    execute_by(arguments, |program, rest| match held {
        Some(held) => held.exec(program, rest),
        None => exec(program, rest),
    })
}

fn execute_by(
    arguments: &RunArguments,
    exec: impl FnOnce(&OsStr, &[OsString]) -> prepage_kernel::Error,
) -> ExitCode {
    if !arguments.runs_command() {
        return ExitCode::SUCCESS;
    }
    let Some((program, rest)) = arguments.command.split_first() else {
        return ExitCode::from(2);
    };
    let error = exec(program, rest);
    let (status, text) = words::refusal(program, &error);
    complain(text);
    ExitCode::from(status)
}
