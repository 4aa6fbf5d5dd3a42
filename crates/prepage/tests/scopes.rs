//! Applications whose first process leaves the control group that it was started in: by itself, as Chromium does, or since the
//! desktop that launches them moves it. Needs root, control groups of version 2 and bash(1).

mod common;

use common::{Running, Service, TempDir, application_by, copy, wait_until};
use prepage::client::Client;
use prepage_kernel::testing::group::{Group, v2};
use prepage_kernel::{cgroup, process};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Forks what stays behind, and once that is told one more, which executes it anew by another name, as `/proc/self/exe` is one.
/// All wait for what nobody writes.
const BROWSER: &str = r#"
exec 4<>"$1"
(read -r _ <&4) &
read -r _
(exec -a self "$0" -c 'read -r _ <&4; :') &
read -r _
"#;

/// An application that moves itself into a scope of its own.
struct Browser {
    program: PathBuf,
    first: Running,
    scope: Group,
}

impl Browser {
    /// One of a name of its own, started by a shell of this code.
    fn start(directory: &TempDir, name: &str, code: &str, group: Option<&Group>) -> Self {
        let program = copy("/bin/bash", directory, name);
        let fifo = directory.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("this test needs mkfifo").success());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", code, "sh"]).arg(&program).arg(&fifo);
        command.arg(BROWSER).stdin(Stdio::piped());
        command.envs(group.map(|group| ("GROUP", &group.0.directory)));
        let first = application_by(&program, &mut command);
        let scope = Group::named(&v2(), &format!("app-org.x.{name}-{}.scope", first.pid()));
        let browser = Self {
            program,
            first,
            scope,
        };
        browser.wait_for(2);
        browser
    }

    /// Moves the first process, and has it fork once more.
    fn move_to_scope(&mut self) {
        self.scope.0.add(self.first.pid()).expect("moved");
        let stdin = self.first.0.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"\n").expect("told");
        self.wait_for(3);
    }

    fn pids(&self) -> Vec<i32> {
        let tree = process::tree(self.first.pid(), 9).into_iter();
        let is_own = |pid: &i32| process::exe(*pid).is_ok_and(|exe| exe == self.program);
        tree.filter(is_own).collect()
    }

    fn wait_for(&self, count: usize) {
        wait_until("its processes", || self.pids().len() == count);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        for pid in self.pids().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.first.0.wait();
    }
}

/// What the service says of the only application that it tracks.
fn tracked(service: &Service) -> serde_json::Value {
    let status = service.json(&["status"]);
    let apps = status["apps"].as_array().expect("a list");
    assert!(apps.len() < 2, "{status}");
    apps.first().cloned().unwrap_or_default()
}

/// Waits until the service follows the tree of the first process, and asserts what that is called.
fn wait_until_whole(service: &Service, browser: &Browser, name: &str, look: impl Fn()) {
    let tree = format!("process tree of {}", browser.first.pid());
    wait_until("its processes to be followed", || {
        look();
        let app = tracked(service);
        assert_eq!(app["app"], format!("{name}@0"));
        app["processes"] == 3 && app["members"] == tree
    });
}

#[test]
fn what_leaves_its_session_for_a_scope_is_one_application_with_what_it_leaves_there() {
    let service = Service::start("");
    let directory = TempDir::new();
    let code = r#"exec setsid "$1" -c "$3" "$1" "$2""#;
    let mut browser = Browser::start(&directory, "leaving", code, None);
    browser.move_to_scope();
    let name = format!("executable:{}", browser.program.display());
    for pid in browser.pids() {
        service.call(&["track", "--pid", &pid.to_string()]);
        wait_until_whole(&service, &browser, &name, || {});
    }
    service.call(&["untrack", "--name", "leaving"]);
    service.call(&["track", "--name", "leaving"]);
    wait_until_whole(&service, &browser, &name, || {});
}

#[test]
fn what_leaves_its_unit_for_a_scope_goes_on_as_the_application_that_the_unit_names() {
    let service = Service::listing(&["web-browser"]);
    let directory = TempDir::new();
    let unit = format!("app-web\\x2dbrowser@{}.service", process::own_pid());
    let unit = Group::named(&v2(), &unit);
    let code = r#"echo 0 > "$GROUP"/cgroup.procs && exec setsid "$1" -c "$3" "$1" "$2""#;
    let mut browser = Browser::start(&directory, "listed", code, Some(&unit));
    wait_until("its launch", || {
        tracked(&service)["app"] == "desktop:web-browser@0"
    });
    browser.move_to_scope();
    // Its window is the first process's, which was in the group when that was looked at last.
    let switch_to = || {
        let parameters = serde_json::json!({"pid": browser.first.pid(), "source": "focus"});
        let mut client = Client::connect(&service.socket()).expect("listening");
        let begun: serde_json::Value = client.call("SwitchBegin", &parameters).expect("an answer");
        assert_eq!(begun["app"], "desktop:web-browser@0", "{begun}");
    };
    wait_until_whole(&service, &browser, "desktop:web-browser", switch_to);
}

#[test]
fn a_scope_that_holds_all_processes_names_them() {
    let service = Service::start("");
    let directory = TempDir::new();
    let code = r#"exec setsid "$1" -c "$3" "$1" "$2""#;
    let mut browser = Browser::start(&directory, "whole", code, None);
    for pid in browser.pids() {
        browser.scope.0.add(pid).expect("moved");
    }
    browser.move_to_scope();
    let scope = browser.scope.0.directory.display().to_string();
    for pid in browser.pids() {
        service.call(&["track", "--pid", &pid.to_string()]);
        let app = tracked(&service);
        assert_eq!(
            (&app["app"], &app["members"]),
            (&"desktop:org.x.whole@0".into(), &scope.as_str().into())
        );
        service.call(&["untrack", "--pid", &pid.to_string()]);
    }
}

/// Its processes end one after the other, and so may the one that its end is to be told by next, while that is looked for.
#[test]
fn a_scope_whose_processes_all_end_is_not_taken_for_running() {
    const MANY: &str =
        r#"echo 0 > "$GROUP"/cgroup.procs; for _ in $(seq 40); do "$1" 600 & done; wait"#;
    let service = Service::start("");
    let directory = TempDir::new();
    let program = copy("/bin/sleep", &directory, "ending");
    for round in 0..10 {
        let scope = format!("app-org.x.Ending-{}{round}.scope", process::own_pid());
        let scope = Group::named(&v2(), &scope);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", MANY, "sh"]).arg(&program);
        command.env("GROUP", &scope.0.directory);
        let _shell = Running(command.spawn().expect("a shell"));
        let pids = || cgroup::procs(&scope.0.directory).expect("read");
        wait_until("its processes", || pids().len() == 41);
        let mut pids = pids();
        pids.sort_unstable();
        service.call(&["track", "--pid", &pids[1].to_string()]);
        let app = tracked(&service);
        assert_eq!(app["app"], "desktop:org.x.Ending@0");
        assert_eq!(app["state"], "running");
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        wait_until("its end", || tracked(&service)["state"] == "not running");
    }
}

/// Launches a program twice as GLib does, with its desktop entry in the environment: the first time as what is below the
/// application itself has it. They end with what they read.
const SHELL: &str = r#"
echo 0 > "$GROUP"/cgroup.procs
export GIO_LAUNCHED_DESKTOP_FILE=/usr/share/applications/org.x.Painter.desktop
exec 3<&0
(export GIO_LAUNCHED_DESKTOP_FILE_PID=1; exec setsid "$1" <&3) &
(export GIO_LAUNCHED_DESKTOP_FILE_PID=$BASHPID; exec setsid "$1" <&3) &
wait
"#;

#[test]
fn a_launch_from_a_desktop_is_known_by_its_entry_before_it_is_in_its_scope() {
    let service = Service::listing(&["painter"]);
    let directory = TempDir::new();
    let shell = copy("/bin/bash", &directory, "gnome-shell");
    let program = copy("/bin/cat", &directory, "easel");
    let unit = format!("org.x.Shell@{}.service", process::own_pid());
    let unit = Group::named(&v2(), &unit);
    let mut command = Command::new(&shell);
    command.args(["-c", SHELL, "sh"]).arg(&program);
    command
        .env("GROUP", &unit.0.directory)
        .stdin(Stdio::piped());
    let _running = Running(command.spawn().expect("bash"));
    let launched = || -> Vec<serde_json::Value> {
        let launches = service.launches().into_iter();
        launches.map(|launch| launch["app"].clone()).collect()
    };
    wait_until("its launch", || !launched().is_empty());
    assert_eq!(launched(), ["desktop:org.x.Painter@0"]);
    assert_eq!(tracked(&service)["app"], "desktop:org.x.Painter@0");
}
