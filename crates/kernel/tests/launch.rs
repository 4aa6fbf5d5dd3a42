//! Launches in a process of their own, and tracers in another. Not libtest's: a process that forks must have one
//! thread. Run without arguments, this program is the tests, which run it again in a role.

use prepage_kernel::path_calls::{PathTracer, TraceEnd};
use prepage_kernel::spawn::{Detached, Hold, Launched, fork_detached};
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{Directory, Lcg, Machine, eventually};
use prepage_kernel::{Process, process, sched};
use rustix::pipe::PipeFlags;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Nothing here takes so long.
const WAIT_MAX: Duration = Duration::from_secs(10);
const NOBODY: u32 = 65_534;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    (
        "a_launched_command_is_like_a_bare_one",
        a_launched_command_is_like_a_bare_one,
    ),
    (
        "the_detached_process_outlives_and_does_not_hold",
        the_detached_process_outlives_and_does_not_hold,
    ),
    (
        "an_exec_that_fails_is_told_to_both",
        an_exec_that_fails_is_told_to_both,
    ),
    (
        "who_leaves_messages_unread_is_seen_to_execute",
        who_leaves_messages_unread_is_seen_to_execute,
    ),
    (
        "nobody_waits_longer_than_told",
        nobody_waits_longer_than_told,
    ),
    (
        "forks_that_would_do_harm_are_refused",
        forks_that_would_do_harm_are_refused,
    ),
    (
        "a_launch_is_traced_from_its_first_call",
        a_launch_is_traced_from_its_first_call,
    ),
    (
        "the_death_of_the_tracer_changes_nothing",
        the_death_of_the_tracer_changes_nothing,
    ),
    (
        "who_wants_another_tracer_gets_it",
        who_wants_another_tracer_gets_it,
    ),
    (
        "who_makes_a_call_of_another_abi_is_let_go",
        who_makes_a_call_of_another_abi_is_let_go,
    ),
    (
        "who_serves_a_file_system_is_let_go_with_all_others",
        who_serves_a_file_system_is_let_go_with_all_others,
    ),
    (
        "set_user_id_programs_keep_their_rights",
        set_user_id_programs_keep_their_rights,
    ),
];

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    if let Some(role) = words.first().and_then(|word| word.strip_prefix("role:")) {
        std::process::exit(play(role, &arguments[1..]));
    }
    let filter = words.iter().find(|word| !word.starts_with('-'));
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted(name)) {
        let _machine = Machine::lock();
        print!("test {name} ... ");
        std::io::stdout().flush().expect("flush");
        test();
        println!("ok");
    }
}

fn own_binary() -> String {
    let path = std::env::current_exe().expect("own path");
    path.into_os_string()
        .into_string()
        .expect("a path in UTF-8")
}

// ---- roles ----

fn play(role: &str, arguments: &[OsString]) -> i32 {
    match role {
        "launch" => launch(arguments, |detached| detached.release()),
        "linger" => launch(&arguments[1..], {
            let until = arguments[0].clone();
            move |detached| linger(&detached, &until)
        }),
        "trace-launch" => launch(&arguments[1..], {
            let log = arguments[0].clone();
            move |detached| trace_launch(&detached, &log)
        }),
        "fail" => fail(&arguments[0]),
        "impatient" => impatient(&arguments[0], &arguments[1..]),
        "hold" => hold(),
        "refuse" => refuse(),
        "trace" => trace(&arguments[0]),
        "ptrace" => ptrace(&arguments[0], &arguments[1]),
        "call-as-32-bit" => call_as_32_bit(),
        other => panic!("no role {other}"),
    }
}

/// As `prepage run` does: becomes the command, once the detached process says so.
fn launch(command: &[OsString], work: impl FnOnce(Detached)) -> i32 {
    let held = fork_detached(|detached| {
        work(detached);
        0
    })
    .expect("fork");
    assert_eq!(held.wait(WAIT_MAX).expect("wait"), Hold::Released);
    panic!("{}", held.exec(&command[0], &command[1..]));
}

/// Notes who it is, and stays until told.
fn linger(detached: &Detached, until: &OsStr) {
    let own = process::stat(process::own_pid()).expect("own stat");
    let fds = std::fs::read_dir("/proc/self/fd").expect("own fds");
    let open: Vec<String> = fds
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !path.starts_with("/proc/"))
        .collect();
    let note = format!("{} {} {}", process::own_pid(), own.session, open.join(","));
    let path = Path::new(until);
    std::fs::write(path.with_extension("note"), note).expect("write");
    detached.release();
    eventually("we may end", || path.exists());
}

fn trace_launch(detached: &Detached, log: &OsStr) {
    detached.ask_to_trace(WAIT_MAX).expect("permission");
    let mut file = std::fs::File::create(log).expect("create");
    let tracer = PathTracer::start(detached.original_pid(), move |call| {
        let path = String::from_utf8_lossy(call.path);
        writeln!(file, "{:?} {path} {}", call.kind, call.found).expect("write");
    })
    .expect("trace");
    detached.release();
    assert_eq!(detached.wait_exec(WAIT_MAX).expect("wait"), Launched::Yes);
    assert_eq!(tracer.wait().expect("trace").end, TraceEnd::NobodyLeft);
    std::fs::rename(log, Path::new(log).with_extension("done")).expect("rename");
}

fn fail(note: &OsStr) -> i32 {
    let path = note.to_owned();
    let held = fork_detached(move |detached| {
        detached.release();
        let launched = detached.wait_exec(WAIT_MAX).expect("wait");
        std::fs::write(path, format!("{launched:?}")).expect("write");
        0
    })
    .expect("fork");
    held.wait(WAIT_MAX).expect("wait");
    let error = held.exec(OsStr::new("/no such program"), &[] as &[&OsStr]);
    println!("{error}");
    error.errno().unwrap_or(0)
}

/// Executes a command without having read what it was told; notes what the detached process saw.
fn impatient(note: &OsStr, command: &[OsString]) -> i32 {
    let path = note.to_owned();
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    let held = fork_detached(move |detached| {
        detached.ask_for_more_time();
        rustix::io::write(&write, b"!").expect("write");
        let launched = detached.wait_exec(WAIT_MAX);
        std::fs::write(path, format!("{launched:?}")).expect("write");
        0
    })
    .expect("fork");
    rustix::io::read(&read, &mut [0u8]).expect("read");
    let error = held.exec(&command[0], &command[1..]);
    error.errno().unwrap_or(0)
}

fn hold() -> i32 {
    let abandoned = fork_detached(|_| 0).expect("fork").wait(WAIT_MAX);
    let short = Duration::from_millis(20);
    let held = fork_detached(|detached| {
        // The end of the stream says that the other has had enough.
        detached.wait_exec(WAIT_MAX).expect("wait");
        0
    });
    let timed_out = held.expect("fork").wait(short);
    println!("{abandoned:?} {timed_out:?}");
    0
}

fn refuse() -> i32 {
    let said = || fork_detached(|_| 0).expect_err("refused").to_string();
    let threads = std::thread::scope(|scope| scope.spawn(said).join().expect("join"));
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(process::own_pid()))
        .expect("become a subreaper");
    println!("{threads}\n{}", said());
    0
}

fn trace(pid: &OsStr) -> i32 {
    let pid = pid
        .to_str()
        .and_then(|pid| pid.parse().ok())
        .expect("a pid");
    let tracer = PathTracer::start(pid, |_| {}).expect("trace");
    println!("tracing");
    println!("{:?}", tracer.wait().expect("trace").end);
    0
}

/// Asks the kernel for a tracer, or to be one.
fn ptrace(request: &OsStr, pid: &OsStr) -> i32 {
    let pid: i32 = pid
        .to_str()
        .and_then(|pid| pid.parse().ok())
        .expect("a pid");
    let code = match request.to_str() {
        Some("traceme") => libc::PTRACE_TRACEME,
        _ => libc::PTRACE_SEIZE,
    };
    // SAFETY: neither request takes a pointer.
    let result = unsafe { libc::ptrace(code, pid, 0, 0) };
    println!(
        "{result} {}",
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    );
    0
}

// ---- tests ----

fn output(command: &mut Command) -> (String, Option<i32>) {
    let output = command.stderr(Stdio::inherit()).output().expect("run");
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        output.status.code(),
    )
}

/// What a program can tell of how it was started.
const TELL: &str = "grep -E '^(SigIgn|SigBlk|SigPnd|ShdPnd|TracerPid|NoNewPrivs)' /proc/self/status; \
    for fd in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$fd ] && echo open $fd; done; \
    cut -d' ' -f5-7 /proc/$$/stat; pwd; umask; read -r children </proc/$$/task/$$/children; echo \"$children\"; echo $0 $@; exit 7";

fn a_launched_command_is_like_a_bare_one() {
    let circumstances = [
        "exec \"$@\"",
        "trap '' PIPE; exec \"$@\"",
        "trap '' CHLD; exec \"$@\"",
        "exec \"$@\" <&-",
        "exec \"$@\" 2>&- 5</dev/null",
    ];
    for circumstance in circumstances {
        let told = |more: &[&str]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", circumstance, "sh"]).args(more);
            shell.args(["sh", "-c", TELL, "name", "an argument"]);
            shell.stdin(Stdio::null()).process_group(0);
            let child = shell.stdout(Stdio::piped()).spawn().expect("spawn");
            let pid = child.id().to_string();
            let output = child.wait_with_output().expect("wait");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Process group, session, terminal: the first is its own pid, which differs.
            let own = format!("\n{pid} ");
            assert!(text.contains(&own), "{text}");
            (text.replace(&own, "\nPID "), output.status.code())
        };
        let bare = told(&[]);
        assert!(bare.0.contains("name an argument"), "{bare:?}");
        assert_eq!(bare.1, Some(7));
        assert_eq!(
            told(&[&own_binary(), "role:launch"]),
            bare,
            "{circumstance}"
        );
    }
}

fn the_detached_process_outlives_and_does_not_hold() {
    let directory = Directory::new();
    let until = directory.path("until");
    let mut command = Command::new(own_binary());
    command
        .arg("role:linger")
        .arg(&until)
        .args(["sh", "-c", "echo $$; exit 5"]);
    let child = command.stdout(Stdio::piped()).spawn().expect("spawn");
    let pid = child.id();
    // Reads to the end of the pipe: the detached process does not keep it open.
    let output = child.wait_with_output().expect("wait");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{pid}\n"));
    assert_eq!(output.status.code(), Some(5));
    let note = std::fs::read_to_string(until.with_extension("note")).expect("its note");
    let words: Vec<&str> = note.splitn(3, ' ').collect();
    let lingering = Process::open(words[0].parse().expect("a pid")).expect("it is alive");
    assert_eq!(words[1], words[0], "a session of its own");
    let open: Vec<&str> = words[2].split(',').collect();
    assert_eq!(open[..3], ["/dev/null"; 3]);
    assert!(
        open.len() == 4 && open[3].starts_with("socket:"),
        "{open:?}"
    );
    std::fs::write(&until, "").expect("write");
    eventually("it ends", || !lingering.is_alive());
}

fn an_exec_that_fails_is_told_to_both() {
    let directory = Directory::new();
    let note = directory.path("note");
    let (said, status) = output(Command::new(own_binary()).arg("role:fail").arg(&note));
    assert!(
        said.contains("execvp of /no such program: No such file"),
        "{said}"
    );
    assert_eq!(status, Some(libc::ENOENT));
    let expected = format!("{:?}", Launched::Failed(libc::ENOENT));
    eventually("the detached process knows", || {
        std::fs::read_to_string(&note).is_ok_and(|said| said == expected)
    });
}

fn who_leaves_messages_unread_is_seen_to_execute() {
    let directory = Directory::new();
    for (command, expected) in [
        ("/bin/true", Launched::Yes),
        ("/no such program", Launched::Failed(libc::ENOENT)),
    ] {
        let note = directory.path("note");
        let mut role = Command::new(own_binary());
        output(role.arg("role:impatient").arg(&note).arg(command));
        let expected = format!("Ok({expected:?})");
        eventually("the detached process knows", || {
            std::fs::read_to_string(&note).is_ok_and(|said| said == expected)
        });
        std::fs::remove_file(&note).expect("it is there");
    }
}

fn nobody_waits_longer_than_told() {
    let (said, _) = output(Command::new(own_binary()).arg("role:hold"));
    assert_eq!(said, "Ok(Abandoned) Ok(TimedOut)\n");
}

fn forks_that_would_do_harm_are_refused() {
    let (said, _) = output(Command::new(own_binary()).arg("role:refuse"));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("several threads"), "{said}");
    assert!(lines[1].contains("orphans"), "{said}");
}

fn a_launch_is_traced_from_its_first_call() {
    let directory = Directory::new();
    let log = directory.path("log");
    let mut command = Command::new(own_binary());
    command
        .arg("role:trace-launch")
        .arg(&log)
        .args(["cat", "/no such file"]);
    let child = command.stderr(Stdio::null()).spawn().expect("spawn");
    let status = child.wait_with_output().expect("wait").status;
    assert_eq!(status.code(), Some(1), "cat's own");
    let done = log.with_extension("done");
    eventually("the trace is written", || done.exists());
    let calls = std::fs::read_to_string(done).expect("read");
    let exec = calls
        .lines()
        .find(|line| line.starts_with("Exec ") && line.ends_with("/cat true"));
    assert!(exec.is_some(), "{calls}");
    assert!(calls.contains("Open /no such file false"), "{calls}");
    assert!(calls.contains("Open /etc/ld.so.cache true"), "{calls}");
}

/// A tracer of a held command, in a process of its own.
fn tracer_of(held: &HeldCommand, binary: &str, uid: u32) -> (Child, BufReader<ChildStdout>) {
    let mut tracer = Command::new(binary)
        .args(["role:trace", &held.pid().to_string()])
        .uid(uid)
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut stdout = BufReader::new(tracer.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("read");
    assert_eq!(line, "tracing\n");
    (tracer, stdout)
}

/// Runs a script under a tracer. Returns what it printed with its status, and how the trace ended.
fn traced(script: &str) -> ((String, i32), String) {
    let held = HeldCommand::new(&["sh", "-c", script]);
    let (mut tracer, mut stdout) = tracer_of(&held, &own_binary(), 0);
    let result = held.run();
    let mut end = String::new();
    stdout.read_line(&mut end).expect("read");
    tracer.wait().expect("wait");
    (result, end.trim().to_owned())
}

fn the_death_of_the_tracer_changes_nothing() {
    // Calls, forks, execs and signals, so that it dies at stops of all kinds.
    const SCRIPT: &str = "trap 'n=$((n+1))' USR1; n=0; i=0; \
        while [ $i -lt 60 ]; do [ -e /no-such-file ]; kill -USR1 $$; /bin/true || exit 9; i=$((i+1)); done; \
        echo $i $n";
    let mut random = Lcg(process::own_pid() as u64);
    for round in 0..12 {
        let held = HeldCommand::new(&["sh", "-c", SCRIPT]);
        let (mut tracer, _stdout) = tracer_of(&held, &own_binary(), 0);
        let running = held.release();
        sched::sleep_us(random.below(60_000));
        tracer.kill().expect("kill");
        tracer.wait().expect("wait");
        assert_eq!(running.finish(), ("60 60\n".to_owned(), 0), "round {round}");
    }
}

fn who_wants_another_tracer_gets_it() {
    let binary = own_binary();
    let end = |script: &str| {
        let (result, end) = traced(script);
        let expected = ("0 0\n".to_owned(), 0);
        assert_eq!(result, expected, "{script}: ptrace and its errno");
        end
    };
    let traceme = format!("{binary} role:ptrace traceme 0; true");
    assert_eq!(end(&traceme), "NobodyLeft");
    let attach = format!("sleep 0.1 & {binary} role:ptrace seize $!; wait");
    assert_eq!(end(&attach), "OtherTracer");
}

/// Makes a call as a 32-bit program does, and says who traces it before and after that.
fn call_as_32_bit() -> i32 {
    let is_traced = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("own status");
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.expect("a line").trim() != "0"
    };
    let was_traced = is_traced();
    let mut result: u64 = 20;
    // SAFETY: getpid(2) of the 32-bit ABI takes nothing and touches no memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    assert_eq!(
        result as i32,
        process::own_pid(),
        "this test needs a kernel with 32-bit calls (IA32_EMULATION)"
    );
    println!("{was_traced} {}", is_traced());
    0
}

/// Such a call may execute a program that gives rights, which it would not have under us.
fn who_makes_a_call_of_another_abi_is_let_go() {
    let script = format!("{} role:call-as-32-bit; true", own_binary());
    let (result, end) = traced(&script);
    assert_eq!(result, ("true false\n".to_owned(), 0));
    assert_eq!(end, "NobodyLeft", "the others are traced to their end");
}

/// Nobody of ours waits for who serves a file system, or has that wait for us.
fn who_serves_a_file_system_is_let_go_with_all_others() {
    let directory = Directory::new();
    let mounts = directory.path("fusermount3");
    std::fs::copy("/bin/true", &mounts).expect("copy");
    for script in [
        "exec 3<>/dev/fuse; echo served",
        &format!("{} && echo served", mounts.display()),
    ] {
        let (result, end) = traced(script);
        assert_eq!(result, ("served\n".to_owned(), 0), "{script}");
        assert_eq!(end, "FileServer", "{script}");
    }
}

fn set_user_id_programs_keep_their_rights() {
    let directory = Directory::new();
    std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o755)).expect("chmod");
    let copy = |from: &Path, name: &str, mode| {
        let to = directory.path(name);
        std::fs::copy(from, &to).expect("copy");
        std::fs::set_permissions(&to, PermissionsExt::from_mode(mode)).expect("chmod");
        to.into_os_string().into_string().expect("a path in UTF-8")
    };
    let id = copy(Path::new("/usr/bin/id"), "id", 0o4755);
    let binary = copy(Path::new(&own_binary()), "launch", 0o755);
    for uid in [NOBODY, 0] {
        let script = format!("id -u; {id} -u; true");
        let held = HeldCommand::of_user(&["sh", "-c", &script], NOBODY);
        let (mut tracer, _stdout) = tracer_of(&held, &binary, uid);
        assert_eq!(
            held.run(),
            (format!("{NOBODY}\n0\n"), 0),
            "tracer of user {uid}"
        );
        tracer.wait().expect("wait");
    }
}
