//! What is known of an application's launches and kept.

use super::Times;
use crate::launch::misses::Misses;
use crate::launch::sequence::LaunchSequence;
use crate::params::launch::TIMES_MAX;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The phases of FAST section 4.4, and one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Launch profiling: launches are recorded.
    #[default]
    Profiling,
    /// Prefetcher generation: N_rawseq recordings are there; [`super::generate`] is due.
    Generation,
    /// Application prefetch: launches are helped.
    Prefetch,
    /// The application is left alone for some launches.
    Off(OffReason),
}

/// Why an application is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OffReason {
    /// Too few pages, or too short a cold launch, to gain anything.
    TooSmall,
    /// Helped launches took as long as those held out.
    NotHelping,
    /// Launches differ too much from each other: they have little in common, or sequence after sequence was deleted
    /// for its misses. Or they do more than can be recorded: recording after recording lost events.
    Unsteady,
}

/// What is known of an application's launches and kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaunchState {
    /// Launches seen.
    pub launches: u64,
    /// Phase.
    pub phase: Phase,
    /// n_init: recordings learned from in the profiling phase.
    pub n_init: u32,
    /// n_pref: launches in the prefetch phase since the miss ratio was checked. In the profiling phase, recordings in a row that
    /// were no launches.
    pub n_pref: u32,
    /// Recordings of cold launches that the sequence was refined by.
    pub n_refined: u32,
    /// Launches in the prefetch phase since one was to refine it.
    pub n_unrefined: u32,
    /// Whether the launch before was cold ([`super::COLD_PART`]).
    pub was_cold: bool,
    /// Launches in the prefetch phase since one was held out.
    pub n_held_out: u32,
    /// Whether a launch is over when it is idle, as that of a program with a window: only a recording shows it.
    pub ends_idle: bool,
    /// What was learned: shared with whoever follows a launch by it.
    pub sequence: Arc<LaunchSequence>,
    /// Whether a file of the sequence changed, so that the next recording's new files are taken in.
    pub relearns: bool,
    /// Sequences deleted for their misses, in a row.
    pub deletions: u32,
    /// Recordings in a row that lost events.
    pub unusable: u32,
    /// The misses last counted.
    pub misses: Option<Misses>,
    /// Files that the launch last recorded used beyond those that a recording holds ([`crate::launch::recording::Recording::files_left_out`]).
    pub files_left_out: u64,
    /// The longest launch of the profiling phase, in microseconds; a path profile's does not count, since it is slowed. 0 where
    /// none is known.
    pub longest_us: u64,
    /// The shortest launch that was not cold, in microseconds, without what help takes before it; `None` before the first.
    pub warm_us: Option<u64>,
    /// Share (0 to 1) that recording took of the launch last recorded.
    pub recording_share: f32,
    /// When the launch before began, in nanoseconds since 1970.
    pub began_ns: i64,
    /// Times of cold launches in the prefetch phase, helped.
    pub helped: Times,
    /// The same, held out.
    pub held_out: Times,
    /// Launches until an application that is left alone is learned anew.
    pub retry_left: u32,
    /// What `retry_left` was set to last.
    pub retry_launches: u32,
}

impl LaunchState {
    /// Whether it can be used: what a state from another source is checked by.
    pub fn is_valid(&self) -> bool {
        self.sequence.is_valid()
            && (0.0..=1.0).contains(&self.recording_share)
            && self.helped.len().max(self.held_out.len()) <= TIMES_MAX
    }

    /// Whether the application is launched without help, since that is not worth its cost.
    pub const fn is_left_alone(&self) -> bool {
        matches!(self.phase, Phase::Off(_))
    }
}
