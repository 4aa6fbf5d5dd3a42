//! `prepage run` as a person types it: whatever is done for the launch, the command is as if it had been run without.

mod common;

use common::{Service, TempDir, copy_for_others, is_root, wait_until};
use prepage_core::identity::{AppId, AppKind};
use prepage_engine::store::{Next, PROFILE_BYTES_MAX, single};
use prepage_kernel::page::page_size;
use prepage_kernel::process;
use prepage_kernel::readahead::fadvise_dontneed;
use prepage_kernel::testing::machine::{Directory, Machine, eventually, within_half_minutes};
use prepage_kernel::testing::page_cache::cached;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `prepage run` without a service, with a store of its own.
fn run(store: &Path, arguments: &[&str]) -> Command {
    assert!(
        is_root(),
        "without a service only root's launches are helped"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
    command.arg("run").arg("--store").arg(store).args(arguments);
    command
}

fn output(store: &Path, arguments: &[&str]) -> Output {
    run(store, arguments).output().expect("prepage")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of a report, once there are so many.
fn report(path: &Path, lines: usize) -> Vec<serde_json::Value> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    wait_until("the report", || read().lines().count() >= lines);
    let parse = |line: &str| serde_json::from_str(line).expect("JSON");
    read().lines().map(parse).collect()
}

fn script(directory: &TempDir, name: &str, content: &str, mode: u32) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, content).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
    path.to_str().expect("text").to_owned()
}

#[test]
fn relative_paths_are_meant_from_where_it_was_called() {
    let directory = TempDir::new();
    let ran = run(Path::new("store"), &["--report", "report", "true"])
        .current_dir(directory.path())
        .status()
        .expect("prepage");
    assert!(ran.success());
    report(&directory.path().join("report"), 1);
    assert!(directory.path().join("store/lock").exists());
}

#[test]
fn what_is_too_small_to_gain_is_left_alone_by_the_first_program_alone() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let prepage = copy_for_others(directory.path());
    let launch = || {
        let mut command = Command::new(&prepage);
        command.args(["run", "-v", "--store"]).arg(&store);
        let ran = command.args(["--", "true"]).output().expect("prepage");
        assert!(ran.status.success(), "{ran:?}");
        text(&ran.stderr)
    };
    let is_left_alone = |said: &str| said.contains("true@0 is left alone");
    // Standard error is open until a launch is over that is not.
    assert!((0..64).any(|_| is_left_alone(&launch())));
    for other in ["prepage-launch", "prepage-control"] {
        std::fs::remove_file(directory.path().join(other)).expect("removed");
    }
    let said = launch();
    assert!(is_left_alone(&said) && said.lines().count() == 1, "{said}");
}

/// A store and a configuration by which launches of a program are helped as was decided ahead.
struct Ready {
    store: PathBuf,
    config: PathBuf,
    /// A shell by another name: one application, whatever code it is given.
    shell: String,
    app: AppId,
}

impl Ready {
    /// For its shell.
    fn new(directory: &TempDir) -> Ready {
        Self::with_holdouts(directory, 0)
    }

    /// For its shell, of which one launch in so many is held out.
    fn with_holdouts(directory: &TempDir, every: u32) -> Ready {
        let [store, config] = ["ready", "ready.toml"].map(|name| directory.path().join(name));
        let text = format!(
            "[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = {every}\nn_refine = 0\n\
             trial_launch_us = 0\nn_chk = 1000000\nn_chk_costly = 1000000\n"
        );
        std::fs::write(&config, text).expect("written");
        let shell = directory.path().join("coded");
        std::fs::copy("/bin/sh", &shell).expect("copied");
        let shell = std::fs::canonicalize(shell).expect("there");
        let shell = shell.to_str().expect("text").to_owned();
        let app = AppId {
            kind: AppKind::Executable,
            name: shell.as_str().into(),
            owner: 0,
        };
        let ready = Ready {
            store,
            config,
            shell,
            app,
        };
        // On a busy machine a recording may have begun too late to count.
        let launch = |_| {
            let file = directory.path().join("report-ready");
            let _ = std::fs::remove_file(&file);
            let mut launch =
                ready.run(&["--report", file.to_str().expect("text"), "sh", "-c", ":"]);
            assert!(launch.status().expect("prepage").success());
            report(&file, 1);
            ready.is_ready()
        };
        assert!((0..16).any(launch), "it is never ready");
        ready
    }

    fn is_ready(&self) -> bool {
        let next = single::next_launch(&self.store, &self.app, false);
        matches!(next, Next::Ready(_))
    }

    /// Launches that have been learned from.
    fn launches(&self) -> u64 {
        let state = single::read_launch(&self.store, &self.app);
        state.expect("whole").launches
    }

    /// `prepage run`, in which `sh` is its shell.
    fn run(&self, arguments: &[&str]) -> Command {
        let config = self.config.to_str().expect("text");
        let arguments = arguments.iter().map(|&word| match word {
            "sh" => &self.shell,
            word => word,
        });
        let arguments: Vec<&str> = ["--config", config].into_iter().chain(arguments).collect();
        run(&self.store, &arguments)
    }
}

/// Makes `prepage run` with these arguments.
type Way = Box<dyn Fn(&[&str]) -> Command>;

/// What launches without help, to be recorded, and what launches a shell as was decided ahead.
fn ways(directory: &TempDir) -> [Way; 2] {
    let (store, ready) = (directory.path().join("store"), Ready::new(directory));
    [
        Box::new(move |arguments| run(&store, arguments)),
        Box::new(move |arguments| {
            assert!(ready.is_ready());
            ready.run(arguments)
        }),
    ]
}

#[test]
fn a_launch_that_was_decided_ahead_is_helped_by_the_first_program_and_learned_from_afterwards() {
    let directory = TempDir::new();
    let prepage = copy_for_others(directory.path());
    let ready = Ready::new(&directory);
    let file = directory.path().join("report");
    let launch = || {
        let mut command = Command::new(&prepage);
        command.args(["run", "--store"]).arg(&ready.store);
        command.arg("--config").arg(&ready.config);
        command.arg("--report").arg(&file);
        let ran = command
            .args(["--", &ready.shell, "-c", "sleep 0.3; exit 9"])
            .output();
        assert_eq!(ran.expect("prepage").status.code(), Some(9));
    };
    let before = ready.launches();
    launch();
    let record = report(&file, 1).remove(0);
    assert_eq!(
        (&record["end"], &record["decision"]["records"]),
        (&"exit".into(), &false.into()),
        "{record}"
    );
    assert!(record["prefetch"]["completed_us"].is_u64(), "{record}");
    assert!(record["t_begin_to_exec_us"].is_u64(), "{record}");
    wait_until("it to be learned from", || ready.launches() == before + 1);
    // Nothing else of prepage is needed before the command, and what cannot be learned costs nothing but that.
    let others = ["prepage-launch", "prepage-control"];
    for other in others {
        std::fs::remove_file(directory.path().join(other)).expect("removed");
    }
    launch();
    assert!(ready.is_ready());
    assert_eq!(ready.launches(), before + 1);
}

#[test]
fn a_launch_that_is_held_out_is_decided_ahead_too() {
    let directory = TempDir::new();
    let ready = Ready::with_holdouts(&directory, 2);
    let is_held_out = |number: usize| {
        let (before, file) = (
            ready.launches(),
            directory.path().join(format!("report-{number}")),
        );
        assert!(ready.is_ready(), "launch {number}");
        let arguments = [
            "--report",
            file.to_str().expect("text"),
            "sh",
            "-c",
            "exit 5",
        ];
        let status = ready.run(&arguments).status().expect("prepage");
        assert_eq!(status.code(), Some(5));
        wait_until("it to be learned from", || ready.launches() == before + 1);
        let record = report(&file, 1).remove(0);
        let is_held_out = record["decision"]["held_out"] == true;
        assert_eq!(record["prefetch"].is_null(), is_held_out, "{record}");
        is_held_out
    };
    let held_out: Vec<bool> = (0..4).map(is_held_out).collect();
    // Every second one, beginning with either.
    assert!(
        held_out.windows(2).all(|pair| pair[0] != pair[1]),
        "{held_out:?}"
    );
}

#[test]
fn what_is_ready_does_not_outlive_what_it_was_decided_by() {
    let directory = TempDir::new();
    let ready = Ready::new(&directory);
    let launch = || ready.run(&["sh", "-c", ":"]).status().expect("prepage");
    // Another configuration: this launch is still helped, and the next one decided anew.
    let config = std::fs::read_to_string(&ready.config).expect("read");
    let config = config.replace(
        "n_chk = 1000000\nn_chk_costly = 1000000",
        "n_chk = 1\nn_chk_costly = 1",
    );
    std::fs::write(&ready.config, config).expect("written");
    assert!(launch().success());
    wait_until("it to be taken back", || !ready.is_ready());
    assert!(launch().success());
    // What is said of a launch comes from the whole profile.
    let said = ready
        .run(&["-v", "sh", "-c", ":"])
        .output()
        .expect("prepage");
    assert!(text(&said.stderr).contains("fetching"), "{said:?}");
}

#[test]
fn what_accompanies_a_launch_that_was_decided_ahead_may_be_killed() {
    let directory = TempDir::new();
    let ready = Ready::new(&directory);
    let mut child = ready
        .run(&["sh", "-c", "read line; exit 6"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("prepage");
    let pid = child.id().to_string();
    // It is in a session of its own, and holds the launch by a pidfd.
    let holds = |process: &PathBuf| {
        let infos = std::fs::read_dir(process.join("fdinfo"))
            .into_iter()
            .flatten();
        let infos = infos
            .flatten()
            .filter_map(|info| std::fs::read_to_string(info.path()).ok());
        infos
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .any(|line| {
                line.strip_prefix("Pid:")
                    .is_some_and(|held| held.trim() == pid)
            })
    };
    let beside = || {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let processes = processes.map(|process| process.path());
        let mut ours = processes.filter(|process| {
            std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name == "prepage\n")
        });
        ours.find(holds)
    };
    wait_until("what accompanies it", || beside().is_some());
    let process = beside().expect("there");
    let number = process.file_name().and_then(OsStr::to_str).expect("a pid");
    let number = rustix::process::Pid::from_raw(number.parse().expect("a pid")).expect("not 0");
    rustix::process::kill_process(number, Signal::KILL).expect("killed");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"go\n")
        .expect("taken");
    assert_eq!(child.wait().expect("ended").code(), Some(6));
    assert!(ready.is_ready());
}

/// A program that is large enough to be helped.
const PROGRAM: [&str; 3] = ["/usr/bin/perl", "-MPOSIX", "-e1"];

#[test]
fn a_launch_is_learned_twice_and_helped_from_then_on() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let file = directory.path().join("report");
    let config = directory.path().join("prepage.toml");
    let text =
        "[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = 0\nretry_launches = 4\n";
    std::fs::write(&config, text).expect("written");
    let paths = [&config, &file].map(|p| p.to_str().expect("text"));
    // On a busy machine a recording may have begun too late to count.
    const LAUNCHES_MAX: usize = 8;
    let is_helped = |launches: usize| {
        let options = ["--config", paths[0], "--report", paths[1], "--"];
        let ran = output(&store, &[&options[..], &PROGRAM].concat());
        assert!(ran.status.success(), "{ran:?}");
        let last = report(&file, launches).remove(launches - 1);
        assert_eq!(last["end"], "exit", "{last}");
        let planned = last["decision"]["prefetch_pages"].as_u64();
        assert_eq!(planned > Some(0), last["phase"] == "prefetch", "{last}");
        last["phase"] == "prefetch"
    };
    let helped = (1..=LAUNCHES_MAX).find(|&launches| is_helped(launches));
    let launches = helped.expect("it is helped");
    assert!(launches > 2, "helped after {launches}");
    // Fetched, and not run.
    let options = [
        "--config", paths[0], "--report", paths[1], "--start", "only", "--",
    ];
    let ran = output(
        &store,
        &[&options[..], &["/usr/bin/perl", "-e", "print 1"]].concat(),
    );
    assert!(
        ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(),
        "{ran:?}"
    );
    let fetched = report(&file, launches + 1).remove(launches);
    assert!(fetched["prefetch"]["completed_us"].is_u64(), "{fetched}");
    // Unhelped is no hold-out.
    let options = [
        "--config", paths[0], "--report", paths[1], "--order", "none", "--",
    ];
    assert!(
        output(&store, &[&options[..], &PROGRAM].concat())
            .status
            .success()
    );
    let unhelped = report(&file, launches + 2).remove(launches + 1);
    assert_eq!(
        (&unhelped["prefetch"], &unhelped["decision"]["held_out"]),
        (&serde_json::Value::Null, &false.into())
    );
}

#[test]
fn opening_a_file_in_a_running_application_is_no_launch_of_it() {
    const FILES: usize = 16;
    const FILE_PAGES: usize = 128;
    let directory = TempDir::new();
    let [store, config, running] =
        ["store", "prepage.toml", "running"].map(|name| directory.path().join(name));
    let text = "[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = 0\n";
    std::fs::write(&config, text).expect("written");
    let data: Vec<PathBuf> = (0..FILES)
        .map(|number| {
            let path = directory.path().join(format!("data-{number}"));
            std::fs::write(&path, vec![1; FILE_PAGES * page_size() as usize]).expect("written");
            path
        })
        .collect();
    let words: Vec<&str> = data.iter().map(|p| p.to_str().expect("text")).collect();
    let line = format!(
        "#!/bin/sh\ntest -e {} && exit\nexec cat {} >/dev/null\n",
        running.display(),
        words.join(" ")
    );
    let browser = script(&directory, "browser", &line, 0o755);
    let launches = std::cell::Cell::new(0);
    let launch = || {
        let file = directory.path().join("report");
        let paths = [&config, &file].map(|p| p.to_str().expect("text"));
        let options = ["--config", paths[0], "--report", paths[1], "--", &browser];
        let ran = output(&store, &options);
        assert!(ran.status.success(), "{ran:?}");
        launches.set(launches.get() + 1);
        report(&file, launches.get()).pop().expect("one")
    };
    // On a busy machine a recording may have begun too late to count.
    let mut helped = None;
    for _ in 0..16 {
        let last = launch();
        if last["phase"] == "prefetch" {
            helped = Some(last);
            break;
        }
        if last["recording"]["lost"] != 0 {
            continue;
        }
        std::fs::write(&running, "").expect("written");
        launch();
        launch();
        std::fs::remove_file(&running).expect("removed");
    }
    let helped = helped.expect("it is helped");
    let planned = helped["decision"]["prefetch_pages"].as_u64();
    let pages = (FILES * FILE_PAGES) as u64;
    assert!(planned >= Some(pages), "{pages} pages: {helped}");
}

/// The application that the last launch of a report was of.
fn reported_app(directory: &TempDir, command: &[&OsStr]) -> String {
    let file = directory.path().join("report");
    let known = std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    let options = ["--report", file.to_str().expect("text"), "--"];
    let mut run = run(&directory.path().join("store"), &options);
    let ran = run.args(command).output().expect("prepage");
    assert!(ran.status.success(), "{ran:?}");
    let record = report(&file, known + 1).remove(known);
    record["app"].as_str().expect("a name").to_owned()
}

#[test]
fn what_a_wrapper_runs_is_the_application() {
    let directory = TempDir::new();
    let app = reported_app(&directory, &["perl", "-e1"].map(OsStr::new));
    assert!(app.contains("perl"), "{app}");
    for wrapper in [
        "timeout 10",
        "nice -n 1",
        "env A=b setsid -w",
        "stdbuf -o L",
        "setpriv --clear-groups",
        "prlimit --nofile=99",
    ] {
        let words = wrapper.split(' ').chain(["perl", "-e1"]);
        let words: Vec<&OsStr> = words.map(OsStr::new).collect();
        assert_eq!(reported_app(&directory, &words), app, "{wrapper}");
    }
    for shell in [&["sh", "-c"][..], &["bash", "-ec"], &["script", "-qc"]] {
        // What follows the code is where script(1) writes to, and the name of a shell.
        let words = [shell, &["LANG=C exec perl -e '1;' </dev/null", "/dev/null"]].concat();
        let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
        assert_eq!(reported_app(&directory, &words), app, "{shell:?}");
    }
    // Of what does more, each is an application by itself, and none is the shell.
    let named = |code: &str| reported_app(&directory, &["sh", "-c", code].map(OsStr::new));
    let names = ["perl -e1 | cat", "perl -e1; cat </dev/null", ":"].map(named);
    assert!(
        names.iter().all(|name| name.contains("sh -c ")),
        "{names:?}"
    );
    assert!(
        names[0] != names[1] && names[1] != names[2] && names[0] != names[2],
        "{names:?}"
    );
}

#[test]
fn an_executable_whose_path_is_no_text_is_helped() {
    let directory = TempDir::new();
    let path = directory.path().join(OsStr::from_bytes(b"sh\xff"));
    std::fs::copy("/bin/sh", &path).expect("copied");
    let app = reported_app(&directory, &[path.as_os_str(), "-c".as_ref(), ":".as_ref()]);
    assert!(app.ends_with("/sh\u{fffd}@0"), "{app}");
}

#[test]
fn what_cannot_be_run_is_refused_as_a_shell_does() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let plain = script(&directory, "plain", "true\n", 0o644);
    let lost = script(&directory, "lost", "#!/no/such/interpreter\n", 0o755);
    let fifo = directory.path().join("fifo");
    let fifo = fifo.to_str().expect("text").to_owned();
    let made = Command::new("mkfifo").args(["-m", "755", &fifo]).status();
    assert!(made.expect("this test needs mkfifo").success());
    for (command, status, said) in [
        ("no-such-command-anywhere", 127, "command not found"),
        ("", 127, "'': command not found"),
        ("/no/such/file", 127, "No such file"),
        (&plain, 126, "Permission denied"),
        ("/tmp", 126, "Is a directory"),
        // To open it would wait for a writer.
        (&fifo, 126, "Permission denied"),
        (&lost, 127, "interpreter"),
    ] {
        let ran = output(&store, &["--", command]);
        let complaint = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(status), "{command}: {complaint}");
        assert!(
            complaint.contains(said) && complaint.contains(command),
            "{complaint}"
        );
    }
    // A script without a first line is the shell's.
    let bare = script(&directory, "bare", "echo \"$1\"; exit 5\n", 0o755);
    let ran = output(&store, &["--", &bare, "said"]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout).as_str()),
        (Some(5), "said\n")
    );
    let kept: Vec<_> = std::fs::read_dir(&store)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let names: Vec<_> = kept
        .iter()
        .map(|e| text(e.file_name().as_encoded_bytes()))
        .collect();
    assert!(
        !names
            .iter()
            .any(|n| n.contains("plain") || n.contains("lost")),
        "{names:?}"
    );
}

#[test]
fn wrong_options_are_usage_errors() {
    let directory = TempDir::new();
    for arguments in [
        &["--order", "fast", "--", "true"][..],
        &["--start", "x", "true"],
        &[],
    ] {
        let ran = output(directory.path(), arguments);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}");
    }
    let said = text(&output(directory.path(), &["--order", "fast", "true"]).stderr);
    assert!(said.contains("whole-files"), "{said}");
    let ran = output(directory.path(), &["--report", "/no/such/place", "true"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("report /no/such/place"));
}

#[test]
fn status_signals_and_streams_are_the_commands() {
    for run in ways(&TempDir::new()) {
        status_signals_and_streams_of(&run);
    }
}

fn status_signals_and_streams_of(run: &dyn Fn(&[&str]) -> Command) {
    let sh = |line: &str| run(&["--", "sh", "-c", line]).output().expect("prepage");
    assert_eq!(sh("exit 77").status.code(), Some(77));
    assert_eq!(sh("kill -KILL $$").status.signal(), Some(9));
    let ran = sh("echo out; echo err >&2");
    assert_eq!(
        (text(&ran.stdout), text(&ran.stderr)),
        ("out\n".into(), "err\n".into())
    );
    // SIGPIPE kills as it should: Rust's runtime ignores it.
    assert_eq!(sh("kill -PIPE $$").status.signal(), Some(13));
    let mut child = run(&["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("prepage");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"typed").expect("taken");
    assert_eq!(
        text(&child.wait_with_output().expect("ended").stdout),
        "typed"
    );
    // The pid that was asked is the command's.
    let child = run(&["--", "sh", "-c", "echo $$"])
        .stdout(Stdio::piped())
        .spawn();
    let child = child.expect("prepage");
    let pid = child.id();
    let said = text(&child.wait_with_output().expect("ended").stdout);
    assert_eq!(said.trim(), pid.to_string());
}

#[test]
fn nothing_is_inherited_and_no_child_is_left() {
    for run in ways(&TempDir::new()) {
        what_is_inherited_and_left_by(&run);
    }
}

fn what_is_inherited_and_left_by(run: &dyn Fn(&[&str]) -> Command) {
    let output = |command: &[&str]| run(command).output().expect("prepage");
    let bare = Command::new("ls")
        .args(["/proc/self/fd"])
        .output()
        .expect("ls");
    let ran = output(&["--", "sh", "-c", "exec ls /proc/self/fd"]);
    assert_eq!(
        text(&ran.stdout).lines().count(),
        text(&bare.stdout).lines().count()
    );
    // A child of ours would be a child of the command.
    let line = "cat /proc/$$/task/$$/children; grep -E 'SigBlk|SigIgn' /proc/self/status";
    let bare = Command::new("sh").args(["-c", line]).output().expect("sh");
    let ran = output(&["--", "sh", "-c", line]);
    let count = |bytes: &[u8]| text(bytes).lines().next().unwrap_or("").split(' ').count();
    assert_eq!(count(&ran.stdout), count(&bare.stdout));
    let masks = |bytes: &[u8]| {
        text(bytes)
            .lines()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(masks(&ran.stdout), masks(&bare.stdout));
    // The reader of a pipe waits for the command, not for what accompanies it.
    let begun = Instant::now();
    let piped = output(&["--", "sh", "-c", "echo x; sleep 3 >/dev/null 2>&1 &"]);
    assert_eq!(text(&piped.stdout), "x\n");
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "the pipe was held open"
    );
}

#[test]
fn terminals_and_job_control_are_the_commands() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let prepage = format!(
        "{} run --store {} --",
        env!("CARGO_BIN_EXE_prepage"),
        store.display()
    );
    let pty = |line: &str| {
        let out = Command::new("script")
            .args(["-qec", line, "/dev/null"])
            .stdin(Stdio::null())
            .output();
        text(&out.expect("script(1), of util-linux or bsdutils").stdout)
    };
    assert!(pty(&format!("{prepage} tty")).contains("/dev/pts/"));
    // Stopped and continued in a shell with job control; then in the background.
    let line = format!(
        "bash -imc '{prepage} sh -c \"kill -TSTP \\$\\$; echo continued\"; jobs; fg; {prepage} sh -c \"exit 4\" & wait $!; echo background $?'"
    );
    let said = pty(&line);
    assert!(said.contains("Stopped"), "{said}");
    assert!(
        said.contains("continued") && said.contains("background 4"),
        "{said}"
    );
}

#[test]
fn a_store_that_cannot_be_used_stops_nothing() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let verbose = |store: &Path| output(store, &["-v", "--", "sh", "-c", "echo ran"]);
    let profile = || {
        let entries = std::fs::read_dir(&store).expect("a store").flatten();
        let mut profiles = entries.map(|e| e.path());
        profiles
            .find(|p| p.extension().is_some_and(|e| e == "profile"))
            .expect("a profile")
    };
    assert_eq!(text(&verbose(&store).stdout), "ran\n");
    // Damaged: set aside, begun anew.
    let whole = std::fs::read(profile()).expect("readable");
    let mut damaged = whole.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    std::fs::write(profile(), &damaged).expect("written");
    let ran = verbose(&store);
    assert!(
        text(&ran.stderr).contains("set aside"),
        "{}",
        text(&ran.stderr)
    );
    assert_eq!(text(&ran.stdout), "ran\n");
    // Of a later version: left as it is.
    let mut newer = whole;
    newer[7] += 1;
    std::fs::write(profile(), &newer).expect("written");
    let ran = verbose(&store);
    assert!(
        text(&ran.stderr).contains("of format"),
        "{}",
        text(&ran.stderr)
    );
    assert_eq!(
        (text(&ran.stdout), std::fs::read(profile()).expect("kept")),
        ("ran\n".into(), newer)
    );
    // No directory at all.
    let ran = verbose(Path::new("/dev/null/store"));
    assert!(
        text(&ran.stderr).contains("/dev/null/store"),
        "{}",
        text(&ran.stderr)
    );
    assert_eq!(text(&ran.stdout), "ran\n");
}

#[test]
fn a_configuration_that_cannot_be_used_is_said_once_and_stops_nothing() {
    let directory = TempDir::new();
    let config = |name: &str, text: &str| script(&directory, name, text, 0o644);
    // Each in a store of its own: an application that is left alone needs no configuration.
    let launch = |number: usize, file: &str| {
        let store = directory.path().join(format!("store{number}"));
        let line = ["--config", file, "--", "sh", "-c", "exit 7"];
        let ran = output(&store, &line);
        (ran.status.code(), text(&ran.stderr))
    };
    let misspelt = config("misspelt", "[launch]\nn_rawsec = 3\n");
    let out_of_range = config("out-of-range", "[launch]\nr_miss = 7\n");
    let wrong = [
        ("/no/such/file", "No such file"),
        ("/tmp", "Is a directory"),
        (&misspelt, "misspelt:2: unknown field `n_rawsec`"),
        (&out_of_range, "out-of-range:2: launch.r_miss must be"),
    ];
    for (number, (file, part)) in wrong.into_iter().enumerate() {
        let (status, said) = launch(number, file);
        assert_eq!((status, said.lines().count()), (Some(7), 1), "{said}");
        for part in [file, part, "the defaults are used"] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
    }
    let right = config("right", "[launch]\nn_rawseq = 3\n");
    assert_eq!(launch(wrong.len(), &right), (Some(7), String::new()));
}

#[test]
fn a_configuration_that_the_service_does_not_read_is_said() {
    let service = Service::start("");
    let line = ["run", "--config", "mine.toml", "--", "sh", "-c", "exit 7"];
    let ran = service.try_call(&line);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(7), "{said}");
    assert!(
        said.lines().count() == 1 && said.contains("mine.toml: not read"),
        "{said}"
    );
}

#[test]
fn a_full_disk_stops_nothing() {
    let directory = TempDir::new();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=300k", "tmpfs"])
        .arg(directory.path())
        .status();
    assert!(
        mount.expect("mount").success(),
        "this test needs to mount a tmpfs"
    );
    let full = directory.path().join("full");
    let fill = format!("head -c 1M /dev/zero > {}; echo ran", full.display());
    // Full when what was learned is to be kept, and from the beginning.
    let [filling, filled] = [0, 1].map(|_| {
        let line = ["-v", "--", "sh", "-c", &fill];
        output(directory.path(), &line)
    });
    let is_clean = !std::fs::read_dir(directory.path())
        .expect("mounted")
        .flatten()
        .any(|e| e.path().extension().is_some_and(|e| e == "new"));
    let unmount = Command::new("umount").arg(directory.path()).status();
    assert!(unmount.expect("umount").success());
    for (ran, expected) in [(filling, "not kept"), (filled, "not recorded")] {
        assert_eq!(text(&ran.stdout), "ran\n");
        let said = text(&ran.stderr);
        assert!(said.contains(expected), "{said}");
    }
    assert!(is_clean, "half a profile was left");
}

/// The processes beside the one that is, or becomes, the command.
fn accompanying(store: &Path, command: u32) -> Vec<i32> {
    let store = store.to_str().expect("text");
    let is_ours = |pid: &i32| {
        *pid != command.cast_signed()
            && prepage_kernel::process::cmdline(*pid)
                .is_ok_and(|words| words.iter().any(|w| *w == *store))
    };
    let pids = prepage_kernel::process::processes().unwrap_or_default();
    pids.into_iter().filter(is_ours).collect()
}

/// Sends them a signal, as soon as there is one.
fn signal_accompanying(store: &Path, command: u32, signal: Signal) {
    wait_until("the accompanying process", || {
        let pids = accompanying(store, command).into_iter();
        let pids = pids.filter_map(rustix::process::Pid::from_raw);
        let signalled = pids.filter(|pid| rustix::process::kill_process(*pid, signal).is_ok());
        signalled.count() > 0
    });
}

/// As systemd sends it to what is left of a unit.
#[test]
fn what_a_launch_showed_is_kept_after_sigterm_and_nothing_stays() {
    let directory = TempDir::new();
    let (store, file) = (
        directory.path().join("store"),
        directory.path().join("report"),
    );
    let begin = || {
        let arguments = ["--report", file.to_str().expect("text"), "--", "cat"];
        let mut command = run(&store, &arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("prepage");
        // It runs.
        let mut byte = [0];
        let (stdin, stdout) = (child.stdin.as_mut(), child.stdout.as_mut());
        stdin.expect("piped").write_all(b"x").expect("written");
        stdout.expect("piped").read_exact(&mut byte).expect("read");
        signal_accompanying(&store, child.id(), Signal::TERM);
        child
    };
    let mut child = begin();
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
    report(&file, 1);
    let mut goes_on = begin();
    wait_until("its end", || accompanying(&store, goes_on.id()).is_empty());
    drop(goes_on.stdin.take());
    assert!(goes_on.wait().expect("ended").success());
}

#[test]
fn the_accompanying_process_may_be_killed_at_any_time() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let child = run(&store, &["--", "sh", "-c", "sleep 0.3; exit 6"]).spawn();
    let mut child = child.expect("prepage");
    signal_accompanying(&store, child.id(), Signal::KILL);
    assert_eq!(child.wait().expect("ended").code(), Some(6));
}

#[test]
fn many_launches_at_once_all_run() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let children: Vec<_> = (0..64)
        .map(|_| {
            run(&store, &["--", "sh", "-c", "exit 9"])
                .spawn()
                .expect("prepage")
        })
        .collect();
    for mut child in children {
        assert_eq!(child.wait().expect("ended").code(), Some(9));
    }
}

#[test]
fn limits_and_other_users_programs() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let prepage = env!("CARGO_BIN_EXE_prepage");
    for limit in ["-n 5", "-u 1", "-f 0"] {
        // What the tests themselves were started with counts too.
        let line = format!(
            "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit {limit}; exec {prepage} run --store {} -- sh -c 'exit 8'",
            store.display()
        );
        let ran = Command::new("sh").args(["-c", &line]).output().expect("sh");
        assert_eq!(ran.status.code(), Some(8), "{limit}: {}", text(&ran.stderr));
    }
    // A program that changes its user, even while its path calls are recorded.
    let program = directory.path().join("id");
    std::fs::copy("/usr/bin/id", &program).expect("a copy");
    std::os::unix::fs::chown(&program, Some(65_534), None).expect("given away");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("setuid");
    let ran = output(&store, &["--", program.to_str().expect("text"), "-u"]);
    assert_eq!(text(&ran.stdout), "65534\n");
}

/// As an ordinary user, from a copy that this user may run.
fn as_nobody(directory: &TempDir, socket: &Path, arguments: &[&str]) -> Output {
    const NOBODY: u32 = 65_534;
    let copy = copy_for_others(directory.path());
    let mut command = Command::new(copy);
    command
        .arg("--socket")
        .arg(socket)
        .arg("run")
        .args(arguments);
    command
        .current_dir("/")
        .gid(NOBODY)
        .uid(NOBODY)
        .output()
        .expect("prepage")
}

#[test]
fn an_ordinary_user_without_a_service_is_told_so_on_request() {
    assert!(is_root(), "this test needs root, to become another user");
    let directory = TempDir::new();
    let socket = directory.path().join("none");
    let ran = as_nobody(&directory, &socket, &["--", "sh", "-c", "exit 3"]);
    assert_eq!(
        (ran.status.code(), text(&ran.stderr).as_str()),
        (Some(3), "")
    );
    let ran = as_nobody(&directory, &socket, &["-v", "--", "sh", "-c", "exit 3"]);
    assert!(
        text(&ran.stderr).contains("not helped"),
        "{}",
        text(&ran.stderr)
    );
    assert_eq!(ran.status.code(), Some(3));
}

/// A service that is stuck accepts nobody; so many wait for it that connect(2) waits as well.
#[test]
fn a_service_that_is_stuck_holds_up_no_command() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    assert!(is_root(), "this test needs root, to become another user");
    let directory = TempDir::new();
    let path = directory.path().join("stuck");
    let address = SocketAddrUnix::new(&path).expect("a short path");
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket")
    };
    let stuck = socket();
    rustix::net::bind(&stuck, &address).expect("bind");
    rustix::net::listen(&stuck, 0).expect("listen");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("set");
    let mut waiting = Vec::new();
    loop {
        let client = socket();
        if rustix::net::connect(&client, &address).is_err() {
            break;
        }
        waiting.push(client);
    }
    let ran = as_nobody(&directory, &path, &["-v", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ran.status.code(), Some(3));
    assert!(text(&ran.stderr).contains("stopped or stuck"), "{ran:?}");
}

/// Answers as a service whose prefetch takes so long, until a command has been run.
fn slow_service(socket: &Path, prefetch: Duration) -> std::thread::JoinHandle<()> {
    let listener = std::os::unix::net::UnixListener::bind(socket).expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a command");
        let began = Instant::now();
        loop {
            let request = common::message(&mut stream);
            let reply = match () {
                () if request.is_empty() => return,
                () if request.contains("LaunchBegin") => {
                    r#"{"app":"executable:/bin/true@0","launch":7,"phase":"prefetch","waits":true,
                        "awaits_tracer":false,"decision":{"records":false,"profiles_paths":false,"prefetch_pages":9,"gap_pages":0,"paths":0,"held_out":false}}"#
                }
                () if began.elapsed() < prefetch => r#"{"complete":false}"#,
                () => r#"{"complete":true}"#,
            };
            let reply = format!("{{\"parameters\":{reply}}}\0");
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_prefetch_that_is_waited_for_longer_than_a_second_says_so() {
    let directory = TempDir::new();
    // Where the machine is so busy that an answer comes late, the command does not wait for the rest.
    let said = |start: &str, prefetch: Duration| {
        let socket = directory.path().join("s");
        let _ = std::fs::remove_file(&socket);
        let service = slow_service(&socket, prefetch);
        let ran = Command::new(env!("CARGO_BIN_EXE_prepage"))
            .arg("--socket")
            .arg(&socket)
            .args(["run", "--start", start, "--", "echo", "ran"])
            .output()
            .expect("prepage");
        service.join().expect("served");
        assert!(ran.status.success(), "{ran:?}");
        let printed = if start == "only" { "" } else { "ran\n" };
        assert_eq!(text(&ran.stdout), printed);
        text(&ran.stderr)
    };
    for (start, part) in [
        ("before", "before it runs"),
        ("only", "what the command would need"),
    ] {
        let tries = || (0..10).map(|_| said(start, Duration::from_millis(1_200)));
        let found = tries().find(|said| said.contains(part));
        let lines = found.map(|said| said.lines().count());
        assert_eq!(lines, Some(1), "once");
    }
    assert_eq!(said("before", Duration::ZERO), "");
    // Where nobody asked to wait, standard error is the command's own.
    assert_eq!(said("together", Duration::from_millis(1_200)), "");
}

/// Launches until the service has seen the end of so many.
fn launch_until_seen(service: &Service, number: usize, launch: impl Fn()) {
    launch();
    let mut launched = Instant::now();
    wait_until("the launch's end", || {
        // A service that is too busy to answer at once is not waited for, and never knows of the launch.
        if launched.elapsed() > Duration::from_secs(3) {
            launch();
            launched = Instant::now();
        }
        service.launches().len() >= number
    });
}

/// Its profile takes 1.0 MB, of the 4 MiB that one may.
#[test]
fn a_launch_of_ten_thousand_files_is_learned_and_fetched_whole() {
    const FILES: usize = 10_000;
    // Rings that hold a whole launch: a debug build is too slow to empty smaller ones meanwhile. The launch that is to read
    // nothing by itself would be over, as it is idle, before all is fetched.
    const SETTINGS: &str = "[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = 0\n\
        t_idle_ms = 60000\nt_timeout_ms = 60000\n[observe]\nfile_ring_pages = 4096\n";
    let (_machine, of_files) = (Machine::lock(), Directory::new());
    let name = |number| of_files.path(&format!("{number:05}"));
    let files: Vec<PathBuf> = (0..FILES).map(name).collect();
    let write = |path: &PathBuf| std::fs::write(path, "x").expect("written");
    files.iter().for_each(write);
    rustix::fs::sync();
    let service = Service::start(SETTINGS);
    let run = || service.command(&["run", "-v", "--", "cksum"]);
    let is_learned = |_| {
        let before = service.launches().len();
        let ran = run().args(&files).output().expect("prepage");
        assert_eq!(text(&ran.stdout).lines().count(), FILES);
        // A service that is too busy to answer has not seen it. What it saw is looked up at the lowest priority.
        if text(&ran.stderr).contains("not helped") {
            return false;
        }
        let is_over = || service.launches().len() > before;
        within_half_minutes(6, "the launch's end", is_over);
        let known = &service.json(&["explain", "cksum"])["launch"];
        assert_eq!(known["files_left_out"], 0, "{known}");
        known["phase"] == "prefetch" && known["sequence_files"].as_u64() >= Some(FILES as u64)
    };
    // On a busy machine one may begin before it can be recorded.
    assert!((1..=8).any(is_learned), "{}", service.log());
    for path in &files {
        let file = std::fs::File::open(path).expect("open");
        fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
    }
    let mut missing: Vec<&PathBuf> = files
        .iter()
        .filter(|path| cached(path, 0, 1) == 0)
        .collect();
    assert_eq!(missing.len(), FILES);
    let mut launch = run();
    launch.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut launch = launch.spawn().expect("prepage");
    // What came may be reclaimed before the last has come.
    eventually("all files are fetched", || {
        missing.retain(|path| cached(path, 0, 1) == 0);
        missing.is_empty()
    });
    drop(launch.stdin.take());
    assert!(launch.wait().expect("waited for").success());
    let profiles = std::fs::read_dir(service.directory.path().join("state")).expect("a store");
    let sizes = profiles
        .flatten()
        .map(|entry| entry.metadata().expect("stat").len());
    let largest = sizes.max().expect("a profile");
    assert!(largest < PROFILE_BYTES_MAX as u64 / 2, "{largest}");
}

#[test]
fn the_service_learns_and_helps_a_users_launches() {
    assert!(is_root(), "this test needs root, to become another user");
    let service = Service::start("[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = 0\n");
    // On a busy machine one may begin before it can be recorded.
    const LAUNCHES_MAX: usize = 8;
    let seen = (1..=LAUNCHES_MAX).find_map(|number| {
        let launch = || {
            let ran = as_nobody(
                &service.directory,
                &service.socket(),
                &[&["--"][..], &PROGRAM].concat(),
            );
            assert!(ran.status.success(), "{ran:?}");
        };
        launch_until_seen(&service, number, launch);
        let seen = service.launches();
        (seen.last()?["phase"] == "prefetch").then_some(seen)
    });
    let seen = seen.expect("it is helped");
    let (helped, last_recorded) = (&seen[seen.len() - 1], &seen[seen.len() - 2]);
    assert_eq!(helped["app"], "executable:/usr/bin/perl@65534");
    assert!(helped["decision"]["prefetch_pages"].as_u64() > Some(0));
    // The first was traced: what it looked for in vain is looked up as well, and only that shows it.
    assert_eq!(seen[0]["decision"]["profiles_paths"], true, "{seen:?}");
    let opened = &last_recorded["recording"]["calls"];
    let looked_up = &helped["decision"]["paths"];
    assert!(looked_up.as_u64() > opened.as_u64(), "{seen:?}");
    let known = service.json(&["explain", "perl"]);
    assert_eq!(
        (&known["launch"]["launches"], &known["launch"]["phase"]),
        (&seen.len().into(), &"prefetch".into())
    );
    assert!(
        service
            .call(&["explain", "perl"])
            .contains("launch sequence")
    );
    assert!(service.call(&["stats"]).contains("helped"));
    assert!(service.call(&["apps", "list"]).contains("prefetch"));
    // What is learned is kept, exported and imported.
    let file = service.directory.path().join("perl.profile");
    let file = file.to_str().expect("text");
    service.call(&["apps", "export", "perl", file]);
    service.call(&["apps", "forget", "perl"]);
    service.call(&["apps", "import", file]);
    assert_eq!(
        service.json(&["explain", "perl"])["launch"]["phase"],
        "prefetch"
    );
    // A command that is not found was no launch.
    let ran = as_nobody(
        &service.directory,
        &service.socket(),
        &["--", "/no/such/file"],
    );
    assert_eq!(ran.status.code(), Some(127));
    assert_eq!(service.launches().len(), seen.len());
}

/// Who traces a process; 0 where nobody does.
fn tracer_of(pid: u32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.map_or(0, |pid| pid.trim().parse().expect("a pid"))
}

#[test]
fn a_launch_of_the_services_is_traced_until_it_is_over_or_the_tracer_ends() {
    for is_killed in [false, true] {
        let service = Service::start("[launch]\nt_idle_ms = 300\nt_timeout_ms = 2000\n");
        let launch = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
            command.arg("--socket").arg(service.socket());
            let command = command.args(["run", "--", "sleep", "600"]).spawn();
            (command.expect("prepage"), Instant::now())
        };
        let (mut child, mut launched) = launch();
        wait_until("the tracer", || {
            // A service that is too busy to answer at once is not waited for.
            if launched.elapsed() > Duration::from_secs(3) {
                child.kill().and_then(|()| child.wait()).expect("ended");
                (child, launched) = launch();
            }
            tracer_of(child.id()) > 0
        });
        if is_killed {
            let tracer = rustix::process::Pid::from_raw(tracer_of(child.id())).expect("a pid");
            rustix::process::kill_process(tracer, Signal::KILL).expect("killed");
        }
        wait_until("the launch's end", || !service.launches().is_empty());
        wait_until("its being let go", || tracer_of(child.id()) == 0);
        assert!(
            child.try_wait().is_ok_and(|ended| ended.is_none()),
            "it runs on"
        );
        child.kill().and_then(|()| child.wait()).expect("ended");
    }
}

#[test]
fn a_users_set_uid_program_keeps_its_rights_while_it_is_traced() {
    let service = Service::start("");
    let program = service.directory.path().join("id");
    std::fs::copy("/usr/bin/id", &program).expect("a copy");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("setuid");
    let line = format!("{} -u; {0} -u", program.display());
    for command in [
        &["sh", "-c", &*line][..],
        &[program.to_str().expect("text"), "-u"],
    ] {
        let arguments = [&["--"], command].concat();
        let ran = as_nobody(&service.directory, &service.socket(), &arguments);
        let said = text(&ran.stdout);
        assert!(
            said.lines().all(|user| user == "0") && !said.is_empty(),
            "{ran:?}"
        );
    }
}

/// The same path is another file here: that one does not count.
#[test]
fn the_service_learns_launches_among_other_mounts() {
    let service = Service::start("[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = 0\n");
    let place = |side: &str| service.directory.path().join(side);
    for (side, program) in [("theirs", PROGRAM[0]), ("ours", "/bin/sleep")] {
        std::fs::create_dir(place(side)).expect("mkdir");
        std::fs::copy(program, place(side).join("perl")).expect("a copy");
    }
    const MOUNT: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
    let launch = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MOUNT, "sh"]);
        command.args([place("theirs"), place("ours")]);
        command.arg(env!("CARGO_BIN_EXE_prepage"));
        command.arg("--socket").arg(service.socket());
        command.args(["run", "--"]).arg(place("ours").join("perl"));
        let ran = command.args(&PROGRAM[1..]).output().expect("unshare");
        assert!(ran.status.success(), "{ran:?}");
    };
    for number in 1..=3 {
        launch_until_seen(&service, number, launch);
    }
    let seen = service.launches();
    assert_eq!(seen[2]["phase"], "prefetch", "{seen:?}");
}

#[test]
fn the_service_sees_launches_of_tracked_applications_by_their_exec() {
    for name in [&b"seen"[..], b"seen\xff"].map(OsStr::from_bytes) {
        let service = Service::start("[launch]\nt_idle_ms = 300\n");
        let apps = TempDir::new();
        let app = common::application(&apps, name);
        service.call(&["track", "--pid", &app.pid().to_string()]);
        drop(app);
        let state = || service.json(&["status"])["apps"][0]["state"].clone();
        wait_until("its end", || state() == "not running");
        let _app = common::application(&apps, name);
        wait_until("the launch", || !service.launches().is_empty());
        let launch = &service.launches()[0];
        assert!(launch["noticed_us"].is_u64(), "{launch}");
        let app = launch["app"].as_str().expect("a name");
        assert!(
            app.contains(&format!("/{}@", name.to_string_lossy())),
            "{launch}"
        );
    }
}

/// Whether an application is listed says the configuration alone: it need not have run before, nor run on until it is
/// found, nor be launched by its own name.
#[test]
fn the_service_sees_the_first_launch_of_a_listed_application() {
    let service = Service::listing(&["listed"]);
    let apps = TempDir::new();
    let others = common::application(&apps, "unlisted");
    let program = common::program(&apps, "listed");
    let link = apps.path().join("link");
    std::os::unix::fs::symlink(&program, &link).expect("a link");
    let app = common::application_by(&program, Command::new("setsid").arg(&link).arg("600"));
    wait_until("the launch", || !service.launches().is_empty());
    let seen: Vec<_> = service
        .launches()
        .iter()
        .map(|l| l["app"].clone())
        .collect();
    let id = format!("executable:{}/listed@0", apps.path().display());
    assert_eq!(seen, [id.as_str()]);
    let tracked = service.json(&["status"])["apps"].clone();
    assert_eq!(tracked[0]["app"], id);
    assert!(tracked[1].is_null(), "{tracked}");
    drop((app, others));
}

/// What an interpreter runs is told from its words, before anything else of it is looked up.
#[test]
fn the_service_sees_the_launch_of_a_listed_script() {
    let apps = TempDir::new();
    let wait = "exec 3<> \"$0.pipe\"; read x <&3\n";
    let scripts = ["other", "listed@2.sh"].map(|name| {
        let path = script(&apps, name, wait, 0o644);
        let pipe = format!("{path}.pipe");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        path
    });
    let service = Service::listing(&["listed@2.sh"]);
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    let running = scripts.each_ref().map(|path| {
        let mut command = Command::new("setsid");
        common::application_by(&shell, command.arg("/bin/sh").arg(path))
    });
    let seen = || {
        let all = service.launches().into_iter();
        all.map(|l| l["app"].clone()).collect::<Vec<_>>()
    };
    wait_until("the launch", || !seen().is_empty());
    assert_eq!(seen(), [format!("executable:{}@0", scripts[1])]);
    drop(running);
}

/// As Wine has its server execute what was asked for: what leaves the process tree of a launch is no other launch.
#[test]
fn what_a_launch_executes_elsewhere_is_no_launch_of_its_own() {
    let service = Service::listing(&["twice", "other"]);
    let apps = TempDir::new();
    let program = common::program(&apps, "twice");
    let line = "(setsid \"$0\" 2 &); exec \"$0\" 600";
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", line]).arg(&program);
    let app = common::application_by(&program, &mut command);
    let is_it = |pid: &i32| process::exe(*pid).is_ok_and(|exe| exe == program);
    let runs_twice = || {
        let all = process::processes().expect("/proc is there");
        all.iter().filter(|pid| is_it(pid)).count() == 2
    };
    wait_until("the other process", runs_twice);
    // Had it been seen, it would be told before this.
    let other = common::application(&apps, "other");
    let told = |name: &str| {
        let id = format!("executable:{}/{name}@0", apps.path().display());
        let all = service.launches();
        all.iter().filter(|launch| launch["app"] == id).count()
    };
    wait_until("the last launch", || told("other") == 1);
    // One that was begun before may be over later.
    wait_until("the first launch", || told("twice") > 0);
    assert_eq!(told("twice"), 1);
    drop((app, other));
}

/// A program of Flatpak's name, as a graphical session launches it for this application, which runs on.
fn flatpak(apps: &TempDir, application: &str) -> common::Running {
    let program = common::copy("/usr/bin/yes", apps, "flatpak");
    let mut command = Command::new("setsid");
    command.arg(&program).args(["run", application]);
    command.env("DISPLAY", ":77").stdin(Stdio::null());
    // Which nobody reads: it waits.
    command.stdout(Stdio::piped());
    common::application_by(&program, &mut command)
}

/// It is known by what its words say, and not by its executable.
#[test]
fn the_service_sees_the_launch_of_a_listed_flatpak() {
    let listed = "flatpak run org.prepage.Listed";
    let service = Service::listing(&[listed]);
    let apps = TempDir::new();
    let running = ["org.prepage.Unlisted", "org.prepage.Listed"].map(|name| flatpak(&apps, name));
    wait_until("the launch", || !service.launches().is_empty());
    let seen = service.launches();
    assert_eq!(seen[0]["app"], format!("executable:{listed}@0"));
    assert_eq!(seen.len(), 1, "{seen:?}");
    drop(running);
}

/// As a desktop launches it, a terminal, a script, a service.
#[test]
fn the_service_sees_interactive_launches_and_no_others() {
    // Launches are over while their programs still run: one that ends at once may be gone before it is looked at.
    let settings = "[service]\nlaunches = \"interactive\"\n[launch]\nt_idle_ms = 300\n";
    let service = Service::start(settings);
    // Its socket is there before it listens to execs; when it answers it does.
    service.call(&["status"]);
    let apps = TempDir::new();
    let launched = |name: &str, through: &[&str], variable: &str| {
        let program = common::program(&apps, name);
        let mut command = Command::new("setsid");
        command.args(through).arg(&program).arg("600");
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command.stdin(Stdio::null()).env(variable, ":77");
        common::application_by(&program, &mut command)
    };
    // A script that only runs what it is told to, as the real one.
    let wrapper = script(&apps, "gamemoderun", "#!/bin/sh\nexec \"$@\"\n", 0o755);
    let typed = common::program(&apps, "typed");
    let mut terminal = Command::new("setsid");
    terminal.args(["script", "--quiet", "--command"]);
    terminal
        .arg(format!("exec {} 600", typed.display()))
        .arg("/dev/null");
    terminal
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .env("DISPLAY", ":77");
    let terminal = common::Running(terminal.spawn().expect("these tests need script(1)"));
    let unseen = launched("daemon", &[], "NO_DISPLAY");
    let is_typed = || {
        let children = format!("/proc/{0}/task/{0}/children", terminal.pid());
        let child = std::fs::read_to_string(children).unwrap_or_default();
        let exe = std::fs::read_link(format!("/proc/{}/exe", child.trim()));
        exe.is_ok_and(|exe| exe == typed)
    };
    wait_until("the terminal's program", is_typed);
    let seen = [
        launched("x11", &[], "DISPLAY"),
        launched("wayland", &[], "WAYLAND_DISPLAY"),
        // As many desktop entries do.
        launched("wrapped", &["env", "LC_ALL=C", "nice"], "DISPLAY"),
        launched("games", &[&wrapper, "setpriv", "--clear-groups"], "DISPLAY"),
        flatpak(&apps, apps.path().join("flat").to_str().expect("text")),
    ];
    let own_launches = || {
        let all = service.launches();
        // Somebody may use the machine.
        let is_own = |launch: &serde_json::Value| {
            let app = launch["app"].to_string();
            app.contains(apps.path().to_str().expect("text"))
        };
        all.into_iter().filter(is_own).collect::<Vec<_>>()
    };
    // The others were launched before: had they been seen, they would be told before these.
    wait_until("the launches", || own_launches().len() >= seen.len());
    let of = |launch: &serde_json::Value| launch["app"].as_str().expect("text").to_owned();
    let mut names: Vec<String> = own_launches().iter().map(of).collect();
    names.sort();
    let id = |(by, name)| format!("executable:{by}{}/{name}@0", apps.path().display());
    let expected = [
        ("", "games"),
        ("", "wayland"),
        ("", "wrapped"),
        ("", "x11"),
        ("flatpak run ", "flat"),
    ];
    assert_eq!(names, expected.map(id));
    let noticed = |launch: &serde_json::Value| launch["noticed_us"].is_u64();
    assert!(own_launches().iter().all(noticed));
    drop((terminal, unseen));
}

/// Through setpriv(1), with the rights that root of a container has.
fn without_tracing(program: &std::ffi::OsStr) -> Command {
    const LACKS: &str = "-perfmon,-sys_admin,-sys_ptrace";
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", LACKS, "--inh-caps", LACKS]);
    command.arg(program);
    command
}

#[test]
fn root_without_the_right_to_trace_is_told_what_is_missing_once_a_launch() {
    let directory = TempDir::new();
    let store = directory.path().join("store");
    let store = store.to_str().expect("text");
    // In a container, and where a tracefs is mounted all the same.
    const NO_TRACEFS: &str = r#"umount -q -a -t tracefs; exec "$@""#;
    const TRACEFS: &str =
        r#"umount -q -a -t tracefs; mount -t tracefs tracefs /sys/kernel/tracing && exec "$@""#;
    let cases = [
        (NO_TRACEFS, "CAP_SYS_ADMIN", &["-v"][..]),
        (TRACEFS, "CAP_PERFMON", &[]),
        (TRACEFS, "CAP_PERFMON", &["-v"]),
    ];
    for (mounts, lacks, options) in cases {
        let bounded = without_tracing(env!("CARGO_BIN_EXE_prepage").as_ref());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mounts, "sh"]);
        command.arg(bounded.get_program()).args(bounded.get_args());
        command.args(["run", "--store", store]).args(options);
        command.args(["--", "sh", "-c", "echo ran; exit 7"]);
        let ran = command
            .output()
            .expect("this test needs unshare and setpriv");
        let said = text(&ran.stderr);
        let status = (ran.status.code(), text(&ran.stdout));
        assert_eq!(status, (Some(7), "ran\n".into()), "{said}");
        let told = said.lines().filter(|line| line.contains(lacks));
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), options.len(), "{said}");
        for part in ["not recorded", "what is known", "prepage doctor"] {
            let is_said = |line: &&str| line.contains(part);
            assert!(told.iter().all(is_said), "{part:?}: {said}");
        }
        assert!(!said.contains("in time"), "{said}");
    }
}

#[test]
fn a_service_without_the_right_to_trace_says_so_once_and_launches_run() {
    let mut service = Service::start("");
    service.signal(Signal::TERM);
    service.wait();
    let before = service.log().len();
    let daemon = service.daemon();
    let mut command = without_tracing(daemon.get_program());
    service.start_by(command.args(daemon.get_args()));
    let ran = service.try_call(&["run", "--", "sh", "-c", "exit 7"]);
    let said = text(&ran.stderr);
    assert_eq!((ran.status.code(), said.as_str()), (Some(7), ""));
    let log = service.log().split_off(before);
    let told = log.lines().filter(|line| line.contains("perf_event_open"));
    assert_eq!(told.count(), 1, "{log}");
}

#[test]
fn a_launch_goes_on_when_the_service_that_helps_it_is_killed() {
    let settings = "[launch]\npages_min = 1\nlaunch_us_min = 0\nholdout_every = 0\n";
    let mut service = Service::start(settings);
    let state = |service: &Service| {
        let known = &service.json(&["explain", "perl"])["launch"];
        ["phase", "launches", "sequence_pages"].map(|key| known[key].clone())
    };
    for number in 1..=2 {
        let arguments = [&["run", "--"][..], &PROGRAM].concat();
        launch_until_seen(&service, number, || drop(service.call(&arguments)));
    }
    // What was learned is written.
    service.signal(Signal::TERM);
    service.wait();
    service.start_again(&[]);
    let known = state(&service);
    assert_eq!(known[0], "prefetch", "{known:?}");
    for _ in 0..2 {
        let reader = "print <STDIN>; exit 6";
        let arguments = ["run", "-v", "--", PROGRAM[0], "-e", reader];
        let mut command = service.command(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("prepage");
        let mut said = String::new();
        let stderr = child.stderr.take().expect("piped");
        BufReader::new(stderr).read_line(&mut said).expect("text");
        assert!(said.contains("fetching"), "{said}");
        service.signal(Signal::KILL);
        service.wait();
        assert!(child.try_wait().expect("waited for").is_none(), "it ended");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(b"typed").expect("taken");
        drop(stdin);
        let ran = child.wait_with_output().expect("ended");
        let ended = (ran.status.code(), text(&ran.stdout));
        assert_eq!(ended, (Some(6), "typed".into()));
        // Nothing was half-done: the next service helps as this one did.
        service.start_again(&[]);
        assert_eq!(state(&service), known);
    }
}
