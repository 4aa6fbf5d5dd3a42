//! The command line `prepage`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    prepage::commands::run()
}
