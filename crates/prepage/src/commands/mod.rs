//! The commands of `prepage`: each is a call to the service and its answer in words, or as JSON.
//!
//! `prepage run` is read from the disk before what it launches, so it is a small program by itself ([`front()`]); it helps
//! launches that were decided ahead, and gives others to `prepage-launch`, and the other commands to `prepage-control`.

mod agent;
mod apps;
mod control;
mod doctor;
mod explain;
mod front;
mod launches;
mod run;
mod stats;
mod status;
mod stored;
mod table;

pub use front::{front, launch};

use crate::api::{INTERFACE, Target};
use crate::client::{Client, SOCKET_DEFAULT};
use crate::error::Error;
use crate::launch::options::parse_word;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use prepage_core::params::Mode;
use prepage_engine::CorePolicy;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use stored::Stored;

/// Tells prepaged which applications to make come back faster, launches commands faster, and shows what is done.
///
/// prepaged learns which pages an application touches when it is switched to or launched, and fetches exactly those the
/// next time, ahead of the faults. Nothing is changed in the application or the kernel.
#[derive(Debug, Parser)]
#[command(name = "prepage", bin_name = "prepage", version, max_term_width = 80, after_long_help = AFTER)]
struct CommandLine {
    /// Socket of the service.
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT, display_order = 100)]
    socket: PathBuf,
    /// Print JSON, for programs; run and agent print none.
    #[arg(long, global = true, display_order = 101)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Applications are named KIND:NAME@OWNER, as in desktop:org.gimp.GIMP@1000. KIND
is desktop (a desktop entry), unit (of systemd), container, executable (a path)
or named (by you), OWNER a user id. Where only one fits, `gimp` will do.
You may act on your own applications; root on all.

Exit status: 0 done; 1 refused or failed; 2 wrong usage; 3 the service is not
running.

Examples:
  prepage track --name gimp          from now on, also after restarts
  prepage status                     what is tracked
  prepage explain gimp               what the next switch would fetch, and why
  prepage stats gimp                 what the last switches did
  prepage run gimp                   launched, helped
  prepage doctor                     what works on this machine";

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow an application from now on, and after every restart of it or of the service
    ///
    /// Without an option: the application that runs this command. It is named by its systemd unit or desktop id, its
    /// container, or its program, and found again by that name after a restart. All its running copies are followed:
    /// what is printed names each. A switch that is said to be to one process fetches for that process's copy only.
    /// `service.applications` of the configuration tracks applications that do not run yet.
    #[command(after_long_help = "\
Examples:
  prepage track --pid $(pidof gimp)
  prepage track --name firefox             running now, found by its name
  prepage track --cgroup /sys/fs/cgroup/system.slice/x.service
  prepage track --pid 4711 --name editor   under a name of your own; after a
                                           restart found by its control group
                                           only, where it has one of its own")]
    Track(TargetArguments),
    /// Follow an application no longer; what was learned is kept
    ///
    /// Without an option: the application that runs this command. One that the configuration lists (service.applications) is to be
    /// taken out there first.
    #[command(
        after_long_help = "Examples:\n  prepage untrack --name gimp\n  prepage untrack --pid 4711"
    )]
    Untrack(TargetArguments),
    /// Say that a switch begins or ends
    ///
    /// For frameworks that know it, and for scripts. Without an option: the application that runs this command. It must
    /// be tracked. Switches that nobody says are found by window focus (`prepage agent`), by the onset of demand faults,
    /// and by the thawing of a control group.
    #[command(after_long_help = "\
Examples:
  prepage switch begin --name gimp   before its window is raised
  prepage switch end --name gimp     it is there; without this, it ends once no
                                     demand faults have been seen for 250 ms
                                     (switch.quiet_ms), at the latest after 3 s
                                     (switch.cap_ms)")]
    Switch {
        /// Which of the two.
        edge: Edge,
        #[command(flatten)]
        target: TargetArguments,
    },
    /// Bring back all of an application that is swapped out, ahead of its need
    ///
    /// For those who know when it will be needed: before a service takes requests again or is thawed, or once the machine woke up. Returns
    /// when it is done. Where a memory limit or the machine's memory leaves less, what a switch needs comes first. It must be
    /// tracked. Without an option: the application that runs this command.
    #[command(after_long_help = "\
Examples:
  prepage restore --name redis-server.service
  prepage restore --cgroup /sys/fs/cgroup/system.slice/x.service && \\
    echo 1 > ready                   then it is given requests")]
    Restore(TargetArguments),
    /// Show the mode, or change it until the service's next start (root)
    #[command(after_long_help = "\
Modes:
  off       nothing is observed, learned or fetched
  observe   observe and learn, never fetch
  anon      fetch anonymous pages only
  file      fetch file pages only
  full      fetch both: the default

Examples:
  prepage mode
  sudo prepage mode observe")]
    Mode {
        /// The mode to change to; without it, the mode is shown.
        #[arg(value_parser = |text: &str| parse_word::<Mode>(text))]
        mode: Option<Mode>,
    },
    /// Show on which cores file pages are fetched, or change it from the next switch on, until the service's next start
    /// (root)
    #[command(after_long_help = "\
Policies (ASAP section 6.5):
  asap        the default: one thread on the big cores. With
              fetch.file_order = file, the paper's, it takes the large files
              and a thread on each other core the rest, while that is idle;
              in the order of access, one thread alone can keep it
  big1        one thread on one big core
  big-all     one thread on each big core
  little1     one thread on one little core
  little-all  one thread on each little core
  iorap       one thread, page by page, and no anonymous pages, as IORap

Examples:
  prepage policy
  sudo prepage policy big-all")]
    Policy {
        /// The policy to change to; without it, the policy is shown.
        #[arg(value_parser = |text: &str| parse_word::<CorePolicy>(text))]
        policy: Option<CorePolicy>,
    },
    Run(run::RunArguments),
    /// Show the service's state and the applications tracked
    #[command(after_long_help = "\
Columns:
  state         running, switching or not running
  processes     that are followed
  switches      that were seen, since it was first tracked
  planned       pages that the next switch would fetch, anonymous and file
  tables        memory that what is known of it takes
  launches      that were seen
  launch phase  profiling: launches are recorded; prefetch: they are helped;
                or why they are left alone
  members       which process trees or control groups it is

Examples:
  prepage status
  prepage status --json | jq '.apps[].app'")]
    Status,
    /// Show, forget, export and import what was learned
    #[command(after_long_help = "\
Without the service, it is the store of `prepage run` that is shown and changed.

Examples:
  prepage apps list
  prepage apps list --store DIR           of another store than the service's
  prepage apps export gimp gimp.profile
  sudo prepage apps import gimp.profile   on another machine
  prepage apps forget gimp")]
    Apps {
        #[command(flatten)]
        store: StoreArgument,
        #[command(subcommand)]
        action: AppsAction,
    },
    /// Show what is known of an application, what would be fetched and why, and what the last switches and launches did
    #[command(after_long_help = "\
Histories read oldest first: + used in that switch, - not used. Pages with equal
histories are one line; probability is how often such pages were used next, and
those with at least the plan's confidence are fetched (budget.confidence, of
files budget.file_confidence).
Without the service, what `prepage run` keeps in its store is explained.

Examples:
  prepage explain gimp
  prepage explain gimp --store DIR
  prepage explain gimp --json | jq '.files[].of'")]
    Explain {
        /// The application.
        app: String,
        #[command(flatten)]
        store: StoreArgument,
    },
    /// Show what each of the last switches and launches did
    #[command(after_long_help = "\
Columns, in pages of 4 KiB on most machines, anonymous and file apart:
  faults      demand faults: pages the application had to wait for
  fetched     brought in by prepaging
  used        of these, seen used; unknown: nothing saw whether
  overtaken   of the faults, planned and reached before it was fetched; missed:
              not planned
  late        waited for while being fetched, no fault; late ms: how long, over
              all threads. Of file pages only, from Linux 6.12 on
  precision   used of fetched, as far as known, and of how many (n)
  hold-out    where nothing was fetched (modes observe, or the other kind's):
              precision, and recall as the paper defines it, against all demand
              faults
  wasted      memory that was fetched for nothing
And: source, what said that the switch began; ms, how long it took; path ms, how
long it was held up; CPU ms, of fetching and of observing.
And of launches: last block ms, when the last block was read for it, which FAST
takes for its end (of recorded ones); end: exit of its processes; settled, who
called the API said that its picture was there; idle, it needed no page for
launch.t_idle_ms, which are not counted; timeout, launch.t_timeout_ms; read,
pages that the device read for it; complete ms, when the prefetch was; missed,
requests that the sequence does not hold.
The service keeps these since its start. Without it, what a store keeps of all
launches together is shown: helped and held out are the median times of cold
launches alone, and how many these were; `prepage run --report` writes what each
launch did.

Examples:
  prepage stats
  prepage stats gimp --json | jq '.switches[].anon.precision'")]
    Stats {
        /// The application; without it, all.
        app: Option<String>,
        #[command(flatten)]
        store: StoreArgument,
    },
    /// Show what this kernel and this machine offer, what is missing, and what that costs
    #[command(after_long_help = "\
Works without the service. What is missing is no failure: the exit status is 0.

Examples:
  sudo prepage doctor   what root has; what the service lacks, status says
  prepage doctor --json | jq '.findings[] | select(.state == \"missing\")'")]
    Doctor,
    /// Report the focus of windows to the service, from your session
    ///
    /// The session is one of X11, sway, KDE Plasma or gamescope; one of GNOME has an extension of its shell instead. Runs until the
    /// session ends; needs no rights. prepage-agent.service starts it with a session that starts graphical-session.target, as
    /// those of desktops do; others, as sway's and i3's, are to start it themselves (`exec prepage agent`). It keeps running
    /// while the service is away.
    /// Only tracked applications are helped, unless service.track of the configuration is `focused`.
    #[command(after_long_help = "\
Examples:
  prepage agent                      in the session
  prepage agent --display :1
  prepage agent --verbose            say what is reported")]
    Agent {
        /// The X display; without it, sway ($SWAYSOCK) or KWin ($WAYLAND_DISPLAY), or else $DISPLAY. Of gamescope, its first one.
        #[arg(long, value_name = "DISPLAY")]
        display: Option<String>,
        /// Print each report with its delay.
        #[arg(short, long)]
        verbose: bool,
    },
}

/// The command line of all commands, for their manual.
pub fn command_line() -> clap::Command {
    CommandLine::command()
}

/// The two ends of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Edge {
    /// The application is switched to.
    Begin,
    /// The application is there.
    End,
}

#[derive(Debug, Subcommand)]
enum AppsAction {
    /// List the applications of which something is kept
    #[command(after_long_help = "Example:\n  prepage apps list --json | jq '.apps[].app'")]
    List,
    /// Forget what was learned of an application, and follow it no longer
    #[command(after_long_help = "Example:\n  prepage apps forget gimp")]
    Forget {
        /// The application.
        app: String,
    },
    /// Write what was learned to a file, for the user of the same id on other machines
    ///
    /// Of its launches and of file pages: what is learned of anonymous pages ends with their processes. Files in home,
    /// temporary and runtime directories are left out.
    #[command(after_long_help = "Example:\n  prepage apps export gimp gimp.profile")]
    Export {
        /// The application.
        app: String,
        /// The file; without it, or as -, standard output.
        file: Option<PathBuf>,
    },
    /// Take over what was exported, in place of what is known of the application (root)
    #[command(after_long_help = "Example:\n  sudo prepage apps import gimp.profile")]
    Import {
        /// The file; - is standard input.
        file: PathBuf,
    },
}

/// Where what was learned is looked up.
#[derive(Clone, Debug, Default, Args)]
struct StoreArgument {
    /// Directory of the profiles, as of `prepage run`; then the service is not asked. Default: where no service answers,
    /// service.state of the configuration.
    #[arg(long, global = true, value_name = "DIR", env = "PREPAGE_STORE")]
    store: Option<PathBuf>,
}

/// Which application is meant.
#[derive(Clone, Debug, Default, Args)]
struct TargetArguments {
    /// The application of this process.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// The application in this control group: its directory, of any hierarchy, v1 or v2.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    cgroup: Option<PathBuf>,
    /// The application of this name. With --pid or --cgroup, track gives it this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl TargetArguments {
    /// Without any, whoever runs this command is meant.
    fn target(&self) -> Target {
        let given = self.pid.is_some() || self.cgroup.is_some() || self.name.is_some();
        let caller = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Target {
            pid: if given { self.pid } else { caller() },
            cgroup: self
                .cgroup
                .as_ref()
                .map(|p| absolute(p).to_string_lossy().into_owned()),
            name: self.name.clone(),
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The service.
    Service(Error),
    /// Something here.
    Local(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

/// What a command needs of the command line.
#[derive(Debug)]
struct Context {
    socket: PathBuf,
    json: bool,
    /// A store that was named.
    store: Option<PathBuf>,
}

impl Context {
    fn call<P: Serialize, R: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        parameters: &P,
    ) -> Result<R, Failure> {
        Ok(Client::connect(&self.socket)?.call(method, parameters)?)
    }

    /// As [`Self::call`]; where no service answers, or a store was named, what the store says.
    fn ask<P: Serialize, R: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        parameters: &P,
    ) -> Result<R, Failure> {
        let stored = match &self.store {
            Some(dir) => Stored::named(dir.clone()),
            None => match Client::connect(&self.socket) {
                Ok(mut client) => return Ok(client.call(method, parameters)?),
                Err(error @ Error::NotRunning { .. }) => Stored::without_service(self, error)?,
                Err(error) => return Err(error.into()),
            },
        };
        let request = serde_json::json!({
            "method": format!("{INTERFACE}.{method}"),
            "parameters": parameters,
        });
        let answer = serde_json::from_value(request).map(|request| stored.answer(request));
        let answer = answer.map_err(|e| Failure::Local(e.to_string()))??;
        serde_json::from_value(answer).map_err(|e| Failure::Local(e.to_string()))
    }

    /// Prints the answer as JSON, or in words.
    fn print<T: Serialize>(
        &self,
        answer: &T,
        words: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let text = match self.json {
            true => {
                serde_json::to_string_pretty(answer).map_err(|e| Failure::Local(e.to_string()))?
            }
            false => words(answer),
        };
        write_out(format!("{}\n", text.trim_end()).as_bytes())
    }
}

/// Writes to standard output. A reader that is gone had enough, as `head` has: that is no failure.
fn write_out(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Local(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Runs the command that this process was started with; where that is wrong usage, says so and ends.
pub fn run() -> ExitCode {
    let line = CommandLine::parse();
    let mut context = Context {
        socket: line.socket,
        json: line.json,
        store: None,
    };
    let command = match line.command {
        Command::Run(arguments) => return run::run(&context.socket, arguments, None),
        command => command,
    };
    match execute(&mut context, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (code, text) = match &failure {
                Failure::Service(error @ Error::NotRunning { .. }) => (3, error.to_string()),
                Failure::Service(error) => (1, error.to_string()),
                Failure::Local(text) => (1, text.clone()),
            };
            let _ = writeln!(std::io::stderr(), "prepage: {text}");
            ExitCode::from(code)
        }
    }
}

fn execute(context: &mut Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Track(target) => control::track(context, &target.target()),
        Command::Untrack(target) => control::untrack(context, &target.target()),
        Command::Switch {
            edge: Edge::Begin,
            target,
        } => control::begin(context, target.target()),
        Command::Switch {
            edge: Edge::End,
            target,
        } => control::end(context, &target.target()),
        Command::Restore(target) => control::restore(context, &target.target()),
        Command::Mode { mode } => control::mode(context, mode),
        Command::Policy { policy } => control::core_policy(context, policy),
        // It ends by becoming the command, or with its status.
        Command::Run(_) => Ok(()),
        Command::Status => status::status(context),
        Command::Apps { action, store } => {
            context.store = store.store;
            match action {
                AppsAction::List => apps::list(context),
                AppsAction::Forget { app } => apps::forget(context, app),
                AppsAction::Export { app, file } => apps::export(context, app, file),
                AppsAction::Import { file } => apps::import(context, &file),
            }
        }
        Command::Explain { app, store } => {
            context.store = store.store;
            explain::explain(context, app)
        }
        Command::Stats { app, store } => {
            context.store = store.store;
            stats::stats(context, app)
        }
        Command::Doctor => doctor::doctor(context),
        Command::Agent { display, verbose } => agent::agent(context, display.as_deref(), verbose),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// What clap has to wrap loses its columns.
    #[test]
    fn tables_and_examples_of_the_help_fit_a_terminal() {
        let mut commands = vec![CommandLine::command()];
        let mut lines = 0;
        while let Some(command) = commands.pop() {
            let text = command.get_after_long_help().map(ToString::to_string);
            for line in text.unwrap_or_default().lines() {
                let name = command.get_name();
                assert!(line.chars().count() <= 80, "{name}: {line}");
                lines += 1;
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(lines > 50, "{lines} lines");
    }
}
