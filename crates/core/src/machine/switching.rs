//! A switch that is under way, or whose observation is being collected.

use super::{Action, NANOS_PER_MS, Nanos};
use crate::app::{AppModel, Known, Observation, anon_outcome, file_outcome};
use crate::identity::AppId;
use crate::outcome::SwitchRecord;
use crate::params::{Mode, Params, SwitchParams};
use crate::plan::Plan;
use crate::rest::Rest;
use crate::signal::{EndCause, Source};
use std::sync::Arc;

/// A switch that is under way.
#[derive(Clone, Debug)]
pub(super) struct Switching {
    pub(super) number: u64,
    pub(super) source: Source,
    pub(super) mode: Mode,
    pub(super) plan: Arc<Plan>,
    pub(super) began: Nanos,
    /// From when it may last as long as it may at most: its beginning, or when background activity turned out to be a switch.
    cap_from: Nanos,
    /// Demand faults since.
    faults: u64,
    /// When more than a few demand faults were last seen.
    last_fault: Nanos,
    /// Demand faults since `few_since` that are too few yet. They are counted over time, not by look: how often it is looked
    /// depends on what other switches are under way.
    few: u64,
    few_since: Nanos,
    /// When all of its plan was fetched.
    fetched: Option<Nanos>,
}

/// A switch that ended and whose observation is being collected.
#[derive(Clone, Debug)]
pub(super) struct Collecting {
    pub(super) switching: Switching,
    pub(super) ended: Nanos,
    pub(super) cause: EndCause,
    pub(super) superseded: bool,
}

impl Collecting {
    /// What it did, as its observation shows.
    pub(super) fn record(&self, model: &AppModel, seen: &Observation) -> SwitchRecord {
        let Switching { plan, mode, .. } = &self.switching;
        SwitchRecord {
            number: self.switching.number,
            mode: *mode,
            source: self.switching.source,
            end: self.cause,
            duration_ms: self.ended.saturating_sub(self.switching.began) / NANOS_PER_MS,
            void: seen.void,
            events_lost: seen.events_lost,
            unresolved: seen.unresolved,
            confidence: plan.confidence,
            anon: anon_outcome(model, plan, seen, !mode.fetches_anon()),
            file: seen
                .files_observed
                .then(|| file_outcome(plan, seen, !mode.fetches_files())),
            timing: seen.timing,
        }
    }
}

impl Switching {
    /// One that begins now.
    pub(super) fn begin(
        number: u64,
        source: Source,
        mode: Mode,
        plan: Arc<Plan>,
        now: Nanos,
    ) -> Self {
        Self {
            number,
            source,
            mode,
            plan,
            began: now,
            cap_from: now,
            faults: 0,
            last_fault: now,
            few: 0,
            few_since: now,
            fetched: None,
        }
    }

    /// It is a switch after all: `plan` is fetched from now on.
    pub(super) fn prove(&mut self, source: Source, mode: Mode, plan: Arc<Plan>, now: Nanos) {
        (self.source, self.mode, self.plan) = (source, mode, plan);
        (self.last_fault, self.cap_from) = (now, now);
        (self.few, self.few_since) = (0, now);
    }

    /// All of its plan was fetched.
    pub(super) fn note_fetched(&mut self, now: Nanos) {
        self.fetched = Some(now);
    }

    /// Takes in demand faults that were seen at one look, the last of them at `last_at`; how many there were since it began.
    pub(super) fn note_faults(&mut self, count: u64, last_at: Nanos, params: &SwitchParams) -> u64 {
        self.faults += count;
        let quiet = params.quiet_ms.saturating_mul(NANOS_PER_MS);
        if last_at.saturating_sub(self.few_since) > quiet {
            (self.few, self.few_since) = (0, last_at);
        }
        self.few += count;
        if self.few >= params.quiet_faults {
            self.last_fault = self.last_fault.max(last_at);
            (self.few, self.few_since) = (0, last_at);
        }
        self.faults
    }

    /// Nothing, where its mode fetches nothing.
    pub(super) fn fetch(&self, app: &AppId) -> Option<Action> {
        let Self { plan, mode, .. } = self;
        mode.fetches().then(|| Action::Fetch {
            app: app.clone(),
            switch: self.number,
            plan: Arc::clone(plan),
            mode: *mode,
            is_announced: self.source.is_announced(),
        })
    }

    pub(super) fn collect(&self, app: &AppId, known: Known) -> Action {
        Action::Collect {
            app: app.clone(),
            switch: self.number,
            plan: Arc::clone(&self.plan),
            known,
        }
    }

    /// Tells `rest` how its demand ended. That of a switch that nothing was fetched for tells nothing.
    pub(super) fn tell(&self, rest: &mut Rest, cause: EndCause, params: &Params) {
        let is_helped = self.mode.fetches_anon() && self.plan.anon_pages() > 0;
        match (cause, self.fetched.filter(|_| is_helped)) {
            (EndCause::Quiet, _) => rest.demand_ended(),
            (EndCause::Cap, Some(fetched)) => {
                let went_on_ms = self.last_fault.saturating_sub(fetched) / NANOS_PER_MS;
                if went_on_ms >= params.switch.endless_ms {
                    rest.demand_went_on(&params.switch);
                }
            }
            _ => {}
        }
    }

    /// Whether its plan is being fetched: nothing is quiet then, since the application's waits for pages in flight are no
    /// demand faults.
    fn is_fetching(&self) -> bool {
        self.mode.fetches() && self.fetched.is_none()
    }

    /// When it ends unless something happens, and why.
    pub(super) fn deadline(&self, params: &Params) -> (Nanos, EndCause) {
        let quiet = self
            .last_fault
            .max(self.fetched.unwrap_or_default())
            .saturating_add(params.switch.quiet_ms.saturating_mul(NANOS_PER_MS));
        let cap = self
            .cap_from
            .saturating_add(params.switch.cap_ms.saturating_mul(NANOS_PER_MS));
        match quiet < cap && !self.is_fetching() {
            true => (quiet, EndCause::Quiet),
            false => (cap, EndCause::Cap),
        }
    }
}
