//! `prepage-control`: the whole command line of `prepage`, which calls it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    prepage::commands::run()
}
