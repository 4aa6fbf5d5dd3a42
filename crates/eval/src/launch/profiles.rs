//! What prepage is made to know of a program for one launch: nothing, half, or what does not match (FAST section 5.2).
//! Pure.

use super::scenario::Scenario;
use prepage_core::extent::{Extent, ExtentSet, by_key};
use prepage_core::launch::manager::{LaunchState, OffReason, Phase};
use prepage_core::launch::sequence::{LaunchSequence, SequenceRead};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What prepage has learned of a program's launches.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Before the last recording of the profiling phase.
    pub profiling: LaunchState,
    /// In the end.
    pub state: LaunchState,
}

/// What it knows at such a launch; `None`: what it has learned. `other` is the sequence of another program.
pub fn made(
    scenario: Scenario,
    known: &Known,
    other: Option<&Arc<LaunchSequence>>,
    page_bytes: u64,
) -> Option<LaunchState> {
    let with = |sequence| LaunchState {
        sequence,
        ..known.state.clone()
    };
    let sequence = &known.state.sequence;
    match scenario {
        Scenario::Profile => Some(LaunchState::default()),
        Scenario::Generate => Some(known.profiling.clone()),
        Scenario::LeftAlone => Some(left_alone()),
        Scenario::OtherOffsets => Some(with(other_offsets(sequence, page_bytes).into())),
        Scenario::OtherVersions => Some(with(other_versions(sequence).into())),
        Scenario::OtherProgram => other.map(|other| with(Arc::clone(other))),
        _ => None,
    }
}

/// A program that is too small to gain, for this launch and the next.
fn left_alone() -> LaunchState {
    LaunchState {
        phase: Phase::Off(OffReason::TooSmall),
        retry_left: 2,
        retry_launches: 2,
        ..LaunchState::default()
    }
}

/// As many pages of the same files, in the same order, but pages that launches do not use: what the paper modified its
/// prefetcher to. Fewer where a file has no more of these.
fn other_offsets(sequence: &LaunchSequence, page_bytes: u64) -> LaunchSequence {
    let used = by_key(sequence.reads.iter().map(|read| (read.file, read.extent)));
    let mut unused: BTreeMap<u32, ExtentSet> = BTreeMap::new();
    for (&file, used) in &used {
        let size = sequence.files.get(file as usize).map_or(0, |f| f.file.size);
        let whole = ExtentSet::from(vec![Extent::new(0, size.div_ceil(page_bytes))]);
        unused.insert(file, whole.difference(used));
    }
    let mut reads = Vec::with_capacity(sequence.reads.len());
    for read in &sequence.reads {
        let Some(left) = unused.get_mut(&read.file) else {
            continue;
        };
        let taken = first_pages(left, read.extent.len);
        *left = left.difference(&taken);
        reads.extend(taken.extents().iter().map(|&extent| SequenceRead {
            extent,
            address_bytes: None,
            ..*read
        }));
    }
    LaunchSequence {
        reads,
        ..sequence.clone()
    }
}

/// The first so many pages of a set.
fn first_pages(set: &ExtentSet, mut count: u64) -> ExtentSet {
    let mut taken = Vec::new();
    for extent in set.extents() {
        let len = extent.len.min(count);
        if len == 0 {
            break;
        }
        taken.push(Extent::new(extent.start, len));
        count -= len;
    }
    ExtentSet::from(taken)
}

/// The same sequence of other versions of all files: what prepage knows at the first launch after an update of all. It
/// tells versions apart and fetches no page of these; what is left is the paths.
fn other_versions(sequence: &LaunchSequence) -> LaunchSequence {
    let mut sequence = sequence.clone();
    for file in &mut sequence.files {
        file.file.mtime_ns -= 1;
    }
    sequence
}

/// Of these numbers of pages, which is nearest to that of program `own`, without its own.
pub fn nearest(pages: &[u64], own: usize) -> Option<usize> {
    let others = (0..pages.len()).filter(|&other| other != own);
    others.min_by_key(|&other| pages[other].abs_diff(pages[own]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::identity::FileId;
    use prepage_core::launch::sequence::SequenceFile;

    const PAGE_BYTES: u64 = 4096;

    fn file(name: &str, pages: u64) -> SequenceFile {
        let file = FileId {
            path: name.into(),
            device: (0, 0),
            inode: 1,
            size: pages * PAGE_BYTES,
            mtime_ns: 7,
        };
        SequenceFile {
            file,
            recordings: 2,
        }
    }

    fn read(file: u32, start: u64, len: u64) -> SequenceRead {
        SequenceRead {
            file,
            extent: Extent::new(start, len),
            address_bytes: Some(start * PAGE_BYTES),
            is_certain: true,
        }
    }

    fn known() -> Known {
        let sequence = LaunchSequence {
            files: vec![file("/large", 100), file("/small", 5)],
            reads: vec![read(0, 10, 4), read(1, 0, 4), read(0, 2, 6)],
            ..LaunchSequence::default()
        };
        Known {
            state: LaunchState {
                phase: Phase::Prefetch,
                sequence: sequence.into(),
                ..LaunchState::default()
            },
            ..Known::default()
        }
    }

    #[test]
    fn other_offsets_are_as_many_pages_that_nobody_uses() {
        let known = known();
        let made = made(Scenario::OtherOffsets, &known, None, PAGE_BYTES).expect("made");
        let used = by_key(
            known
                .state
                .sequence
                .reads
                .iter()
                .map(|r| (r.file, r.extent)),
        );
        let others = by_key(made.sequence.reads.iter().map(|r| (r.file, r.extent)));
        for (file, pages) in &others {
            assert!(pages.intersection(&used[file]).is_empty(), "{pages:?}");
        }
        // The small file has one page left.
        assert_eq!((others[&0].pages(), others[&1].pages()), (10, 1));
        assert!(
            made.sequence
                .reads
                .iter()
                .all(|r| r.address_bytes.is_none())
        );
    }

    #[test]
    fn other_versions_are_other_files_with_the_same_names() {
        let known = known();
        let made = made(Scenario::OtherVersions, &known, None, PAGE_BYTES).expect("made");
        assert_eq!(made.sequence.reads, known.state.sequence.reads);
        for (one, other) in made.sequence.files.iter().zip(&known.state.sequence.files) {
            assert_eq!(one.file.path, other.file.path);
            assert_ne!(one.file.mtime_ns, other.file.mtime_ns);
        }
    }

    #[test]
    fn other_scenarios_know_what_was_learned() {
        let known = known();
        for scenario in [Scenario::Fast, Scenario::Cold, Scenario::OtherProgram] {
            assert!(made(scenario, &known, None, PAGE_BYTES).is_none());
        }
        let other = Arc::default();
        let made = made(Scenario::OtherProgram, &known, Some(&other), PAGE_BYTES);
        assert_eq!(made.expect("made").sequence, other);
    }

    #[test]
    fn the_nearest_program_is_another_one() {
        assert_eq!(nearest(&[10, 100, 70, 10], 1), Some(2));
        assert_eq!(nearest(&[10, 100, 70, 10], 0), Some(3));
        assert_eq!(nearest(&[10], 0), None);
    }
}
