//! The core policies of ASAP section 6.5 against each other: modes that name one.

use super::overall::mean_ratio;
use super::switches::Switches;
use crate::record::Mode;
use crate::statistics::Estimate;
use prepage_engine::CorePolicy;
use serde::Serialize;

/// One core policy: means over the applications of a record.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyRow {
    /// Its name.
    pub policy: &'static str,
    /// Time to the settled picture over that of off.
    pub ratio_to_off: Option<Estimate>,
    /// The same over that of the paper's own policy (`asap`): its Figure 15.
    pub ratio_to_asap: Option<Estimate>,
}

/// A row for each policy that the record's switches name.
pub fn policies(apps: &[Switches]) -> Vec<PolicyRow> {
    let mut modes: Vec<Mode> = apps.iter().flat_map(Switches::modes).collect();
    modes.sort_unstable();
    modes.dedup();
    let asap = Some(Mode::FullBy(CorePolicy::Asap)).filter(|asap| modes.contains(asap));
    let row = |mode: &Mode| {
        Some(PolicyRow {
            policy: mode.core_policy()?.word(),
            ratio_to_off: mean_ratio(apps, *mode, Mode::Off),
            ratio_to_asap: asap.and_then(|asap| mean_ratio(apps, *mode, asap)),
        })
    };
    modes.iter().filter_map(row).collect()
}
