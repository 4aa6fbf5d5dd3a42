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
    /// Demand faults set in while the application was largely swapped out.
    Onset,
    /// The application's cgroup was thawed.
    Thaw,
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
