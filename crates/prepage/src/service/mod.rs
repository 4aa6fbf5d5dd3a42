//! The service: one thread that sleeps until something happens, gives it to the state machine as an event, and what
//! the machine wants done to the executor.

mod calls;
mod command_line;
mod event_loop;
mod execs;
mod explain;
mod findings;
mod launch_calls;
mod launches;
mod notify;
mod poller;
mod ready;
mod recording;
mod reload;
mod signals;
mod start;
mod targets;
mod traced;
mod tracking;
mod unanswered;

pub use command_line::Options;
use findings::swap;
pub use findings::{Finding, State, findings, note, works};
pub use launches::LaunchHelp;
pub use start::run;

use crate::config::Config;
use crate::identity::Surroundings;
use crate::log_warning;
use crate::sources::api::ApiSocket;
use crate::sources::cores::Cores;
use crate::sources::exits::Exits;
use crate::sources::groups::Groups;
use crate::sources::onset::OnsetWindows;
use crate::sources::pressure::Pressure;
use crate::sources::sleep::Sleep;
use poller::Poller;
use prepage_core::identity::AppId;
use prepage_core::machine::{Action, Event, Machine, Nanos};
use prepage_core::params::Mode;
use prepage_core::signal::Source;
use prepage_engine::store::Store;
use prepage_engine::{CorePolicy, Executor};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::signals::SignalFd;
use prepage_kernel::swaps;
use recording::Recording;
use tracking::Tracking;
use unanswered::Unanswered;

/// What a service is made of.
pub struct Parts {
    /// The command line: it wins over the configuration, also when that is read again.
    pub options: Options,
    /// Its configuration, with what the command line says.
    pub config: Config,
    /// What executes actions.
    pub executor: Box<dyn Executor>,
    /// What helps launches; none where it could not start, and in tests of switches.
    pub launches: Option<LaunchHelp>,
    /// The profiles.
    pub store: Store,
    /// The API.
    pub socket: ApiSocket,
    /// SIGTERM, SIGINT and SIGHUP; none in tests, where the service ends with its process.
    pub signals: Option<SignalFd>,
    /// What does not work on this machine, until the next start.
    pub missing: Vec<String>,
}

/// The running service.
pub struct Service {
    options: Options,
    config: Config,
    machine: Machine,
    executor: Box<dyn Executor>,
    /// The executor's.
    core_policy: CorePolicy,
    launches: Option<LaunchHelp>,
    store: Store,
    socket: ApiSocket,
    unanswered: Unanswered,
    signals: Option<SignalFd>,
    missing: Vec<String>,
    recording: Option<Recording>,
    poller: Poller,
    tracking: Tracking,
    exits: Exits,
    groups: Option<Groups>,
    onset: OnsetWindows,
    pressure: Option<Pressure>,
    /// None where the kernel does not say it.
    sleep: Option<Sleep>,
    /// As above.
    cores: Option<Cores>,
    around: Surroundings,
    /// Of the executor, as far as they were logged.
    threads_given_up: usize,
    /// New connections are not taken before this time: the kernel refused one.
    listening_again: Option<Nanos>,
    /// When demand faults are recorded again.
    faults_again: Option<Nanos>,
    ending: bool,
}

impl Service {
    /// Gives the machine an event, and its actions to the executor.
    fn step(&mut self, now: Nanos, event: Event) {
        let was_off = self.machine.mode() == Mode::Off;
        if let Some(recording) = &mut self.recording {
            recording.see(&event, self.machine.mode());
        }
        for action in self.machine.step(now, event) {
            match action {
                Action::Store { app } => {
                    if let Some(model) = self.machine.app(&app) {
                        self.store.save(&app, model.profile());
                    }
                }
                action => self.executor.perform(now, action),
            }
        }
        // An application that is not to be helped does not pay for the events either.
        let is_off = self.machine.mode() == Mode::Off;
        if is_off != was_off {
            self.executor.listen(!is_off);
            self.watch_execs();
        }
        self.see_given_up();
    }

    /// What does not work on this machine, as it is now.
    fn missing(&self) -> Vec<String> {
        let swap = swap(&swaps::areas().unwrap_or_default());
        let lasting = self.missing.iter().cloned();
        swap.missing_line().into_iter().chain(lasting).collect()
    }

    fn missing_count(&self) -> u64 {
        self.missing().len() as u64
    }

    fn see_given_up(&mut self) {
        let given_up = self.executor.threads_given_up();
        if given_up > self.threads_given_up {
            log_warning!(
                "a thread hangs in a system call and was given up, {given_up} so far: a disk, a file system or a process \
                 does not answer"
            );
        }
        self.threads_given_up = given_up;
    }

    /// A switch begins, to the copy of the application that process `pid` belongs to, or to all. Returns whether it did.
    fn begin(&mut self, app: AppId, pid: Option<i32>, source: Source) -> bool {
        self.executor.aim(&app, pid);
        let before = self.machine.under_way(&app);
        let begin = Event::Begin {
            app: app.clone(),
            source,
        };
        self.step_now(begin);
        // What was being observed may have become one by that, of the same number.
        self.machine.under_way(&app) != before
    }

    /// As [`Service::step`], now.
    fn step_now(&mut self, event: Event) {
        self.step(monotonic_ns(), event);
    }
}
