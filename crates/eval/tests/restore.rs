//! The process that puts the machine back outlives whatever ends the run. Needs root.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn it_restores_when_the_run_is_over_whatever_signals_it_gets() {
    let directory = format!("/var/tmp/prepage-eval-restore-{}", std::process::id());
    fs::create_dir(&directory).expect("make a directory");
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
    let pid = Pid::from_child(&restorer);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(pid, signal).expect("signal");
    }
    let mut run = restorer.stdin.take().expect("piped");
    writeln!(run, r#"{{"directory":"{directory}"}}"#).expect("register");
    drop(run);
    assert!(restorer.wait().expect("wait").success());
    assert!(
        !fs::exists(&directory).expect("look"),
        "{directory} is there"
    );
}
