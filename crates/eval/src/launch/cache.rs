//! What the page cache holds of a launch sequence, and taking it out.

use super::record::CacheState;
use crate::error::{Context, Result};
use crate::pages::{self, FileKey};
use prepage_core::extent::Extent;
use prepage_core::launch::sequence::{LaunchSequence, SequenceRead};
use prepage_kernel::{page, page_cache};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The pages of a launch sequence, file by file, in extents of pages.
#[derive(Clone, Debug, Default)]
pub struct SequencePages {
    files: BTreeMap<PathBuf, Vec<(u64, u64)>>,
}

/// Pages of a sequence, in files that nobody maps, that may still be cached before a cold launch.
pub const CACHED_TOLERANCE_PAGES: u64 = 64;
/// Drops of the cache before a sample is given up.
pub const ROUNDS_MAX: u64 = 4;

impl SequencePages {
    /// Those of a sequence.
    pub fn of(sequence: &LaunchSequence) -> Self {
        Self::of_reads(sequence, sequence.reads.iter())
    }

    /// Those of a sequence that launches are known to use. What is only mapped along where it is in memory, no launch
    /// brings in: of sequences that were learned warm that is much.
    pub fn certain(sequence: &LaunchSequence) -> Self {
        let certain = sequence.reads.iter().filter(|read| read.is_certain);
        Self::of_reads(sequence, certain)
    }

    fn of_reads<'a>(
        sequence: &LaunchSequence,
        reads: impl Iterator<Item = &'a SequenceRead>,
    ) -> Self {
        let mut files: BTreeMap<PathBuf, Vec<(u64, u64)>> = BTreeMap::new();
        for read in reads {
            if let Some(file) = sequence.files.get(read.file as usize) {
                let extents = files.entry(PathBuf::from(&*file.file.path)).or_default();
                extents.push((read.extent.start, read.extent.len));
            }
        }
        Self { files }
    }

    /// Paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// Those in files that no running process maps: the others are cached before a cold launch, too.
    pub fn unshared(&self) -> Result<Self> {
        let mapped = pages::files_mapped_by_others(&[])?;
        let is_shared = |path: &PathBuf| {
            let metadata = fs::metadata(path);
            metadata.is_ok_and(|m| mapped.contains(&FileKey::of_stat(m.dev(), m.ino())))
        };
        let files = self.files.iter().filter(|(path, _)| !is_shared(path));
        Ok(Self {
            files: files
                .map(|(path, extents)| (path.clone(), extents.clone()))
                .collect(),
        })
    }

    /// How many there are.
    pub fn pages(&self) -> u64 {
        self.files.values().flatten().map(|&(_, len)| len).sum()
    }

    /// How many of them lie in an extent of a file.
    pub fn pages_in(&self, path: &Path, extent: Extent) -> u64 {
        let extents = self.files.get(path).into_iter().flatten();
        let common = extents.map(|&(start, len)| {
            let end = extent.end().min(start + len);
            end.saturating_sub(extent.start.max(start))
        });
        common.sum()
    }

    /// Adds another program's: a file that both have counts twice.
    pub fn add_to(&self, sum: &mut CacheState, mapped: &HashSet<FileKey>) {
        let page_bytes = page::page_size();
        for (path, extents) in &self.files {
            // A file that is gone holds no pages.
            let Ok(file) = File::open(path) else { continue };
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            sum.files += 1;
            let key = FileKey::of_stat(metadata.dev(), metadata.ino());
            let cached: &mut u64 = if mapped.contains(&key) {
                &mut sum.shared_pages
            } else {
                &mut sum.cached_pages
            };
            for &(start, len) in extents {
                sum.pages += len;
                // Where the kernel cannot say, nothing is known to be cached.
                let (offset, len) = (start * page_bytes, len * page_bytes);
                *cached += page_cache::cached(file.as_fd(), offset, len).unwrap_or(0);
            }
        }
    }
}

/// What is cached of these sequences. Looking reads the files' inodes: the cache has to be dropped again afterwards.
pub fn look(sequences: &[&SequencePages]) -> Result<CacheState> {
    let mapped = pages::files_mapped_by_others(&[])?;
    let mut state = CacheState::default();
    for sequence in sequences {
        sequence.add_to(&mut state, &mapped);
    }
    Ok(state)
}

/// Takes everything out that can be: pages, names and inodes.
pub fn drop_all() -> Result<()> {
    // Dirty pages and inodes stay otherwise.
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop", "page cache")
}

/// Drops the cache until nothing of these sequences is left but what running processes map, in bounded rounds.
pub fn make_cold(sequences: &[&SequencePages]) -> Result<CacheState> {
    let mut rounds = 0;
    loop {
        drop_all()?;
        rounds += 1;
        let state = CacheState {
            rounds,
            ..look(sequences)?
        };
        if state.cached_pages <= CACHED_TOLERANCE_PAGES || rounds == ROUNDS_MAX {
            return Ok(state);
        }
    }
}

/// Why the state is not cold, if so.
pub fn why_not_cold(state: &CacheState) -> Option<String> {
    (state.cached_pages > CACHED_TOLERANCE_PAGES)
        .then(|| format!("not cold: {} pages cached", state.cached_pages))
}

/// Why the state is not warm, if so. A sequence holds whole fault-around windows, of which a launch reads no more than it
/// needs: a few hundredths are not cached after any number of launches.
pub fn why_not_warm(state: &CacheState) -> Option<String> {
    const PERCENT_MIN: u64 = 90;
    let cached = state.cached_pages + state.shared_pages;
    (cached * 100 < state.pages * PERCENT_MIN)
        .then(|| format!("not warm: {cached} of {} pages cached", state.pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_and_warm_are_judged_by_the_pages() {
        let state = |cached_pages, shared_pages| CacheState {
            pages: 10_000,
            cached_pages,
            shared_pages,
            ..CacheState::default()
        };
        // What others map stays and is no reason.
        assert_eq!(why_not_cold(&state(CACHED_TOLERANCE_PAGES, 5_000)), None);
        assert!(why_not_cold(&state(CACHED_TOLERANCE_PAGES + 1, 0)).is_some());
        assert_eq!(why_not_warm(&state(8_000, 1_000)), None);
        assert!(why_not_warm(&state(8_000, 999)).is_some());
    }
}
