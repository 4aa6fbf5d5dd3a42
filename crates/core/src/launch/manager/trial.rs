//! Whether help helps: launches that were helped beside launches that were held out.

use super::{Help, LaunchState, Learned, Measured, OffReason, switch_off};
use crate::params::launch::{LaunchParams, TIMES_MAX};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The last launch times, in microseconds; at most [`TIMES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    us: VecDeque<u64>,
}

impl Times {
    /// Number of them.
    pub fn len(&self) -> usize {
        self.us.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.us.is_empty()
    }

    /// Their median, in microseconds: of an even number the upper one.
    pub fn median_us(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.us.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    fn push(&mut self, us: u64) {
        if self.us.len() == TIMES_MAX {
            self.us.pop_front();
        }
        self.us.push_back(us);
    }
}

/// Whether it is to be found out yet if help helps. Only of short launches: what help costs is little beside a longer one. Of
/// those that end idle and of no known length, no trial would tell, nor where no launch is held out.
pub fn is_unclear(state: &LaunchState, params: &LaunchParams) -> bool {
    let has_length = state.longest_us > 0 || !state.ends_idle;
    params.holdout_every > 0
        && has_length
        && state.longest_us < params.trial_launch_us
        && state.held_out.len() < params.trial_samples
        && verdict(state, params).is_none()
}

/// Whether it is unclear yet if help helps, and fewer launches were held out than helped. Never two in a row: of one that was
/// not cold, as far as is known, nothing is learned.
pub(super) fn is_on_trial(state: &LaunchState, params: &LaunchParams) -> bool {
    let was_helped = state.n_held_out > 1;
    was_helped && state.held_out.len() < state.helped.len() && is_unclear(state, params)
}

/// Compares helped launches with those held out. Only cold ones of a known length count: where everything was in memory there
/// was nothing to help. Where launches do not tell for long, the medians decide, once: after that it takes more to change what was
/// decided, so that chance does not.
pub(super) fn compare(
    state: &mut LaunchState,
    measured: &Measured,
    params: &LaunchParams,
) -> Option<Learned> {
    let launch_us = measured.launch_us.filter(|_| state.was_cold)?;
    let is_trial_over = match measured.help {
        Help::Helped => {
            state.helped.push(launch_us);
            false
        }
        Help::HeldOut => {
            state.held_out.push(launch_us);
            if is_unclear(state, params) && is_short(launch_us, params) {
                return Some(switch_off(state, OffReason::TooSmall, params));
            }
            if is_beyond_help(state, launch_us, measured.help_us, params) {
                return Some(switch_off(state, OffReason::NotHelping, params));
            }
            state.held_out.len() == params.trial_samples
        }
        Help::None => return None,
    };
    match verdict(state, params) {
        Some(Verdict::Helps) => state.retry_launches = 0,
        Some(Verdict::HelpsNot) => return Some(switch_off(state, OffReason::NotHelping, params)),
        None if is_trial_over => {
            let (helped, held_out) = (state.helped.median_us()?, state.held_out.median_us()?);
            if helped as f64 > gains_below(held_out, params) {
                return Some(switch_off(state, OffReason::NotHelping, params));
            }
        }
        None => {}
    }
    None
}

/// Whether a cold launch that was held out on trial was so short that help takes as long as it can gain: a helped launch is
/// no shorter than a warm one. Where none was warm, nobody knows.
fn is_beyond_help(
    state: &LaunchState,
    launch_us: u64,
    help_us: u64,
    params: &LaunchParams,
) -> bool {
    let Some(warm_us) = state.warm_us.filter(|_| help_us > 0) else {
        return false;
    };
    let least_us = warm_us.saturating_add(help_us) as f64;
    least_us > gains_below(launch_us, params) && is_unclear(state, params)
}

/// A launch that takes this or less, in microseconds, gains `gain_min` over one that was held out.
fn gains_below(held_out_us: u64, params: &LaunchParams) -> f64 {
    held_out_us as f64 * f64::from(1.0 - params.gain_min)
}

/// What helped launches and those held out say together.
enum Verdict {
    /// They are shorter by more than `gain_min`.
    Helps,
    /// They are not.
    HelpsNot,
}

/// How far from even the number of pairs must be that say the same, in standard deviations of pairs that say nothing:
/// eight of nine, 14 of 16, 47 of 64.
const EVIDENCE: f64 = 1.5;

/// Compares each helped launch with each that was held out (Mann and Whitney's test, Annals of Mathematical Statistics 18,
/// 1947): one disturbed launch turns no verdict. `None` as long as they are few or do not agree.
fn verdict(state: &LaunchState, params: &LaunchParams) -> Option<Verdict> {
    let (helped, held_out) = (&state.helped.us, &state.held_out.us);
    if helped.len().min(held_out.len()) < params.samples_min {
        return None;
    }
    let bounds = held_out.iter().map(|&us| gains_below(us, params));
    let shorter: usize = bounds
        .map(|bound| helped.iter().filter(|&&us| us as f64 <= bound).count())
        .sum();
    let pairs = (helped.len() * held_out.len()) as f64;
    let deviation = (pairs * (helped.len() + held_out.len() + 1) as f64 / 12.0).sqrt();
    match (shorter as f64 - pairs / 2.0) / deviation {
        excess if excess >= EVIDENCE => Some(Verdict::Helps),
        excess if excess <= -EVIDENCE => Some(Verdict::HelpsNot),
        _ => None,
    }
}

/// Whether a cold launch of this length, if it is known, is too short to gain anything.
pub(super) fn is_short(cold_us: u64, params: &LaunchParams) -> bool {
    (1..params.launch_us_min).contains(&cold_us)
}
