//! File systems whose tracepoints, metadata or page cache differ from ext4's.

use crate::cache::{is_learned_and_fetched, switch_reading};
use crate::rig::{Rig, of_files, params, plan_of_file};
use prepage_core::params::Mode;
use prepage_engine::{EngineParams, FileOrder};
use prepage_kernel::filemap::{Filemap, FilemapKind};
use prepage_kernel::page::page_size;
use prepage_kernel::perf::{TracepointRings, Wakeup};
use prepage_kernel::process::own_pid;
use prepage_kernel::sched::online_cpus;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{
    Directory, Disk, Machine, eventually, run, unmount, write_clean,
};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use prepage_kernel::tracefs::Tracefs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FILE_PAGES: u64 = 256;

const MIB: u64 = 1 << 20;

fn is_learned_and_fetched_on(mkfs: &[&str], bytes: u64) {
    let _machine = Machine::with_swap();
    let disk = Disk::new(mkfs, bytes);
    let path = disk.path("file");
    write_clean(&path, FILE_PAGES);
    let mut child = Child::spawn(1);
    is_learned_and_fetched(&mut child, &path, &path);
}

#[test]
fn xfs() {
    is_learned_and_fetched_on(&["mkfs.xfs", "-q"], 300 * MIB);
}

/// stat gives a device number for each subvolume, the tracepoints that of the file system.
#[test]
fn btrfs() {
    is_learned_and_fetched_on(&["mkfs.btrfs", "-q"], 128 * MIB);
}

/// An overlay, taken down at the end.
pub struct Overlay(Directory);

impl Overlay {
    pub fn new() -> Overlay {
        let overlay = Overlay(Directory::new());
        let path = |name: &str| overlay.0.path(name).to_str().expect("text").to_owned();
        for name in ["lower", "upper", "work", "mount"] {
            std::fs::create_dir(path(name)).expect("mkdir");
        }
        write_clean(Path::new(&path("lower/file")), FILE_PAGES);
        let (lower, upper, work) = (path("lower"), path("upper"), path("work"));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        run(
            "mount",
            &["-t", "overlay", "overlay", "-o", &options, &path("mount")],
        );
        overlay
    }

    pub fn file_in(&self, directory: &str) -> PathBuf {
        self.0.path(directory).join("file")
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        unmount(&self.0.path("mount"));
    }
}

/// The tracepoints give the layer's device, stat the overlay's.
#[test]
fn overlay() {
    let _machine = Machine::with_swap();
    let overlay = Overlay::new();
    let mut child = Child::spawn(1);
    is_learned_and_fetched(
        &mut child,
        &overlay.file_in("mount"),
        &overlay.file_in("lower"),
    );
}

/// Mappings name the overlay's device (6.8 and later), the tracepoints the layer's.
#[test]
fn use_on_an_overlay_is_told_from_mappings_where_the_kernel_reports_no_access() {
    let _machine = Machine::with_swap();
    let overlay = Overlay::new();
    let (path, backing) = (overlay.file_in("mount"), overlay.file_in("lower"));
    let mut child = Child::spawn(1);
    let mut engine = EngineParams::default();
    engine.observe.access_events = false;
    let mut rig = Rig::new(&child, &engine, params());
    switch_reading(&mut rig, &mut child, "mapfile", &path, &backing);
    drop_cache(&backing);
    let record = rig.switch(|| {
        eventually("it is fetched", || cached(&backing, 64, 32) == 32);
        child.tell_file("mapfile", &path, 64, 32);
    });
    // Of what nobody maps, no use shows.
    assert!(of_files(&record).used >= 16, "{record:?}");
}

/// A page that was mapped all along shows no access: it is in memory, and so nothing is known of it.
#[test]
fn what_an_overlay_holds_in_memory_is_unknown() {
    let _machine = Machine::with_swap();
    let overlay = Overlay::new();
    let (path, backing) = (overlay.file_in("mount"), overlay.file_in("lower"));
    let mut child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    switch_reading(&mut rig, &mut child, "mapfile", &path, &backing);
    child.tell_file("mapfile", &path, 64, 32);
    rig.set_mode(Mode::Observe);
    for _ in 0..8 {
        let record = rig.switch(|| {});
        assert_eq!(of_files(&record).holdout_precision.of, 0, "{record:?}");
    }
    let plan = rig.machine.app(&rig.app).expect("tracked").plan().clone();
    assert!(plan.file_pages() > 0, "{plan:?}");
}

/// Copied up, it keeps the lower file's inode number, while the tracepoints give the upper file's.
#[test]
fn a_file_that_an_overlay_copied_up_stays_unresolved_and_is_counted() {
    let _machine = Machine::with_swap();
    let overlay = Overlay::new();
    let path = overlay.file_in("mount");
    let file = std::fs::File::options().append(true).open(&path);
    file.and_then(|file| file.sync_all()).expect("copy up");
    let mut child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let upper = overlay.file_in("upper");
    let record = switch_reading(&mut rig, &mut child, "readfile", &path, &upper);
    assert!(record.unresolved >= 32, "{record:?}");
    let plan = rig.machine.app(&rig.app).expect("tracked").plan().clone();
    let planned = plan
        .files
        .iter()
        .any(|targets| Path::new(&*targets.file.path) == path);
    assert!(!planned, "{plan:?}");
}

/// The blocks (of a page each) of the device that say where a file's are, as debugfs(8) gives them: `(IND):1045, `.
fn indirect_blocks(disk: &Disk, file: &str) -> Vec<u64> {
    let stat = format!("stat {file}");
    let text = run(
        "debugfs",
        &["-R", &stat, disk.device.to_str().expect("text")],
    );
    let words = text.split([' ', ',', '\n']);
    let of_indirect =
        words.filter_map(|word| word.strip_prefix("(IND):").or(word.strip_prefix("(DIND):")));
    of_indirect
        .map(|number| number.parse().expect("a block number"))
        .collect()
}

/// File pages that we add to the page cache while `work` runs: inode and first page, in order of time.
fn added_during(work: impl FnOnce()) -> Vec<(u64, u64)> {
    let tracefs = Tracefs::open().expect("tracefs");
    let filemap = Filemap::find(&tracefs, &[FilemapKind::Added]).expect("formats");
    let cpus = online_cpus().expect("CPUs");
    let ids = filemap.event_ids();
    let mut rings = TracepointRings::open(&ids, &cpus, 128, Wakeup::Bytes(4096)).expect("open");
    rings.enable().expect("enable");
    work();
    rings.disable().expect("disable");
    let (own, mut added) = (own_pid(), Vec::new());
    let drained = rings.drain(|sample| {
        let event = filemap
            .decode(sample.event_id, sample.raw)
            .expect("well formed");
        if sample.pid == own {
            added.push((sample.time_ns, event.inode, event.first_page));
        }
    });
    assert_eq!((drained.lost, drained.full), (0, 0));
    added.sort_unstable();
    added
        .into_iter()
        .map(|(_, inode, page)| (inode, page))
        .collect()
}

/// Where files are mapped by indirect blocks, those come before the pages (ASAP section 5.2).
#[test]
fn indirect_blocks_are_read_ahead_of_the_pages() {
    const PAGES: u64 = 3 * 1024;
    let _machine = Machine::with_swap();
    let block = page_size().to_string();
    let disk = Disk::new(&["mkfs.ext2", "-q", "-b", &block], 64 * MIB);
    let path = disk.path("file");
    write_clean(&path, PAGES);
    let blocks = indirect_blocks(&disk, "file");
    assert!(blocks.len() >= 3, "{blocks:?}");
    let inode = std::fs::metadata(&path).expect("stat").ino();

    let child = Child::spawn(1);
    let mut engine = EngineParams::default();
    engine.fetch.file_order = FileOrder::File;
    let mut rig = Rig::new(&child, &engine, params());
    // The kernel has the map of a file that it wrote in mind.
    disk.remount();
    let held = |block: u64| cached(&disk.device, block, 1);
    assert_eq!(blocks.iter().map(|&block| held(block)).sum::<u64>(), 0);
    let plan = plan_of_file(&path, 0..PAGES);
    let added = added_during(|| {
        rig.fetch(&plan);
        eventually("the file is fetched", || cached(&path, 0, PAGES) == PAGES);
    });
    rig.collect(&plan);
    let of_file = added
        .iter()
        .filter(|(of, _)| *of == inode)
        .map(|&(_, page)| page);
    let first: Vec<u64> = of_file.take(6).collect();
    assert_eq!(
        first,
        [0, 512, 1024, 1536, 2048, 2560],
        "one page of each stride"
    );
    let rest = added
        .iter()
        .position(|&(of, page)| of == inode && page % 512 != 0);
    for block in blocks {
        let at = added
            .iter()
            .position(|&(of, page)| of != inode && page == block);
        assert!(
            at.is_some() && at < rest,
            "block {block}: {at:?}, the rest: {rest:?}"
        );
        assert_eq!(held(block), 1);
    }
}
