//! An application that is tracked: which signals are heeded, and what its last switches say of the next.

use super::switching::{Collecting, Switching};
use super::{Action, NANOS_PER_MS, Nanos, Need, RECORDS_MAX};
use crate::app::{AppModel, Profile};
use crate::file_watch::FileWatch;
use crate::identity::AppId;
use crate::outcome::{SwitchRecord, Void};
use crate::params::{FileCandidates, Mode, Params, SwitchParams};
use crate::rest::Rest;
use crate::signal::Source;
use std::collections::VecDeque;
use std::sync::Arc;

/// The time in which the onset is not believed, after one that was none, doubles at most so often: from 2 s to a minute.
const FALSE_ONSETS_MAX: u32 = 5;

/// How many of the last switches tell what a switch touches, and the part of that, and of what is planned, that is a switch.
const SIZES_MAX: usize = 8;
const SIZE_RATIO: u64 = 4;

/// A tracked application.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracked {
    pub(super) model: AppModel,
    pub(super) next_number: u64,
    pub(super) rest: Rest,
    pub(super) file_watch: FileWatch,
    pub(super) switching: Option<Switching>,
    pub(super) collecting: Option<Collecting>,
    /// When something last said that it is switched to: see [`super::Machine::in_use`]. Unplanned faults say so only where they prove
    /// to be a switch, and planned ones where they are heeded.
    pub(super) last_signal: Option<Nanos>,
    /// When something else than demand faults last did, whether a switch began by that or not.
    pub(super) last_announced: Option<Nanos>,
    pub(super) last_begin: Option<Nanos>,
    pub(super) last_end: Option<Nanos>,
    /// Of those that faults began on pages that were not planned, and that need not have been switches: they count for nothing
    /// else here, except once they were found to be switches.
    pub(super) last_unplanned_end: Option<Nanos>,
    /// Switches that the onset of planned faults began and that were none, or that reclaim undid, since one that was.
    false_onsets: u32,
    /// How many anonymous pages the last switches touched, at most [`SIZES_MAX`] of those that tell it: one to an application that
    /// is in memory touches next to nothing, however much it uses.
    sizes: VecDeque<u64>,
    pub(super) records: VecDeque<SwitchRecord>,
}

impl Tracked {
    /// One of which `profile` is known.
    pub(super) fn new(profile: Profile, under_pressure: bool, params: &Params) -> Self {
        let next_number = profile.switches + 1;
        let mut model = AppModel::new(profile, params);
        model.set_pressure(under_pressure, params);
        Self {
            model,
            next_number,
            ..Self::default()
        }
    }

    /// What a signal is taken for: planned faults are not believed to begin a switch for a while after others fetched in vain.
    pub(super) fn believed(&self, now: Nanos, source: Source, params: &SwitchParams) -> Source {
        let doubled = 1 << self.false_onsets.min(FALSE_ONSETS_MAX);
        let doubt_ms = params.onset_pause_ms.saturating_mul(doubled);
        let doubts = self.false_onsets > 0 && is_within(now, self.last_end, doubt_ms);
        match source {
            Source::Onset if doubts => Source::Unplanned,
            source => source,
        }
    }

    /// What was observed as unplanned faults is a switch: what was seen of it counts, and its plan is fetched from now on.
    pub(super) fn prove(
        &mut self,
        now: Nanos,
        app: &AppId,
        source: Source,
        mode: Mode,
    ) -> Vec<Action> {
        (self.last_begin, self.last_signal) = (Some(now), Some(now));
        let Some(switching) = &mut self.switching else {
            return Vec::new();
        };
        switching.prove(source, mode, Arc::clone(self.model.plan()), now);
        switching.fetch(app).into_iter().collect()
    }

    /// Whether this signal begins a switch, or says what one is that is under way.
    pub(super) fn heeds(&self, now: Nanos, source: Source, params: &SwitchParams) -> bool {
        let within = |last, ms| is_within(now, last, ms);
        let under_way = self.switching.as_ref().map(|switching| switching.source);
        // Faults in the background may have begun a switch: a user's signal begins another, unless the faults are what it
        // led to.
        let repeat_ms = match under_way {
            Some(Source::Onset) if source.is_announced() => {
                params.repeat_ms.min(params.onset_window_ms)
            }
            _ => params.repeat_ms,
        };
        let pause_ms = params.onset_pause_ms;
        let is_paused = match source {
            Source::Explicit | Source::Focus | Source::Thaw => false,
            Source::Onset => within(self.last_end, pause_ms),
            Source::Unplanned => {
                within(self.last_end, pause_ms) || within(self.last_unplanned_end, pause_ms)
            }
        };
        let is_superfluous = under_way.is_some_and(|under_way| match source {
            Source::Explicit => false,
            Source::Focus | Source::Thaw => !matches!(under_way, Source::Onset | Source::Unplanned),
            Source::Onset => under_way != Source::Unplanned,
            Source::Unplanned => true,
        });
        !(within(self.last_begin, repeat_ms) || is_paused || is_superfluous)
    }

    /// What a switch to it needs.
    pub(super) fn need(&self, app: &AppId) -> Need {
        /// Switches whose misses are thought to come again.
        const LAST: usize = 4;
        let records = self.records.iter().rev();
        // Of one to an application that is in memory there are none.
        let needed = |record: &&SwitchRecord| {
            record.void.is_none() && record.touched_pages() + record.missed_pages() > 0
        };
        let missed = records.filter(needed).take(LAST);
        Need {
            app: app.clone(),
            plan: Arc::clone(self.model.plan()),
            missed_pages: missed.map(SwitchRecord::missed_pages).max().unwrap_or(0),
        }
    }

    /// Whether a switch that demand faults began was none: see [`Void::Background`]. What is learned from is what a switch to
    /// the application uses, and its timers use little of that. What uses other pages, but as many, is a switch that the plan
    /// does not know yet; and what uses much of the plan may be small.
    pub(super) fn is_background(&self, record: &SwitchRecord) -> bool {
        const USED_MIN: f64 = 0.5;
        matches!(record.source, Source::Onset | Source::Unplanned)
            && record.used_share().is_none_or(|used| used < USED_MIN)
            && !self.is_switch_by_size(record.touched_pages())
    }

    /// Whether what touched so many pages was a switch: more than a quarter of what the largest of the last few touched.
    pub(super) fn is_switch_by_size(&self, pages: u64) -> bool {
        let largest = self.sizes.iter().max();
        pages > largest.map_or(0, |largest| largest / SIZE_RATIO)
    }

    /// Keeps what a switch did: who is in use, which onsets are believed and which file accesses are observed hangs on it.
    pub(super) fn keep(&mut self, record: SwitchRecord, collecting: &Collecting, params: &Params) {
        if record.void.is_none() {
            self.last_end = self.last_end.max(Some(collecting.ended));
            // What unplanned faults began was a switch from the first of them on.
            self.last_signal = self.last_signal.max(Some(collecting.switching.began));
            let planned = collecting.switching.plan.anon_pages();
            if record.touched_pages() > planned / SIZE_RATIO {
                if self.sizes.len() == SIZES_MAX {
                    self.sizes.pop_front();
                }
                self.sizes.push_back(record.touched_pages());
            }
        }
        self.false_onsets = match (record.void, record.source) {
            (Some(Void::Reclaimed | Void::Background), Source::Onset) => {
                self.false_onsets.saturating_add(1)
            }
            (None, Source::Onset) => 0,
            _ => self.false_onsets,
        };
        self.watch_files(&record, params);
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// Decides when file accesses are observed next. The paper's profile is of switches that are observed, each of them.
    fn watch_files(&mut self, record: &SwitchRecord, params: &Params) {
        let outcome = record.file.as_ref();
        let outcome = outcome.filter(|_| record.void.is_none() && record.mode.fetches());
        if let Some(outcome) = outcome {
            let is_profiling = params.file.file_candidates == FileCandidates::Offline
                && self.model.profile().files.profiled() < params.file.profile_switches;
            let interval_max = match is_profiling {
                true => 1,
                false => params.file.observe_interval_max,
            };
            self.file_watch.learn(outcome, interval_max);
        }
    }
}

/// Whether it is less than `ms` after `last`.
fn is_within(now: Nanos, last: Option<Nanos>, ms: u64) -> bool {
    let pause = ms.saturating_mul(NANOS_PER_MS);
    last.is_some_and(|last| now < last.saturating_add(pause))
}
