//! Headroom ahead of a switch.
//!
//! Where memory is full, each page that a switch brings in pushes another one out first: the application, and those that fetch
//! for it, wait for reclaim, which costs more than to swap in. The kernel reclaims ahead of demand for the machine as a whole
//! (kswapd), by watermarks of some thousandths of memory, and not at all for a control group. So the kernel is asked to
//! reclaim while nobody waits (proactive reclaim): as much as the largest plan needs that may be next.

use crate::machine::Nanos;
use crate::params::ReclaimParams;

/// When headroom is looked after: a while after a switch, and then twice as late each time, since what took it then is the
/// application in use, which is not to be kept from it again and again. It ends where nothing happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    due: Option<Nanos>,
    pause_ms: u64,
}

impl Ahead {
    /// When it is due; `None` while a switch is under way, before the first [`Ahead::begin_anew`], and when nothing has happened
    /// for long.
    pub fn due(self) -> Option<Nanos> {
        self.due
    }

    /// A switch begins, or nothing is to be fetched from now on: nobody is to be stood in the way of.
    pub fn stop(&mut self) {
        self.due = None;
    }

    /// A switch is over, or pressure is, or pages are fetched from now on.
    pub fn begin_anew(&mut self, now: Nanos, params: &ReclaimParams) {
        self.pause_ms = params.after_ms;
        self.set_due(now, params);
    }

    /// Whether it is due now. If so, it is due again after twice the time, unless that is too long.
    pub fn takes_due(&mut self, now: Nanos, params: &ReclaimParams) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.pause_ms = self.pause_ms.saturating_mul(2);
            self.set_due(now, params);
        }
        is_due
    }

    fn set_due(&mut self, now: Nanos, params: &ReclaimParams) {
        let goes_on = params.ahead && self.pause_ms <= params.after_ms_max;
        let pause = self.pause_ms.saturating_mul(1_000_000);
        self.due = goes_on.then(|| now.saturating_add(pause));
    }
}

/// How many bytes each gives of those that it holds, in all so many, or all there are: who holds most gives first, until others hold
/// as much (max-min fairness). What is reclaimed from everybody alike, by age, comes from those in turn that were used longest ago,
/// and what is little is needed whole.
pub fn shares(held: &[u64], bytes: u64) -> Vec<u64> {
    let mut most_first = held.to_vec();
    most_first.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    let mut level = u64::MAX;
    for (others, &most) in most_first.iter().enumerate() {
        // Where those before this one are all brought down to what it holds.
        if sum >= bytes + most * others as u64 {
            break;
        }
        sum += most;
        level = sum.saturating_sub(bytes).div_ceil(others as u64 + 1);
    }
    held.iter()
        .map(|&held| held.saturating_sub(level))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Nanos = 1_000_000_000;

    fn dues(params: &ReclaimParams, looks: usize) -> Vec<Nanos> {
        let mut ahead = Ahead::default();
        ahead.begin_anew(0, params);
        let next = |_| {
            let due = ahead.due()?;
            assert!(!ahead.takes_due(due - 1, params) && ahead.takes_due(due, params));
            Some(due / SECOND)
        };
        (0..looks).filter_map(next).collect()
    }

    #[test]
    fn it_comes_twice_as_late_each_time_up_to_a_bound() {
        let params = ReclaimParams {
            after_ms: 1_000,
            after_ms_max: 5_000,
            ..ReclaimParams::default()
        };
        assert_eq!(dues(&params, 6), [1, 3, 7]);
    }

    #[test]
    fn it_never_comes_where_it_is_turned_off_or_a_switch_is_under_way() {
        let off = ReclaimParams {
            ahead: false,
            ..ReclaimParams::default()
        };
        assert_eq!(dues(&off, 1), []);
        let params = ReclaimParams::default();
        let mut ahead = Ahead::default();
        assert!(!ahead.takes_due(Nanos::MAX, &params));
        ahead.begin_anew(0, &params);
        ahead.stop();
        assert!(!ahead.takes_due(Nanos::MAX, &params));
    }

    /// From whom holds most, one by one.
    fn one_by_one(held: &[u64], bytes: u64) -> Vec<u64> {
        let mut left = held.to_vec();
        for _ in 0..bytes {
            let most = left.iter_mut().max().filter(|most| **most > 0);
            most.into_iter().for_each(|most| *most -= 1);
        }
        held.iter()
            .zip(left)
            .map(|(held, left)| held - left)
            .collect()
    }

    proptest! {
        #[test]
        fn who_holds_most_gives_first(
            held in prop::collection::vec(0u64..60, 0..8),
            bytes in 0u64..400,
        ) {
            let (shares, naive) = (shares(&held, bytes), one_by_one(&held, bytes));
            for (share, naive) in shares.iter().zip(&naive) {
                // Who holds as much as others gives what is not divided by all of them, or not.
                prop_assert!(share.abs_diff(*naive) <= 1, "{shares:?}, {naive:?}");
            }
            let (all, wanted) = (shares.iter().sum::<u64>(), naive.iter().sum::<u64>());
            prop_assert!(all <= wanted && all + held.len() as u64 > wanted || wanted == 0);
        }
    }

    #[test]
    fn a_switch_begins_it_anew() {
        let params = ReclaimParams::default();
        let mut ahead = Ahead::default();
        ahead.begin_anew(0, &params);
        while ahead.takes_due(Nanos::MAX, &params) {}
        assert_eq!(ahead.due(), None);
        ahead.begin_anew(7 * SECOND, &params);
        let after = params.after_ms * 1_000_000;
        assert_eq!(ahead.due(), Some(7 * SECOND + after));
    }
}
