//! The command line `prepage`: launches by itself, and gives everything else to `prepage-control`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    prepage::commands::front()
}
