//! A process that does nothing.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// `sleep 600`, until it is dropped.
pub struct Sleeping(Child);

impl Sleeping {
    pub fn spawn() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep"))
    }

    /// Through a program that executes its further arguments, as unshare(1) does, once it has.
    pub fn spawn_through(program: &[&str]) -> Self {
        let words = program
            .iter()
            .chain(&["sh", "-c", "echo && exec sleep 600"]);
        let mut words = words.copied();
        let mut child = Command::new(words.next().expect("never empty"))
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("run it");
        let stdout = child.stdout.take().expect("piped");
        let sleeping = Sleeping(child);
        let read = BufReader::new(stdout).read_line(&mut String::new());
        assert_eq!(read.expect("read from it"), 1, "{program:?} failed");
        sleeping
    }

    /// One of another user.
    pub fn spawn_as(uid: u32) -> Self {
        let mut sleep = Command::new("sleep");
        let sleep = sleep.arg("600").current_dir("/").gid(uid).uid(uid);
        Self(sleep.spawn().expect("sleep, as root"))
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}
