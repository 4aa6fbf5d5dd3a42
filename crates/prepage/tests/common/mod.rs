//! A service in a temporary directory, and the applications of a test. Everything ends with its value, by process id.
#![allow(dead_code)]

use prepage_core::identity::{AppId, AppKind};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory of its own, removed with the value.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not /tmp, which may be a tmpfs, whose files are on no device, and mounted without set-user-id programs.
        let name = format!("prepage-commands-{}-{number}", std::process::id());
        let path = Path::new("/var/tmp").join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What a launch splits off outlives its command, to keep what it learned: it makes the directory anew, or makes files in
        // it while it is being removed.
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            let is_left = !is_kept_in_by_a_launch(&self.0);
            if is_left && std::fs::remove_dir_all(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a `prepage run` is there that has this directory on its command line.
fn is_kept_in_by_a_launch(directory: &Path) -> bool {
    let directory = directory.to_string_lossy();
    let is_launch = |pid: &i32| {
        let program = prepage_kernel::process::exe_name(*pid).unwrap_or_default();
        let line = prepage_kernel::process::cmdline(*pid).unwrap_or_default();
        let launches = ["prepage", "prepage-launch", "prepage-control"];
        launches.contains(&&*program)
            && line
                .iter()
                .any(|word| word.to_string_lossy().contains(&*directory))
    };
    let pids = prepage_kernel::process::processes().unwrap_or_default();
    pids.iter().any(is_launch)
}

/// A process that ends with the value.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An application: a copy of sleep(1) under a name of its own, in a session of its own.
pub fn application(directory: &TempDir, name: impl AsRef<Path>) -> Running {
    let program = program(directory, name);
    application_by(&program, Command::new("setsid").arg(&program).arg("600"))
}

/// A copy of sleep(1) under a name of its own.
pub fn program(directory: &TempDir, name: impl AsRef<Path>) -> PathBuf {
    copy("/bin/sleep", directory, name)
}

/// A copy of a program, by another name.
pub fn copy(original: &str, directory: &TempDir, name: impl AsRef<Path>) -> PathBuf {
    let program = directory.path().join(name);
    if !program.exists() {
        std::fs::copy(original, &program).expect("a copy");
    }
    program
}

/// The application `program`, as `command` launches it.
pub fn application_by(program: &Path, command: &mut Command) -> Running {
    let mut start = || Running(command.spawn().expect("setsid"));
    let mut running = start();
    // Until setsid has called exec, it is not what it will be. exec fails (ETXTBSY) while a process that another test
    // just forked still holds the copy open for writing.
    wait_until("exec", || {
        if running.0.try_wait().is_ok_and(|ended| ended.is_some()) {
            running = start();
        }
        let exe = format!("/proc/{}/exe", running.pid());
        std::fs::read_link(&exe).is_ok_and(|p| p == program)
    });
    running
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{what} did not come"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A service.
#[derive(Debug)]
pub struct Service {
    pub directory: TempDir,
    child: Option<Child>,
}

impl Service {
    /// Starts one with this configuration, and waits until it answers.
    pub fn start(config: &str) -> Self {
        let directory = TempDir::new();
        std::fs::write(directory.path().join("prepage.toml"), config).expect("writable");
        let mut service = Self {
            directory,
            child: None,
        };
        service.start_again(&[]);
        service
    }

    /// Starts one that lists these applications, and waits until it sees their launches, which are over soon.
    pub fn listing(applications: &[&str]) -> Self {
        let service = Self::start(&format!(
            "[service]\napplications = {applications:?}\n[launch]\nt_idle_ms = 300\n"
        ));
        // Its socket is there before it listens to execs; when it answers it does.
        service.call(&["status"]);
        service
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    pub fn config(&self) -> PathBuf {
        self.directory.path().join("prepage.toml")
    }

    /// The command that starts it.
    pub fn daemon(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prepaged"));
        command.arg("--config").arg(self.config());
        command
            .arg("--state")
            .arg(self.directory.path().join("state"));
        command.arg("--socket").arg(self.socket());
        command
    }

    pub fn start_again(&mut self, arguments: &[&str]) {
        self.start_by(self.daemon().args(arguments));
    }

    /// Starts it by this command, and waits until it answers.
    pub fn start_by(&mut self, command: &mut Command) {
        let path = self.directory.path().join("log");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("a log");
        self.child = Some(command.stderr(log).spawn().expect("prepaged"));
        let socket = self.socket();
        wait_until("the service", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("running").id().cast_signed()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let mut child = self.child.take().expect("running");
        let mut status = None;
        wait_until("the service's end", || {
            status = child.try_wait().expect("waited for");
            status.is_some()
        });
        status.expect("ended")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
        command
            .arg("--socket")
            .arg(self.socket())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    pub fn try_call(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("prepage")
    }

    /// What a command prints. It must succeed.
    pub fn call(&self, arguments: &[&str]) -> String {
        let output = self.try_call(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{arguments:?}: {said}\n{}",
            self.log()
        );
        String::from_utf8(output.stdout).expect("text")
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.call(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// What a command complains of, and its status. It must fail.
    pub fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.try_call(arguments);
        assert!(!output.status.success(), "{arguments:?} was not refused");
        let said = String::from_utf8(output.stderr).expect("text");
        (output.status.code().unwrap_or(-1), said)
    }

    /// As another user, from copies that this user may run.
    pub fn call_as(&self, uid: u32, arguments: &[&str]) -> Output {
        let copy = copy_for_others(self.directory.path());
        let mut command = Command::new(copy);
        command
            .arg("--socket")
            .arg(self.socket())
            .args(arguments)
            .stdin(Stdio::null());
        command
            .current_dir("/")
            .gid(uid)
            .uid(uid)
            .output()
            .expect("prepage")
    }

    pub fn switches(&self) -> Vec<serde_json::Value> {
        self.stats("switches")
    }

    /// The launches that it has seen the end of.
    pub fn launches(&self) -> Vec<serde_json::Value> {
        self.stats("launches")
    }

    fn stats(&self, of: &str) -> Vec<serde_json::Value> {
        let stats = self.json(&["stats"]);
        stats[of].as_array().expect("a list").clone()
    }

    pub fn connect(&self) -> std::os::unix::net::UnixStream {
        let stream = std::os::unix::net::UnixStream::connect(self.socket()).expect("listening");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set");
        stream
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One message from a connection, without its NUL; empty where it was closed.
pub fn message(stream: &mut std::os::unix::net::UnixStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|n| n == 1) && byte[0] != 0 {
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).expect("text")
}

/// A copy of `prepage` that every user may run, where it is not there yet.
pub fn copy_for_others(directory: &Path) -> PathBuf {
    let copy = directory.join("prepage");
    if !copy.exists() {
        // By another process: what another test forks meanwhile would hold a copy of ours open for writing, and what is
        // open for writing cannot be executed.
        let mut cp = Command::new("cp");
        let programs = [
            env!("CARGO_BIN_EXE_prepage"),
            env!("CARGO_BIN_EXE_prepage-launch"),
            env!("CARGO_BIN_EXE_prepage-control"),
        ];
        let copied = cp.args(programs).arg(directory).status();
        assert!(copied.expect("cp").success());
    }
    copy
}

/// Reads an application's id as [`AppId`] displays it: `KIND:NAME@OWNER`.
pub fn app_id(text: &str) -> AppId {
    parse_app_id(text).unwrap_or_else(|| panic!("{text:?} is no id"))
}

fn parse_app_id(text: &str) -> Option<AppId> {
    let (kind, rest) = text.split_once(':')?;
    let (name, owner) = rest.rsplit_once('@')?;
    let kind = match kind {
        "desktop" => AppKind::Desktop,
        "unit" => AppKind::Unit,
        "container" => AppKind::Container,
        "executable" => AppKind::Executable,
        "named" => AppKind::Named,
        _ => return None,
    };
    Some(AppId {
        kind,
        name: name.into(),
        owner: owner.parse().ok()?,
    })
}
