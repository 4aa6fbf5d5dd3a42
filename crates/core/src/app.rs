//! What is known of one application: its estimators, its plan, its last switches.

use crate::anon::{AnonObservation, AnonTable, AnonTargets};
use crate::extent::ExtentSet;
use crate::file::{FileObservation, FileTables};
use crate::history::Calibration;
use crate::identity::{FileId, Instance};
use crate::outcome::{Late, Outcome, Share, Timing, Void};
use crate::params::Params;
use crate::plan::{Knowledge, Plan};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most process instances followed for one application.
pub const INSTANCES_MAX: usize = 256;

/// What is learned of an application and kept across its restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Switches seen.
    pub switches: u64,
    /// File pages.
    pub files: FileTables,
    /// How anonymous pages' histories continued.
    pub anon_calibration: Calibration,
    /// How file pages' histories continued.
    pub file_calibration: Calibration,
}

impl Profile {
    /// Whether it can be used: what a profile from another source is checked by.
    pub fn is_valid(&self) -> bool {
        self.files.is_valid()
            && self.anon_calibration.is_valid()
            && self.file_calibration.is_valid()
    }
}

/// What a switch showed of an application.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// By process instance.
    pub anon: BTreeMap<Instance, AnonObservation>,
    /// By file.
    pub files: BTreeMap<FileId, FileObservation>,
    /// Files that were found updated, replaced, truncated or gone.
    pub stale_files: BTreeSet<FileId>,
    /// Why it says nothing, if so.
    pub void: Option<Void>,
    /// Whether file accesses were observed: all of them, in a switch of which they were asked for.
    pub files_observed: bool,
    /// Events lost to full rings.
    pub events_lost: u64,
    /// Demand accesses to files whose path could not be found, in pages.
    pub unresolved: u64,
    /// Waits for file pages that were being fetched; `None` where nothing tells them from others.
    pub late: Option<Late>,
    /// Measured times.
    pub timing: Timing,
}

/// The pages that an application's tables hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Virtual pages, by process instance.
    pub anon: BTreeMap<Instance, ExtentSet>,
    /// Pages of files.
    pub files: BTreeMap<FileId, ExtentSet>,
}

/// An application's state between switches.
#[derive(Clone, Debug, Default)]
pub struct AppModel {
    profile: Profile,
    anon: BTreeMap<Instance, AnonTable>,
    plan: Arc<Plan>,
    under_pressure: bool,
}

impl AppModel {
    /// An application of which `profile` is known.
    pub fn new(profile: Profile, params: &Params) -> Self {
        let mut app = Self {
            profile,
            ..Self::default()
        };
        app.set_params(params);
        app
    }

    /// Takes up other parameters: tables and plan are adapted at once.
    pub fn set_params(&mut self, params: &Params) {
        self.profile.files.adapt(&params.file);
        for table in self.anon.values_mut() {
            table.adapt(&params.anon);
        }
        self.bound_anon(params.anon.runs_max);
        self.make_plan(params);
    }

    /// What is kept across restarts.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The plan for the next switch.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The living process instances and their tables.
    pub fn instances(&self) -> impl Iterator<Item = (&Instance, &AnonTable)> {
        self.anon.iter()
    }

    /// The pages that its tables hold.
    pub fn known(&self) -> Known {
        let anon = |(&instance, table): (&Instance, &AnonTable)| {
            (instance, table.map().pages_where(|_| true))
        };
        Known {
            anon: self.anon.iter().map(anon).collect(),
            files: self
                .profile
                .files
                .iter()
                .map(|(file, map)| (file.clone(), map.pages_where(|_| true)))
                .collect(),
        }
    }

    /// Bytes of memory that the tables and the plan take, at most `budget.table_bytes_max`.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<(Instance, AnonTable)>();
        let anon = |table: &AnonTable| entry + table.map().bytes();
        let Profile {
            files,
            anon_calibration,
            file_calibration,
            ..
        } = &self.profile;
        size_of::<Self>()
            + self.anon.values().map(anon).sum::<usize>()
            + files.bytes()
            + anon_calibration.bytes()
            + file_calibration.bytes()
            + self.plan.bytes()
    }

    /// A process instance of the application began. Where there are too many it is not followed.
    pub fn instance_started(&mut self, instance: Instance) {
        // A pid that comes again, or the same process after exec: another address space.
        self.anon
            .retain(|known, _| known.pid != instance.pid || *known == instance);
        self.unplan(|planned| planned.pid == instance.pid && *planned != instance);
        if self.anon.len() < INSTANCES_MAX {
            self.anon.entry(instance).or_default();
        }
    }

    /// A process instance ended: its tables vanish with it.
    pub fn instance_ended(&mut self, instance: Instance) {
        self.anon.remove(&instance);
        self.unplan(|planned| *planned == instance);
    }

    /// Drops what is planned for instances that are gone. A plan that was handed out stays as it was.
    fn unplan(&mut self, is_gone: impl Fn(&Instance) -> bool) {
        if self.plan.anon.iter().any(|(planned, _)| is_gone(planned)) {
            let plan = Arc::make_mut(&mut self.plan);
            plan.anon.retain(|(planned, _)| !is_gone(planned));
        }
    }

    /// Forgets a file that was found changed.
    pub fn file_changed(&mut self, file: &FileId, params: &Params) {
        if self.profile.files.forget(file) {
            self.make_plan(params);
        }
    }

    /// Sets whether plans are made for memory pressure.
    pub fn set_pressure(&mut self, under_pressure: bool, params: &Params) {
        if self.under_pressure != under_pressure {
            self.under_pressure = under_pressure;
            self.make_plan(params);
        }
    }

    /// Makes the plan for the next switch. Where tables and plan take more memory than they may, so many runs of pages are
    /// evicted first.
    pub fn make_plan(&mut self, params: &Params) {
        self.plan_anew(params);
        while self.shrink(params.budget.table_bytes_max) {
            self.plan_anew(params);
        }
    }

    /// Evicts the share of all runs by which tables and plan are above `bytes_max`, at least one. Returns whether it did.
    fn shrink(&mut self, bytes_max: usize) -> bool {
        let bytes = self.bytes();
        let (anon, files) = (self.anon_runs(), self.profile.files.runs());
        if bytes <= bytes_max || anon + files == 0 {
            return false;
        }
        let kept = |runs: usize| (runs * bytes_max / bytes).min(runs.saturating_sub(1));
        self.bound_anon(kept(anon));
        self.profile.files.bound_runs(kept(files));
        true
    }

    fn plan_anew(&mut self, params: &Params) {
        let knowledge = Knowledge {
            anon: &self.anon,
            anon_calibration: &self.profile.anon_calibration,
            files: &self.profile.files,
            file_calibration: &self.profile.file_calibration,
        };
        let next = self.profile.switches + 1;
        self.plan = Arc::new(knowledge.plan(params, self.under_pressure, next));
    }

    /// Learns from a switch and makes the next plan. A void observation teaches nothing, but what was used while pages were
    /// reclaimed.
    pub fn learn(&mut self, seen: &Observation, params: &Params) {
        self.profile.switches += 1;
        for file in &seen.stale_files {
            self.profile.files.forget(file);
        }
        match seen.void {
            None => {
                self.learn_anon(seen, params);
                if seen.files_observed {
                    self.learn_files(seen, params);
                }
            }
            Some(Void::Reclaimed) => self.learn_used(seen, params),
            Some(_) => {}
        }
        self.make_plan(params);
    }

    fn learn_files(&mut self, seen: &Observation, params: &Params) {
        let profile = &mut self.profile;
        let mut shown = Calibration::default();
        profile.files.learn(&seen.files, &params.file, &mut shown);
        let calibration = &mut profile.file_calibration;
        calibration.add(&shown, params.budget.calibration_keep);
        profile.files.bound(&params.file);
    }

    fn learn_anon(&mut self, seen: &Observation, params: &Params) {
        let mut shown = Calibration::default();
        learn_tables(&mut self.anon, &seen.anon, params, &mut shown);
        let calibration = &mut self.profile.anon_calibration;
        calibration.add(&shown, params.budget.calibration_keep);
        self.bound_anon(params.anon.runs_max);
    }

    /// What was used and reclaimed looks unused, and nothing else is known of such a page; what the application waited for was used
    /// whatever became of it. How often a history is followed by use, that alone does not tell.
    fn learn_used(&mut self, seen: &Observation, params: &Params) {
        let mut used = seen.anon.clone();
        for anon in used.values_mut() {
            anon.unused = ExtentSet::new();
        }
        let mut calibration = Calibration::default();
        learn_tables(&mut self.anon, &used, params, &mut calibration);
        self.bound_anon(params.anon.runs_max);
    }

    fn anon_runs(&self) -> usize {
        self.anon.values().map(|table| table.map().runs()).sum()
    }

    /// Over all processes: each keeps its share of the bound.
    fn bound_anon(&mut self, runs_max: usize) {
        let total = self.anon_runs();
        if total > runs_max {
            for table in self.anon.values_mut() {
                table.bound(table.map().runs() * runs_max / total);
            }
        }
    }

    /// Mapped pages of `plan` to make cold again: the likelihood of their use is below `cool_below`, and nothing
    /// saw it.
    pub fn to_cool(
        &self,
        plan: &Plan,
        seen: &Observation,
        params: &Params,
    ) -> Vec<(Instance, ExtentSet)> {
        let mut cool = Vec::new();
        for (instance, targets) in &plan.anon {
            let (Some(table), Some(seen)) = (self.anon.get(instance), seen.anon.get(instance))
            else {
                continue;
            };
            let unseen = targets.map().intersection(&seen.fetched);
            let unseen = unseen.difference(&seen.accessed());
            let calibration = &self.profile.anon_calibration;
            let likely = table.map().pages_where(|state| {
                calibration.probability(state.history) >= params.budget.cool_below
            });
            let pages = unseen.difference(&likely);
            if !pages.is_empty() {
                cool.push((*instance, pages));
            }
        }
        cool
    }
}

/// Each process's table learns from what was seen of that process.
fn learn_tables(
    tables: &mut BTreeMap<Instance, AnonTable>,
    seen: &BTreeMap<Instance, AnonObservation>,
    params: &Params,
    calibration: &mut Calibration,
) {
    for (instance, table) in tables {
        if let Some(seen) = seen.get(instance) {
            table.learn(seen, &params.anon, calibration);
        }
    }
}

/// What a switch under `plan` did to anonymous pages. `model` is as it was when the plan was made: each watched page
/// stands for as many as its observation interval says, so that pages in doubt, which are watched more often, do not
/// weigh more in the precision.
pub fn anon_outcome(model: &AppModel, plan: &Plan, seen: &Observation, held_out: bool) -> Outcome {
    let mut outcome = Outcome {
        planned: plan.anon_pages(),
        ..Outcome::default()
    };
    let nothing = AnonTargets::default();
    let planned: BTreeMap<_, _> = plan.anon.iter().map(|(i, t)| (*i, t)).collect();
    for (instance, seen) in &seen.anon {
        let planned = planned.get(instance).copied().unwrap_or(&nothing).all();
        outcome.add(&Sets {
            planned: &planned,
            gap: &ExtentSet::new(),
            accessed: &seen.accessed(),
            used: &seen.used,
            unused: &seen.unused,
            demanded: &seen.faulted,
            fetched: &seen.fetched,
            held_out,
        });
        if let (false, Some(table)) = (held_out, model.anon.get(instance)) {
            let known = |pages: &ExtentSet| {
                let [of_sample, anyway] = seen.by_sample(&pages.intersection(&seen.fetched));
                table.weighted_pages(&of_sample) + anyway.pages()
            };
            let (used, unused) = (known(&seen.used), known(&seen.unused));
            outcome.precision.add(used, used + unused);
        }
    }
    outcome
}

/// What a switch under `plan` did to file pages.
pub fn file_outcome(plan: &Plan, seen: &Observation, held_out: bool) -> Outcome {
    let mut outcome = Outcome {
        planned: plan.file_pages(),
        late: seen.late,
        ..Outcome::default()
    };
    let nothing = ExtentSet::new();
    let planned: BTreeMap<_, _> = plan.files.iter().map(|t| (&t.file, t)).collect();
    for (file, seen) in &seen.files {
        let targets = planned.get(file);
        let wanted = targets.map_or(&nothing, |t| &t.wanted);
        let read = targets.map_or(&nothing, |t| &t.read);
        let unused = read
            .union(wanted)
            .difference(&seen.accessed)
            .difference(&seen.unknown);
        outcome.add(&Sets {
            planned: wanted,
            gap: &read.difference(wanted),
            accessed: &seen.accessed,
            used: &seen.accessed.intersection(&seen.fetched),
            unused: &unused,
            demanded: &seen.demanded,
            fetched: &seen.fetched,
            held_out,
        });
    }
    let known = outcome.used + outcome.unused;
    outcome.precision.add(outcome.used, known);
    outcome
}

/// One process's or file's pages in a switch.
struct Sets<'a> {
    planned: &'a ExtentSet,
    gap: &'a ExtentSet,
    accessed: &'a ExtentSet,
    used: &'a ExtentSet,
    unused: &'a ExtentSet,
    demanded: &'a ExtentSet,
    fetched: &'a ExtentSet,
    held_out: bool,
}

impl Outcome {
    fn add(&mut self, sets: &Sets<'_>) {
        let wanted = sets.fetched.difference(sets.gap);
        let not_used = wanted.difference(sets.used);
        let (fetched, not_used_pages) = (wanted.pages(), not_used.pages());
        self.fetched += fetched;
        self.gap += sets.fetched.pages() - fetched;
        self.used += fetched - not_used_pages;
        self.unused += wanted.common_pages(sets.unused);
        self.unknown += not_used_pages - not_used.common_pages(sets.unused);
        let planned = sets.demanded.common_pages(sets.planned);
        self.demanded += sets.demanded.pages();
        if sets.held_out {
            let accessed = sets.planned.common_pages(sets.accessed);
            let unused = sets.planned.common_pages(sets.unused);
            self.holdout_precision.add(accessed, accessed + unused);
            self.holdout_recall.add(planned, sets.demanded.pages());
        } else {
            self.overtaken += planned;
            self.missed += sets.demanded.pages() - planned;
        }
    }
}

impl Share {
    fn add(&mut self, hits: u64, of: u64) {
        self.hits += hits;
        self.of += of;
    }
}
