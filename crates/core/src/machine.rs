//! The state machine: events and times in, actions out.
//!
//! Nothing here does I/O or asks a clock. Whoever executes the actions is the only seam: the service's executor, a
//! scripted one in tests, nobody in the replay simulator.

mod action;
mod event;
mod switching;
mod tracked;

pub use action::{Action, Need};
pub use event::Event;

use crate::ahead::Ahead;
use crate::app::{AppModel, Observation, Profile};
use crate::identity::AppId;
use crate::outcome::{SwitchRecord, Void};
use crate::params::{Mode, Params};
use crate::signal::{EndCause, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use switching::{Collecting, Switching};
use tracked::Tracked;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

const NANOS_PER_MS: u64 = 1_000_000;

/// Most applications tracked.
pub const APPS_MAX: usize = 1024;

/// Records of past switches kept for each application.
pub const RECORDS_MAX: usize = 64;

/// Everything that is known and decided.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    params: Params,
    mode: Mode,
    under_pressure: bool,
    ahead: Ahead,
    apps: BTreeMap<AppId, Tracked>,
}

impl Machine {
    /// A machine that tracks nothing yet.
    pub fn new(params: Params, mode: Mode) -> Self {
        Self {
            params,
            mode,
            ..Self::default()
        }
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The applications tracked, with what is known of each.
    pub fn apps(&self) -> impl Iterator<Item = (&AppId, &AppModel)> {
        self.apps.iter().map(|(id, app)| (id, &app.model))
    }

    /// What is known of an application.
    pub fn app(&self, app: &AppId) -> Option<&AppModel> {
        self.apps.get(app).map(|tracked| &tracked.model)
    }

    /// The last switches of an application, oldest first, at most [`RECORDS_MAX`].
    pub fn records(&self, app: &AppId) -> impl DoubleEndedIterator<Item = &SwitchRecord> {
        self.apps
            .get(app)
            .into_iter()
            .flat_map(|t| t.records.iter())
    }

    /// For how many switches an application is left alone from now on; see [`crate::rest::Rest`].
    pub fn rest_left(&self, app: &AppId) -> u32 {
        self.apps.get(app).map_or(0, |tracked| tracked.rest.left())
    }

    /// Whether an application is being switched to.
    pub fn is_switching(&self, app: &AppId) -> bool {
        self.under_way(app).is_some()
    }

    /// Whether demand faults of an application may begin a switch now, or prove what they began to be one. Nobody needs to look
    /// into them where not.
    pub fn heeds_faults(&self, now: Nanos, app: &AppId) -> bool {
        let heeds = |tracked: &Tracked| {
            let mut sources = [Source::Onset, Source::Unplanned].into_iter();
            let params = &self.params.switch;
            sources.any(|s| tracked.heeds(now, tracked.believed(now, s, params), params))
        };
        self.mode != Mode::Off && self.apps.get(app).is_some_and(heeds)
    }

    /// The number of the switch to an application that is under way, and what began it.
    pub fn under_way(&self, app: &AppId) -> Option<(u64, Source)> {
        let switching = self.apps.get(app)?.switching.as_ref();
        switching.map(|switching| (switching.number, switching.source))
    }

    /// When the next [`Event::Tick`] is due: a switch ends, or headroom is to be looked after.
    pub fn deadline(&self) -> Option<Nanos> {
        let switching = self.apps.values().filter_map(|t| t.switching.as_ref());
        let ends = switching.map(|s| s.deadline(&self.params).0);
        ends.chain(self.ahead.due()).min()
    }

    /// Takes one event in, at time `now`. Events about applications that are not tracked do nothing.
    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        match event {
            Event::Tracked { app, profile } => self.track(now, app, *profile),
            Event::Untracked { app } => self.untrack(now, &app),
            Event::InstanceStarted { app, instance } => {
                if let Some(tracked) = self.apps.get_mut(&app) {
                    tracked.model.instance_started(instance);
                }
                Vec::new()
            }
            Event::InstanceEnded { app, instance } => {
                if let Some(tracked) = self.apps.get_mut(&app) {
                    tracked.model.instance_ended(instance);
                }
                Vec::new()
            }
            Event::Begin { app, source } => self.begin(now, &app, source),
            Event::End { app } => self.end(now, &app, EndCause::Explicit),
            Event::DemandFaults {
                app,
                count,
                last_at,
            } => {
                let Some(tracked) = self.apps.get_mut(&app) else {
                    return Vec::new();
                };
                let Some(switching) = &mut tracked.switching else {
                    return Vec::new();
                };
                let is_unplanned = switching.source == Source::Unplanned;
                let faults = switching.note_faults(count, last_at, &self.params.switch);
                if !is_unplanned || !tracked.is_switch_by_size(faults) {
                    return Vec::new();
                }
                self.ahead.stop();
                tracked.prove(now, &app, Source::Onset, self.mode)
            }
            Event::Fetched { app, switch } => {
                let switching = self.apps.get_mut(&app).and_then(|t| t.switching.as_mut());
                if let Some(switching) = switching.filter(|s| s.number == switch) {
                    switching.note_fetched(now);
                }
                Vec::new()
            }
            Event::Tick => self.tick(now),
            Event::Observed {
                app,
                switch,
                observation,
            } => self.observed(&app, switch, *observation),
            Event::FileChanged { app, file } => {
                if let Some(tracked) = self.apps.get_mut(&app) {
                    tracked.model.file_changed(&file, &self.params);
                }
                Vec::new()
            }
            Event::SetMode(mode) => {
                self.mode = mode;
                self.look_ahead(now);
                Vec::new()
            }
            Event::SetParams(params) => {
                self.params = *params;
                for tracked in self.apps.values_mut() {
                    tracked.model.set_params(&self.params);
                }
                self.look_ahead(now);
                Vec::new()
            }
            Event::Pressure { under_pressure } => {
                self.under_pressure = under_pressure;
                for tracked in self.apps.values_mut() {
                    tracked.model.set_pressure(under_pressure, &self.params);
                }
                if !under_pressure {
                    self.look_ahead(now);
                }
                Vec::new()
            }
        }
    }

    fn track(&mut self, now: Nanos, app: AppId, profile: Profile) -> Vec<Action> {
        if self.apps.len() < APPS_MAX && !self.apps.contains_key(&app) {
            let tracked = Tracked::new(profile, self.under_pressure, &self.params);
            self.apps.insert(app, tracked);
            self.look_ahead(now);
        }
        Vec::new()
    }

    fn untrack(&mut self, now: Nanos, app: &AppId) -> Vec<Action> {
        let Some(tracked) = self.apps.remove(app) else {
            return Vec::new();
        };
        let switching = tracked.switching.as_ref();
        let collect = switching.map(|s| s.collect(app, tracked.model.known()));
        self.look_ahead(now);
        collect.into_iter().collect()
    }

    fn begin(&mut self, now: Nanos, app: &AppId, source: Source) -> Vec<Action> {
        let Some(tracked) = self.apps.get_mut(app) else {
            return Vec::new();
        };
        let params = &self.params.switch;
        let source = tracked.believed(now, source, params);
        // Which application is in use is also said by a signal that begins no switch: to one whose switch is still under way
        // when one comes back to it.
        if source.is_announced() {
            (tracked.last_signal, tracked.last_announced) = (Some(now), Some(now));
        }
        if self.mode == Mode::Off || !tracked.heeds(now, source, params) {
            return Vec::new();
        }
        if source == Source::Onset {
            tracked.last_signal = Some(now);
        }
        let window = self.params.switch.onset_window_ms * NANOS_PER_MS;
        let is_same = |switching: &Switching| {
            let is_onset = source == Source::Onset || now < switching.began.saturating_add(window);
            switching.source == Source::Unplanned && is_onset
        };
        if tracked.switching.as_ref().is_some_and(is_same) {
            self.ahead.stop();
            return tracked.prove(now, app, source, self.mode);
        }
        let is_unplanned = source == Source::Unplanned;
        if !is_unplanned {
            tracked.last_begin = Some(now);
        }
        let is_left_alone = match is_unplanned {
            true => tracked.rest.left() > 0,
            false => tracked.rest.takes_one(),
        };
        if self.mode.fetches() && is_left_alone {
            // The faults to come are of this one, of which nobody sees the end.
            tracked.last_end = Some(now);
            return Vec::new();
        }
        let mut actions = self.end(now, app, EndCause::Superseded);
        let mode = match (is_unplanned, self.mode) {
            (true, mode) if mode.fetches() => Mode::Observe,
            (_, mode) => mode,
        };
        let Some(tracked) = self.apps.get_mut(app) else {
            return actions;
        };
        if let Some(collecting) = &mut tracked.collecting {
            collecting.superseded = true;
        }
        let number = tracked.next_number;
        tracked.next_number += 1;
        if !is_unplanned {
            self.ahead.stop();
        }
        // A switch that nothing is fetched for is there to be observed.
        let files = !mode.fetches() || tracked.file_watch.takes_one();
        let plan = Arc::clone(tracked.model.plan());
        let switching = Switching::begin(number, source, mode, plan, now);
        let switching = tracked.switching.insert(switching);
        actions.push(Action::Observe {
            app: app.clone(),
            switch: number,
            files,
            awaits_onset: is_unplanned,
        });
        actions.extend(switching.fetch(app));
        actions
    }

    fn end(&mut self, now: Nanos, app: &AppId, cause: EndCause) -> Vec<Action> {
        let Some(tracked) = self.apps.get_mut(app) else {
            return Vec::new();
        };
        let Some(switching) = tracked.switching.take() else {
            return Vec::new();
        };
        let collect = switching.collect(app, tracked.model.known());
        let is_switch = switching.source != Source::Unplanned;
        match is_switch {
            true => {
                tracked.last_end = Some(now);
                switching.tell(&mut tracked.rest, cause, &self.params);
            }
            false => tracked.last_unplanned_end = Some(now),
        }
        tracked.collecting = Some(Collecting {
            switching,
            ended: now,
            cause,
            superseded: false,
        });
        if is_switch {
            self.look_ahead(now);
        }
        vec![collect]
    }

    /// Has headroom looked after from now on, unless a switch is under way, nothing is fetched, or there is nobody to fetch for.
    /// What unplanned faults began is no switch here: there is no time in which no application does something in the background.
    fn look_ahead(&mut self, now: Nanos) {
        let mut under_way = self.apps.values().filter_map(|app| app.switching.as_ref());
        let is_switching = under_way.any(|switching| switching.source != Source::Unplanned);
        match self.mode.fetches() && !is_switching && !self.apps.is_empty() {
            true => self.ahead.begin_anew(now, &self.params.reclaim),
            false => self.ahead.stop(),
        }
    }

    fn reclaim(&self) -> Option<Action> {
        let helped = self.apps.iter().filter(|(_, app)| app.rest.left() == 0);
        let needs = helped.map(|(id, app)| app.need(id));
        let needs: Vec<_> = needs.filter(|need| need.plan.anon_pages() > 0).collect();
        (!needs.is_empty()).then(|| Action::Reclaim {
            needs,
            in_use: self.in_use(),
            mode: self.mode,
            params: self.params.reclaim.clone(),
        })
    }

    /// The application that was switched to last, and the one that was so by more than demand faults, which may be those of
    /// timers in the background. Which switch ended last says nothing: who goes on to another application leaves the demand of
    /// the one before behind, and that may last longer.
    fn in_use(&self) -> Vec<AppId> {
        let last = |signal: fn(&Tracked) -> Option<Nanos>| {
            let signals = self
                .apps
                .iter()
                .filter_map(|(id, app)| Some((signal(app)?, id)));
            signals.max().map(|(_, id)| id)
        };
        let both = [last(|app| app.last_signal), last(|app| app.last_announced)];
        let both: BTreeSet<&AppId> = both.into_iter().flatten().collect();
        both.into_iter().cloned().collect()
    }

    fn tick(&mut self, now: Nanos) -> Vec<Action> {
        let due: Vec<(AppId, EndCause)> = self
            .apps
            .iter()
            .filter_map(|(app, tracked)| {
                let (deadline, cause) = tracked.switching.as_ref()?.deadline(&self.params);
                (deadline <= now).then(|| (app.clone(), cause))
            })
            .collect();
        let mut actions: Vec<Action> = due
            .into_iter()
            .flat_map(|(app, cause)| self.end(now, &app, cause))
            .collect();
        if self.ahead.takes_due(now, &self.params.reclaim) {
            actions.extend(self.reclaim());
        }
        actions
    }

    fn observed(&mut self, app: &AppId, switch: u64, mut seen: Observation) -> Vec<Action> {
        let Some(tracked) = self.apps.get_mut(app) else {
            return Vec::new();
        };
        let is_awaited = |c: &mut Collecting| c.switching.number == switch;
        let Some(collecting) = tracked.collecting.take_if(is_awaited) else {
            return Vec::new();
        };
        if collecting.superseded {
            seen.void = Some(Void::Superseded);
        }
        let Switching { plan, mode, .. } = &collecting.switching;
        let mut record = collecting.record(&tracked.model, &seen);
        if record.void.is_none() && tracked.is_background(&record) {
            (record.void, seen.void) = (Some(Void::Background), Some(Void::Background));
        }
        if record.void == Some(Void::Reclaimed) && !record.source.is_announced() {
            // Whether it was a switch, such an observation does not tell.
            seen.void = Some(Void::Background);
        }
        tracked.keep(record, &collecting, &self.params);
        tracked.model.learn(&seen, &self.params);
        let mut actions = Vec::new();
        if mode.fetches_anon() {
            let cool = tracked.model.to_cool(plan, &seen, &self.params);
            actions.extend(
                cool.into_iter()
                    .map(|(instance, pages)| Action::Cool { instance, pages }),
            );
        }
        actions.push(Action::Store { app: app.clone() });
        actions
    }
}
