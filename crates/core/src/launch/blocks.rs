//! The LBA-to-inode reverse mapper (FAST section 4.3): what a block of a device holds.
//!
//! Most file systems tell where a file's blocks are (FIEMAP), none the reverse. So a map is built for one application,
//! from the extents of the files and directories that its launch used, and from where journals and swap lie. The
//! paper's node is a block; here it is a run of blocks that hold one thing.

use super::page_map::PageMap;
use super::recording::{BlockRequest, FILES_MAX};
use crate::extent::Extent;
use crate::identity::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// Most runs of blocks in a map.
pub const RUNS_MAX: usize = 1 << 20;

/// Major and minor number of a device.
pub type Device = (u32, u32);

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// A directory's entries.
    Directory,
    /// The file system's journal.
    Journal,
    /// A swap device or file.
    Swap,
    /// A regular file's or symbolic link's data.
    File,
}

/// A file's extent, as FIEMAP gives it; only those that have a place of their own on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file, in bytes.
    pub logical_bytes: u64,
    /// Offset on the file system's device, in bytes.
    pub physical_bytes: u64,
    /// Length, in bytes.
    pub len_bytes: u64,
}

/// Where a file system lies, in the terms of block requests: on a partition they name the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The device.
    pub device: Device,
    /// Its first byte there.
    pub start_bytes: u64,
}

/// What one run of bytes on a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Length, in bytes.
    pub len_bytes: u64,
    /// What it holds; `None` where the map does not know.
    pub content: Option<Content>,
}

/// What a run of blocks holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Kind.
    pub kind: BlockKind,
    /// Index in [`BlockMap::files`] of the file or directory that it belongs to.
    pub file: Option<u32>,
    /// Offset in that file, in bytes.
    pub offset_bytes: u64,
}

impl Content {
    const fn new(kind: BlockKind, file: Option<u32>, offset_bytes: u64) -> Self {
        Self {
            kind,
            file,
            offset_bytes,
        }
    }

    /// What is `delta_bytes` further on.
    const fn after(self, delta_bytes: u64) -> Self {
        let offset_bytes = self.offset_bytes.saturating_add(delta_bytes);
        Self {
            offset_bytes,
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end_bytes: u64,
    content: Content,
}

/// What the blocks of devices hold.
#[derive(Clone, Debug, Default)]
pub struct BlockMap {
    /// By device and first byte; disjoint.
    runs: BTreeMap<(Device, u64), Run>,
    files: Vec<FileId>,
    /// Kinds of blocks that may lie where nobody could tell.
    unknown: BTreeSet<BlockKind>,
}

impl BlockMap {
    /// The files and directories that it knows.
    pub fn files(&self) -> &[FileId] {
        &self.files
    }

    /// Notes that blocks of this kind may lie where the map does not have them.
    pub fn lacks(&mut self, kind: BlockKind) {
        self.unknown.insert(kind);
    }

    /// Whether all blocks of this kind are in the map.
    pub fn knows(&self, kind: BlockKind) -> bool {
        !self.unknown.contains(&kind)
    }

    /// Adds a run of blocks that belong to no known file: a journal, a swap device. What the map knows already stays: of
    /// two files that share blocks, the first has them. Nothing is added beyond [`RUNS_MAX`].
    pub fn insert(&mut self, volume: Volume, start_bytes: u64, len_bytes: u64, kind: BlockKind) {
        self.insert_content(volume, start_bytes, len_bytes, Content::new(kind, None, 0));
    }

    /// Adds a file or directory with its extents; none beyond [`FILES_MAX`].
    pub fn insert_file(
        &mut self,
        volume: Volume,
        file: FileId,
        kind: BlockKind,
        extents: &[FileExtent],
    ) {
        if self.files.len() >= FILES_MAX {
            return;
        }
        let index = self.files.len() as u32;
        self.files.push(file);
        for extent in extents {
            let content = Content::new(kind, Some(index), extent.logical_bytes);
            self.insert_content(volume, extent.physical_bytes, extent.len_bytes, content);
        }
    }

    fn insert_content(
        &mut self,
        volume: Volume,
        start_bytes: u64,
        len_bytes: u64,
        content: Content,
    ) {
        let device = volume.device;
        let start = volume.start_bytes.saturating_add(start_bytes);
        let end = start.saturating_add(len_bytes);
        let mut at = start;
        while at < end && self.runs.len() < RUNS_MAX {
            if let Some((_, known)) = self.find(device, at) {
                at = known.end_bytes;
                continue;
            }
            let next = self.runs.range((device, at)..(device, end)).next();
            let end_bytes = next.map_or(end, |(&(_, start), _)| start);
            let content = content.after(at - start);
            self.runs.insert((device, at), Run { end_bytes, content });
            at = end_bytes;
        }
    }

    /// The run that holds a byte, with its first byte.
    fn find(&self, device: Device, at: u64) -> Option<(u64, Run)> {
        let before = self.runs.range((device, 0)..=(device, at)).next_back();
        let (&(_, start), &run) = before?;
        (at < run.end_bytes).then_some((start, run))
    }

    /// What a request is for, from its first to its last byte.
    pub fn look_up(&self, request: &BlockRequest) -> Vec<Piece> {
        let device = request.device;
        let end = request.start_bytes.saturating_add(request.len_bytes);
        let (mut pieces, mut at) = (Vec::new(), request.start_bytes);
        while at < end {
            let (to, content) = match self.find(device, at) {
                Some((start, run)) => (run.end_bytes, Some(run.content.after(at - start))),
                None => {
                    let next = self.runs.range((device, at)..(device, end)).next();
                    (next.map_or(end, |(&(_, start), _)| start), None)
                }
            };
            let len_bytes = to.min(end) - at;
            pieces.push(Piece { len_bytes, content });
            at += len_bytes;
        }
        pieces
    }

    /// Where the pages of its files are on their devices.
    pub(super) fn file_pages(&self, page_bytes: u64) -> FilePages {
        let (mut extents, mut firsts) = (PageMap::default(), Vec::new());
        for (&(_, start), run) in &self.runs {
            let (Some(file), BlockKind::File) = (run.content.file, run.content.kind) else {
                continue;
            };
            // A page is where its first byte is: with blocks below the page size, the rest may be elsewhere.
            let offset = run.content.offset_bytes;
            let end = run.content.after(run.end_bytes - start).offset_bytes;
            let first = offset.div_ceil(page_bytes);
            let extent = Extent::between(first, end.div_ceil(page_bytes));
            extents.add(file, extent, firsts.len());
            firsts.push((first, start + (first * page_bytes - offset)));
        }
        FilePages {
            extents,
            firsts,
            page_bytes,
        }
    }
}

/// Addresses of files' pages.
pub(super) struct FilePages {
    extents: PageMap,
    /// First page of each run of blocks, and its address in bytes.
    firsts: Vec<(u64, u64)>,
    page_bytes: u64,
}

impl FilePages {
    /// The page up to which the device continues a page, and where that page is, in bytes.
    pub(super) fn find(&self, file: u32, page: u64) -> Option<(u64, u64)> {
        let (extent, place) = self.extents.find(file, page)?;
        let &(first, address_bytes) = self.firsts.get(place)?;
        Some((
            extent.end(),
            address_bytes + (page - first) * self.page_bytes,
        ))
    }
}

/// The units of `unit_bytes` that a run of bytes touches.
pub(super) fn covering(offset_bytes: u64, len_bytes: u64, unit_bytes: u64) -> Extent {
    let end_bytes = offset_bytes.saturating_add(len_bytes);
    Extent::between(offset_bytes / unit_bytes, end_bytes.div_ceil(unit_bytes))
}
