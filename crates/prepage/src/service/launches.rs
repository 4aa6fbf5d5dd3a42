//! Launches in the service: announced by `prepage run`, or seen as a program is executed.

use super::Service;
use super::calls::{
    Answer, may_act, not_found, reply, require_pid, require_printable, unknown_process,
};
use super::poller::{Poller, Token};
use super::ready::{READY_MAX, ReadyLaunches};
use super::traced::{Traced, may_trace};
use crate::api::{
    ApiError, LaunchBeginParameters, LaunchBeginReply, LaunchEndParameters, LaunchOutcome,
    LaunchPrefetchedReply, LaunchReportReply, Tracing,
};
use crate::cgroups::memberships;
use crate::config::{Config, LaunchPolicy};
use crate::identity::{
    Named, ProcessFacts, base_name, is_first_of_unit, is_session_program, may_be_named_by_group,
    may_be_named_by_words, program, runs_in_other_root,
};
use crate::launch::decide::{Circumstances, Decided};
use crate::launch::options::LaunchOptions;
use crate::launch::record::{DecisionRecord, LaunchRecord};
use crate::sources::api::Caller;
use crate::sources::execs::{Exec, Execs};
use crate::{discover, log_warning};
use prepage_core::identity::{AppId, AppKind, owner_of_most};
use prepage_core::launch::manager::{Decision, LaunchState, Phase};
use prepage_core::machine::Nanos;
use prepage_core::params::Mode;
use prepage_core::params::launch::{LaunchParams, LaunchStart};
use prepage_engine::accounts::accountable;
use prepage_engine::launch::LAUNCHES_MAX;
use prepage_engine::{Coldness, Launch, LaunchResult, Launches, Rights, patience};
use prepage_kernel::clock::{monotonic_ns, wall_ns};
use prepage_kernel::process::{self, ProcessStatus};
use prepage_kernel::support::Support;
use rustix::event::epoll::EventFlags;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Last launches kept of one application.
const RECORDS_MAX: usize = 16;

/// Applications of which last launches are kept. Beyond that who has most loses those of the one launched longest ago.
const RECORDED_APPS_MAX: usize = 256;

/// Launches of one user who is not root that are under way at once.
const LAUNCHES_OF_USER_MAX: usize = 16;

/// Longest path that a caller may name, in bytes.
const PATH_BYTES_MAX: usize = 4_096;

/// Most bytes looked at of a process's environment.
const ENVIRONMENT_BYTES_MAX: u64 = 64 << 10;

/// What is said where that happened.
const GIVEN_UP: &str = "a file system does not answer: what a launch showed is not learned";

/// A launch that is not over.
#[derive(Debug)]
pub(super) struct UnderWay {
    app: AppId,
    root_pid: i32,
    circumstances: Circumstances,
    decided: Decided,
    /// Until when what its processes execute is a part of it: see [`parts_until`].
    parts_until: Nanos,
    /// From the exec until help began, where the exec was seen.
    noticed_us: Option<u64>,
    /// The program was not executed: nothing is learned.
    has_failed: bool,
    /// Its paths, if whoever launches it traces it.
    pub(super) traced: Option<Traced>,
}

/// What helps launches.
#[derive(Debug)]
pub struct LaunchHelp {
    engine: Launches,
    /// `None` where the kernel refuses.
    execs: Option<Execs>,
    warnings: Vec<String>,
    under_way: BTreeMap<u64, UnderWay>,
    ready: ReadyLaunches,
    next: u64,
    /// By application, oldest first.
    records: BTreeMap<AppId, VecDeque<(u64, LaunchRecord)>>,
}

/// A process that is about to be, or has just become, an application.
struct Launching<'a> {
    app: AppId,
    process: &'a ProcessFacts,
    began: Nanos,
    options: LaunchOptions,
    is_announced: bool,
    tracing: Tracing,
}

/// What comes of a launch that begins.
enum Begun {
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

    fn is_part_of_launch(&self, pid: i32) -> bool {
        let now = monotonic_ns();
        let under_way = self.under_way.values();
        let takes_in = |launch: &&UnderWay| launch.root_pid == pid || now < launch.parts_until;
        let roots: BTreeSet<i32> = under_way.filter(takes_in).map(|l| l.root_pid).collect();
        !roots.is_empty() && discover::ancestry(pid).any(|pid| roots.contains(&pid))
    }

    /// Whether a launch of this application is under way whose process runs: what is executed beside it is a part of it that left its
    /// process tree, or is helped by what is fetched for it.
    fn is_launching(&self, app: &AppId) -> bool {
        let mut own = self.under_way.values().filter(|launch| launch.app == *app);
        own.any(|launch| process::exe(launch.root_pid).is_ok())
    }

    /// Whether another launch of this user may be under way.
    fn has_room(&self, owner: u32) -> bool {
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
    /// Listens to execs while there is an application whose launch may be seen by them.
    pub(super) fn watch_execs(&mut self) {
        let wanted = match self.config.service.launches {
            LaunchPolicy::Off => false,
            LaunchPolicy::Tracked => {
                let is_any_listed = !self.config.service.applications.is_empty();
                is_any_listed || self.tracking.apps().next().is_some()
            }
            LaunchPolicy::Interactive => true,
        };
        let wanted = wanted && self.machine.mode() != Mode::Off;
        let execs = self.launches.as_mut().and_then(|l| l.execs.as_mut());
        if let Some(Err(error)) = execs.map(|execs| execs.listen(wanted)) {
            log_warning!("launches are seen only where `prepage run` announces them: {error}");
        }
    }

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

    /// Programs were executed.
    pub(super) fn see_execs(&mut self) {
        let is_any = self.config.service.launches == LaunchPolicy::Interactive;
        let listed = self.around.listed.iter().flat_map(Named::executable_names);
        let mut names: BTreeSet<&str> = listed.collect();
        // What is listed may be the name of a unit, a container or a desktop entry.
        let mut has_groups = !names.is_empty();
        for app in self.tracking.apps() {
            match app.kind {
                AppKind::Executable => _ = names.insert(base_name(&app.name)),
                _ => has_groups = true,
            }
        }
        // What cannot be one of them is not looked up in /proc, but for where a link leads, an interpreter's words, and its group: a
        // build executes thousands of shells.
        let is_named = |path: &str| names.contains(base_name(path));
        let wants = |pid: i32, path: &str| {
            let is_one_by_exe = || {
                let exe = process::exe(pid).unwrap_or_default();
                let (exe, words) = (exe.to_string_lossy(), || discover::arguments(pid));
                is_named(&exe) || may_be_named_by_words(&exe, words, is_named)
            };
            let has_group = || has_groups && may_be_named_by_group(&memberships(pid));
            is_named(path) || is_one_by_exe() || has_group() || is_any && is_interactive(pid)
        };
        let execs = self.launches.as_mut().and_then(|l| l.execs.as_mut());
        let execs = execs.map(|execs| execs.drain(wants)).unwrap_or_default();
        for exec in execs {
            self.see_exec(&exec);
        }
    }

    fn see_exec(&mut self, exec: &Exec) {
        let Some(help) = self.launches.as_ref() else {
            return;
        };
        if help.is_part_of_launch(exec.pid) {
            return;
        }
        // It may have ended already, or it or one above it does not answer.
        let Ok((process, parent)) = discover::facts(exec.pid) else {
            return;
        };
        let Ok(chain) = discover::chain(process, parent) else {
            return;
        };
        // Any other process of an application is not its launch.
        let Some(mut identity) = discover::identify_main(&chain, &self.around) else {
            return;
        };
        // A desktop that runs it moves it into the scope that names it some milliseconds later.
        let is_by_itself = identity.app.kind == AppKind::Executable;
        if is_by_itself
            && !self.tracking.contains(&identity.app)
            && let Some(entry) = self.launched_entry(exec.pid, identity.app.owner)
        {
            identity.app = entry;
        }
        if help.is_launching(&identity.app) {
            return;
        }
        let is_tracked = self.tracking.contains(&identity.app);
        // What is executed in the group of one that runs is no launch of it; a program is one wherever it runs.
        let is_launch = LazyCell::new(|| is_by_itself || !discover::joins_others(&identity));
        // What a group's program is, takes a look at each of its processes.
        let is_meant = || !self.around.listed.is_empty() && *is_launch && self.lists(&identity);
        let is_found = !is_tracked && (self.around.lists(&identity.app) || is_meant());
        let is_chosen = is_tracked
            || is_found
            || self.config.service.launches == LaunchPolicy::Interactive
                && (runs_in_other_root(&chain[0]) || !is_session_program(&chain[0]))
                && is_interactive(exec.pid);
        if is_chosen && *is_launch {
            self.begin_launch(Launching {
                app: identity.app.clone(),
                process: &chain[0],
                began: exec.at,
                options: LaunchOptions::default(),
                is_announced: false,
                tracing: Tracing::No,
            });
        }
        if is_found {
            self.meet(identity);
        }
    }

    /// The application of the desktop entry that a process was launched by, where that is tracked or listed. GLib, by which GNOME Shell
    /// and others launch, says so in its environment, which the processes below it inherit: it tells whose pid it means.
    fn launched_entry(&self, pid: i32, owner: u32) -> Option<AppId> {
        let environment = environment(pid);
        let value = |name: &str| {
            let variables = environment.split(|&byte| byte == 0);
            let mut values = variables.filter_map(|v| v.strip_prefix(name.as_bytes()));
            std::str::from_utf8(values.next()?).ok()
        };
        let launched: i32 = value("GIO_LAUNCHED_DESKTOP_FILE_PID=")?.parse().ok()?;
        let entry = base_name(value("GIO_LAUNCHED_DESKTOP_FILE=")?);
        let app = AppId {
            kind: AppKind::Desktop,
            name: entry.strip_suffix(".desktop")?.into(),
            owner,
        };
        let is_known = || self.tracking.contains(&app) || self.around.lists(&app);
        (launched == pid && is_known()).then_some(app)
    }

    /// Decides on a launch and begins it.
    fn begin_launch(&mut self, launching: Launching<'_>) -> Begun {
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
        let rights = status.and_then(|status| rights(status, app.owner));
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

    /// `LaunchBegin`: the caller's own process is about to execute a program.
    pub(super) fn call_launch_begin(
        &mut self,
        caller: Caller,
        given: &LaunchBeginParameters,
    ) -> Answer {
        require_printable(&given.exe, "exe", PATH_BYTES_MAX)?;
        require_printable(&given.name, "name", PATH_BYTES_MAX)?;
        let owner = caller.uid;
        let help = self.launches.as_ref().ok_or_else(|| ApiError::Failed {
            reason: "launches are not helped here: see `prepage doctor`".into(),
        })?;
        if !help.has_room(owner) {
            let reason = format!(
                "too many launches are under way: {LAUNCHES_OF_USER_MAX} of yours, or {LAUNCHES_MAX} in all"
            );
            return Err(ApiError::Failed { reason });
        }
        let pid = require_pid(caller)?;
        let unknown = |error: prepage_kernel::Error| unknown_process(pid, &error);
        // Its own arguments are those of who asks, and may be long.
        let named = || Ok(vec![given.name.clone()]);
        let (mut process, parent) = discover::facts_with(pid, named).map_err(unknown)?;
        process.exe = Some(given.name.clone());
        let mut chain = discover::chain(process, parent).map_err(unknown)?;
        let identity = discover::identify_main(&chain, &self.around)
            .filter(|_| is_first_of_unit(&chain, &self.around));
        let app = identity.map(|i| i.app).or_else(|| program(&chain[0]));
        let app = app.filter(|app| app.owner == owner);
        let app = app.ok_or_else(|| not_found("that is no application of yours"))?;
        chain[0].exe = Some(given.exe.clone());
        let begun = self.begin_launch(Launching {
            app: app.clone(),
            process: &chain[0],
            began: monotonic_ns(),
            options: given.options,
            is_announced: true,
            tracing: given.tracing,
        });
        let awaits_tracer = matches!(begun, Begun::AwaitsTracer);
        let begun = match &begun {
            Begun::Launch(id, decided) => Some((*id, decided.as_ref())),
            Begun::Alone | Begun::AwaitsTracer => None,
        };
        let stored = self.store.load(&app);
        let phase = stored.map_or(Phase::default(), |s| s.launch.phase);
        let plan = begun.and_then(|(_, d)| d.decision.prefetch.as_ref());
        reply(LaunchBeginReply {
            app: app.to_string(),
            launch: begun.map(|(id, _)| id),
            phase: begun.map_or(phase, |(_, d)| d.state.phase),
            waits: plan.is_some_and(|plan| plan.start != LaunchStart::Together),
            decision: begun
                .map(|(_, d)| DecisionRecord::from(d))
                .unwrap_or_default(),
            awaits_tracer,
        })
    }

    pub(super) fn own_launch(
        &mut self,
        caller: Caller,
        id: u64,
    ) -> Result<&mut UnderWay, ApiError> {
        let help = self.launches.as_mut();
        let launch = help.and_then(|help| help.under_way.get_mut(&id));
        launch
            .filter(|launch| may_act(caller, &launch.app))
            .ok_or_else(|| not_found(format!("no launch {id} of yours is under way")))
    }

    /// `LaunchEnd`: the caller knows how it went on.
    pub(super) fn call_launch_end(&mut self, caller: Caller, given: LaunchEndParameters) -> Answer {
        let launch = self.own_launch(caller, given.launch)?;
        launch.has_failed |= given.outcome == LaunchOutcome::Failed;
        if let Some(help) = &self.launches {
            help.engine.settled(given.launch);
        }
        reply(serde_json::json!({}))
    }

    /// `LaunchPrefetched`: answered at once.
    pub(super) fn call_launch_prefetched(&mut self, caller: Caller, id: u64) -> Answer {
        let is_under_way = self.own_launch(caller, id).is_ok();
        let help = self.launches.as_ref().filter(|_| is_under_way);
        let complete = help.is_none_or(|help| help.engine.wait_prefetched(id, Duration::ZERO));
        reply(LaunchPrefetchedReply { complete })
    }

    /// `LaunchReport`: what a launch did, once it is over.
    pub(super) fn call_launch_report(&mut self, caller: Caller, id: u64) -> Answer {
        if self.own_launch(caller, id).is_ok() {
            return reply(LaunchReportReply { record: None });
        }
        let kept = self.launches.iter().flat_map(|help| &help.records);
        let own = kept.filter(|(app, _)| may_act(caller, app));
        let found = own
            .flat_map(|(_, records)| records)
            .find(|(of, _)| *of == id);
        match found {
            Some((_, record)) => reply(LaunchReportReply {
                record: Some(record.clone()),
            }),
            None => Err(not_found(format!(
                "launch {id} is none of yours, or long over"
            ))),
        }
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
fn rights(status: ProcessStatus, owner: u32) -> Option<Rights> {
    (status.uid.file_system == owner).then_some(Rights {
        uid: owner,
        // That of a set-gid program is none of its user's.
        gid: status.gid.real,
        groups: status.groups,
    })
}

/// The environment that a process was executed with, its variables divided by NUL, as far as it is looked at; empty where it is gone
/// or does not answer.
fn environment(pid: i32) -> Vec<u8> {
    let environment = move || {
        let mut environment = Vec::new();
        let file = std::fs::File::open(format!("/proc/{pid}/environ"))?;
        let mut file = file.take(ENVIRONMENT_BYTES_MAX);
        file.read_to_end(&mut environment).map(|_| environment)
    };
    let environment = patience::of_process(pid, environment).and_then(std::io::Result::ok);
    environment.unwrap_or_default()
}

/// Whether a process was launched in a graphical session and not from a terminal.
fn is_interactive(pid: i32) -> bool {
    let environment = environment(pid);
    let mut variables = environment.split(|&byte| byte == 0);
    let has_display =
        variables.any(|v| v.starts_with(b"DISPLAY=") || v.starts_with(b"WAYLAND_DISPLAY="));
    let input = std::fs::read_link(format!("/proc/{pid}/fd/0"));
    let is_typed = input.is_ok_and(|path| path.as_os_str().as_bytes().starts_with(b"/dev/pts/"));
    has_display && !is_typed
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
        assert_eq!(rights(status("1000\t1000\t1000\t1000"), 1000), Some(own));
        assert_eq!(rights(status("1000\t0\t0\t0"), 1000), None);
    }
}
