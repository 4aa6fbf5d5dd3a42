//! A machine and an engine around one child process.

use prepage_core::anon::{AnonObservation, AnonTargets};
use prepage_core::app::{Known, Observation, Profile};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::FileTargets;
use prepage_core::identity::{AppId, AppKind, FileId, Instance};
use prepage_core::machine::{Action, Event, Machine};
use prepage_core::outcome::{Outcome, SwitchRecord};
use prepage_core::params::{Mode, Params};
use prepage_core::plan::Plan;
use prepage_core::signal::Source;
use prepage_engine::{Engine, EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::filemap::FilemapKind;
use prepage_kernel::open::{process_root, stat_in_root};
use prepage_kernel::sched::sleep_us;
use prepage_kernel::support::Support;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::eventually;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

pub struct Rig {
    pub machine: Machine,
    pub engine: Engine,
    pub app: AppId,
    /// The plan of the switch that began last was fetched.
    is_fetched: bool,
}

impl Rig {
    pub fn new(child: &Child, engine: &EngineParams, params: Params) -> Rig {
        let mut rig = Rig {
            machine: Machine::new(params, Mode::Full),
            engine: Engine::start(engine, &Support::probe()).expect("start the engine"),
            app: AppId {
                kind: AppKind::Named,
                name: "child".into(),
                owner: 0,
            },
            is_fetched: false,
        };
        assert!(
            rig.engine.warnings().is_empty(),
            "these tests need perf events and tracefs: {:?}",
            rig.engine.warnings()
        );
        let (app, profile) = (rig.app.clone(), Box::<Profile>::default());
        rig.step(Event::Tracked { app, profile });
        let app = rig.app.clone();
        rig.engine.follow(&app, &[Members::Tree(child.pid())]);
        rig.take_events();
        rig
    }

    pub fn step(&mut self, event: Event) {
        let now = monotonic_ns();
        for action in self.machine.step(now, event) {
            if !matches!(action, Action::Store { .. }) {
                self.engine.perform(now, action);
            }
        }
    }

    /// Steps through everything that has happened.
    pub fn take_events(&mut self) {
        for event in self.engine.events() {
            self.is_fetched |= matches!(event, Event::Fetched { .. });
            self.step(event);
        }
    }

    pub fn begin(&mut self) {
        self.begin_by(Source::Explicit);
    }

    pub fn begin_by(&mut self, source: Source) {
        self.is_fetched = false;
        let app = self.app.clone();
        self.step(Event::Begin { app, source });
        self.take_events();
    }

    /// Whether the switch's plan is being fetched still, pages that are only watched included.
    pub fn is_fetching(&mut self) -> bool {
        self.take_events();
        // As the service does when a ring is half full.
        self.engine.drain_faults();
        !self.is_fetched
    }

    /// Waits until it was fetched.
    pub fn wait_for_fetch(&mut self) {
        eventually("the plan was fetched", || !self.is_fetching());
    }

    /// Ends the switch and waits until it has been learned from.
    pub fn end(&mut self) -> SwitchRecord {
        let app = self.app.clone();
        let before = self.machine.records(&app).count();
        self.step(Event::End { app: app.clone() });
        eventually("the switch was observed", || {
            self.take_events();
            self.machine.records(&app).count() > before
        });
        let record = self.machine.records(&app).last();
        record.expect("a record").clone()
    }

    /// A whole switch in which the child does `work`.
    pub fn switch<T>(&mut self, work: impl FnOnce() -> T) -> SwitchRecord {
        self.begin();
        work();
        self.end()
    }

    /// The child, as the application's process.
    pub fn instance(&self, child: &Child) -> Instance {
        let model = self.machine.app(&self.app).expect("tracked");
        let mut instances = model.instances().map(|(instance, _)| *instance);
        let found = instances.find(|instance| instance.pid == child.pid());
        found.expect("the child is followed")
    }

    /// Begins a switch that fetches `plan`, whatever has been learned.
    pub fn fetch(&mut self, plan: &Plan) {
        self.fetch_for(&self.app.clone(), plan);
    }

    /// The same, to this application.
    pub fn fetch_for(&mut self, app: &AppId, plan: &Plan) {
        self.is_fetched = false;
        let (app, switch, now) = (app.clone(), 1, monotonic_ns());
        let (plan, mode) = (Arc::new(plan.clone()), Mode::Full);
        self.engine.perform(now, observe(&app, switch, false));
        self.engine.events();
        let fetch = Action::Fetch {
            app,
            switch,
            plan,
            mode,
            is_announced: true,
        };
        self.engine.perform(now, fetch);
    }

    /// Ends it and waits until it has been observed.
    pub fn collect(&mut self, plan: &Plan) -> Observation {
        let collect = collect(&self.app, 1, plan);
        self.engine.perform(monotonic_ns(), collect);
        let mut observed = None;
        eventually("the switch was observed", || {
            observed = self
                .engine
                .events()
                .into_iter()
                .find_map(|event| match event {
                    Event::Observed { observation, .. } => Some(*observation),
                    _ => None,
                });
            observed.is_some()
        });
        observed.expect("an observation")
    }

    /// What was seen of the child's anonymous pages.
    pub fn seen<'a>(&self, child: &Child, seen: &'a Observation) -> &'a AnonObservation {
        &seen.anon[&self.instance(child)]
    }

    /// A plan of these pages of the child, to be mapped.
    pub fn plan_of(&self, child: &Child, ranges: impl IntoIterator<Item = Range<u64>>) -> Plan {
        plan_of_pages(self.instance(child), ranges)
    }

    pub fn set_mode(&mut self, mode: Mode) {
        self.step(Event::SetMode(mode));
    }
}

/// A plan of these pages of a process, to be mapped.
pub fn plan_of_pages(instance: Instance, ranges: impl IntoIterator<Item = Range<u64>>) -> Plan {
    let pages = |r: Range<u64>| (Extent::between(r.start, r.end), 0, false);
    let targets = AnonTargets::new(ranges.into_iter().map(pages));
    Plan {
        anon: vec![(instance, targets)],
        ..Plan::default()
    }
}

/// A plan of these pages of a file, as our root directory shows it.
pub fn plan_of_file(path: &Path, pages: Range<u64>) -> Plan {
    let own_root = process_root(prepage_kernel::process::own_pid()).expect("root");
    let stat = stat_in_root(own_root.as_fd(), path).expect("stat");
    let file = FileId {
        path: path.to_str().expect("text").into(),
        device: (rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev)),
        inode: stat.inode,
        size: stat.size_bytes,
        mtime_ns: stat.mtime_ns as i64,
    };
    plan_of(file, pages)
}

/// A plan of these pages of this file.
pub fn plan_of(file: FileId, pages: Range<u64>) -> Plan {
    let wanted = Extent::between(pages.start, pages.end);
    let targets = FileTargets {
        file,
        wanted: ExtentSet::from(vec![wanted]),
        read: ExtentSet::from(vec![wanted]),
        reads: vec![(0, wanted)],
        gap_pages: 0,
    };
    Plan {
        files: vec![targets],
        ..Plan::default()
    }
}

/// For a test that counts on each access to a file being seen, and not only what is read into the page cache.
pub fn needs_access_reports() {
    let found = Support::probe().filemap_tracepoints;
    let reports = [FilemapKind::GetPages, FilemapKind::Fault];
    assert!(
        reports.iter().all(|kind| found.contains(kind)),
        "this test needs a kernel that reports file accesses (6.12)"
    );
}

/// Parameters under which no signal counts as a repetition, and file accesses are observed in every switch.
pub fn params() -> Params {
    let mut params = Params::default();
    params.switch.repeat_ms = 0;
    params.file.observe_interval_max = 1;
    params
}

/// What a switch did to file pages, whose accesses were observed.
pub fn of_files(record: &SwitchRecord) -> &Outcome {
    record.file.as_ref().expect("file accesses were observed")
}

/// Demand faults of the child so far.
pub fn demand_faults(child: &Child) -> u64 {
    let stat = prepage_kernel::process::stat(child.pid());
    stat.expect("stat").major_faults
}

/// Waits until the child's pages stop coming in: fetching is done.
pub fn settle(child: &Child) {
    settle_at(child, &child.pages);
}

/// As [`settle`], of these pages.
pub fn settle_at(child: &Child, pages: &Range<u64>) {
    let present = || {
        child
            .entries_at(pages)
            .iter()
            .filter(|e| e.present())
            .count()
    };
    let (mut last, mut stable) = (usize::MAX, 0);
    for _ in 0..100 {
        prepage_kernel::sched::sleep_us(20_000);
        let now = present();
        stable = if now == last { stable + 1 } else { 0 };
        // Other tests' builds may keep the fetching threads from the cores for a while.
        if stable == 3 {
            return;
        }
        last = now;
    }
}

/// The next observation, if there is one within two seconds.
pub fn next_observation(rig: &mut Rig) -> Option<(AppId, u64, Observation)> {
    (0..200).find_map(|_| {
        sleep_us(10_000);
        let observed = |event| match event {
            Event::Observed {
                app,
                switch,
                observation,
            } => Some((app, switch, *observation)),
            _ => None,
        };
        rig.engine.events().into_iter().find_map(observed)
    })
}

/// To observe a switch, or what may be none, its file accesses too.
pub fn observe(app: &AppId, switch: u64, awaits_onset: bool) -> Action {
    Action::Observe {
        app: app.clone(),
        switch,
        files: true,
        awaits_onset,
    }
}

/// To end it, this having been planned for it.
pub fn collect(app: &AppId, switch: u64, plan: &Plan) -> Action {
    Action::Collect {
        app: app.clone(),
        switch,
        plan: Arc::new(plan.clone()),
        known: Known::default(),
    }
}

/// An application of this name.
pub fn named(name: &str) -> AppId {
    AppId {
        kind: AppKind::Named,
        name: name.into(),
        owner: 0,
    }
}
