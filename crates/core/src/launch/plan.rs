//! What to fetch at a launch, in which calls (FAST section 4.3: the application prefetcher).

use super::metadata::{self, MetadataRead};
use super::paths::PathReplay;
use super::sequence::{LaunchSequence, SequenceRead};
use crate::extent::{Extent, ExtentSet, by_key, keep_first};
use crate::identity::FileId;
use crate::params::launch::{LaunchOrder, LaunchParams, LaunchStart};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a plan has to keep to on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Page size, in bytes.
    pub page_bytes: u64,
    /// Most bytes that the device takes in one call: the kernel silently cuts a larger one.
    pub call_bytes_max: u64,
}

/// One call of a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRead {
    /// Index in [`LaunchPlan::files`].
    pub file: u32,
    /// Pages of the file.
    pub extent: Extent,
}

/// One launch's prefetch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// When the application begins to run.
    pub start: LaunchStart,
    /// The files, in the version that was learned; not all need be read.
    pub files: Vec<FileId>,
    /// The calls, in order. No page is in two of them.
    pub reads: Vec<PlannedRead>,
    /// Blocks of inodes and directories, in calls, in order: before anything else, since look-ups wait for them.
    pub metadata: Vec<MetadataRead>,
    /// The paths to replay beside the reads; [`super::paths::split`] divides them among threads.
    pub paths: Vec<PathReplay>,
    /// Pages in `reads` that launches do not use: the price of fewer calls.
    pub gap_pages: u64,
    /// Pages of the sequence that the budget left out.
    pub left_out_pages: u64,
}

impl LaunchPlan {
    /// Pages that it reads.
    pub fn pages(&self) -> u64 {
        self.reads.iter().map(|r| r.extent.len).sum()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.paths.is_empty() && self.metadata.is_empty()
    }
}

/// The plan for a launch sequence, in the given order; empty for [`LaunchOrder::None`]. Pages that launches may not use come
/// in their place like any other: one that is used and comes late stops a launch for longer than all of them take.
pub fn plan(
    sequence: &LaunchSequence,
    order: LaunchOrder,
    start: LaunchStart,
    params: &LaunchParams,
    limits: PlanLimits,
) -> LaunchPlan {
    let mut wanted: Vec<SequenceRead> = match order {
        LaunchOrder::None => {
            return LaunchPlan {
                start,
                ..LaunchPlan::default()
            };
        }
        LaunchOrder::WholeFiles => whole_files(sequence, params.n_rawseq, limits.page_bytes),
        LaunchOrder::Launch | LaunchOrder::Lba => {
            sequence.confirmed(params.n_rawseq).copied().collect()
        }
    };
    let budget_pages = params.budget_bytes / limits.page_bytes;
    let left_out_pages = keep_first(&mut wanted, budget_pages, |read| &mut read.extent);
    if order == LaunchOrder::Lba {
        // What has no known address comes last, in the order of the launch.
        wanted.sort_by_key(|r| (r.address_bytes.is_none(), r.address_bytes));
    }
    let wanted_pages: u64 = wanted.iter().map(|r| r.extent.len).sum();
    let mut merge = Merge {
        gap_max: params.merge_gap_pages,
        spare_pages: budget_pages - wanted_pages,
        done: BTreeMap::new(),
        merged: Vec::new(),
    };
    let of_long = wanted_pages.div_ceil(params.merge_windows_max);
    let window_pages = params.merge_window_pages.max(of_long);
    windows(&wanted, window_pages).for_each(|window| merge.window(window));
    let call_pages = params.call_bytes.min(limits.call_bytes_max) / limits.page_bytes;
    let reads = calls(&merge.merged, call_pages);
    let mut metadata = sequence.metadata.clone();
    if order == LaunchOrder::Lba {
        metadata.sort_unstable();
    }
    let metadata_pages = params.metadata_bytes / limits.page_bytes;
    let read_pages: u64 = reads.iter().map(|r| r.extent.len).sum();
    LaunchPlan {
        start,
        files: sequence.files.iter().map(|f| f.file.clone()).collect(),
        reads,
        metadata: metadata::calls(&metadata, metadata_pages, call_pages),
        paths: sequence.paths.clone(),
        gap_pages: read_pages - wanted_pages,
        left_out_pages,
    }
}

/// Every file from beginning to end, in the order of first access.
fn whole_files(sequence: &LaunchSequence, n_rawseq: u32, page_bytes: u64) -> Vec<SequenceRead> {
    let mut taken = BTreeSet::new();
    let first = sequence
        .confirmed(n_rawseq)
        .filter(|r| taken.insert(r.file));
    let whole = |read: &SequenceRead| {
        let size = sequence.files.get(read.file as usize)?.file.size;
        let extent = Extent::new(0, size.div_ceil(page_bytes));
        Some(SequenceRead {
            file: read.file,
            extent,
            address_bytes: None,
            is_certain: true,
        })
    };
    first.filter_map(whole).collect()
}

/// The reads, divided into consecutive ones of at most `pages_max` pages together; a longer one is alone.
fn windows(reads: &[SequenceRead], pages_max: u64) -> impl Iterator<Item = &[SequenceRead]> {
    let mut rest = reads;
    std::iter::from_fn(move || {
        let mut pages = 0u64;
        let fits = |read: &SequenceRead| {
            pages = pages.saturating_add(read.extent.len);
            pages <= pages_max
        };
        let count = rest
            .iter()
            .copied()
            .take_while(fits)
            .count()
            .max(1)
            .min(rest.len());
        let (window, after) = rest.split_at(count);
        rest = after;
        (!window.is_empty()).then_some(window)
    })
}

/// Merging of neighbours.
struct Merge {
    gap_max: u64,
    /// Gap pages that the budget still allows.
    spare_pages: u64,
    /// Pages read by file, wanted or gap.
    done: BTreeMap<u32, ExtentSet>,
    merged: Vec<PlannedRead>,
}

impl Merge {
    /// Merges the reads of one window, each where its first page comes. What an earlier window read as a gap is not read
    /// again, and no gap reaches over what was read before.
    fn window(&mut self, reads: &[SequenceRead]) {
        let files = by_key(reads.iter().map(|read| (read.file, read.extent)));
        // The pages of each file, and which of its extents are planned already.
        let mut merged: BTreeMap<u32, (ExtentSet, Vec<bool>)> = BTreeMap::new();
        for (file, pages) in files {
            let done = self.done.entry(file).or_default();
            let wanted = pages.difference(done);
            let (joined, gap_pages) = wanted.merged(self.gap_max, done);
            let is_within = gap_pages <= self.spare_pages;
            self.spare_pages -= if is_within { gap_pages } else { 0 };
            let read = if is_within { joined } else { wanted };
            *done = done.union(&read);
            let is_planned = vec![false; read.extents().len()];
            merged.insert(file, (read, is_planned));
        }
        for read in reads {
            let Some((pages, is_planned)) = merged.get_mut(&read.file) else {
                continue;
            };
            let extents = pages.extents();
            let first = extents.partition_point(|e| e.end() <= read.extent.start);
            let overlapping = extents[first..].iter().zip(&mut is_planned[first..]);
            for (&extent, is_planned) in
                overlapping.take_while(|(e, _)| e.start < read.extent.end())
            {
                if !std::mem::replace(is_planned, true) {
                    let file = read.file;
                    self.merged.push(PlannedRead { file, extent });
                }
            }
        }
    }
}

/// The reads, cut to calls of at most `pages_max` pages.
fn calls(reads: &[PlannedRead], pages_max: u64) -> Vec<PlannedRead> {
    let cut = |read: &PlannedRead| {
        let PlannedRead { file, extent } = *read;
        let pieces = extent.pieces(pages_max);
        pieces.map(move |extent| PlannedRead { file, extent })
    };
    reads.iter().flat_map(cut).collect()
}
