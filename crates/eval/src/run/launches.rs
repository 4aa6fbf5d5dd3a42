//! Cold launches of an application, beside which its switches are seen (ASAP's Figure 1): measured before it is started for
//! these, and before prepage runs, so that they change nothing of what prepage learns.

use super::bench::Instance;
use super::observe::{Outcome, discarded};
use crate::apps::{App, READY_LIMIT_MS};
use crate::attempts::Attempts;
use crate::clock::now_ns;
use crate::display::session::{Places, Session};
use crate::error::{Error, Result};
use crate::group::{Group, GroupResidency, end_processes};
use crate::launch::cache::drop_all;
use crate::launch::held::{Circumstance, Held};
use crate::launch::picture::{Desk, Limits, Seen};
use crate::launch::programs::Window;
use crate::log::with_last_words_of_application;
use crate::pages;
use crate::processes::{Reading, Roles};
use crate::reclaim::{self, State};
use crate::record::{Line, Parameters, Slot, Switch};
use crate::strangers::{Moment, why_disturbed};
use crate::tiles::Tiles;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A picture that stays for so long is final, and no launch is watched for longer than an application may take to start.
const LIMITS: Limits = Limits {
    quiet_ms: 1_000,
    cap_ms: READY_LIMIT_MS,
};

/// Where applications are launched.
#[derive(Debug)]
pub struct Site<'a> {
    /// The directories.
    pub places: &'a Places,
    /// The session.
    pub session: &'a Session,
    /// Its group.
    pub session_group: &'a Group,
    /// Its display.
    pub desk: &'a mut Desk,
}

/// One application that is launched again and again.
struct Launched<'a> {
    app: &'a App,
    group: &'a Group,
    instance: Instance,
    /// The files that it maps and nobody else does.
    files: Vec<PathBuf>,
}

/// Launches an application once for each slot, and once before: a first launch makes what later ones find.
pub fn measure(
    site: &mut Site<'_>,
    parameters: &Parameters,
    app: &App,
    group: &Group,
    slots: &[Slot],
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    if slots.is_empty() {
        return Ok(lines);
    }
    eprintln!("launching {} ...", app.name);
    let mut launched = Launched {
        app,
        group,
        instance: Instance::make(app, "launched", parameters.seed, site.places)?,
        files: Vec::new(),
    };
    let first = launch(site, &launched, |group| {
        let pids = group.pids();
        let shared = pages::files_mapped_by_others(&pids)?;
        pages::mapped_files(&pids, &shared)
    })?;
    if let Some(cause) = first.seen.why_capped {
        let cause = with_last_words_of_application(cause, &log_of(&launched));
        return Err(Error::new("launch", app.name, cause));
    }
    launched.files = first.looked;
    for slot in slots {
        let mut attempts = Attempts::default();
        while let Some(attempt) = attempts.next() {
            let slot = Slot {
                attempt,
                ..slot.clone()
            };
            match measure_one(site, parameters, &launched, &slot)? {
                Ok(switch) => {
                    show(&switch);
                    lines.push(Line::Sample(switch));
                    break;
                }
                Err(discard) => {
                    attempts.discarded(&discard.reason);
                    lines.push(Line::Discarded(discard));
                }
            }
        }
    }
    Ok(lines)
}

fn show(switch: &Switch) {
    eprintln!(
        "{:>12} {:>16} first {:6.1} ms  settled {:6.1} ms",
        switch.slot.app,
        switch.slot.mode.word(),
        switch.t_first_frame_ns as f64 / 1e6,
        switch.t_settled_ns as f64 / 1e6,
    );
}

/// Drops the cache until next to nothing of the application's files is left, in bounded rounds. Looking reads inodes: the
/// cache is dropped again when the launch is held.
fn make_cold(launched: &Launched<'_>) -> Result<State> {
    let start = now_ns();
    let mut state = State::default();
    loop {
        drop_all()?;
        state.rounds += 1;
        state.cached_file_pages = pages::cached_pages_of(&launched.files);
        if reclaim::why_cached(&state).is_none() || state.rounds == reclaim::ROUNDS_MAX {
            state.reclaim_ns = now_ns() - start;
            return Ok(state);
        }
    }
}

fn measure_one(
    site: &mut Site<'_>,
    parameters: &Parameters,
    launched: &Launched<'_>,
    slot: &Slot,
) -> Result<Outcome> {
    let state = make_cold(launched)?;
    if let Some(reason) = reclaim::why_cached(&state) {
        return Ok(discarded(slot, reason, state));
    }
    let mut roles = Roles::default();
    let launch = launch(site, launched, |group| {
        let counters = roles.read(&group.pids());
        Ok(roles.difference(&Reading::new(), &counters))
    })?;
    if let Some(why) = why_disturbed(&launch.system, parameters.strangers_percent_max) {
        return Ok(discarded(slot, why, state));
    }
    if let Some(why) = launch.seen.why_over() {
        return Ok(discarded(slot, why, state));
    }
    let Seen {
        t_first_frame_ns,
        t_end_ns,
        frames,
        why_capped,
        is_over: _,
    } = launch.seen;
    Ok(Ok(Box::new(Switch {
        slot: slot.clone(),
        t0_monotonic_ns: launch.t0_ns,
        t_active_ns: 0,
        t_key_ns: 0,
        t_first_frame_ns: t_first_frame_ns.unwrap_or(t_end_ns),
        t_settled_ns: t_end_ns,
        t_end_ns: launch.watched_ns,
        capped: why_capped.is_some(),
        tiles: launch.before.count(),
        answer_tiles: 0,
        timeline: None,
        longest: None,
        frames,
        context: Vec::new(),
        state,
        processes: launch.looked,
        session: BTreeMap::new(),
        app_cpu_us: launch.app_cpu_us,
        service_cpu_us: 0,
        stalled_us: BTreeMap::new(),
        system: launch.system,
        group_after: launch.group_after,
        prepage: Vec::new(),
    })))
}

/// A launch that was watched, and what was looked at in the application before it was ended.
struct Watched<T> {
    t0_ns: u64,
    watched_ns: u64,
    before: Tiles,
    seen: Seen,
    app_cpu_us: u64,
    system: BTreeMap<String, f64>,
    group_after: GroupResidency,
    looked: T,
}

/// CPU times and machine-wide counters at one moment.
struct Counted {
    app_cpu_us: u64,
    moment: Moment,
}

impl Counted {
    fn read(site: &Site<'_>, group: &Group) -> Self {
        let app_cpu_us = group.cpu_us();
        Self {
            app_cpu_us,
            moment: Moment::read(app_cpu_us + site.session_group.cpu_us()),
        }
    }
}

/// The file of its messages.
fn log_of(launched: &Launched<'_>) -> PathBuf {
    launched.instance.own.join("log")
}

/// Launches the application out of nothing cached, watches it to its settled picture, looks at it and ends it.
fn launch<T>(
    site: &mut Site<'_>,
    launched: &Launched<'_>,
    look: impl FnOnce(&Group) -> Result<T>,
) -> Result<Watched<T>> {
    let Launched { app, group, .. } = *launched;
    let mut environment = site.session.environment(site.places);
    let own = app.environment.iter();
    environment.extend(own.map(|&(name, value)| (name.to_owned(), value.into())));
    environment.push(("HOME".into(), launched.instance.home.clone().into()));
    let held = Held::start(
        &launched.instance.command,
        Circumstance {
            procs: &group.procs_files(),
            environment: &environment,
            directory: &launched.instance.directory,
            log: &log_of(launched),
        },
    )?;
    let before = site.desk.before()?;
    drop_all()?;
    let counted = Counted::read(site, group);
    let running = held.release()?;
    let t0_ns = running.t0_ns;
    let window = Window {
        class: app.window_class,
        ready_title: app.ready_title,
    };
    let seen = site.desk.watch(window, t0_ns, &before, group, LIMITS)?;
    let watched_ns = now_ns() - t0_ns;
    let after = Counted::read(site, group);
    let group_after = group.residency();
    let looked = look(group);
    // Its status is taken once it has been ended with its group.
    let reaper = std::thread::spawn(move || running.reap());
    end_processes(std::slice::from_ref(&group.memory));
    let _ = reaper.join();
    Ok(Watched {
        t0_ns,
        watched_ns,
        before,
        seen,
        app_cpu_us: after.app_cpu_us.saturating_sub(counted.app_cpu_us),
        system: after.moment.since(&counted.moment),
        group_after,
        looked: looked?,
    })
}
