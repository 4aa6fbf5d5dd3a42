//! A launch without a service: a process is split off that prefetches and records beside the command, and keeps what
//! was learned once the launch is over. It holds nothing that the command inherits.

use super::own_cost::{Moments, charge};
use super::ready::Over;
use super::{Asked, RunArguments, append_record, configuration, execute, execute_held, words};
use crate::config::Config;
use crate::identity::ProcessFacts;
use crate::launch::decide::{Circumstances, Decided};
use crate::launch::options::LaunchOptions;
use crate::launch::record::LaunchRecord;
use prepage_core::launch::manager::LaunchState;
use prepage_core::machine::Nanos;
use prepage_core::params::launch::LaunchStart;
use prepage_engine::store::{Next, single};
use prepage_engine::{Coldness, Error, Launch, LaunchResult, Launches, ReadyLaunch, Rights};
use prepage_kernel::clock::{monotonic_ns, wall_ns};
use prepage_kernel::process::own_pid;
use prepage_kernel::readable::readable_within;
use prepage_kernel::sched::{self, Policy};
use prepage_kernel::signals;
use prepage_kernel::spawn::{Detached, Hold, Launched, fork_detached};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the command waits until the prefetch has begun, or the recording. A browser's plan takes ten milliseconds.
const HOLD_MAX: Duration = Duration::from_millis(40);

/// How long it waits for each sign that more time is needed: while a whole prefetch goes on (`launch.start = "before"`),
/// and where the launch is recorded to be learned from, which means from its first access.
const HOLD_MORE_MAX: Duration = Duration::from_millis(200);

/// How often such signs come.
const SIGN_INTERVAL: Duration = Duration::from_millis(50);

/// How long the command waits, its prefetch under way, for what records it.
const HELPED_RINGS_WAIT_MAX: Duration = Duration::from_millis(5);

/// How long a whole prefetch may take, after which the command runs beside it.
const PREFETCH_MAX: Duration = Duration::from_secs(30);

/// How long the command may take from then until it is executed.
pub const EXEC_MAX: Duration = Duration::from_secs(5);

/// How much longer than the longest launch is waited for its result.
const RESULT_MARGIN: Duration = Duration::from_secs(5);

/// How long the store's lock is waited for at the end. Nobody waits for that.
const LOCK_MAX: Duration = Duration::from_secs(10);

/// How long it lives on after SIGTERM, in seconds. A service manager sends it as soon as a unit's own process has ended, which
/// may be the launch that was observed, and kills what is left long after.
pub const END_AFTER_S: u32 = 5;

/// Nice value of what learns from a launch that is over.
const LEARN_NICE: i32 = 19;

/// Launches recorded at once: every recording makes each event of the machine dearer.
const RECORDERS_MAX: usize = 4;

/// Id of the only launch.
const ID: u64 = 0;

/// Runs the command, helped as far as that is possible.
pub fn run(asked: Asked) -> ExitCode {
    let arguments = asked.arguments.clone();
    let config = configuration(arguments.config.as_deref());
    let store = arguments.store.clone();
    let store = store.unwrap_or_else(|| config.service.state.clone());
    let next = || single::next_launch(&store, &asked.app, true);
    if arguments.may_be_left_alone() && next() == Next::LeftAlone {
        arguments.say(format_args!("{} is left alone", asked.app));
        return execute(&arguments);
    }
    let not_left_alone = asked.not_left_alone.unwrap_or_else(monotonic_ns);
    // Where somebody wants to hear of it, standard error stays open until the launch is over.
    let speaker = arguments.verbose.then(speaker).flatten();
    let launch = Alone {
        asked,
        config,
        store,
        speaker,
        not_left_alone,
    };
    if !arguments.runs_command() {
        launch.fetch_only();
        return ExitCode::SUCCESS;
    }
    let held = fork_detached(move |detached| {
        // What is refused costs what was learned, at most.
        let _ = signals::ends_after(Signal::TERM.as_raw(), END_AFTER_S);
        launch.accompany(&detached);
        0
    });
    match held {
        Ok(held) => {
            // Whatever comes of waiting, the command runs.
            let until = Instant::now() + PREFETCH_MAX;
            let mut progress = arguments.progress();
            let mut hold = held.wait(HOLD_MAX);
            while matches!(hold, Ok(Hold::AskedForMore)) && Instant::now() < until {
                progress.look();
                hold = held.wait(HOLD_MORE_MAX);
            }
            execute_held(Some(held), &arguments)
        }
        Err(error) => {
            arguments.say(format_args!("not helped: {error}"));
            execute(&arguments)
        }
    }
}

/// Learns from a launch that was decided ahead.
pub fn learn(over: Over) {
    let Over { begun, launch } = over;
    let _ = signals::ends_after(Signal::TERM.as_raw(), END_AFTER_S);
    // Nobody waits for it.
    let _ = sched::set_current_thread_policy(Policy::Other {
        nice: LEARN_NICE,
        slice_us: None,
    });
    let config = configuration(begun.config.as_deref().map(Path::new));
    let executed = launch.executed;
    let alone = Alone {
        asked: Asked {
            app: begun.app,
            process: ProcessFacts {
                exe: begun.exe,
                ..ProcessFacts::default()
            },
            options: LaunchOptions::default(),
            arguments: RunArguments {
                report: begun.report.map(Into::into),
                ..RunArguments::default()
            },
            at: begun.found.asked,
            not_left_alone: Some(begun.found.not_left_alone),
        },
        config,
        store: begun.store.into(),
        speaker: None,
        not_left_alone: begun.found.not_left_alone,
    };
    let Some((circumstances, decided)) = alone.decide() else {
        return;
    };
    let help = launch.help();
    let mut result = launch.into_result(begun.began_wall_ns);
    let moments = Moments {
        asked: begun.found.asked,
        not_left_alone: begun.found.not_left_alone,
        began: begun.began,
        executed,
    };
    charge(&mut result.measured, &moments);
    let mut record = LaunchRecord::new(&alone.asked.app, &decided, &result);
    record.t_begin_to_exec_us = Some(executed.saturating_sub(begun.began) / 1_000);
    // What was ready is not what is decided any more, where other launches or another configuration came in between.
    match ReadyLaunch::help_of(&decided.decision) == help {
        true => alone.keep(&circumstances, &result),
        false => alone.unready(&circumstances),
    }
    alone.report(&record);
}

fn speaker() -> Option<File> {
    let fd: OwnedFd = std::io::stderr().as_fd().try_clone_to_owned().ok()?;
    Some(File::from(fd))
}

/// A launch that has begun.
struct Begun {
    /// What helps or observes it.
    launches: Launches,
    /// When the command was executed.
    executed: Nanos,
    /// Whether a recording misses its beginning.
    is_late: bool,
}

/// One launch, in the process that was split off.
#[derive(Debug)]
struct Alone {
    asked: Asked,
    config: Config,
    store: PathBuf,
    speaker: Option<File>,
    /// When that was known, in nanoseconds of the monotonic clock.
    not_left_alone: Nanos,
}

impl Alone {
    fn say(&self, text: impl std::fmt::Display) {
        if let Some(mut speaker) = self.speaker.as_ref() {
            let _ = writeln!(speaker, "prepage: {text}");
        }
    }

    fn decide(&self) -> Option<(Circumstances, Decided)> {
        let Asked {
            app,
            process,
            options,
            ..
        } = &self.asked;
        let state = match single::read_launch(&self.store, app) {
            Ok(state) => state,
            Err(error @ Error::Profile { .. }) => {
                self.say(error);
                LaunchState::default()
            }
            Err(error) => {
                self.say(format_args!("not helped: {error}"));
                return None;
            }
        };
        let params = options.parameters(&self.config.launch);
        // Of the process that the command becomes, the root directory is ours.
        let process = ProcessFacts {
            pid: own_pid(),
            ..process.clone()
        };
        let circumstances = Circumstances::find(&app.name, &process, params, &state.sequence);
        let decided = circumstances.decide(&state, options);
        Some((circumstances, decided))
    }

    fn start(&self) -> Option<Launches> {
        let capacities = sched::capacities().unwrap_or_default();
        let params = self.asked.options.parameters(&self.config.launch);
        let started = Launches::start(&self.config.engine(), &params, &capacities);
        started
            .map_err(|error| self.say(format_args!("not helped: {error}")))
            .ok()
    }

    fn launch(&self, root_pid: i32, decided: &Decided) -> Launch {
        Launch {
            id: ID,
            root_pid,
            rights: Rights::own(),
            began: monotonic_ns(),
            began_wall_ns: wall_ns(),
            decision: decided.decision.clone(),
            coldness: Coldness::of(&decided.decision, root_pid),
            sequence: Arc::clone(&decided.state.sequence),
            traces_paths: decided.decision.profiles_paths,
            // A launch that is helped is not held up for long to be recorded, one that is held out not at all.
            rings_wait_max: match &decided.decision {
                decision if decision.is_held_out => Duration::ZERO,
                decision if decision.prefetch.is_some() => HELPED_RINGS_WAIT_MAX,
                _ => HOLD_MORE_MAX,
            },
        }
    }

    /// `--start only`: fetches what a launch would have fetched, to its last read.
    fn fetch_only(&self) {
        let Some((_, decided)) = self.decide() else {
            return;
        };
        if decided.decision.prefetch.is_none() {
            return self.say(format_args!(
                "nothing is known to fetch for {}",
                self.asked.app
            ));
        }
        self.say(words::decision(&self.asked.app, &decided));
        let Some(launches) = self.start() else {
            return;
        };
        let mut progress = self.asked.arguments.progress();
        launches.begin(self.launch(own_pid(), &decided));
        let is_complete = launches.wait_prefetched(ID, progress.left()) || {
            progress.look();
            launches.wait_prefetched(ID, PREFETCH_MAX)
        };
        if !is_complete {
            self.say(format_args!(
                "the prefetch takes longer than {PREFETCH_MAX:?}"
            ));
        }
        launches.settled(ID);
        if self.asked.arguments.report.is_some()
            && let Some(result) = wait_for_result(&launches, RESULT_MARGIN)
        {
            self.report(&LaunchRecord::new(&self.asked.app, &decided, &result));
        }
    }

    /// Everything beside the command, from before it is executed until its launch is over.
    fn accompany(&self, detached: &Detached) {
        std::thread::scope(|scope| {
            // The command waits: what starts the threads does not wait for what is read from the store.
            let starting = std::thread::Builder::new().spawn_scoped(scope, || self.start());
            let launches = || match starting {
                Ok(starting) => starting.join().ok().flatten(),
                Err(_) => self.start(),
            };
            self.help(detached, launches);
        });
    }

    /// Helps one launch by what `launches` gives; nothing, where that cannot be.
    fn help(&self, detached: &Detached, launches: impl FnOnce() -> Option<Launches>) {
        let Some((circumstances, mut decided)) = self.decide() else {
            return;
        };
        let _recorder = match decided.decision.records {
            true => self.become_recorder(&mut decided),
            false => None,
        };
        if !decided.does_something() && self.asked.arguments.report.is_none() {
            return self.say(words::decision(&self.asked.app, &decided));
        }
        let launch = self.launch(detached.original_pid(), &decided);
        let began = launch.began;
        let begun = match decided.decision.is_held_out {
            true => self.begin_beside(detached, launch, &decided, launches),
            false => self.begin_before(detached, launch, &decided, launches),
        };
        let Some(Begun {
            launches,
            executed,
            is_late,
        }) = begun
        else {
            return;
        };
        let longest = Duration::from_millis(circumstances.params.t_timeout_ms) + RESULT_MARGIN;
        let Some(mut result) = wait_for_result(&launches, longest) else {
            return self.say("the launch's end was not seen: nothing is learned");
        };
        if result.is_given_up {
            self.say("a file system does not answer: nothing is learned");
        }
        if is_late && result.recording.is_some() {
            self.say("the recording began too late to be learned from");
            result.recording = None;
        }
        let mut record = LaunchRecord::new(&self.asked.app, &decided, &result);
        record.t_begin_to_exec_us = Some(executed.saturating_sub(began) / 1_000);
        let moments = Moments {
            asked: self.asked.at,
            not_left_alone: self.not_left_alone,
            began,
            executed,
        };
        charge(&mut result.measured, &moments);
        let learns = monotonic_ns();
        self.keep(&circumstances, &result);
        if result.recording.is_some() {
            record.after.learned_us = (monotonic_ns() - learns) / 1_000;
        }
        self.report(&record);
    }

    /// Begins a launch that is held out. The command waits for nothing: it is to take as long as if it was left alone.
    fn begin_beside(
        &self,
        detached: &Detached,
        launch: Launch,
        decided: &Decided,
        launches: impl FnOnce() -> Option<Launches>,
    ) -> Option<Begun> {
        let executed = self.let_go(detached, Some(Launched::TimedOut))?;
        self.say(words::decision(&self.asked.app, decided));
        let launches = launches()?;
        launches.begin(launch);
        Some(Begun {
            launches,
            executed,
            is_late: true,
        })
    }

    /// Begins a launch, and has the command wait until its prefetch is under way, and what records it.
    fn begin_before(
        &self,
        detached: &Detached,
        mut launch: Launch,
        decided: &Decided,
        launches: impl FnOnce() -> Option<Launches>,
    ) -> Option<Begun> {
        let plan = decided.decision.prefetch.as_ref();
        if plan.is_none() || decided.decision.records {
            detached.ask_for_more_time();
        }
        self.say(words::decision(&self.asked.app, decided));
        let launches = launches()?;
        // One that runs already would be interrupted in its calls.
        let mut early = detached.wait_exec(Duration::ZERO).ok();
        let waits = early == Some(Launched::TimedOut);
        launch.traces_paths &= waits;
        let is_recorded = launches.begin(launch);
        if plan.is_some_and(|plan| plan.start == LaunchStart::Before) {
            let until = Instant::now() + PREFETCH_MAX;
            detached.ask_for_more_time();
            while !launches.wait_prefetched(ID, SIGN_INTERVAL) && Instant::now() < until {
                detached.ask_for_more_time();
            }
        }
        // Where the command gave up waiting, a recording misses its beginning.
        if waits {
            early = detached.wait_exec(Duration::ZERO).ok();
        }
        let is_late = early == Some(Launched::Yes);
        let executed = self.let_go(detached, early)?;
        if decided.decision.records && !is_recorded {
            self.say(format_args!("not recorded: {}", reason(&launches)));
        }
        Some(Begun {
            launches,
            executed,
            is_late,
        })
    }

    /// Lets the command go, of which `early` is known. Returns when it was executed.
    fn let_go(&self, detached: &Detached, early: Option<Launched>) -> Option<Nanos> {
        detached.release();
        let launched = match early {
            Some(Launched::TimedOut) => detached.wait_exec(EXEC_MAX).ok(),
            early => early,
        };
        if launched != Some(Launched::Yes) {
            self.say("the command was not executed: nothing is learned");
            return None;
        }
        Some(monotonic_ns())
    }

    /// Takes one of the places of those who record. Without one the launch is not recorded.
    fn become_recorder(&self, decided: &mut Decided) -> Option<File> {
        let place = single::take_place(&self.store, RECORDERS_MAX);
        if let Err(error) = &place {
            self.say(format_args!("not recorded: {error}"));
            (decided.decision.records, decided.decision.profiles_paths) = (false, false);
        }
        place.ok()
    }

    /// What is ready for the next launch.
    fn ready(&self, circumstances: &Circumstances, state: &LaunchState) -> Option<ReadyLaunch> {
        circumstances.ready(state, &self.config.engine().fetch, &self.config.launch)
    }

    fn keep(&self, circumstances: &Circumstances, result: &LaunchResult) {
        let app = &self.asked.app;
        let kept = single::change_launch(&self.store, app, LOCK_MAX, |state| {
            let learned = circumstances.conclude(state, result);
            self.say(words::learned(app, &learned, state));
            self.ready(circumstances, state)
        });
        match kept {
            Ok(warning) => warning.iter().for_each(|warning| self.say(warning)),
            Err(error) => self.say(format_args!("what was learned is not kept: {error}")),
        }
    }

    /// Has nothing stand ready that is not decided any more.
    fn unready(&self, circumstances: &Circumstances) {
        let _ = single::change_launch(&self.store, &self.asked.app, LOCK_MAX, |state| {
            self.ready(circumstances, state)
        });
    }

    fn report(&self, record: &LaunchRecord) {
        let Some(path) = &self.asked.arguments.report else {
            return;
        };
        if let Err(error) = append_record(path, record) {
            self.say(format_args!("report {}: {error}", path.display()));
        }
    }
}

/// Why a launch could not be recorded from its beginning.
fn reason(launches: &Launches) -> String {
    match launches.warnings() {
        [] => "what reports accesses was not to be had in time".to_owned(),
        refused => format!(
            "{} (`prepage doctor` says what that takes)",
            refused.join("; ")
        ),
    }
}

/// The launch's result, as soon as it is there.
fn wait_for_result(launches: &Launches, wait_max: Duration) -> Option<LaunchResult> {
    let until = Instant::now() + wait_max;
    loop {
        if let Some(result) = launches.results().pop() {
            return Some(result);
        }
        let left = until.saturating_duration_since(Instant::now());
        if !readable_within(launches.done_fd(), left).unwrap_or(false) {
            return None;
        }
    }
}
