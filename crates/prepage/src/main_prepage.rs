//! The command line `prepage`.
#![forbid(unsafe_code)]

use clap::Parser;
use prepage::commands::{CommandLine, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(CommandLine::parse())
}
