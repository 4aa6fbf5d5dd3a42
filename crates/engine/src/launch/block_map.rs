//! From the files of a launch to the blocks that they are on (FAST section 4.3: the LBA-to-inode map).

use crate::launch::ext4;
use crate::launch::place::Place;
use prepage_core::identity::FileId;
use prepage_core::launch::blocks::{BlockKind, BlockMap, FileExtent, Volume};
use prepage_core::launch::recording::Recording;
use prepage_kernel::block::Placement;
use prepage_kernel::fiemap;
use prepage_kernel::open::fstat;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Most extents of one file.
const EXTENTS_MAX: usize = 4_096;
/// Most directories looked up for one launch.
const DIRECTORIES_MAX: usize = 1_024;

/// The map of a recording's files and of the directories above them. What has no place on a device (overlay and btrfs
/// have device numbers that name none) is left out.
pub fn block_map(recording: &Recording, place: &Place) -> BlockMap {
    let mut mapper = Mapper {
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
            let directory = FileId {
                path: path.into(),
                device: (rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev)),
                inode: stat.inode,
                size: stat.size_bytes,
                mtime_ns: i64::try_from(stat.mtime_ns).unwrap_or(i64::MAX),
            };
            mapper.add(fd.as_fd(), stat.dev, directory, BlockKind::Directory);
        }
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

struct Mapper {
    map: BlockMap,
    /// By device number of stat.
    volumes: HashMap<u64, Option<Volume>>,
}

impl Mapper {
    fn add(&mut self, fd: BorrowedFd<'_>, dev: u64, file: FileId, kind: BlockKind) {
        let map = &mut self.map;
        let volume = self.volumes.entry(dev).or_insert_with(|| {
            let volume = volume(dev)?;
            // Where the device may not be read, the map knows files and directories only.
            if let Some(layout) = device(dev).and_then(|device| ext4::layout(&device)) {
                map.insert_ext4(volume, &layout);
            }
            Some(volume)
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
        map.insert_file(volume, file, kind, &extents, None);
    }
}

/// The block device with this number.
fn device(dev: u64) -> Option<File> {
    let number = (rustix::fs::major(dev), rustix::fs::minor(dev));
    File::open(format!("/dev/block/{}:{}", number.0, number.1)).ok()
}

fn volume(dev: u64) -> Option<Volume> {
    let placement = Placement::of_number(dev).ok()?;
    Some(Volume {
        device: placement.disk,
        start_bytes: placement.start_bytes,
    })
}
