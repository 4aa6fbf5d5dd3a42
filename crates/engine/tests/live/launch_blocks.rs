//! Which blocks of a device are a journal's or swap's.

use crate::launch_rig::{LaunchRig, recorded};
use prepage_core::launch::blocks::{BlockKind, BlockMap};
use prepage_core::launch::recording::{BlockRequest, Issuer};
use prepage_kernel::block::Placement;
use prepage_kernel::fiemap;
use prepage_kernel::page::page_size;
use prepage_kernel::swaps::{self, SwapKind};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Disk, Machine, SwapFile, run, write_clean};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The map of a launch that reads a file.
fn map_of_reading(path: &Path) -> BlockMap {
    let rig = LaunchRig::new();
    let mut child = Child::spawn(1);
    rig.begin(1, child.pid(), recorded());
    child.tell_file("readfile", path, 0, 4);
    rig.launches.settled(1);
    rig.result().block_map.expect("made")
}

/// What a page is that lies so many bytes from the start of this device.
fn kind(map: &BlockMap, dev: u64, start_bytes: u64) -> Option<BlockKind> {
    let placement = Placement::of_number(dev).expect("a block device");
    let request = BlockRequest {
        device: placement.disk,
        start_bytes: placement.start_bytes + start_bytes,
        len_bytes: page_size(),
        is_write: false,
        issuer: Issuer::Other,
        completed_us: None,
    };
    let pieces = map.look_up(&request);
    assert_eq!(pieces.len(), 1, "{pieces:?}");
    pieces[0].content.map(|content| content.kind)
}

#[test]
fn requests_for_the_journal_of_ext4_are_told() {
    let _machine = Machine::lock();
    let disk = Disk::new(&["mkfs.ext4", "-q", "-b", "4096"], 300 << 20);
    let file = disk.path("file");
    write_clean(&file, 4);
    let device = disk.device.to_str().expect("text");
    let shown = run("debugfs", &["-R", "blocks <8>", device]);
    let blocks: Vec<u64> = shown
        .split_ascii_whitespace()
        .map(|block| block.parse().expect("a number"))
        .collect();
    let map = map_of_reading(&file);
    let dev = std::fs::metadata(&disk.device).expect("stat").rdev();
    for block in [
        blocks[0],
        blocks[blocks.len() / 2],
        blocks[blocks.len() - 1],
    ] {
        assert_eq!(kind(&map, dev, block * 4_096), Some(BlockKind::Journal));
    }
}

#[test]
fn where_nobody_can_tell_where_the_journal_is_it_is_not_known() {
    let _machine = Machine::lock();
    // Of ext3, indirect blocks say where it is.
    for make in [["mkfs.xfs", "-q"], ["mkfs.ext3", "-q"]] {
        let disk = Disk::new(&make, 512 << 20);
        let file = disk.path("file");
        write_clean(&file, 4);
        let map = map_of_reading(&file);
        assert!(!map.knows(BlockKind::Journal), "{make:?}");
    }
}

#[test]
fn requests_for_a_swap_file_are_told() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let _swap = SwapFile::new(16 << 20);
    let areas = swaps::areas().expect("read /proc/swaps");
    let file = areas.iter().rfind(|area| area.kind == SwapKind::File);
    let file = File::open(&file.expect("a swap file").path).expect("open");
    let extents = fiemap::extents(file.as_fd(), 64).expect("mapped").list;
    let map = map_of_reading(&directory.file("read", 4));
    let dev = file.metadata().expect("stat").dev();
    assert!(!extents.is_empty());
    for extent in extents {
        assert_eq!(
            kind(&map, dev, extent.physical_bytes),
            Some(BlockKind::Swap)
        );
    }
}
