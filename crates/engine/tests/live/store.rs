//! The profile store: killed, damaged, shared, imported.

use prepage_core::app::Profile;
use prepage_core::extent::Extent;
use prepage_core::identity::{AppId, AppKind, FileId};
use prepage_core::launch::manager::{Decision, LaunchFacts, LaunchState, OffReason, Phase, begin};
use prepage_core::launch::metadata::{METADATA_MAX, MetadataRead};
use prepage_core::launch::paths::{PATHS_BYTES_MAX, PATHS_MAX, PathRead, PathReplay};
use prepage_core::launch::plan::{LaunchPlan, PlanLimits, PlannedRead};
use prepage_core::launch::recording::{ACCESSES_MAX, FILES_MAX, PAGES_MAX};
use prepage_core::launch::sequence::{LaunchSequence, SequenceFile, SequenceRead};
use prepage_core::params::launch::{LaunchParams, LaunchStart};
use prepage_engine::store::{
    APPS_MAX, Next, OWNER_BYTES_MAX, PROFILE_BYTES_MAX, Store, TrackedBy, decode, single,
};
use prepage_engine::{Error, FetchParams, ReadyLaunch};
use prepage_kernel::testing::machine::{Directory, Lcg};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn app(name: &str) -> AppId {
    AppId {
        kind: AppKind::Executable,
        name: name.into(),
        owner: 1000,
    }
}

/// The file of the store's only profile, or of one of them.
fn a_profile_of(directory: &Directory) -> PathBuf {
    let files = std::fs::read_dir(&directory.0).expect("list").flatten();
    let mut paths = files.map(|file| file.path());
    let found = paths.find(|path| path.extension().is_some_and(|e| e == "profile"));
    found.expect("a profile")
}

/// Where the checksum of a profile is in its file, and the profile where nothing is ready.
const CRC_AT: usize = 16;
const PROFILE_AT: usize = 28;

fn profile(switches: u64) -> Profile {
    Profile {
        switches,
        ..Profile::default()
    }
}

#[test]
fn what_was_saved_is_there_when_it_is_opened_again() {
    let directory = Directory::new();
    {
        let (mut store, warnings) = Store::open(&directory.0).expect("open");
        assert!(warnings.is_empty());
        store.save(&app("/usr/bin/a"), &profile(3));
        store.set_tracked(&app("/usr/bin/a"), Some(TrackedBy::Name));
        store.save(&app("/usr/bin/b"), &profile(5));
        store.save(&app("/usr/bin/c"), &profile(1));
        assert!(store.forget(&app("/usr/bin/c")));
    }
    let (store, warnings) = Store::open(&directory.0).expect("open again");
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(store.list().len(), 2);
    let a = store.load(&app("/usr/bin/a")).expect("kept");
    assert_eq!(
        (a.profile.switches, a.tracked.clone()),
        (3, Some(TrackedBy::Name))
    );
}

fn metadata() -> MetadataRead {
    MetadataRead {
        device: (254, 0),
        extent: Extent::new(1_000, 4),
    }
}

fn launch_state() -> LaunchState {
    let mut sequence = LaunchSequence::default();
    for (index, path) in ["/usr/lib/a.so", "/home/me/notes"].into_iter().enumerate() {
        let file = FileId {
            path: path.into(),
            device: (8, 1),
            inode: 5,
            size: 1 << 20,
            mtime_ns: -1,
        };
        let read = PathRead::Stat;
        let path = file.path.clone();
        sequence.paths.push(PathReplay { path, read });
        let recordings = 2;
        sequence.files.push(SequenceFile { file, recordings });
        sequence.reads.push(SequenceRead {
            is_certain: true,
            file: index as u32,
            extent: Extent::new(3, 9),
            address_bytes: Some(1 << 40),
        });
    }
    sequence.metadata.push(metadata());
    LaunchState {
        phase: Phase::Prefetch,
        sequence: Arc::new(sequence),
        ..LaunchState::default()
    }
}

/// What is known of a launch at each of its bounds, with the largest numbers: a profile takes it, as large as it is.
#[test]
fn the_largest_launch_sequence_is_kept() {
    const PATH_BYTES: usize = PATHS_BYTES_MAX / FILES_MAX;
    let path = |kind: char, index: usize| format!("/{kind}{index:0>0$}", PATH_BYTES - 2).into();
    let file = |index| FileId {
        path: path('f', index),
        device: (u32::MAX, u32::MAX),
        inode: u64::MAX - index as u64,
        size: u64::MAX,
        mtime_ns: i64::MIN,
    };
    let pages = PAGES_MAX / ACCESSES_MAX as u64;
    let extent = |index: usize| Extent::new(u64::MAX / 2 + index as u64 * pages, pages);
    let sequence = LaunchSequence {
        files: (0..FILES_MAX)
            .map(|index| SequenceFile {
                file: file(index),
                recordings: u32::MAX,
            })
            .collect(),
        reads: (0..ACCESSES_MAX)
            .map(|index| SequenceRead {
                file: (FILES_MAX - 1 - index % FILES_MAX) as u32,
                extent: extent(index),
                address_bytes: Some(u64::MAX - index as u64),
                is_certain: true,
            })
            .collect(),
        paths: (0..PATHS_MAX)
            .map(|index| PathReplay {
                path: path('p', index),
                read: PathRead::ReadDir,
            })
            .collect(),
        metadata: (0..METADATA_MAX)
            .map(|index| MetadataRead {
                device: (u32::MAX, u32::MAX),
                extent: extent(index),
            })
            .collect(),
        ..LaunchSequence::default()
    };
    let (directory, largest) = (Directory::new(), Arc::new(sequence));
    let change = |state: &mut LaunchState| {
        state.sequence = Arc::clone(&largest);
        None
    };
    let warning = single::change_launch(&directory.0, &app("a"), Duration::from_secs(60), change);
    assert_eq!(warning.expect("kept"), None);
    let kept = single::read_launch(&directory.0, &app("a")).expect("whole");
    assert!(kept.sequence == largest, "not as it was");
    let size = std::fs::metadata(a_profile_of(&directory))
        .expect("stat")
        .len();
    assert!(
        (3 << 20..PROFILE_BYTES_MAX as u64).contains(&size),
        "{size}"
    );
}

#[test]
fn launches_and_switches_are_kept_side_by_side_and_private_paths_are_not_shipped() {
    let directory = Directory::new();
    {
        let (mut store, _) = Store::open(&directory.0).expect("open");
        store.save_launch(&app("a"), &launch_state());
        store.save(&app("a"), &profile(3));
        store.set_tracked(&app("a"), Some(TrackedBy::Name));
    }
    let (store, warnings) = Store::open(&directory.0).expect("open again");
    assert!(warnings.is_empty(), "{warnings:?}");
    let kept = store.load(&app("a")).expect("kept");
    assert_eq!((kept.profile.switches, &kept.launch), (3, &launch_state()));
    let shipped = decode(&store.export(&app("a")).expect("export")).expect("whole");
    let sequence = shipped.launch.sequence;
    assert_eq!(sequence.metadata, [], "blocks of this machine's devices");
    assert_eq!((sequence.files.len(), sequence.reads.len()), (1, 1));
    let paths: Vec<_> = sequence.paths.iter().map(|p| &*p.path).collect();
    assert_eq!(paths, ["/usr/lib/a.so"]);
}

#[test]
fn blocks_of_devices_are_not_imported() {
    let directory = Directory::new();
    let (mut store, _) = Store::open(&directory.0).expect("open");
    store.save_launch(&app("a"), &launch_state());
    store.flush().expect("kept");
    let profile = std::fs::read_dir(&directory.0).expect("a directory");
    let profiles = profile.map(|entry| std::fs::read(entry.expect("an entry").path()));
    let bytes = profiles.flatten().find(|bytes| decode(bytes).is_ok());
    let bytes = bytes.expect("a profile");
    let whole = decode(&bytes).expect("whole").launch.sequence;
    assert_eq!(whole.metadata, [metadata()]);
    store.import(&bytes).expect("taken over");
    let imported = &store.load(&app("a")).expect("known").launch.sequence;
    assert_eq!(
        (imported.metadata.len(), &imported.paths),
        (0, &whole.paths)
    );
}

#[test]
fn who_launches_ever_new_applications_displaces_nobodys_but_their_own() {
    let directory = Directory::new();
    let (mut store, _) = Store::open(&directory.0).expect("open");
    let theirs = AppId {
        owner: 1001,
        ..app("/usr/bin/theirs")
    };
    let tracked = app("/usr/bin/tracked");
    store.save_launch(&theirs, &LaunchState::default());
    store.set_tracked(&tracked, Some(TrackedBy::Name));
    for number in 0..APPS_MAX as i64 + 10 {
        let launched = LaunchState {
            began_ns: number + 1,
            ..LaunchState::default()
        };
        store.save_launch(&app(&format!("/{number}")), &launched);
    }
    assert_eq!(store.list().len(), APPS_MAX);
    assert!(store.load(&theirs).is_some() && store.load(&tracked).is_some());
    let last = app(&format!("/{}", APPS_MAX + 9));
    assert!(store.load(&last).is_some() && store.load(&app("/0")).is_none());
}

/// A launch of which two megabytes are known.
fn large_launch(began_ns: i64) -> LaunchState {
    let mut sequence = LaunchSequence::default();
    for number in 0..250 {
        let path: Arc<str> = format!("/{number:0>3999}").into();
        let file = FileId {
            path: Arc::clone(&path),
            device: (8, 1),
            inode: number,
            size: 0,
            mtime_ns: 0,
        };
        let recordings = 2;
        sequence.files.push(SequenceFile { file, recordings });
        let read = PathRead::Stat;
        sequence.paths.push(PathReplay { path, read });
    }
    LaunchState {
        began_ns,
        sequence: Arc::new(sequence),
        ..LaunchState::default()
    }
}

#[test]
fn who_has_more_than_may_be_held_loses_what_is_used_least_and_nobody_else_does() {
    let directory = Directory::new();
    let (mut store, _) = Store::open(&directory.0).expect("open");
    let theirs = AppId {
        owner: 1001,
        ..app("/usr/bin/theirs")
    };
    let (tracked, used) = (app("/usr/bin/tracked"), app("/usr/bin/used"));
    store.save_launch(&theirs, &LaunchState::default());
    store.set_tracked(&tracked, Some(TrackedBy::Name));
    store.save(&used, &profile(5));
    let of_number = |number: i64| app(&format!("/{number}"));
    let last = OWNER_BYTES_MAX as i64 / 2_000_000;
    for number in 0..=last {
        store.save_launch(&of_number(number), &large_launch(number + 1));
    }
    assert!(store.load(&of_number(0)).is_none(), "the oldest one");
    for kept in [&theirs, &tracked, &used, &of_number(2), &of_number(last)] {
        assert!(store.load(kept).is_some(), "{kept}");
    }
    drop(store);
    // What was there at the start counts too. What is changed stays, though no other one is used less.
    let (mut store, warnings) = Store::open(&directory.0).expect("open again");
    assert_eq!(warnings, [""; 0]);
    store.save_launch(&of_number(0), &large_launch(0));
    store.flush().expect("kept");
    assert!(store.load(&of_number(0)).is_some());
    assert!(store.load(&of_number(1)).is_none());
    let own = store.list().into_iter().filter(|s| s.app.owner == 1000);
    let bytes: u64 = own.map(|stored| stored.bytes).sum();
    assert!(bytes <= OWNER_BYTES_MAX as u64, "{bytes}");
}

#[test]
fn a_second_service_is_told_that_the_store_is_in_use() {
    let directory = Directory::new();
    let _first = Store::open(&directory.0).expect("open");
    let error = Store::open(&directory.0).expect_err("it is open");
    assert!(matches!(error, Error::StoreLocked { .. }));
    assert!(
        error.to_string().contains("in use by a prepaged"),
        "{error}"
    );
}

#[test]
fn a_damaged_file_is_set_aside_and_the_rest_is_there() {
    let directory = Directory::new();
    {
        let (mut store, _) = Store::open(&directory.0).expect("open");
        store.save(&app("a"), &profile(1));
        store.save(&app("b"), &profile(2));
        store.flush().expect("kept");
    }
    let file = a_profile_of(&directory);
    let mut bytes = std::fs::read(&file).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&file, bytes).expect("damage it");
    std::fs::write(directory.path("half.new"), b"cut off").expect("write");
    let (store, warnings) = Store::open(&directory.0).expect("open again");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("checksum"), "{warnings:?}");
    assert_eq!(store.list().len(), 1);
    assert!(file.with_extension("damaged").exists());
    assert!(!directory.path("half.new").exists());
}

#[test]
fn a_profile_of_a_newer_version_stays_as_it_is() {
    let directory = Directory::new();
    let save = |switches| {
        let (mut store, warnings) = Store::open(&directory.0).expect("open");
        let known = store.list().len();
        store.save(&app("a"), &profile(switches));
        let is_kept = store.flush().is_ok();
        (known, warnings, is_kept)
    };
    assert!(save(1).2);
    let file = a_profile_of(&directory);
    let mut newer = std::fs::read(&file).expect("read");
    // The last byte of the magic is the version.
    newer[7] += 1;
    std::fs::write(&file, &newer).expect("write");
    let (known, warnings, is_kept) = save(2);
    assert_eq!(
        (known, warnings.len(), is_kept),
        (0, 1, false),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("it stays"), "{warnings:?}");
    assert_eq!(std::fs::read(&file).expect("read"), newer);
}

/// An application that is left alone.
fn left_alone(launches: u32) -> LaunchState {
    LaunchState {
        phase: Phase::Off(OffReason::TooSmall),
        retry_left: launches,
        ..LaunchState::default()
    }
}

#[test]
fn a_launch_left_alone_is_counted_in_the_profile_that_says_so_alone() {
    let (directory, app) = (Directory::new(), app("a"));
    let (mut store, _) = Store::open(&directory.0).expect("open");
    store.save(&app, &profile(1));
    store.flush().expect("kept");
    let file = a_profile_of(&directory);
    let learning = std::fs::read(&file).expect("read");
    // A newer version's, and one that could not be replaced by what is known now.
    let mut newer = learning.clone();
    newer[7] += 1;
    for kept in [newer, learning] {
        std::fs::write(&file, &kept).expect("write");
        let new = file.with_extension("new");
        std::fs::create_dir(&new).expect("nothing can be written there");
        store.save_launch(&app, &left_alone(9));
        store.flush().expect_err("not to be replaced");
        assert!(store.pass_launch(&app));
        store.flush().expect_err("as before");
        assert_eq!(std::fs::read(&file).expect("read"), kept);
        std::fs::remove_dir(&new).expect("removed");
    }
    // Once it can be kept, it is counted again.
    store.save_launch(&app, &left_alone(9));
    assert!(store.pass_launch(&app));
    drop(store);
    let (store, warnings) = Store::open(&directory.0).expect("open");
    assert_eq!(warnings, [""; 0]);
    assert_eq!(store.load(&app).expect("kept").launch.retry_left, 8);
}

/// An id of which the name of its file holds a part only: another user's ends with another number, whatever the checksum is.
#[test]
fn files_of_two_users_never_have_one_name() {
    let directory = Directory::new();
    let (mut store, _) = Store::open(&directory.0).expect("open");
    let path = format!("/home/{}", "x".repeat(200));
    let ids = [0, 7, 77].map(|owner| AppId {
        owner,
        ..app(&path)
    });
    for id in &ids {
        store.save(id, &profile(1));
    }
    drop(store);
    let mut stems: Vec<String> = std::fs::read_dir(&directory.0)
        .expect("a directory")
        .filter_map(|entry| entry.expect("read").file_name().into_string().ok())
        .filter_map(|name| {
            Some(
                name.strip_suffix(".profile")?
                    .rsplit_once('-')?
                    .0
                    .to_owned(),
            )
        })
        .collect();
    stems.sort_by_key(|stem| (stem.len(), stem.clone()));
    assert_eq!(stems.len(), 3);
    for (stem, id) in stems.iter().zip(&ids) {
        assert!(stem.ends_with(&format!("x@{}", id.owner)), "{stem}");
    }
}

#[test]
fn what_is_no_file_is_set_aside_and_not_waited_for() {
    let directory = Directory::new();
    let path = directory.path("pipe.profile");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo").success());
    std::fs::create_dir(directory.path("directory.profile")).expect("made");
    let (store, warnings) = Store::open(&directory.0).expect("open");
    assert_eq!((warnings.len(), store.list().len()), (2, 0), "{warnings:?}");
    let named = warnings.iter().all(|w| w.contains("no regular file"));
    assert!(named, "{warnings:?}");
    assert!(path.with_extension("damaged").exists());
}

#[test]
fn what_cannot_be_kept_is_said_once_until_something_can_be() {
    static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let said = || WARNINGS.lock().expect("whole").clone();
    let directory = Directory::new();
    let (mut store, _) = Store::open(&directory.0).expect("open");
    store.warn_by(|warning| WARNINGS.lock().expect("whole").push(warning.into()));
    let mut save = |switches| {
        store.save(&app("a"), &profile(switches));
        store.flush().is_ok()
    };
    assert!(save(1));
    assert_eq!(said(), Vec::<String>::new());
    // Where the new one is to be written there is a directory.
    let obstacle = a_profile_of(&directory).with_extension("new");
    for round in 1..=2 {
        std::fs::create_dir(&obstacle).expect("made");
        assert!(!save(2));
        assert!(!save(3));
        assert_eq!(said().len(), round, "{:?}", said());
        assert!(said()[0].contains("not kept") && said()[0].contains("Is a directory"));
        std::fs::remove_dir(&obstacle).expect("removed");
        assert!(save(4));
    }
}

#[test]
fn no_damage_to_a_profile_is_taken_for_a_profile_or_panics() {
    let directory = Directory::new();
    let (mut store, _) = Store::open(&directory.0).expect("open");
    store.save(&app("a"), &profile(1));
    store.save_launch(&app("a"), &launch_state());
    let whole = store.export(&app("a")).expect("export");
    assert_eq!(decode(&whole).expect("whole").app, app("a"));
    for cut in 0..whole.len().min(200) {
        assert!(decode(&whole[..cut]).is_err(), "cut at {cut}");
    }
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 1 << (position % 8);
        assert!(decode(&damaged).is_err(), "flipped at {position}");
    }
    // Damage that the checksum does not show: a forged one.
    let facts = LaunchFacts {
        changed_files: &[],
        is_rotational: false,
        limits: PlanLimits {
            page_bytes: 4096,
            call_bytes_max: 1 << 20,
        },
    };
    let (mut random, mut decoded) = (Lcg(1), 0);
    for _ in 0..20_000 {
        let mut forged = whole.clone();
        for _ in 0..3 {
            let len = (forged.len() - PROFILE_AT) as u64;
            forged[PROFILE_AT + random.below(len) as usize] = random.below(256) as u8;
        }
        let crc = crc32fast::hash(&forged[PROFILE_AT..]);
        forged[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        if let Ok(mut stored) = decode(&forged) {
            decoded += 1;
            assert!(stored.profile.is_valid() && stored.launch.is_valid());
            begin(&mut stored.launch, &facts, &LaunchParams::default());
            assert!(stored.launch.is_valid());
        }
    }
    assert!(decoded > 0, "none passed the checksum");
    let error = store
        .import(b"PREPAGE\x0cwhatever")
        .expect_err("another version");
    assert!(error.to_string().contains("for format 11"), "{error}");
    assert_eq!(store.list().len(), 1);
}

#[test]
fn a_store_that_was_killed_opens_with_the_last_complete_state() {
    if std::env::var_os("PREPAGE_TEST_STORE").is_some() {
        write_until_killed();
    }
    let directory = Directory::new();
    let mut last = 0;
    for round in 1..=5 {
        let mut writer = std::process::Command::new(std::env::current_exe().expect("own path"))
            .args([
                "store::a_store_that_was_killed_opens_with_the_last_complete_state",
                "--exact",
            ])
            .env("PREPAGE_TEST_STORE", &directory.0)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("run the test binary again");
        prepage_kernel::sched::sleep_us(40_000 + round * 7_000);
        writer.kill().expect("kill");
        writer.wait().expect("reap");
        let (store, warnings) = Store::open(&directory.0).expect("open after a kill");
        assert!(warnings.is_empty(), "{warnings:?}");
        let switches = store.load(&app("a")).map_or(0, |s| s.profile.switches);
        assert!(switches >= last, "went back from {last} to {switches}");
        last = switches;
    }
    assert!(last > 0, "nothing was ever kept");
}

fn write_until_killed() -> ! {
    let directory = std::env::var_os("PREPAGE_TEST_STORE").expect("asked");
    let (mut store, _) = Store::open(directory.as_ref()).expect("open");
    let mut switches = store.load(&app("a")).map_or(0, |s| s.profile.switches);
    loop {
        switches += 1;
        store.save(&app("a"), &profile(switches));
        store.flush().expect("kept");
    }
}

/// What is ready for a launch that is to read so many pages of a file.
fn ready(pages: u64) -> ReadyLaunch {
    let plan = LaunchPlan {
        files: vec![FileId {
            path: "/usr/bin/a".into(),
            device: (254, 0),
            inode: 7,
            size: 1 << 20,
            mtime_ns: 1,
        }],
        reads: vec![PlannedRead {
            file: 0,
            extent: Extent::new(0, pages),
        }],
        ..LaunchPlan::default()
    };
    let decision = Decision {
        prefetch: Some(Arc::new(plan)),
        ..Decision::default()
    };
    let ready = ReadyLaunch::of(&decision, &FetchParams::default(), &LaunchParams::default());
    ready.expect("helped, and neither recorded nor held out")
}

#[test]
fn what_is_ready_is_there_for_the_next_launch_and_gone_with_the_next_change() {
    let directory = Directory::new();
    let app = app("/usr/bin/a");
    let change = |ready: Option<ReadyLaunch>| {
        let wait_max = std::time::Duration::from_secs(1);
        let changed = single::change_launch(&directory.0, &app, wait_max, |state| {
            state.launches += 1;
            ready
        });
        assert!(matches!(changed, Ok(None)), "{changed:?}");
    };
    let next = || single::next_launch(&directory.0, &app, true);
    assert_eq!(next(), Next::Undecided, "nothing is known");
    change(Some(ready(16)));
    assert_eq!(next(), Next::Ready(Box::new(ready(16))));
    assert_eq!(next(), Next::Ready(Box::new(ready(16))), "looked at again");
    let state = single::read_launch(&directory.0, &app).expect("whole");
    assert_eq!(state.launches, 1);
    // No damage of it is taken for what is ready, nor the profile for whole.
    let path = a_profile_of(&directory);
    let whole = std::fs::read(&path).expect("read");
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 1 << (position % 8);
        std::fs::write(&path, &damaged).expect("written");
        assert!(decode(&damaged).is_err(), "flipped at {position}");
        let next = next();
        let is_as_it_was = next == Next::Ready(Box::new(ready(16)));
        assert!(
            next == Next::Undecided || is_as_it_was,
            "flipped at {position}: {next:?}"
        );
    }
    for cut in 0..whole.len().min(64) {
        std::fs::write(&path, &whole[..cut]).expect("written");
        assert_eq!(next(), Next::Undecided, "cut at {cut}");
    }
    // Forged: whatever passes the checksum may be anything, and is bounded.
    let len = u32::from_le_bytes(whole[20..24].try_into().expect("four")) as usize;
    for position in PROFILE_AT..PROFILE_AT + len {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut forged = whole.clone();
            forged[position] = value;
            let crc = crc32fast::hash(&forged[PROFILE_AT..PROFILE_AT + len]);
            forged[24..28].copy_from_slice(&crc.to_le_bytes());
            std::fs::write(&path, &forged).expect("written");
            let _ = next();
        }
    }
    std::fs::write(&path, &whole).expect("written");
    change(None);
    assert_eq!(next(), Next::Undecided);
    // A service decides by itself: what it keeps has nothing ready.
    change(Some(ready(8)));
    let (mut store, _) = Store::open(&directory.0).expect("open");
    store.save(&app, &profile(1));
    store.flush().expect("kept");
    assert_eq!(next(), Next::Undecided);
}

#[test]
fn what_is_helped_or_held_out_and_not_recorded_is_ready() {
    let (fetch, params) = (FetchParams::default(), LaunchParams::default());
    let is_ready = |decision: Decision| ReadyLaunch::of(&decision, &fetch, &params).is_some();
    let prefetch = |start| {
        let plan = LaunchPlan {
            start,
            ..LaunchPlan::default()
        };
        Some(Arc::new(plan))
    };
    let helped = Decision {
        prefetch: prefetch(LaunchStart::Together),
        ..Decision::default()
    };
    assert!(is_ready(helped.clone()));
    assert!(!is_ready(Decision::default()));
    assert!(!is_ready(Decision {
        records: true,
        ..helped.clone()
    }));
    let held_out = Decision {
        is_held_out: true,
        ..Decision::default()
    };
    assert!(is_ready(held_out.clone()));
    assert!(!is_ready(Decision {
        records: true,
        ..held_out
    }));
    assert!(!is_ready(Decision {
        prefetch: prefetch(LaunchStart::Before),
        ..helped
    }));
}

#[test]
fn an_application_that_is_left_alone_is_counted_down_in_place() {
    let directory = Directory::new();
    let app = app("/usr/bin/small");
    let wait_max = std::time::Duration::from_secs(1);
    let begun = single::change_launch(&directory.0, &app, wait_max, |state| {
        state.phase = Phase::Off(OffReason::TooSmall);
        (state.retry_left, state.launches) = (3, 10);
        None
    });
    assert!(matches!(begun, Ok(None)), "{begun:?}");
    let is_left_alone = || single::next_launch(&directory.0, &app, true) == Next::LeftAlone;
    assert!(is_left_alone());
    let read = || single::read_launch(&directory.0, &app).expect("whole");
    assert_eq!((read().retry_left, read().launches), (2, 11));
    {
        // A service counts on, and so does who comes after it.
        let (mut store, warnings) = Store::open(&directory.0).expect("open");
        assert!(warnings.is_empty(), "{warnings:?}");
        let locked = single::change_launch(&directory.0, &app, Default::default(), |_| None);
        assert!(
            matches!(locked, Err(Error::StoreLocked { .. })),
            "{locked:?}"
        );
        assert!(store.pass_launch(&app));
        assert!(!store.pass_launch(&app), "it is learned anew");
    }
    assert_eq!((read().retry_left, read().launches), (1, 12));
    assert!(!is_left_alone());
    assert_eq!(read().retry_left, 1, "that launch was not counted");
}
