//! What the program `prepage` does itself, and what it leaves to others.
//!
//! With a cold page cache a launch waits for every part of this program that it touches, one after the other. So the
//! program finds out which launches it has nothing to do for, and helps those that were decided ahead, and nothing else:
//! `prepage-launch` holds what decides and records the others, `prepage-control` the parser of all commands and what they do.

use super::run::{self, Found, Known, RunArguments};
use crate::client::SOCKET_DEFAULT;
use crate::config::STATE_DEFAULT;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::exec::exec;
use prepage_kernel::readahead::readahead;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The program that helps launches, in the directory of this one.
const LAUNCH: &str = "prepage-launch";

/// The program that knows all commands, there too.
const CONTROL: &str = "prepage-control";

/// The kernel reads no more for one call, by default.
const READAHEAD_BYTES: u64 = 128 << 10;

/// Runs a command that is left alone; otherwise becomes the program that knows what to do.
pub fn front() -> ExitCode {
    let asked = monotonic_ns();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let launch = match words.split_first() {
        Some((command, rest)) if command == "run" => run::plain(rest),
        _ => None,
    };
    match launch {
        Some(arguments) => launch_by(asked, &arguments, &words),
        None => {
            run::complain(become_program(CONTROL, &words));
            ExitCode::from(1)
        }
    }
}

fn launch_by(asked: u64, arguments: &RunArguments, words: &[OsString]) -> ExitCode {
    let (socket, store) = (Path::new(SOCKET_DEFAULT), Path::new(STATE_DEFAULT));
    match run::known(arguments, socket, store) {
        Known::LeftAlone => return run::execute(arguments),
        Known::Ready(ahead) => return run::ready::run(arguments, *ahead, asked, &beside(LAUNCH)),
        Known::Undecided => {}
    }
    let found = Found {
        asked,
        not_left_alone: monotonic_ns(),
    };
    let found = OsString::from(found.to_word());
    let words: Vec<&OsStr> = std::iter::once(&*found)
        .chain(words.iter().skip(1).map(|word| &**word))
        .collect();
    read_ahead(&beside(LAUNCH));
    // Whatever is missing, the command runs.
    run::complain(become_program(LAUNCH, &words));
    run::execute(arguments)
}

/// The program of this name in the directory of this one.
fn beside(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name(name)
}

/// Has all of a program read, while it is executed and before it touches its parts one after the other.
fn read_ahead(program: &Path) {
    let Ok(file) = File::open(program) else {
        return;
    };
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    for offset in (0..bytes).step_by(READAHEAD_BYTES as usize) {
        let _ = readahead(file.as_fd(), offset, READAHEAD_BYTES);
    }
}

/// Returns what is to be said where that fails.
fn become_program(name: &str, words: &[impl AsRef<OsStr>]) -> String {
    let error = exec(beside(name).as_os_str(), words);
    format!("{error}: it is installed beside prepage, and built with it")
}

/// `prepage-launch`: a launch that `prepage` has something to do for. Its first word is what `prepage` found, the others those
/// of `prepage run`; or `over`, and a launch that is over is on standard input (`run::ready::Over`).
pub fn launch() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [word] = &words[..]
        && word == run::ready::OVER
        && let Some(over) = run::ready::Over::read()
    {
        run::learn(over);
        return ExitCode::SUCCESS;
    }
    let asked_for = words.split_first().and_then(|(found, rest)| {
        let found = Found::of_word(found.to_str()?)?;
        Some((run::plain(rest)?, found))
    });
    let Some((arguments, found)) = asked_for else {
        run::complain("prepage-launch is called by prepage: say prepage run COMMAND");
        return ExitCode::from(2);
    };
    run::run(Path::new(SOCKET_DEFAULT), arguments, Some(found))
}
