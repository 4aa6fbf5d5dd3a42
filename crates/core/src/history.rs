//! What was seen of a page, and how likely a page with such a past is to be used in the next switch.
//!
//! The paper gives a page a timeout counter (ASAP section 4.3). A counter says when to forget a page, not how
//! likely it is to be used. [`History`] keeps the last known observations of a page as bits; [`Calibration`]
//! counts, per history, how often pages with that history were used next. Their ratio is a measured probability,
//! which the plan compares with the confidence it needs: precision is set, not hoped for.

use serde::{Deserialize, Serialize};

/// Known observations that a [`History`] keeps.
pub const HISTORY_LEN: u32 = 7;

/// The last known observations of a page, newest in the lowest bit, below a leading one that marks the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History(u8);

impl Default for History {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl History {
    /// Nothing known.
    pub const EMPTY: Self = Self(1);

    /// This history with one more known observation.
    #[must_use]
    pub const fn with(self, used: bool) -> Self {
        let len = self.len();
        let bits = ((self.0 as u16) << 1) | used as u16;
        let mark = 1u16
            << if len < HISTORY_LEN {
                len + 1
            } else {
                HISTORY_LEN
            };
        Self(((bits & (mark - 1)) | mark) as u8)
    }

    /// Number of known observations kept.
    pub const fn len(self) -> u32 {
        7 - (self.0 | 1).leading_zeros()
    }

    /// Whether nothing is known.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Number of kept observations in which the page was used.
    pub const fn used(self) -> u32 {
        self.0.count_ones() - 1
    }

    /// It, as a byte.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// What [`History::bits`] gave.
    pub(crate) const fn of_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Whether the mark is there: a byte read from elsewhere may lack it.
    pub(crate) const fn is_valid(self) -> bool {
        self.0 != 0
    }

    /// Index of this history among all, below 256.
    pub const fn class(self) -> usize {
        self.0 as usize
    }
}

/// Weight of the prior, in pages: that many observed pages of a class outweigh the prior.
const PRIOR_PAGES: f32 = 16.0;

/// Counts of one history class, in pages, decayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    used: f32,
    known: f32,
}

/// How often pages with each history were used when next seen. One for each application and estimator; it
/// outlives the process instances, since it speaks of the application's manner and not of addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// By history class: 2 KiB.
    classes: Vec<Counts>,
}

impl Default for Calibration {
    fn default() -> Self {
        Self {
            classes: vec![Counts::default(); 256],
        }
    }
}

impl Calibration {
    /// Takes what one switch showed. Of the histories that it showed anything of, what was counted before keeps the weight `keep`
    /// (0 to 1), so that old switches weigh less; a switch that shows nothing of one, as to what is in memory, leaves it as it is.
    pub fn add(&mut self, seen: &Calibration, keep: f32) {
        for (counts, seen) in self.classes.iter_mut().zip(&seen.classes) {
            if seen.known > 0.0 {
                counts.used = counts.used * keep + seen.used;
                counts.known = counts.known * keep + seen.known;
            }
        }
    }

    /// Counts `pages` pages whose history was `before` and that turned out used or not.
    pub fn count(&mut self, before: History, used: bool, pages: u64) {
        // A damaged profile may hold fewer classes: it is checked when it is read, and never indexed blindly.
        if let Some(counts) = self.classes.get_mut(before.class()) {
            counts.known += pages as f32;
            counts.used += if used { pages as f32 } else { 0.0 };
        }
    }

    /// Probability (0 to 1) that a page with this history is used in the next switch: the measured ratio, drawn
    /// to a prior of the history's own ratio while little was measured.
    pub fn probability(&self, history: History) -> f32 {
        let prior = (history.used() as f32 + 0.5) / (history.len() as f32 + 1.0);
        let counts = self
            .classes
            .get(history.class())
            .copied()
            .unwrap_or_default();
        (counts.used + prior * PRIOR_PAGES) / (counts.known + PRIOR_PAGES)
    }

    /// Bytes of memory that it takes beside itself.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[Counts]>(&self.classes)
    }

    /// Whether it can be used: the right number of classes, and every count finite and in range.
    pub fn is_valid(&self) -> bool {
        self.classes.len() == 256
            && self.classes.iter().all(|c| {
                c.used.is_finite() && c.known.is_finite() && c.used >= 0.0 && c.used <= c.known
            })
    }
}
