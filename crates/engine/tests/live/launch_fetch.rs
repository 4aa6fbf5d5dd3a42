//! Prefetching for launches.

use crate::launch_rig::{
    LaunchRig, NOBODY, WAIT_MAX, as_nobody, cached, cached_of, launch, pages, plan, prefetched,
    recorded,
};
use prepage_core::extent::ExtentSet;
use prepage_core::launch::manager::{Decision, Help};
use prepage_core::launch::paths::{PathRead, PathReplay};
use prepage_core::launch::recording::Issuer;
use prepage_core::params::launch::LaunchParams;
use prepage_engine::{EngineParams, Launch, Launches};
use prepage_kernel::page::page_size;
use prepage_kernel::sched::capacities;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::hanging::HangingMount;
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::drop_cache;
use rustix::fs::{CWD, FileType, makedev, mknodat};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn stat_of(path: &Path) -> PathReplay {
    PathReplay {
        path: path.to_str().expect("text").into(),
        read: PathRead::Stat,
    }
}

#[test]
fn a_prefetch_does_not_wait_for_the_rings() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let file = directory.file("file", 64);
    drop_cache(&file);
    let engine = EngineParams::default();
    let params = LaunchParams::default();
    let capacities = capacities().expect("cores");
    let launches = Launches::start(&engine, &params, &capacities).expect("start");
    let child = Child::spawn(1);
    let decision = Decision {
        records: true,
        ..prefetched(plan(&[(&file, 8, 16)], Vec::new()))
    };
    // Nothing has waited for them yet: they are open already, or it is not recorded.
    let is_recorded = launches.begin(Launch {
        rings_wait_max: Duration::ZERO,
        ..launch(1, child.pid(), decision)
    });
    assert!(launches.wait_prefetched(1, WAIT_MAX));
    assert_eq!(cached(&file), pages(&[(8, 16)]));
    assert!(launches.can_record(), "{:?}", launches.warnings());
    launches.settled(1);
    let result = LaunchRig { launches }.result();
    assert_eq!(result.recording.is_some(), is_recorded);
    assert_eq!(result.measured.help, Help::Helped);
}

#[test]
fn a_launch_held_out_waits_for_no_rings_and_shows_what_the_device_reads() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let file = directory.file("file", 64);
    drop_cache(&file);
    let (engine, params) = (EngineParams::default(), LaunchParams::default());
    let capacities = capacities().expect("cores");
    let launches = Launches::start(&engine, &params, &capacities).expect("start");
    let mut child = Child::spawn(1);
    let held_out = Decision {
        is_held_out: true,
        ..recorded()
    };
    let is_recorded = launches.begin(Launch {
        rings_wait_max: Duration::ZERO,
        ..launch(1, child.pid(), held_out)
    });
    assert!(!is_recorded, "the rings cannot be open yet");
    assert!(launches.can_record(), "{:?}", launches.warnings());
    let rig = LaunchRig { launches };
    // That this one is over says that the first is being recorded.
    let mut gone = Child::spawn(1);
    let gone_pid = gone.pid();
    gone.kill();
    rig.begin(2, gone_pid, Decision::default());
    assert_eq!(rig.result().id, 2);
    child.tell_file("readfile", &file, 0, 64);
    rig.launches.settled(1);
    let result = rig.result();
    assert!(result.recording.is_none(), "it misses the beginning");
    assert_eq!(result.measured.help, Help::HeldOut);
    assert!(result.measured.device_pages >= 64, "{:?}", result.measured);
}

#[test]
fn a_launch_held_out_and_not_recorded_shows_whether_it_was_cold() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let (mut files, run) = directory.programs(6);
    // Most of what is read by read(2), as by tar or sqlite3, no fault waits for.
    let data = directory.file("data", 1024);
    let read = format!("cat {}", data.display());
    files.push(data);
    let rig = LaunchRig::new();
    let launch = |id, run: &str| {
        // What is gone at once, nobody sees reading.
        let held = HeldCommand::new(&["bash", "-c", &format!("{run}; sleep 0.1")]);
        let decision = Decision {
            is_held_out: true,
            ..Decision::default()
        };
        rig.begin(id, held.pid(), decision);
        assert_eq!(held.run().1, 0);
        let result = rig.result();
        assert!(result.recording.is_none());
        assert_eq!(result.measured.help, Help::HeldOut);
        result.measured.device_pages
    };
    for (run, pages) in [(run, 60), (read, 1024)] {
        launch(1, &run);
        assert_eq!(launch(2, &run), 0, "everything was in memory");
        files.iter().for_each(|file| drop_cache(file));
        assert!(launch(3, &run) >= pages, "{run}");
    }
}

#[test]
fn a_replay_brings_exactly_the_planned_pages_in_order() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let files: Vec<PathBuf> = (0..4)
        .map(|n| directory.file(&format!("{n}"), 1024))
        .collect();
    files.iter().for_each(|path| drop_cache(path));
    let reads = [
        (&*files[2], 512, 64),
        (&*files[0], 7, 3),
        (&*files[1], 0, 256),
        (&*files[0], 900, 1),
        (&*files[2], 100, 50),
    ];
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    let decision = Decision {
        records: true,
        ..prefetched(plan(
            &reads,
            vec![stat_of(&files[3]), stat_of(&directory.path("missing"))],
        ))
    };
    rig.begin(1, child.pid(), decision);
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let result = rig.result();
    let outcome = result.prefetch.expect("prefetched");
    assert_eq!(cached(&files[2]), pages(&[(100, 50), (512, 64)]));
    assert_eq!(cached(&files[0]), pages(&[(7, 3), (900, 1)]));
    assert_eq!(cached(&files[1]), pages(&[(0, 256)]));
    assert!(cached(&files[3]).is_empty());
    assert_eq!((outcome.pages, outcome.calls, outcome.paths), (374, 5, 2));
    assert!(outcome.submitted_us.is_some() && outcome.submitted_us <= outcome.completed_us);
    assert_eq!(result.measured.help, Help::Helped);
    assert_eq!(
        result.measured.device_pages, 374,
        "the launch itself read nothing"
    );
    let recording = result.recording.expect("recorded");
    let ours = recording
        .requests
        .iter()
        .filter(|r| r.issuer == Issuer::Prefetcher);
    let bytes: u64 = ours.map(|request| request.len_bytes).sum();
    // Some are issued by a worker of the kernel, which says nothing of who asked.
    assert!(bytes > 0, "none of {:?}", recording.requests);
}

#[test]
fn what_is_in_memory_is_not_read_again() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("warm", 64);
    std::fs::read(&path).expect("read");
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    rig.begin(
        1,
        child.pid(),
        prefetched(plan(&[(&path, 0, 64)], Vec::new())),
    );
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let outcome = rig.result().prefetch.expect("prefetched");
    assert_eq!((outcome.pages, outcome.calls), (0, 0));
    assert!(outcome.completed_us.is_some());
}

#[test]
fn files_that_changed_are_skipped_and_reported() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let names = [
        "replaced",
        "truncated",
        "removed",
        "fifo",
        "device",
        "loop",
        "same",
    ];
    let files = names.map(|name| directory.file(name, 16));
    let reads: Vec<(&Path, u64, u64)> = files.iter().map(|path| (path.as_path(), 0, 16)).collect();
    let plan = plan(&reads, files.iter().map(|path| stat_of(path)).collect());
    let [replaced, truncated, removed, fifo, device, link, same] = &files;
    std::fs::remove_file(replaced).expect("remove");
    directory.file("replaced", 16);
    File::options()
        .write(true)
        .open(truncated)
        .expect("open")
        .set_len(4096)
        .expect("truncate");
    for path in [removed, fifo, device, link] {
        std::fs::remove_file(path).expect("remove");
    }
    let mode = rustix::fs::Mode::RUSR;
    mknodat(CWD, fifo, FileType::Fifo, mode, 0).expect("mkfifo");
    // A terminal that nobody drives: opening it would wait.
    mknodat(CWD, device, FileType::CharacterDevice, mode, makedev(4, 64)).expect("mknod");
    std::os::unix::fs::symlink(link, link).expect("link");
    drop_cache(replaced);
    drop_cache(same);
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    rig.begin(1, child.pid(), prefetched(plan));
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let result = rig.result();
    assert_eq!(cached(same), pages(&[(0, 16)]));
    assert!(cached(replaced).is_empty());
    let mut stale: Vec<&Path> = result
        .measured
        .stale_files
        .iter()
        .map(|f| Path::new(&*f.path))
        .collect();
    stale.sort_unstable();
    let mut expected = [replaced, truncated, removed, fifo, device, link].map(PathBuf::as_path);
    expected.sort_unstable();
    assert_eq!(stale, expected);
}

#[test]
fn nobody_gets_read_what_its_user_may_not_read() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let (open, secret) = (directory.file("open", 8), directory.file("secret", 8));
    let private = rustix::fs::Mode::RUSR;
    rustix::fs::chmod(&secret, private).expect("chmod");
    drop_cache(&open);
    drop_cache(&secret);
    let rig = LaunchRig::new();
    let held = HeldCommand::of_user(&["true"], NOBODY);
    let decision = prefetched(plan(&[(&secret, 0, 8), (&open, 0, 8)], Vec::new()));
    let launch = as_nobody(launch(1, held.pid(), decision));
    rig.launches.begin(launch);
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    held.run();
    let result = rig.result();
    assert!(cached(&secret).is_empty(), "read for somebody who may not");
    assert_eq!(cached(&open), pages(&[(0, 8)]));
    assert!(result.measured.stale_files.is_empty(), "that may change");
}

/// Without privileges nobody else's rights are to be had. No read waits for an opening that will not be.
#[test]
fn rights_that_are_not_to_be_had_hold_up_nothing() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("same", 64);
    drop_cache(&path);
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    let reads: Vec<_> = (0..16).map(|page| (&*path, 4 * page, 1)).collect();
    let mut launch = launch(1, child.pid(), prefetched(plan(&reads, Vec::new())));
    launch.rights.uid = u32::MAX;
    rig.launches.begin(launch);
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    assert!(cached(&path).is_empty());
}

/// A directory whose file system never answers.
fn hanging(directory: &Directory) -> HangingMount {
    let point = directory.path("hanging");
    std::fs::create_dir(&point).expect("mkdir");
    HangingMount::at(&point)
}

#[test]
fn a_file_system_that_hangs_is_not_asked() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("same", 8);
    drop_cache(&path);
    let hanging = hanging(&directory);
    let mut plan = plan(
        &[(&path, 0, 8), (&path, 0, 8)],
        vec![stat_of(&hanging.0.join("x"))],
    );
    let mut elsewhere = plan.files[0].clone();
    elsewhere.path = hanging.0.join("x").to_str().expect("text").into();
    plan.files.insert(0, elsewhere);
    plan.reads[1].file = 1;
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    rig.begin(
        1,
        child.pid(),
        Decision {
            records: true,
            ..prefetched(plan)
        },
    );
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let outcome = rig.result().prefetch.expect("prefetched");
    assert_eq!((outcome.pages, outcome.paths), (8, 0));
    assert_eq!(cached(&path), pages(&[(0, 8)]));
}

#[test]
fn threads_that_hang_hold_up_neither_data_nor_result() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let (path, hangs) = (directory.file("same", 8), directory.file("hangs", 8));
    let mut reads = plan(&[(&hangs, 0, 8), (&path, 0, 8)], vec![stat_of(&hangs); 8]);
    reads.paths.push(stat_of(&path));
    drop_cache(&path);
    let hanging = hanging(&directory);
    std::fs::remove_file(&hangs).expect("remove");
    std::os::unix::fs::symlink(hanging.0.join("x"), &hangs).expect("link");
    let mut params = prepage_engine::EngineParams::default();
    params.fetch.watchdog_ms = 50;
    let rig = LaunchRig::with(&params, &Default::default());
    let child = Child::spawn(1);
    for id in 1..=3 {
        drop_cache(&path);
        rig.begin(id, child.pid(), prefetched(reads.clone()));
        assert!(!rig.launches.wait_prefetched(id, Duration::from_millis(200)));
        // A busy machine is slow to find out that a thread hangs.
        eventually("the data", || cached(&path) == pages(&[(0, 8)]));
        rig.launches.settled(id);
        let result = rig.result();
        assert_eq!(result.prefetch.expect("prefetched").pages, 8);
    }
    drop(hanging);
}

/// Has `change` happen to a file of 64 pages, two parts of which are prefetched, after the first. Returns which of its pages were
/// prefetched then, by its page cache, and how many the prefetch counts.
fn prefetched_around(
    directory: &Directory,
    path: &Path,
    change: impl FnOnce(),
) -> (ExtentSet, u64) {
    let hangs = directory.file("hangs", 8);
    let reads = plan(&[(path, 0, 16), (&hangs, 0, 8), (path, 32, 16)], Vec::new());
    drop_cache(path);
    let hanging = hanging(directory);
    std::fs::remove_file(&hangs).expect("remove");
    std::os::unix::fs::symlink(hanging.0.join("x"), &hangs).expect("link");
    // It is to wait for what hangs.
    let mut params = EngineParams::default();
    params.fetch.watchdog_ms = 60_000;
    let rig = LaunchRig::with(&params, &LaunchParams::default());
    let child = Child::spawn(1);
    let held = File::open(path).expect("open");
    rig.begin(1, child.pid(), prefetched(reads));
    eventually("the first part", || cached(path) == pages(&[(0, 16)]));
    change();
    assert!(!rig.launches.wait_prefetched(1, Duration::ZERO));
    drop(hanging);
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let outcome = rig.result().prefetch.expect("prefetched");
    (cached_of(&held), outcome.pages)
}

#[test]
fn a_file_that_is_truncated_during_a_prefetch_stays_so() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("truncated", 64);
    let (cached, _) = prefetched_around(&directory, &path, || {
        let file = File::options().write(true).open(&path).expect("open");
        file.set_len(40 * page_size()).expect("truncate");
    });
    assert_eq!(cached, pages(&[(0, 16), (32, 8)]));
    let contents = std::fs::read(&path).expect("read");
    assert_eq!(contents, vec![b'x'; 40 * page_size() as usize]);
}

#[test]
fn of_a_file_that_is_replaced_during_a_prefetch_nothing_new_is_read() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let (path, other) = (directory.file("replaced", 64), directory.file("other", 64));
    drop_cache(&other);
    let replace = || std::fs::rename(&other, &path).expect("rename");
    let (of_old, counted) = prefetched_around(&directory, &path, replace);
    assert_eq!((of_old, counted), (pages(&[(0, 16), (32, 16)]), 32));
    assert_eq!(cached(&path), pages(&[]));
}

#[test]
fn a_file_that_is_deleted_during_a_prefetch_is_gone() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("deleted", 64);
    let delete = || std::fs::remove_file(&path).expect("remove");
    let (of_deleted, counted) = prefetched_around(&directory, &path, delete);
    assert_eq!((of_deleted, counted), (pages(&[(0, 16), (32, 16)]), 32));
    assert!(!path.exists());
}

/// Where a launch's mounts are known, and something else is mounted over a file then.
#[test]
fn files_that_cannot_be_looked_up_after_a_launch_cost_what_it_showed() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let stays = directory.file("stays", 8);
    let params = LaunchParams {
        t_timeout_ms: 300,
        ..LaunchParams::default()
    };
    let rig = LaunchRig::with(&EngineParams::default(), &params);
    let mut child = Child::spawn(1);
    let mut record = |id, path: &Path, meanwhile: &dyn Fn() -> Option<HangingMount>| {
        let decision = Decision {
            records: true,
            ..prefetched(plan(&[(&stays, 0, 8)], Vec::new()))
        };
        rig.begin(id, child.pid(), decision);
        assert!(rig.launches.wait_prefetched(id, WAIT_MAX));
        child.tell_file("readfile", path, 0, 8);
        let hanging = meanwhile();
        rig.launches.settled(id);
        (rig.result(), hanging)
    };
    let mut hanging = Vec::new();
    for id in 1..=3 {
        let hidden = directory.path(&format!("hidden{id}"));
        std::fs::create_dir(&hidden).expect("mkdir");
        let file = directory.file(&format!("hidden{id}/file"), 8);
        let (result, mount) = record(id, &file, &|| Some(HangingMount::at(&hidden)));
        assert!(result.is_given_up && result.recording.is_none());
        hanging.extend(mount);
    }
    let (result, _) = record(4, &stays, &|| None);
    assert!(result.recording.is_some(), "others are looked up");
    drop(hanging);
}

/// None of them can be closed for good before the last is open.
#[test]
fn more_files_than_may_be_open_are_read_twice() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let files: Vec<PathBuf> = (0..800)
        .map(|number| directory.file(&format!("{number}"), 2))
        .collect();
    files.iter().for_each(|path| drop_cache(path));
    let at = |page: u64| files.iter().map(move |path| (path.as_path(), page, 1));
    let reads: Vec<(&Path, u64, u64)> = at(0).chain(at(1)).collect();
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    rig.begin(1, child.pid(), prefetched(plan(&reads, Vec::new())));
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let outcome = rig.result().prefetch.expect("prefetched");
    assert_eq!(outcome.pages, 1_600);
    assert!(outcome.completed_us.is_some(), "it was ended");
}

#[test]
fn more_files_than_may_be_open_are_fetched() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let files: Vec<PathBuf> = (0..3_000)
        .map(|number| {
            let path = directory.path(&format!("{number}"));
            std::fs::write(&path, b"x").expect("write");
            path
        })
        .collect();
    rustix::fs::syncfs(File::open(&directory.0).expect("open")).expect("sync");
    files.iter().for_each(|path| drop_cache(path));
    let reads: Vec<(&Path, u64, u64)> = files.iter().map(|path| (path.as_path(), 0, 1)).collect();
    let plan = plan(&reads, files.iter().map(|path| stat_of(path)).collect());
    let rig = LaunchRig::new();
    let child = Child::spawn(1);
    rig.begin(1, child.pid(), prefetched(plan));
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    rig.launches.settled(1);
    let result = rig.result();
    let outcome = result.prefetch.expect("prefetched");
    assert_eq!((outcome.pages, outcome.paths), (3_000, 3_000));
    // What is there for nobody the kernel may take away again.
    let there = files.iter().filter(|path| cached(path).pages() == 1);
    assert!(there.count() >= 2_970);
    assert!(result.measured.stale_files.is_empty());
}

#[test]
fn the_end_of_a_launch_ends_its_prefetch() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let files: Vec<PathBuf> = (0..8)
        .map(|n| directory.file(&format!("{n}"), 2_048))
        .collect();
    files.iter().for_each(|path| drop_cache(path));
    let reads: Vec<(&Path, u64, u64)> = (0..64u64)
        .flat_map(|n| files.iter().map(move |path| (path.as_path(), n * 32, 32)))
        .collect();
    let rig = LaunchRig::new();
    let mut child = Child::spawn(1);
    child.kill();
    rig.begin(1, child.pid(), prefetched(plan(&reads, Vec::new())));
    let result = rig.result();
    assert!(
        result
            .prefetch
            .is_none_or(|outcome| outcome.pages < 8 * 2_048)
    );
    // Nobody is left behind: the next launch is served.
    let child = Child::spawn(1);
    rig.begin(2, child.pid(), recorded());
    rig.launches.settled(2);
    assert!(rig.result().recording.is_some());
}
