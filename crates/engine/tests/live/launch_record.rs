//! Recording launches.

use crate::launch_rig::{
    LaunchRig, WAIT_MAX, accesses, as_nobody, cached, launch, pages, plan, prefetched, recorded,
};
use crate::rig::needs_access_reports;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::launch::blocks::BlockKind;
use prepage_core::launch::manager::{Decision, Help};
use prepage_core::launch::recording::{CallKind, FILES_MAX, Issuer, LaunchEnd, Recording, Source};
use prepage_core::params::launch::LaunchParams;
use prepage_engine::EngineParams;
use prepage_engine::launch::LAUNCHES_MAX;
use prepage_kernel::page::page_size;
use prepage_kernel::readahead::readahead;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::drop_cache;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Records what a child does.
fn record(rig: &LaunchRig, child: &mut Child, work: impl FnOnce(&mut Child)) -> Recording {
    rig.begin(1, child.pid(), recorded());
    work(child);
    rig.launches.settled(1);
    let result = rig.result();
    assert_eq!(result.measured.end, LaunchEnd::Settled);
    let recording = result.recording.expect("recorded");
    assert!(recording.is_usable(), "{} lost", recording.events_lost);
    recording
}

#[test]
fn cold_and_warm_launches_show_the_same_first_accesses() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let (read, mapped) = (directory.file("read", 256), directory.file("mapped", 256));
    let rig = LaunchRig::new();
    let mut child = Child::spawn(1);
    let work = |child: &mut Child| {
        child.tell_file("readfile", &read, 100, 10);
        child.tell_file("mapfile", &mapped, 64, 32);
        child.tell_file("readfile", &read, 8, 4);
    };
    // A mapping keeps its pages in memory: cold comes first.
    drop_cache(&read);
    drop_cache(&mapped);
    let cold = record(&rig, &mut child, work);
    let warm = record(&rig, &mut child, work);
    for (recording, is_cold) in [(&cold, true), (&warm, false)] {
        let seen = accesses(recording, &directory.0);
        let in_order = joined(&seen);
        let names: Vec<&str> = in_order.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["read", "mapped", "read"], "{seen:?}");
        assert_eq!(in_order[0].1, pages(&[(100, 10)]));
        assert_eq!(in_order[2].1, pages(&[(8, 4)]));
        // From 6.18 on a fault that waits for a large folio maps all of it and reports one page.
        let mapped = &in_order[1].1;
        assert!(
            mapped.difference(&pages(&[(64, 32)])).is_empty() && mapped.pages() >= 16,
            "{seen:?}"
        );
        assert_eq!(seen[0].2, is_cold, "{seen:?}");
        assert!(is_cold || seen.iter().all(|(.., is_demanded)| !is_demanded));
        assert_eq!(recording.source, Source::Accesses);
    }
}

/// Pages that a recording is certain of, and those that it is not.
fn certain_and_not(recording: &Recording, path: &Path) -> (ExtentSet, ExtentSet) {
    let path = path.to_str().expect("text");
    let of_file = |is_certain: bool| {
        let of_file = recording.accesses.iter().filter(|access| {
            &*recording.files[access.file as usize].path == path && access.is_certain == is_certain
        });
        of_file.map(|access| access.extent).collect()
    };
    (of_file(true), of_file(false))
}

#[test]
fn of_the_pages_that_a_fault_finds_in_memory_and_maps_none_is_certain() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let rig = LaunchRig::new();
    let mut child = Child::spawn(1);
    // Now and then the kernel finds a folio locked and maps the accessed page alone.
    let maps_more = (0..TRIES_MAX).any(|number| {
        let path = directory.file(&format!("mapped-{number}"), 256);
        drop_cache(&path);
        child.tell_file("readfile", &path, 0, 256);
        let recording = record(&rig, &mut child, |child| {
            child.tell_file("mapone", &path, 64, 33);
        });
        let (certain, perhaps) = certain_and_not(&recording, &path);
        assert!(certain.is_empty(), "{certain:?}");
        assert!(perhaps.contains(80), "{perhaps:?}");
        let around = pages(&[(64, 32)]);
        assert!(perhaps.difference(&around).is_empty(), "{perhaps:?}");
        assert!(perhaps.pages() <= 16, "{perhaps:?}");
        perhaps.pages() > 1
    });
    assert!(maps_more, "nothing was mapped around it");
}

/// Tries of what the kernel does not do every time.
const TRIES_MAX: u32 = 20;

#[test]
fn pages_that_are_not_in_memory_are_not_mapped_along() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let (path, late) = (directory.file("absent", 256), directory.file("late", 256));
    let fetch_one = |path: &Path| {
        drop_cache(path);
        let file = File::open(path).expect("open");
        readahead(file.as_fd(), 80 * page_size(), page_size()).expect("readahead");
        eventually("the page is there", || cached(path) == pages(&[(80, 1)]));
    };
    fetch_one(&path);
    fetch_one(&late);
    let rig = LaunchRig::new();
    let mut child = Child::spawn(1);
    let recording = record(&rig, &mut child, |child| {
        child.tell_file("mapone", &path, 64, 33);
        child.tell_file("mapone", &late, 64, 33);
        // Read in after the fault: they were not mapped by it.
        child.tell_file("readfile", &late, 81, 1);
        let file = File::open(&late).expect("open");
        readahead(file.as_fd(), 70 * page_size(), 30 * page_size()).expect("readahead");
        eventually("the pages are there", || cached(&late).pages() >= 30);
    });
    let (certain, perhaps) = certain_and_not(&recording, &path);
    assert_eq!((certain, perhaps), (ExtentSet::new(), pages(&[(80, 1)])));
    let (certain, perhaps) = certain_and_not(&recording, &late);
    assert_eq!((certain, perhaps), (pages(&[(81, 1)]), pages(&[(80, 1)])));
}

/// Without demand: the pages of a file that follow each other are one set.
fn joined(accesses: &[(String, Extent, bool)]) -> Vec<(String, ExtentSet)> {
    let mut joined: Vec<(String, ExtentSet)> = Vec::new();
    for (name, extent, _) in accesses {
        let new = ExtentSet::from(vec![*extent]);
        match joined.last_mut() {
            Some((last, known)) if last == name => *known = known.union(&new),
            _ => joined.push((name.clone(), new)),
        }
    }
    joined
}

#[test]
fn children_belong_to_the_launch_and_strangers_do_not() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let files = ["first", "second", "third", "strange"].map(|name| directory.file(name, 8));
    let rig = LaunchRig::new();
    let mut stranger = Child::spawn(1);
    let script =
        r#"cat "$1" >/dev/null; (cat "$2" >/dev/null & sh -c 'cat "$1" >/dev/null' x "$3"; wait)"#;
    let paths = files.each_ref().map(|path| path.to_str().expect("text"));
    let held = HeldCommand::new(&["sh", "-c", script, "x", paths[0], paths[1], paths[2]]);
    rig.begin(1, held.pid(), recorded());
    stranger.tell_file("readfile", &files[3], 0, 8);
    held.run();
    stranger.tell_file("readfile", &files[3], 0, 8);
    let result = rig.result();
    assert_eq!(result.measured.end, LaunchEnd::Exit);
    let recording = result.recording.expect("recorded");
    let seen = accesses(&recording, &directory.0);
    let mut names: Vec<&str> = seen.iter().map(|(name, ..)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "second", "third"], "{seen:?}");
    assert!(
        seen.iter()
            .all(|(_, extent, _)| *extent == Extent::new(0, 8))
    );
    let files = recording.files.iter().map(|file| &*file.path);
    assert!(files.clone().any(|path| path.contains("libc.so")), "mapped");
    assert!(files.clone().any(|path| path.ends_with("/cat")), "executed");
    let mut opened = recording
        .calls
        .iter()
        .filter(|call| call.kind == CallKind::Open);
    assert!(opened.any(|call| *call.path == *paths[1]), "seen opened");
    assert!(!recording.is_path_profile);
}

/// As where a set-uid program reads what its user may not.
#[test]
fn what_its_user_may_not_see_is_not_in_a_recording() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let (open, secret) = (directory.file("open", 8), directory.file("secret", 8));
    let below = directory.path("private/below");
    std::fs::create_dir(directory.path("private")).expect("mkdir");
    std::fs::write(&below, b"x").expect("write");
    let only_root = |path: &Path, mode| {
        rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode)).expect("chmod");
    };
    only_root(&secret, 0o400);
    only_root(&directory.path("private"), 0o700);
    let rig = LaunchRig::new();
    let paths = [&open, &secret, &below].map(|path| path.to_str().expect("text"));
    let held = HeldCommand::new(&["cat", paths[0], paths[1], paths[2]]);
    let launch = as_nobody(launch(1, held.pid(), recorded()));
    rig.launches.begin(launch);
    held.run();
    let result = rig.result();
    let recording = result.recording.expect("recorded");
    let seen = accesses(&recording, &directory.0);
    assert_eq!(joined(&seen), [("open".into(), pages(&[(0, 8)]))]);
    assert!(result.unresolved_pages >= 9);
    let calls = recording.calls.iter().map(|call| &*call.path);
    let called: Vec<&str> = calls.filter(|path| paths.contains(path)).collect();
    assert_eq!(
        called,
        paths[..2],
        "a file may be seen that may not be read"
    );
    let map = result.block_map.expect("made");
    let has = |name: &str| map.files().iter().any(|file| file.path.ends_with(name));
    assert!(has("/open") && !has("/secret") && !has("/private"));
}

#[test]
fn a_traced_launch_shows_every_path_it_tries() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let there = directory.file("there", 4);
    let missing = directory.path("missing");
    let rig = LaunchRig::new();
    let paths = [&there, &missing].map(|path| path.to_str().expect("text"));
    let held = HeldCommand::new(&[
        "sh",
        "-c",
        r#"test -e "$2"; cat "$1""#,
        "x",
        paths[0],
        paths[1],
    ]);
    rig.begin_traced(1, held.pid());
    let (output, status) = held.run();
    assert_eq!((output.len(), status), (4 * 4096, 0));
    let recording = rig.result().recording.expect("recorded");
    assert!(recording.is_path_profile);
    let call = |path: &str| recording.calls.iter().find(|call| *call.path == *path);
    assert!(call(paths[0]).is_some_and(|call| call.is_found && call.kind == CallKind::Open));
    assert!(call(paths[1]).is_some_and(|call| !call.is_found && call.kind == CallKind::Stat));
    assert!(
        !recording
            .calls
            .iter()
            .any(|call| call.path.starts_with("/proc/"))
    );
}

#[test]
fn a_launch_ends_in_four_ways() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let path = directory.file("read", 64);
    let params = LaunchParams {
        t_idle_ms: 300,
        t_timeout_ms: 900,
        ..LaunchParams::default()
    };
    let rig = LaunchRig::with(&EngineParams::default(), &params);
    let mut child = Child::spawn(1);
    rig.begin(1, child.pid(), recorded());
    child.tell_file("readfile", &path, 0, 64);
    let idle = rig.result();
    assert_eq!(idle.measured.end, LaunchEnd::Idle);
    assert!(
        idle.measured.launch_us.expect("known") < 900_000 - 300_000,
        "{:?}",
        idle.measured
    );
    rig.begin(2, child.pid(), Decision::default());
    let unseen = rig.result();
    assert_eq!(unseen.measured.end, LaunchEnd::Timeout);
    assert!(unseen.recording.is_none());
    rig.begin(3, child.pid(), recorded());
    rig.launches.settled(3);
    assert_eq!(rig.result().measured.end, LaunchEnd::Settled);
    rig.begin(4, child.pid(), recorded());
    let is_held_out = true;
    let held_out = Decision {
        is_held_out,
        ..Decision::default()
    };
    rig.begin(5, child.pid(), held_out);
    child.kill();
    for result in rig.results(2) {
        assert_eq!(result.measured.end, LaunchEnd::Exit);
        let expected = [Help::None, Help::HeldOut][usize::from(result.id == 5)];
        assert_eq!(result.measured.help, expected);
    }
    rig.begin(6, child.pid(), recorded());
    assert_eq!(rig.result().measured.end, LaunchEnd::Exit, "it was gone");
}

#[test]
fn as_many_launches_as_are_bounded_are_told_apart() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let mut params = EngineParams::default();
    params.observe.file_ring_pages = 1_024;
    let rig = LaunchRig::with(&params, &LaunchParams::default());
    let held: Vec<(HeldCommand, String)> = (0..LAUNCHES_MAX + 1)
        .map(|number| {
            let name = format!("file{number}");
            let path = directory.file(&name, 2);
            (
                HeldCommand::new(&["cat", path.to_str().expect("text")]),
                name,
            )
        })
        .collect();
    for (id, (held, _)) in (0..).zip(&held) {
        rig.begin(id, held.pid(), recorded());
    }
    let (held, names): (Vec<HeldCommand>, Vec<String>) = held.into_iter().unzip();
    let running: Vec<_> = held.into_iter().map(HeldCommand::release).collect();
    for command in running {
        assert_eq!(command.finish().1, 0);
    }
    for result in rig.results(LAUNCHES_MAX + 1) {
        let recording = match (result.id as usize, result.recording) {
            (LAUNCHES_MAX, recording) => {
                assert!(recording.is_none(), "more than are bounded");
                continue;
            }
            (_, recording) => recording.expect("recorded"),
        };
        assert!(recording.is_usable(), "{} lost", recording.events_lost);
        let seen = accesses(&recording, &directory.0);
        let expected = (names[result.id as usize].clone(), pages(&[(0, 2)]));
        assert_eq!(joined(&seen), [expected]);
    }
}

#[test]
fn a_full_ring_is_counted() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("read", 4_096);
    let mut params = EngineParams::default();
    params.observe.file_ring_pages = 1;
    let rig = LaunchRig::with(&params, &LaunchParams::default());
    // More processes than cores: now and then the recording thread has to wait.
    let script = r#"for n in 1 2 3 4 5 6; do cat "$1" "$1" "$1" "$1" >/dev/null & done; wait"#;
    let held = HeldCommand::new(&["sh", "-c", script, "x", path.to_str().expect("text")]);
    rig.begin(1, held.pid(), recorded());
    held.run();
    let recording = rig.result().recording.expect("recorded");
    assert!(
        !recording.is_usable(),
        "{} accesses",
        recording.accesses.len()
    );
}

/// The kernel keeps so many openings that nobody has taken (fs.fanotify.max_queued_events).
const OPENINGS_KEPT: usize = 16_384;

#[test]
fn openings_that_are_lost_count_where_a_file_is_without_a_name_for_it() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let late = directory.file("late", 8);
    let many = directory.path("many");
    std::fs::create_dir(&many).expect("mkdir");
    for number in 0..OPENINGS_KEPT + 1_000 {
        std::fs::write(many.join(number.to_string()), b"").expect("write");
    }
    // So that nobody takes what was opened before the end.
    let mut engine = EngineParams::default();
    engine.observe.file_ring_pages = 4_096;
    let params = LaunchParams {
        t_idle_ms: 20_000,
        ..LaunchParams::default()
    };
    let rig = LaunchRig::with(&engine, &params);
    let paths = [&many, &late].map(|path| path.to_str().expect("text"));
    let record = |id, then: &str| {
        let script = format!(r#"for file in "$1"/*; do : <"$file"; done; {then}"#);
        let held = HeldCommand::new(&["sh", "-c", &script, "x", paths[0], paths[1]]);
        rig.begin(id, held.pid(), recorded());
        assert_eq!(held.run().1, 0);
        let result = rig.result();
        let recording = result.recording.expect("recorded");
        (result.unresolved_pages, recording.is_usable())
    };
    drop_cache(&late);
    let (unresolved_pages, is_usable) = record(1, r#"cat "$2" >/dev/null"#);
    assert!(unresolved_pages >= 8, "{unresolved_pages}");
    assert!(!is_usable);
    // What was opened first has its name.
    let (unresolved_pages, is_usable) = record(2, ":");
    assert_eq!(is_usable, unresolved_pages == 0);
}

#[test]
fn insertions_are_recorded_where_the_kernel_reports_no_access() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("read", 64);
    let mut params = EngineParams::default();
    params.observe.access_events = false;
    let rig = LaunchRig::with(&params, &LaunchParams::default());
    let mut child = Child::spawn(1);
    drop_cache(&path);
    let read = |child: &mut Child| {
        child.tell_file("readfile", &path, 16, 4);
    };
    let cold = record(&rig, &mut child, read);
    assert_eq!(cold.source, Source::Insertions);
    let seen = accesses(&cold, &directory.0);
    assert!(
        seen.iter()
            .any(|(_, extent, is_demanded)| *is_demanded && extent.contains(16))
    );
    let warm = record(&rig, &mut child, read);
    assert_eq!(accesses(&warm, &directory.0), [], "nothing was inserted");
}

#[test]
fn nobody_knows_how_long_an_idle_launch_took_where_the_kernel_reports_no_access() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let path = directory.file("read", 64);
    let mut params = EngineParams::default();
    params.observe.access_events = false;
    let launch = LaunchParams {
        t_idle_ms: 300,
        ..LaunchParams::default()
    };
    let rig = LaunchRig::with(&params, &launch);
    let mut child = Child::spawn(1);
    drop_cache(&path);
    let decision = Decision {
        records: true,
        ..prefetched(plan(&[(&path, 0, 64)], Vec::new()))
    };
    rig.begin(1, child.pid(), decision);
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    // It inserts none of these pages.
    child.tell_file("readfile", &path, 0, 64);
    let helped = rig.result().measured;
    assert_eq!(helped.end, LaunchEnd::Idle);
    assert_eq!((helped.help, helped.launch_us), (Help::Helped, None));
}

#[test]
fn block_requests_lead_back_to_files() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let (ours, theirs) = (directory.file("ours", 128), directory.file("theirs", 128));
    let rig = LaunchRig::new();
    let mut child = Child::spawn(1);
    drop_cache(&ours);
    drop_cache(&theirs);
    let decision = Decision {
        records: true,
        ..prefetched(plan(&[(&ours, 0, 32)], Vec::new()))
    };
    // Events are on already: a prefetch does not wait for them, and its first requests would not be seen.
    let other = Child::spawn(1);
    rig.begin(0, other.pid(), recorded());
    rig.begin(1, child.pid(), decision);
    assert!(rig.launches.wait_prefetched(1, WAIT_MAX));
    child.tell_file("readfile", &theirs, 0, 128);
    child.tell_file("readfile", &ours, 0, 32);
    rig.launches.settled(1);
    let result = rig.result();
    let (recording, map) = (
        result.recording.expect("recorded"),
        result.block_map.expect("made"),
    );
    let who_read = |path: &Path| -> Vec<Issuer> {
        let reads = recording
            .requests
            .iter()
            .filter(|request| !request.is_write);
        let of_file = reads.filter(|request| {
            map.look_up(request).iter().any(|piece| {
                let content = piece.content.filter(|c| c.kind == BlockKind::File);
                let file = content.and_then(|content| content.file);
                file.is_some_and(|file| Path::new(&*map.files()[file as usize].path) == path)
            })
        });
        of_file.map(|request| request.issuer).collect()
    };
    // Whoever comes to the device next issues what waits there, others' requests too.
    assert!(!who_read(&ours).is_empty() && !who_read(&theirs).is_empty());
    assert!(result.measured.device_pages >= 32 + 128);
    let seen = accesses(&recording, &directory.0);
    let of = |name: &str| seen.iter().filter(|a| a.0 == name).all(|a| a.2);
    assert!(of("theirs") && !of("ours"), "{seen:?}");
    assert!(cached(&ours).pages() >= 32);
}

#[test]
fn files_are_recorded_up_to_the_bound() {
    /// A thousand more than the bound.
    const FILES: usize = FILES_MAX + 1_000;
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    for number in 0..FILES {
        std::fs::write(directory.path(&format!("{number:05}")), b"x").expect("write");
    }
    // So that no ring is full, however slowly it is emptied.
    let mut engine = EngineParams::default();
    engine.observe.file_ring_pages = 4_096;
    let rig = LaunchRig::with(&engine, &LaunchParams::default());
    let directory = directory.0.to_str().expect("text");
    let held = HeldCommand::new(&["sh", "-c", r#"exec cat "$1"/*"#, "x", directory]);
    rig.begin(1, held.pid(), recorded());
    let (output, _) = held.run();
    assert_eq!(output.len(), FILES);
    let recording = rig.result().recording.expect("recorded");
    let seen = accesses(&recording, Path::new(directory));
    // Those of the programs count as well. None is cut for its size: a read of a byte is one of 32 pages.
    let of_programs = recording
        .files
        .iter()
        .filter(|file| !Path::new(&*file.path).starts_with(directory))
        .count();
    assert_eq!(seen.len() + of_programs, FILES_MAX);
    assert!(seen.is_sorted_by_key(|(name, ..)| name.clone()));
    let left_out = recording.files_left_out;
    let counted = recording.files.len() as u64 + left_out;
    assert!(left_out >= 1_000 && counted >= FILES as u64, "{left_out}");
}
