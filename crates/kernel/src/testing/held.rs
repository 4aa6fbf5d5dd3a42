//! A command that waits before it is executed, and is not our child.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The command, waiting. A shell is its parent, which passes on its exit status (128 and the signal that killed it).
pub struct HeldCommand {
    running: RunningCommand,
    pid: i32,
}

/// The command, running.
pub struct RunningCommand {
    shell: Child,
    stdout: BufReader<ChildStdout>,
}

const SHELL: &str =
    r#"exec 3<&0; (read -r go <&3; exec "$@" 3<&-) & echo $!; exec 3<&-; wait $!; exit $?"#;

impl HeldCommand {
    pub fn new(command: &[&str]) -> HeldCommand {
        HeldCommand::of_user(command, 0)
    }

    pub fn of_user(command: &[&str], uid: u32) -> HeldCommand {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "sh"])
            .args(command)
            .uid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("run a shell");
        let mut stdout = BufReader::new(shell.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("read from the shell");
        HeldCommand {
            pid: line.trim().parse().expect("a pid"),
            running: RunningCommand { shell, stdout },
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn release(mut self) -> RunningCommand {
        let mut stdin = self.running.shell.stdin.take().expect("piped");
        stdin.write_all(b"go\n").expect("write to the command");
        self.running
    }

    /// Has it run to its end: its output and exit status.
    pub fn run(self) -> (String, i32) {
        self.release().finish()
    }
}

impl RunningCommand {
    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        read.expect("read from the command");
        line.trim_end().to_owned()
    }

    /// Waits for its end: its output and exit status.
    pub fn finish(mut self) -> (String, i32) {
        let mut output = String::new();
        self.stdout
            .read_to_string(&mut output)
            .expect("read from the command");
        let status = self.shell.wait().expect("wait for the shell");
        (output, status.code().expect("shells exit"))
    }
}
