//! Launches that were decided ahead.

use crate::launch_rig::{cached, pages, plan, prefetched};
use prepage_core::launch::manager::{Decision, Help};
use prepage_core::launch::recording::LaunchEnd;
use prepage_core::params::launch::LaunchParams;
use prepage_engine::{Accompanied, FetchParams, ReadyLaunch};
use prepage_kernel::Process;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::drop_cache;
use std::path::Path;

fn ready(file: &Path, t_timeout_ms: u64) -> ReadyLaunch {
    let decision = prefetched(plan(&[(file, 8, 16), (file, 40, 4)], Vec::new()));
    let params = LaunchParams {
        t_timeout_ms,
        ..LaunchParams::default()
    };
    ReadyLaunch::of(&decision, &FetchParams::default(), &params).expect("helped")
}

fn accompany(ready: ReadyLaunch, root: Option<&Process>, executes: bool) -> Option<Accompanied> {
    let accompanied = ready.accompany(root, monotonic_ns(), || executes);
    accompanied.expect("it sees its own root directory")
}

#[test]
fn what_is_ready_is_fetched_and_the_end_of_the_process_seen() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let file = directory.file("file", 64);
    drop_cache(&file);
    let mut child = Child::spawn(1);
    let process = Process::open(child.pid()).expect("lives");
    let ready = ready(&file, 30_000);
    let launch = std::thread::scope(|scope| {
        let beside = scope.spawn(|| accompany(ready, Some(&process), true));
        eventually("all is fetched", || {
            cached(&file) == pages(&[(8, 16), (40, 4)])
        });
        assert!(!beside.is_finished(), "the process has not ended");
        child.kill();
        beside.join().expect("whole")
    });
    let launch = launch.expect("it was executed");
    let prefetch = launch.prefetch.expect("helped");
    assert_eq!((launch.end, prefetch.pages), (LaunchEnd::Exit, 20));
    assert!(prefetch.completed_us <= Some(launch.launch_us));
    assert!(launch.stale_files.is_empty());
    let result = launch.into_result(7);
    assert_eq!(
        (result.measured.help, result.measured.device_pages),
        (Help::Helped, 20)
    );
    assert!(result.recording.is_none());
}

#[test]
fn what_is_held_out_is_left_to_itself_and_shows_what_the_device_reads() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let file = directory.file("file", 64);
    drop_cache(&file);
    // What is gone at once, nobody sees reading.
    let run = format!("cat {}; sleep 0.1", file.display());
    let held = HeldCommand::new(&["bash", "-c", &run]);
    let pid = held.pid();
    let process = Process::open(pid).expect("lives");
    let held_out = Decision {
        is_held_out: true,
        ..Decision::default()
    };
    let params = LaunchParams::default();
    let ready = ReadyLaunch::of(&held_out, &FetchParams::default(), &params).expect("held out");
    let launch = std::thread::scope(|scope| {
        // It counts by the time that it waits for the exec.
        let (counts, counting) = std::sync::mpsc::channel();
        let process = &process;
        let beside = scope.spawn(move || {
            let wait_exec = || counts.send(()).is_ok();
            ready.accompany(Some(process), monotonic_ns(), wait_exec)
        });
        counting.recv().expect("it counts");
        assert_eq!(held.run().1, 0);
        beside.join().expect("whole")
    });
    let launch = launch.expect("it needs nothing").expect("it was executed");
    assert_eq!((launch.end, &launch.prefetch), (LaunchEnd::Exit, &None));
    let measured = launch.into_result(7).measured;
    assert_eq!(measured.help, Help::HeldOut);
    assert!(measured.device_pages >= 64, "{measured:?}");
}

#[test]
fn what_was_not_executed_is_no_launch_and_what_never_ends_times_out() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let file = directory.file("file", 64);
    let child = Child::spawn(1);
    let process = Process::open(child.pid()).expect("lives");
    assert_eq!(accompany(ready(&file, 30_000), Some(&process), false), None);
    let launch = accompany(ready(&file, 50), Some(&process), true).expect("it was executed");
    assert_eq!(launch.end, LaunchEnd::Timeout);
    // Nobody saw when it was idle: its length says nothing.
    let help = launch.into_result(0).measured.help;
    assert_eq!(help, Help::None);
    // Gone before anybody looked.
    let launch = accompany(ready(&file, 30_000), None, true).expect("it was executed");
    assert_eq!(launch.end, LaunchEnd::Exit);
}

#[test]
fn files_that_changed_are_not_read_and_said() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    let file = directory.file("file", 64);
    let ready = ready(&file, 30_000);
    std::fs::write(&file, vec![1; 64 * 4096]).expect("written");
    std::fs::File::open(&file)
        .and_then(|file| file.sync_all())
        .expect("on disk");
    drop_cache(&file);
    let mut child = Child::spawn(1);
    let process = Process::open(child.pid()).expect("lives");
    let launch = std::thread::scope(|scope| {
        let beside = scope.spawn(|| accompany(ready, Some(&process), true));
        prepage_kernel::sched::sleep_us(100_000);
        child.kill();
        beside.join().expect("whole")
    });
    let launch = launch.expect("it was executed");
    let fetched = launch.prefetch.expect("helped").pages;
    assert_eq!((launch.stale_files.len(), fetched), (1, 0));
    assert_eq!(cached(&file), pages(&[]));
}
