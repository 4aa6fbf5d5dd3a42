//! What is done for a launch: the scenarios of FAST section 5, and what people do without it.

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
    /// prepage reads in the order of the launch, beside the program: FAST, as a person types it. A launch that it holds out
    /// is discarded, and launched again; of several at once it holds none out.
    Fast,
    /// The program alone, and prepage's service sees its exec: what most users get. The service has learned the program
    /// before, from launches of the same kind. In every other scenario its mode is off. Launches held out as with `fast`.
    Detected,
    /// prepage reads, and there is no program: t_ssd.
    PrefetchOnly,
    /// prepage reads the same files from beginning to end, beside the program.
    WholeFiles,
    /// `vmtouch -t` of the same files, beside the program: what people do by hand.
    Vmtouch,
    /// What Debian's daemon `preload` predicts is in memory, then the program begins: what people install.
    Preload,
    /// As cold, and recorded: what recording costs.
    Record,
    /// As fast, asked for and so not decided ahead, and not recorded.
    FastUnrecorded,
    /// The same, and recorded.
    FastRecorded,
    /// A first launch: every path call is recorded too.
    Profile,
    /// The last launch of the profiling phase: the sequence is generated after it.
    Generate,
    /// prepage knows that it leaves the program alone.
    LeftAlone,
    /// As fast, with the program's files and pages of these that it does not use: FAST's first update experiment.
    OtherOffsets,
    /// As fast, with another program's sequence: FAST's second update experiment.
    OtherProgram,
    /// As fast, after all files were updated.
    OtherVersions,
}

/// What the paper's section 5.1 compares, and what people do without it.
pub const USUAL: [Scenario; 7] = [
    Scenario::Cold,
    Scenario::Warm,
    Scenario::Sorted,
    Scenario::Fast,
    Scenario::PrefetchOnly,
    Scenario::WholeFiles,
    Scenario::Vmtouch,
];

/// What the paper's Figure 7 shows over time.
pub const OVER_TIME: [Scenario; 3] = [Scenario::Cold, Scenario::Warm, Scenario::Fast];

/// What the paper's Table 4 compares, and what a launch costs that is left alone.
pub const OVERHEADS: [Scenario; 6] = [
    Scenario::Cold,
    Scenario::Profile,
    Scenario::Generate,
    Scenario::FastUnrecorded,
    Scenario::FastRecorded,
    Scenario::LeftAlone,
];

/// What the paper's update experiments compare.
pub const MISMATCH: [Scenario; 6] = [
    Scenario::Cold,
    Scenario::Warm,
    Scenario::FastUnrecorded,
    Scenario::OtherOffsets,
    Scenario::OtherProgram,
    Scenario::OtherVersions,
];

/// prepage fetches for this launch and learns nothing of it.
const FAST_UNRECORDED: &[&str] = &[
    "--order", "launch", "--start", "together", "--record", "never",
];

impl Scenario {
    /// The word for it, on the command line and in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Sorted => "sorted",
            Self::Fast => "fast",
            Self::Detected => "detected",
            Self::PrefetchOnly => "prefetch_only",
            Self::WholeFiles => "whole_files",
            Self::Vmtouch => "vmtouch",
            Self::Preload => "preload",
            Self::Record => "record",
            Self::FastUnrecorded => "fast_unrecorded",
            Self::FastRecorded => "fast_recorded",
            Self::Profile => "profile",
            Self::Generate => "generate",
            Self::LeftAlone => "left_alone",
            Self::OtherOffsets => "other_offsets",
            Self::OtherProgram => "other_program",
            Self::OtherVersions => "other_versions",
        }
    }

    /// What `prepage run` is told; `None` where prepage takes no part, not even as a launcher.
    pub fn prepage_arguments(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Cold | Self::Warm | Self::Detected | Self::Vmtouch | Self::Preload => None,
            Self::Sorted => Some(&["--order", "lba", "--start", "before"]),
            Self::PrefetchOnly => Some(&["--order", "launch", "--start", "only"]),
            Self::WholeFiles => Some(&["--order", "whole-files", "--start", "together"]),
            Self::Record | Self::Profile | Self::Generate => {
                Some(&["--order", "none", "--record", "always"])
            }
            Self::FastUnrecorded
            | Self::OtherOffsets
            | Self::OtherProgram
            | Self::OtherVersions => Some(FAST_UNRECORDED),
            Self::FastRecorded => Some(&[
                "--order", "launch", "--start", "together", "--record", "always",
            ]),
            // As a person types it: whatever is asked for, prepage has not decided ahead.
            Self::Fast | Self::LeftAlone => Some(&[]),
        }
    }

    /// Whether it is about what is known of a program: how it is fetched, or what recording it costs.
    pub fn needs_sequence(self) -> bool {
        !matches!(
            self,
            Self::Cold | Self::Warm | Self::Fast | Self::Detected | Self::Preload
        )
    }

    /// Whether `prepage run` reports the launch: one that is left alone is nobody's.
    pub fn is_reported(self) -> bool {
        self != Self::LeftAlone && self.prepage_arguments().is_some()
    }

    /// Whether prepage is made to know something else than what it learned of the program.
    pub fn has_made_profile(self) -> bool {
        matches!(
            self,
            Self::Profile
                | Self::Generate
                | Self::LeftAlone
                | Self::OtherOffsets
                | Self::OtherProgram
                | Self::OtherVersions
        )
    }

    /// Whether the program itself runs.
    pub fn runs_program(self) -> bool {
        self != Self::PrefetchOnly
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_scenario_is_read_by_its_word_in_records_and_on_the_command_line() {
        for scenario in Scenario::value_variants() {
            let word = scenario.word();
            assert_eq!(Scenario::from_str(word, false).as_ref(), Ok(scenario));
            let text = serde_json::to_string(scenario).unwrap();
            assert_eq!(text, format!("\"{word}\""));
        }
    }

    #[test]
    fn the_service_is_started_only_for_those_who_ask_for_it() {
        let defaults = [&USUAL[..], &OVER_TIME, &OVERHEADS, &MISMATCH].concat();
        assert!(!defaults.contains(&Scenario::Detected));
    }
}
