//! The records of processes: fork, exec, mapped files, exit.

use prepage_kernel::exec_trace::ExecTrace;
use prepage_kernel::perf::{TracepointRings, Wakeup};
use prepage_kernel::process::own_pid;
use prepage_kernel::task_events::{TaskEvent, TaskRings};
use prepage_kernel::testing::machine::{Machine, eventually, is_readable};
use prepage_kernel::tracefs::Tracefs;
use prepage_kernel::{clock, sched};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

#[derive(Debug, PartialEq)]
enum Seen {
    Fork(i32),
    Exec(String),
    Map(String, u64),
    Exit,
}

fn drain(rings: &mut TaskRings) -> Vec<(u64, i32, i32, Seen)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut seen = Vec::new();
    let drained = rings.drain(|record| {
        let what = match record.event {
            TaskEvent::Fork { parent_pid } => Seen::Fork(parent_pid),
            TaskEvent::Exec { comm } => Seen::Exec(text(comm)),
            TaskEvent::Exit => Seen::Exit,
            TaskEvent::Map { path, inode, .. } => Seen::Map(text(path), inode),
        };
        seen.push((record.time_ns, record.pid, record.tid, what));
    });
    assert_eq!((drained.lost, drained.malformed, drained.full), (0, 0, 0));
    assert_eq!(drained.samples, seen.len() as u64);
    seen.sort_by_key(|&(time_ns, ..)| time_ns);
    seen
}

#[test]
fn a_launch_shows_with_its_processes_and_mapped_files() {
    let _machine = Machine::lock();
    let cpus = sched::online_cpus().expect("CPUs");
    let mut rings = TaskRings::open(&cpus, 128, Wakeup::Bytes(1 << 16))
        .expect("these tests need system-wide perf events");
    rings.enable().expect("enable");
    let before = clock::monotonic_ns();
    let mut child = Command::new("/bin/sh")
        .args(["-c", "/bin/true; exit 0"])
        .spawn()
        .expect("run a shell");
    child.wait().expect("wait");
    let after = clock::monotonic_ns();
    rings.disable().expect("disable");
    let seen = drain(&mut rings);
    let shell = child.id() as i32;
    let of = |pid: i32| {
        let events = seen.iter().filter(move |&&(_, of, ..)| of == pid);
        events.map(|(_, _, _, what)| what).collect::<Vec<_>>()
    };
    let name = std::fs::canonicalize("/bin/sh").expect("a shell");
    let inode = std::fs::metadata(&name).expect("stat").ino();
    let name = name.to_string_lossy().into_owned();
    let events = of(shell);
    let own = own_pid();
    assert_eq!(events[0], &Seen::Fork(own), "{events:?}");
    assert_eq!(events[1], &Seen::Exec("sh".to_owned()), "{events:?}");
    let mapped = Seen::Map(name, inode);
    let times = events.iter().filter(|&&event| *event == mapped).count();
    assert!(times > 1, "its text, and what is only read: {events:?}");
    assert_eq!(events.last(), Some(&&Seen::Exit), "{events:?}");
    let child_of_shell = seen.iter().find(|(.., what)| *what == Seen::Fork(shell));
    let &(_, pid, tid, _) = child_of_shell.expect("the shell runs another program");
    assert_eq!(pid, tid, "a process, not a thread");
    assert!(of(pid).contains(&&Seen::Exec("true".to_owned())));
    let times = seen.iter().filter(|&&(_, of, ..)| of == shell || of == pid);
    for (time_ns, ..) in times {
        assert!(
            (before..after).contains(time_ns),
            "CLOCK_MONOTONIC: {time_ns}"
        );
    }
}

#[test]
fn an_exec_wakes_the_reader_with_its_path_and_nothing_else_does() {
    let _machine = Machine::lock();
    let trace = ExecTrace::find(&Tracefs::open().expect("tracefs")).expect("format");
    let cpus = sched::online_cpus().expect("CPUs");
    let mut rings = TracepointRings::open(&[trace.event_id()], &cpus, 16, Wakeup::Events(1))
        .expect("these tests need system-wide perf events");
    rings.enable().expect("enable");
    let before = clock::monotonic_ns();
    let mut child = Command::new("/bin/true").spawn().expect("run a program");
    eventually("a ring is readable", || is_readable(rings.fds()));
    child.wait().expect("wait");
    // It has no exec to tell of.
    let missing = Command::new("/bin/no such program").spawn();
    assert!(missing.is_err());
    let after = clock::monotonic_ns();
    rings.disable().expect("disable");
    let (own, started) = (own_pid(), child.id() as i32);
    let mut paths = Vec::new();
    rings.drain(|sample| {
        let exec = trace.decode(sample.event_id, sample.raw);
        assert_ne!(sample.pid, own, "we did not exec");
        if sample.pid == started {
            assert!((before..after).contains(&sample.time_ns));
            paths.push(exec.expect("nothing else was asked for").path.to_vec());
        }
    });
    assert_eq!(paths, [b"/bin/true".to_vec()]);
}
