//! Blocks of file systems' devices that hold what a launch's look-ups need: inodes and directories (FAST section 4.3 and Table 1
//! read them by replaying the paths). Where a file system keeps them in the page cache of its device, as ext4 does, they can be
//! read as any data, many at once, while a look-up waits for one after the other.

use super::blocks::Device;
use crate::extent::{Extent, by_key, keep_first};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most extents of metadata in a recording or a launch sequence.
pub const METADATA_MAX: usize = 4_096;

/// Blocks of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetadataRead {
    /// The device that the file system is on, as stat names it: a partition, and not its disk.
    pub device: Device,
    /// Pages of that device.
    pub extent: Extent,
}

/// What is wanted, each page once, where it is wanted first; neighbours are one. What lies between may be an inode table's
/// unused part, which ext4 initializes past the page cache, and never reads ahead itself. At most [`METADATA_MAX`] extents,
/// the first ones.
pub fn in_order(wanted: &[MetadataRead]) -> Vec<MetadataRead> {
    let pages = by_key(wanted.iter().map(|read| (read.device, read.extent)));
    let mut taken = BTreeSet::new();
    let mut reads = Vec::new();
    for MetadataRead { device, extent } in wanted {
        let extents = pages.get(device).map_or(&[][..], |pages| pages.extents());
        let at = extents.partition_point(|known| known.end() <= extent.start);
        // A set joins neighbours, so that each is in one extent.
        let Some(&extent) = extents.get(at).filter(|_| !extent.is_empty()) else {
            continue;
        };
        if taken.insert((*device, extent.start)) && reads.len() < METADATA_MAX {
            reads.push(MetadataRead {
                device: *device,
                extent,
            });
        }
    }
    reads
}

/// The first reads, `pages_max` pages of them, in calls of at most `call_pages` pages.
pub fn calls(reads: &[MetadataRead], pages_max: u64, call_pages: u64) -> Vec<MetadataRead> {
    let mut first = reads.to_vec();
    keep_first(&mut first, pages_max, |read| &mut read.extent);
    let cut = |MetadataRead { device, extent }| {
        let pieces = extent.pieces(call_pages);
        pieces.map(move |extent| MetadataRead { device, extent })
    };
    first.into_iter().flat_map(cut).collect()
}
