//! What says that a switch begins or ends.

use serde::{Deserialize, Serialize};

/// Where the beginning of a switch was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// An explicit call, as the framework's start signal of ASAP section 5.
    Explicit,
    /// A window of the application got the focus.
    Focus,
    /// Demand faults set in of planned pages, and more of these are swapped out; or so many of others as only a switch has.
    Onset,
    /// Demand faults set in of pages that are not planned, in a process that is largely swapped out: the application does
    /// something in the background, or the plan does not know its switches yet. It is observed, and nothing is fetched, until
    /// another signal says that it is a switch.
    Unplanned,
    /// The application's cgroup was thawed.
    Thaw,
}

impl Source {
    /// Whether it is more than demand faults, which an application may have in the background.
    pub fn is_announced(self) -> bool {
        matches!(self, Self::Explicit | Self::Focus | Self::Thaw)
    }
}

/// Why a switch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndCause {
    /// An explicit call.
    Explicit,
    /// No demand fault for `switch.quiet_ms`.
    Quiet,
    /// `switch.cap_ms` had passed.
    Cap,
    /// Another switch of the same application began.
    Superseded,
}
