//! The application launch sequence extractor (FAST section 4.2): what several recordings have in common, in order.
//!
//! The paper removes whatever does not appear in every one of N_rawseq recordings. Here the same is done file by file,
//! so that a file that changed can be learned anew by itself: each counts the recordings that it was learned from and is
//! *confirmed* by the N_rawseq-th. Pages are compared, not requests: how the kernel cuts requests changes from launch to
//! launch. Recordings of insertions lack what was in memory already; they are united.

use super::page_map::PageMap;
use super::paths::replays;
use super::recording::{Access, Recording, Source};
use super::sequence::{LaunchSequence, SequenceFile, SequenceRead, pages_of, push, version};
use crate::extent::Extent;
use std::collections::BTreeSet;

/// The common sequence of recordings of one source.
pub fn extract(recordings: &[Recording]) -> LaunchSequence {
    let mut sequence = LaunchSequence::default();
    let n_rawseq = recordings.len() as u32;
    for (at, recording) in recordings.iter().enumerate() {
        learn(&mut sequence, recording, n_rawseq, at == 0);
        learn_paths(&mut sequence, recording);
    }
    sequence
}

/// Adds a recording to what was learned before. Of files that are not confirmed only the common pages stay; files that
/// are not known are taken in where `takes_new` holds. A recording of another source than those before replaces them:
/// the kernel offers something else now.
pub fn learn(sequence: &mut LaunchSequence, recording: &Recording, n_rawseq: u32, takes_new: bool) {
    let is_other = sequence.source != recording.source;
    if is_other {
        sequence.source = recording.source;
        sequence.files.clear();
        sequence.reads.clear();
    }
    if recording.source == Source::Accesses {
        intersect(sequence, recording, n_rawseq);
    }
    if takes_new || is_other || recording.source == Source::Insertions {
        let known = sequence.files.len() as u32;
        take_files(sequence, recording);
        // Of a known file a recording of insertions shows more; one of accesses has been intersected with it.
        let adds = |file, _: &Access| recording.source == Source::Insertions || file >= known;
        splice(sequence, recording, adds);
    }
    sequence.bound();
}

/// Takes over the recording's path calls: a whole path profile always, what else was seen of them only where nothing is
/// known; and where the metadata behind all paths is now.
pub fn learn_paths(sequence: &mut LaunchSequence, recording: &Recording) {
    if recording.is_path_profile || sequence.paths.is_empty() {
        sequence.paths = replays(&recording.calls);
        sequence.is_path_profile = recording.is_path_profile;
    }
    sequence.metadata.clone_from(&recording.metadata);
}

/// Learns which of the pages that were mapped along with others launches use, from a launch that they were fetched late
/// for: those that it did not access are no part of the sequence, and what it used besides is. Only files that are
/// confirmed, in a recording of accesses.
pub fn refine(sequence: &mut LaunchSequence, recording: &Recording, n_rawseq: u32) {
    let is_confirmed = confirmed(sequence, n_rawseq);
    narrow(sequence, recording, |read| {
        !read.is_certain && is_confirmed[read.file as usize]
    });
    splice(sequence, recording, |file, access| {
        access.is_certain && is_confirmed[file as usize]
    });
    sequence.bound();
}

/// Puts the pages in the order in which this launch accessed them first, since the next one will wait for those that come
/// after pages that it needs later. What the launch did not access stays behind what it came after. Where the pages are on
/// the device has to be noted again ([`LaunchSequence::locate`]).
pub fn reorder(sequence: &mut LaunchSequence, recording: &Recording) {
    let index = sequence.index();
    let mut places = PageMap::default();
    for (place, (file, access)) in (1..).zip(recording.file_accesses()) {
        if let Some(&file) = index.get(&version(file)) {
            places.add(file, access.extent, place);
        }
    }
    let mut parts: Vec<(usize, SequenceRead)> = Vec::with_capacity(sequence.reads.len());
    let mut place = 0;
    for read in std::mem::take(&mut sequence.reads) {
        let mut page = read.extent.start;
        let mut take = |place: usize, end: u64| {
            let part = SequenceRead {
                extent: Extent::between(page, end),
                address_bytes: None,
                ..read
            };
            parts.extend((!part.extent.is_empty()).then_some((place, part)));
            page = end;
        };
        for (accessed, at) in places.pieces(read.file, read.extent) {
            take(place, accessed.start);
            take(at, accessed.end());
            place = at;
        }
        take(place, read.extent.end());
    }
    // Stable: what has the same place keeps its order.
    parts.sort_by_key(|(place, _)| *place);
    for (_, part) in parts {
        push(&mut sequence.reads, part, 0);
    }
    sequence.bound();
}

/// Keeps of the files that are not confirmed the pages that the recording holds too.
fn intersect(sequence: &mut LaunchSequence, recording: &Recording, n_rawseq: u32) {
    let is_confirmed = confirmed(sequence, n_rawseq);
    narrow(sequence, recording, |read| {
        !is_confirmed[read.file as usize]
    });
    for file in &mut sequence.files {
        file.recordings += u32::from(file.recordings < n_rawseq);
    }
}

/// Of each file, whether it is confirmed: the reads are changed meanwhile.
fn confirmed(sequence: &LaunchSequence, n_rawseq: u32) -> Vec<bool> {
    let files = 0..sequence.files.len() as u32;
    files
        .map(|file| sequence.is_confirmed(file, n_rawseq))
        .collect()
}

/// Keeps of the reads for which `is_open` holds what the recording holds too; what it is certain of is certain.
fn narrow(
    sequence: &mut LaunchSequence,
    recording: &Recording,
    is_open: impl Fn(&SequenceRead) -> bool,
) {
    let index = sequence.index();
    let certain = recording.file_accesses().filter(|(_, a)| a.is_certain);
    let certain = pages_of(&index, certain.map(|(file, a)| (file, a.extent)));
    let accesses = recording.file_accesses();
    let seen = pages_of(&index, accesses.map(|(file, a)| (file, a.extent)));
    let mut common = Vec::with_capacity(sequence.reads.len());
    for read in std::mem::take(&mut sequence.reads) {
        if !is_open(&read) {
            common.push(read);
            continue;
        }
        let mut keep = |extent: Extent, is_certain: bool| {
            common.push(SequenceRead {
                extent,
                is_certain,
                address_bytes: None,
                ..read
            });
        };
        for extent in seen.common(read.file, read.extent) {
            if read.is_certain {
                keep(extent, true);
                continue;
            }
            let mut page = extent.start;
            for used in certain.common(read.file, extent) {
                keep(Extent::between(page, used.start), false);
                keep(used, true);
                page = used.end();
            }
            keep(Extent::between(page, extent.end()), false);
        }
    }
    common.retain(|read| !read.extent.is_empty());
    sequence.reads = common;
}

/// Takes in those of the recording's files that are not known.
fn take_files(sequence: &mut LaunchSequence, recording: &Recording) {
    let mut known: BTreeSet<_> = sequence.index().into_keys().collect();
    let files = recording.files.iter();
    let new = files.filter(|&file| known.insert(version(file))).cloned();
    let new: Vec<_> = new
        .map(|file| SequenceFile {
            file,
            recordings: 1,
        })
        .collect();
    sequence.files.extend(new);
}

/// Adds those of the recording's pages for which `adds` holds. Each comes after the last page before it, in the
/// recording, that the sequence holds.
fn splice(
    sequence: &mut LaunchSequence,
    recording: &Recording,
    adds: impl Fn(u32, &Access) -> bool,
) {
    let index = sequence.index();
    let mut places = PageMap::default();
    let mut reads: Vec<(usize, SequenceRead)> = Vec::with_capacity(sequence.reads.len());
    for (place, read) in (1..).zip(&sequence.reads) {
        places.add(read.file, read.extent, place);
        reads.push((place, *read));
    }
    let mut place = 0;
    for (file, access) in recording.file_accesses() {
        let Some(&file) = index.get(&version(file)) else {
            continue;
        };
        if adds(file, access) {
            let new = places.add(file, access.extent, place);
            let read = |extent| SequenceRead {
                file,
                extent,
                address_bytes: None,
                is_certain: access.is_certain,
            };
            reads.extend(new.into_iter().map(|extent| (place, read(extent))));
        }
        let last = places.find(file, access.extent.end().saturating_sub(1));
        place = last.map_or(place, |(_, place)| place);
    }
    // Stable: what is new stays behind what it was placed after, in the recording's order.
    reads.sort_by_key(|(place, _)| *place);
    sequence.reads = reads.into_iter().map(|(_, read)| read).collect();
}
