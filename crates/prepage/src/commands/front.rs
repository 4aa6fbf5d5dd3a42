//! What the program `prepage` does itself, and what it leaves to the whole command line.
//!
//! With a cold page cache a launch waits for every part of this program that it touches, one after the other. So the
//! program holds launches and nothing else: neither the parser of all commands nor what they do.

use super::run;
use crate::client::SOCKET_DEFAULT;
use prepage_kernel::exec::exec;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The program that knows all commands, in the directory of this one.
const CONTROL: &str = "prepage-control";

/// Launches, where the command line asks for that in plain words; otherwise becomes `prepage-control`.
pub fn front() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let launch = match words.split_first() {
        Some((command, rest)) if command == "run" => run::plain(rest),
        _ => None,
    };
    match launch {
        Some(arguments) => run::run(Path::new(SOCKET_DEFAULT), arguments),
        None => control(&words),
    }
}

fn control(words: &[OsString]) -> ExitCode {
    let own = std::env::current_exe().unwrap_or_default();
    let program = own.with_file_name(CONTROL);
    let error = exec(program.as_os_str(), words);
    let _ = writeln!(
        std::io::stderr(),
        "prepage: {error}: it is installed beside prepage, and built with it"
    );
    ExitCode::from(1)
}
