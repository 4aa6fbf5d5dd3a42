//! The estimator for anonymous pages (ASAP section 4.3).
//!
//! One [`AnonTable`] belongs to one process instance and vanishes with it. It holds the paper's Online Candidate
//! Table and Prepaging Target Table as one map from pages to [`AnonState`], so that no page can be in both.

use crate::extent::{Extent, ExtentSet};
use crate::history::{Calibration, History};
use crate::params::{AnonParams, AnonRule};
use crate::run_map::RunMap;

/// The paper's two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Faulted on once; not fetched by the paper's rule.
    Candidate,
    /// Accessed again in a later switch: fetched.
    Target,
}

/// What is kept of a page: 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonState {
    /// The table it is in.
    pub table: Table,
    /// Observed switches without access until it is evicted; at least 1.
    pub timeout: u8,
    /// Its last known observations.
    pub history: History,
    /// Binary logarithm of its observation interval: while it is mapped directly, its use is observed in one
    /// switch of so many. 0 for what is new or in doubt.
    pub observe_log2: u8,
}

impl AnonState {
    fn candidate(params: &AnonParams) -> Self {
        Self {
            table: Table::Candidate,
            timeout: params.timeout_switches,
            history: History::EMPTY.with(true),
            observe_log2: 0,
        }
    }

    fn accessed_again(self, params: &AnonParams) -> Self {
        let longest = params.observe_interval_max.ilog2() as u8;
        Self {
            table: Table::Target,
            timeout: params.timeout_switches,
            history: self.history.with(true),
            observe_log2: (self.observe_log2 + OBSERVE_LOG2_STEP).min(longest),
        }
    }

    /// `None` where the timeout counter evicts it.
    fn not_accessed(self) -> Option<Self> {
        Some(Self {
            table: self.table,
            timeout: self.timeout.checked_sub(1).filter(|&left| left > 0)?,
            history: self.history.with(false),
            observe_log2: 0,
        })
    }

    /// Whether its use is to be observed in this switch. A block of pages shares a phase, and phases are spread
    /// over the blocks, so that each switch observes about the same number.
    fn is_observed_in(self, switch: u64, page: u64) -> bool {
        let phase = (page / BLOCK_PAGES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        (switch + phase).is_multiple_of(1 << self.observe_log2)
    }
}

/// How fast the observation interval grows with each observed use: sixteenfold. A page that is observed costs the
/// application a minor fault.
const OBSERVE_LOG2_STEP: u8 = 4;

/// Pages that share an observation phase.
const BLOCK_PAGES: u64 = 64;

/// What one switch showed of one process's anonymous pages. Pages in none of these sets are unknown. All sets are
/// of virtual page numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonObservation {
    /// Demand faults: the paper's fault buffer.
    pub faulted: ExtentSet,
    /// Prepaged pages whose use was seen.
    pub used: ExtentSet,
    /// Pages seen not to have been used: prepaged to the swap cache and still not mapped at the end, or not
    /// prepaged and still swapped out.
    pub unused: ExtentSet,
    /// Pages that prepaging brought in, mapped or not.
    pub fetched: ExtentSet,
}

impl AnonObservation {
    /// Every page known to have been accessed.
    pub fn accessed(&self) -> ExtentSet {
        self.faulted.union(&self.used)
    }
}

/// The pages of one process to fetch at the next switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonTargets {
    /// To be brought in and mapped.
    pub map: ExtentSet,
    /// To be brought to the swap cache only, so that their use can be seen.
    pub watch: ExtentSet,
}

impl AnonTargets {
    /// Both.
    pub fn all(&self) -> ExtentSet {
        self.map.union(&self.watch)
    }
}

/// Candidate and target table of one process instance.
#[derive(Clone, Debug, Default)]
pub struct AnonTable {
    map: RunMap<AnonState>,
}

impl AnonTable {
    /// The tables, as one map.
    pub fn map(&self) -> &RunMap<AnonState> {
        &self.map
    }

    /// Updates the tables from what a switch showed: check and insertion, promotion, eviction (ASAP section 4.3).
    /// An unknown page stays as it is.
    pub fn learn(
        &mut self,
        seen: &AnonObservation,
        params: &AnonParams,
        calibration: &mut Calibration,
    ) {
        let accessed = seen.accessed();
        self.map.update(&accessed, |state, pages| match state {
            None => Some(AnonState::candidate(params)),
            Some(state) => {
                calibration.count(state.history, true, pages);
                Some(state.accessed_again(params))
            }
        });
        self.map
            .update(&seen.unused.difference(&accessed), |state, pages| {
                let state = state?;
                calibration.count(state.history, false, pages);
                state.not_accessed()
            });
    }

    /// Evicts runs of pages until at most `runs_max` are left: those with the least timeout first, candidates before
    /// targets, then the least used and the shortest.
    pub fn bound(&mut self, runs_max: usize) {
        let excess = self.map.runs().saturating_sub(runs_max);
        if excess == 0 {
            return;
        }
        let mut runs: Vec<_> = self
            .map
            .iter()
            .map(|(extent, state)| {
                let is_target = state.table == Table::Target;
                let rank = (state.timeout, is_target, state.history.used(), extent.len);
                (rank, extent)
            })
            .collect();
        runs.sort_unstable();
        let evicted = runs.into_iter().take(excess).map(|(_, extent)| extent);
        self.map.update(&evicted.collect(), |_, _| None);
    }

    /// Adapts what was learned under other parameters: no counter stays above what `params` allows.
    pub fn adapt(&mut self, params: &AnonParams) {
        let timeout = params.timeout_switches;
        let longest = params.observe_interval_max.ilog2() as u8;
        let above = self
            .map
            .pages_where(|state| state.timeout > timeout || state.observe_log2 > longest);
        self.map.update(&above, |state, _| {
            state.map(|state| AnonState {
                timeout: state.timeout.min(timeout),
                observe_log2: state.observe_log2.min(longest),
                ..state
            })
        });
    }

    /// Number of these pages, each counted as often as its observation interval is long: for how many it stands
    /// where it was watched by turns.
    pub fn weighted_pages(&self, pages: &ExtentSet) -> u64 {
        let longest = self.map.iter().map(|(_, state)| state.observe_log2).max();
        (0..=longest.unwrap_or(0))
            .map(|log2| {
                let of_interval = self.map.pages_where(|state| state.observe_log2 == log2);
                of_interval.intersection(pages).pages() << log2
            })
            .sum()
    }

    /// The pages to fetch in switch number `switch` whose probability of use is at least `confidence` (by the
    /// paper's rule: the target table).
    pub fn targets(
        &self,
        params: &AnonParams,
        calibration: &Calibration,
        confidence: f32,
        switch: u64,
    ) -> AnonTargets {
        let mut targets = AnonTargets::default();
        for (extent, state) in self.map.iter() {
            let chosen = match params.rule {
                AnonRule::Paper => state.table == Table::Target,
                AnonRule::History => calibration.probability(state.history) >= confidence,
            };
            if !chosen {
                continue;
            }
            for part in blocks(extent) {
                if state.is_observed_in(switch, part.start) {
                    targets.watch.push_back(part);
                } else {
                    targets.map.push_back(part);
                }
            }
        }
        targets
    }
}

/// Splits an extent at block boundaries.
fn blocks(extent: Extent) -> impl Iterator<Item = Extent> {
    let first = extent.start / BLOCK_PAGES;
    let last = extent.end().div_ceil(BLOCK_PAGES);
    (first..last).map(move |block| {
        let start = extent.start.max(block * BLOCK_PAGES);
        Extent::between(start, extent.end().min((block + 1) * BLOCK_PAGES))
    })
}
