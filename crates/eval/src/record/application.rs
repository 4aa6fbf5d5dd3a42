//! What all switches to one application came to.

use serde::{Deserialize, Serialize};

/// One application of a run, after its samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// The application's name.
    pub app: String,
    /// What its observed switches accessed; nothing where none was observed.
    pub footprint: Option<Footprint>,
    /// Bytes of prepage's tables for it; nothing where prepage took no part.
    pub table_bytes: Option<u64>,
}

/// The switch footprint of an application, over the switches of mode observe (ASAP section 4.1). All fields but
/// `switches` count pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Footprint {
    /// Switches.
    pub switches: usize,
    /// Anonymous pages accessed in exactly 1, 2, ... of the switches (ASAP's Figure 6).
    pub anon_by_recurrence: Vec<u64>,
    /// File pages likewise (ASAP's Figure 5).
    pub file_by_recurrence: Vec<u64>,
    /// Anonymous pages of each switch (ASAP's Figure 7).
    pub anon_by_switch: Vec<u64>,
    /// File pages of each switch.
    pub file_by_switch: Vec<u64>,
    /// Pages of each file, over all switches; the smallest file first (ASAP's Figure 10).
    pub file_by_size: Vec<u64>,
}
