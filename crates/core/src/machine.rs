//! The state machine: events and times in, actions out.
//!
//! Nothing here does I/O or asks a clock. Whoever executes the actions is the only seam: the service's executor, a
//! scripted one in tests, nobody in the replay simulator.

use crate::ahead::Ahead;
use crate::app::{AppModel, Known, Observation, Profile, anon_outcome, file_outcome};
use crate::extent::ExtentSet;
use crate::file_watch::FileWatch;
use crate::identity::{AppId, FileId, Instance};
use crate::outcome::{SwitchRecord, Void};
use crate::params::{FileCandidates, Mode, Params, ReclaimParams, SwitchParams};
use crate::plan::Plan;
use crate::rest::Rest;
use crate::signal::{EndCause, Source};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

const NANOS_PER_MS: u64 = 1_000_000;

/// Most applications tracked.
pub const APPS_MAX: usize = 1024;

/// Records of past switches kept for each application.
pub const RECORDS_MAX: usize = 64;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An application is to be followed; `profile` is what is known of it.
    Tracked {
        /// The application.
        app: AppId,
        /// What the store holds of it, empty where it holds nothing.
        profile: Box<Profile>,
    },
    /// An application is no longer to be followed.
    Untracked {
        /// The application.
        app: AppId,
    },
    /// One of its processes began, or began another program.
    InstanceStarted {
        /// The application.
        app: AppId,
        /// The process instance.
        instance: Instance,
    },
    /// One of its processes ended.
    InstanceEnded {
        /// The application.
        app: AppId,
        /// The process instance.
        instance: Instance,
    },
    /// The application is switched to.
    Begin {
        /// The application.
        app: AppId,
        /// Who says so.
        source: Source,
    },
    /// The switch is over.
    End {
        /// The application.
        app: AppId,
    },
    /// Demand faults were seen in a tracked application.
    DemandFaults {
        /// The application.
        app: AppId,
        /// Number since the last such event.
        count: u64,
        /// Time of the last of them.
        last_at: Nanos,
    },
    /// All that a switch's plan holds was fetched, as far as it could be.
    Fetched {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
    },
    /// Time has passed: the deadline that [`Machine::deadline`] gave has come.
    Tick,
    /// The executor has collected what a switch showed.
    Observed {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// What it showed.
        observation: Box<Observation>,
    },
    /// A file was found updated, replaced, truncated or gone.
    FileChanged {
        /// The application.
        app: AppId,
        /// The file, in the version that was known.
        file: FileId,
    },
    /// The mode is to change, for all applications.
    SetMode(
        /// The mode.
        Mode,
    ),
    /// Other parameters hold from now on: the next plans are made with them.
    SetParams(
        /// The parameters, within their ranges.
        Box<Params>,
    ),
    /// Memory pressure began or ended.
    Pressure {
        /// Whether there is pressure.
        under_pressure: bool,
    },
}

/// What a switch to an application needs memory for.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The application.
    pub app: AppId,
    /// What would be fetched of it, if it is out.
    pub plan: Arc<Plan>,
    /// Pages that came in beside the plan: the most of its last few switches.
    pub missed_pages: u64,
}

/// Something to do, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Begin to observe a switch.
    Observe {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// Whether its file accesses are asked for: see [`FileWatch`].
        files: bool,
        /// Whether the onset of a switch is waited for meanwhile: see [`Source::Unplanned`].
        awaits_onset: bool,
    },
    /// Fetch the plan's pages, of the kinds that the mode fetches, and answer with [`Event::Fetched`]. What is never
    /// answered lasts until the switch's cap.
    Fetch {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// What to fetch.
        plan: Arc<Plan>,
        /// Which kinds.
        mode: Mode,
        /// Whether something else than demand faults began the switch: somebody waits for it.
        is_announced: bool,
    },
    /// The switch is over: stop fetching, collect what it showed and answer with [`Event::Observed`].
    Collect {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// What was planned.
        plan: Arc<Plan>,
        /// The pages of the tables, whose use or disuse is asked for.
        known: Known,
    },
    /// Make pages cold again: they were mapped, and nothing vouches for their use.
    Cool {
        /// The process instance.
        instance: Instance,
        /// Virtual pages.
        pages: ExtentSet,
    },
    /// Have the kernel reclaim, where a memory limit above an application, or the machine, leaves less than what is out of its
    /// plan: see [`crate::ahead`]. A switch that begins ends it: [`Action::Observe`] does where no onset is awaited, and so does
    /// [`Action::Fetch`] for what was observed as unplanned faults so far.
    Reclaim {
        /// What those need that may be switched to next; all of it is in where an application is in use.
        needs: Vec<Need>,
        /// The applications that may be in use: the one switched to last, and the one last announced by more than its faults.
        in_use: Vec<AppId>,
        /// Which kinds of pages would be fetched.
        mode: Mode,
        /// How much, and when not.
        params: ReclaimParams,
    },
    /// Keep the application's profile.
    Store {
        /// The application.
        app: AppId,
    },
}

/// The time in which the onset is not believed, after one that was none, doubles at most so often: from 2 s to a minute.
const FALSE_ONSETS_MAX: u32 = 5;

#[derive(Clone, Debug)]
struct Switching {
    number: u64,
    source: Source,
    mode: Mode,
    plan: Arc<Plan>,
    began: Nanos,
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
struct Collecting {
    switching: Switching,
    ended: Nanos,
    cause: EndCause,
    superseded: bool,
}

#[derive(Clone, Debug, Default)]
struct Tracked {
    model: AppModel,
    next_number: u64,
    rest: Rest,
    file_watch: FileWatch,
    switching: Option<Switching>,
    collecting: Option<Collecting>,
    /// When something last said that it is switched to: see [`Machine::in_use`]. Unplanned faults say so only where they prove
    /// to be a switch, and planned ones where they are heeded.
    last_signal: Option<Nanos>,
    /// When something else than demand faults last did, whether a switch began by that or not.
    last_announced: Option<Nanos>,
    last_begin: Option<Nanos>,
    last_end: Option<Nanos>,
    /// Of those that faults began on pages that were not planned, and that need not have been switches: they count for nothing
    /// else here, except once they were found to be switches.
    last_unplanned_end: Option<Nanos>,
    /// Switches that the onset of planned faults began and that were none, or that reclaim undid, since one that was.
    false_onsets: u32,
    records: VecDeque<SwitchRecord>,
}

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

    /// For how many switches an application is left alone from now on; see [`Rest`].
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
                switching.note_faults(count, last_at, &self.params.switch);
                let is_unplanned = switching.source == Source::Unplanned;
                let faults = switching.faults;
                if !is_unplanned || !tracked.is_switch_by_size(faults) {
                    return Vec::new();
                }
                self.ahead.stop();
                tracked.prove(now, &app, Source::Onset, self.mode)
            }
            Event::Fetched { app, switch } => {
                let switching = self.apps.get_mut(&app).and_then(|t| t.switching.as_mut());
                if let Some(switching) = switching.filter(|s| s.number == switch) {
                    switching.fetched = Some(now);
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
            let next_number = profile.switches + 1;
            let mut model = AppModel::new(profile, &self.params);
            model.set_pressure(self.under_pressure, &self.params);
            let tracked = Tracked {
                model,
                next_number,
                ..Tracked::default()
            };
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
        let switching = tracked.switching.insert(Switching {
            number,
            source,
            mode,
            plan: Arc::clone(tracked.model.plan()),
            began: now,
            faults: 0,
            last_fault: now,
            few: 0,
            few_since: now,
            fetched: None,
        });
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
        let mut record = record_of(&tracked.model, &collecting, &seen);
        if record.void.is_none() && tracked.is_background(&record) {
            (record.void, seen.void) = (Some(Void::Background), Some(Void::Background));
        }
        if record.void.is_none() {
            tracked.last_end = tracked.last_end.max(Some(collecting.ended));
            // What unplanned faults began was a switch from the first of them on.
            tracked.last_signal = tracked.last_signal.max(Some(collecting.switching.began));
        }
        tracked.false_onsets = match (record.void, record.source) {
            (Some(Void::Reclaimed | Void::Background), Source::Onset) => {
                tracked.false_onsets.saturating_add(1)
            }
            (None, Source::Onset) => 0,
            _ => tracked.false_onsets,
        };
        tracked.watch_files(&record, &self.params);
        if tracked.records.len() == RECORDS_MAX {
            tracked.records.pop_front();
        }
        tracked.records.push_back(record);
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

impl Tracked {
    /// What a signal is taken for: planned faults are not believed to begin a switch for a while after others fetched in vain.
    fn believed(&self, now: Nanos, source: Source, params: &SwitchParams) -> Source {
        let doubled = 1 << self.false_onsets.min(FALSE_ONSETS_MAX);
        let doubt_ms = params.onset_pause_ms.saturating_mul(doubled);
        let doubts = self.false_onsets > 0 && is_within(now, self.last_end, doubt_ms);
        match source {
            Source::Onset if doubts => Source::Unplanned,
            source => source,
        }
    }

    /// What was observed as unplanned faults is a switch: what was seen of it counts, and its plan is fetched from now on.
    fn prove(&mut self, now: Nanos, app: &AppId, source: Source, mode: Mode) -> Vec<Action> {
        (self.last_begin, self.last_signal) = (Some(now), Some(now));
        let Some(switching) = &mut self.switching else {
            return Vec::new();
        };
        (switching.source, switching.mode) = (source, mode);
        switching.plan = Arc::clone(self.model.plan());
        switching.last_fault = now;
        (switching.few, switching.few_since) = (0, now);
        switching.fetch(app).into_iter().collect()
    }

    /// Whether this signal begins a switch, or says what one is that is under way.
    fn heeds(&self, now: Nanos, source: Source, params: &SwitchParams) -> bool {
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
    fn need(&self, app: &AppId) -> Need {
        /// Switches whose misses are thought to come again.
        const LAST: usize = 4;
        let missed = self.last_switches(LAST).map(SwitchRecord::missed_pages);
        Need {
            app: app.clone(),
            plan: Arc::clone(self.model.plan()),
            missed_pages: missed.max().unwrap_or(0),
        }
    }

    /// Its last switches that were observed to their end, at most `most`, newest first.
    fn last_switches(&self, most: usize) -> impl Iterator<Item = &SwitchRecord> {
        let records = self.records.iter().rev();
        records.filter(|record| record.void.is_none()).take(most)
    }

    /// Whether a switch that demand faults began was none: see [`Void::Background`]. What is learned from is what a switch to
    /// the application uses, and its timers use little of that. What uses other pages, but as many, is a switch that the plan
    /// does not know yet; and what uses much of the plan may be small.
    fn is_background(&self, record: &SwitchRecord) -> bool {
        const USED_MIN: f64 = 0.5;
        matches!(record.source, Source::Onset | Source::Unplanned)
            && record.used_share().is_none_or(|used| used < USED_MIN)
            && !self.is_switch_by_size(record.touched_pages())
    }

    /// Whether what touched so many pages was a switch: more than a quarter of what the largest of the last few touched.
    fn is_switch_by_size(&self, pages: u64) -> bool {
        const LAST: usize = 8;
        const SIZE_RATIO: u64 = 4;
        let largest = self.last_switches(LAST).map(SwitchRecord::touched_pages);
        pages > largest.max().unwrap_or(0) / SIZE_RATIO
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

fn record_of(model: &AppModel, collecting: &Collecting, seen: &Observation) -> SwitchRecord {
    let Switching { plan, mode, .. } = &collecting.switching;
    SwitchRecord {
        number: collecting.switching.number,
        mode: *mode,
        source: collecting.switching.source,
        end: collecting.cause,
        duration_ms: collecting.ended.saturating_sub(collecting.switching.began) / NANOS_PER_MS,
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

impl Switching {
    /// Takes in demand faults that were seen at one look, the last of them at `last_at`.
    fn note_faults(&mut self, count: u64, last_at: Nanos, params: &SwitchParams) {
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
    }

    /// Nothing, where its mode fetches nothing.
    fn fetch(&self, app: &AppId) -> Option<Action> {
        let Self { plan, mode, .. } = self;
        mode.fetches().then(|| Action::Fetch {
            app: app.clone(),
            switch: self.number,
            plan: Arc::clone(plan),
            mode: *mode,
            is_announced: self.source.is_announced(),
        })
    }

    fn collect(&self, app: &AppId, known: Known) -> Action {
        Action::Collect {
            app: app.clone(),
            switch: self.number,
            plan: Arc::clone(&self.plan),
            known,
        }
    }

    /// Tells `rest` how its demand ended. That of a switch that nothing was fetched for tells nothing.
    fn tell(&self, rest: &mut Rest, cause: EndCause, params: &Params) {
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
    fn deadline(&self, params: &Params) -> (Nanos, EndCause) {
        let quiet = self
            .last_fault
            .max(self.fetched.unwrap_or_default())
            .saturating_add(params.switch.quiet_ms.saturating_mul(NANOS_PER_MS));
        let cap = self
            .began
            .saturating_add(params.switch.cap_ms.saturating_mul(NANOS_PER_MS));
        match quiet < cap && !self.is_fetching() {
            true => (quiet, EndCause::Quiet),
            false => (cap, EndCause::Cap),
        }
    }
}
