//! The modes that alternate in a run.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use prepage_engine::CorePolicy;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is done for the application at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// No switch: the application is not running, nothing is cached, and it is launched (ASAP's Figure 1).
    Launch,
    /// Nothing was taken out: the best there can be.
    Resident,
    /// Nothing was taken out, and prepage watches: what watching costs.
    ResidentObserve,
    /// Nothing was taken out, and prepage fetches what it has learned: what help costs where none is needed.
    ResidentFull,
    /// Anonymous pages are resident, file pages dropped (ASAP's Figure 1).
    FilesDropped,
    /// Demand paging alone.
    Off,
    /// prepage watches and fetches nothing.
    Observe,
    /// prepage fetches anonymous and shared memory.
    Anon,
    /// prepage fetches file pages.
    File,
    /// prepage fetches both.
    Full,
    /// The same where nothing tells prepage of the focus: once it sees demand faults set in.
    FullOnset,
    /// prepage fetches both, file pages by this core policy of ASAP section 6.5 and not by the configured one.
    FullBy(CorePolicy),
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 17] = [
        Self::Launch,
        Self::Resident,
        Self::ResidentObserve,
        Self::ResidentFull,
        Self::FilesDropped,
        Self::Off,
        Self::Observe,
        Self::Anon,
        Self::File,
        Self::Full,
        Self::FullOnset,
        Self::FullBy(CorePolicy::Asap),
        Self::FullBy(CorePolicy::Big1),
        Self::FullBy(CorePolicy::BigAll),
        Self::FullBy(CorePolicy::Little1),
        Self::FullBy(CorePolicy::LittleAll),
        Self::FullBy(CorePolicy::Iorap),
    ];

    /// The word for it, on the command line and in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Resident => "resident",
            Self::ResidentObserve => "resident_observe",
            Self::ResidentFull => "resident_full",
            Self::FilesDropped => "files_dropped",
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Anon => "anon",
            Self::File => "file",
            Self::Full => "full",
            Self::FullOnset => "full_onset",
            Self::FullBy(CorePolicy::Asap) => "full:asap",
            Self::FullBy(CorePolicy::Big1) => "full:big1",
            Self::FullBy(CorePolicy::BigAll) => "full:big-all",
            Self::FullBy(CorePolicy::Little1) => "full:little1",
            Self::FullBy(CorePolicy::LittleAll) => "full:little-all",
            Self::FullBy(CorePolicy::Iorap) => "full:iorap",
        }
    }

    /// Whether everything stays in memory.
    pub fn is_resident(self) -> bool {
        matches!(
            self,
            Self::Resident | Self::ResidentObserve | Self::ResidentFull
        )
    }

    /// Whether all of it is taken out before the switch: what can be compared with [`Mode::Off`] as help.
    pub fn is_taken_out(self) -> bool {
        !self.is_resident() && !matches!(self, Self::FilesDropped | Self::Launch)
    }

    /// Whether prepage fetches something.
    pub fn is_helped(self) -> bool {
        self.is_taken_out() && !matches!(self, Self::Off | Self::Observe)
    }

    /// The word for prepage's own mode.
    pub fn word_of_prepage(self) -> &'static str {
        match self {
            Self::Launch | Self::Resident | Self::FilesDropped => "off",
            Self::ResidentObserve => "observe",
            Self::ResidentFull | Self::FullOnset | Self::FullBy(_) => "full",
            other => other.word(),
        }
    }

    /// The core policy, where it is not the configured one.
    pub fn core_policy(self) -> Option<CorePolicy> {
        match self {
            Self::FullBy(policy) => Some(policy),
            _ => None,
        }
    }

    /// Whether prepage is told of the focus, as by its agent in the session.
    pub fn is_told_of_focus(self) -> bool {
        self != Self::FullOnset
    }

    /// Whether prepage's service has to run for it.
    pub fn needs_prepage(self) -> bool {
        self.word_of_prepage() != "off"
    }
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Launch => "no switch: launched, with nothing cached",
            Self::Resident => "nothing was taken out: the best there can be",
            Self::ResidentObserve => "nothing was taken out, prepage watches",
            Self::ResidentFull => "nothing was taken out, prepage fetches",
            Self::FilesDropped => "anonymous pages are resident, file pages dropped",
            Self::Off => "demand paging alone",
            Self::Observe => "prepage watches and fetches nothing",
            Self::Anon => "prepage fetches anonymous and shared memory",
            Self::File => "prepage fetches file pages",
            Self::Full => "prepage fetches both",
            Self::FullOnset => "the same without an agent: once demand faults set in",
            Self::FullBy(_) => "the same, file pages by this core policy (ASAP section 6.5)",
        };
        Some(PossibleValue::new(self.word()).help(help))
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let word = String::deserialize(input)?;
        let found = Self::ALL.into_iter().find(|mode| mode.word() == word);
        found.ok_or_else(|| D::Error::custom(format!("there is no mode {word}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_by_its_word_in_records_and_on_the_command_line() {
        for mode in Mode::ALL {
            let text = serde_json::to_string(&mode).unwrap();
            assert_eq!(serde_json::from_str::<Mode>(&text).unwrap(), mode);
            assert_eq!(Mode::from_str(mode.word(), false), Ok(mode));
        }
        assert!(serde_json::from_str::<Mode>("\"full:fast\"").is_err());
    }

    #[test]
    fn every_core_policy_has_a_mode_which_is_full_for_prepage() {
        for policy in CorePolicy::ALL {
            let mode = Mode::FullBy(policy);
            assert!(Mode::ALL.contains(&mode));
            assert_eq!(mode.word(), format!("full:{}", policy.word()));
            assert_eq!(mode.word_of_prepage(), "full");
            assert_eq!(mode.core_policy(), Some(policy));
        }
        assert_eq!(Mode::Full.core_policy(), None, "the configured one");
    }
}
