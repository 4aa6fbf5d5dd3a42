//! The estimator for file pages (ASAP section 4.2).
//!
//! One [`FileTables`] belongs to one application and is kept in its profile. For each file it holds one map from
//! pages to [`FileState`]: the paper's Offline Candidate Table (counts of the profiling phase) and Prepaging
//! Target Table (a mark) in one.

use crate::extent::{Extent, ExtentSet, by_key};
use crate::history::{Calibration, History};
use crate::identity::FileId;
use crate::order::{Ranked, learn_order};
use crate::params::{FileCandidates, FileParams, PROFILE_SWITCHES_MAX};
use crate::run_map::{RunMap, kept_as_they_are};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is kept of a file page: 6 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Profiling switches in which it was accessed.
    pub accesses: u8,
    /// Profiling switches in which it is known whether it was.
    pub trials: u8,
    /// Its last known observations.
    pub history: History,
    /// Known switches without access until it is forgotten; at least 1.
    pub timeout: u8,
    /// Its place among the targets.
    pub standing: Standing,
    /// When in a switch it is first accessed, at the earliest: 0 first, [`RANKS`] - 1 last.
    pub rank: u8,
}

kept_as_they_are!(FileState);

/// Pages that a fault maps together at most, as kernels have it by default (fault_around_bytes, 64 KiB).
pub const WINDOW_PAGES: u64 = 16;

/// Steps into which a switch's accesses are divided, by number.
pub const RANKS: u8 = 64;

/// Where a file page stands in the paper's Prepaging Target Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Not in it.
    Outside,
    /// In it: fetched.
    Target,
    /// Evicted from it, since it was fetched and not used. Reads are not merged across it.
    Evicted,
}

/// What one switch showed of one file. All sets are of page numbers in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileObservation {
    /// Pages known to have been accessed, by fault or by read(2) or write(2).
    pub accessed: ExtentSet,
    /// Of these, the pages that the application had to read from the device: the paper's fault buffer.
    pub demanded: ExtentSet,
    /// Pages of which nothing is known: mapped before the switch and still, or mapped along with others.
    pub unknown: ExtentSet,
    /// Of the unknown, pages that prepaging brought in and whose use nothing can ever show, while it does: those reached by
    /// read(2) on a kernel that reports no accesses.
    pub unobservable: ExtentSet,
    /// Pages that prepaging brought in.
    pub fetched: ExtentSet,
    /// Accessed pages with their place in the order of first access, over all files: 0 to [`RANKS`] - 1.
    pub order: Vec<(Extent, u8)>,
}

/// One file's pages to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTargets {
    /// The file, in the version that was learned.
    pub file: FileId,
    /// The pages that are wanted.
    pub wanted: ExtentSet,
    /// What is read: `wanted`, merged.
    pub read: ExtentSet,
    /// The same in the order of first access: place and pages. Gap pages may be in it twice.
    pub reads: Vec<(u8, Extent)>,
    /// Pages in `read` that nobody wants: the price of fewer reads.
    pub gap_pages: u64,
}

/// The tables of one application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileTables {
    files: BTreeMap<FileId, RunMap<FileState>>,
    /// Profiling switches done, up to `profile_switches`.
    profiled: u8,
}

impl FileTables {
    /// Number of files known.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether no file is known.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files and what is kept of their pages.
    pub fn iter(&self) -> impl Iterator<Item = (&FileId, &RunMap<FileState>)> {
        self.files.iter()
    }

    /// Profiling switches done.
    pub fn profiled(&self) -> u8 {
        self.profiled
    }

    /// Bytes of memory that the tables take.
    pub fn bytes(&self) -> usize {
        let entry = |(id, map): (&FileId, &RunMap<FileState>)| {
            size_of::<(FileId, RunMap<FileState>)>() + id.path.len() + map.bytes()
        };
        self.files.iter().map(entry).sum()
    }

    /// Forgets a file: it was updated, replaced, truncated or deleted.
    pub fn forget(&mut self, file: &FileId) -> bool {
        self.files.remove(file).is_some()
    }

    /// Keeps only the files for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&FileId) -> bool) {
        self.files.retain(|file, _| keep(file));
    }

    /// Updates the tables from what a switch showed: profiling, insertion and eviction (ASAP section 4.2). Of the
    /// files that are known and not in `seen`, nothing was accessed: a file of which nothing is known is in `seen`
    /// with its pages unknown.
    pub fn learn(
        &mut self,
        seen: &BTreeMap<FileId, FileObservation>,
        params: &FileParams,
        calibration: &mut Calibration,
    ) {
        let profiling = self.profiled < params.profile_switches;
        self.profiled += u8::from(profiling);
        for file in seen.keys() {
            self.replace_old_versions(file);
        }
        let nothing = FileObservation::default();
        let profiled = self.profiled;
        for (file, map) in &mut self.files {
            let seen = seen.get(file).unwrap_or(&nothing);
            let step = Step {
                profiling,
                profiled,
                params,
            };
            step.learn_file(map, seen, calibration);
        }
        self.files.retain(|_, map| !map.is_empty());
    }

    /// Makes room for `file`, and moves what a profile from before a reboot knew of it to its present device.
    fn replace_old_versions(&mut self, file: &FileId) {
        if self.files.contains_key(file) {
            return;
        }
        // Ids are ordered by path first.
        let first = FileId {
            path: file.path.clone(),
            device: (0, 0),
            inode: 0,
            size: 0,
            mtime_ns: i64::MIN,
        };
        let old: Vec<FileId> = self
            .files
            .range(first..)
            .map(|(id, _)| id)
            .take_while(|id| id.path == file.path)
            .cloned()
            .collect();
        let mut map = RunMap::default();
        for id in old {
            let known = self.files.remove(&id);
            if id.is_version_of(file) {
                map = known.unwrap_or_default();
            }
        }
        self.files.insert(file.clone(), map);
    }

    /// Adapts what was learned under other parameters, or elsewhere: counters and bounds are those of `params`.
    pub fn adapt(&mut self, params: &FileParams) {
        let timeout = params.timeout_switches;
        for map in self.files.values_mut() {
            let above = map.pages_where(|state| state.timeout > timeout);
            map.update(&above, |state, _| {
                state.map(|state| FileState { timeout, ..state })
            });
        }
        self.bound(params);
    }

    /// Evicts until the bounds of `params` hold: the smallest files first, then runs of pages.
    pub fn bound(&mut self, params: &FileParams) {
        self.bound_files(params.files_max);
        self.bound_runs(params.runs_max);
    }

    /// Evicts runs of pages until at most `runs_max` are left: those with the least timeout, of these the least used and the
    /// shortest.
    pub fn bound_runs(&mut self, runs_max: usize) {
        let excess = self.runs().saturating_sub(runs_max);
        if excess == 0 {
            return;
        }
        let mut runs = Vec::new();
        for (file, map) in &self.files {
            runs.extend(map.iter().map(|(extent, state)| {
                let rank = (state.timeout, state.history.used(), extent.len);
                (rank, file.clone(), extent)
            }));
        }
        runs.sort_unstable();
        let evicted = runs.into_iter().take(excess);
        for (file, pages) in by_key(evicted.map(|(_, file, extent)| (file, extent))) {
            if let Some(map) = self.files.get_mut(&file) {
                map.update(&pages, |_, _| None);
            }
        }
        self.files.retain(|_, map| !map.is_empty());
    }

    fn bound_files(&mut self, files_max: usize) {
        let excess = self.files.len().saturating_sub(files_max);
        if excess == 0 {
            return;
        }
        let mut files: Vec<(u64, FileId)> = self
            .files
            .iter()
            .map(|(file, map)| (map.pages(), file.clone()))
            .collect();
        files.sort_unstable();
        for (_, file) in files.into_iter().take(excess) {
            self.files.remove(&file);
        }
    }

    /// Whether it can be used: what tables from another source are checked by.
    pub(crate) fn is_valid(&self) -> bool {
        let is_valid = |state: FileState| {
            state.history.is_valid()
                && state.accesses <= state.trials
                && state.trials <= self.profiled
                && state.timeout > 0
                && state.rank <= UNRANKED
        };
        self.profiled <= PROFILE_SWITCHES_MAX
            && self
                .files
                .values()
                .all(|map| map.iter().all(|(_, state)| is_valid(state)))
    }

    /// Number of runs, over all files.
    pub fn runs(&self) -> usize {
        self.files.values().map(RunMap::runs).sum()
    }

    /// What to fetch at the next switch, large files first: pages whose probability of use is at least
    /// `confidence`, or the paper's target table.
    pub fn targets(
        &self,
        params: &FileParams,
        calibration: &Calibration,
        confidence: f32,
    ) -> Vec<FileTargets> {
        let mut targets: Vec<FileTargets> = self
            .files
            .iter()
            .filter_map(|(file, map)| {
                let wanted = map.pages_where(|state| match params.file_candidates {
                    FileCandidates::Offline => state.standing == Standing::Target,
                    FileCandidates::Online => calibration.probability(state.history) >= confidence,
                });
                let evicted = map.pages_where(|state| state.standing == Standing::Evicted);
                let barred = evicted.difference(&wanted);
                let reads = reads(map, &wanted, &barred, params.merge_gap_pages);
                let read: ExtentSet = reads.iter().map(|&(_, extent)| extent).collect();
                (!wanted.is_empty()).then(|| FileTargets {
                    file: file.clone(),
                    gap_pages: read.pages() - wanted.pages(),
                    wanted,
                    read,
                    reads,
                })
            })
            .collect();
        targets.sort_by_key(|t| std::cmp::Reverse(t.wanted.pages()));
        targets
    }
}

/// The wanted pages in the order of first access; of one place in it by offset, merged.
fn reads(
    map: &RunMap<FileState>,
    wanted: &ExtentSet,
    barred: &ExtentSet,
    gap_max: u64,
) -> Vec<(u8, Extent)> {
    let mut by_rank: BTreeMap<u8, ExtentSet> = BTreeMap::new();
    for (extent, state) in map.iter().filter(|(e, _)| wanted.contains(e.start)) {
        by_rank.entry(state.rank).or_default().push_back(extent);
    }
    let merged = |(rank, pages): (u8, ExtentSet)| {
        let (merged, _) = pages.merged(gap_max, barred);
        Vec::from(merged).into_iter().map(move |e| (rank, e))
    };
    by_rank.into_iter().flat_map(merged).collect()
}

/// One switch's update of the tables.
#[derive(Clone, Copy)]
struct Step<'a> {
    profiling: bool,
    /// Profiling switches done, this one included.
    profiled: u8,
    params: &'a FileParams,
}

/// By so many switches ages in one what is fetched and cannot be seen to be used: half of the timeout is waste enough.
const UNOBSERVABLE_STEPS: u8 = 2;

/// The rank of a page whose place is not known: last.
const UNRANKED: u8 = RANKS;

impl Ranked for FileState {
    fn rank(self) -> u8 {
        self.rank
    }

    fn with_rank(self, rank: u8) -> Self {
        Self {
            rank: rank.min(UNRANKED),
            ..self
        }
    }
}

impl Step<'_> {
    fn learn_file(
        self,
        map: &mut RunMap<FileState>,
        seen: &FileObservation,
        calibration: &mut Calibration,
    ) {
        map.update(&seen.accessed, |state, pages| {
            if let Some(state) = state {
                calibration.count(state.history, true, pages);
            }
            Some(self.accessed(state))
        });
        map.update(&seen.demanded, |state, _| state.map(|s| self.demanded(s)));
        learn_order(map, &seen.order);
        let known = map.pages_where(|_| true);
        let unused = known.difference(&seen.accessed).difference(&seen.unknown);
        map.update(&unused, |state, pages| {
            let state = state?;
            calibration.count(state.history, false, pages);
            self.not_accessed(state)
        });
        map.update(&unused.intersection(&seen.fetched), |state, _| {
            let standing = Standing::Evicted;
            state.map(|s| FileState { standing, ..s })
        });
        map.update(&seen.unobservable, |state, _| self.unobservable(state?));
    }

    fn accessed(self, state: Option<FileState>) -> FileState {
        let profiling = u8::from(self.profiling);
        let state = state.unwrap_or(FileState {
            accesses: 0,
            // Not accessed in the profiling switches before this one.
            trials: self.profiled - profiling,
            history: History::EMPTY,
            timeout: self.params.timeout_switches,
            standing: Standing::Outside,
            rank: UNRANKED,
        });
        FileState {
            accesses: state.accesses + profiling,
            trials: state.trials + profiling,
            history: state.history.with(true),
            timeout: self.params.timeout_switches,
            standing: state.standing,
            rank: state.rank,
        }
    }

    /// Insertion: a faulted page that the candidate table holds becomes a target.
    fn demanded(self, state: FileState) -> FileState {
        let is_candidate = self.profiled >= self.params.profile_switches
            && u32::from(state.accesses) * u32::from(self.params.profile_switches)
                > u32::from(self.params.profile_accesses_min) * u32::from(state.trials);
        match is_candidate {
            true => FileState {
                standing: Standing::Target,
                ..state
            },
            false => state,
        }
    }

    fn not_accessed(self, state: FileState) -> Option<FileState> {
        Some(FileState {
            trials: state.trials + u8::from(self.profiling),
            history: state.history.with(false),
            timeout: self.timeout_after(state, 1)?,
            ..state
        })
    }

    /// What is fetched time and again and never seen to be used is given up now and then: then the application has to read it
    /// itself, if it uses it, and that is seen.
    fn unobservable(self, state: FileState) -> Option<FileState> {
        Some(FileState {
            timeout: self.timeout_after(state, UNOBSERVABLE_STEPS)?,
            ..state
        })
    }

    /// Its timeout, so many steps on; `None` at its end.
    fn timeout_after(self, state: FileState, steps: u8) -> Option<u8> {
        // The profile's candidates stay: the paper's table is static.
        let keeps = self.params.file_candidates == FileCandidates::Offline && !self.profiling;
        match state.timeout.saturating_sub(steps) {
            0 if keeps && state.accesses > 0 => Some(1),
            0 => None,
            left => Some(left),
        }
    }
}
