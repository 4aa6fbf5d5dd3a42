//! The LBA-to-inode reverse mapper (FAST section 4.3): what a block of a device holds.
//!
//! Most file systems tell where a file's blocks are (FIEMAP), none the reverse. So a map is built for one application,
//! from the extents of the files and directories that its launch used, and from the layout of the file system. The
//! paper's node is a block; here it is a run of blocks that hold one thing.

use super::page_map::PageMap;
use super::recording::{BlockRequest, FILES_MAX, Recording};
use super::sequence::{index_of, pages_of};
use crate::extent::Extent;
use crate::identity::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// Most runs of blocks in a map.
pub const RUNS_MAX: usize = 1 << 20;

/// Major and minor number of a device.
pub type Device = (u32, u32);

/// What a block holds: the paper's block types, and what a request may be for besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// A superblock.
    Superblock,
    /// Group descriptors.
    GroupDescriptors,
    /// Which blocks are free.
    BlockBitmap,
    /// Which inodes are free.
    InodeBitmap,
    /// Inodes.
    InodeTable,
    /// A directory's entries.
    Directory,
    /// Where a file's blocks are: an extent or indirect block.
    Mapping,
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

/// Where ext2, ext3 and ext4 keep their metadata (Linux `fs/ext4/ext4.h`: `ext4_super_block`, `ext4_group_desc`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ext4Layout {
    /// Block size, in bytes.
    pub block_bytes: u64,
    /// `s_first_data_block`: 1 with blocks of 1 KiB, else 0.
    pub first_block: u64,
    /// `s_blocks_per_group`.
    pub group_blocks: u64,
    /// `s_inodes_per_group`.
    pub group_inodes: u64,
    /// `s_inode_size`, in bytes.
    pub inode_bytes: u64,
    /// Blocks that follow each superblock: group descriptors and those reserved for more of them.
    pub descriptor_blocks: u64,
    /// Whether only groups 0, 1 and the powers of 3, 5 and 7 have a superblock (the feature `sparse_super`).
    pub is_sparse: bool,
    /// The journal inside of the file system: first blocks and numbers of blocks; empty where it has none, `None` where
    /// nobody can tell.
    pub journal: Option<Vec<(u64, u64)>>,
    /// The group descriptors. They say where bitmaps and inode tables are with the feature `flex_bg` too, which puts
    /// those of several groups into one.
    pub groups: Vec<Ext4Group>,
}

/// A group descriptor: numbers of blocks on the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ext4Group {
    /// The block bitmap.
    pub block_bitmap: u64,
    /// The inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of the inode table.
    pub inode_table: u64,
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
    /// Offset in that file, or in the inode tables of the whole file system, in bytes.
    pub offset_bytes: u64,
    /// Size of an inode, in bytes, in an inode table; else 0.
    pub inode_bytes: u64,
}

impl Content {
    const fn new(kind: BlockKind, file: Option<u32>, offset_bytes: u64) -> Self {
        Self {
            kind,
            file,
            offset_bytes,
            inode_bytes: 0,
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

    /// Adds a file or directory with its extents, in the order of their offsets; none beyond [`FILES_MAX`]. Where the
    /// file system maps it by indirect blocks (ext2, ext3), `indirect_block_bytes` is their size: they lie where one to
    /// three blocks are left out between extents.
    pub fn insert_file(
        &mut self,
        volume: Volume,
        file: FileId,
        kind: BlockKind,
        extents: &[FileExtent],
        indirect_block_bytes: Option<u64>,
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
        let Some(block_bytes) = indirect_block_bytes else {
            return;
        };
        for pair in extents.windows(2) {
            let [before, after] = pair else { continue };
            let end_bytes = before.physical_bytes.saturating_add(before.len_bytes);
            let left_out_bytes = after.physical_bytes.saturating_sub(end_bytes);
            let is_contiguous =
                before.logical_bytes.saturating_add(before.len_bytes) == after.logical_bytes;
            if is_contiguous && left_out_bytes <= block_bytes.saturating_mul(INDIRECT_BLOCKS_MAX) {
                let content = Content::new(BlockKind::Mapping, Some(index), after.logical_bytes);
                self.insert_content(volume, end_bytes, left_out_bytes, content);
            }
        }
    }

    /// Adds the metadata of an ext2, ext3 or ext4 file system, and its journal. A layout with sizes of zero adds nothing.
    pub fn insert_ext4(&mut self, volume: Volume, layout: &Ext4Layout) {
        let block = layout.block_bytes;
        let mut add = |first: u64, blocks: u64, content| {
            let start_bytes = first.saturating_mul(block);
            self.insert_content(volume, start_bytes, blocks.saturating_mul(block), content);
        };
        let of = |kind| Content::new(kind, None, 0);
        let table_bytes = layout.group_inodes.saturating_mul(layout.inode_bytes);
        let table_blocks = table_bytes.checked_div(block).unwrap_or(0);
        for (number, group) in (0u64..).zip(&layout.groups) {
            let first = layout
                .first_block
                .saturating_add(number.saturating_mul(layout.group_blocks));
            if !layout.is_sparse || has_sparse_superblock(number) {
                add(first, 1, of(BlockKind::Superblock));
                let after = first.saturating_add(1);
                add(
                    after,
                    layout.descriptor_blocks,
                    of(BlockKind::GroupDescriptors),
                );
            }
            add(group.block_bitmap, 1, of(BlockKind::BlockBitmap));
            add(group.inode_bitmap, 1, of(BlockKind::InodeBitmap));
            let inodes = Content {
                offset_bytes: number.saturating_mul(table_bytes),
                inode_bytes: layout.inode_bytes,
                ..of(BlockKind::InodeTable)
            };
            add(group.inode_table, table_blocks, inodes);
        }
        for &(first, blocks) in layout.journal.iter().flatten() {
            add(first, blocks, of(BlockKind::Journal));
        }
        if layout.journal.is_none() {
            self.lacks(BlockKind::Journal);
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

/// Most blocks of indirection between two of a file's blocks: single, double and triple.
const INDIRECT_BLOCKS_MAX: u64 = 3;

/// Whether a group has a superblock under the feature `sparse_super` (Linux `fs/ext4/balloc.c`, `ext4_bg_has_super`).
fn has_sparse_superblock(group: u64) -> bool {
    let is_power_of = |base: u64| {
        let mut rest = group;
        while rest.is_multiple_of(base) {
            rest /= base;
        }
        rest == 1
    };
    group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
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

/// How far the page cache's view of a launch explains its block requests. Bytes read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Pages that the launch accessed, inodes of its files, directories on their paths.
    pub accounted_bytes: u64,
    /// Pages of its files that were read around these.
    pub read_around_bytes: u64,
    /// The rest, by what it is; `None`: not in the map.
    pub remains_bytes: BTreeMap<Option<BlockKind>, u64>,
}

/// Checks a recording's accesses against its block requests.
pub fn account(recording: &Recording, map: &BlockMap, page_bytes: u64) -> Account {
    let accesses = recording.file_accesses().map(|(file, a)| (file, a.extent));
    let accessed = pages_of(&index_of(map.files.iter()), accesses);
    let inodes: BTreeSet<u64> = map.files.iter().map(|f| f.inode).collect();
    let mut account = Account::default();
    for request in recording.requests.iter().filter(|r| !r.is_write) {
        for piece in map.look_up(request) {
            account.add(piece, &accessed, &inodes, page_bytes);
        }
    }
    account
}

impl Account {
    fn add(&mut self, piece: Piece, accessed: &PageMap, inodes: &BTreeSet<u64>, page_bytes: u64) {
        let Piece { len_bytes, content } = piece;
        let Some(Content {
            kind,
            file,
            offset_bytes,
            inode_bytes,
        }) = content
        else {
            return self.remain(None, len_bytes);
        };
        match (kind, file) {
            (BlockKind::File, Some(file)) => {
                let mut wanted = 0;
                for known in accessed.common(file, covering(offset_bytes, len_bytes, page_bytes)) {
                    let start = (known.start * page_bytes).max(offset_bytes);
                    wanted += (known.end() * page_bytes).min(offset_bytes + len_bytes) - start;
                }
                self.accounted_bytes += wanted;
                self.read_around_bytes += len_bytes - wanted;
            }
            (BlockKind::InodeTable, _) if inode_bytes > 0 => {
                let held = covering(offset_bytes, len_bytes, inode_bytes);
                // Inodes are numbered from 1.
                match inodes.range(held.start + 1..=held.end()).next() {
                    Some(_) => self.accounted_bytes += len_bytes,
                    None => self.remain(Some(kind), len_bytes),
                }
            }
            // It is in the map because the launch used it.
            (BlockKind::Directory, Some(_)) => self.accounted_bytes += len_bytes,
            _ => self.remain(Some(kind), len_bytes),
        }
    }

    fn remain(&mut self, kind: Option<BlockKind>, len_bytes: u64) {
        *self.remains_bytes.entry(kind).or_default() += len_bytes;
    }
}

/// The units of `unit_bytes` that a run of bytes touches.
pub(super) fn covering(offset_bytes: u64, len_bytes: u64, unit_bytes: u64) -> Extent {
    let end_bytes = offset_bytes.saturating_add(len_bytes);
    Extent::between(offset_bytes / unit_bytes, end_bytes.div_ceil(unit_bytes))
}
