//! How many launches prepage learns from before its help is measured.

use super::bench::{Bench, Learned};
use super::cache::SequencePages;
use super::profiles::Known;
use super::programs::Prepared;
use super::record::{Discarded, Learn, Line, Parameters, Slot};
use super::run::show;
use super::sample;
use super::scenario::Scenario;
use crate::error::Result;
use crate::record::Writer;
use prepage_core::launch::manager::{LaunchState, Phase, is_unclear};
use prepage_core::params::launch::LaunchParams;

/// Launches after which prepage must have decided for the first time.
const PROFILING_LAUNCHES_MAX: u32 = 6;

/// Launches a program until prepage knows what to do with it: helped, and held out on trial, as by default. The first launch,
/// which writes what later ones find (profiles, caches), is nobody's.
pub fn learn(
    bench: &mut Bench,
    parameters: &Parameters,
    program: Prepared,
    writer: &mut Writer,
) -> Result<Option<Learned>> {
    sample::warm_up(bench, parameters, &program)?;
    let is_cold = parameters.learn == Learn::Cold;
    let (mut known, mut learned) = (Known::default(), None);
    for block in 0..parameters.learning_max {
        let slot = learning_slot(&program, block, Scenario::Record);
        let mut launch = match sample::learn(bench, parameters, &program, &slot, is_cold)? {
            Ok(launch) => launch,
            Err(discarded) => {
                eprintln!("  left out: {}", discarded.reason);
                writer.write(&Line::DiscardedLaunch(discarded))?;
                return Ok(None);
            }
        };
        let mut state = LaunchState::default();
        if let Some((app, kept)) = bench.prepage.kept(&program.name)? {
            launch.known_pages = Some(kept.sequence.pages());
            learned = is_decided(&kept).then_some(app);
            state = kept;
        }
        show(&launch, true);
        writer.write(&Line::LearningLaunch(launch))?;
        let is_enough = is_enough(&state, is_cold, block + 1);
        match state.phase {
            Phase::Profiling => known.profiling = state,
            Phase::Prefetch => known.state = state,
            // The sequence is not kept: the last one says what the program reads.
            Phase::Generation | Phase::Off(_) => {}
        }
        if is_enough {
            break;
        }
    }
    if let Some(app) = learned {
        let pages = SequencePages::of(&known.state.sequence);
        return Ok(Some(Learned {
            program,
            app,
            known,
            pages,
        }));
    }
    let reason = format!("prepage does not learn it: {:?}", known.profiling.phase);
    eprintln!("  left out: {reason}");
    writer.write(&Line::DiscardedLaunch(Box::new(Discarded {
        slot: learning_slot(&program, PROFILING_LAUNCHES_MAX, Scenario::Record),
        reason,
        state: None,
    })))?;
    Ok(None)
}

/// Where the launch that is learned from stands in the record: `scenario` says who learns.
pub fn learning_slot(program: &Prepared, block: u32, scenario: Scenario) -> Slot {
    Slot {
        program: program.name.clone(),
        block,
        order: 0,
        scenario,
        attempt: 0,
    }
}

/// Whether nothing that is to be expected changes what prepage does for a program, of which it has kept this after so many
/// launches; or it does not come to a decision.
pub fn is_enough(state: &LaunchState, is_cold: bool, launches: u32) -> bool {
    match is_decided(state) {
        // Only cold launches show more.
        true => !is_cold || !is_open(state),
        false => launches >= PROFILING_LAUNCHES_MAX,
    }
}

/// Whether prepage helps, or leaves alone.
fn is_decided(state: &LaunchState) -> bool {
    matches!(state.phase, Phase::Prefetch | Phase::Off(_))
}

/// Whether cold launches are still to be learned from: help is on trial.
fn is_open(state: &LaunchState) -> bool {
    let parameters = LaunchParams::default();
    let is_helped = state.phase == Phase::Prefetch;
    is_helped && is_unclear(state, &parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::launch::manager::OffReason;

    #[test]
    fn what_is_on_trial_is_launched_on_and_what_is_left_alone_is_not() {
        let of = |phase, longest_us| LaunchState {
            phase,
            longest_us,
            ..LaunchState::default()
        };
        let off = of(Phase::Off(OffReason::TooSmall), 2_000);
        assert!(is_enough(&off, true, 2));
        // A short one is tried, a long one is not.
        assert!(!is_enough(&of(Phase::Prefetch, 20_000), true, 30));
        assert!(is_enough(&of(Phase::Prefetch, 1_000_000), true, 3));
        // A trial takes cold launches.
        assert!(is_enough(&of(Phase::Prefetch, 20_000), false, 3));
        let undecided = of(Phase::Profiling, 0);
        assert!(!is_enough(&undecided, true, PROFILING_LAUNCHES_MAX - 1));
        assert!(is_enough(&undecided, true, PROFILING_LAUNCHES_MAX));
    }
}
