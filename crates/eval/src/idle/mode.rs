//! What is done for a service that sat idle, and what tells prepage that it is needed again.

use serde::{Deserialize, Serialize};

/// One mode.
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
pub enum IdleMode {
    /// Nothing was taken out: the best there can be.
    Resident,
    /// Demand paging alone.
    Off,
    /// The same of a service that was frozen while it was idle: what thawing costs.
    OffThaw,
    /// prepage fetches once it sees demand faults set in.
    FullOnset,
    /// prepage fetches once the service's control group is thawed.
    FullThaw,
    /// prepage fetches when it is told so, just before the first request.
    FullBegin,
    /// `prepage restore` brings all of it back before the first request is made, and is waited for.
    FullRestore,
}

impl IdleMode {
    /// The word for it, on the command line and in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Off => "off",
            Self::OffThaw => "off_thaw",
            Self::FullOnset => "full_onset",
            Self::FullThaw => "full_thaw",
            Self::FullBegin => "full_begin",
            Self::FullRestore => "full_restore",
        }
    }

    /// Whether the service stays in memory.
    pub fn is_resident(self) -> bool {
        self == Self::Resident
    }

    /// Whether the service is frozen while it is idle.
    pub fn is_frozen(self) -> bool {
        matches!(self, Self::OffThaw | Self::FullThaw)
    }

    /// Whether prepage fetches.
    pub fn is_helped(self) -> bool {
        matches!(
            self,
            Self::FullOnset | Self::FullThaw | Self::FullBegin | Self::FullRestore
        )
    }

    /// The mode that it is held against: the one without help that differs in nothing else. Resident over off is the
    /// bound: what is left where all is in memory.
    pub fn control(self) -> Option<Self> {
        match self {
            Self::FullThaw => Some(Self::OffThaw),
            Self::Resident | Self::FullOnset | Self::FullBegin | Self::FullRestore => {
                Some(Self::Off)
            }
            Self::Off | Self::OffThaw => None,
        }
    }
}
