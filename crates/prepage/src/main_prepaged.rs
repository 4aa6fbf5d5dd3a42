//! The service `prepaged`.
#![forbid(unsafe_code)]

use clap::Parser;
use prepage::service::{self, Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    prepage_kernel::allocator::share_one_arena();
    match service::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            prepage::log_error!("{error}");
            ExitCode::FAILURE
        }
    }
}
