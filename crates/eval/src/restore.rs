//! Puts the machine back whatever happens: a process of its own, told beforehand what to undo, undoes it when the run
//! ends, fails, is interrupted or is killed. It learns of the end by the end of its standard input.

use crate::clock::sleep_ms;
use crate::error::{Context, Error, Result};
use crate::group;
use crate::sysfs;
use prepage_kernel::signals::SignalFd;
use prepage_kernel::swaps;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One thing to undo.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Undo {
    /// Write the former value back, or what takes back what was written.
    Value {
        /// The file.
        path: PathBuf,
        /// What is written.
        contents: String,
    },
    /// End every process in these control groups and those below, then remove them.
    Groups(Vec<PathBuf>),
    /// Remove a directory that this run made.
    Directory(PathBuf),
    /// Switch off the swap file that this run made, and remove it.
    SwapFile(PathBuf),
    /// Switch off the swap that this run switched on, and reset its zram device.
    Zram {
        /// For instance `zram0`.
        name: String,
        /// Whether this run also added the device.
        added: bool,
    },
}

/// What the restorer says when it listens.
const READY: &str = "ready";
/// One restorer at a time.
const LOCK: &str = "/run/prepage-eval-restore.lock";

/// The running restorer.
#[derive(Debug)]
pub struct Restorer {
    child: Child,
}

impl Restorer {
    /// Starts the restorer from this same executable, in a process group that a terminal's interrupt does not reach.
    pub fn start() -> Result<Self> {
        let own = std::env::current_exe().context("find", "own executable")?;
        let child = Command::new(own)
            .arg("restore")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("start", "restorer")?;
        let restorer = Self { child };
        restorer.wait_until_ready()
    }

    /// An earlier run that was killed may still be being undone: the new restorer waits for that, and we for it.
    fn wait_until_ready(mut self) -> Result<Self> {
        let mut line = String::new();
        let output = self.child.stdout.take().expect("piped");
        BufReader::new(output)
            .read_line(&mut line)
            .context("hear", "restorer")?;
        if line.trim() == READY {
            Ok(self)
        } else {
            Err(Error::new("start", "restorer", "it ended"))
        }
    }

    /// Registers something to undo, before it is done.
    pub fn register(&mut self, undo: &Undo) -> Result<()> {
        let line = serde_json::to_string(undo).context("encode", "undo")?;
        let input = self.child.stdin.as_mut().expect("held until finish");
        writeln!(input, "{line}").context("tell", "restorer")
    }

    /// Changes a value, to be put back in the end.
    pub fn change_value(&mut self, path: impl Into<PathBuf>, value: &str) -> Result<()> {
        let path = path.into();
        let Some(contents) = sysfs::read(&path) else {
            return Ok(());
        };
        if sysfs::bracketed(&contents) == value {
            return Ok(());
        }
        let contents = sysfs::bracketed(&contents).to_owned();
        self.register(&Undo::Value {
            path: path.clone(),
            contents,
        })?;
        sysfs::write(&path, value)
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The body of the hidden `restore` command: reads what to undo until the other end is gone, then undoes it backwards.
pub fn restore_at_end_of_input() {
    // It has the run's name: who ends that by name means the run. Refused, it is only less safe.
    let _ignored = SignalFd::block_and_open(&[
        Signal::INT.as_raw(),
        Signal::TERM.as_raw(),
        Signal::HUP.as_raw(),
    ]);
    // Held until this process ends.
    let _lock = File::create(LOCK).inspect(|file| {
        let _ = flock(file, FlockOperation::LockExclusive);
    });
    println!("{READY}");
    let mut registered: Vec<Undo> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Ok(undo) = serde_json::from_str(&line) {
            registered.push(undo);
        }
    }
    for undo in registered.iter().rev() {
        if let Err(error) = carry_out(undo) {
            eprintln!("prepage-eval: not restored: {error}");
        }
    }
}

fn carry_out(undo: &Undo) -> Result<()> {
    match undo {
        Undo::Value { path, contents } => sysfs::write(path, contents),
        Undo::Groups(paths) => group::end_and_remove(paths),
        Undo::Directory(path) => remove_directory(path),
        Undo::SwapFile(path) => take_swap_file_down(path),
        Undo::Zram { name, added } => take_zram_down(name, *added),
    }
}

fn take_swap_file_down(path: &Path) -> Result<()> {
    // The run may have ended before the file was swap, or was there at all.
    swaps::turn_off(path).context("turn off", path.display())?;
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).context("remove", path.display())
        }
        _ => Ok(()),
    }
}

fn remove_directory(path: &PathBuf) -> Result<()> {
    // A process that was just ended may still be letting go of its files.
    for _ in 0..20 {
        match std::fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => sleep_ms(50),
        }
    }
    std::fs::remove_dir_all(path).context("remove", path.display())
}

fn take_zram_down(name: &str, added: bool) -> Result<()> {
    // The device may not have become swap if the run ended in between: then there is nothing to switch off.
    swaps::turn_off(&Path::new("/dev").join(name)).context("turn off", name)?;
    write_patiently(&format!("/sys/block/{name}/reset"), "1")?;
    if added {
        let number = name.trim_start_matches("zram");
        write_patiently("/sys/class/zram-control/hot_remove", number)?;
    }
    Ok(())
}

/// Writes as soon as nothing holds the device open any longer, such as what looks at each device that changes.
fn write_patiently(path: &str, contents: &str) -> Result<()> {
    for _ in 0..20 {
        if sysfs::write(path, contents).is_ok() {
            return Ok(());
        }
        sleep_ms(50);
    }
    sysfs::write(path, contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_lines_round_trip() {
        for undo in [
            Undo::Value {
                path: "/a b".into(),
                contents: "1".into(),
            },
            Undo::Groups(vec!["/x".into()]),
            Undo::SwapFile("/x".into()),
            Undo::Zram {
                name: "zram1".into(),
                added: true,
            },
        ] {
            let line = serde_json::to_string(&undo).unwrap();
            assert_eq!(serde_json::from_str::<Undo>(&line).unwrap(), undo);
        }
    }
}
