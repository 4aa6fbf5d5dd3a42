//! One sample: use the application, leave it, take it out of memory, switch back to it.

use super::bench::{Bench, Running, group_becomes_idle};
use super::blocks::choices;
use super::observe::{Outcome, Prepared, discarded, observe};
use crate::clock::sleep_ms;
use crate::error::Result;
use crate::pages;
use crate::reclaim::{self, Memory, State};
use crate::record::{Mode, Parameters, Setting, Slot};

/// How long the person looks at the other application at least.
const AWAY_MS: u64 = 150;

/// The same, in every mode of a run, where one has nothing but demand faults to tell of a switch: within
/// `switch.onset_pause_ms` after the last, they tell of none. People stay away for longer, and reclaim takes longer.
const AWAY_UNTOLD_MS: u64 = 2_500;

/// How long a person stays with an application at least, where memory is short: what is done while nobody waits (prepage
/// reclaims ahead, a second after a switch) has the time that it has in practice.
const STAY_MS: u64 = 2_500;

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
    if let Some(service) = &mut bench.service {
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
    leave(bench, running, parameters, slot)?;
    let state = match make_state(bench, running, parameters, slot)? {
        Ok(state) => state,
        Err(unfit) => return Ok(Err(unfit)),
    };
    enter_mode(bench, parameters.setting, slot.mode)?;
    Ok(Ok(Prepared {
        context,
        left,
        state,
    }))
}

fn bring_back(bench: &Bench, running: &Running, setting: Setting) -> Result<()> {
    if let Some(others) = &bench.others {
        // Otherwise what is brought back would in part be pushed out again at once.
        others.group.reclaim_all();
    }
    match setting {
        // Whole files would not fit below the limit; what it uses of them comes with the use that follows.
        Setting::Pressure => pages::bring_back(&running.group.pids()),
        Setting::Reclaimed | Setting::Together => reclaim::bring_back(&running.group),
    }
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
    bench.activate(running)?;
    let mut names = Vec::with_capacity(ACTIONS);
    for _ in 0..ACTIONS {
        let action = running.app.contexts[random.below(running.app.contexts.len())];
        bench.type_keys(action.keys)?;
        names.push(action.name.to_owned());
    }
    group_becomes_idle(&running.group, IDLE_LIMIT_MS);
    Ok(names)
}

/// Sets prepage's mode for the switch that comes next, and lets the time pass for which a person stays with an application.
pub fn enter_mode(bench: &mut Bench, setting: Setting, mode: Mode) -> Result<()> {
    if let Some(service) = &mut bench.service {
        service.set_mode(mode)?;
    }
    match setting {
        // Nobody needs room, and what was taken out is not to come back by itself.
        Setting::Reclaimed => {}
        Setting::Pressure | Setting::Together => sleep_ms(STAY_MS),
    }
    if let Some(service) = &mut bench.service {
        service.forget_switches()?;
    }
    Ok(())
}

fn leave(bench: &mut Bench, running: &Running, parameters: &Parameters, slot: &Slot) -> Result<()> {
    const IDLE_LIMIT_MS: u64 = 3_000;
    let is_told = |mode: &Mode| mode.is_told_of_focus();
    bench.display.activate_and_wait(bench.other.window)?;
    bench
        .other
        .draw(&bench.display, &mut choices(parameters.seed, slot, "other"))?;
    sleep_ms(match parameters.modes.iter().all(is_told) {
        true => AWAY_MS,
        false => AWAY_UNTOLD_MS,
    });
    group_becomes_idle(&running.group, IDLE_LIMIT_MS);
    // What is seen beside a window that does not fill the screen is to be what was there when the application was left.
    bench.other.clear(&bench.display)
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
    if bench.others.is_some() && !slot.mode.is_resident() {
        let random = &mut choices(parameters.seed, slot, "others");
        return super::pressure::push_out(bench, running, random);
    }
    let service = bench.service_group();
    let memory = match slot.mode {
        mode if mode.is_resident() => Memory::Resident,
        Mode::FilesDropped => Memory::FilesDropped,
        _ => Memory::Out,
    };
    let (state, unfit) = reclaim::make_state(&running.group, service, memory)?;
    Ok(match unfit {
        Some(reason) => Err((reason.into(), state)),
        None => Ok(state),
    })
}
