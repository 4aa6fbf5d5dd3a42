//! What is varied from a centre point, one at a time.

use crate::mthp::Mthp;
use crate::swap::SwapKind;
use crate::throttle::Throttle;
use serde::{Deserialize, Serialize};

/// What a run varies of the machine; the centre point is what it has if nothing is said. The record's `machine` holds
/// what it came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Factors {
    /// The only swap there is; `None`: whatever is active, and zram where nothing is.
    pub swap: Option<SwapKind>,
    /// Compressor of zram or zswap; `None`: lz4 for what the run sets up.
    pub compressor: Option<String>,
    /// Limits of the disk's reads, by the applications and by prepage together; `None`: the disk as it is.
    pub throttle: Option<Throttle>,
    /// Folios of anonymous memory.
    pub mthp: Mthp,
}
