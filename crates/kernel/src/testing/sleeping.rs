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
    pub fn spawn_through<Word: AsRef<str>>(program: &[Word]) -> Self {
        let words = program.iter().map(AsRef::as_ref);
        let mut words = words.chain(["sh", "-c", "echo && exec sleep 600"]);
        let mut child = Command::new(words.next().expect("never empty"))
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("run it");
        let stdout = child.stdout.take().expect("piped");
        let sleeping = Sleeping(child);
        let read = BufReader::new(stdout).read_line(&mut String::new());
        let program: Vec<&str> = program.iter().map(AsRef::as_ref).collect();
        assert_eq!(read.expect("read from it"), 1, "{program:?} failed");
        sleeping
    }

    /// One of another user.
    pub fn spawn_as(uid: u32) -> Self {
        let mut sleep = Command::new("sleep");
        let sleep = sleep.arg("600").current_dir("/").gid(uid).uid(uid);
        Self(sleep.spawn().expect("sleep, as root"))
    }

    /// One in a user namespace that this user made without root, as of a container: its user 0 is this one, its users from 1 on
    /// are those from `given` on.
    pub fn spawn_in_namespace_of(uid: u32, given: u32) -> Self {
        let id = uid.to_string();
        let becomes = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
        let namespace = Self::spawn_through(&[&becomes[..], &["unshare", "--user"]].concat());
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{map}", namespace.pid());
            let ids = format!("0 {uid} 1\n1 {given} 65535\n");
            std::fs::write(path, ids).expect("map ids, as root");
        }
        namespace
    }

    /// What enters the user namespace that this one is in as user and group `id` there, and executes its further arguments.
    pub fn entered_as(&self, id: u32) -> Vec<String> {
        let (pid, id) = (self.pid().to_string(), id.to_string());
        let words = [
            "nsenter", "--target", &pid, "--user", "--setuid", &id, "--setgid", &id,
        ];
        words.map(str::to_owned).to_vec()
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
