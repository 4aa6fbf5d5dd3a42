//! Where files lie on disks, and the requests that reach them.

use prepage_kernel::block::Placement;
use prepage_kernel::block_trace::{
    BlockEvent, BlockKind, BlockOperation, BlockTrace, SECTOR_BYTES,
};
use prepage_kernel::fiemap::{ExtentFlags, PhysicalExtent, extents};
use prepage_kernel::perf::{TracepointRings, Wakeup};
use prepage_kernel::process::own_pid;
use prepage_kernel::sched::Policy;
use prepage_kernel::testing::machine::{Directory, Machine};
use prepage_kernel::tracefs::Tracefs;
use prepage_kernel::{page, readahead, sched};
use rustix::fd::AsFd;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

const EXTENTS_MAX: usize = 1024;

#[test]
fn the_extents_of_a_file_cover_it_in_order() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let file = File::open(directory.file("file", 64)).expect("open");
    let found = extents(file.as_fd(), EXTENTS_MAX).expect("these tests need FIEMAP on /var/tmp");
    assert!(found.complete);
    let mut end = 0;
    for extent in &found.list {
        assert_eq!(extent.logical_bytes, end, "no holes: {found:?}");
        assert!(extent.flags.is_readable_at(), "{extent:?}");
        end += extent.len_bytes;
    }
    assert_eq!(end, 64 * page::page_size());
    assert!(found.list.last().expect("one").flags.has(ExtentFlags::LAST));
    let sub = File::open(&directory.0).expect("open a directory");
    assert!(
        !extents(sub.as_fd(), EXTENTS_MAX)
            .expect("of a directory")
            .list
            .is_empty()
    );
}

#[test]
fn holes_unwritten_and_unplaced_parts_are_told_apart() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let file = File::create_new(directory.path("sparse")).expect("create");
    let page = page::page_size();
    let allocate = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, allocate, 0, 4 * page).expect("fallocate");
    file.sync_all().expect("sync");
    file.write_all_at(&[7; 100], 100 * page).expect("write");
    let found = extents(file.as_fd(), EXTENTS_MAX).expect("extents");
    let [first, second] = &found.list[..] else {
        panic!("two parts: {found:?}");
    };
    assert!(first.flags.has(ExtentFlags::UNWRITTEN) && !first.flags.is_readable_at());
    assert_eq!(first.len_bytes, 4 * page);
    assert_eq!(second.logical_bytes, 100 * page);
    assert!(second.flags.has(ExtentFlags::DELALLOC) && !second.flags.is_readable_at());
    file.sync_all().expect("sync");
    let found = extents(file.as_fd(), EXTENTS_MAX).expect("extents");
    assert!(found.list[1].flags.is_readable_at(), "{found:?}");
    let empty = File::create_new(directory.path("empty")).expect("create");
    let found = extents(empty.as_fd(), EXTENTS_MAX).expect("extents");
    assert!(found.complete && found.list.is_empty());
}

#[test]
fn a_file_of_many_extents_is_read_in_pages_up_to_a_bound() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let file = File::create_new(directory.path("many")).expect("create");
    for index in 0..200 {
        let offset = 2 * index * page::page_size();
        file.write_all_at(&[1; 10], offset).expect("write");
    }
    file.sync_all().expect("sync");
    let all = extents(file.as_fd(), EXTENTS_MAX).expect("extents");
    assert!(all.complete);
    assert_eq!(all.list.len(), 200);
    let offsets = all.list.iter().map(|extent| extent.logical_bytes);
    assert!(offsets.eq((0..200).map(|index| 2 * index * page::page_size())));
    let some = extents(file.as_fd(), 130).expect("extents");
    assert!(!some.complete);
    assert_eq!(some.list[..], all.list[..130]);
    let none = extents(file.as_fd(), 0).expect("extents");
    assert!(!none.complete && none.list.is_empty());
}

#[test]
fn file_systems_without_extents_say_so() {
    let _machine = Machine::lock();
    let file = File::open("/proc/self/stat").expect("open");
    let error = extents(file.as_fd(), EXTENTS_MAX).expect_err("procfs lies on no device");
    assert!(error.is_unsupported(), "{error}");
    let error = Placement::of_number(file.metadata().expect("stat").dev()).expect_err("no device");
    assert!(error.is_not_found(), "{error}");
}

#[test]
fn a_partition_lies_on_its_disk() {
    const START_SECTORS: u32 = 2048;
    let _machine = Machine::lock();
    let directory = Directory::new();
    let image = directory.path("disk");
    // The first sector of a disk of MS-DOS: a partition of type 0x83, and the signature.
    let mut sector = vec![0; SECTOR_BYTES as usize];
    sector[450] = 0x83;
    sector[454..458].copy_from_slice(&START_SECTORS.to_le_bytes());
    sector[458..462].copy_from_slice(&4096_u32.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let file = File::create_new(&image).expect("create");
    file.set_len(4 << 20).expect("set its length");
    file.write_all_at(&sector, 0).expect("write");
    let device = LoopDevice::new(&image);
    let number = std::fs::metadata(&device.0).expect("stat a device").rdev();
    let whole = Placement {
        disk: (rustix::fs::major(number), rustix::fs::minor(number)),
        start_bytes: 0,
    };
    assert_eq!(Placement::of_number(number).expect("a disk"), whole);
    // Not every kernel reads the table itself.
    let added = Command::new("partx").args(["--add", &device.0]).status();
    assert!(
        added.as_ref().is_ok_and(|status| status.success()),
        "this test needs partx: {added:?}"
    );
    let name = device.0.trim_start_matches("/dev/");
    let dev = std::fs::read_to_string(format!("/sys/block/{name}/{name}p1/dev"));
    let dev = dev.expect("a partition");
    let (major, minor) = dev.trim().split_once(':').expect("MAJ:MIN");
    let number = |text: &str| text.parse().expect("a number");
    let partition = rustix::fs::makedev(number(major), number(minor));
    let expected = Placement {
        start_bytes: u64::from(START_SECTORS) * SECTOR_BYTES,
        ..whole
    };
    assert_eq!(
        Placement::of_number(partition).expect("a partition"),
        expected
    );
}

/// A file as a disk, until dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn new(image: &Path) -> LoopDevice {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .expect("this test needs losetup");
        assert!(
            output.status.success(),
            "losetup: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Partitions go first: they would stay with the device.
        let _ = Command::new("partx").args(["--delete", &self.0]).output();
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn requests_lie_where_the_extents_of_the_file_say() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file("file", 64);
    let file = File::open(&path).expect("open");
    let placement =
        Placement::of_number(file.metadata().expect("stat").dev()).expect("/var/tmp is on a disk");
    let found = extents(file.as_fd(), EXTENTS_MAX).expect("extents").list;
    let tracefs = Tracefs::open().expect("tracefs");
    let trace = BlockTrace::find(&tracefs, &BlockKind::ALL).expect("formats");
    assert_eq!(trace.kinds().collect::<Vec<_>>(), BlockKind::ALL);
    let cpus = sched::online_cpus().expect("CPUs");
    let mut rings = TracepointRings::open(&trace.event_ids(), &cpus, 64, Wakeup::Bytes(4096))
        .expect("these tests need system-wide perf events");
    readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
    rings.enable().expect("enable");
    keeping_busy(&cpus, || {
        let mut bytes = vec![0; 64 * page::page_size() as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
    });
    rings.disable().expect("disable");

    let mut events: Vec<(i32, BlockEvent)> = Vec::new();
    let drained = rings.drain(|sample| {
        let event = trace.decode(sample.event_id, sample.raw);
        events.push((sample.pid, event.expect("nothing else was asked for")));
    });
    assert_eq!((drained.lost, drained.malformed), (0, 0));
    let reads = |kind| -> Vec<Range<u64>> {
        let ours = events.iter().filter(|(_, event)| {
            event.kind == kind
                && event.disk == placement.disk
                && event.operation == BlockOperation::Read
        });
        ours.map(|(_, event)| event.first_sector..event.first_sector + event.sector_count)
            .collect()
    };
    for kind in BlockKind::ALL {
        let reads = reads(kind);
        for sector in sectors(&placement, &found) {
            let read = reads.iter().any(|read| read.contains(&sector));
            assert!(read, "{kind:?} of sector {sector}: {reads:?}");
        }
    }
    let own = own_pid();
    let issued = events.iter().find(|(pid, event)| {
        *pid == own && event.kind == BlockKind::Issue && event.operation == BlockOperation::Read
    });
    let (_, issued) = issued.expect("we flushed a plug of our own");
    let comm = std::fs::read("/proc/thread-self/comm").expect("own name");
    assert_eq!(
        issued.comm.expect("of an issue")[..15],
        comm[..15],
        "{issued:?}"
    );
}

/// Completions that interrupt an idle CPU may be missing: so none is idle while `work` runs.
fn keeping_busy(cpus: &[usize], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let ready = Barrier::new(cpus.len() + 1);
    std::thread::scope(|scope| {
        for &cpu in cpus {
            let (done, ready) = (&done, &ready);
            scope.spawn(move || {
                sched::pin_current_thread(&[cpu]).expect("pin");
                sched::set_current_thread_policy(Policy::Idle).expect("idle");
                ready.wait();
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        ready.wait();
        work();
        done.store(true, Ordering::Relaxed);
    });
}

/// All sectors of the extents, as the disk counts them.
fn sectors(placement: &Placement, extents: &[PhysicalExtent]) -> Vec<u64> {
    let sectors = extents.iter().flat_map(|extent| {
        let start = (placement.start_bytes + extent.physical_bytes) / SECTOR_BYTES;
        start..start + extent.len_bytes / SECTOR_BYTES
    });
    sectors.collect()
}
