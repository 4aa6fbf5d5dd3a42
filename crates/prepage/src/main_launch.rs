//! `prepage-launch`: launches that are helped, or learned from, for `prepage`, which calls it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    prepage::commands::launch()
}
