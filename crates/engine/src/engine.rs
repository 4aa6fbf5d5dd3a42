//! The real executor.

use crate::ahead::{Reclaimed, Reclaimer, Task as ReclaimTask, Wanting};
use crate::error::Result;
use crate::executor::{Executor, FaultBurst, Members};
use crate::fetch::cores::Cores;
use crate::fetch::job::Job;
use crate::fetch::pool::Pool;
use crate::fetch::swap_layout::SwapLayout;
use crate::mailbox::Mailbox;
use crate::members::{self, Roster};
use crate::observe::collect::Task;
use crate::observe::faults::FaultLog;
use crate::observe::files::FileTrace;
use crate::observe::observer::{self, Command};
use crate::params::{CorePolicy, EngineParams, FetchParams, ObserveParams};
use crate::restore::{Restored, Restores, Task as RestoreTask};
use prepage_core::app::Known;
use prepage_core::identity::{AppId, Instance};
use prepage_core::machine::{Action, Event, Nanos, Need};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::perf::RingSwitch;
use prepage_kernel::sched;
use prepage_kernel::support::Support;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads, rings and the processes followed.
#[derive(Debug)]
pub struct Engine {
    params: EngineParams,
    /// Cores with their capacities.
    capacities: Vec<(usize, u32)>,
    pool: Pool,
    observer: Mailbox<Command, Event>,
    reclaimer: Reclaimer,
    restores: Restores,
    /// Threads that hung in an observation.
    observers_given_up: Arc<AtomicUsize>,
    /// Threads of earlier pools that hung.
    earlier_given_up: usize,
    /// `None` where the kernel refuses: nothing is learned of anonymous pages then, and no onset is seen.
    faults: Option<FaultLog>,
    /// Turns the recording of file accesses on and off; `None` where there is none.
    trace: Option<RingSwitch>,
    roster: Roster,
    /// The copies that the next switches are to, where it is not to all.
    aims: BTreeMap<AppId, Members>,
    /// Applications whose processes are to be looked up as soon as their fetch has begun.
    refresh_due: Vec<AppId>,
    switches: BTreeMap<AppId, Switch>,
    events: Vec<Event>,
    /// Bursts of faults that were seen at the end of a switch and are not told of yet.
    bursts: Vec<FaultBurst>,
    warnings: Vec<String>,
    /// Looked up after a switch, for the next one.
    swap: SwapLayout,
}

/// A switch under way.
#[derive(Debug, Default)]
struct Switch {
    began: Nanos,
    /// The copy of the application that is switched to; none means all.
    copy: Option<Members>,
    /// Whether file accesses are recorded for it.
    files: bool,
    /// Whether the onset of another is waited for.
    awaits_onset: bool,
    job: Option<Arc<Job>>,
    path_us: u64,
}

impl Engine {
    /// Creates the threads and opens the rings. What this kernel refuses is done without: see
    /// [`Engine::warnings`].
    ///
    /// # Errors
    /// Where a thread cannot be created.
    pub fn start(params: &EngineParams, support: &Support) -> Result<Self> {
        let capacities = support.cpu_capacities.clone();
        let cores = cores(&capacities, &params.fetch);
        let mut warnings = Vec::new();
        let faults = open_faults(&cores.all, &params.observe, &mut warnings);
        let trace = open_trace(&cores.all, &params.observe, &mut warnings);
        let switch = trace.as_ref().map(FileTrace::switch).transpose()?;
        let observers_given_up = Arc::new(AtomicUsize::new(0));
        let given_up = Arc::clone(&observers_given_up);
        let roster = Roster::new();
        Ok(Self {
            pool: Pool::start(&params.fetch, &cores)?,
            observer: observer::start(trace, &params.observe, given_up)?,
            reclaimer: Reclaimer::start(roster.hierarchies().to_vec())?,
            restores: Restores::default(),
            observers_given_up,
            earlier_given_up: 0,
            params: params.clone(),
            capacities,
            faults,
            trace: switch,
            roster,
            aims: BTreeMap::new(),
            refresh_due: Vec::new(),
            switches: BTreeMap::new(),
            events: Vec::new(),
            bursts: Vec::new(),
            warnings,
            swap: SwapLayout::look(),
        })
    }

    /// Fetches with new threads. Those that there are finish what they are at and end.
    fn start_pool(&mut self, params: &FetchParams) -> Result<()> {
        let pool = Pool::start(params, &cores(&self.capacities, params))?;
        self.earlier_given_up += std::mem::replace(&mut self.pool, pool).given_up();
        Ok(())
    }

    /// What this kernel refused, and what that costs.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn fetch(
        &mut self,
        now: Nanos,
        app: &AppId,
        number: u64,
        plan: &Plan,
        (mode, is_announced): (Mode, bool),
    ) {
        let switch = self.switches.entry(app.clone()).or_default();
        if std::mem::take(&mut switch.awaits_onset) {
            // What was observed as unplanned faults turned out to be a switch.
            self.reclaimer.stop();
            switch.copy = self.aims.remove(app).or(switch.copy.take());
            self.refresh_due.push(app.clone());
            self.observer.ring_done();
        }
        let members = self.roster.members(app, switch.copy.as_ref());
        let fetch = &self.params.fetch;
        let mode = match (fetch.core_policy, mode) {
            // It knows no other pages.
            (CorePolicy::Iorap, Mode::Full) => Mode::File,
            (_, mode) => mode,
        };
        let mut job = Job::new(app.owner, plan, mode, &members, self.swap, now);
        job.is_announced = is_announced;
        let threads = self.pool.anon_threads();
        job.divide(threads, fetch.disk_span_pages, fetch.disk_span_reads);
        job.keep_within(self.roster.memory_groups(app));
        let fetched = Event::Fetched {
            app: app.clone(),
            switch: number,
        };
        job.announce_end(self.observer.outbox().clone(), fetched);
        let job = Arc::new(job);
        let woken = self.pool.run(&job);
        switch.path_us = woken.saturating_sub(now) / 1_000;
        switch.job = Some(job).filter(|job| !job.is_empty());
    }

    /// Before the fetch, so that nothing of it is missed; hence only what takes microseconds. The rest is done in
    /// [`Executor::events`], once the fetch has begun.
    fn observe(&mut self, now: Nanos, app: &AppId, files: bool, awaits_onset: bool) {
        // Who awaits the onset of a switch observes what an application does in the background, which some do all the time.
        if !awaits_onset {
            self.reclaimer.stop();
        }
        if let Some(faults) = &mut self.faults {
            faults.pause(false);
        }
        if let (true, false, Some(trace)) = (files, self.records_files(), &self.trace) {
            // A kernel that refuses now shows in a switch without file events.
            let _ = trace.enable();
        }
        let switch = self.switches.entry(app.clone()).or_default();
        (switch.began, switch.files) = (now, files);
        switch.awaits_onset = awaits_onset;
        switch.copy = self.aims.remove(app);
        if files {
            self.observer.tell(Command::Begin {
                app: app.clone(),
                copies: self.roster.copies(app),
                began: now,
            });
        }
        self.refresh_due.push(app.clone());
        self.observer.ring_done();
    }

    /// Whether the onset of a switch is waited for: none is under way, but for what may be none.
    fn awaits_onset(&self) -> bool {
        self.switches.values().all(|switch| switch.awaits_onset)
    }

    fn records_files(&self) -> bool {
        self.switches.values().any(|switch| switch.files)
    }

    fn refresh(&mut self) {
        for app in std::mem::take(&mut self.refresh_due) {
            let found = self.roster.refresh(&app);
            self.events.extend(found);
            if let (Some(faults), false) = (&self.faults, self.awaits_onset()) {
                faults.set_onset(false);
            }
        }
    }

    /// Empties the rings of faults, and forgets what no switch under way or to come wants.
    fn take_faults(&mut self) -> Vec<FaultBurst> {
        let Some(faults) = &mut self.faults else {
            return Vec::new();
        };
        let roster = &self.roster;
        let is_followed = |pid| roster.app_of(pid).is_some();
        let now = monotonic_ns();
        let bursts = faults.drain(now, is_followed, !self.switches.is_empty());
        let oldest = self.switches.values().map(|switch| switch.began).min();
        faults.forget(self.params.observe.lookback_from(oldest.unwrap_or(now)));
        bursts
    }

    fn collect(&mut self, app: AppId, number: u64, plan: Arc<Plan>, known: Known) {
        // Before the switch is removed: what no switch wants is forgotten. What others have faulted is told of later.
        let bursts = self.take_faults();
        self.bursts.extend(bursts);
        let Some(switch) = self.switches.remove(&app) else {
            return;
        };
        if let Some(job) = &switch.job {
            job.cancel();
        }
        if let (true, false, Some(trace)) = (switch.files, self.records_files(), &self.trace) {
            let _ = trace.disable();
        }
        self.refresh_due.retain(|due| *due != app);
        self.swap = SwapLayout::look();
        let found = self.roster.refresh(&app);
        self.events.extend(found);
        self.roster.find_memory_groups(&app);
        let members = self.roster.members(&app, switch.copy.as_ref());
        let pids: BTreeSet<i32> = members.iter().map(|m| m.instance.pid).collect();
        let since = self.params.observe.lookback_from(switch.began);
        let kept_from = match switch.awaits_onset {
            // A switch may begin in the middle of it, with the faults that were the first signs of it.
            true => self.params.observe.lookback_from(monotonic_ns()),
            false => Nanos::MAX,
        };
        let awaits_onset = self.awaits_onset();
        let mut buffer = Default::default();
        if let Some(faults) = &mut self.faults {
            buffer = faults.take(&pids, since, kept_from);
            buffer.of_others = faults.of_others(switch.began);
            (buffer.lost, buffer.overflowed) = faults.lost(switch.began);
            faults.set_onset(awaits_onset);
        }
        self.observer.tell(Command::Collect(Box::new(Task {
            app,
            switch: number,
            plan,
            known,
            members,
            files: switch.files,
            job: switch.job,
            faults: buffer,
            began: switch.began,
            switch_path_us: switch.path_us,
        })));
    }

    fn cool(&self, instance: &Instance, pages: prepage_core::extent::ExtentSet) {
        let Some(app) = self.roster.app_of(instance.pid) else {
            return;
        };
        if let Some(member) = self.roster.member(app, instance) {
            let (app, member) = (app.clone(), Arc::clone(member));
            self.observer.tell(Command::Cool { app, member, pages });
        }
    }
}

/// Those that headroom is wanted for, with their processes.
fn wanting(roster: &Roster, needs: Vec<Need>) -> Vec<Wanting> {
    let of_app = |need: Need| Wanting {
        members: roster.members(&need.app, None),
        groups: roster.memory_groups(&need.app),
        need,
    };
    needs.into_iter().map(of_app).collect()
}

fn open_faults(
    cpus: &[usize],
    params: &ObserveParams,
    warnings: &mut Vec<String>,
) -> Option<FaultLog> {
    let cost =
        "anonymous pages are not learned, and a switch that no signal announces is not noticed";
    FaultLog::open(cpus, params)
        .map_err(|error| warnings.push(format!("{error}; {cost}")))
        .ok()
}

fn open_trace(
    cpus: &[usize],
    params: &ObserveParams,
    warnings: &mut Vec<String>,
) -> Option<FileTrace> {
    FileTrace::open(cpus, params)
        .map_err(|error| warnings.push(format!("{error}; file pages are not learned")))
        .ok()
}

fn cores(capacities: &[(usize, u32)], fetch: &FetchParams) -> Cores {
    Cores::new(capacities, &fetch.big_cores, &fetch.little_cores)
}

impl Executor for Engine {
    fn follow(&mut self, app: &AppId, copies: &[Members]) {
        self.roster.follow(app, copies);
        let found = self.roster.refresh(app);
        self.events.extend(found);
        self.roster.find_memory_groups(app);
    }

    fn unfollow(&mut self, app: &AppId) {
        self.roster.unfollow(app);
        self.aims.remove(app);
        self.observer.tell(Command::Forget(app.clone()));
    }

    fn aim(&mut self, app: &AppId, pid: Option<i32>) {
        let copy = pid.and_then(|pid| self.roster.copy_of(app, pid));
        match copy {
            Some(copy) => drop(self.aims.insert(app.clone(), copy.clone())),
            None => drop(self.aims.remove(app)),
        }
    }

    fn perform(&mut self, now: Nanos, action: Action) {
        match action {
            Action::Fetch {
                app,
                switch,
                plan,
                mode,
                is_announced,
            } => self.fetch(now, &app, switch, &plan, (mode, is_announced)),
            Action::Observe {
                app,
                files,
                awaits_onset,
                ..
            } => self.observe(now, &app, files, awaits_onset),
            Action::Collect {
                app,
                switch,
                plan,
                known,
            } => self.collect(app, switch, plan, known),
            Action::Cool { instance, pages } => self.cool(&instance, pages),
            Action::Reclaim {
                needs,
                in_use,
                mode,
                params,
            } => self.reclaimer.look(ReclaimTask {
                spared: in_use
                    .iter()
                    .flat_map(|app| self.roster.memory_groups(app))
                    .collect(),
                wanting: wanting(&self.roster, needs),
                mode,
                params,
            }),
            // The caller holds the store.
            Action::Store { .. } => {}
        }
    }

    fn events(&mut self) -> Vec<Event> {
        let results = self.observer.results();
        self.refresh();
        let mut events = std::mem::take(&mut self.events);
        events.extend(results);
        events
    }

    fn listen(&mut self, on: bool) {
        if !on {
            self.reclaimer.stop();
        }
        if let Some(faults) = &mut self.faults {
            faults.listen(on);
        }
    }

    fn pause_faults(&mut self, on: bool) {
        if let Some(faults) = &mut self.faults {
            faults.pause(on && self.switches.is_empty());
        }
    }

    fn drain_faults(&mut self) -> Vec<FaultBurst> {
        let mut bursts = std::mem::take(&mut self.bursts);
        bursts.extend(self.take_faults());
        bursts
    }

    fn set_params(&mut self, params: &EngineParams) -> Result<()> {
        if params.fetch != self.params.fetch {
            self.start_pool(&params.fetch)?;
        }
        if params.observe != self.params.observe {
            if let Some(faults) = &mut self.faults {
                faults.set_buffer_pages(params.observe.fault_buffer_pages);
            }
            let observe = Box::new(params.observe.clone());
            self.observer.tell(Command::SetParams(observe));
        }
        self.params = params.clone();
        Ok(())
    }

    fn recent_faults(&self, app: &AppId, since: Nanos) -> Vec<(i32, u64)> {
        let is_theirs = |pid| self.roster.app_of(pid) == Some(app);
        let log = self.faults.as_ref();
        log.map_or_else(Vec::new, |log| log.recent(is_theirs, since))
    }

    fn app_of(&self, pid: i32) -> Option<AppId> {
        self.roster.app_of(pid).cloned()
    }

    fn swapped_share(&self, app: &AppId, pid: i32, instances: &[(Instance, Vec<u64>)]) -> f32 {
        let copy = self.roster.copy_of(app, pid);
        let of_copy = |(instance, pages): &(Instance, Vec<u64>)| {
            let member = self.roster.member(app, instance)?;
            let is_of_copy = self.roster.copy_of(app, instance.pid) == copy;
            is_of_copy.then(|| (Arc::clone(member), pages.clone()))
        };
        members::share_out(instances.iter().filter_map(of_copy).collect())
    }

    fn adapt_to_cores(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        let capacities = match sched::capacities() {
            Ok(capacities) => capacities,
            Err(error) => return vec![format!("{error}; the cores are used as before")],
        };
        if capacities != self.capacities {
            self.capacities = capacities;
            let pool = self.start_pool(&self.params.fetch.clone());
            warnings.extend(
                pool.err()
                    .map(|error| format!("{error}; fetched is as before")),
            );
        }
        let cpus = cores(&self.capacities, &self.params.fetch).all;
        let observe = &self.params.observe;
        // Before, for what they take of locked memory.
        let is_on = self.faults.take().is_none_or(|faults| faults.is_on());
        self.faults = open_faults(&cpus, observe, &mut warnings);
        let awaits_onset = self.awaits_onset();
        if let Some(faults) = &mut self.faults {
            faults.listen(is_on);
            faults.set_onset(awaits_onset);
            if !self.switches.is_empty() {
                faults.note_gap(monotonic_ns());
            }
        }
        let trace = open_trace(&cpus, observe, &mut warnings);
        self.trace = trace.as_ref().and_then(|trace| trace.switch().ok());
        if let (true, Some(trace)) = (self.records_files(), &self.trace) {
            let _ = trace.enable();
        }
        self.observer.tell(Command::Trace(trace.map(Box::new)));
        warnings
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.observer.done_fd()
    }

    fn fault_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.faults.as_ref().map(FaultLog::fds).unwrap_or_default()
    }

    fn threads_given_up(&self) -> usize {
        let observing = self.observers_given_up.load(Ordering::Relaxed);
        self.earlier_given_up + self.pool.given_up() + observing
    }

    fn reclaimed(&self) -> Reclaimed {
        self.reclaimer.reclaimed()
    }

    fn restore(&mut self, app: &AppId, plan: &Arc<Plan>, mode: Mode) -> Result<u64> {
        let found = self.roster.refresh(app);
        self.events.extend(found);
        let task = RestoreTask {
            app: app.clone(),
            members: self.roster.members(app, None),
            groups: self.roster.memory_groups(app),
            plan: Arc::clone(plan),
            mode,
        };
        let fetch = &self.params.fetch;
        self.restores
            .begin(task, fetch, cores(&self.capacities, fetch))
    }

    fn restored(&self, number: u64) -> Option<Restored> {
        self.restores.restored(number)
    }
}
