//! The paths that a traced tree of processes asks for. What needs processes of our own making is in tests/launch.rs.

use prepage_kernel::path_calls::{PathCallKind, PathTracer, TraceEnd, Traced};
use prepage_kernel::support::Support;
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::{clock, process, sched};
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

type Call = (PathCallKind, String, bool);
type Calls = Arc<Mutex<Vec<Call>>>;

fn trace(pid: i32) -> (PathTracer, Calls) {
    let calls = Calls::default();
    let start_ns = clock::monotonic_ns();
    let tracer = PathTracer::start(pid, {
        let calls = Arc::clone(&calls);
        move |call| {
            assert!((start_ns..clock::monotonic_ns()).contains(&call.time_ns));
            let path = String::from_utf8_lossy(call.path).into_owned();
            let mut calls = calls.lock().expect("not poisoned");
            calls.push((call.kind, path, call.found));
        }
    });
    (tracer.expect("trace"), calls)
}

/// Runs a script of the shell, traced; its output, exit status and calls.
fn run(script: &str) -> (String, i32, Traced, Vec<Call>) {
    let held = HeldCommand::new(&["sh", "-c", script]);
    let (tracer, calls) = trace(held.pid());
    let (output, status) = held.run();
    let traced = tracer.wait().expect("trace");
    let calls = calls.lock().expect("not poisoned").clone();
    assert_eq!(traced.calls, calls.len() as u64);
    (output, status, traced, calls)
}

fn tracer_of(pid: i32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("TracerPid:"));
    line.map(|line| line["TracerPid:".len()..].trim().to_owned())
}

#[test]
fn all_paths_of_all_processes_are_seen_missing_ones_too() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    directory.file("present", 1);
    std::fs::create_dir(directory.path("sub")).expect("mkdir");
    directory.file("sub/inner", 1);
    symlink("present", directory.path("link")).expect("symlink");
    let root = directory.0.display();
    let script = format!(
        "cd {root}; cat present >/dev/null; cat missing; (cd sub; cat ../present/x); \
         readlink link; ls sub; du -a sub >/dev/null; no-such-program-here; exit 3"
    );
    let (output, status, traced, calls) = run(&script);
    assert_eq!((output.as_str(), status), ("present\ninner\n", 3));
    assert_eq!((traced.end, traced.unresolved), (TraceEnd::NobodyLeft, 0));
    let has = |kind, path: &str, found| {
        let call = (kind, path.to_owned(), found);
        assert!(calls.contains(&call), "{call:?} of {calls:#?}");
    };
    let inside = |name: &str| format!("{root}/{name}");
    has(PathCallKind::Stat, &root.to_string(), true);
    has(PathCallKind::Open, &inside("present"), true);
    has(PathCallKind::Open, &inside("missing"), false);
    // Not a directory: that does not exist either.
    has(PathCallKind::Open, &inside("sub/../present/x"), false);
    has(PathCallKind::ReadLink, &inside("link"), true);
    has(PathCallKind::ReadDir, &inside("sub"), true);
    // Relative to a descriptor of the directory.
    has(PathCallKind::Stat, &inside("sub/inner"), true);
    let missing = |(_, path, found): &Call| path.ends_with("/no-such-program-here") && !found;
    assert!(calls.iter().any(missing), "{calls:#?}");
    let executed = |name: &str| {
        let exec = |(kind, path, found): &Call| {
            *kind == PathCallKind::Exec && path.ends_with(name) && *found
        };
        assert!(calls.iter().any(exec), "{name} of {calls:#?}");
    };
    ["/sh", "/cat", "/readlink", "/ls", "/du"]
        .iter()
        .for_each(|name| executed(name));
}

#[test]
fn paths_of_sockets_are_seen_where_they_are_paths() {
    let script = format!(
        "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); \
         connect(S, pack_sockaddr_un($_)) for qw(./here /gone/socket), qq(\\0/abstract), q(x) x 108; \
         socket(I, PF_INET, SOCK_DGRAM, 0); connect(I, pack_sockaddr_in(12079, INADDR_LOOPBACK)); \
         print syscall({}, fileno(S), 0, 110)",
        libc::SYS_connect
    );
    let _machine = Machine::lock();
    let directory = Directory::new();
    let root = directory.0.display();
    let _socket = std::os::unix::net::UnixListener::bind(directory.path("here")).expect("bind");
    let (output, status, traced, calls) = run(&format!("cd {root}; perl -e '{script}'"));
    assert_eq!((output.as_str(), status), ("-1", 0));
    // The last has no address that can be read.
    assert_eq!(traced.unresolved, 1);
    for (path, found) in [
        (format!("{root}/./here"), true),
        ("/gone/socket".to_owned(), false),
        (format!("{root}/{}", "x".repeat(108)), false),
    ] {
        let call = (PathCallKind::Stat, path, found);
        assert!(calls.contains(&call), "{call:?} of {calls:#?}");
    }
    assert!(!calls.iter().any(|(_, path, _)| path.contains("abstract")));
}

/// Asked before anything is started: what waits for a later step of the test would wait forever.
fn needs_single_pages() {
    let fact = Support::probe().single_pages;
    assert!(
        fact.available,
        "this test needs x86-64 and UFFD_FEATURE_WP_ASYNC (6.7): {}",
        fact.detail
    );
}

/// The kernel maps no pages around a fault in a traced process, nor in what it starts or forks, and does again when it is let go.
#[test]
fn each_page_that_a_traced_process_accesses_shows() {
    /// Minor faults of a shell until here, of one that it starts, of one that it forks and of another when it has been let go.
    const SCRIPT: &str = "faults='read -r stat </proc/self/stat; set -- $stat; echo ${10}'; \
        eval \"$faults\"; sh -c \"$faults\"; ( ( eval \"$faults\" ) ); [ -z \"$STOP\" ] || until [ -e \"$STOP\" ]; do [ -e /no-such-file ]; done; sh -c \"$faults\"";
    let _machine = Machine::lock();
    needs_single_pages();
    let directory = Directory::new();
    let stop = directory.path("stop");
    let faults = |output: &str| -> Vec<u64> {
        let lines = output.lines().map(|line| line.parse().expect("a number"));
        lines.collect()
    };
    let (output, _) = HeldCommand::new(&["sh", "-c", SCRIPT]).run();
    let bare = faults(&output);
    let with_stop = format!("STOP={}; {SCRIPT}", stop.display());
    let held = HeldCommand::new(&["sh", "-c", &with_stop]);
    let (tracer, calls) = trace(held.pid());
    let running = held.release();
    let waits = |(_, path, _): &Call| path == "/no-such-file";
    eventually("it waits", || {
        calls.lock().expect("not poisoned").iter().any(waits)
    });
    tracer.detach().expect("detach");
    directory.file("stop", 1);
    let (output, status) = running.finish();
    assert_eq!(status, 0);
    let traced = faults(&output);
    for process in 0..3 {
        assert!(
            traced[process] > bare[process] * 3 / 2,
            "{traced:?} faults, {bare:?} without a tracer"
        );
    }
    assert!(traced[3] < bare[3] * 5 / 4, "{traced:?}, {bare:?}");
}

/// A process that is let go while others are traced maps pages around faults again: our copy of its descriptor is closed.
#[test]
fn of_a_process_that_is_let_go_no_descriptor_is_kept() {
    let _machine = Machine::lock();
    needs_single_pages();
    let directory = Directory::new();
    let [ask, stop] = ["ask", "stop"].map(|name| directory.path(name));
    let script = format!(
        "perl -e '$| = 1; sub wait_for {{ select(undef, undef, undef, 0.01) until -e $_[0] }} \
         print qq(traced\\n); wait_for(q({})); syscall({}, {}, 0, 0, 0); print qq(let go\\n); wait_for(q({}))'; echo over",
        ask.display(),
        libc::SYS_ptrace,
        libc::PTRACE_TRACEME,
        stop.display()
    );
    let descriptors = || {
        let own = std::fs::read_dir("/proc/self/fd").expect("own descriptors");
        let links = own.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let of_userfaultfd = links.filter(|link| link.ends_with("anon_inode:[userfaultfd]"));
        of_userfaultfd.count()
    };
    assert_eq!(descriptors(), 0);
    let held = HeldCommand::new(&["sh", "-c", &script]);
    let (tracer, _) = trace(held.pid());
    let mut running = held.release();
    assert_eq!(running.line(), "traced");
    assert_eq!(descriptors(), 2, "the shell's and perl's");
    std::fs::write(&ask, "").expect("write");
    assert_eq!(running.line(), "let go");
    eventually("perl's is closed", || descriptors() == 1);
    assert!(!tracer.is_over(), "the shell is still traced");
    std::fs::write(&stop, "").expect("write");
    assert_eq!(running.finish(), ("over\n".to_owned(), 0));
    assert_eq!(tracer.wait().expect("trace").end, TraceEnd::NobodyLeft);
    assert_eq!(descriptors(), 0);
}

/// A forked process begins with the stub, and notices nothing of it: no register that a compiler counts on, no byte of its stack.
#[test]
fn forked_processes_go_on_as_they_would() {
    const FORKED: u32 = 100;
    let script = format!(
        "my ($sum, $x) = (0, 0.1); for my $i (1..{FORKED}) {{ my $pid = fork(); \
         exit(sprintf(q(%.9f), $x * 3 + sqrt($i * $i)) eq sprintf(q(%.9f), $i + 0.3) && getppid() != $$ ? 7 : 1) if !$pid; \
         waitpid($pid, 0); $sum += $? >> 8 }} print $sum"
    );
    let _machine = Machine::lock();
    let (output, status, traced, _) = run(&format!("perl -e '{script}'"));
    assert_eq!((output, status), ((7 * FORKED).to_string(), 0));
    assert_eq!(traced.end, TraceEnd::NobodyLeft);
}

#[test]
fn signals_pass_through() {
    let _machine = Machine::lock();
    let (output, status, ..) = run(
        "n=0; trap 'n=$((n+1))' USR1; for i in 1 2 3 4 5 6 7 8 9; do kill -USR1 $$; done; \
         sh -c 'kill -KILL $$'; echo $n $?; kill -TERM $$; echo not reached",
    );
    assert_eq!((output.as_str(), status), ("9 137\n", 128 + libc::SIGTERM));
}

#[test]
fn a_stopped_process_stays_so_until_it_is_continued() {
    let _machine = Machine::lock();
    let held = HeldCommand::new(&["sh", "-c", "kill -STOP $$; echo continued"]);
    let pid = held.pid();
    let (tracer, _) = trace(pid);
    let running = held.release();
    // In group-stop a tracee sleeps in the same state as at any other stop: only time tells.
    sched::sleep_us(100_000);
    assert!("Tt".contains(process::stat(pid).expect("it is there").state));
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("kill");
    assert_eq!(running.finish(), ("continued\n".to_owned(), 0));
    assert_eq!(tracer.wait().expect("trace").end, TraceEnd::NobodyLeft);
}

#[test]
fn who_is_let_go_runs_on_untraced() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let stop = directory.path("stop");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; echo over",
        stop.display()
    );
    let held = HeldCommand::new(&["sh", "-c", &script]);
    let pid = held.pid();
    let (tracer, calls) = trace(pid);
    let count = || calls.lock().expect("not poisoned").len();
    let running = held.release();
    eventually("it asks for the file", || count() > 100);
    let traced = tracer.detach().expect("detach");
    assert_eq!(traced.end, TraceEnd::Told);
    eventually("it has no tracer", || {
        tracer_of(pid).as_deref() == Some("0")
    });
    assert_eq!(traced.calls, count() as u64, "none after the end");
    std::fs::write(&stop, "").expect("write");
    assert_eq!(running.finish(), ("over\n".to_owned(), 0));
}

#[test]
fn a_tree_that_does_nothing_is_let_go_at_once() {
    let _machine = Machine::lock();
    let held = HeldCommand::new(&["sleep", "1"]);
    let pid = held.pid();
    let (tracer, calls) = trace(pid);
    let running = held.release();
    let sleeps = || process::stat(pid).is_ok_and(|stat| stat.comm == "sleep");
    eventually("it executes", sleeps);
    sched::sleep_us(20_000);
    // Dropping it is as good as detaching.
    drop(tracer);
    assert!(sleeps(), "it did not have to end first");
    eventually("it has no tracer", || {
        tracer_of(pid).as_deref() == Some("0")
    });
    assert!(!calls.lock().expect("not poisoned").is_empty());
    assert_eq!(running.finish(), (String::new(), 0));
}

#[test]
fn what_cannot_be_traced_is_refused_in_words() {
    let _machine = Machine::lock();
    let refusal = |pid| {
        let error = PathTracer::start(pid, |_| {}).expect_err("refused");
        error.to_string()
    };
    let mut child = std::process::Command::new("sleep")
        .arg("9")
        .spawn()
        .expect("spawn");
    let said = refusal(child.id() as i32);
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(said.contains("our child"), "{said}");
    let said = refusal(process::own_pid());
    assert!(said.contains("several threads"), "{said}");
    let gone = PathTracer::start(child.id() as i32, |_| {}).expect_err("gone");
    assert!(gone.is_gone(), "{gone}");

    let held = HeldCommand::new(&["true"]);
    let (first, _) = trace(held.pid());
    let error = PathTracer::start(held.pid(), |_| {}).expect_err("it has a tracer");
    assert!(error.is_denied(), "{error}");
    assert_eq!(held.run(), (String::new(), 0));
    first.wait().expect("trace");
}
