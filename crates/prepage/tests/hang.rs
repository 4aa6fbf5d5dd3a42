//! A file system under an application that stops answering.

mod common;

use common::{Running, Service, TempDir, wait_until};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An application that reads this file all the time, in a mount namespace of its own.
fn reader(file: &Path) -> Running {
    const READ: &str = r#"while read -r line < "$0"; do sleep 0.005; done"#;
    let mut command = Command::new("setsid");
    command
        .args(["unshare", "--mount", "sh", "-c", READ])
        .arg(file);
    Running(command.spawn().expect("setsid"))
}

/// Has a FUSE file system that nobody serves hide this directory from a process, until the value ends.
fn hide(directory: &Path, pid: i32) -> Running {
    const MOUNT: &str = r#"exec 9<>/dev/fuse &&
        mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 dead "$0" && exec sleep 600"#;
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount=/proc/{pid}/ns/mnt"));
    command
        .args(["sh", "-c", MOUNT])
        .arg(directory)
        .process_group(0);
    let holder = Running(command.spawn().expect("nsenter"));
    let mounts = format!("/proc/{pid}/mounts");
    wait_until("the mount", || {
        std::fs::read_to_string(&mounts).is_ok_and(|mounts| mounts.contains("dead "))
    });
    holder
}

#[test]
fn threads_that_hang_are_counted_and_logged() {
    let service = Service::start(
        "[switch]\nrepeat_ms = 0\nonset_faults = 0\n[file]\nobserve_interval_max = 1\n\
         [fetch]\nwatchdog_ms = 50\n[observe]\nwatchdog_ms = 50\n",
    );
    assert_eq!(service.json(&["status"])["threads_given_up"], 0);
    let directory = TempDir::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "a line\n").expect("written");
    let app = reader(&file);
    let pid = app.pid().to_string();
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    wait_until("exec", || {
        prepage_kernel::process::exe(app.pid()).is_ok_and(|exe| exe == shell)
    });
    service.call(&["track", "--name", "reader", "--pid", &pid]);
    let switch = || {
        service.call(&["switch", "begin", "--pid", &pid]);
        std::thread::sleep(std::time::Duration::from_millis(100));
        service.call(&["switch", "end", "--pid", &pid]);
    };
    wait_until("the file to be learned", || {
        switch();
        let explained = service.call(&["explain", "reader", "--json"]);
        explained.contains(file.to_str().expect("text"))
    });
    let _dead = hide(directory.path(), app.pid());
    wait_until("threads to hang", || {
        switch();
        service.json(&["status"])["threads_given_up"].as_u64() >= Some(2)
    });
    let said = service.call(&["status"]);
    assert!(said.contains("threads given up"), "{said}");
    assert!(service.log().contains("was given up"), "{}", service.log());
}
