//! The setting together: every application runs at once below one limit, and a person goes from one to the next. What is
//! out of memory when its turn comes is what using the others has pushed out.

use super::bench::{Bench, Left, Running};
use super::cycle::{change_context, enter_mode};
use super::observe::{Outcome, Prepared, observe};
use crate::error::Result;
use crate::reclaim;
use crate::record::{Parameters, Slot};

/// Switches to an application from the one before, then uses it, as the slot says that it has `next`: the context of a
/// switch is that of its own slot, whatever was gone through before. prepage stays in the slot's mode throughout.
pub fn measure(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    slot: &Slot,
    next: &Slot,
) -> Result<Outcome> {
    let Left { picture, context } = match running.left.take() {
        Some(left) => left,
        None => use_it(bench, running, parameters.seed, slot)?,
    };
    if bench.display.active()? == running.window {
        // One sequence ended with it, and the next begins with it.
        bench.display.activate_and_wait(bench.other.window)?;
    }
    enter_mode(bench, parameters.setting, slot.mode)?;
    let prepared = Prepared {
        context,
        left: picture,
        state: reclaim::look(&running.group, bench.service_group())?,
    };
    let outcome = observe(bench, running, parameters, slot, prepared)?;
    running.left = Some(use_it(bench, running, parameters.seed, next)?);
    Ok(outcome)
}

/// Changes the application's context to that of a slot; it is left as it then is.
fn use_it(bench: &mut Bench, running: &mut Running, seed: u64, slot: &Slot) -> Result<Left> {
    let context = change_context(bench, running, seed, slot)?;
    // Roles are read while that costs the application nothing.
    running.roles.read(&running.group.pids());
    Ok(Left {
        picture: bench.screen.tiles()?,
        context,
    })
}
