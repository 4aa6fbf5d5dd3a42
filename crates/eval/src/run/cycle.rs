//! One sample: use the application, leave it, take it out of memory, switch back to it.

use super::bench::{Bench, Running, group_becomes_idle};
use super::blocks::choices;
use super::observe::{Outcome, Prepared, discarded, observe};
use crate::circumstances::swap_devices;
use crate::clock::sleep_ms;
use crate::display::session::command_in;
use crate::error::{Context, Result};
use crate::pages;
use crate::reclaim::{self, State};
use crate::record::{Mode, Parameters, Setting, Slot};
use std::collections::HashSet;

/// Pages that may be out of memory before a resident sample.
const RESIDENT_TOLERANCE_PAGES: u64 = 256;
/// How long the person looks at the other application at least.
const AWAY_MS: u64 = 150;

/// Measures one switch.
pub fn measure(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    slot: &Slot,
) -> Result<Outcome> {
    match prepare(bench, running, parameters, slot)? {
        Ok(prepared) => observe(bench, running, parameters, slot, prepared),
        Err((reason, state)) => Ok(discarded(slot, &reason, state)),
    }
}

/// Uses the application, leaves it, takes it out of memory, and sets prepage's mode. A state that is not as it has to be
/// comes back with the reason.
fn prepare(
    bench: &mut Bench,
    running: &mut Running,
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
        bring_back(bench, running, parameters.setting)?;
    }
    let context = change_context(bench, running, parameters.seed, slot)?;
    let left = bench.screen.tiles()?;
    leave(bench, running, parameters.seed, slot)?;
    let state = match make_state(bench, running, parameters, slot)? {
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

/// Brings all of the application back. A process inside its group reads the files: the group is charged for their
/// pages, as for those that the application reads itself, and so loses them when it is reclaimed.
fn bring_back(bench: &Bench, running: &Running, setting: Setting) -> Result<()> {
    if let Some(others) = &bench.others {
        // Otherwise what is brought back would in part be pushed out again at once.
        others.group.reclaim_all();
    }
    let pids = running.group.pids();
    pages::bring_back(&pids)?;
    if setting == Setting::Pressure {
        // Whole files would not fit below the limit; what it uses of them comes with the use that follows.
        return Ok(());
    }
    let own = std::env::current_exe().context("find", "own executable")?;
    let files = pages::mapped_files(&pids, &HashSet::new())?;
    let mut reader = command_in(&running.group, &own.to_string_lossy())?;
    reader
        .arg("read-files")
        .args(files)
        .status()
        .context("read files of", running.app.name)?;
    Ok(())
}

/// The seeded script that uses the application. It is in the foreground when this begins and when it ends.
pub fn change_context(
    bench: &mut Bench,
    running: &Running,
    seed: u64,
    slot: &Slot,
) -> Result<Vec<String>> {
    const ACTIONS: usize = 2;
    const IDLE_LIMIT_MS: u64 = 3_000;
    let mut random = choices(seed, slot, "context");
    bench.display.activate_and_wait(running.window)?;
    let mut names = Vec::with_capacity(ACTIONS);
    for _ in 0..ACTIONS {
        let action = running.app.contexts[random.below(running.app.contexts.len())];
        bench.type_keys(action.keys)?;
        names.push(action.name.to_owned());
    }
    group_becomes_idle(&running.group, IDLE_LIMIT_MS);
    Ok(names)
}

fn leave(bench: &mut Bench, running: &Running, seed: u64, slot: &Slot) -> Result<()> {
    const IDLE_LIMIT_MS: u64 = 3_000;
    bench.display.activate_and_wait(bench.other.window)?;
    bench
        .other
        .draw(&bench.display, &mut choices(seed, slot, "other"))?;
    sleep_ms(AWAY_MS);
    group_becomes_idle(&running.group, IDLE_LIMIT_MS);
    Ok(())
}

/// Brings the application's memory into the state that the mode asks for and verifies it.
fn make_state(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    slot: &Slot,
) -> Result<std::result::Result<State, (String, State)>> {
    // Roles are read while that costs the application nothing.
    running.roles.read(&running.group.pids());
    if slot.mode.is_resident() {
        let state = reclaim::look(&running.group, bench.service_group())?;
        return Ok(if state.pages.swapped_private > RESIDENT_TOLERANCE_PAGES {
            Err(("pages swapped out before a resident sample".into(), state))
        } else {
            Ok(state)
        });
    }
    if bench.others.is_some() {
        let random = &mut choices(parameters.seed, slot, "others");
        return super::pressure::push_out(bench, running, random);
    }
    let state = reclaim::reclaim_all(&running.group, bench.service_group())?;
    Ok(match reclaim::why_not_out(&state) {
        Some(_) if swap_devices().is_empty() => Err(("swap was switched off".into(), state)),
        Some(reason) => Err((reason.into(), state)),
        None => Ok(state),
    })
}
