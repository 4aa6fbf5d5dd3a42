//! What one choice of pages came to.

use prepage_core::outcome::Share;
use prepage_core::replay::{Replayed, Tally};
use serde::{Serialize, Serializer};

/// One row of the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// What chose the pages: a predictor, or the parameters that were set.
    pub name: String,
    /// Switches counted, over all applications.
    pub switches: u64,
    /// Anonymous pages, against the truth.
    #[serde(serialize_with = "with_ratios")]
    pub anon: Tally,
    /// File pages, against the truth.
    #[serde(serialize_with = "with_ratios")]
    pub file: Tally,
    /// Precision of anonymous pages as the service would see it: of the pages whose use it observes.
    pub anon_seen: Share,
    /// Most bytes that one application's tables and plan took.
    pub bytes_max: u64,
    /// The first switches one by one, over all applications: anonymous and file pages.
    pub learning: Vec<(Tally, Tally)>,
}

/// Counts, and what is derived from them: shares are 0 to 1, null of nothing.
fn with_ratios<S: Serializer>(
    tally: &Tally,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WithRatios<'a> {
        #[serde(flatten)]
        tally: &'a Tally,
        wasted: u64,
        precision: Option<f64>,
        recall: Option<f64>,
    }
    let with_ratios = WithRatios {
        tally,
        wasted: tally.wasted(),
        precision: tally.precision().ratio(),
        recall: tally.recall().ratio(),
    };
    with_ratios.serialize(serializer)
}

impl Row {
    /// Adds what another application came to.
    pub fn add(&mut self, other: &Self) {
        self.switches += other.switches;
        self.anon.add(&other.anon);
        self.file.add(&other.file);
        self.anon_seen.hits += other.anon_seen.hits;
        self.anon_seen.of += other.anon_seen.of;
        self.bytes_max = self.bytes_max.max(other.bytes_max);
        let longest = self.learning.len().max(other.learning.len());
        self.learning.resize(longest, Default::default());
        for (sum, part) in self.learning.iter_mut().zip(&other.learning) {
            sum.0.add(&part.0);
            sum.1.add(&part.1);
        }
    }

    /// What one application's replay came to.
    pub fn of(replayed: &Replayed, from: u64, learning: u64) -> Self {
        let (anon, file) = replayed.since(from);
        let mut row = Self {
            anon,
            file,
            bytes_max: replayed.bytes_max,
            ..Self::default()
        };
        for switch in &replayed.switches {
            if switch.number <= learning {
                row.learning.push((switch.anon, switch.file));
            }
            if switch.number >= from {
                row.switches += 1;
                row.anon_seen.hits += switch.anon_seen.hits;
                row.anon_seen.of += switch.anon_seen.of;
            }
        }
        row
    }
}
