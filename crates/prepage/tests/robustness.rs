//! Bad input, faults, and what the service costs while nothing happens.

mod common;

use common::{Service, TempDir, application, is_root, message, wait_until};
use prepage_engine::launch::LAUNCHES_MAX;
use prepage_kernel::psi;
use prepage_kernel::readahead::fadvise_dontneed;
use prepage_kernel::testing::group::{Group, memory};
use prepage_kernel::testing::hanging::HangingMount;
use prepage_kernel::testing::machine::Lcg;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What prepaged says when it is started so, and does not start.
fn refusal(daemon: &mut std::process::Command) -> String {
    let output = daemon.stderr(Stdio::piped()).output().expect("prepaged");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    said
}

#[test]
fn two_services_at_once() {
    let service = Service::start("");
    let said = refusal(&mut service.daemon());
    assert!(
        said.contains("in use by a prepaged") && said.contains("--state"),
        "{said}"
    );
    // Another store, the same socket.
    let other = TempDir::new();
    let said = refusal(
        std::process::Command::new(env!("CARGO_BIN_EXE_prepaged"))
            .arg("--config")
            .arg(service.config())
            .arg("--state")
            .arg(other.path())
            .arg("--socket")
            .arg(service.socket()),
    );
    assert!(said.contains("another service listens"), "{said}");
    service.call(&["status"]);
}

#[test]
fn what_is_no_socket_is_not_taken_for_an_old_one() {
    let directory = TempDir::new();
    let file = directory.path().join("notes");
    std::fs::write(&file, "precious").expect("writable");
    let said = refusal(
        std::process::Command::new(env!("CARGO_BIN_EXE_prepaged"))
            .arg("--state")
            .arg(directory.path().join("state"))
            .arg("--socket")
            .arg(&file),
    );
    assert!(said.contains("else than a socket"), "{said}");
    assert_eq!(std::fs::read(&file).expect("it stays"), b"precious");
}

#[test]
fn malformed_requests_get_an_error_and_harm_nothing() {
    let service = Service::start("");
    let mut stream = service.connect();
    for (sent, error) in [
        (&b"garbage\0"[..], "org.prepage.Prepage1.Malformed"),
        (b"\0", "org.prepage.Prepage1.Malformed"),
        (
            b"{\"method\":\"org.prepage.Prepage1.Fly\"}\0",
            "org.varlink.service.MethodNotFound",
        ),
        (
            b"{\"method\":\"org.x.Y\"}\0",
            "org.varlink.service.InterfaceNotFound",
        ),
        (
            b"{\"method\":\"org.prepage.Prepage1.Track\",\"parameters\":{\"pid\":\"x\"}}\0",
            "org.varlink.service.InvalidParameter",
        ),
        (
            b"{\"method\":\"org.prepage.Prepage1.Track\"}\0",
            "org.varlink.service.InvalidParameter",
        ),
        (
            b"{\"method\":\"org.prepage.Prepage1.Track\",\"parameters\":{\"pid\":-5}}\0",
            "org.prepage.Prepage1.NotFound",
        ),
    ] {
        stream.write_all(sent).expect("sent");
        let reply = message(&mut stream);
        assert!(
            reply.contains(error),
            "{:?}: {reply}",
            String::from_utf8_lossy(sent)
        );
    }
    // The same connection still works, and so does the standard interface.
    stream
        .write_all(b"{\"method\":\"org.varlink.service.GetInfo\"}\0")
        .expect("sent");
    assert!(message(&mut stream).contains("org.prepage.Prepage1"));
    let asked = b"{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":\"org.prepage.Prepage1\"}}\0";
    stream.write_all(asked).expect("sent");
    assert!(message(&mut stream).contains("method SwitchBegin"));
    // oneway gets no reply: the next reply is that of the next call.
    stream
        .write_all(b"{\"method\":\"org.x.Y\",\"oneway\":true}\0{\"method\":\"org.x.Z\"}\0")
        .expect("sent");
    assert!(message(&mut stream).contains("org.x"));
    service.call(&["status"]);
}

#[test]
fn a_program_on_a_file_system_that_hangs_holds_up_nobody() {
    let service = Service::start("");
    let directory = TempDir::new();
    let hanging = HangingMount::at(directory.path());
    let link = service.directory.path().join("link");
    std::os::unix::fs::symlink(hanging.0.join("program"), &link).expect("a link");
    let mut stream = service.connect();
    for path in [hanging.0.join("program"), link] {
        let parameters = serde_json::json!({ "exe": path, "name": path });
        let method = "org.prepage.Prepage1.LaunchBegin";
        let call = serde_json::json!({ "method": method, "parameters": parameters });
        stream
            .write_all(format!("{call}\0").as_bytes())
            .expect("sent");
        let reply = message(&mut stream);
        assert!(reply.contains("\"launch\""), "{reply}");
    }
    service.call(&["status"]);
}

#[test]
fn more_launches_than_are_helped_are_refused() {
    assert!(
        is_root(),
        "this test needs root, of whom more launches may be under way"
    );
    let service = Service::start("[launch]\nt_idle_ms = 60_000\nt_timeout_ms = 600_000\n");
    let mut stream = service.connect();
    let parameters = serde_json::json!({ "exe": "/bin/true", "name": "/bin/true" });
    let method = "org.prepage.Prepage1.LaunchBegin";
    let call = serde_json::json!({ "method": method, "parameters": parameters });
    for number in 0..=LAUNCHES_MAX {
        stream
            .write_all(format!("{call}\0").as_bytes())
            .expect("sent");
        let reply: serde_json::Value = serde_json::from_str(&message(&mut stream)).expect("JSON");
        match number {
            LAUNCHES_MAX => assert!(reply["error"].is_string(), "{reply}"),
            _ => assert_eq!(reply["parameters"]["launch"], number, "{reply}"),
        }
    }
}

#[test]
fn random_and_mutated_bytes_harm_nothing() {
    let service = Service::start("");
    let sample = b"{\"method\":\"org.prepage.Prepage1.SwitchBegin\",\"parameters\":{\"pid\":12,\"source\":\"focus\"}}\0";
    let mut random = Lcg(7);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for _ in 0..300 {
        let mut stream = service.connect();
        let mut bytes = sample.repeat(3);
        for _ in 0..below(9) {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        bytes.truncate(below(bytes.len() + 1));
        // It may have closed the connection already.
        let _ = stream.write_all(&bytes);
    }
    service.call(&["status"]);
}

#[test]
fn a_message_without_end_or_of_megabytes_is_refused() {
    assert!(
        is_root(),
        "this test needs root, whose requests may be longer"
    );
    let service = Service::start("");
    let mut stream = service.connect();
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..64)
        .take_while(|_| stream.write_all(&piece).is_ok())
        .count();
    assert!(sent < 32, "{sent} MiB were taken in");
    assert!(message(&mut stream).contains("longer than"));
    assert_eq!(message(&mut stream), "", "it is refused once, and closed");
    service.call(&["status"]);
    // Long, and whole: what is read of it, and said of it, takes no more.
    let long = "x".repeat(8 << 20);
    let wide = "0,".repeat(4 << 20);
    for (request, reason) in [
        (
            format!(r#"{{"method":"a.{long}"}}"#),
            "longer than 16384 bytes",
        ),
        (
            format!(r#"{{"method":"a.b","parameters":{{"x":[{wide}0]}}}}"#),
            "more than 16384 values",
        ),
    ] {
        let mut stream = service.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        stream.write_all(b"\0").expect("sent");
        let reply = message(&mut stream);
        assert!(reply.contains(reason) && reply.len() < 1_000, "{reply:.99}");
    }
    assert!(resident_kib(service.pid()) < 40 << 10);
}

/// A connection to a service, which has taken it.
fn connected(service: &Service) -> std::os::unix::net::UnixStream {
    let mut stream = service.connect();
    stream.write_all(GET_INFO).expect("sent");
    assert!(message(&mut stream).contains("prepaged"));
    stream
}

const GET_INFO: &[u8] = b"{\"method\":\"org.varlink.service.GetInfo\"}\0";

#[test]
fn who_sends_many_calls_at_once_holds_up_nobody() {
    assert!(is_root(), "this test needs root, who sets the mode");
    let mut service = Service::start("[service]\nmode = \"observe\"\n");
    let set_mode = |mode: &str| {
        let method = "org.prepage.Prepage1.SetMode";
        let call = serde_json::json!({ "method": method, "parameters": { "mode": mode } });
        format!("{call}\0").into_bytes()
    };
    let [mut many, mut one] = [(); 2].map(|()| connected(&service));
    service.signal(Signal::STOP);
    let calls = ["anon", "file", "full"].map(set_mode).concat();
    many.write_all(&calls).expect("sent");
    one.write_all(&set_mode("off")).expect("sent");
    service.signal(Signal::CONT);
    let before = |stream: &mut _| {
        let reply: serde_json::Value = serde_json::from_str(&message(stream)).expect("JSON");
        reply["parameters"]["before"].as_str().map(str::to_owned)
    };
    assert_eq!(before(&mut one).as_deref(), Some("anon"));
    let befores = [(); 3].map(|()| before(&mut many).expect("a mode"));
    assert_eq!(befores, ["observe", "off", "file"]);
    // Nor does it hold up the end: each of these looks at all processes.
    const CALLS: usize = 150;
    let track =
        b"{\"method\":\"org.prepage.Prepage1.Track\",\"parameters\":{\"name\":\"no such one\"}}\0";
    service.signal(Signal::STOP);
    many.write_all(&track.repeat(CALLS)).expect("sent");
    service.signal(Signal::TERM);
    service.signal(Signal::CONT);
    assert!(service.wait().success());
    let mut replies = Vec::new();
    many.read_to_end(&mut replies).expect("closed");
    let count = replies.iter().filter(|&&byte| byte == 0).count();
    assert!((1..CALLS).contains(&count), "{count} were answered");
}

#[test]
fn too_many_connections_are_closed_and_the_rest_works() {
    let service = Service::start("");
    let mut streams: Vec<_> = (0..100).map(|_| service.connect()).collect();
    let first = &mut streams[0];
    first
        .write_all(b"{\"method\":\"org.varlink.service.GetInfo\"}\0")
        .expect("sent");
    assert!(message(first).contains("prepaged"));
    assert_eq!(message(&mut streams[99]), "", "the hundredth is closed");
    let (code, said) = service.refused(&["status"]);
    assert!(
        code == 1 && said.contains("connections") && said.contains("try again"),
        "{said}"
    );
    drop(streams);
    wait_until("room", || service.try_call(&["status"]).status.success());
}

#[test]
fn callers_outside_of_its_pid_namespace_are_refused_in_words() {
    let mut service = Service::start("");
    service.signal(Signal::TERM);
    assert!(service.wait().success());
    let daemon = service.daemon();
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(daemon.get_program())
        .args(daemon.get_args());
    service.start_by(&mut command);
    for arguments in [&["status"][..], &["track", "--name", "sh"]] {
        let (status, said) = service.refused(arguments);
        assert_eq!(status, 1, "{said}");
        assert!(said.contains("outside of its pid namespace"), "{said}");
    }
}

#[test]
fn killed_at_once_it_opens_again_with_the_last_complete_state() {
    let mut service = Service::start("[switch]\nrepeat_ms = 0\n");
    let apps = TempDir::new();
    let app = application(&apps, "survivor");
    let pid = app.pid().to_string();
    let wait_until_written = |service: &Service| {
        wait_until("the profile", || {
            let apps = service.json(&["apps", "list"]);
            apps["apps"][0]["profile_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0)
        });
    };
    service.call(&["track", "--pid", &pid]);
    // Until then, there is nothing that says that it is followed.
    wait_until_written(&service);
    for round in 0..5 {
        service.call(&["switch", "begin", "--pid", &pid]);
        service.call(&["switch", "end", "--pid", &pid]);
        wait_until("the observation", || service.switches().len() == 1);
        if round > 2 {
            wait_until_written(&service);
        }
        service.signal(Signal::KILL);
        service.wait();
        service.start_again(&[]);
        let status = service.json(&["status"]);
        assert_eq!(
            status["apps"][0]["state"],
            "running",
            "{status} {}",
            service.log()
        );
        assert!(!service.log().contains("damaged"), "{}", service.log());
    }
    assert!(app.pid() > 0, "the application lives on");
    assert!(std::fs::metadata(format!("/proc/{pid}")).is_ok());
}

#[test]
fn a_damaged_profile_is_set_aside() {
    let mut service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "damaged");
    service.call(&["track", "--pid", &app.pid().to_string()]);
    service.signal(Signal::TERM);
    service.wait();
    let state = service.directory.path().join("state");
    for entry in std::fs::read_dir(&state).expect("a directory").flatten() {
        if entry.path().extension().is_some_and(|e| e == "profile") {
            std::fs::write(entry.path(), b"PREPAGE\x01 and then something else").expect("written");
        }
    }
    service.start_again(&[]);
    assert!(service.log().contains("set aside"), "{}", service.log());
    assert_eq!(
        service.json(&["apps", "list"])["apps"],
        serde_json::json!([])
    );
}

#[test]
fn a_terminated_service_keeps_everything_and_leaves_no_socket() {
    let mut service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "kept");
    let pid = app.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    service.call(&["switch", "begin", "--pid", &pid]);
    service.call(&["switch", "end", "--pid", &pid]);
    wait_until("the observation", || service.switches().len() == 1);
    service.signal(Signal::TERM);
    assert!(service.wait().success());
    assert!(!service.socket().exists());
    service.start_again(&[]);
    assert_eq!(service.json(&["status"])["apps"][0]["switches"], 1);
}

#[test]
fn a_wrong_configuration_is_refused_at_start_and_ignored_at_reload() {
    let service = Service::start("[service]\nmode = \"observe\"\n");
    std::fs::write(service.config(), "[switch]\nquiet = 1\n").expect("written");
    let mut check = service.daemon();
    let output = check.arg("--check").output().expect("prepaged");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("prepage.toml:2") && said.contains("quiet_ms"),
        "{said}"
    );
    service.signal(Signal::HUP);
    wait_until("the complaint", || {
        service.log().contains("stays as it was")
    });
    assert_eq!(service.call(&["mode"]), "observe\n");
    std::fs::write(service.config(), "[service]\nmode = \"anon\"\n").expect("written");
    service.signal(Signal::HUP);
    wait_until("the new mode", || service.call(&["mode"]) == "anon\n");
}

#[test]
fn check_names_what_cannot_be_on_this_machine() {
    let service = Service::start("");
    let check = |config: &str| {
        std::fs::write(service.config(), config).expect("written");
        let output = service.daemon().arg("--check").output().expect("prepaged");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (is_right, said) = check("[fetch]\nbig_cores = [0, 90000]\n");
    assert!(!is_right, "{said}");
    for part in ["prepage.toml:2: fetch.big_cores must be", "[0, 90000]"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let (is_right, said) = check("[fetch]\nbig_cores = [0]\nlittle_cores = [0]\n");
    assert!(is_right, "{said}");
}

#[test]
fn switches_observed_are_recorded_for_the_simulator() {
    let mut service = Service::start("[service]\nmode = \"observe\"\n");
    service.signal(Signal::TERM);
    service.wait();
    let file = service.directory.path().join("recorded");
    service.start_again(&["--record", file.to_str().expect("text")]);
    let apps = TempDir::new();
    let app = application(&apps, "recorded");
    let pid = app.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    service.call(&["switch", "begin", "--pid", &pid]);
    service.call(&["switch", "end", "--pid", &pid]);
    wait_until("the observation", || service.switches().len() == 1);
    if !service.switches()[0]["void"].is_null() {
        return eprintln!("a void observation is not recorded");
    }
    let text = std::fs::read_to_string(file).expect("a recording");
    let recorded: prepage_core::replay::RecordedSwitch =
        serde_json::from_str(&text).expect("a line");
    assert!(recorded.app.name.ends_with("/recorded"));
}

/// What `prepaged` complains of that does not start.
fn start_refused(command: &mut std::process::Command) -> String {
    let child = command.stderr(Stdio::piped()).spawn().expect("prepaged");
    let mut child = common::Running(child);
    wait_until("its end", || child.0.try_wait().is_ok_and(|e| e.is_some()));
    let status = child.0.wait().expect("ended");
    let mut said = String::new();
    let mut stderr = child.0.stderr.take().expect("piped");
    stderr.read_to_string(&mut said).expect("text");
    assert!(!status.success(), "{said}");
    said
}

#[test]
fn what_it_cannot_start_with_is_named() {
    let directory = TempDir::new();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").expect("written");
    let file = file.to_str().expect("text");
    let start = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_prepaged"));
        command.args(arguments).current_dir(directory.path());
        start_refused(&mut command)
    };
    let said = start(&["--state", file, "--socket", "s"]);
    assert!(
        said.contains(&format!("{file}: it is no directory")),
        "{said}"
    );
    let said = start(&["--state", "state", "--runtime-dir", file]);
    assert!(said.contains(&format!("{file} is no directory")), "{said}");
    let record = format!("{file}/record");
    let said = start(&["--state", "state", "--socket", "s", "--record", &record]);
    assert!(
        said.contains(&format!("recording to {record}: Not a")),
        "{said}"
    );
}

#[test]
fn without_roots_rights_it_says_who_has_them() {
    assert!(is_root(), "this test needs root, to become another user");
    let directory = TempDir::new();
    // By another process: see `copy_for_others`.
    let program = env!("CARGO_BIN_EXE_prepaged");
    let mut cp = std::process::Command::new("cp");
    let copied = cp.arg(program).arg(directory.path()).status();
    assert!(copied.expect("cp").success());
    let mut command = std::process::Command::new(directory.path().join("prepaged"));
    command.current_dir("/").gid(65534).uid(65534);
    let said = start_refused(command.arg("--state").arg(directory.path().join("state")));
    assert!(
        said.contains("denied") && said.contains("needs root"),
        "{said}"
    );
}

#[test]
fn recording_in_another_mode_is_warned_of() {
    let mut service = Service::start("");
    service.signal(Signal::TERM);
    service.wait();
    let file = service.directory.path().join("recorded");
    service.start_again(&["--record", file.to_str().expect("text")]);
    let warned = "only switches in mode observe are recorded; the mode is full";
    wait_until("the warning", || service.log().contains(warned));
}

#[test]
fn systemd_is_told_of_start_and_end() {
    let directory = TempDir::new();
    let path = directory.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(10)))
        .expect("set");
    let service = Service::start("");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_prepaged"));
    command
        .arg("--config")
        .arg(service.config())
        .arg("--state")
        .arg(directory.path().join("state"));
    command
        .arg("--runtime-dir")
        .arg(directory.path())
        .env("NOTIFY_SOCKET", &path);
    let mut child = common::Running(command.stderr(Stdio::null()).spawn().expect("prepaged"));
    let receive = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(receive(), "READY=1");
    let pid = rustix::process::Pid::from_raw(child.pid()).expect("a pid");
    rustix::process::kill_process(pid, Signal::TERM).expect("signalled");
    assert_eq!(receive(), "STOPPING=1");
    assert!(child.0.wait().expect("ended").success());
}

/// The kernel is made to say it: nothing happens to the core.
#[test]
fn events_are_asked_for_anew_when_a_core_comes_online() {
    let service = Service::start("");
    // It listens before it watches.
    service.call(&["status"]);
    std::fs::write("/sys/devices/system/cpu/cpu0/uevent", "online").expect("root");
    wait_until("the core to be seen", || {
        service.log().contains("a core came online")
    });
    assert!(
        !service.log().contains("is not noticed"),
        "{}",
        service.log()
    );
    service.call(&["status"]);
}

/// The kernel's trigger fires for the first wait after it was made, however short.
#[test]
fn a_short_wait_for_memory_is_no_pressure() {
    // Other tests have tasks wait, but not all the time.
    let service = Service::start("[service]\npressure_percent = 100\n");
    let group = Group::create(&memory());
    group.limit_memory(8 << 20);
    let path = service.directory.path().join("file");
    let file = std::fs::File::create(&path).expect("created");
    (&file).write_all(&vec![1; 32 << 20]).expect("written");
    file.sync_all().expect("synced");
    fadvise_dontneed(file.as_fd(), 0, 0).expect("fadvise");
    let waited_us = || psi::waited_us().expect("PSI");
    let before_us = waited_us();
    let line = "echo $$ > \"$0\"/cgroup.procs && cat \"$1\" > /dev/null";
    let mut reader = std::process::Command::new("sh");
    let reader = reader.args(["-c", line]).args([&group.0.directory, &path]);
    assert!(reader.status().expect("sh").success());
    assert!(waited_us() > before_us, "nobody waited for memory");
    // The kernel looks every two seconds.
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(service.json(&["status"])["under_pressure"], false);
    }
}

#[test]
fn eight_applications_take_no_wakeups_and_little_memory() {
    // Demand faults anywhere on the machine may be the onset of a switch, and wake it: other tests' too. So does memory
    // pressure, unless it stops everybody.
    let service = Service::start(
        "[switch]\nrepeat_ms = 0\nquiet_ms = 20\nonset_faults = 0\n[service]\npressure_percent = 100\n",
    );
    let apps = TempDir::new();
    let running: Vec<_> = (0..8)
        .map(|n| application(&apps, format!("app{n}")))
        .collect();
    for app in &running {
        let pid = app.pid().to_string();
        service.call(&["track", "--pid", &pid]);
        service.call(&["switch", "begin", "--pid", &pid]);
    }
    wait_until("eight switches", || service.switches().len() == 8);
    let kib = resident_kib(service.pid());
    assert!(kib < 20 << 10, "{kib} KiB are resident");
    rests_while_nothing_happens(service.pid());
}

fn resident_kib(pid: i32) -> u64 {
    prepage_kernel::process::status(pid)
        .expect("running")
        .vm_rss_kib
}

/// Tells by a second without a wakeup, put together of moments in which nobody on the machine executed a program: that
/// wakes it, since it may be a launch. A timer of a second or less would wake it in each such second; what is written a
/// while after a switch does not.
fn rests_while_nothing_happens(pid: i32) {
    const MOMENT: Duration = Duration::from_millis(100);
    const REST: u32 = 10;
    let until = Instant::now() + Duration::from_secs(30);
    let (mut quiet, mut rested, mut forks_before) = (0, 0, forks());
    while rested < REST {
        assert!(
            Instant::now() < until,
            "it woke up again and again, or the machine was never quiet: {quiet} moments in 30 seconds were"
        );
        // An exec soon follows its fork: so the moment before counts too.
        std::thread::sleep(MOMENT);
        let wakeups_before = wakeups(pid);
        std::thread::sleep(MOMENT);
        let has_slept = wakeups(pid) == wakeups_before;
        let forks = forks();
        if std::mem::replace(&mut forks_before, forks) == forks {
            quiet += 1;
            rested = if has_slept { rested + 1 } else { 0 };
        }
    }
}

/// Processes and threads that were ever made.
fn forks() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let count = text.lines().find_map(|l| l.strip_prefix("processes "));
    count.and_then(|n| n.parse().ok()).expect("processes")
}

/// How often its threads slept and were woken.
fn wakeups(pid: i32) -> u64 {
    let threads = prepage_kernel::process::threads(pid).expect("running");
    let of_thread = |tid: i32| {
        let status =
            std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let count = status
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        count
            .and_then(|n| n.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    threads.into_iter().map(of_thread).sum()
}
