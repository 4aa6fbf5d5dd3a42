//! The launch sequence: what the launches of an application have in common, in order (FAST section 4.2).

use super::blocks::BlockMap;
use super::metadata::{METADATA_MAX, MetadataRead};
use super::page_map::PageMap;
use super::paths::{PATHS_BYTES_MAX, PATHS_MAX, PathReplay, is_replayable};
use super::recording::{ACCESSES_MAX, FILES_MAX, PAGES_MAX, Source};
use crate::extent::{Extent, keep_first};
use crate::file::WINDOW_PAGES;
use crate::identity::FileId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Launches in which each window is left out once ([`LaunchSequence::for_turn`]).
pub const TURNS: u64 = 4;

/// A file of a launch sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceFile {
    /// The file, in the version that was learned.
    pub file: FileId,
    /// Recordings that its pages were learned from.
    pub recordings: u32,
}

/// Pages that launches read at one point of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceRead {
    /// Index in [`LaunchSequence::files`].
    pub file: u32,
    /// Pages of the file.
    pub extent: Extent,
    /// Where the first page is on the device, in bytes, if that is known; the others follow it there.
    pub address_bytes: Option<u64>,
    /// Whether launches are known to use them; otherwise they were in memory and mapped along with pages nearby, in
    /// every recording so far.
    pub is_certain: bool,
}

/// An application's launch sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSequence {
    /// Where its recordings came from: recordings of accesses are intersected, of insertions united.
    pub source: Source,
    /// The files.
    pub files: Vec<SequenceFile>,
    /// Their pages in the order of first access, none of them twice.
    pub reads: Vec<SequenceRead>,
    /// The paths to replay, in the order of first use.
    pub paths: Vec<PathReplay>,
    /// Whether `paths` comes from a recording that held every path call.
    pub is_path_profile: bool,
    /// Where the inodes and directories behind files and paths are, as they were last looked up.
    pub metadata: Vec<MetadataRead>,
}

/// What two ids must share to name the same content: path, inode, size and time of modification. Device numbers do not
/// survive a reboot.
pub(super) type Version<'a> = (&'a str, u64, u64, i64);

/// The version that an id names.
pub(super) fn version(file: &FileId) -> Version<'_> {
    (&file.path, file.inode, file.size, file.mtime_ns)
}

/// Forgets files that are now `gone`, or of another version than in `present`. Returns which files those were. A
/// sequence of which nothing changed is not copied, whoever else has it.
pub(super) fn forget_changed(
    sequence: &mut Arc<LaunchSequence>,
    present: &[FileId],
    gone: &[FileId],
) -> Vec<SequenceFile> {
    let versions: BTreeMap<&str, &FileId> = present.iter().map(|f| (&*f.path, f)).collect();
    let gone: BTreeSet<_> = gone.iter().map(version).collect();
    let is_changed = |f: &SequenceFile| {
        let now = versions.get(&*f.file.path);
        gone.contains(&version(&f.file)) || now.is_some_and(|now| !now.is_version_of(&f.file))
    };
    match sequence.files.iter().any(is_changed) {
        true => Arc::make_mut(sequence).remove_files(is_changed),
        false => Vec::new(),
    }
}

/// Index of each file's version.
pub(super) fn index_of<'a>(files: impl Iterator<Item = &'a FileId>) -> BTreeMap<Version<'a>, u32> {
    files.map(version).zip(0..).collect()
}

/// The pages of indexed files.
pub(super) fn pages_of<'a>(
    index: &BTreeMap<Version<'_>, u32>,
    pages: impl Iterator<Item = (&'a FileId, Extent)>,
) -> PageMap {
    let mut map = PageMap::default();
    for (file, extent) in pages {
        if let Some(&file) = index.get(&version(file)) {
            map.add(file, extent, 0);
        }
    }
    map
}

impl LaunchSequence {
    /// Whether it holds another version of this file.
    pub fn has_other_version(&self, file: &FileId) -> bool {
        let mut known = self.files.iter().map(|known| &known.file);
        known.any(|known| known.path == file.path && !file.is_version_of(known))
    }

    /// Pages in it.
    pub fn pages(&self) -> u64 {
        self.reads.iter().map(|r| r.extent.len).sum()
    }

    /// Whether pages are in it of which it is not known that launches use them.
    pub fn has_uncertain(&self) -> bool {
        self.reads.iter().any(|r| !r.is_certain)
    }

    /// The sequence without every [`TURNS`]-th window of the pages of which it is not known whether launches use them, in
    /// turns: an access to one that is not there shows.
    pub fn for_turn(&self, turn: u32) -> LaunchSequence {
        LaunchSequence {
            source: self.source,
            files: self.files.clone(),
            reads: self.reads_for_turn(turn),
            paths: self.paths.clone(),
            is_path_profile: self.is_path_profile,
            metadata: self.metadata.clone(),
        }
    }

    /// The number of pages of [`Self::for_turn`].
    pub(super) fn pages_for_turn(&self, turn: u32) -> u64 {
        let reads = self.reads_for_turn(turn);
        reads.iter().map(|r| r.extent.len).sum()
    }

    fn reads_for_turn(&self, turn: u32) -> Vec<SequenceRead> {
        let mut reads = Vec::with_capacity(self.reads.len());
        for read in &self.reads {
            if read.is_certain {
                reads.push(*read);
                continue;
            }
            let mut page = read.extent.start;
            while page < read.extent.end() {
                let window = page / WINDOW_PAGES;
                let end = read.extent.end().min((window + 1) * WINDOW_PAGES);
                if !(window + u64::from(turn)).is_multiple_of(TURNS) {
                    reads.push(SequenceRead {
                        extent: Extent::between(page, end),
                        address_bytes: read.address_bytes.filter(|_| page == read.extent.start),
                        ..*read
                    });
                }
                page = end;
            }
        }
        reads
    }

    /// Its reads with their files.
    pub(super) fn file_reads(&self) -> impl Iterator<Item = (&FileId, Extent)> {
        let file = |r: &SequenceRead| Some((&self.files.get(r.file as usize)?.file, r.extent));
        self.reads.iter().filter_map(file)
    }

    /// Whether a file was seen in enough recordings to be fetched. Recordings of insertions each show a part only: one
    /// is enough.
    pub fn is_confirmed(&self, file: u32, n_rawseq: u32) -> bool {
        let is_enough =
            |f: &SequenceFile| self.source == Source::Insertions || f.recordings >= n_rawseq;
        self.files.get(file as usize).is_some_and(is_enough)
    }

    /// What is fetched: the reads of confirmed files.
    pub fn confirmed(&self, n_rawseq: u32) -> impl Iterator<Item = &SequenceRead> {
        let is_confirmed = move |r: &&SequenceRead| self.is_confirmed(r.file, n_rawseq);
        self.reads.iter().filter(is_confirmed)
    }

    pub(super) fn index(&self) -> BTreeMap<Version<'_>, u32> {
        index_of(self.files.iter().map(|f| &f.file))
    }

    /// Keeps only the paths, of files too, for which `keep` holds.
    pub fn retain_paths(&mut self, keep: impl Fn(&str) -> bool) {
        self.remove_files(|f| !keep(&f.file.path));
        self.paths.retain(|p| keep(&p.path));
    }

    /// Removes files with their reads, and returns them.
    pub(super) fn remove_files(
        &mut self,
        mut is_removed: impl FnMut(&SequenceFile) -> bool,
    ) -> Vec<SequenceFile> {
        let mut moved = Vec::new();
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        for file in std::mem::take(&mut self.files) {
            let is_removed = is_removed(&file);
            moved.push((!is_removed).then_some(kept.len() as u32));
            match is_removed {
                true => removed.push(file),
                false => kept.push(file),
            }
        }
        self.files = kept;
        self.reads.retain_mut(|read| {
            let to = moved.get(read.file as usize).copied().flatten();
            read.file = to.unwrap_or(read.file);
            to.is_some()
        });
        removed
    }

    /// Cuts it to its bounds, from the end, and drops files of which nothing is read.
    pub(super) fn bound(&mut self) {
        self.reads.truncate(ACCESSES_MAX);
        keep_first(&mut self.reads, PAGES_MAX, |read| &mut read.extent);
        let used: BTreeSet<u32> = self.reads.iter().map(|r| r.file).collect();
        let (mut at, mut bytes_left) = (0, PATHS_BYTES_MAX);
        self.remove_files(|f| {
            let is_used = used.contains(&at) && f.file.path.len() <= bytes_left;
            bytes_left -= if is_used { f.file.path.len() } else { 0 };
            at += 1;
            !is_used || at as usize > FILES_MAX
        });
    }

    /// Notes where its pages are on the device; a read that the device holds in several places is split there (the
    /// last step of FAST's prefetcher generation, section 4.3).
    pub fn locate(&mut self, map: &BlockMap, page_bytes: u64) {
        let places = map.file_pages(page_bytes);
        let index = index_of(map.files().iter());
        let mut located = Vec::with_capacity(self.reads.len());
        for read in std::mem::take(&mut self.reads) {
            let file = self.files.get(read.file as usize);
            let file = file.and_then(|f| index.get(&version(&f.file)).copied());
            let mut page = read.extent.start;
            while page < read.extent.end() {
                let place = file.and_then(|file| places.find(file, page));
                let (end, address_bytes) = match place {
                    Some((end, address_bytes)) => (end, Some(address_bytes)),
                    None => (page + 1, None),
                };
                let extent = Extent::between(page, end.min(read.extent.end()));
                page = extent.end();
                let read = SequenceRead {
                    address_bytes,
                    extent,
                    ..read
                };
                push(&mut located, read, page_bytes);
            }
        }
        self.reads = located;
        self.bound();
    }

    /// Whether it can be used: what a sequence from another source is checked by.
    pub(super) fn is_valid(&self) -> bool {
        let files = self.files.len();
        let mut pages_left = PAGES_MAX;
        let is_extent = |e: Extent, len_max: u64| {
            (1..=len_max).contains(&e.len) && e.start.checked_add(e.len).is_some()
        };
        let mut is_within = |r: &SequenceRead| {
            let has_room = is_extent(r.extent, pages_left);
            pages_left = pages_left.saturating_sub(r.extent.len);
            has_room && (r.file as usize) < files
        };
        let file_bytes: usize = self.files.iter().map(|f| f.file.path.len()).sum();
        let path_bytes: usize = self.paths.iter().map(|p| p.path.len()).sum();
        files <= FILES_MAX
            && self.reads.len() <= ACCESSES_MAX
            && self.paths.len() <= PATHS_MAX
            && self.metadata.len() <= METADATA_MAX
            && self.metadata.iter().all(|m| is_extent(m.extent, PAGES_MAX))
            && file_bytes.max(path_bytes) <= PATHS_BYTES_MAX
            && self.files.iter().all(|f| is_replayable(&f.file.path))
            && self.paths.iter().all(|p| is_replayable(&p.path))
            && self.reads.iter().all(&mut is_within)
            && self.are_reads_disjoint()
    }

    /// By sorting: a launch waits for this.
    fn are_reads_disjoint(&self) -> bool {
        let mut pages: Vec<(u32, Extent)> = self.reads.iter().map(|r| (r.file, r.extent)).collect();
        pages.sort_unstable();
        let overlap =
            |pair: &[(u32, Extent)]| pair[0].0 == pair[1].0 && pair[1].1.start < pair[0].1.end();
        !pages.windows(2).any(overlap)
    }
}

/// Appends a read, joined with the last one where it continues it, in the file and, where addresses are known, on the device.
pub(super) fn push(reads: &mut Vec<SequenceRead>, read: SequenceRead, page_bytes: u64) {
    if let Some(last) = reads.last_mut() {
        let after = last.address_bytes.map(|a| a + last.extent.len * page_bytes);
        if last.file == read.file
            && last.extent.end() == read.extent.start
            && last.is_certain == read.is_certain
            && after == read.address_bytes
        {
            last.extent.len += read.extent.len;
            return;
        }
    }
    reads.push(read);
}
