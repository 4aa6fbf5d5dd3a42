//! Where the inodes and directories are that a launch's look-ups need, found after it, while all of them are in memory.
//!
//! ext2, ext3 and ext4 read them through the page cache of their device, by block, and find there what somebody else has read.
//! Other file systems keep them elsewhere (xfs by buffers of its own, btrfs and f2fs by inodes of theirs): nothing is found on
//! these, nor where the device may not be opened, as in many containers. Symbolic links' and extent trees' own blocks are left
//! out: hardly a program has any.

use crate::launch::ext4::{self, Ext4Devices};
use crate::launch::place::Place;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::launch::metadata::{MetadataRead, in_order};
use prepage_core::launch::paths::PATHS_MAX;
use prepage_kernel::cachestat::cachestat;
use prepage_kernel::fiemap;
use prepage_kernel::open::{FileKind, FileStat, fstat, lstat_in_root, stat_in_root};
use prepage_kernel::page::page_size;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// A directory of no more pages is read as a whole; of a larger one, whose entries are found by a hash, what is in memory.
const WHOLE_PAGES_MAX: u64 = 16;
/// Most pages of such a directory that are asked about: some 200,000 entries.
const ENTRIES_PAGES_MAX: usize = 4_096;
/// Most extents of one directory.
const EXTENTS_MAX: usize = 256;
/// Most directories looked at.
const DIRECTORIES_MAX: usize = 4_096;

/// The metadata behind these paths, in the order of first use. It is looked up with the rights of the place's owner.
pub fn metadata<'a>(
    paths: impl Iterator<Item = &'a str>,
    place: &Place,
    devices: &mut Ext4Devices,
) -> Vec<MetadataRead> {
    let mut finder = Finder {
        place,
        devices,
        wanted: Vec::new(),
    };
    // Of each directory, whether something can be found there.
    let mut directories: HashMap<&str, bool> = HashMap::new();
    let mut seen = BTreeSet::new();
    for path in paths.filter(|path| place.is_local(path)) {
        let above = Path::new(path).ancestors().skip(1);
        let above: Vec<&str> = above.filter_map(Path::to_str).collect();
        let mut is_found = false;
        // From the root directory down, as the kernel looks it up.
        for directory in above.into_iter().rev() {
            is_found = match directories.get(directory) {
                Some(&known) => known,
                None if directories.len() == DIRECTORIES_MAX => false,
                None => {
                    let found = finder.add_directory(directory);
                    directories.insert(directory, found);
                    found
                }
            };
        }
        if is_found && seen.len() < PATHS_MAX && seen.insert(path) {
            finder.add_inode(path);
        }
    }
    in_order(&finder.wanted)
}

struct Finder<'a> {
    place: &'a Place,
    devices: &'a mut Ext4Devices,
    wanted: Vec<MetadataRead>,
}

impl Finder<'_> {
    /// The inode at the end of a path, and that which it links to.
    fn add_inode(&mut self, path: &str) {
        let (root, path) = (self.place.root(), Path::new(path));
        let stats = {
            let Ok(_owner) = self.place.as_owner() else {
                return;
            };
            let itself = lstat_in_root(root, path).ok();
            let is_link = itself.is_some_and(|stat| stat.kind == FileKind::Symlink);
            let target = is_link.then(|| stat_in_root(root, path).ok());
            [itself, target.flatten()]
        };
        stats
            .into_iter()
            .flatten()
            .for_each(|stat| self.add_inode_of(&stat));
    }

    fn add_inode_of(&mut self, stat: &FileStat) {
        let place = self.devices.of(stat.dev).and_then(|(_, layout)| {
            let bytes = ext4::place_of_inode(layout, stat.inode)?;
            Some(Extent::new(bytes / page_size(), 1))
        });
        self.want(stat.dev, place);
    }

    /// A directory's inode and entries. Returns whether its file system is of the kind.
    fn add_directory(&mut self, path: &str) -> bool {
        let Ok(directory) = self.place.open_directory(path) else {
            // It may be searched and not listed: its inode at least.
            self.add_inode(path);
            return true;
        };
        let Ok(stat) = fstat(directory.as_fd()) else {
            return false;
        };
        let Some((device, _)) = self.devices.of(stat.dev) else {
            return false;
        };
        let extents = fiemap::extents(directory.as_fd(), EXTENTS_MAX).unwrap_or_default();
        let placed = extents.list.iter().filter(|e| e.flags.is_readable_at());
        let page = page_size();
        let entries: ExtentSet = placed
            .map(|extent| {
                let end = extent.physical_bytes.saturating_add(extent.len_bytes);
                Extent::between(extent.physical_bytes / page, end.div_ceil(page))
            })
            .collect();
        let entries = match entries.pages() <= WHOLE_PAGES_MAX {
            true => entries,
            false => in_memory(device, &entries),
        };
        self.add_inode(path);
        self.want(stat.dev, entries.extents().iter().copied());
        true
    }

    fn want(&mut self, dev: u64, extents: impl IntoIterator<Item = Extent>) {
        let device = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let reads = extents.into_iter();
        self.wanted
            .extend(reads.map(|extent| MetadataRead { device, extent }));
    }
}

/// Those of a device's pages that are in its page cache, first of all those that look-ups have read; all, where that cannot be
/// asked (before 6.5). mincore(2) does not tell: a page that was read block by block is not marked as up to date.
fn in_memory(device: &File, pages: &ExtentSet) -> ExtentSet {
    let is_there = |page: &u64| {
        let stat = cachestat(device.as_fd(), page * page_size(), page_size());
        stat.map_or(true, |stat| stat.cached > 0)
    };
    let extents = pages.extents().iter();
    let pages = extents.flat_map(|extent| extent.start..extent.end());
    ExtentSet::from_pages(pages.take(ENTRIES_PAGES_MAX).filter(is_there).collect())
}
