//! What to fetch at the next switch: made ahead of the signal, which only wakes threads.

use crate::anon::{AnonTable, AnonTargets};
use crate::extent::{Extent, ExtentSet};
use crate::file::{FileTables, FileTargets};
use crate::history::Calibration;
use crate::identity::Instance;
use crate::params::{Mode, Params};
use std::collections::BTreeMap;

/// The pages of one application to fetch at its next switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Anonymous pages, by process instance.
    pub anon: Vec<(Instance, AnonTargets)>,
    /// File pages, large files first.
    pub files: Vec<FileTargets>,
    /// The confidence that every anonymous page in it has, 0 to 1.
    pub confidence: f32,
    /// The confidence that every file page in it has, 0 to 1.
    pub file_confidence: f32,
}

impl Plan {
    /// Anonymous pages planned.
    pub fn anon_pages(&self) -> u64 {
        self.anon.iter().map(|(_, targets)| targets.pages()).sum()
    }

    /// About so many of its anonymous pages at most, evenly, by process.
    pub fn sample(&self, pages_max: u64) -> impl Iterator<Item = (Instance, Vec<u64>)> {
        let step = self.anon_pages().div_ceil(pages_max).max(1) as usize;
        let of_each = self.anon.iter();
        of_each.map(move |(instance, t)| (*instance, t.iter_pages().step_by(step).collect()))
    }

    /// How many of these pages (process id and virtual page) are among the anonymous pages planned.
    pub fn anon_among(&self, pages: &[(i32, u64)]) -> usize {
        let among = |(instance, targets): &(Instance, AnonTargets)| {
            let own = pages.iter().filter(|(pid, _)| *pid == instance.pid);
            let mut own: Vec<u64> = own.map(|(_, page)| *page).collect();
            own.sort_unstable();
            targets.among(&own)
        };
        self.anon.iter().map(among).sum()
    }

    /// File pages planned, without gap pages.
    pub fn file_pages(&self) -> u64 {
        self.files.iter().map(|t| t.wanted.pages()).sum()
    }

    /// Pages that are fetched in this mode, without gap pages.
    pub fn pages(&self, mode: Mode) -> u64 {
        let anon = if mode.fetches_anon() {
            self.anon_pages()
        } else {
            0
        };
        let file = if mode.fetches_files() {
            self.file_pages()
        } else {
            0
        };
        anon + file
    }

    /// Gap pages that merging adds.
    pub fn gap_pages(&self) -> u64 {
        self.files.iter().map(|t| t.gap_pages).sum()
    }

    /// Bytes of memory that the plan takes.
    pub fn bytes(&self) -> usize {
        let set = |s: &ExtentSet| size_of_val::<[Extent]>(s.extents());
        let anon = |(_, t): &(Instance, AnonTargets)| size_of::<Instance>() + t.bytes();
        // The paths are those of the tables.
        let file = |t: &FileTargets| {
            let reads = size_of_val::<[(u8, Extent)]>(&t.reads);
            size_of::<FileTargets>() + set(&t.wanted) + set(&t.read) + reads
        };
        size_of::<Self>()
            + self.anon.iter().map(anon).sum::<usize>()
            + self.files.iter().map(file).sum::<usize>()
    }
}

/// What a plan is made from.
pub struct Knowledge<'a> {
    /// Anonymous pages of each living instance.
    pub anon: &'a BTreeMap<Instance, AnonTable>,
    /// How anonymous pages' histories continued.
    pub anon_calibration: &'a Calibration,
    /// File pages.
    pub files: &'a FileTables,
    /// How file pages' histories continued.
    pub file_calibration: &'a Calibration,
}

/// Steps in which the confidence rises until the expected waste is within the budget.
const CONFIDENCE_STEP: f32 = 0.1;

impl Knowledge<'_> {
    /// The plan for switch number `switch`: the pages with the least confidence that the budget allows. Where the
    /// expected waste is above `waste_pages_max`, the confidence rises until it is not.
    pub fn plan(&self, params: &Params, under_pressure: bool, switch: u64) -> Plan {
        let budget = &params.budget;
        let (mut anon, mut file) = match under_pressure {
            true => (budget.confidence_pressure, budget.confidence_pressure),
            false => (budget.confidence, budget.file_confidence),
        };
        loop {
            let plan = self.plan_with(params, anon, file, switch);
            let waste = self.expected_waste(&plan);
            if waste <= budget.waste_pages_max as f32 || anon.min(file) >= 1.0 {
                return plan;
            }
            anon = (anon + CONFIDENCE_STEP).min(1.0);
            file = (file + CONFIDENCE_STEP).min(1.0);
        }
    }

    fn plan_with(
        &self,
        params: &Params,
        confidence: f32,
        file_confidence: f32,
        switch: u64,
    ) -> Plan {
        let anon = |(&instance, table): (&Instance, &AnonTable)| {
            let targets = table.targets(&params.anon, self.anon_calibration, confidence, switch);
            (!targets.is_empty()).then_some((instance, targets))
        };
        Plan {
            anon: self.anon.iter().filter_map(anon).collect(),
            files: self
                .files
                .targets(&params.file, self.file_calibration, file_confidence),
            confidence,
            file_confidence,
        }
    }

    /// Pages times one minus their probability of use, in pages.
    fn expected_waste(&self, plan: &Plan) -> f32 {
        let mut waste = plan.gap_pages() as f32;
        for (instance, targets) in &plan.anon {
            let Some(table) = self.anon.get(instance) else {
                continue;
            };
            let planned = targets.all();
            let mut is_planned = planned.contains_ascending();
            for (extent, state) in table.map().iter() {
                if is_planned(extent.start) {
                    let probability = self.anon_calibration.probability(state.history);
                    waste += extent.len as f32 * (1.0 - probability);
                }
            }
        }
        let wanted: BTreeMap<_, _> = plan.files.iter().map(|t| (&t.file, &t.wanted)).collect();
        for (file, map) in self.files.iter() {
            let Some(wanted) = wanted.get(file) else {
                continue;
            };
            let mut is_wanted = wanted.contains_ascending();
            for (extent, state) in map.iter() {
                if is_wanted(extent.start) {
                    let probability = self.file_calibration.probability(state.history);
                    waste += extent.len as f32 * (1.0 - probability);
                }
            }
        }
        waste
    }
}
