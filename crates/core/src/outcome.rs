//! What a switch did, in pages: precision, recall and waste as the paper defines them (ASAP section 6.3).

use crate::params::Mode;
use crate::signal::{EndCause, Source};
use serde::{Deserialize, Serialize};

/// A share with its sample size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Pages that count.
    pub hits: u64,
    /// Pages looked at.
    pub of: u64,
}

impl Share {
    /// The ratio, 0 to 1; `None` where nothing was looked at.
    pub fn ratio(self) -> Option<f64> {
        (self.of > 0).then(|| self.hits as f64 / self.of as f64)
    }

    /// Pages looked at that do not count.
    pub fn misses(self) -> u64 {
        self.of.saturating_sub(self.hits)
    }
}

/// What a switch did to one kind of pages. All fields count pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// In the plan.
    pub planned: u64,
    /// Brought in by prepaging. Gap pages are not in it.
    pub fetched: u64,
    /// Brought in by prepaging between wanted pages.
    pub gap: u64,
    /// Fetched and seen used.
    pub used: u64,
    /// Fetched and seen not used.
    pub unused: u64,
    /// Fetched, and nothing is known of their use.
    pub unknown: u64,
    /// Demand faults: pages that the application had to wait for.
    pub demanded: u64,
    /// Of these, pages that the plan held: the application reached them before they were fetched.
    pub overtaken: u64,
    /// Of these, pages that the plan did not hold.
    pub missed: u64,
    /// Not among the demand faults: pages that the application waited for while they were being fetched. `None` where
    /// nothing tells them from others: of anonymous pages, and of file pages where the kernel does not report
    /// mapped access (before 6.12) or events were lost.
    pub late: Option<Late>,
    /// Precision: used of fetched, estimated from the `used + unused` pages whose use is known. A page that was
    /// watched by turns stands for as many as its turn is long.
    pub precision: Share,
    /// Hold-out, where nothing of this kind was fetched: planned pages that were accessed, of the planned pages
    /// whose use is known.
    pub holdout_precision: Share,
    /// Hold-out: demand faults on planned pages, of all demand faults (the paper's recall, against the baseline).
    pub holdout_recall: Share,
}

impl Outcome {
    /// Fetched for nothing, in pages: gap pages and what was seen unused.
    pub fn wasted(&self) -> u64 {
        self.gap + self.unused
    }
}

/// Waits for pages in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Pages waited for.
    pub pages: u64,
    /// Time waited, summed over the application's threads, in microseconds.
    pub wait_us: u64,
}

/// Why an observation says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Void {
    /// The application's pages were reclaimed during it.
    Reclaimed,
    /// Events were lost.
    EventsLost,
    /// Another switch of the same application began during it.
    Superseded,
    /// Demand faults alone began it, it used less than half of what was planned and known of, and touched at most a quarter as
    /// many pages as the largest of the last few switches: it was what the application does in the background.
    Background,
}

/// What the executor measured of a switch. Times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// From the signal's arrival to the first fetch.
    pub signal_to_fetch_us: u64,
    /// From the signal's arrival to the end of the last fetch.
    pub fetch_us: u64,
    /// CPU time of the fetching threads.
    pub fetch_cpu_us: u64,
    /// CPU time of observing and learning, outside the switch.
    pub management_cpu_us: u64,
    /// What the switch's path was held up for: from the signal's arrival until the threads were woken.
    pub switch_path_us: u64,
}

/// One switch, as `stats` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchRecord {
    /// Number of the switch, from 1, in the life of the profile.
    pub number: u64,
    /// Mode in force.
    pub mode: Mode,
    /// What began it.
    pub source: Source,
    /// What ended it.
    pub end: EndCause,
    /// Length, in milliseconds.
    pub duration_ms: u64,
    /// Why nothing was learned from it, if so.
    pub void: Option<Void>,
    /// Events lost to full rings.
    pub events_lost: u64,
    /// Demand accesses to files whose path could not be found, in pages.
    pub unresolved: u64,
    /// The confidence of the plan, 0 to 1.
    pub confidence: f32,
    /// Anonymous pages.
    pub anon: Outcome,
    /// File pages; `None` where file accesses were not observed: see [`crate::file_watch`].
    pub file: Option<Outcome>,
    /// Measured times.
    pub timing: Timing,
}

impl SwitchRecord {
    /// The share of the planned anonymous pages that were used, of those whose use is known: fetched or held out. `None` where
    /// nothing is known of any.
    pub fn used_share(&self) -> Option<f64> {
        let Outcome {
            precision,
            holdout_precision,
            ..
        } = &self.anon;
        precision.ratio().or(holdout_precision.ratio())
    }

    /// Anonymous pages that came in and were used: demanded, or fetched and used, by the estimate of the precision.
    pub fn touched_pages(&self) -> u64 {
        let precision = self.anon.precision.ratio().unwrap_or(0.0);
        self.anon.demanded + (self.anon.fetched as f64 * precision) as u64
    }

    /// Pages of both kinds that the application demanded and the plan did not hold.
    pub fn missed_pages(&self) -> u64 {
        let of_files = self.file.as_ref().map_or(0, |file| file.missed);
        self.anon.missed + of_files
    }
}
