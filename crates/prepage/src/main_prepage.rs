//! The command line `prepage`: runs what it leaves alone, and gives everything else to `prepage-launch` and `prepage-control`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    prepage::commands::front()
}
