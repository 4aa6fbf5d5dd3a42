//! Applications in containers, by stand-ins for what makes them: the kernel's part of a container, and a process by the name of the
//! one that watches it. Needs root, control groups and unshare(1).

mod common;

use common::{Running, Service, TempDir, wait_until};
use prepage_kernel::cgroup::procs;
use prepage_kernel::process;
use prepage_kernel::testing::group::{Group, v2};
use prepage_kernel::testing::sleeping::Sleeping;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a program in the container, and another one there for each line that it is told.
const MONITOR: &str = r#"
group=$1 program=$2
run() {
    unshare --mount sh -c 'echo 0 > "$1"/cgroup.procs && exec setsid "$2" 600' sh "$group" "$program" &
}
run
while read -r _; do run; done
"#;

/// A container as Podman makes it: a control group named by its id, another mount namespace, a monitor that knows its name.
struct Container {
    program: PathBuf,
    monitor: Running,
    group: Group,
}

impl Container {
    fn start(directory: &TempDir, id: &str, name: &str) -> Self {
        let program = common::program(directory, "served");
        let script = directory.path().join("monitor.sh");
        fs::write(&script, MONITOR).expect("write the monitor");
        let group = Group::named(&v2(), &format!("libpod-{id}"));
        let mut command = Command::new("/bin/sh");
        command.arg0("/usr/bin/conmon").arg(&script);
        command
            .arg(&group.0.directory)
            .arg(&program)
            .args(["-c", id, "-n", name]);
        let monitor = command.stdin(Stdio::piped()).spawn().expect("run sh");
        let container = Self {
            program,
            monitor: Running(monitor),
            group,
        };
        container.wait_for(1);
        container
    }

    /// Executes the program in it once more.
    fn execute(&mut self) {
        let before = self.programs();
        // The kernel tells when processes began in ticks.
        std::thread::sleep(Duration::from_millis(50));
        let stdin = self.monitor.0.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"\n").expect("tell the monitor");
        self.wait_for(before + 1);
    }

    fn wait_for(&self, count: usize) {
        wait_until("the program in the container", || self.programs() == count);
    }

    fn programs(&self) -> usize {
        let is_program = |&&pid: &&i32| process::exe(pid).is_ok_and(|exe| exe == self.program);
        self.pids().iter().filter(is_program).count()
    }

    fn pids(&self) -> Vec<i32> {
        procs(&self.group.0.directory).expect("the group is there")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        for pid in self.pids().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The applications whose launches the service has seen, each launch, sorted.
fn launched(service: &Service) -> Vec<String> {
    let launches = service.launches();
    let apps = launches
        .iter()
        .map(|launch| launch["app"].as_str().expect("text").to_owned());
    let mut apps: Vec<String> = apps.collect();
    apps.sort();
    apps
}

/// What is executed in one that runs is no launch of it: the checks of its health, a shell.
#[test]
fn a_container_is_known_by_its_name_whenever_it_is_made_anew() {
    let service = Service::listing(&["web", "other"]);
    let directory = TempDir::new();
    let id = |number| format!("{:056x}{number:08x}", std::process::id());
    let web = "container:web@0".to_owned();
    let other = format!("executable:{}@0", directory.path().join("other").display());
    let mut expected = Vec::new();
    for number in 1..=2 {
        let mut container = Container::start(&directory, &id(number), "web");
        expected.insert(0, web.clone());
        wait_until("its launch", || launched(&service) == expected);
        container.execute();
        // Had that been seen, it would be told before this.
        let running = common::application(&directory, "other");
        expected.push(other.clone());
        wait_until("the other's launch", || {
            launched(&service).len() >= expected.len()
        });
        assert_eq!(launched(&service), expected);
        drop((container, running));
    }
    let status = service.json(&["status"]);
    let apps = status["apps"].as_array().expect("a list");
    assert_eq!(apps.len(), 2, "{status}");
}

/// As of Podman's without root: what is executed first, and has become one of the users inside, and what is the user outside.
#[test]
fn all_of_a_container_that_a_user_made_is_that_user_s() {
    const USER: u32 = 60_123;
    const GIVEN: u32 = 500_000;
    let service = Service::start("");
    let group = Group::named(&v2(), &format!("libpod-{:064x}", process::own_pid()));
    let namespace = Sleeping::spawn_in_namespace_of(USER, GIVEN);
    let enter = |id: u32| {
        let joins = "echo 0 > \"$0\"/cgroup.procs && exec \"$@\"";
        let joins = ["sh", "-c", joins, group.0.directory.to_str().expect("text")];
        let joins = joins.map(str::to_owned);
        Sleeping::spawn_through(&[&joins[..], &namespace.entered_as(id)].concat())
    };
    let (first, second) = (enter(70), enter(0));
    let uid = |process: &Sleeping| process::status(process.pid()).expect("there").uid.real;
    assert_eq!((uid(&first), uid(&second)), (GIVEN + 69, USER));
    let pid = first.pid().to_string();
    let track = ["track", "--pid", &pid];
    let other = service.call_as(USER - 1, &track);
    let refused = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(refused.contains("no process"), "{refused}");
    let tracked = service.call_as(USER, &track);
    assert!(tracked.status.success(), "{tracked:?}");
    let status = service.json(&["status"]);
    let app = &status["apps"][0];
    let name = app["app"].as_str().expect("text");
    assert!(
        name.starts_with("container:") && name.ends_with(&format!("@{USER}")),
        "{status}"
    );
    assert_eq!(app["processes"], 2, "{status}");
}
