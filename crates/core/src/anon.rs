//! The estimator for anonymous pages (ASAP section 4.3).
//!
//! One [`AnonTable`] belongs to one process instance and vanishes with it. It holds the paper's Online Candidate
//! Table and Prepaging Target Table as one map from pages to [`AnonState`], so that no page can be in both.

use crate::extent::{Extent, ExtentSet};
use crate::history::{Calibration, History};
use crate::order::{Ranked, learn_order};
use crate::params::{AnonParams, AnonRule};
use crate::run_map::{RunMap, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// The paper's two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Faulted on once; not fetched by the paper's rule.
    Candidate,
    /// Accessed again in a later switch: fetched.
    Target,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonState {
    /// The table it is in.
    pub table: Table,
    /// Observed switches without access until it is evicted; at least 1.
    pub timeout: u8,
    /// Its last known observations.
    pub history: History,
    /// Binary logarithm of its observation interval: while it is mapped directly, its use is observed in one
    /// switch of so many, as one of a *sample* of its block. 0 for what is new or in doubt: always.
    pub observe_log2: u8,
    /// When in a switch it is first demanded, at the earliest: see [`rank_after`].
    pub rank: u8,
}

/// In four bytes: from the lowest bit the history in 8, the timeout in 8, the rank in 4, the interval's logarithm in 4, the table.
impl Value for AnonState {
    type Kept = u32;

    fn kept(self) -> u32 {
        u32::from(self.history.bits())
            | u32::from(self.timeout) << 8
            | u32::from(self.rank) << 16
            | u32::from(self.observe_log2) << 20
            | u32::from(self.table == Table::Target) << 24
    }

    fn of_kept(kept: u32) -> Self {
        let [history, timeout, marks, table] = kept.to_le_bytes();
        Self {
            table: match table {
                0 => Table::Candidate,
                _ => Table::Target,
            },
            timeout,
            history: History::of_bits(history),
            observe_log2: marks >> 4,
            rank: marks & 0xf,
        }
    }
}

/// Steps into which a switch is divided by the time at which pages are demanded.
pub const RANKS: u8 = 5;

/// The rank of what is demanded so many microseconds after the signal: 0 in the first 5 ms, and each further one lasts
/// four times as long. Pages are fetched by rank, within one by address, which the page tables and the swap device
/// like best. Few ranks, and unequal ones: what is needed first is waited for, and each rank divides runs of pages.
pub fn rank_after(us: u64) -> u8 {
    const FIRST_US: u64 = 5_000;
    let beyond = |rank: &u8| us >= FIRST_US << (2 * rank);
    (0..RANKS - 1).take_while(beyond).count() as u8
}

impl Ranked for AnonState {
    fn rank(self) -> u8 {
        self.rank
    }

    fn with_rank(self, rank: u8) -> Self {
        Self {
            rank: rank.min(RANKS - 1),
            ..self
        }
    }
}

impl AnonState {
    fn candidate(params: &AnonParams) -> Self {
        Self {
            table: Table::Candidate,
            timeout: params.timeout_switches,
            history: History::EMPTY.with(true),
            observe_log2: 0,
            rank: RANKS - 1,
        }
    }

    fn accessed_again(self, params: &AnonParams) -> Self {
        let longest = params.observe_interval_max.ilog2() as u8;
        Self {
            table: Table::Target,
            timeout: params.timeout_switches,
            history: self.history.with(true),
            observe_log2: (self.observe_log2 + OBSERVE_LOG2_STEP).min(longest),
            rank: self.rank,
        }
    }

    /// `None` where the timeout counter evicts it.
    fn not_accessed(self) -> Option<Self> {
        Some(Self {
            table: self.table,
            timeout: self.timeout.checked_sub(1).filter(|&left| left > 0)?,
            history: self.history.with(false),
            observe_log2: 0,
            rank: self.rank,
        })
    }

    /// The pages of a block that are observed in this switch: each in turn, adjacent ones together. Where the turn begins
    /// differs from block to block.
    fn sample(self, switch: u64, block: u64) -> Extent {
        let interval = 1 << self.observe_log2;
        let phase = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        let turn = (switch + phase) % interval;
        let edge = |turn: u64| block * BLOCK_PAGES + (turn * BLOCK_PAGES).div_ceil(interval);
        Extent::between(edge(turn), edge(turn + 1))
    }

    /// The parts of an extent of one block, each with whether it is observed in this switch.
    fn observed_parts(self, extent: Extent, switch: u64) -> [(Extent, bool); 3] {
        let sample = self.sample(switch, extent.start / BLOCK_PAGES);
        let cut = |page: u64| page.clamp(extent.start, extent.end());
        let (from, to) = (cut(sample.start), cut(sample.end()));
        [
            (Extent::between(extent.start, from), false),
            (Extent::between(from, to), true),
            (Extent::between(to, extent.end()), false),
        ]
    }
}

/// How fast the observation interval grows with each observed use: sixteenfold. A page that is observed costs the
/// application a minor fault.
const OBSERVE_LOG2_STEP: u8 = 4;

/// Pages that a sample stands for, and most that are fetched together.
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
    /// Pages of the two that are shown though they were not to be watched (shared memory): each stands for itself alone.
    pub always_shown: ExtentSet,
    /// Pages that prepaging brought in, mapped or not.
    pub fetched: ExtentSet,
    /// Demanded pages with their rank, by [`rank_after`]; a page may be in it again with a later one.
    pub order: Vec<(Extent, u8)>,
}

impl AnonObservation {
    /// Every page known to have been accessed.
    pub fn accessed(&self) -> ExtentSet {
        self.faulted.union(&self.used)
    }

    /// Those of these pages that were watched by turns, and those that were shown beside.
    pub fn by_sample(&self, pages: &ExtentSet) -> [ExtentSet; 2] {
        let anyway = pages.intersection(&self.always_shown);
        [pages.difference(&anyway), anyway]
    }
}

/// Pages of one process to fetch together: at most 64, of one aligned block. From the highest bit the first page, the length
/// less one in 6, the rank in 3, and whether it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonRead(u64);

impl AnonRead {
    fn new(extent: Extent, rank: u8, watch: bool) -> Self {
        debug_assert!((1..=BLOCK_PAGES).contains(&extent.len) && rank < 1 << 3);
        let len = extent.len - 1;
        Self(extent.start << 10 | len << 4 | u64::from(rank) << 1 | u64::from(watch))
    }

    /// The virtual pages.
    pub fn extent(self) -> Extent {
        Extent::new(self.0 >> 10, (self.0 >> 4 & (BLOCK_PAGES - 1)) + 1)
    }

    /// When they are needed: see [`rank_after`].
    pub fn rank(self) -> u8 {
        (self.0 >> 1) as u8 & 0b111
    }

    /// Whether they are brought to the swap cache only, so that their use can be seen, and not mapped.
    pub fn watch(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether `part` follows it, in the same block of pages.
    fn is_continued_by(self, part: Extent) -> bool {
        let end = self.extent().end();
        end == part.start && !end.is_multiple_of(BLOCK_PAGES)
    }
}

/// Bits of a read that are kept for each: the place of its first page in a stretch of 2^16, and what follows.
const READ_BITS: u32 = 26;

/// Reads that follow each other and begin in one aligned stretch of 2^16 pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// The bits above [`READ_BITS`].
    above: u64,
    /// Index of its first read.
    first_read: u32,
}

/// The pages of one process to fetch at the next switch. A read takes four bytes, since a browser's plan holds thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonTargets {
    stretches: Vec<Stretch>,
    /// The lowest [`READ_BITS`] of each read.
    reads: Vec<u32>,
}

impl AnonTargets {
    /// Targets that hold these pages at these ranks, which are disjoint and ascend by page.
    pub fn new(pages: impl IntoIterator<Item = (Extent, u8, bool)>) -> Self {
        let mut by_rank: [Vec<AnonRead>; RANKS as usize] = Default::default();
        for (extent, rank, watch) in pages {
            let rank = rank.min(RANKS - 1);
            let reads = &mut by_rank[usize::from(rank)];
            for part in blocks(extent).filter(|part| !part.is_empty()) {
                match reads.last_mut() {
                    Some(last) if last.watch() == watch && last.is_continued_by(part) => {
                        let joined = Extent::between(last.extent().start, part.end());
                        *last = AnonRead::new(joined, rank, watch);
                    }
                    _ => reads.push(AnonRead::new(part, rank, watch)),
                }
            }
        }
        let mut targets = Self::default();
        targets
            .reads
            .reserve_exact(by_rank.iter().map(Vec::len).sum());
        by_rank
            .into_iter()
            .flatten()
            .for_each(|read| targets.push(read));
        targets.stretches.shrink_to_fit();
        targets
    }

    fn push(&mut self, read: AnonRead) {
        let above = read.0 >> READ_BITS;
        if self.stretches.last().is_none_or(|last| last.above != above) {
            self.stretches.push(Stretch {
                above,
                first_read: u32::try_from(self.reads.len()).expect("tables are bounded"),
            });
        }
        self.reads.push((read.0 & ((1 << READ_BITS) - 1)) as u32);
    }

    /// Whether there is nothing to fetch.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val::<[Stretch]>(&self.stretches)
            + size_of_val::<[u32]>(&self.reads)
    }

    /// What to fetch, in order: by rank, and by page within one.
    pub fn reads(&self) -> impl Iterator<Item = AnonRead> + '_ {
        self.reads_in(0..self.reads.len())
    }

    /// The reads of one rank.
    pub fn of_rank(&self, rank: u8) -> impl Iterator<Item = AnonRead> + '_ {
        // The rank is among the bits that are kept for each.
        let rank_of = |read: &u32| AnonRead(u64::from(*read)).rank();
        let from = self.reads.partition_point(|read| rank_of(read) < rank);
        let to = self.reads.partition_point(|read| rank_of(read) <= rank);
        self.reads_in(from..to)
    }

    fn reads_in(&self, indices: Range<usize>) -> impl Iterator<Item = AnonRead> + '_ {
        let mut stretches = self.stretches.iter().peekable();
        let mut above = 0;
        indices.map(move |index| {
            while let Some(stretch) = stretches.next_if(|next| next.first_read as usize <= index) {
                above = stretch.above;
            }
            AnonRead(above << READ_BITS | u64::from(self.reads[index]))
        })
    }

    /// The pages, in the order of the reads.
    pub fn iter_pages(&self) -> impl Iterator<Item = u64> + '_ {
        let extents = self.reads().map(|read| read.extent());
        extents.flat_map(|extent| extent.start..extent.end())
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.reads().map(|read| read.extent().len).sum()
    }

    /// Pages to be brought in and mapped.
    pub fn map(&self) -> ExtentSet {
        self.set(|read| !read.watch())
    }

    /// Pages to be brought to the swap cache only.
    pub fn watch(&self) -> ExtentSet {
        self.set(|read| read.watch())
    }

    /// Both.
    pub fn all(&self) -> ExtentSet {
        self.set(|_| true)
    }

    /// How many of these virtual pages, ascending, are among them. Of a few pages it is told without making a set of the targets.
    pub fn among(&self, pages: &[u64]) -> usize {
        let among = |read: AnonRead| {
            let extent = read.extent();
            let from = pages.partition_point(|page| *page < extent.start);
            let rest = &pages[from..];
            rest.iter().take_while(|page| **page < extent.end()).count()
        };
        match pages {
            [] => 0,
            _ => self.reads().map(among).sum(),
        }
    }

    fn set(&self, keep: impl Fn(&AnonRead) -> bool) -> ExtentSet {
        let mut extents = Vec::with_capacity(self.reads.len());
        let kept = self.reads().filter(|read| keep(read));
        extents.extend(kept.map(|read| read.extent()));
        ExtentSet::from(extents)
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
        let used = seen.used.difference(&seen.faulted);
        let unused = seen.unused.difference(&seen.accessed());
        let (watched, not_fetched) = (
            unused.intersection(&seen.fetched),
            unused.difference(&seen.fetched),
        );
        let doubtful = self.doubtful_blocks(&used, &watched);
        // A sample counts for all that it stands for. What was not fetched is always seen, and counts for itself.
        let weight = |state: AnonState, is_sample| match is_sample {
            true => 1 << state.observe_log2,
            false => 1,
        };
        let [used_of_sample, used_anyway] = seen.by_sample(&used);
        let [unused_of_sample, unused_anyway] = seen.by_sample(&watched);
        for (pages, is_sample) in [
            (&seen.faulted, false),
            (&used_anyway, false),
            (&used_of_sample, true),
        ] {
            self.map.update(pages, |state, pages| match state {
                None => Some(AnonState::candidate(params)),
                Some(state) => {
                    let pages = pages * weight(state, is_sample);
                    calibration.count(state.history, true, pages);
                    Some(state.accessed_again(params))
                }
            });
        }
        for (pages, is_sample) in [
            (&not_fetched, false),
            (&unused_anyway, false),
            (&unused_of_sample, true),
        ] {
            self.map.update(pages, |state, pages| {
                let state = state?;
                let pages = pages * weight(state, is_sample);
                calibration.count(state.history, false, pages);
                state.not_accessed()
            });
        }
        self.map.update(&doubtful, |state, _| {
            let observe_log2 = 0;
            state.map(|state| AnonState {
                observe_log2,
                ..state
            })
        });
        learn_order(&mut self.map, &seen.order);
    }

    /// The blocks of whose sample no more was used than not: all of their pages are to be observed. What nobody saw is
    /// not judged by its neighbours, but memory is mostly given up, and taken up again, in pieces of many pages.
    fn doubtful_blocks(&self, used: &ExtentSet, unused: &ExtentSet) -> ExtentSet {
        let is_sampled = |state: AnonState| state.observe_log2 > 0;
        let samples = self.map.pages_where(is_sampled);
        let mut balance: BTreeMap<u64, i64> = BTreeMap::new();
        for (pages, sign) in [(used, -1), (unused, 1)] {
            for &extent in pages.intersection(&samples).extents() {
                for part in blocks(extent) {
                    let block = part.start / BLOCK_PAGES;
                    *balance.entry(block).or_default() += sign * part.len as i64;
                }
            }
        }
        let doubtful = balance.into_iter().filter(|&(_, excess)| excess >= 0);
        doubtful
            .map(|(block, _)| Extent::new(block * BLOCK_PAGES, BLOCK_PAGES))
            .collect()
    }

    /// Evicts runs of pages until at most `runs_max` are left: those with the least timeout first, candidates before
    /// targets, then the least used, those needed last, and the shortest.
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
                let used = state.history.used();
                let rank = (
                    state.timeout,
                    is_target,
                    used,
                    RANKS - state.rank,
                    extent.len,
                );
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
        let runs = self.map.within(pages);
        runs.map(|(extent, state)| extent.len << state.observe_log2)
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
        let chosen = self.map.iter().filter(|(_, state)| match params.rule {
            AnonRule::Paper => state.table == Table::Target,
            AnonRule::History => calibration.probability(state.history) >= confidence,
        });
        AnonTargets::new(chosen.flat_map(|(extent, state)| {
            let parts = move |part: Extent| state.observed_parts(part, switch);
            let planned = move |(part, watch)| (part, state.rank, watch);
            blocks(extent).flat_map(parts).map(planned)
        }))
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
