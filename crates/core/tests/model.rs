//! A model test: random events through the whole state machine, its invariants checked after every step and its
//! anonymous tables compared, page by page, with a naive model.
//!
//! That no page is in two tables holds by construction: both are one map from pages to states. What is checked is
//! that the map is one, i.e. its runs are in order and disjoint.

use prepage_core::anon::{AnonObservation, Table};
use prepage_core::app::{AppModel, INSTANCES_MAX, Observation, Profile};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::FileObservation;
use prepage_core::history::History;
use prepage_core::identity::{AppId, AppKind, FileId, Instance};
use prepage_core::machine::{Action, Event, Machine, Nanos, Need, RECORDS_MAX};
use prepage_core::outcome::Void;
use prepage_core::params::{AnonRule, FileCandidates, Mode, Params};
use prepage_core::plan::Plan;
use prepage_core::signal::Source;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PAGES: u64 = 160;
const APPS: u8 = 2;
const NANOS_PER_MS: u64 = 1_000_000;

/// Whether no switch to an application is under way but what may be none.
fn is_onset_awaited(machine: &Machine, app: &AppId) -> bool {
    let under_way = machine.under_way(app);
    under_way.is_none_or(|(_, source)| source == Source::Unplanned)
}

/// What happens, in terms that the model resolves to events.
#[derive(Clone, Debug)]
enum Step {
    Track {
        app: u8,
        keeps_profile: bool,
    },
    Untrack {
        app: u8,
    },
    Start {
        app: u8,
        instance: Instance,
    },
    Exit {
        app: u8,
        instance: Instance,
    },
    Begin {
        app: u8,
        source: Source,
    },
    End {
        app: u8,
    },
    Faults {
        app: u8,
        ago_ms: u64,
    },
    /// `behind` 0 is the switch under way, if one is; else another number.
    Fetched {
        app: u8,
        behind: u64,
    },
    Tick {
        after_ms: u64,
    },
    Deadline,
    /// `behind` 0 is the switch whose observation is awaited, if one is; else another number.
    Observed {
        app: u8,
        behind: u64,
        /// Whether what it says of fetched pages is the plan, as it should be.
        is_faithful: bool,
        seen: Box<Observation>,
    },
    FileChanged {
        app: u8,
        file: FileId,
    },
    SetMode(Mode),
    SetParams(Box<Params>),
    Pressure(bool),
}

/// Few, so that most of what is observed is of the living; sometimes a pid that comes again or execs.
fn instances() -> impl Strategy<Value = Instance> {
    let later = || prop_oneof![9 => Just(0u64), 1 => Just(1u64)];
    (1..3i32, later(), later()).prop_map(|(pid, start_ticks, exec)| Instance {
        pid,
        start_ticks,
        exec,
    })
}

fn files() -> impl Strategy<Value = FileId> {
    (0..4u64, 0..2i64).prop_map(|(inode, mtime_ns)| FileId {
        path: format!("/usr/lib/{inode}").into(),
        device: (8, 1),
        inode,
        size: 1 << 20,
        mtime_ns,
    })
}

fn sets() -> impl Strategy<Value = ExtentSet> {
    let extent = (0..PAGES, 1..24u64).prop_map(|(start, len)| Extent::new(start, len));
    prop::collection::vec(extent, 0..5).prop_map(ExtentSet::from)
}

fn observations() -> impl Strategy<Value = Box<Observation>> {
    // Some pages recur, or nothing would be planned.
    let recurring = prop::sample::select(vec![
        ExtentSet::new(),
        ExtentSet::from(vec![Extent::new(20, 60), Extent::new(100, 30)]),
    ]);
    let anon = (sets(), sets(), sets(), sets(), sets(), recurring).prop_map(
        |(faulted, used, unused, always_shown, fetched, recurring)| AnonObservation {
            faulted: faulted.union(&recurring),
            used,
            unused,
            always_shown,
            fetched,
            order: Vec::new(),
        },
    );
    let file =
        (sets(), sets(), sets(), sets()).prop_map(|(accessed, demanded, unknown, fetched)| {
            let demanded = demanded.intersection(&accessed);
            FileObservation {
                demanded,
                unobservable: unknown.intersection(&fetched).difference(&accessed),
                unknown,
                fetched,
                accessed,
                order: Vec::new(),
            }
        });
    let void = prop::option::weighted(
        0.3,
        prop_oneof![Just(Void::Reclaimed), Just(Void::EventsLost)],
    );
    (
        prop::collection::btree_map(instances(), anon, 0..5),
        prop::collection::btree_map(files(), file, 0..4),
        prop::collection::btree_set(files(), 0..2),
        void,
        prop::bool::weighted(0.8),
        0..3u64,
    )
        .prop_map(
            |(anon, files, stale_files, void, files_observed, events_lost)| {
                let seen = Observation {
                    anon,
                    files,
                    stale_files,
                    void,
                    files_observed,
                    events_lost,
                    ..Observation::default()
                };
                Box::new(seen)
            },
        )
}

fn sources() -> impl Strategy<Value = Source> {
    prop::sample::select(vec![
        Source::Explicit,
        Source::Focus,
        Source::Onset,
        Source::Unplanned,
        Source::Thaw,
    ])
}

fn steps() -> impl Strategy<Value = Step> {
    let app = 0..APPS;
    let modes = vec![
        Mode::Off,
        Mode::Observe,
        Mode::Anon,
        Mode::File,
        Mode::Full,
        Mode::Full,
        Mode::Full,
    ];
    prop_oneof![
        3 => (app.clone(), any::<bool>()).prop_map(|(app, keeps_profile)| Step::Track { app, keeps_profile }),
        1 => app.clone().prop_map(|app| Step::Untrack { app }),
        5 => (app.clone(), instances()).prop_map(|(app, instance)| Step::Start { app, instance }),
        1 => (app.clone(), instances()).prop_map(|(app, instance)| Step::Exit { app, instance }),
        10 => (app.clone(), sources()).prop_map(|(app, source)| Step::Begin { app, source }),
        6 => app.clone().prop_map(|app| Step::End { app }),
        4 => (app.clone(), 0..500u64).prop_map(|(app, ago_ms)| Step::Faults { app, ago_ms }),
        6 => (app.clone(), prop_oneof![6 => Just(0u64), 1 => 1..4u64])
            .prop_map(|(app, behind)| Step::Fetched { app, behind }),
        8 => (0..2_000u64).prop_map(|after_ms| Step::Tick { after_ms }),
        3 => Just(Step::Deadline),
        14 => (
            app.clone(),
            prop_oneof![6 => Just(0u64), 1 => 1..4u64],
            any::<bool>(),
            observations(),
        )
            .prop_map(|(app, behind, is_faithful, seen)| Step::Observed {
                app,
                behind,
                is_faithful,
                seen,
            }),
        2 => (app, files()).prop_map(|(app, file)| Step::FileChanged { app, file }),
        1 => prop::sample::select(modes).prop_map(Step::SetMode),
        1 => params().prop_map(|(params, _)| Step::SetParams(Box::new(params))),
        1 => any::<bool>().prop_map(Step::Pressure),
    ]
}

fn id(app: u8) -> AppId {
    AppId {
        kind: AppKind::Named,
        name: format!("app{app}").into(),
        owner: 1000,
    }
}

/// A page as the paper keeps it, and its last known observations, oldest first.
#[derive(Clone, Debug, PartialEq)]
struct Page {
    table: Table,
    timeout: u8,
    seen: Vec<bool>,
}

/// An application as the naive model sees it.
#[derive(Clone, Debug, Default)]
struct ModelApp {
    pages: BTreeMap<Instance, BTreeMap<u64, Page>>,
    next: u64,
    switching: Option<u64>,
    collecting: Option<(u64, Arc<Plan>)>,
    accepted: u64,
    superseded: bool,
    /// What switches touched that touched more than a quarter of their plan.
    sizes: Vec<u64>,
}

impl ModelApp {
    fn learn(&mut self, seen: &Observation, timeout: u8) {
        for (instance, pages) in &mut self.pages {
            let Some(seen) = seen.anon.get(instance) else {
                continue;
            };
            for page in 0..PAGES + 30 {
                let accessed = seen.faulted.contains(page) || seen.used.contains(page);
                if !(accessed || seen.unused.contains(page) && pages.contains_key(&page)) {
                    continue;
                }
                let (table, left) = match pages.get(&page) {
                    None => (Table::Candidate, timeout),
                    Some(_) if accessed => (Table::Target, timeout),
                    Some(old) => (old.table, old.timeout - 1),
                };
                let mut history = pages.remove(&page).map_or(Vec::new(), |p| p.seen);
                history.push(accessed);
                let seen = history.split_off(history.len().saturating_sub(7));
                if left > 0 {
                    pages.insert(
                        page,
                        Page {
                            table,
                            timeout: left,
                            seen,
                        },
                    );
                }
            }
        }
    }
}

struct Model {
    machine: Machine,
    now: Nanos,
    apps: BTreeMap<AppId, ModelApp>,
    /// What was observed and not yet collected.
    observing: BTreeSet<(AppId, u64)>,
    profiles: BTreeMap<AppId, Profile>,
    /// Whether the bounds are wide enough for the naive model, which has none.
    is_exact: bool,
}

impl Model {
    fn new(params: Params, is_exact: bool) -> Self {
        params.check().expect("the parameters are in range");
        Self {
            machine: Machine::new(params, Mode::Full),
            now: 0,
            apps: BTreeMap::new(),
            observing: BTreeSet::new(),
            profiles: BTreeMap::new(),
            is_exact,
        }
    }

    fn run(&mut self, step: Step) {
        let event = self.event(step);
        let switching = |m: &Self| -> Vec<AppId> {
            m.apps
                .keys()
                .filter(|app| m.machine.is_switching(app))
                .cloned()
                .collect()
        };
        let switching_before = switching(self);
        let actions = self.machine.step(self.now, event.clone());
        self.check_actions(&actions);
        self.follow(&event, &actions);
        // Only the events that may end a switch do.
        if !matches!(
            event,
            Event::Begin { .. } | Event::End { .. } | Event::Tick | Event::Untracked { .. }
        ) {
            assert_eq!(switching(self), switching_before, "{event:?}");
        }
        self.check_state();
    }

    fn event(&mut self, step: Step) -> Event {
        match step {
            Step::Track { app, keeps_profile } => {
                let profile = self.profiles.get(&id(app)).filter(|_| keeps_profile);
                Event::Tracked {
                    app: id(app),
                    profile: Box::new(profile.cloned().unwrap_or_default()),
                }
            }
            Step::Untrack { app } => Event::Untracked { app: id(app) },
            Step::Start { app, instance } => Event::InstanceStarted {
                app: id(app),
                instance,
            },
            Step::Exit { app, instance } => Event::InstanceEnded {
                app: id(app),
                instance,
            },
            Step::Begin { app, source } => Event::Begin {
                app: id(app),
                source,
            },
            Step::End { app } => Event::End { app: id(app) },
            Step::Faults { app, ago_ms } => {
                let last_at = self.now.saturating_sub(ago_ms * NANOS_PER_MS);
                Event::DemandFaults {
                    app: id(app),
                    // Some bursts are too small to count.
                    count: ago_ms % 100,
                    last_at,
                }
            }
            Step::Fetched { app, behind } => {
                let switching = self.apps.get(&id(app)).and_then(|a| a.switching);
                Event::Fetched {
                    app: id(app),
                    switch: switching.unwrap_or(1).wrapping_sub(behind),
                }
            }
            Step::Tick { after_ms } => {
                self.now += after_ms * NANOS_PER_MS;
                Event::Tick
            }
            Step::Deadline => {
                self.now = self.machine.deadline().unwrap_or(self.now).max(self.now);
                Event::Tick
            }
            Step::Observed {
                app,
                behind,
                is_faithful,
                mut seen,
            } => {
                let awaited = self.apps.get(&id(app)).and_then(|a| a.collecting.as_ref());
                if let (Some((_, plan)), true) = (awaited, is_faithful) {
                    for (instance, targets) in &plan.anon {
                        let seen = seen.anon.entry(*instance).or_default();
                        seen.fetched = targets.all();
                    }
                }
                let switch = awaited.map_or(1, |(number, _)| *number);
                Event::Observed {
                    app: id(app),
                    switch: switch.wrapping_sub(behind),
                    observation: seen,
                }
            }
            Step::FileChanged { app, file } => Event::FileChanged { app: id(app), file },
            Step::SetMode(mode) => Event::SetMode(mode),
            Step::SetParams(params) if self.is_exact => Event::SetParams(widened(params)),
            Step::SetParams(params) => Event::SetParams(params),
            Step::Pressure(under_pressure) => Event::Pressure { under_pressure },
        }
    }

    /// Every switch is observed once and collected once, and the mode is kept.
    fn check_actions(&mut self, actions: &[Action]) {
        let mode = self.machine.mode();
        for action in actions {
            match action {
                Action::Observe {
                    app,
                    switch,
                    files,
                    awaits_onset,
                } => {
                    assert_ne!(mode, Mode::Off);
                    assert!(
                        *files || mode.fetches() && !awaits_onset,
                        "nothing else is there to see"
                    );
                    assert_eq!(*awaits_onset, is_onset_awaited(&self.machine, app));
                    assert!(
                        self.observing.insert((app.clone(), *switch)),
                        "observed twice"
                    );
                }
                Action::Fetch {
                    mode: fetched,
                    plan,
                    app,
                    ..
                } => {
                    assert_eq!(*fetched, mode);
                    assert!(mode.fetches() && !is_onset_awaited(&self.machine, app));
                    let model = self.machine.app(app).expect("it is tracked");
                    assert_eq!(plan, model.plan());
                }
                Action::Collect { app, switch, .. } => {
                    assert!(
                        self.observing.remove(&(app.clone(), *switch)),
                        "collected twice"
                    );
                }
                Action::Reclaim {
                    needs,
                    in_use,
                    mode: wanted,
                    ..
                } => {
                    assert!(mode.fetches() && *wanted == mode);
                    assert!(!needs.is_empty());
                    for app in self.apps.keys() {
                        assert!(is_onset_awaited(&self.machine, app), "somebody waits");
                    }
                    for Need { app, plan, .. } in needs {
                        assert_eq!(plan, self.machine.app(app).expect("it is tracked").plan());
                        assert!(plan.anon_pages() > 0 && self.machine.rest_left(app) == 0);
                    }
                    let is_tracked = |app: &AppId| self.machine.app(app).is_some();
                    assert!(in_use.len() <= 2 && in_use.iter().all(is_tracked));
                }
                Action::Cool { .. } | Action::Store { .. } => {}
            }
        }
    }

    /// Updates the naive model by the event, and checks that the machine took it as the model does.
    fn follow(&mut self, event: &Event, actions: &[Action]) {
        let timeout = self.machine.params().anon.timeout_switches;
        for action in actions {
            match action {
                Action::Observe { app, switch, .. } => {
                    let model = self
                        .apps
                        .get_mut(app)
                        .expect("only what is tracked is observed");
                    assert_eq!(*switch, model.next);
                    model.next += 1;
                    model.switching = Some(*switch);
                    model.superseded |= model.collecting.is_some();
                }
                Action::Collect {
                    app,
                    switch,
                    plan,
                    known,
                } => {
                    let model = self.apps.get_mut(app).expect("it was tracked");
                    assert!(known.anon.keys().eq(model.pages.keys()));
                    if self.is_exact {
                        for (instance, pages) in &model.pages {
                            let known = known.anon[instance].iter_pages();
                            assert!(known.eq(pages.keys().copied()));
                        }
                    }
                    assert_eq!(model.switching.take(), Some(*switch));
                    let collecting = (*switch, Arc::clone(plan));
                    (model.collecting, model.superseded) = (Some(collecting), false);
                }
                _ => {}
            }
        }
        match event {
            Event::Tracked { app, profile } => {
                let next = profile.switches + 1;
                self.apps.entry(app.clone()).or_insert_with(|| ModelApp {
                    next,
                    ..ModelApp::default()
                });
            }
            Event::Untracked { app } => {
                self.apps.remove(app);
                assert!(!self.observing.iter().any(|(observed, _)| observed == app));
            }
            Event::InstanceStarted { app, instance } => {
                if let Some(model) = self.apps.get_mut(app) {
                    model
                        .pages
                        .retain(|known, _| known.pid != instance.pid || known == instance);
                    model.pages.entry(*instance).or_default();
                }
            }
            Event::InstanceEnded { app, instance } => {
                if let Some(model) = self.apps.get_mut(app) {
                    model.pages.remove(instance);
                }
            }
            Event::Observed {
                app,
                switch,
                observation,
            } => {
                let accepts = self.apps.get(app).is_some_and(|a| {
                    a.collecting
                        .as_ref()
                        .is_some_and(|(number, _)| number == switch)
                });
                let store = Action::Store { app: app.clone() };
                assert_eq!(actions.contains(&store), accepts);
                assert!(accepts || actions.is_empty());
                if accepts {
                    self.accepted(app, observation, actions, timeout);
                }
            }
            Event::SetParams(params) => {
                assert_eq!(self.machine.params(), &**params);
                let pages = self
                    .apps
                    .values_mut()
                    .flat_map(|app| app.pages.values_mut());
                for page in pages.flat_map(BTreeMap::values_mut) {
                    page.timeout = page.timeout.min(params.anon.timeout_switches);
                }
            }
            Event::FileChanged { app, file } => {
                if let Some(model) = self.machine.app(app) {
                    assert!(model.profile().files.iter().all(|(known, _)| known != file));
                    assert!(model.plan().files.iter().all(|t| &t.file != file));
                }
            }
            _ => {}
        }
    }

    fn accepted(&mut self, app: &AppId, seen: &Observation, actions: &[Action], timeout: u8) {
        let model = self.apps.get_mut(app).expect("it is tracked");
        let superseded = model.superseded;
        let planned = model.collecting.take().map(|(_, plan)| plan.anon_pages());
        model.superseded = false;
        model.accepted += 1;
        let record = self.machine.records(app).last().expect("one");
        let largest = model.sizes.iter().rev().take(8).max().copied().unwrap_or(0);
        let is_background = [Source::Onset, Source::Unplanned].contains(&record.source)
            && record.used_share().is_none_or(|used| used < 0.5)
            && record.touched_pages() <= largest / 4;
        let void = match (superseded, seen.void) {
            (true, _) => Some(Void::Superseded),
            (false, None) if is_background => Some(Void::Background),
            (false, void) => void,
        };
        assert_eq!(record.void, void);
        if void.is_none() && record.touched_pages() > planned.expect("one was under way") / 4 {
            model.sizes.push(record.touched_pages());
        }
        assert_eq!(record.file.is_some(), seen.files_observed);
        match void {
            None => model.learn(seen, timeout),
            Some(Void::Reclaimed) if record.source.is_announced() => {
                let mut used = seen.clone();
                used.anon
                    .values_mut()
                    .for_each(|anon| anon.unused = ExtentSet::new());
                model.learn(&used, timeout);
            }
            Some(_) => {}
        }
        for action in actions {
            if let Action::Cool { instance, pages } = action {
                assert!(
                    model.pages.contains_key(instance),
                    "only the living are cooled"
                );
                let seen = &seen.anon[instance];
                assert!(pages.difference(&seen.fetched).is_empty());
                assert!(pages.intersection(&seen.accessed()).is_empty());
            }
        }
        let known = self.machine.app(app).expect("it is tracked").profile();
        self.profiles.insert(app.clone(), known.clone());
    }

    fn check_state(&self) {
        let machine = &self.machine;
        assert!(machine.apps().map(|(app, _)| app).eq(self.apps.keys()));
        let switching = self.apps.keys().any(|app| machine.is_switching(app));
        let looks_ahead =
            machine.params().reclaim.ahead && machine.mode().fetches() && !self.apps.is_empty();
        // Headroom is looked after ever later, and no more at last.
        let waits = machine.deadline().is_some();
        assert!(waits || !switching);
        assert!(!waits || switching || looks_ahead);
        let latest_ms = match switching {
            true => machine.params().switch.cap_ms,
            false => machine.params().reclaim.after_ms_max,
        };
        let latest = self.now + latest_ms * NANOS_PER_MS;
        assert!(machine.deadline().is_none_or(|deadline| deadline <= latest));
        for (app, model) in &self.apps {
            assert_eq!(machine.is_switching(app), model.switching.is_some());
            let records: Vec<_> = machine.records(app).collect();
            assert_eq!(records.len() as u64, model.accepted.min(RECORDS_MAX as u64));
            assert!(
                records
                    .windows(2)
                    .all(|pair| pair[0].number < pair[1].number)
            );
            let known = machine.app(app).expect("it is tracked");
            check_app(known, machine.params());
            assert!(
                known
                    .instances()
                    .map(|(instance, _)| instance)
                    .eq(model.pages.keys())
            );
            if self.is_exact {
                check_pages(known, model);
            }
        }
    }

    /// Lets all time pass: every switch ends.
    fn finish(&mut self) {
        self.run(Step::Tick { after_ms: 100_000 });
        assert!(
            self.observing.is_empty(),
            "never collected: {:?}",
            self.observing
        );
        assert!(!self.apps.keys().any(|app| self.machine.is_switching(app)));
    }
}

/// With bounds as wide as the naive model, which has none, needs them.
fn widened(mut params: Box<Params>) -> Box<Params> {
    let wide = Params::default();
    params.anon.runs_max = wide.anon.runs_max;
    (params.file.runs_max, params.file.files_max) = (wide.file.runs_max, wide.file.files_max);
    params.budget.table_bytes_max = wide.budget.table_bytes_max;
    params
}

fn check_set(set: &ExtentSet) {
    assert!(set.extents().iter().all(|e| !e.is_empty()));
    assert!(
        set.extents()
            .windows(2)
            .all(|pair| pair[0].end() < pair[1].start)
    );
}

fn check_app(app: &AppModel, params: &Params) {
    let in_order = |runs: &[Extent]| runs.windows(2).all(|pair| pair[0].end() <= pair[1].start);
    assert!(app.instances().count() <= INSTANCES_MAX);
    let mut anon_runs = 0;
    for (_, table) in app.instances() {
        anon_runs += table.map().runs();
        let (runs, states): (Vec<_>, Vec<_>) = table.map().iter().unzip();
        assert!(in_order(&runs));
        for state in states {
            assert!((1..=params.anon.timeout_switches).contains(&state.timeout));
            assert!(1 << state.observe_log2 <= u32::from(params.anon.observe_interval_max));
            assert!(!state.history.is_empty());
        }
    }
    assert!(anon_runs <= params.anon.runs_max);
    let profile = app.profile();
    // Processes that began since the plan was made have no pages yet.
    let begun = 100 * app.instances().count();
    let is_empty = anon_runs + profile.files.runs() == 0;
    assert!(is_empty || app.bytes() <= params.budget.table_bytes_max + begun);
    assert!(profile.is_valid());
    assert!(profile.files.len() <= params.file.files_max);
    assert!(profile.files.runs() <= params.file.runs_max);
    let mut paths = BTreeSet::new();
    for (file, map) in profile.files.iter() {
        assert!(paths.insert(&file.path), "two versions of {}", file.path);
        let (runs, states): (Vec<_>, Vec<_>) = map.iter().unzip();
        assert!(in_order(&runs) && !runs.is_empty());
        let timeouts = 1..=params.file.timeout_switches;
        assert!(states.iter().all(|state| timeouts.contains(&state.timeout)));
    }
    let plan = app.plan();
    for (instance, targets) in &plan.anon {
        let table = app.instances().find(|(known, _)| *known == instance);
        let (_, table) = table.expect("only the living are planned for");
        check_set(&targets.map());
        check_set(&targets.watch());
        assert!(targets.map().intersection(&targets.watch()).is_empty());
        assert!(
            targets
                .all()
                .iter_pages()
                .all(|page| table.map().get(page).is_some())
        );
    }
    for targets in &plan.files {
        check_set(&targets.wanted);
        check_set(&targets.read);
        assert!(targets.wanted.difference(&targets.read).is_empty());
        assert_eq!(
            targets.read.pages() - targets.wanted.pages(),
            targets.gap_pages
        );
        assert!(profile.files.iter().any(|(file, _)| *file == targets.file));
    }
}

fn check_pages(app: &AppModel, model: &ModelApp) {
    for (instance, table) in app.instances() {
        let pages = &model.pages[instance];
        assert_eq!(table.map().pages(), pages.len() as u64);
        for (&page, expected) in pages {
            let state = table.map().get(page).expect("the model holds it");
            assert_eq!(
                (state.table, state.timeout),
                (expected.table, expected.timeout)
            );
            assert_eq!(state.history.len() as usize, expected.seen.len());
            let used = expected.seen.iter().filter(|&&used| used).count();
            assert_eq!(state.history.used() as usize, used);
            let seen = expected.seen.iter();
            let history = seen.fold(History::EMPTY, |history, &used| history.with(used));
            assert_eq!(state.history, history);
        }
    }
}

fn params() -> impl Strategy<Value = (Params, bool)> {
    let waste = prop_oneof![0..400u64, Just(16_384)];
    (any::<[bool; 4]>(), 1..7u8, 0..6u32, 2..12u8, waste).prop_map(
        |([is_exact, paper, offline, ahead], timeout, interval_log2, profile_switches, waste)| {
            let mut params = Params::default();
            if !is_exact {
                (
                    params.anon.runs_max,
                    params.file.runs_max,
                    params.file.files_max,
                ) = (64, 64, 3);
                params.budget.table_bytes_max = 8_192;
            }
            params.anon.timeout_switches = timeout;
            params.anon.observe_interval_max = 1 << interval_log2;
            params.file.profile_switches = profile_switches;
            params.file.profile_accesses_min = profile_switches - 1;
            params.file.timeout_switches = timeout + 1;
            params.budget.waste_pages_max = waste;
            params.reclaim.ahead = ahead;
            if paper {
                params.anon.rule = AnonRule::Paper;
            }
            if offline {
                params.file.file_candidates = FileCandidates::Offline;
            }
            (params, is_exact)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_machine_keeps_its_invariants(
        (params, is_exact) in params(),
        steps in prop::collection::vec(steps(), 1..200),
    ) {
        let mut model = Model::new(params, is_exact);
        for app in 0..APPS {
            model.run(Step::Track { app, keeps_profile: false });
            let instance = Instance { pid: 1, start_ticks: 0, exec: 0 };
            model.run(Step::Start { app, instance });
        }
        for step in steps {
            model.run(step);
        }
        model.finish();
    }
}

#[test]
fn a_switch_is_not_quiet_while_its_plan_is_fetched() {
    let ms = |ms: u64| ms * NANOS_PER_MS;
    let params = Params::default();
    let (quiet, cap) = (ms(params.switch.quiet_ms), ms(params.switch.cap_ms));
    let after_ms = params.reclaim.after_ms;
    let mut machine = Machine::new(params, Mode::Full);
    let mut deadline = |now, event| {
        machine.step(now, event);
        machine.deadline()
    };
    let (app, profile) = (id(0), Box::default());
    deadline(0, Event::Tracked { app, profile });
    let (app, source) = (id(0), Source::Focus);
    assert_eq!(deadline(0, Event::Begin { app, source }), Some(cap));
    let fetched = |switch| Event::Fetched { app: id(0), switch };
    assert_eq!(deadline(ms(5), fetched(2)), Some(cap), "another switch's");
    assert_eq!(deadline(ms(600), fetched(1)), Some(ms(600) + quiet));
    assert_eq!(deadline(ms(700), fetched(1)), Some(ms(700) + quiet));
    assert_eq!(deadline(cap, Event::Tick), Some(cap + ms(after_ms)));
}

#[test]
fn demand_is_as_quiet_however_often_it_is_looked_at() {
    let mut params = Params::default();
    (params.switch.quiet_ms, params.switch.quiet_faults) = (250, 32);
    // A switch whose demand faults are seen so many milliseconds after its beginning, so many at a time, before its plan is
    // in and after. Returns when it is to end unless more follow, in milliseconds as well.
    let ends_at = |before: &[(u64, u64)], fetched_ms: u64, after: &[(u64, u64)]| {
        let mut machine = Machine::new(params.clone(), Mode::Full);
        let (app, profile) = (id(0), Box::default());
        machine.step(0, Event::Tracked { app, profile });
        let (app, source) = (id(0), Source::Focus);
        machine.step(0, Event::Begin { app, source });
        let see = |machine: &mut Machine, looks: &[(u64, u64)]| {
            for &(ms, count) in looks {
                let (app, last_at) = (id(0), ms * NANOS_PER_MS);
                let faults = Event::DemandFaults {
                    app,
                    count,
                    last_at,
                };
                machine.step(last_at, faults);
            }
        };
        see(&mut machine, before);
        let (app, switch) = (id(0), 1);
        let fetched = Event::Fetched { app, switch };
        machine.step(fetched_ms * NANOS_PER_MS, fetched);
        see(&mut machine, after);
        machine.deadline().expect("it is under way") / NANOS_PER_MS
    };
    // All at one look, or at four, since other switches are under way.
    assert_eq!(ends_at(&[], 0, &[(240, 80)]), 490);
    let looks = [(60, 20), (120, 20), (180, 20), (240, 20)];
    assert_eq!(ends_at(&[], 0, &looks), 490);
    // Few are quiet, and what was counted as many does not count again.
    assert_eq!(ends_at(&[], 0, &[(60, 31)]), 250);
    assert_eq!(ends_at(&[], 0, &[(60, 31), (120, 1)]), 370);
    assert_eq!(ends_at(&[], 0, &[(60, 32), (120, 31)]), 310);
    // What an application never stops doing sums up to nothing, but within `quiet_ms`.
    let drip = [(100, 20), (400, 20), (700, 20)];
    assert_eq!(ends_at(&drip, 800, &[(1_000, 20)]), 1_050);
    assert_eq!(ends_at(&[(400, 20)], 500, &[(650, 12)]), 900);
}

#[test]
fn an_application_whose_demand_does_not_end_is_left_alone_for_ever_more_switches() {
    let params = Params::default();
    let (retry, pause_ms) = (params.switch.retry_switches, params.switch.onset_pause_ms);
    let (mut model, instance) = tracked(params);
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    for _ in 0..3 {
        switch(&mut model, instance, &all);
    }
    let (mut machine, mut now) = (model.machine, model.now);
    // A switch that is fetched within 100 ms and whose demand goes on until `demanded_ms`. Returns whether it was helped.
    let mut is_helped = |demanded_ms: u64| {
        now += 10_000 * NANOS_PER_MS;
        let (app, source) = (id(0), Source::Thaw);
        let actions = machine.step(now, Event::Begin { app, source });
        let number = actions.iter().find_map(|action| match action {
            Action::Fetch { switch, .. } => Some(*switch),
            _ => None,
        });
        let Some(switch) = number else {
            assert!(actions.is_empty() && !machine.is_switching(&id(0)));
            // Its faults are nothing to look into, but those of another switch.
            let heeds_after = |ms| machine.heeds_faults(now + ms * NANOS_PER_MS, &id(0));
            assert!(!heeds_after(0) && !heeds_after(pause_ms - 1) && heeds_after(pause_ms));
            return false;
        };
        let app = id(0);
        machine.step(now + 100 * NANOS_PER_MS, Event::Fetched { app, switch });
        for after_ms in (100..=demanded_ms).step_by(100) {
            let last_at = now + after_ms * NANOS_PER_MS;
            let (app, count) = (id(0), 1_000);
            let faults = Event::DemandFaults {
                app,
                count,
                last_at,
            };
            machine.step(last_at, faults);
        }
        now = machine.deadline().expect("it lasts");
        machine.step(now, Event::Tick);
        let (app, observation) = (id(0), Box::default());
        let observed = Event::Observed {
            app,
            switch,
            observation,
        };
        machine.step(now, observed);
        true
    };
    assert!(is_helped(400) && is_helped(400), "its demand ends");
    assert!(is_helped(3_000), "once may be chance");
    for left_alone in [retry, 2 * retry] {
        assert!(is_helped(3_000));
        assert!((0..left_alone).all(|_| !is_helped(3_000)));
    }
    assert!(is_helped(400), "all is forgiven");
    assert!(is_helped(3_000) && is_helped(3_000));
    assert!((0..retry).all(|_| !is_helped(400)));
    assert!(is_helped(400));
    // While it is left alone, faults that nothing announced are looked into no more often either.
    assert!(is_helped(3_000) && is_helped(3_000));
    for source in [Source::Onset, Source::Unplanned] {
        now += 10_000 * NANOS_PER_MS;
        assert!(machine.heeds_faults(now, &id(0)));
        let begun = machine.step(now, Event::Begin { app: id(0), source });
        assert!(begun.is_empty() && !machine.heeds_faults(now, &id(0)));
        let other = machine.step(
            now,
            Event::Begin {
                app: id(0),
                source: Source::Thaw,
            },
        );
        assert!(other.is_empty() && machine.rest_left(&id(0)) > 0);
    }
}

#[test]
fn the_focus_supersedes_a_switch_that_faults_began_some_time_ago() {
    let after_ms = |before: Source, ms: u64| {
        let mut machine = Machine::new(Params::default(), Mode::Observe);
        let (app, profile) = (id(0), Box::default());
        machine.step(0, Event::Tracked { app, profile });
        let begin = |source| Event::Begin { app: id(0), source };
        machine.step(0, begin(before));
        let actions = machine.step(ms * NANOS_PER_MS, begin(Source::Focus));
        actions.iter().any(|a| matches!(a, Action::Observe { .. }))
    };
    assert!(after_ms(Source::Onset, 1_000));
    // Both are of one switch: what faults began, the focus confirms.
    assert!(!after_ms(Source::Onset, 50));
    assert!(after_ms(Source::Onset, 200));
    assert!(!after_ms(Source::Focus, 1_000));
    assert!(!after_ms(Source::Unplanned, 50));
    assert!(after_ms(Source::Unplanned, 200));
}

#[test]
fn unplanned_faults_fetch_nothing_until_something_says_that_they_are_a_switch() {
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    // Begins a switch by unplanned faults. Returns what this event leads to, so many milliseconds later.
    let then = |ms: u64, event: Event| {
        let (mut model, instance) = tracked(Params::default());
        (0..4).for_each(|_| switch(&mut model, instance, &all));
        model.now += 10_000 * NANOS_PER_MS;
        let (mut machine, now) = (model.machine, model.now);
        let source = Source::Unplanned;
        let begun = machine.step(now, Event::Begin { app: id(0), source });
        assert!(matches!(
            begun[..],
            [Action::Observe {
                awaits_onset: true,
                ..
            }]
        ));
        let actions = machine.step(now + ms * NANOS_PER_MS, event);
        (actions, is_onset_awaited(&machine, &id(0)))
    };
    let begin = |source| Event::Begin { app: id(0), source };
    let faults = |count| Event::DemandFaults {
        app: id(0),
        count,
        last_at: 0,
    };
    let is_fetch = |actions: &[Action]| matches!(actions, [Action::Fetch { switch: 5, mode: Mode::Full, plan, .. }] if plan.anon_pages() == 128);
    // Planned faults follow, or the user's signal for what has led to them, or as many faults as a switch has.
    for (ms, event) in [
        (1, begin(Source::Onset)),
        (500, begin(Source::Onset)),
        (50, begin(Source::Focus)),
        (1, faults(33)),
    ] {
        let (actions, awaits) = then(ms, event);
        assert!(is_fetch(&actions) && !awaits, "{actions:?}");
    }
    for event in [begin(Source::Unplanned), faults(32)] {
        assert_eq!(then(1, event), (Vec::new(), true));
    }
    // Later, the user's signal begins another.
    for source in [Source::Focus, Source::Thaw, Source::Explicit] {
        let (actions, awaits) = then(150, begin(source));
        let [
            Action::Collect { .. },
            Action::Observe {
                awaits_onset: false,
                ..
            },
            fetch,
        ] = &actions[..]
        else {
            panic!("no switch by {source:?}: {actions:?}");
        };
        assert!(matches!(fetch, Action::Fetch { switch: 6, .. }) && !awaits);
    }
}

#[test]
fn what_reclaim_undoes_the_onset_begins_ever_less_often() {
    let params = Params::default();
    let pause_ms = params.switch.onset_pause_ms;
    let (model, instance) = tracked(params);
    let (mut machine, mut now_ms) = (model.machine, 0);
    // A switch that the onset begins as soon as it may, and what it showed. Returns how long that took.
    let mut onset = |void: Option<Void>| {
        let ended_ms = now_ms;
        loop {
            now_ms += 500;
            let mut step = |event| machine.step(now_ms * NANOS_PER_MS, event);
            let (app, source) = (id(0), Source::Onset);
            let begun = step(Event::Begin { app, source });
            let Some(&Action::Observe {
                switch,
                awaits_onset,
                ..
            }) = begun.first()
            else {
                continue;
            };
            step(Event::End { app: id(0) });
            let mut observation = Observation::default();
            if !awaits_onset {
                observation.void = void;
                let faulted = ExtentSet::from(vec![Extent::new(0, 64)]);
                let seen = AnonObservation {
                    faulted,
                    ..AnonObservation::default()
                };
                observation.anon.insert(instance, seen);
            }
            let (app, observation) = (id(0), Box::new(observation));
            step(Event::Observed {
                app,
                switch,
                observation,
            });
            // What is not believed is observed, and is none here.
            if !awaits_onset {
                return now_ms - ended_ms;
            }
        }
    };
    onset(Some(Void::Reclaimed));
    assert_eq!(onset(Some(Void::Reclaimed)), 2 * pause_ms);
    assert_eq!(onset(Some(Void::Reclaimed)), 4 * pause_ms);
    assert_eq!(onset(None), 8 * pause_ms);
    assert_eq!(onset(None), pause_ms);
    (0..5).for_each(|_| {
        onset(Some(Void::Reclaimed));
    });
    assert_eq!(onset(Some(Void::Reclaimed)), 32 * pause_ms);
    assert_eq!(onset(None), 32 * pause_ms);
}

#[test]
fn what_an_application_does_in_the_background_teaches_nothing() {
    let params = Params::default();
    let pause = params.switch.onset_pause_ms * NANOS_PER_MS;
    let (mut model, instance) = tracked(params);
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    let few = ExtentSet::from(vec![Extent::new(0, 16)]);
    let others = ExtentSet::from(vec![Extent::new(200, 24)]);
    (0..4).for_each(|_| switch(&mut model, instance, &all));
    // What was learned from it, however often it comes.
    for number in 0..3 {
        for (source, pages) in [(Source::Onset, &few), (Source::Unplanned, &others)] {
            model.now += pause << number;
            switch_by(&mut model, instance, pages, source);
            let record = model.machine.records(&id(0)).last().expect("a record");
            assert_eq!(
                (record.source, record.void),
                (source, Some(Void::Background))
            );
            assert_eq!(planned_pages(&model), 128);
        }
    }
    // What was fetched for in vain is not fetched for soon, but observed.
    model.now += pause;
    let source = Source::Onset;
    model.run(Step::Begin { app: 0, source });
    let machine = &model.machine;
    assert!(machine.is_switching(&id(0)) && is_onset_awaited(machine, &id(0)));
    end_unseen(&mut model);
    model.now += pause << 3;
    switch_by(&mut model, instance, &all, Source::Onset);
    let record = model.machine.records(&id(0)).last().expect("a record");
    assert_eq!(
        (record.source, record.void),
        (Source::Onset, None),
        "it was one"
    );
}

#[test]
fn what_is_done_in_the_background_teaches_nothing_after_switches_to_what_is_in_memory() {
    let (mut model, instance) = tracked(Params::default());
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    let few = ExtentSet::from(vec![Extent::new(200, 24)]);
    (0..4).for_each(|_| switch(&mut model, instance, &all));
    let source = Source::Focus;
    for _ in 0..20 {
        model.now += 10_000 * NANOS_PER_MS;
        model.run(Step::Begin { app: 0, source });
        end_unseen(&mut model);
        let record = model.machine.records(&id(0)).last().expect("a record");
        assert_eq!((record.source, record.void), (source, None));
    }
    model.now += 10_000 * NANOS_PER_MS;
    switch_by(&mut model, instance, &few, Source::Unplanned);
    let record = model.machine.records(&id(0)).last().expect("a record");
    assert_eq!(record.void, Some(Void::Background));
}

#[test]
fn a_switch_that_the_plan_does_not_know_teaches_by_its_size() {
    let (mut model, instance) = tracked(Params::default());
    let old = ExtentSet::from(vec![Extent::new(0, 64)]);
    let new = ExtentSet::from(vec![Extent::new(100, 64)]);
    (0..4).for_each(|_| switch(&mut model, instance, &old));
    for _ in 0..8 {
        model.now += 10_000 * NANOS_PER_MS;
        switch_by(&mut model, instance, &new, Source::Unplanned);
        let record = model.machine.records(&id(0)).last().expect("a record");
        assert_eq!(
            (record.source, record.void, record.mode),
            (Source::Unplanned, None, Mode::Observe)
        );
    }
    let plan = model.machine.app(&id(0)).expect("it is tracked").plan();
    assert_eq!(plan.anon[0].1.all(), new, "the old pages are forgotten");
}

#[test]
fn what_is_done_in_the_background_leaves_the_reclaim_ahead_as_it_was() {
    let params = Params::default();
    let after_ms = params.reclaim.after_ms;
    // After a switch to one application, the others do something every `every_ms`, each time for as long as that is quiet.
    // Returns when headroom is looked after within two minutes, in milliseconds after the switch.
    let looks = |others: u8, every_ms: usize| {
        let (mut model, instance) = tracked(params.clone());
        let all = ExtentSet::from(vec![Extent::new(0, 128)]);
        (0..4).for_each(|_| switch(&mut model, instance, &all));
        for app in 1..=others {
            let keeps_profile = false;
            model.run(Step::Track { app, keeps_profile });
        }
        let mut machine = model.machine;
        let start = model.now + 10_000 * NANOS_PER_MS;
        let (app, source) = (id(0), Source::Focus);
        machine.step(start, Event::Begin { app, source });
        machine.step(start, Event::End { app: id(0) });
        let mut looked_after = Vec::new();
        let mut tick_to = |machine: &mut Machine, until: Nanos| {
            while let Some(now) = machine.deadline().filter(|due| *due <= until) {
                let actions = machine.step(now, Event::Tick);
                if actions.iter().any(|a| matches!(a, Action::Reclaim { .. })) {
                    looked_after.push((now - start) / NANOS_PER_MS);
                }
            }
        };
        for (turn, ms) in (0..120_000).step_by(every_ms).enumerate() {
            let now = start + ms * NANOS_PER_MS;
            tick_to(&mut machine, now);
            for app in 1..=others {
                // In turns.
                if turn % usize::from(others) == usize::from(app - 1) {
                    let (app, source) = (id(app), Source::Unplanned);
                    let begun = machine.step(now, Event::Begin { app, source });
                    assert!(begun.iter().any(|a| matches!(a, Action::Observe { .. })));
                }
            }
        }
        tick_to(&mut machine, start + 120_000 * NANOS_PER_MS);
        looked_after
    };
    let undisturbed: Vec<u64> = (1..=6).map(|n| ((1 << n) - 1) * after_ms).collect();
    // Some observation is always under way, or one ends every three seconds.
    assert_eq!(looks(20, 125), undisturbed);
    assert_eq!(looks(1, 3_000), undisturbed);
}

#[test]
fn unplanned_faults_that_prove_to_be_a_switch_end_the_reclaim_ahead() {
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    let begin = |source| Event::Begin { app: id(0), source };
    let (count, last_at) = (33, 0);
    let faults = Event::DemandFaults {
        app: id(0),
        count,
        last_at,
    };
    for proof in [begin(Source::Onset), begin(Source::Focus), faults] {
        let (mut model, instance) = tracked(Params::default());
        (0..4).for_each(|_| switch(&mut model, instance, &all));
        let (mut machine, cap_ms) = (model.machine, Params::default().switch.cap_ms);
        let now = model.now + 10_000 * NANOS_PER_MS;
        // It is due as soon as unplanned faults are observed, and so it stays.
        let under_pressure = false;
        machine.step(now, Event::Pressure { under_pressure });
        let due = machine.deadline().expect("it is looked ahead");
        let began = due - 50 * NANOS_PER_MS;
        machine.step(began, begin(Source::Unplanned));
        assert_eq!(machine.deadline(), Some(due));
        // It may last as long from then on as any other.
        let proved = began + NANOS_PER_MS;
        machine.step(proved, proof);
        let deadline = machine.deadline();
        assert_eq!(deadline, Some(proved + cap_ms * NANOS_PER_MS));
        assert_eq!(machine.step(due, Event::Tick), Vec::new());
    }
}

#[test]
fn what_was_switched_to_last_and_what_was_announced_last_may_be_in_use() {
    let (mut model, instance) = tracked(Params::default());
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    (0..4).for_each(|_| switch(&mut model, instance, &all));
    let (mut machine, mut now) = (model.machine, model.now);
    machine.step(now, Event::SetMode(Mode::Full));
    let (app, profile) = (id(1), Box::default());
    machine.step(now, Event::Tracked { app, profile });
    // A switch to the other one, and who is in use then.
    let mut in_use_after = |source| {
        now += 10_000 * NANOS_PER_MS;
        let begun = machine.step(now, Event::Begin { app: id(1), source });
        let Some(&Action::Observe { switch, .. }) = begun.first() else {
            panic!("no switch: {begun:?}");
        };
        machine.step(now, Event::End { app: id(1) });
        let observation = Box::default();
        let app = id(1);
        machine.step(
            now,
            Event::Observed {
                app,
                switch,
                observation,
            },
        );
        now = machine.deadline().expect("it is looked ahead");
        let actions = machine.step(now, Event::Tick);
        let in_use = actions.into_iter().find_map(|action| match action {
            Action::Reclaim { in_use, .. } => Some(in_use),
            _ => None,
        });
        in_use.expect("something is planned")
    };
    assert_eq!(in_use_after(Source::Onset), [id(0), id(1)]);
    assert_eq!(in_use_after(Source::Focus), [id(1)]);
    assert_eq!(in_use_after(Source::Onset), [id(1)]);
}

/// A machine that follows two applications, of the first of which something is planned, and when that is so.
fn two_tracked() -> (Machine, Nanos) {
    let (mut model, instance) = tracked(Params::default());
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    (0..4).for_each(|_| switch(&mut model, instance, &all));
    let keeps_profile = false;
    model.run(Step::Track {
        app: 1,
        keeps_profile,
    });
    (model.machine, model.now + 10_000 * NANOS_PER_MS)
}

/// Who is in use when headroom is looked after next. Meanwhile all switches end.
fn in_use_next(machine: &mut Machine) -> Vec<AppId> {
    loop {
        let due = machine.deadline().expect("it is looked ahead");
        for action in machine.step(due, Event::Tick) {
            if let Action::Reclaim { in_use, .. } = action {
                return in_use;
            }
        }
    }
}

#[test]
fn who_was_switched_to_last_is_in_use_whichever_switch_ends_last() {
    // Each switch of `signals`, in milliseconds; all last until the applications of `ends` end theirs.
    let in_use = |signals: &[(u64, u8, Source)], ends: &[u8]| {
        let (mut machine, start) = two_tracked();
        let at = |ms: u64| start + ms * NANOS_PER_MS;
        for &(ms, app, source) in signals {
            let app = id(app);
            machine.step(at(ms), Event::Begin { app, source });
        }
        for (ms, &app) in (600..).zip(ends) {
            machine.step(at(ms), Event::End { app: id(app) });
        }
        in_use_next(&mut machine)
    };
    for source in [Source::Explicit, Source::Focus, Source::Thaw] {
        let there_and_back = [(0, 0, source), (200, 1, source), (400, 0, source)];
        assert_eq!(in_use(&there_and_back, &[0, 1]), [id(0)]);
        assert_eq!(in_use(&there_and_back[..2], &[1, 0]), [id(1)]);
    }
    // What faults begin may be in the background.
    let signals = [(0, 0, Source::Focus), (200, 1, Source::Onset)];
    assert_eq!(in_use(&signals, &[1, 0]), [id(0), id(1)]);
    let signals = [(0, 0, Source::Focus), (200, 1, Source::Unplanned)];
    assert_eq!(in_use(&signals, &[1, 0]), [id(0)]);
    // Both confirm that it is a switch.
    for proof in [Source::Onset, Source::Focus] {
        let proven = [signals[0], signals[1], (250, 1, proof)];
        let expected: &[AppId] = match proof {
            Source::Focus => &[id(1)],
            _ => &[id(0), id(1)],
        };
        assert_eq!(in_use(&proven, &[1, 0]), expected);
    }
}

#[test]
fn unplanned_faults_that_were_a_switch_say_who_is_in_use() {
    let (_, instance) = tracked(Params::default());
    // Who is in use after so many unplanned faults, and on so many pages as the observation finds.
    let in_use = |count: u64, found: u64| {
        let (mut machine, mut now) = two_tracked();
        let app = id(1);
        machine.step(now, Event::InstanceStarted { app, instance });
        let mut switch = |number: u8, source, count, found| {
            now += 10_000 * NANOS_PER_MS;
            let (of_app, last_at) = (|| id(number), now);
            let app = of_app();
            let begun = machine.step(now, Event::Begin { app, source });
            let Some(&Action::Observe { switch, .. }) = begun.first() else {
                panic!("no switch: {begun:?}");
            };
            let app = of_app();
            let faults = Event::DemandFaults {
                app,
                count,
                last_at,
            };
            machine.step(now, faults);
            machine.step(now, Event::End { app: of_app() });
            let seen = AnonObservation {
                faulted: ExtentSet::from(vec![found]),
                ..AnonObservation::default()
            };
            let (app, mut observation) = (of_app(), Box::<Observation>::default());
            observation.anon.insert(instance, seen);
            let observed = Event::Observed {
                app,
                switch,
                observation,
            };
            machine.step(now, observed);
        };
        switch(1, Source::Focus, 128, Extent::new(0, 128));
        switch(0, Source::Focus, 128, Extent::new(0, 128));
        switch(1, Source::Unplanned, count, Extent::new(200, found));
        in_use_next(&mut machine)
    };
    assert_eq!(in_use(32, 32), [id(0)], "it was none");
    assert_eq!(in_use(33, 1), [id(0), id(1)], "so many faults prove it");
    assert_eq!(in_use(32, 33), [id(0), id(1)], "so many pages were found");
}

/// A machine that follows one process of one application.
fn tracked(params: Params) -> (Model, Instance) {
    let mut model = Model::new(params, true);
    let instance = Instance {
        pid: 1,
        start_ticks: 0,
        exec: 0,
    };
    model.run(Step::Track {
        app: 0,
        keeps_profile: false,
    });
    model.run(Step::Start { app: 0, instance });
    (model, instance)
}

/// One switch, from its signal to its observation, in which all of `accessed` is accessed.
fn switch(model: &mut Model, instance: Instance, accessed: &ExtentSet) {
    switch_by(model, instance, accessed, Source::Focus);
}

/// As [`switch`], begun by this signal.
/// Ends a switch that shows nothing.
fn end_unseen(model: &mut Model) {
    model.run(Step::End { app: 0 });
    model.run(Step::Observed {
        app: 0,
        behind: 0,
        is_faithful: false,
        seen: Box::default(),
    });
}

fn switch_by(model: &mut Model, instance: Instance, accessed: &ExtentSet, source: Source) {
    model.run(Step::Begin { app: 0, source });
    let app = model.machine.app(&id(0)).expect("it is tracked");
    let planned = app.plan().anon.first();
    let planned = planned.map(|(_, t)| t.clone()).unwrap_or_default();
    let is_fetched = source != Source::Unplanned;
    let (fetched, known) = match is_fetched {
        true => (planned.all(), planned.watch()),
        false => (ExtentSet::default(), planned.all()),
    };
    let faulted = accessed.difference(&fetched);
    let seen = AnonObservation {
        used: known.intersection(accessed).difference(&faulted),
        unused: known.difference(accessed),
        faulted,
        fetched,
        ..AnonObservation::default()
    };
    // Headroom may be due to be looked after before the switch is to end.
    while model.machine.is_switching(&id(0)) {
        model.run(Step::Deadline);
    }
    let seen = Observation {
        anon: [(instance, seen)].into(),
        ..Observation::default()
    };
    model.run(Step::Observed {
        app: 0,
        behind: 0,
        is_faithful: is_fetched,
        seen: Box::new(seen),
    });
    model.run(Step::Tick { after_ms: 1_000 });
}

fn planned_pages(model: &Model) -> u64 {
    let app = model.machine.app(&id(0)).expect("it is tracked");
    app.plan().anon_pages()
}

#[test]
fn other_parameters_hold_from_the_next_plan_on() {
    let mut params = Params::default();
    params.anon.observe_interval_max = 1;
    let (mut model, instance) = tracked(params.clone());
    // Half of the pages recur in each switch, the others in every second.
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    let half = ExtentSet::from(vec![Extent::new(0, 64)]);
    for round in 0..8 {
        switch(&mut model, instance, [&all, &half][round % 2]);
    }
    assert_eq!(planned_pages(&model), 64);
    params.budget.confidence = 0.3;
    model.run(Step::SetParams(Box::new(params.clone())));
    assert_eq!(planned_pages(&model), 128);
    params.anon.rule = AnonRule::Paper;
    params.budget.confidence = 1.0;
    model.run(Step::SetParams(Box::new(params)));
    assert_eq!(
        planned_pages(&model),
        128,
        "the paper's rule asks no confidence"
    );
}

/// What recurs is planned for, as long as the process lives; old records make room.
#[test]
fn a_long_life_learns_all_that_recurs() {
    let (mut model, instance) = tracked(Params::default());
    let all = ExtentSet::from(vec![Extent::new(0, 128)]);
    for _ in 0..RECORDS_MAX + 10 {
        switch(&mut model, instance, &all);
    }
    assert_eq!(planned_pages(&model), 128);
    model.run(Step::Exit { app: 0, instance });
    assert_eq!(planned_pages(&model), 0);
}
