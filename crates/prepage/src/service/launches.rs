//! Launches in the service: announced by `prepage run` ([`super::launch_calls`]), or seen as a program is executed
//! ([`super::execs`]).

use super::Service;
use super::poller::{Poller, Token};
use super::ready::{READY_MAX, ReadyLaunches};
use super::traced::{Traced, may_trace};
use crate::api::Tracing;
use crate::config::Config;
use crate::identity::ProcessFacts;
use crate::launch::decide::{Circumstances, Decided};
use crate::launch::options::LaunchOptions;
use crate::launch::record::LaunchRecord;
use crate::sources::execs::Execs;
use crate::{discover, log_warning};
use prepage_core::identity::{AppId, AppKind, owner_of_most};
use prepage_core::launch::manager::{Decision, LaunchState, Phase};
use prepage_core::machine::Nanos;
use prepage_core::params::Mode;
use prepage_core::params::launch::{LaunchParams, LaunchStart};
use prepage_engine::accounts::{accountable, owner_of};
use prepage_engine::launch::LAUNCHES_MAX;
use prepage_engine::{Coldness, Launch, LaunchResult, Launches, Rights};
use prepage_kernel::clock::{monotonic_ns, wall_ns};
use prepage_kernel::process::{self, ProcessStatus};
use prepage_kernel::support::Support;
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Last launches kept of one application.
const RECORDS_MAX: usize = 16;

/// Applications of which last launches are kept. Beyond that who has most loses those of the one launched longest ago.
const RECORDED_APPS_MAX: usize = 256;

/// Launches of one user who is not root that are under way at once.
pub(super) const LAUNCHES_OF_USER_MAX: usize = 16;

/// What is said where that happened.
const GIVEN_UP: &str = "a file system does not answer: what a launch showed is not learned";

/// A launch that is not over.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) app: AppId,
    root_pid: i32,
    circumstances: Circumstances,
    decided: Decided,
    /// Until when what its processes execute is a part of it: see [`parts_until`].
    parts_until: Nanos,
    /// From the exec until help began, where the exec was seen.
    noticed_us: Option<u64>,
    /// The program was not executed: nothing is learned.
    pub(super) has_failed: bool,
    /// Its paths, if whoever launches it traces it.
    pub(super) traced: Option<Traced>,
}

/// What helps launches.
#[derive(Debug)]
pub struct LaunchHelp {
    pub(super) engine: Launches,
    /// `None` where the kernel refuses.
    pub(super) execs: Option<Execs>,
    warnings: Vec<String>,
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    ready: ReadyLaunches,
    next: u64,
    /// By application, oldest first.
    pub(super) records: BTreeMap<AppId, VecDeque<(u64, LaunchRecord)>>,
}

/// A process that is about to be, or has just become, an application.
pub(super) struct Launching<'a> {
    pub(super) app: AppId,
    pub(super) process: &'a ProcessFacts,
    pub(super) began: Nanos,
    pub(super) options: LaunchOptions,
    pub(super) is_announced: bool,
    pub(super) tracing: Tracing,
}

/// What comes of a launch that begins.
pub(super) enum Begun {
    /// Nothing is done for it.
    Alone,
    /// It has not begun: its paths are wanted, and whoever launches it can trace it.
    AwaitsTracer,
    /// It has.
    Launch(u64, Box<Decided>),
}

impl LaunchHelp {
    /// Starts what records and prefetches; what the kernel refuses is done without.
    ///
    /// # Errors
    /// Where a thread cannot be created.
    pub fn start(config: &Config, support: &Support) -> prepage_engine::Result<Self> {
        let engine = Launches::start(&config.engine(), &config.launch, &support.cpu_capacities)?;
        let mut warnings = engine.warnings().to_vec();
        let execs = open_execs().map_err(|warning| warnings.push(warning)).ok();
        Ok(Self {
            engine,
            execs,
            warnings,
            under_way: BTreeMap::new(),
            ready: ReadyLaunches::default(),
            next: 0,
            records: BTreeMap::new(),
        })
    }

    /// What the kernel refused, and what that costs.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Has the event loop told of launches that are over, and of execs.
    pub(super) fn watch(&self, poller: &Poller) -> std::io::Result<()> {
        watch(poller, &self.engine, self.execs.as_ref())
    }

    /// Takes over what concerns the engine.
    pub(super) fn set_params(&mut self, config: &Config) {
        self.engine.set_params(&config.engine(), &config.launch);
    }

    /// Starts anew on the cores that are online now. A launch that is under way is not followed any more.
    ///
    /// # Errors
    /// Where a thread cannot be created, or the event loop not told of what it sees; then it goes on as before.
    pub(super) fn adapt_to_cores(
        &mut self,
        config: &Config,
        poller: &Poller,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let capacities = prepage_kernel::sched::capacities()?;
        let engine = Launches::start(&config.engine(), &config.launch, &capacities)?;
        engine.open_rings();
        let execs = open_execs().inspect_err(|warning| log_warning!("{warning}"));
        let execs = execs.ok();
        watch(poller, &engine, execs.as_ref())?;
        (self.engine, self.execs) = (engine, execs);
        self.under_way.clear();
        Ok(())
    }

    /// The last launches of an application, oldest first.
    pub fn records(&self, app: &AppId) -> impl Iterator<Item = &LaunchRecord> {
        let records = self.records.get(app).into_iter().flatten();
        records.map(|(_, record)| record)
    }

    /// The applications of which there are some.
    pub fn apps(&self) -> impl Iterator<Item = &AppId> {
        self.records.keys()
    }

    fn keep(&mut self, app: &AppId, id: u64, record: LaunchRecord) {
        if self.records.len() >= RECORDED_APPS_MAX && !self.records.contains_key(app) {
            let owner = owner_of_most(self.records.keys().map(|app| accountable(app.owner)));
            let of_owner = self.records.iter();
            let oldest = of_owner
                .filter(|(app, _)| Some(accountable(app.owner)) == owner)
                .min_by_key(|(_, r)| r.back().map(|(id, _)| *id));
            let oldest = oldest.map(|(app, _)| app.clone());
            oldest.and_then(|app| self.records.remove(&app));
        }
        let records = self.records.entry(app.clone()).or_default();
        if records.len() == RECORDS_MAX {
            records.pop_front();
        }
        records.push_back((id, record));
    }

    /// The launches under way that are traced.
    pub(super) fn traced(&mut self) -> impl Iterator<Item = &mut Traced> {
        let launches = self.under_way.values_mut();
        launches.filter_map(|launch| launch.traced.as_mut())
    }

    /// When the next result has waited long enough for its paths.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let launches = self.under_way.values();
        let traced = launches.filter_map(|launch| launch.traced.as_ref());
        traced.filter_map(Traced::deadline).min()
    }

    /// Whether another launch of this user's may be traced.
    fn may_trace(&self, owner: u32) -> bool {
        let launches = self.under_way.values();
        let traced = launches.filter(|launch| launch.traced.is_some());
        let owners = traced.map(|launch| accountable(launch.app.owner));
        may_trace(accountable(owner), owners)
    }

    pub(super) fn is_part_of_launch(&self, pid: i32) -> bool {
        let now = monotonic_ns();
        let under_way = self.under_way.values();
        let takes_in = |launch: &&UnderWay| launch.root_pid == pid || now < launch.parts_until;
        let roots: BTreeSet<i32> = under_way.filter(takes_in).map(|l| l.root_pid).collect();
        !roots.is_empty() && discover::ancestry(pid).any(|pid| roots.contains(&pid))
    }

    /// Whether a launch of this application is under way whose process runs: what is executed beside it is a part of it that left its
    /// process tree, or is helped by what is fetched for it.
    pub(super) fn is_launching(&self, app: &AppId) -> bool {
        let mut own = self.under_way.values().filter(|launch| launch.app == *app);
        own.any(|launch| process::exe(launch.root_pid).is_ok())
    }

    /// Whether another launch of this user may be under way.
    pub(super) fn has_room(&self, owner: u32) -> bool {
        let own = self.under_way.values();
        let account = accountable(owner);
        let own = own.filter(|launch| accountable(launch.app.owner) == account);
        let own = own.count();
        self.under_way.len() < LAUNCHES_MAX && (owner == 0 || own < LAUNCHES_OF_USER_MAX)
    }
}

/// Until when what the processes of a launch execute is a part of it. The end of one that is recorded is seen; of another
/// nobody sees it before its processes end, and what is started from a terminal by then is a launch of its own.
fn parts_until(decided: &Decided, params: &LaunchParams, began: Nanos) -> Nanos {
    let Decision {
        records,
        profiles_paths,
        ..
    } = decided.decision;
    if records || profiles_paths {
        return Nanos::MAX;
    }
    let launch_ms = match decided.state.longest_us {
        0 => params.t_timeout_ms,
        longest_us => longest_us / 1_000,
    };
    began.saturating_add((launch_ms + params.t_idle_ms) * 1_000_000)
}

/// The kernel's reports of execs, or what it costs that it refuses them.
fn open_execs() -> Result<Execs, String> {
    let cost = "a launch is seen only where `prepage run` announces it";
    Execs::open().map_err(|error| format!("{error}; {cost}"))
}

impl Service {
    /// Decides on the next launches of the tracked applications that are known, which may be the first since the machine
    /// was started. What an interpreter runs is decided on when it is launched.
    pub(super) fn make_launches_ready(&mut self) {
        let Some(help) = &mut self.launches else {
            return;
        };
        let is_program =
            |app: &&AppId| app.kind == AppKind::Executable && app.name.starts_with('/');
        for app in self.tracking.apps().filter(is_program).take(READY_MAX) {
            let stored = self.store.load(app).map(|stored| &stored.launch);
            if let Some(state) = stored.filter(|state| state.phase == Phase::Prefetch) {
                let circumstances = Circumstances::ahead(&app.name, self.config.launch.clone());
                help.ready.make(app, state, circumstances);
            }
        }
    }

    /// Decides on a launch and begins it.
    pub(super) fn begin_launch(&mut self, launching: Launching<'_>) -> Begun {
        let Launching {
            app,
            process,
            began,
            options,
            is_announced,
            tracing,
        } = launching;
        let mode = self.machine.mode();
        let has_room = self
            .launches
            .as_ref()
            .is_some_and(|h| h.has_room(app.owner));
        if mode == Mode::Off || !has_room || options.is_default() && self.store.pass_launch(&app) {
            return Begun::Alone;
        }
        let unknown = LaunchState::default();
        let state = self
            .store
            .load(&app)
            .map_or(&unknown, |stored| &stored.launch);
        let params = options.parameters(&self.config.launch);
        let name: &str = match app.kind {
            AppKind::Executable => &app.name,
            _ => process.exe.as_deref().unwrap_or_default(),
        };
        let circumstances = Circumstances::find(name, process, params, &state.sequence);
        let Some(help) = &mut self.launches else {
            return Begun::Alone;
        };
        let ready = options
            .is_default()
            .then(|| help.ready.take(&app, state, &circumstances));
        let mut decided = ready
            .flatten()
            .unwrap_or_else(|| circumstances.decide(state, &options));
        if !matches!(mode, Mode::File | Mode::Full) {
            decided.decision.prefetch = None;
        }
        let wants_paths = decided.decision.profiles_paths && help.may_trace(app.owner);
        decided.decision.profiles_paths = wants_paths && tracing == Tracing::Ready;
        if wants_paths && tracing == Tracing::Possible {
            return Begun::AwaitsTracer;
        }
        let status = process::status(process.pid).ok();
        let rights = status.and_then(|status| rights(process.pid, status, app.owner));
        let Some(rights) = rights.filter(|_| decided.does_something()) else {
            return Begun::Alone;
        };
        let id = help.next;
        help.next += 1;
        help.engine
            .begin(launch(id, process.pid, rights, began, &decided));
        let launch = UnderWay {
            app,
            root_pid: process.pid,
            parts_until: parts_until(&decided, &circumstances.params, began),
            circumstances,
            decided: decided.clone(),
            noticed_us: (!is_announced).then(|| monotonic_ns().saturating_sub(began) / 1_000),
            has_failed: false,
            traced: decided.decision.profiles_paths.then(Traced::default),
        };
        help.under_way.insert(id, launch);
        Begun::Launch(id, Box::new(decided))
    }

    /// Launches are over.
    pub(super) fn see_launches(&mut self) {
        let Some(help) = &mut self.launches else {
            return;
        };
        let mut results = help.engine.results();
        results.retain(|result| help.under_way.contains_key(&result.id));
        for result in results {
            let launch = self.launches.as_mut();
            let launch = launch.and_then(|help| help.under_way.get_mut(&result.id));
            let result = match launch.and_then(|launch| launch.traced.as_mut()) {
                Some(traced) => traced.take_result(result),
                None => Some(result),
            };
            result.into_iter().for_each(|result| self.conclude(result));
        }
    }

    /// Learns from a launch that is over.
    pub(super) fn conclude(&mut self, mut result: LaunchResult) {
        let Some(help) = &mut self.launches else {
            return;
        };
        let Some(mut launch) = help.under_way.remove(&result.id) else {
            return;
        };
        if let Some((traced, recording)) = launch.traced.take().zip(result.recording.as_mut()) {
            traced.complete(recording);
        }
        if result.is_given_up {
            log_warning!("{}: {GIVEN_UP}", launch.app);
            let is_said = self.missing.iter().any(|missing| missing == GIVEN_UP);
            self.missing.extend((!is_said).then(|| GIVEN_UP.into()));
        }
        let plan = launch.decided.decision.prefetch.as_ref();
        let is_launch = plan.is_none_or(|plan| plan.start != LaunchStart::Only);
        if launch.has_failed {
            return;
        }
        let mut record = LaunchRecord::new(&launch.app, &launch.decided, &result);
        record.noticed_us = launch.noticed_us;
        if is_launch {
            let stored = self.store.load(&launch.app);
            let mut state = stored.map(|s| s.launch.clone()).unwrap_or_default();
            launch.circumstances.conclude(&mut state, &result);
            self.store.save_launch(&launch.app, &state);
            let circumstances = Circumstances {
                params: self.config.launch.clone(),
                changed_files: Vec::new(),
                ..launch.circumstances
            };
            help.ready.make(&launch.app, &state, circumstances);
        }
        help.keep(&launch.app, result.id, record);
    }
}

fn watch(poller: &Poller, engine: &Launches, execs: Option<&Execs>) -> std::io::Result<()> {
    poller.add(engine.done_fd(), Token::Launches, EventFlags::IN)?;
    execs
        .into_iter()
        .flat_map(Execs::fds)
        .try_for_each(|fd| poller.add(fd, Token::Execs, EventFlags::IN))
}

/// What the engine is to do for a launch that began at `began`.
fn launch(id: u64, root_pid: i32, rights: Rights, began: Nanos, decided: &Decided) -> Launch {
    let since_ns = monotonic_ns().saturating_sub(began);
    Launch {
        id,
        root_pid,
        rights,
        began,
        began_wall_ns: wall_ns().saturating_sub_unsigned(since_ns),
        decision: decided.decision.clone(),
        coldness: Coldness::of(&decided.decision, root_pid),
        sequence: Arc::clone(&decided.state.sequence),
        // Whoever launches it does, if anybody.
        traces_paths: false,
        // They were open before any launch.
        rings_wait_max: Duration::ZERO,
    }
}

/// The rights of an application's owner, as its process has them; `None` where it has another user's: it may have executed a
/// set-uid program since it was identified.
fn rights(pid: i32, status: ProcessStatus, owner: u32) -> Option<Rights> {
    let uid = status.uid.file_system;
    (owner_of(pid, uid) == owner).then_some(Rights {
        uid,
        // That of a set-gid program is none of its user's.
        gid: status.gid.real,
        groups: status.groups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_launch_executes_is_a_part_of_it_while_it_lasts() {
        let params = LaunchParams {
            t_idle_ms: 2_000,
            t_timeout_ms: 30_000,
            ..LaunchParams::default()
        };
        let until_ms = |records, longest_us| {
            let decision = Decision {
                records,
                ..Decision::default()
            };
            let state = LaunchState {
                longest_us,
                ..LaunchState::default()
            };
            parts_until(&Decided { decision, state }, &params, 7_000_000) / 1_000_000
        };
        assert_eq!(until_ms(false, 400_000), 2_407);
        assert_eq!(until_ms(false, 0), 32_007, "of which nothing is known");
        assert_eq!(until_ms(true, 400_000), u64::MAX / 1_000_000);
    }

    #[test]
    fn rights_are_those_of_the_owner_alone() {
        let status = |ids: &str| {
            let text = format!("Uid:\t{ids}\nGid:\t100\t42\t42\t42\nGroups:\t100 200\n");
            process::parse_status(&text).expect("well formed")
        };
        let own = Rights {
            uid: 1000,
            gid: 100,
            groups: vec![100, 200],
        };
        let rights = |ids| rights(process::own_pid(), status(ids), 1000);
        assert_eq!(rights("1000\t1000\t1000\t1000"), Some(own));
        assert_eq!(rights("1000\t0\t0\t0"), None);
    }
}
