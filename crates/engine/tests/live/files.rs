//! File pages, from the access to the prepaged page.

use crate::cache::switch_reading;
use crate::rig::{Rig, needs_access_reports, of_files, params};
use prepage_core::params::FileCandidates;
use prepage_engine::{CorePolicy, EngineParams};
use prepage_kernel::page::page_size;
use prepage_kernel::readahead::fadvise_dontneed;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Disk, Machine, eventually, write_clean};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

const FILE_PAGES: u64 = 2048;

#[test]
fn extents_read_by_system_call_are_cached_before_they_are_read() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    needs_access_reports();
    let path = directory.file("read", FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    for _ in 0..3 {
        drop_cache(&path);
        // The file is opened, read and closed within the switch.
        let record = rig.switch(|| {
            // The watch on openings begins a moment after the switch, in a thread of its own.
            prepage_kernel::sched::sleep_us(20_000);
            child.tell_file("readfile", &path, 1000, 64);
        });
        assert_eq!(record.void, None, "{record:?}");
        assert_eq!(record.unresolved, 0, "{record:?}");
    }
    drop_cache(&path);
    rig.begin();
    eventually("the extent is fetched", || cached(&path, 1000, 64) == 64);
    let far = cached(&path, 1100, 900);
    assert_eq!(far, 0, "pages came in that nobody wanted");
    child.tell_file("readfile", &path, 1000, 64);
    let record = rig.end();
    assert!(of_files(&record).fetched >= 64, "{record:?}");
    assert_eq!(
        of_files(&record).used,
        of_files(&record).fetched,
        "{record:?}"
    );
    assert_eq!(of_files(&record).demanded, 0, "{record:?}");
}

/// A device that takes less than `fetch.file_call_bytes` in a call.
#[test]
fn no_call_asks_for_more_than_the_device_takes() {
    let _machine = Machine::with_swap();
    let disk = Disk::new(&["mkfs.ext4", "-q"], 256 << 20);
    let name = disk.device.file_name().expect("a name");
    let queue = Path::new("/sys/block").join(name).join("queue");
    for setting in ["max_sectors_kb", "read_ahead_kb"] {
        std::fs::write(queue.join(setting), "128").expect("set");
    }
    let path = disk.path("read");
    write_clean(&path, FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    for _ in 0..3 {
        drop_cache(&path);
        rig.switch(|| {
            prepage_kernel::sched::sleep_us(20_000);
            child.tell_file("readfile", &path, 1000, 512);
        });
    }
    drop_cache(&path);
    rig.begin();
    eventually("the extent is fetched", || cached(&path, 1000, 512) == 512);
}

/// By IORap's policy, in mode full: it knows files only.
#[test]
fn as_iorap_no_anonymous_page_is_fetched() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(256);
    let mut engine = EngineParams::default();
    engine.fetch.core_policy = CorePolicy::Iorap;
    let mut rig = Rig::new(&child, &engine, params());
    let mut fetched = Vec::new();
    for _ in 0..3 {
        child.swap_out();
        let record = rig.switch(|| child.tell_pages("read", 0..128));
        fetched.push((record.anon.planned, record.anon.fetched));
    }
    assert!(
        fetched[2].0 >= 128 && fetched.iter().all(|f| f.1 == 0),
        "{fetched:?}"
    );
}

#[test]
fn files_of_strangers_leave_the_observation_whole() {
    const FILES_MAX: usize = 64;
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("read", 64);
    let (mut child, mut stranger) = (Child::spawn(1), Child::spawn(1));
    let mut engine = EngineParams::default();
    engine.observe.file_buffer_files = FILES_MAX;
    let mut rig = Rig::new(&child, &engine, params());
    let others: Vec<_> = (0..2 * FILES_MAX)
        .map(|n| directory.file(&format!("other-{n}"), 1))
        .collect();
    drop_cache(&path);
    let record = rig.switch(|| {
        prepage_kernel::sched::sleep_us(20_000);
        for other in &others {
            stranger.tell_file("readfile", other, 0, 1);
        }
        child.tell_file("readfile", &path, 0, 64);
    });
    assert_eq!((record.void, record.events_lost), (None, 0), "{record:?}");
    assert_eq!(of_files(&record).demanded, 64, "{record:?}");
}

#[test]
fn what_is_known_is_fetched_in_switches_whose_accesses_are_not_observed() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    needs_access_reports();
    let path = directory.file("known", FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut params = params();
    params.file.observe_interval_max = 2;
    let mut rig = Rig::new(&child, &EngineParams::default(), params);
    let mut observed = Vec::new();
    for _ in 0..8 {
        drop_cache(&path);
        rig.begin();
        prepage_kernel::sched::sleep_us(20_000);
        let fetched = cached(&path, 1000, 64);
        child.tell_file("readfile", &path, 1000, 64);
        let record = rig.end();
        observed.push(record.file.is_some());
        if record.file.is_none() {
            assert_eq!(fetched, 64, "{record:?}");
        }
    }
    assert!(observed[0]);
    let (one, other) = (observed[6], observed[7]);
    assert!(one != other, "one of two, at last: {observed:?}");
}

#[test]
fn a_file_that_was_replaced_or_truncated_is_forgotten() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    needs_access_reports();
    let path = directory.file("changing", FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    for _ in 0..2 {
        rig.switch(|| child.tell_file("mapfile", &path, 100, 16));
    }
    let knows = |rig: &Rig| {
        let plan = rig.machine.app(&rig.app).expect("tracked").plan().clone();
        plan.files.iter().any(|t| Path::new(&*t.file.path) == path)
    };
    // A switch may end before its fetch has come to the file. Nothing of it is fetched, so that it is not for want of use
    // that it goes.
    let forgets = |rig: &mut Rig| {
        (0..50).any(|_| {
            let record = rig.switch(|| {});
            assert_eq!(of_files(&record).fetched, 0, "{record:?}");
            !knows(rig)
        })
    };
    assert!(knows(&rig));
    std::fs::remove_file(&path).expect("remove");
    directory.file("changing", 50);
    assert!(forgets(&mut rig), "a replaced file is still planned");

    let path = directory.file("truncated", FILE_PAGES);
    for _ in 0..2 {
        rig.switch(|| {
            prepage_kernel::sched::sleep_us(20_000);
            child.tell_file("readfile", &path, 500, 16);
        });
    }
    let file = File::options().write(true).open(&path).expect("open");
    file.set_len(10 * page_size()).expect("truncate");
    assert!(forgets(&mut rig), "a truncated file is still planned");
}

#[test]
fn a_file_replaced_by_a_fifo_or_a_link_loop_harms_nothing() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("special", 64);
    let mut child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    for _ in 0..2 {
        rig.switch(|| child.tell_file("mapfile", &path, 0, 16));
    }
    std::fs::remove_file(&path).expect("remove");
    let fifo = rustix::fs::CWD;
    rustix::fs::mknodat(fifo, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("mkfifo");
    let record = rig.switch(|| {});
    assert_eq!(of_files(&record).fetched, 0, "{record:?}");
    std::fs::remove_file(&path).expect("remove");
    std::os::unix::fs::symlink(&path, &path).expect("link");
    rig.switch(|| {});
}

#[test]
fn the_papers_profiling_needs_ten_switches() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    needs_access_reports();
    let path = directory.file("profiled", FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut params = params();
    params.file.file_candidates = FileCandidates::Offline;
    let mut rig = Rig::new(&child, &EngineParams::default(), params);
    let mut planned = Vec::new();
    for _ in 0..12 {
        let file = File::open(&path).expect("open");
        fadvise_dontneed(file.as_fd(), 0, 1900 * page_size()).expect("fadvise");
        rig.switch(|| {
            prepage_kernel::sched::sleep_us(20_000);
            child.tell_file("readfile", &path, 300, 32);
        });
        planned.push(
            rig.machine
                .app(&rig.app)
                .expect("tracked")
                .plan()
                .file_pages()
                > 0,
        );
    }
    assert_eq!(
        planned,
        [
            false, false, false, false, false, false, false, false, false, true, true, true
        ]
    );
}

#[test]
fn use_is_told_from_mappings_where_the_kernel_reports_no_access() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("mapped", FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut engine = EngineParams::default();
    engine.observe.access_events = false;
    let mut rig = Rig::new(&child, &engine, params());
    drop_cache(&path);
    let record = rig.switch(|| child.tell_file("mapfile", &path, 64, 16));
    assert!(of_files(&record).demanded >= 1, "{record:?}");
    let plan = rig.machine.app(&rig.app).expect("tracked").plan().clone();
    let planned = plan.files.iter().find(|t| Path::new(&*t.file.path) == path);
    let planned = planned.expect("the mapped file is planned");
    assert!(
        (64..80).all(|page| planned.wanted.contains(page)),
        "{planned:?}"
    );
}

/// What a switch read ahead by read(2) is not seen to be used: it is given up in the end, and learned again if it is read.
#[test]
fn what_is_read_by_system_call_is_learned_where_the_kernel_reports_no_access() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("read", FILE_PAGES);
    let mut child = Child::spawn(1);
    let mut engine = EngineParams::default();
    engine.observe.access_events = false;
    let mut rig = Rig::new(&child, &engine, params());
    let wanted = |rig: &Rig| {
        let plan = rig.machine.app(&rig.app).expect("tracked").plan();
        let planned = plan.files.iter().find(|t| Path::new(&*t.file.path) == path);
        planned.map_or(0, |t| t.wanted.pages())
    };
    let learned = switch_reading(&mut rig, &mut child, "readfile", &path, &path);
    assert!(of_files(&learned).demanded >= 32, "{learned:?}");
    assert!(wanted(&rig) >= 32);

    let mut given_up = 0;
    for _ in 0..8 {
        drop_cache(&path);
        let record = rig.switch(|| {
            if given_up == 0 {
                eventually("it is fetched", || cached(&path, 64, 32) == 32);
            }
        });
        let files = of_files(&record);
        assert_eq!((files.used, files.unused), (0, 0), "{record:?}");
        if wanted(&rig) == 0 {
            given_up += 1;
        } else {
            assert!(files.fetched >= 32, "{record:?}");
        }
    }
    assert!((2..7).contains(&given_up), "{given_up}");
    switch_reading(&mut rig, &mut child, "readfile", &path, &path);
    assert!(wanted(&rig) >= 32);
}
