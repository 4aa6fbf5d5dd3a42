//! Assembling the service, from the command line to the event loop.

use super::findings::SWAP;
use super::launches::LaunchHelp;
use super::poller::{Poller, Token};
use super::recording::Recording;
use super::reload::{watch_faults, watch_pressure};
use super::tracking::Tracking;
use super::unanswered::Unanswered;
use super::{Options, Parts, Service, findings, notify, signals};
use crate::config::{self, Config};
use crate::sources::api::ApiSocket;
use crate::sources::cores::Cores;
use crate::sources::exits::Exits;
use crate::sources::groups::Groups;
use crate::sources::onset::OnsetWindows;
use crate::sources::sleep::Sleep;
use crate::{discover, log_info, log_warning};
use prepage_core::machine::Machine;
use prepage_core::params::Mode;
use prepage_engine::Engine;
use prepage_engine::accounts;
use prepage_engine::store::Store;
use prepage_kernel::support::Support;
use rustix::event::epoll::EventFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::error::Error;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Runs the service until it is told to end.
///
/// # Errors
/// Where it cannot start; what cannot be had is degraded instead, with a warning.
pub fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let mut config = config::load(options.config.as_deref())?;
    if options.check {
        // The status says it too, where nobody reads.
        let _ = writeln!(std::io::stdout(), "the configuration is right");
        return Ok(());
    }
    apply(&mut config, &options);
    let signals = signals::open()?;
    raise_file_limit();
    accounts::read();
    make_private(&config.service.state)?;
    let (mut store, warnings) = Store::open(&config.service.state).map_err(explain_rights)?;
    warnings
        .iter()
        .for_each(|warning| log_warning!("{warning}"));
    store.warn_by(|warning| log_warning!("{warning}"));
    // The store's lock is ours: a socket that is left over is not in use.
    let path = &config.service.socket;
    let socket = ApiSocket::listen(path)
        .map_err(|e| format!("listening at {}: {}", path.display(), explain_rights(e)))?;
    let support = Support::probe();
    let mut missing = report(&support);
    let engine = Engine::start(&config.engine(), &support)?;
    let launches = LaunchHelp::start(&config, &support)?;
    // Where perf events are denied, all of it comes of that, which is said.
    if support.perf_major_faults.available {
        let refused = [engine.warnings(), launches.warnings()].concat();
        refused.iter().for_each(|line| log_warning!("{line}"));
        missing.extend(refused);
    }
    drop_unusable(&mut store);
    let service = Service::new(Parts {
        options,
        config,
        executor: Box::new(engine),
        launches: Some(launches),
        store,
        socket,
        signals: Some(signals),
        missing,
    })?;
    service.run()?;
    Ok(())
}

/// What the command line says wins over the configuration.
pub(super) fn apply(config: &mut Config, options: &Options) {
    let service = &mut config.service;
    service.state = options
        .state
        .clone()
        .unwrap_or_else(|| service.state.clone());
    service.socket = options.socket().unwrap_or_else(|| service.socket.clone());
    service.mode = options.mode.unwrap_or(service.mode);
}

/// Profiles say which files their owners use: nobody else's business.
fn make_private(directory: &Path) -> Result<(), String> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::AlreadyExists => "it is no directory".into(),
            _ => explain_rights(error),
        };
        format!("state directory {}: {reason}", directory.display())
    })
}

/// Why something cannot be had, and who could have it, where rights are the reason.
fn explain_rights(error: impl Error + 'static) -> String {
    let denied = |e: &(dyn Error + 'static)| {
        let error = e.downcast_ref::<std::io::Error>();
        error.is_some_and(|e| e.kind() == ErrorKind::PermissionDenied)
    };
    let is_denied = denied(&error) || error.source().is_some_and(denied);
    match is_denied && !rustix::process::geteuid().is_root() {
        true => format!("{error}: prepaged needs root, try with sudo"),
        false => error.to_string(),
    }
}

/// Each process followed takes two descriptors.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log_warning!(
            "the limit of open files stays at {:?}: {error}",
            limit.current
        );
    }
}

/// Logs what does not work, one line each, and returns those lines that hold until the next start.
fn report(support: &Support) -> Vec<String> {
    let mut lasting = Vec::new();
    for finding in findings(support) {
        if let Some(line) = finding.missing_line() {
            log_warning!("{line}");
            lasting.extend((finding.what != SWAP).then_some(line));
        }
    }
    lasting
}

/// An application tracked by a control group outside of any hierarchy cannot be found again.
fn drop_unusable(store: &mut Store) {
    let hierarchies = crate::cgroups::Hierarchies::mounted();
    let lost: Vec<_> = store
        .tracked()
        .filter_map(|(app, how)| match how {
            prepage_engine::store::TrackedBy::Cgroup(directory) => hierarchies
                .group_at(directory)
                .is_none()
                .then(|| app.clone()),
            prepage_engine::store::TrackedBy::Name => None,
        })
        .collect();
    for app in lost {
        log_warning!("{app} is tracked no longer: its control group's hierarchy is not mounted");
        store.set_tracked(&app, None);
    }
}

impl Service {
    /// Puts the parts together and finds the applications that are to be tracked.
    ///
    /// # Errors
    /// Where the kernel refuses what the event loop cannot do without.
    pub fn new(parts: Parts) -> Result<Self, Box<dyn Error>> {
        let poller = Poller::new()?;
        poller.add(parts.socket.listener(), Token::Listener, EventFlags::IN)?;
        poller.add(parts.executor.wake_fd(), Token::Executor, EventFlags::IN)?;
        watch_faults(&*parts.executor, &parts.config, &poller)?;
        if let Some(launches) = &parts.launches {
            launches.watch(&poller)?;
        }
        if let Some(signals) = &parts.signals {
            poller.add(signals, Token::Signals, EventFlags::IN)?;
        }
        let groups = Groups::new()
            .inspect_err(|e| log_warning!("thawing is not a signal here: {e}"))
            .ok();
        if let Some(groups) = &groups {
            poller.add(groups, Token::Groups, EventFlags::IN)?;
        }
        // That it is missing was reported with the other findings.
        let pressure = watch_pressure(&parts.config, &poller).ok();
        let sleep = Sleep::watch()
            .inspect_err(|e| log_warning!("after the machine slept, start the service anew: {e}"))
            .ok();
        if let Some(sleep) = &sleep {
            poller.add(sleep, Token::Sleep, EventFlags::IN)?;
        }
        let cores = Cores::watch()
            .inspect_err(|e| log_warning!("after a core came online, start the service anew: {e}"))
            .ok();
        if let Some(cores) = &cores {
            poller.add(cores, Token::Cores, EventFlags::IN)?;
        }
        let record = parts.options.record.as_deref();
        let recording = record.map(Recording::open).transpose()?;
        if recording.is_some() && parts.config.service.mode != Mode::Observe {
            log_warning!(
                "--record: only switches in mode observe are recorded; the mode is {}",
                parts.config.service.mode.word()
            );
        }
        let machine = Machine::new(parts.config.params(), parts.config.service.mode);
        let mut service = Self {
            options: parts.options,
            core_policy: parts.config.fetch.core_policy,
            config: parts.config,
            machine,
            executor: parts.executor,
            launches: parts.launches,
            store: parts.store,
            socket: parts.socket,
            unanswered: Unanswered::default(),
            signals: parts.signals,
            missing: parts.missing,
            recording,
            poller,
            tracking: Tracking::default(),
            exits: Exits::default(),
            groups,
            onset: OnsetWindows::default(),
            pressure,
            sleep,
            cores,
            around: discover::surroundings(),
            threads_given_up: 0,
            listening_again: None,
            faults_again: None,
            ending: false,
        };
        if service.machine.mode() == Mode::Off {
            service.executor.listen(false);
        }
        service.track_what_is_known();
        service.make_launches_ready();
        service.watch_execs();
        Ok(service)
    }

    /// Runs until a signal says to end.
    ///
    /// # Errors
    /// Where the kernel refuses what the event loop cannot do without.
    pub fn run(mut self) -> std::io::Result<()> {
        let (mode, socket) = (self.machine.mode(), self.socket.path());
        log_info!("ready: mode {}, socket {}", mode.word(), socket.display());
        notify::notify("READY=1");
        let result = self.run_until_ended();
        notify::notify("STOPPING=1");
        // The profiles are on disk before the next service may open them; what could not be written has been said.
        let _ = self.store.flush();
        result
    }
}
