//! Inodes and directories that a launch's look-ups need, found where the file system keeps them, and read by its device.

use crate::launch_rig::{LaunchRig, WAIT_MAX, launch, prefetched, recorded};
use prepage_core::extent::Extent;
use prepage_core::launch::metadata::MetadataRead;
use prepage_core::launch::paths::{PathRead, PathReplay};
use prepage_core::launch::plan::LaunchPlan;
use prepage_core::launch::sequence::LaunchSequence;
use prepage_engine::Launch;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Disk, Machine, write_clean};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in small directories, some by a link, names that do not exist, and files of a directory that is sought by a hash.
fn paths_on(disk: &Disk) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for number in 0..20 {
        let directory = disk.path(&format!("{number}/below"));
        std::fs::create_dir_all(&directory).expect("mkdir");
        std::fs::write(directory.join("file"), "x").expect("write");
        std::os::unix::fs::symlink("file", directory.join("link")).expect("symlink");
        paths.extend(["file", "link", "missing"].map(|name| directory.join(name)));
    }
    let large = disk.path("large");
    std::fs::create_dir(&large).expect("mkdir");
    for number in 0..6_000 {
        std::fs::write(large.join(format!("a-rather-long-name-{number}")), "").expect("write");
    }
    paths.extend((0..20).map(|number| large.join(format!("a-rather-long-name-{}", number * 97))));
    paths
}

/// The metadata that a launch is found to need which looks these paths up.
fn found(paths: &[PathBuf], child: &mut Child, read: &Path) -> Vec<MetadataRead> {
    let replay = |path: &PathBuf| PathReplay {
        path: path.to_str().expect("text").into(),
        read: PathRead::Stat,
    };
    let known = LaunchSequence {
        paths: paths.iter().map(replay).collect(),
        ..LaunchSequence::default()
    };
    let rig = LaunchRig::new();
    rig.launches.begin(Launch {
        sequence: Arc::new(known),
        ..launch(1, child.pid(), recorded())
    });
    child.tell_file("readfile", read, 0, 4);
    rig.launches.settled(1);
    rig.result().recording.expect("recorded").metadata
}

/// Its number: major, minor.
fn device_of(disk: &Disk) -> (u32, u32) {
    let number = std::fs::metadata(&disk.device).expect("stat").rdev();
    (rustix::fs::major(number), rustix::fs::minor(number))
}

/// Reads that the device has completed.
fn reads(disk: &Disk) -> u64 {
    let name = disk.device.file_name().expect("a name").to_str();
    let path = format!("/sys/class/block/{}/stat", name.expect("text"));
    let stat = std::fs::read_to_string(path).expect("read");
    let first = stat.split_ascii_whitespace().next().expect("a number");
    first.parse().expect("a number")
}

/// Reads that it takes to look the paths up.
fn reads_of(disk: &Disk, paths: &[PathBuf]) -> u64 {
    let before = reads(disk);
    for path in paths {
        let missing = path.ends_with("missing");
        assert_eq!(path.metadata().is_err(), missing, "{}", path.display());
    }
    reads(disk) - before
}

#[test]
fn look_ups_on_ext4_find_what_was_read_by_the_device() {
    let _machine = Machine::lock();
    for options in [&["-b", "4096"][..], &["-b", "1024", "-I", "128"]] {
        let make = [&["mkfs.ext4", "-q"][..], options].concat();
        let disk = Disk::new(&make, 300 << 20);
        let paths = paths_on(&disk);
        let data = disk.path("data");
        write_clean(&data, 64);
        disk.remount();
        // What a launch has looked up is in memory.
        assert!(reads_of(&disk, &paths) > 20);
        let mut child = Child::spawn(1);
        let metadata = found(&paths, &mut child, &data);

        disk.remount();
        let rig = LaunchRig::new();
        let plan = LaunchPlan {
            metadata: metadata.clone(),
            ..LaunchPlan::default()
        };
        rig.begin(2, child.pid(), prefetched(plan));
        assert!(rig.launches.wait_prefetched(2, WAIT_MAX));
        rig.launches.settled(2);
        let pages: u64 = metadata.iter().map(|read| read.extent.len).sum();
        let outcome = rig.result().prefetch.expect("prefetched");
        assert_eq!(outcome.metadata_pages, pages);
        assert_eq!(reads_of(&disk, &paths), 0, "{options:?}");
    }
}

#[test]
fn nothing_is_found_where_the_file_system_keeps_it_elsewhere() {
    let _machine = Machine::lock();
    let disk = Disk::new(&["mkfs.xfs", "-q"], 300 << 20);
    let paths = paths_on(&disk);
    let data = disk.path("data");
    write_clean(&data, 64);
    // Directories above the mount point may lie on ext4, and were read by its device.
    let of_disk = device_of(&disk);
    let found = found(&paths, &mut Child::spawn(1), &data);
    assert!(found.iter().all(|read| read.device != of_disk), "{found:?}");
}

#[test]
fn a_device_that_is_gone_and_pages_behind_its_end_harm_nothing() {
    let _machine = Machine::lock();
    let disk = Disk::new(&["mkfs.ext4", "-q"], 64 << 20);
    let device = device_of(&disk);
    let read = |device, first| MetadataRead {
        device,
        extent: Extent::new(first, 4),
    };
    let plan = LaunchPlan {
        metadata: vec![
            read((4_095, 77), 0),
            read(device, 1 << 40),
            read(device, u64::MAX - 8),
            read(device, 16),
        ],
        ..LaunchPlan::default()
    };
    let (rig, child) = (LaunchRig::new(), Child::spawn(1));
    rig.begin(1, child.pid(), prefetched(plan));
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    assert!(rig.result().prefetch.expect("prefetched").metadata_pages >= 4);
}
