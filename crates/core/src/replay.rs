//! The replay simulator's pure part: recorded switches through the same state machine, with no machine needed.
//!
//! A [`RecordedSwitch`] is the truth of one switch, as mode `observe` records it or [`synthetic`] makes it up.
//! [`replay`] runs [`Machine`] over a series of them. In the executor's place stands [`observe`], which derives
//! from the truth what the real executor would have seen under the machine's plan, and no more: the use of a page
//! that is mapped directly stays unknown. Precision and recall are then taken against the truth.

pub mod baseline;
pub mod synthetic;

use crate::anon::{AnonObservation, AnonTargets};
use crate::app::{Known, Observation};
use crate::extent::ExtentSet;
use crate::file::FileObservation;
use crate::identity::{AppId, FileId, Instance};
use crate::machine::{Action, Event, Machine, Nanos};
use crate::outcome::Share;
use crate::params::{Mode, Params};
use crate::plan::Plan;
use crate::signal::Source;
use serde::{Deserialize, Serialize};
use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The truth of one switch, and what happened to the application since the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSwitch {
    /// The application switched to.
    pub app: AppId,
    /// Process instances that ended since its last recorded switch.
    #[serde(default)]
    pub ended: Vec<Instance>,
    /// Process instances that began since, by start or exec. One that is in `anon` need not be here.
    #[serde(default)]
    pub started: Vec<Instance>,
    /// Files found updated, replaced, truncated or gone since, in the version that was known.
    #[serde(default)]
    pub changed: Vec<FileId>,
    /// Anonymous pages, one entry for each process instance that accessed some.
    pub anon: Vec<RecordedAnon>,
    /// File pages, one entry for each file of which some were accessed.
    pub files: Vec<RecordedFile>,
}

/// What one process instance accessed in a switch. All sets are of virtual page numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAnon {
    /// The process instance.
    pub instance: Instance,
    /// Pages that were accessed.
    pub accessed: ExtentSet,
    /// Pages that were swapped out when the switch began. Where it is not recorded, all are taken to have been.
    #[serde(default)]
    pub swapped: Option<ExtentSet>,
}

/// What was accessed of one file in a switch. All sets are of page numbers in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// The file, in the version that was accessed.
    pub file: FileId,
    /// Pages that were accessed.
    pub accessed: ExtentSet,
    /// Of these, the pages that were read from the device on demand; the others were in the page cache. Pages that
    /// were not accessed are taken not to have been in it.
    pub demanded: ExtentSet,
    /// Pages of which nothing is known: mapped before the switch and still.
    #[serde(default)]
    pub unknown: ExtentSet,
}

/// What prepaging did to one kind of pages, against the truth. All fields count pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Fetched because they were wanted.
    pub fetched: u64,
    /// Of these, pages that were accessed.
    pub used: u64,
    /// Fetched between wanted pages.
    pub gap: u64,
    /// Of these, pages that were accessed.
    pub gap_used: u64,
    /// Demand faults that the switch has without prepaging: the baseline of recall.
    pub demanded: u64,
    /// Of these, pages that prepaging brought in.
    pub spared: u64,
    /// Pages fetched in such a way that their use is seen, which costs the application a minor fault each.
    pub watched: u64,
}

impl Tally {
    /// Precision: accessed pages among the pages fetched because they were wanted (ASAP section 6.3).
    pub fn precision(&self) -> Share {
        Share {
            hits: self.used,
            of: self.fetched,
        }
    }

    /// Recall: fetched pages among those that the baseline faults on (ASAP section 6.3).
    pub fn recall(&self) -> Share {
        Share {
            hits: self.spared,
            of: self.demanded,
        }
    }

    /// Pages fetched for nothing.
    pub fn wasted(&self) -> u64 {
        self.fetched - self.used + self.gap - self.gap_used
    }

    /// Adds what another tally counted.
    pub fn add(&mut self, other: &Self) {
        self.fetched += other.fetched;
        self.used += other.used;
        self.gap += other.gap;
        self.gap_used += other.gap_used;
        self.demanded += other.demanded;
        self.spared += other.spared;
        self.watched += other.watched;
    }

    /// Counts one process's or file's pages.
    fn count(&mut self, wanted: &ExtentSet, fetched: &ExtentSet, truth: &Truth<'_>) {
        let wanted = fetched.intersection(wanted);
        let used = wanted.common_pages(truth.accessed);
        self.fetched += wanted.pages();
        self.used += used;
        self.gap += fetched.pages() - wanted.pages();
        self.gap_used += fetched.common_pages(truth.accessed) - used;
        self.spared += fetched.common_pages(truth.demanded);
    }
}

/// What was really accessed, and what of it the application waits for where nothing is prepaged.
struct Truth<'a> {
    accessed: &'a ExtentSet,
    demanded: &'a ExtentSet,
}

/// One replayed switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayedSwitch {
    /// The application.
    pub app: AppId,
    /// Number of the switch among the application's, from 1.
    pub number: u64,
    /// Anonymous pages, against the truth.
    pub anon: Tally,
    /// File pages, against the truth.
    pub file: Tally,
    /// Precision of anonymous pages as the service could see it: to be compared with that of `anon`.
    pub anon_seen: Share,
    /// Precision of file pages as the service could see it.
    pub file_seen: Share,
    /// Confidence of the plan, 0 to 1.
    pub confidence: f32,
    /// Bytes that the application's tables and plan take after the switch.
    pub bytes: u64,
}

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// Anonymous pages, over all switches.
    pub anon: Tally,
    /// File pages, over all switches.
    pub file: Tally,
    /// Most bytes that one application's tables and plan took.
    pub bytes_max: u64,
    /// Each switch, in the order of the recording.
    pub switches: Vec<ReplayedSwitch>,
}

impl Replayed {
    /// The sums over each application's switches from number `first` on: what is reached once it has learned.
    pub fn since(&self, first: u64) -> (Tally, Tally) {
        let mut sums = (Tally::default(), Tally::default());
        for switch in self.switches.iter().filter(|s| s.number >= first) {
            sums.0.add(&switch.anon);
            sums.1.add(&switch.file);
        }
        sums
    }

    fn push(&mut self, switch: ReplayedSwitch) {
        self.anon.add(&switch.anon);
        self.file.add(&switch.file);
        self.bytes_max = self.bytes_max.max(switch.bytes);
        self.switches.push(switch);
    }
}

/// Runs recorded switches, in order, through the state machine. Deterministic: the same recording, parameters and
/// mode give the same result.
pub fn replay(
    recorded: impl IntoIterator<Item: Borrow<RecordedSwitch>>,
    params: &Params,
    mode: Mode,
) -> Replayed {
    let mut simulation = Simulation {
        machine: Machine::new(params.clone(), mode),
        now: 0,
        numbers: BTreeMap::new(),
    };
    let mut replayed = Replayed::default();
    for recorded in recorded {
        replayed.push(simulation.switch(recorded.borrow()));
    }
    replayed
}

struct Simulation {
    machine: Machine,
    now: Nanos,
    /// Switches recorded of each application.
    numbers: BTreeMap<AppId, u64>,
}

impl Simulation {
    fn switch(&mut self, recorded: &RecordedSwitch) -> ReplayedSwitch {
        let app = recorded.app.clone();
        self.between(recorded);
        let source = Source::Explicit;
        let began = self.step(Event::Begin { app, source });
        let fetching = began.iter().find_map(|action| match action {
            Action::Fetch { mode, .. } => Some(*mode),
            _ => None,
        });
        let files_observed = began
            .iter()
            .any(|action| matches!(action, Action::Observe { files: true, .. }));
        let app = recorded.app.clone();
        let ended = self.step(Event::End { app });
        let collected = ended.into_iter().find_map(|action| match action {
            Action::Collect {
                switch,
                plan,
                known,
                ..
            } => Some((switch, plan, known)),
            _ => None,
        });
        let plan = collected.as_ref().map(|(_, plan, _)| Arc::clone(plan));
        if let Some((switch, plan, known)) = collected {
            let fetching = fetching.unwrap_or(Mode::Observe);
            let seen = match files_observed {
                true => observe(recorded, &plan, fetching, &known),
                false => observe_anon_pages(recorded, &plan, fetching, &known),
            };
            self.step(Event::Observed {
                app: recorded.app.clone(),
                switch,
                observation: Box::new(seen),
            });
        }
        self.record(recorded, &plan.unwrap_or_default(), fetching)
    }

    /// What happened between the switches.
    fn between(&mut self, recorded: &RecordedSwitch) {
        // Later than any signal that would count as a repetition of the last switch's.
        let repeat_ms = self.machine.params().switch.repeat_ms;
        self.now = self.now.saturating_add((repeat_ms + 1) * 1_000_000);
        let app = &recorded.app;
        if self.machine.app(app).is_none() {
            let profile = Box::default();
            let app = app.clone();
            self.step(Event::Tracked { app, profile });
        }
        for &instance in &recorded.ended {
            let app = app.clone();
            self.step(Event::InstanceEnded { app, instance });
        }
        let in_use = recorded.anon.iter().map(|anon| anon.instance);
        for instance in recorded.started.iter().copied().chain(in_use) {
            let app = app.clone();
            self.step(Event::InstanceStarted { app, instance });
        }
        for file in &recorded.changed {
            let (app, file) = (app.clone(), file.clone());
            self.step(Event::FileChanged { app, file });
        }
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.machine.step(self.now, event)
    }

    fn record(
        &mut self,
        recorded: &RecordedSwitch,
        plan: &Plan,
        fetching: Option<Mode>,
    ) -> ReplayedSwitch {
        let app = recorded.app.clone();
        let number = self.numbers.entry(app.clone()).or_default();
        *number += 1;
        let fetching = fetching.unwrap_or(Mode::Observe);
        let last = self.machine.records(&app).last();
        let model = self.machine.app(&app);
        ReplayedSwitch {
            number: *number,
            anon: tally_anon(recorded, plan, fetching),
            file: tally_files(recorded, plan, fetching),
            anon_seen: last.map(|r| r.anon.precision).unwrap_or_default(),
            file_seen: last
                .and_then(|r| r.file.as_ref())
                .map(|file| file.precision)
                .unwrap_or_default(),
            confidence: plan.confidence,
            bytes: model.map_or(0, |m| m.bytes() as u64),
            app,
        }
    }
}

/// What the real executor would have observed of a switch in which it fetched `plan` in `mode` and is asked for the
/// use of `known`. Fetches win every race: a planned page never faults.
pub fn observe(recorded: &RecordedSwitch, plan: &Plan, mode: Mode, known: &Known) -> Observation {
    Observation {
        files: observe_files(recorded, plan, mode),
        files_observed: true,
        ..observe_anon_pages(recorded, plan, mode, known)
    }
}

/// The same of a switch whose file accesses were not observed.
fn observe_anon_pages(
    recorded: &RecordedSwitch,
    plan: &Plan,
    mode: Mode,
    known: &Known,
) -> Observation {
    let planned: BTreeMap<_, _> = plan.anon.iter().map(|(i, targets)| (*i, targets)).collect();
    let recorded_anon: BTreeMap<_, _> = recorded.anon.iter().map(|r| (r.instance, r)).collect();
    let nothing = AnonTargets::default();
    let anon = known.anon.iter().map(|(&instance, known)| {
        let targets = match mode.fetches_anon() {
            true => planned.get(&instance).copied().unwrap_or(&nothing),
            false => &nothing,
        };
        let recorded = recorded_anon.get(&instance).copied();
        (instance, observe_anon(recorded, targets, known))
    });
    Observation {
        anon: anon.collect(),
        ..Observation::default()
    }
}

fn observe_anon(
    recorded: Option<&RecordedAnon>,
    targets: &AnonTargets,
    known: &ExtentSet,
) -> AnonObservation {
    let nothing = ExtentSet::new();
    let accessed = recorded.map_or(&nothing, |r| &r.accessed);
    // Of pages that were resident all along nothing is seen, and there is nothing to fetch.
    let swapped = recorded.and_then(|r| r.swapped.as_ref());
    let (all, watch) = (targets.all(), targets.watch());
    let accessed = out(accessed, swapped);
    let (fetched, watched) = (out(&all, swapped), out(&watch, swapped));
    let left_out = out(known, swapped).difference(&fetched);
    AnonObservation {
        faulted: accessed.difference(&fetched),
        used: watched.intersection(&accessed),
        unused: watched.union(&left_out).difference(&accessed),
        fetched: fetched.into_owned(),
        always_shown: ExtentSet::new(),
        order: Vec::new(),
    }
}

/// Those pages that were swapped out; all of them, where that was not recorded.
fn out<'a>(pages: &'a ExtentSet, swapped: Option<&ExtentSet>) -> Cow<'a, ExtentSet> {
    match swapped {
        Some(swapped) => Cow::Owned(pages.intersection(swapped)),
        None => Cow::Borrowed(pages),
    }
}

fn observe_files(
    recorded: &RecordedSwitch,
    plan: &Plan,
    mode: Mode,
) -> BTreeMap<FileId, FileObservation> {
    let mut files: BTreeMap<FileId, FileObservation> = BTreeMap::new();
    for file in &recorded.files {
        let seen = files.entry(file.file.clone()).or_default();
        seen.accessed = file.accessed.clone();
        seen.demanded = file.demanded.clone();
        seen.unknown = file.unknown.difference(&file.accessed);
    }
    if mode.fetches_files() {
        let paths: BTreeSet<_> = recorded.files.iter().map(|f| &f.file.path).collect();
        for targets in &plan.files {
            // A plan for another version of an accessed file finds that version gone, and fetches nothing.
            if paths.contains(&targets.file.path) && !files.contains_key(&targets.file) {
                continue;
            }
            let seen = files.entry(targets.file.clone()).or_default();
            seen.fetched = fetched_of_file(&targets.read, &seen.accessed, &seen.demanded);
            seen.demanded = seen.demanded.difference(&seen.fetched);
        }
    }
    files
}

/// What of `read` was not in the page cache.
fn fetched_of_file(read: &ExtentSet, accessed: &ExtentSet, demanded: &ExtentSet) -> ExtentSet {
    read.difference(&accessed.difference(demanded))
}

fn tally_anon(recorded: &RecordedSwitch, plan: &Plan, fetching: Mode) -> Tally {
    let mut tally = Tally::default();
    let (nothing, no_targets) = (ExtentSet::new(), AnonTargets::default());
    let planned = plan.anon.iter().filter(|_| fetching.fetches_anon());
    let mut planned: BTreeMap<_, _> = planned.map(|(i, t)| (*i, t)).collect();
    for anon in &recorded.anon {
        let swapped = anon.swapped.as_ref();
        let accessed = out(&anon.accessed, swapped);
        let targets = planned.remove(&anon.instance).unwrap_or(&no_targets);
        let all = targets.all();
        let fetched = out(&all, swapped);
        let truth = Truth {
            accessed: &accessed,
            demanded: &accessed,
        };
        tally.demanded += accessed.pages();
        tally.watched += out(&targets.watch(), swapped).pages();
        tally.count(&fetched, &fetched, &truth);
    }
    for targets in planned.into_values() {
        let fetched = targets.all();
        tally.watched += targets.watch().pages();
        let truth = Truth {
            accessed: &nothing,
            demanded: &nothing,
        };
        tally.count(&fetched, &fetched, &truth);
    }
    tally
}

fn tally_files(recorded: &RecordedSwitch, plan: &Plan, fetching: Mode) -> Tally {
    let mut tally = Tally::default();
    let seen = observe_files(recorded, plan, fetching);
    let wanted: BTreeMap<_, _> = plan.files.iter().map(|t| (&t.file, &t.wanted)).collect();
    let demanded: BTreeMap<_, _> = recorded
        .files
        .iter()
        .map(|f| (&f.file, &f.demanded))
        .collect();
    let nothing = ExtentSet::new();
    for (file, seen) in &seen {
        let truth = Truth {
            accessed: &seen.accessed,
            demanded: demanded.get(file).copied().unwrap_or(&nothing),
        };
        tally.demanded += truth.demanded.pages();
        let wanted = wanted.get(file).copied().unwrap_or(&nothing);
        tally.count(wanted, &seen.fetched, &truth);
    }
    tally
}
