//! From the files of a launch to the blocks that they are on (FAST section 4.3: the LBA-to-inode map).

use crate::launch::ext4::Ext4Devices;
use crate::launch::place::Place;
use crate::observe::resolve::version_of;
use prepage_core::identity::FileId;
use prepage_core::launch::blocks::{BlockKind, BlockMap, FileExtent, Volume};
use prepage_core::launch::recording::Recording;
use prepage_kernel::block::{BlockDevice, Placement};
use prepage_kernel::open::fstat;
use prepage_kernel::page::page_size;
use prepage_kernel::swaps::{self, SwapKind};
use prepage_kernel::{fiemap, zram};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most extents of one file.
const EXTENTS_MAX: usize = 4_096;
/// Most directories looked up for one launch.
const DIRECTORIES_MAX: usize = 1_024;

/// The map of a recording's files, of the directories above them, of their file systems' journals and of swap. What has no
/// place on a device (overlay and btrfs have device numbers that name none) is left out; where that may be a journal or
/// swap, the map says that it lacks them.
pub fn block_map(recording: &Recording, place: &Place, devices: &mut Ext4Devices) -> BlockMap {
    let mut mapper = Mapper {
        devices,
        map: BlockMap::default(),
        volumes: HashMap::new(),
    };
    for file in &recording.files {
        if let Ok((fd, stat)) = place.open_file(&file.path) {
            mapper.add(fd.as_fd(), stat.dev, file.clone(), BlockKind::File);
        }
    }
    for path in directories(recording) {
        let Ok(fd) = place.open_directory(path) else {
            continue;
        };
        if let Ok(stat) = fstat(fd.as_fd()) {
            let device = (rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev));
            let directory = version_of(path.into(), device, &stat);
            mapper.add(fd.as_fd(), stat.dev, directory, BlockKind::Directory);
        }
    }
    if mapper.add_swap().is_none() {
        mapper.map.lacks(BlockKind::Swap);
    }
    mapper.map
}

/// The directories above files and paths.
fn directories(recording: &Recording) -> BTreeSet<&str> {
    let files = recording.files.iter().map(|file| &*file.path);
    let found = recording.calls.iter().filter(|call| call.is_found);
    let mut directories = BTreeSet::new();
    for path in files.chain(found.map(|call| &*call.path)) {
        for directory in Path::new(path).ancestors().skip(1) {
            let Some(directory) = directory.to_str() else {
                continue;
            };
            // Where one is known, those above it are.
            if directories.len() == DIRECTORIES_MAX || !directories.insert(directory) {
                break;
            }
        }
    }
    directories
}

struct Mapper<'a> {
    devices: &'a mut Ext4Devices,
    map: BlockMap,
    /// By device number of stat.
    volumes: HashMap<u64, Option<Volume>>,
}

impl Mapper<'_> {
    fn add(&mut self, fd: BorrowedFd<'_>, dev: u64, file: FileId, kind: BlockKind) {
        let map = &mut self.map;
        let volume = self.volumes.entry(dev).or_insert_with(|| {
            let volume = volume(dev);
            let layout = self.devices.of(dev).filter(|_| is_asked_itself(dev));
            let journal = layout.and_then(|(_, layout)| Some((layout, layout.journal.as_ref()?)));
            match volume.zip(journal) {
                Some((volume, (layout, runs))) => {
                    for (first, blocks) in runs {
                        let bytes = |blocks: &u64| blocks.saturating_mul(layout.block_bytes);
                        map.insert(volume, bytes(first), bytes(blocks), BlockKind::Journal);
                    }
                }
                None => map.lacks(BlockKind::Journal),
            }
            volume
        });
        let (Some(volume), Ok(extents)) = (*volume, fiemap::extents(fd, EXTENTS_MAX)) else {
            return;
        };
        let placed = extents.list.iter().filter(|e| e.flags.is_readable_at());
        let extents: Vec<FileExtent> = placed
            .map(|extent| FileExtent {
                logical_bytes: extent.logical_bytes,
                physical_bytes: extent.physical_bytes,
                len_bytes: extent.len_bytes,
            })
            .collect();
        map.insert_file(volume, file, kind, &extents);
    }

    /// Adds the swap areas. `None` where some of them may lie elsewhere, too.
    fn add_swap(&mut self) -> Option<()> {
        for area in swaps::areas().ok()? {
            // A file is on what holds it, a device is asked by its own number.
            let stat = std::fs::metadata(&area.path).ok()?;
            let dev = match area.kind {
                SwapKind::File => stat.dev(),
                SwapKind::Zram | SwapKind::Disk => stat.rdev(),
            };
            let volume = volume(dev).filter(|_| is_asked_itself(dev))?;
            match area.kind {
                // In memory, unless pages are written back from there.
                SwapKind::Zram => {
                    let name = area.path.file_name()?.to_str()?;
                    if zram::read(name).ok()?.backing_device.is_some() {
                        return None;
                    }
                }
                SwapKind::Disk => {
                    let len_bytes = area.size_kib.saturating_mul(1 << 10);
                    // Its first page, which says what it is, does not count.
                    let len_bytes = len_bytes.saturating_add(page_size());
                    self.map.insert(volume, 0, len_bytes, BlockKind::Swap);
                }
                SwapKind::File => {
                    let file = File::open(&area.path).ok()?;
                    let extents = fiemap::extents(file.as_fd(), EXTENTS_MAX).ok()?;
                    for extent in extents.list {
                        let (start, len) = (extent.physical_bytes, extent.len_bytes);
                        self.map.insert(volume, start, len, BlockKind::Swap);
                    }
                    if !extents.complete {
                        return None;
                    }
                }
            }
        }
        Some(())
    }
}

/// Whether block requests name the device with this number, or its disk; of a stacked one (dm, md) they name those below.
fn is_asked_itself(dev: u64) -> bool {
    BlockDevice::of_number(dev).is_ok_and(|device| !device.is_stacked())
}

fn volume(dev: u64) -> Option<Volume> {
    let placement = Placement::of_number(dev).ok()?;
    Some(Volume {
        device: placement.disk,
        start_bytes: placement.start_bytes,
    })
}
