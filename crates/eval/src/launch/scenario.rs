//! What is done for a launch: the scenarios of FAST section 5.1, and what people do without it.

use serde::{Deserialize, Serialize};

/// One scenario.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Scenario {
    /// Nothing is cached and nobody helps: t_cold.
    Cold,
    /// Everything is cached: t_warm, and so t_cpu.
    Warm,
    /// prepage reads everything in the order of the device, then the program begins: FAST's sorted prefetch.
    Sorted,
    /// prepage reads in the order of the launch, beside the program: FAST.
    Fast,
    /// prepage reads, and there is no program: t_ssd.
    PrefetchOnly,
    /// prepage reads the same files from beginning to end, beside the program.
    WholeFiles,
    /// `vmtouch -t` of the same files, beside the program: what people do by hand.
    Vmtouch,
    /// As cold, and recorded: what recording costs.
    Record,
    /// As fast, and not recorded.
    FastUnrecorded,
}

impl Scenario {
    /// The word for it, on the command line and in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Sorted => "sorted",
            Self::Fast => "fast",
            Self::PrefetchOnly => "prefetch_only",
            Self::WholeFiles => "whole_files",
            Self::Vmtouch => "vmtouch",
            Self::Record => "record",
            Self::FastUnrecorded => "fast_unrecorded",
        }
    }

    /// What `prepage run` is told; `None` where prepage takes no part, not even as a launcher.
    pub fn prepage_arguments(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Cold | Self::Warm | Self::Vmtouch => None,
            Self::Sorted => Some(&["--order", "lba", "--start", "before"]),
            Self::Fast => Some(&["--order", "launch", "--start", "together"]),
            Self::PrefetchOnly => Some(&["--order", "launch", "--start", "only"]),
            Self::WholeFiles => Some(&["--order", "whole-files", "--start", "together"]),
            Self::Record => Some(&["--order", "none", "--record", "always"]),
            Self::FastUnrecorded => Some(&[
                "--order", "launch", "--start", "together", "--record", "never",
            ]),
        }
    }

    /// Whether it is about what is known of a program: how it is fetched, or what recording it costs.
    pub fn needs_sequence(self) -> bool {
        !matches!(self, Self::Cold | Self::Warm | Self::Fast)
    }

    /// Whether the program itself runs.
    pub fn runs_program(self) -> bool {
        self != Self::PrefetchOnly
    }
}
