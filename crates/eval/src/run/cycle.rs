//! One sample: use the application, leave it, take it out of memory, switch back to it.

use super::bench::Bench;
use super::blocks::choices;
use super::watch::{Watched, watch};
use crate::circumstances::{load, swap_devices, system_counters};
use crate::clock::{now_ns, process_cpu_us, sleep_ms};
use crate::display::session::command_in;
use crate::error::{Context, Result};
use crate::group::Group;
use crate::pages;
use crate::processes::{ByRole, Reading};
use crate::reclaim::{self, State};
use crate::record::{Discarded, Mode, Parameters, Setting, Slot, Switch};
use crate::settle::{Settled, settle};
use crate::tiles::Tiles;
use std::collections::{BTreeMap, HashSet};

/// Pages that may be out of memory before a resident sample.
const RESIDENT_TOLERANCE_PAGES: u64 = 256;
/// How long the person looks at the other application at least.
const AWAY_MS: u64 = 150;

/// The reason of a sample during which somebody else used the machine.
pub const STRANGERS_LOAD: &str = "a stranger's load";

/// What became of a slot.
pub type Outcome = std::result::Result<Box<Switch>, Box<Discarded>>;

/// Measures one switch.
pub fn measure(bench: &mut Bench, parameters: &Parameters, slot: &Slot) -> Result<Outcome> {
    let discard = |reason: String, state: State| {
        Ok(Err(Box::new(Discarded {
            slot: slot.clone(),
            reason,
            state: Some(state),
        })))
    };
    let Prepared {
        context,
        left,
        state,
    } = match prepare(bench, parameters, slot)? {
        Ok(prepared) => prepared,
        Err((reason, state)) => return discard(reason, state),
    };
    let before = bench.screen.tiles()?;
    let counted = Counted::read(bench);
    let seen = watch(
        bench,
        &left,
        &counted.app,
        parameters.quiet_ms,
        parameters.cap_ms,
    )?;
    let difference = Counted::read(bench).since(&counted, bench);
    let settled = settle(&before, &seen.frames);
    if let Some(reason) = why_unusable(&seen, &difference, bench.cores, parameters) {
        return discard(reason.into(), state);
    }
    let prepage = match &mut bench.service {
        Some(service) => service.new_switches(slot.mode)?,
        None => Vec::new(),
    };
    let answer_tiles = seen
        .frames
        .last()
        .map_or(0, |last| last.tiles.differing(&left));
    let (t_first_frame_ns, t_settled_ns) = reached(&seen, &settled);
    Ok(Ok(Box::new(Switch {
        slot: slot.clone(),
        t0_monotonic_ns: seen.t0_ns,
        t_active_ns: seen.t_active_ns.unwrap_or_default(),
        t_key_ns: seen.t_key_ns.unwrap_or_default(),
        t_first_frame_ns,
        t_settled_ns,
        t_end_ns: seen.t_end_ns,
        capped: seen.capped,
        tiles: before.count(),
        answer_tiles,
        frames: settled.frames,
        context,
        state,
        processes: difference.processes,
        session: difference.session,
        app_cpu_us: difference.app_cpu_us,
        service_cpu_us: difference.service_cpu_us,
        stalled_us: difference.stalled_us,
        system: difference.system,
        group_after: bench.app_group.residency(),
        prepage,
    })))
}

/// An application that was used, left and taken out of memory.
struct Prepared {
    /// What was done in it.
    context: Vec<String>,
    /// Its picture when it was left.
    left: Tiles,
    /// The verified state.
    state: State,
}

/// Uses the application, leaves it, takes it out of memory, and sets prepage's mode. A state that is not as it has to be
/// comes back with the reason.
fn prepare(
    bench: &mut Bench,
    parameters: &Parameters,
    slot: &Slot,
) -> Result<std::result::Result<Prepared, (String, State)>> {
    if let Some(service) = &bench.service {
        // prepage is to rest while the application is used and taken out of memory: no real machine takes everything
        // out in a second, and prepage would bring back what background activity asks for.
        service.set_mode(Mode::Off)?;
    }
    // Under pressure every switch begins alike, with the application in memory and the others out: who was in before
    // must not depend on the mode before.
    if slot.mode.is_resident() || parameters.setting == Setting::Pressure {
        bring_back(bench, parameters.setting)?;
    }
    let context = change_context(bench, parameters.seed, slot)?;
    let left = bench.screen.tiles()?;
    leave(bench, parameters.seed, slot)?;
    let state = match make_state(bench, parameters, slot)? {
        Ok(state) => state,
        Err(unfit) => return Ok(Err(unfit)),
    };
    if let Some(service) = &mut bench.service {
        service.set_mode(slot.mode)?;
        service.forget_switches()?;
    }
    Ok(Ok(Prepared {
        context,
        left,
        state,
    }))
}

/// The times of the first frame and of the settled picture. What is not reached when the cap ends the watching took at
/// least so long.
fn reached(seen: &Watched, settled: &Settled) -> (u64, u64) {
    match (settled.t_first_frame_ns, settled.t_settled_ns) {
        (first, Some(stays)) if !seen.capped => (first.unwrap_or(stays), stays),
        (first, _) => (first.unwrap_or(seen.t_end_ns), seen.t_end_ns),
    }
}

/// Why a switch that was watched says nothing, if so. One that is merely slow is never discarded: that would favour
/// whatever made it slow.
fn why_unusable(
    seen: &Watched,
    difference: &Difference,
    cores: u64,
    parameters: &Parameters,
) -> Option<&'static str> {
    let window_ms = seen.t_end_ns as f64 / 1e6 * cores as f64;
    let strangers_ms_max = window_ms * parameters.strangers_percent_max / 100.0;
    if seen.t_active_ns.is_none() {
        Some("the window never became active")
    } else if difference.system["strangers_ms"] > strangers_ms_max {
        Some(STRANGERS_LOAD)
    } else {
        None
    }
}

/// Brings all of the application back. A process inside its group reads the files: the group is charged for their
/// pages, as for those that the application reads itself, and so loses them when it is reclaimed.
fn bring_back(bench: &Bench, setting: Setting) -> Result<()> {
    if let Some(others) = &bench.others {
        // Otherwise what is brought back would in part be pushed out again at once.
        others.group.reclaim_all();
    }
    let pids = bench.app_group.pids();
    pages::bring_back(&pids)?;
    if setting == Setting::Pressure {
        // Whole files would not fit below the limit; what it uses of them comes with the use that follows.
        return Ok(());
    }
    let own = std::env::current_exe().context("find", "own executable")?;
    let files = pages::mapped_files(&pids, &HashSet::new())?;
    let mut reader = command_in(&bench.app_group, &own.to_string_lossy())?;
    reader
        .arg("read-files")
        .args(files)
        .status()
        .context("read files of", bench.app.name)?;
    Ok(())
}

/// The seeded script that uses the application. It is in the foreground when this begins and when it ends.
fn change_context(bench: &mut Bench, seed: u64, slot: &Slot) -> Result<Vec<String>> {
    const ACTIONS: usize = 2;
    const IDLE_LIMIT_MS: u64 = 3_000;
    let mut random = choices(seed, slot, "context");
    bench.display.activate_and_wait(bench.window)?;
    let mut names = Vec::with_capacity(ACTIONS);
    for _ in 0..ACTIONS {
        let action = bench.app.contexts[random.below(bench.app.contexts.len())];
        bench.type_keys(action.keys)?;
        names.push(action.name.to_owned());
    }
    bench.wait_until_idle(IDLE_LIMIT_MS);
    Ok(names)
}

fn leave(bench: &mut Bench, seed: u64, slot: &Slot) -> Result<()> {
    const IDLE_LIMIT_MS: u64 = 3_000;
    bench.display.activate_and_wait(bench.other.window)?;
    bench
        .other
        .draw(&bench.display, &mut choices(seed, slot, "other"))?;
    sleep_ms(AWAY_MS);
    bench.wait_until_idle(IDLE_LIMIT_MS);
    Ok(())
}

/// Brings the application's memory into the state that the mode asks for and verifies it.
fn make_state(
    bench: &mut Bench,
    parameters: &Parameters,
    slot: &Slot,
) -> Result<std::result::Result<State, (String, State)>> {
    // Roles are read while that costs the application nothing.
    bench.roles.read(&bench.app_group.pids());
    if slot.mode.is_resident() {
        let state = reclaim::look(&bench.app_group, bench.service_group())?;
        return Ok(if state.pages.swapped_private > RESIDENT_TOLERANCE_PAGES {
            Err(("pages swapped out before a resident sample".into(), state))
        } else {
            Ok(state)
        });
    }
    match parameters.setting {
        Setting::Reclaimed => {
            let state = reclaim::reclaim_all(&bench.app_group, bench.service_group())?;
            Ok(match reclaim::why_not_out(&state) {
                Some(_) if swap_devices().is_empty() => {
                    Err(("swap was switched off".into(), state))
                }
                Some(reason) => Err((reason.into(), state)),
                None => Ok(state),
            })
        }
        Setting::Pressure => {
            super::pressure::push_out(bench, &mut choices(parameters.seed, slot, "others"))
        }
    }
}

/// Everything that is counted before and after.
struct Counted {
    app: Reading,
    session: Reading,
    app_cpu_us: u64,
    service_cpu_us: u64,
    /// Of everyone who takes part in the measurement, this program included.
    own_cpu_us: u64,
    stalled_us: BTreeMap<String, u64>,
    system: BTreeMap<String, f64>,
    load: f64,
}

/// The difference of two readings.
struct Difference {
    processes: ByRole,
    session: ByRole,
    app_cpu_us: u64,
    service_cpu_us: u64,
    stalled_us: BTreeMap<String, u64>,
    system: BTreeMap<String, f64>,
}

impl Counted {
    fn read(bench: &mut Bench) -> Self {
        let of = |group: Option<&Group>| group.map_or(0, Group::cpu_us);
        let (app_cpu_us, service_cpu_us) = (bench.app_group.cpu_us(), of(bench.service_group()));
        let others_cpu_us = of(bench.others.as_ref().map(|others| &others.group));
        let own_cpu_us = app_cpu_us
            + service_cpu_us
            + others_cpu_us
            + bench.session_group.cpu_us()
            + process_cpu_us();
        let stalled =
            |resource: &str| Some((resource.to_owned(), bench.app_group.stalled_us(resource)?));
        Self {
            app: bench.roles.read(&bench.app_group.pids()),
            session: bench.session_roles.read(&bench.session_group.pids()),
            app_cpu_us,
            service_cpu_us,
            own_cpu_us,
            stalled_us: ["cpu", "memory", "io"]
                .into_iter()
                .filter_map(stalled)
                .collect(),
            system: system_counters(),
            load: load(),
        }
    }

    fn since(&self, before: &Self, bench: &Bench) -> Difference {
        let mut system: BTreeMap<String, f64> = self
            .system
            .iter()
            .map(|(name, now)| (name.clone(), now - before.system.get(name).unwrap_or(&0.0)))
            .collect();
        system.insert("load".into(), before.load);
        let own_ms = self.own_cpu_us.saturating_sub(before.own_cpu_us) as f64 / 1e3;
        system.insert("strangers_ms".into(), (system["busy_ms"] - own_ms).max(0.0));
        let waited = |(name, now): (&String, &u64)| {
            let then = before.stalled_us.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        };
        Difference {
            processes: bench.roles.difference(&before.app, &self.app),
            session: bench
                .session_roles
                .difference(&before.session, &self.session),
            app_cpu_us: self.app_cpu_us.saturating_sub(before.app_cpu_us),
            service_cpu_us: self.service_cpu_us.saturating_sub(before.service_cpu_us),
            stalled_us: self.stalled_us.iter().map(waited).collect(),
            system,
        }
    }
}

/// How long one measured switch took in all, for the progress shown.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let start = now_ns();
    let result = work();
    (result, now_ns() - start)
}
