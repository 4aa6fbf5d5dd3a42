//! `launch`: how fast programs begin, cold, warm and helped (FAST section 5). `run` touches the machine and writes raw
//! records; `study` derives every number from them alone.

mod accesses;
pub mod activity;
mod bench;
pub mod cache;
mod counted;
mod detected;
pub mod held;
mod learning;
pub mod measures;
mod order;
pub mod order_bound;
pub mod overall;
pub mod overheads;
pub mod paper;
pub mod picture;
mod preload;
mod prepage;
mod profiles;
pub mod programs;
pub mod record;
mod run;
mod sample;
pub mod scenario;
pub mod sequence;
mod simultaneous;
pub mod study;
pub mod tables;
pub mod text;
pub mod usage;
mod workloads;

use crate::record::Resume;
use record::Parameters;
pub use run::run;
use scenario::Scenario;
use std::path::PathBuf;

/// What `launch` is asked for.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// What goes into the record.
    pub parameters: Parameters,
    /// The programs' names; none for the default ones, `all` for all. Not looked at where a command is given.
    pub programs: Vec<String>,
    /// Whether missing programs are installed.
    pub installs: bool,
    /// Where prepage's binary is.
    pub prepage_bin: Option<PathBuf>,
    /// The record.
    pub out: PathBuf,
    /// Continue that record.
    pub resume: Option<Resume>,
}

impl Parameters {
    /// What a run has if nothing else is said.
    pub fn of(scenarios: Vec<Scenario>, runs: u32, seed: u64) -> Self {
        Self {
            scenarios,
            runs,
            seed,
            learn: record::Learn::Cold,
            learning_max: record::learning_max(),
            given: None,
            throttle: None,
            simultaneous: Vec::new(),
            timelines: 0,
            strangers_percent_max: 10.0,
            quiet_ms: 1_000,
            cap_ms: 30_000,
        }
    }
}
