//! `study`: derives every number from the records alone.

pub mod beside;
pub mod footprint;
pub mod measures;
pub mod overall;
pub mod paper;
pub mod policies;
pub mod rows;
pub mod sequences;
pub mod stalls;
pub mod switches;
pub mod text;
pub mod utilization;

use crate::error::Result;
use crate::record::{self, Mode, Run, Switch};
use crate::statistics::Estimate;
use beside::Beside;
use footprint::FootprintRow;
use overall::Overall;
use policies::PolicyRow;
use sequences::SequenceRow;
use serde::Serialize;
use stalls::Stalls;
use std::collections::BTreeMap;
use std::path::Path;
use switches::Switches;
use utilization::Utilization;

/// Everything that one record says.
#[derive(Clone, Debug, Serialize)]
pub struct Studies {
    /// Of each application by itself.
    pub apps: Vec<Study>,
    /// Of all of them, a row for each mode but off, where there are several.
    pub overall: Vec<Overall>,
    /// Of several applications, those left out of the mean gap closed, since they have none.
    pub without_gap: Vec<String>,
    /// Of applications at once, each in each sequence.
    pub sequences: Vec<SequenceRow>,
    /// The core policies that its switches name.
    pub policies: Vec<PolicyRow>,
    /// Its numbers beside the paper's.
    pub beside: Vec<Beside>,
}

impl Studies {
    /// Whether it is of a record without switches.
    pub fn is_empty(&self) -> bool {
        let is_without = |study: &Study| {
            let is_measured = study.modes.iter().any(|mode| mode.samples > 0);
            let has_other = study.footprint.is_some() || study.launch_ms.is_some();
            !is_measured && !has_other && study.discarded.is_empty()
        };
        self.apps.iter().all(is_without)
    }
}

/// Everything that one record says of one application.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The application.
    pub app: String,
    /// The circumstances.
    pub run: Run,
    /// One row a mode, in the order of [`Mode`].
    pub modes: Vec<ModeRow>,
    /// Median time from a cold launch to the settled picture.
    pub launch_ms: Option<Estimate>,
    /// Whether it is clearly slower swapped out than resident; nothing where too few blocks tell.
    pub has_gap: Option<bool>,
    /// Every mode against off and resident, paired by block.
    pub comparisons: Vec<Comparison>,
    /// What watching costs where nothing has to be fetched: observe against off, all resident.
    pub watching_ms: Option<Estimate>,
    /// What help costs where nothing has to be fetched: full against off, all resident.
    pub needless_ms: Option<Estimate>,
    /// The least time that this machine's processors allow, where there is a clear gap.
    pub bound: Option<Bound>,
    /// Precision and recall.
    pub shares: Vec<ShareRow>,
    /// What prepage itself took.
    pub costs: Vec<CostRow>,
    /// How much of processors and disk each mode uses.
    pub utilization: Vec<Utilization>,
    /// What the observed switches have in common.
    pub footprint: Option<FootprintRow>,
    /// Bytes of prepage's tables.
    pub table_bytes: Option<u64>,
    /// Discarded switches by reason.
    pub discarded: BTreeMap<String, usize>,
    /// Samples that the cap ended, whose picture did not answer the key.
    pub unanswered: usize,
    /// And those whose picture answered it and did not come to rest.
    pub restless: usize,
    /// Switches whose longest single waits may have been longer than was seen.
    pub incomplete_stalls: usize,
}

/// One mode. A number without a confidence interval is not there.
#[derive(Clone, Debug, Serialize)]
pub struct ModeRow {
    /// The mode.
    pub mode: Mode,
    /// How many samples.
    pub samples: usize,
    /// Median time to the settled picture.
    pub settled_ms: Option<Estimate>,
    /// Median time to the first frame.
    pub first_frame_ms: Option<Estimate>,
    /// Median demand faults (major faults) of the application until its picture settled.
    pub demand_faults: Option<Estimate>,
    /// Median CPU time of the application until then.
    pub app_cpu_ms: Option<Estimate>,
    /// Median pages swapped out before the switch.
    pub swapped_out_pages: Option<Estimate>,
    /// Median of what the memory limit left before, in MiB, where there was one.
    pub limit_left_mib: Option<Estimate>,
    /// How long the application itself waited.
    pub stalls: Stalls,
}

/// One mode against the others.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The mode.
    pub mode: Mode,
    /// Time to the settled picture over that of off: median of the blocks' ratios.
    pub ratio_to_off: Option<Estimate>,
    /// The same of the time to the first frame.
    pub first_frame_ratio_to_off: Option<Estimate>,
    /// (off - mode) / (off - resident), of medians over the same blocks, where that gap is clear.
    pub gap_closed: Option<Estimate>,
}

/// (application CPU + pages x us per page) / cores.
#[derive(Clone, Debug, Serialize)]
pub struct Bound {
    /// The bound.
    pub settled_ms: Estimate,
    /// The gap that would be closed at the bound; no mode can close more.
    pub gap_closed: Estimate,
    /// CPU time of the application with everything resident.
    pub app_cpu_ms: f64,
    /// Pages that were demanded in mode off.
    pub pages: f64,
    /// CPU time that one costs.
    pub us_per_page: f64,
    /// Whose: `fetch` (prepage's threads, mode anon) or `demand` (the application's own faults).
    pub us_per_page_of: &'static str,
}

/// A precision or recall, in hundredths.
#[derive(Clone, Debug, Serialize)]
pub struct ShareRow {
    /// `anon` or `file`.
    pub of: &'static str,
    /// `precision`, `precision_with_gaps` (where such pages were read), `holdout_precision` or `holdout_recall`.
    pub share: &'static str,
    /// All samples' pages together.
    pub percent: Estimate,
    /// The pages it rests on; of the anonymous precision those that the watched ones stand for.
    pub pages: u64,
}

/// What prepage took, by its own record.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// The mode.
    pub mode: Mode,
    /// The name in prepage's record, such as `switch_path_us`.
    pub name: &'static str,
    /// The median.
    pub median: Estimate,
}

/// Studies one record.
pub fn study(path: &Path) -> Result<Studies> {
    Ok(study_apps(&Switches::by_app(record::read(path)?)))
}

/// Studies the applications of one record.
pub fn study_apps(apps: &[Switches]) -> Studies {
    let studies: Vec<Study> = apps.iter().map(study_switches).collect();
    let without_gap = match apps {
        [_] => Vec::new(),
        _ => overall::without_gap(&studies),
    };
    Studies {
        apps: studies,
        overall: overall::overall(apps, &without_gap),
        without_gap,
        sequences: sequences::sequences(apps),
        policies: policies::policies(apps),
        beside: beside::beside(apps),
    }
}

/// Studies the switches of one application.
pub fn study_switches(switches: &Switches) -> Study {
    let modes = switches.modes();
    let capped: Vec<&Switch> = switches.samples.iter().filter(|s| s.capped).collect();
    let has_gap = measures::has_gap(switches);
    Study {
        app: switches.app.clone(),
        run: switches.run.clone(),
        modes: modes
            .iter()
            .map(|&mode| measures::mode_row(switches, mode))
            .collect(),
        launch_ms: measures::launch_ms(switches),
        has_gap,
        comparisons: modes
            .iter()
            .filter(|&&mode| mode != Mode::Off)
            .map(|&mode| measures::comparison(switches, mode, has_gap))
            .filter(|comparison| comparison.ratio_to_off.is_some())
            .collect(),
        watching_ms: measures::cost_where_resident(switches, Mode::ResidentObserve),
        needless_ms: measures::cost_where_resident(switches, Mode::ResidentFull),
        bound: measures::bound(switches, has_gap),
        shares: measures::shares(switches),
        costs: measures::costs(switches),
        utilization: utilization::utilization(switches),
        footprint: switches
            .application
            .footprint
            .as_ref()
            .and_then(footprint::row),
        table_bytes: switches.application.table_bytes,
        discarded: switches.discarded.clone(),
        unanswered: capped.iter().filter(|s| !s.is_answered()).count(),
        restless: capped.iter().filter(|s| s.is_answered()).count(),
        incomplete_stalls: stalls::incomplete(switches),
    }
}
