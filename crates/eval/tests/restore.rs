//! The process that puts the machine back outlives whatever ends the run. Needs root.

use prepage_kernel::cgroup::{self, Version};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Starts it, and waits until it listens.
fn restorer() -> (Child, ChildStdin) {
    let mut restorer = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .arg("restore")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the restorer");
    let mut ready = String::new();
    let said = restorer.stdout.take().expect("piped");
    BufReader::new(said).read_line(&mut ready).expect("read");
    assert_eq!(ready.trim(), "ready");
    let run = restorer.stdin.take().expect("piped");
    (restorer, run)
}

#[test]
fn it_restores_when_the_run_is_over_whatever_signals_it_gets() {
    let directory = format!("/var/tmp/prepage-eval-restore-{}", std::process::id());
    fs::create_dir(&directory).expect("make a directory");
    let (mut restorer, mut run) = restorer();
    let pid = Pid::from_child(&restorer);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(pid, signal).expect("signal");
    }
    writeln!(run, r#"{{"directory":"{directory}"}}"#).expect("register");
    drop(run);
    assert!(restorer.wait().expect("wait").success());
    assert!(
        !fs::exists(&directory).expect("look"),
        "{directory} is there"
    );
}

/// The controllers that a group of version 2 hands on to those below.
fn handed_on(control: &Path) -> Vec<String> {
    let text = fs::read_to_string(control).expect("read");
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_controller_that_was_handed_on_for_a_group_is_taken_back_once_that_is_removed() {
    let mounted = cgroup::hierarchies().expect("the mount table");
    let unified = mounted.into_iter().find(|h| h.version == Version::V2);
    let unified = unified.expect("this test needs control groups of version 2");
    let control = unified.mount_point.join("cgroup.subtree_control");
    let before = handed_on(&control);
    let mut controllers = unified.controllers.iter();
    let Some(controller) = controllers.find(|name| !before.contains(name)) else {
        // Nothing is left to hand on; which is undone then, the unit tests say.
        return;
    };
    let group = format!("prepage-eval-handed-on-{}", std::process::id());
    let group = unified.mount_point.join(group);
    let (mut restorer, mut run) = restorer();
    let (path, groups) = (control.display(), group.display());
    let value = format!(r#"{{"path":"{path}","contents":"-{controller}"}}"#);
    writeln!(run, r#"{{"value":{value}}}"#).expect("register");
    writeln!(run, r#"{{"groups":["{groups}"]}}"#).expect("register");
    fs::write(&control, format!("+{controller}")).expect("hand it on");
    fs::create_dir_all(group.join("below")).expect("make groups");
    // As long as a group hands it on itself, it cannot be taken back from that group.
    fs::write(
        group.join("cgroup.subtree_control"),
        format!("+{controller}"),
    )
    .expect("hand it on");
    assert!(handed_on(&control).contains(controller));
    drop(run);
    assert!(restorer.wait().expect("wait").success());
    assert_eq!(handed_on(&control), before);
    assert!(!fs::exists(&group).expect("look"));
}
