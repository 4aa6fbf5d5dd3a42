//! `idle`: how fast a service answers that sat idle until it was reclaimed whole, without and with prepage. `run` touches
//! the machine and writes raw records; `study` derives every number from them alone.

mod bench;
mod client;
mod histogram;
pub mod mode;
mod protocol;
pub mod record;
mod redis;
mod run;
mod sample;
mod services;
pub mod study;
pub mod text;
mod zipf;

use crate::record::Resume;
use crate::swap::SwapKind;
use mode::IdleMode;
use record::Parameters;
pub use run::run;
use std::path::PathBuf;

/// What `idle` is asked for.
#[derive(Clone, Debug)]
pub struct IdleOptions {
    /// What goes into the record.
    pub parameters: Parameters,
    /// The services' names.
    pub services: Vec<String>,
    /// Whether missing services are installed.
    pub installs: bool,
    /// Where prepage's binaries are.
    pub prepage_bin: Option<PathBuf>,
    /// The record.
    pub out: PathBuf,
    /// Continue that record.
    pub resume: Option<Resume>,
}

/// The modes of a run if none are named: all, in their order.
pub const MODES: [IdleMode; 7] = [
    IdleMode::Resident,
    IdleMode::Off,
    IdleMode::OffThaw,
    IdleMode::FullOnset,
    IdleMode::FullThaw,
    IdleMode::FullBegin,
    IdleMode::FullRestore,
];

impl Parameters {
    /// What a run has if nothing else is said.
    pub fn of(modes: Vec<IdleMode>) -> Self {
        Self {
            modes,
            samples: 8,
            seed: 1,
            swap: SwapKind::Zram,
            warmup: 8,
            window_ms: 10_000,
            use_ms: 3_000,
            size_mib: None,
            rate_hz: None,
            zipf_exponent: 0.99,
            strangers_percent_max: 10.0,
            prepage_config: None,
        }
    }
}
