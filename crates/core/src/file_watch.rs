//! In which switches file accesses are observed.
//!
//! To record them costs the application some tenths of a microsecond each, in the thread that faults or reads, and to learn
//! from them costs milliseconds of CPU after the switch. What an application uses of its files differs little from one
//! switch to the next once it is known; so it is looked at in one switch of several then, and in every one where what was
//! planned and what was used differ. That a file was updated says nothing: applications write files of their own all the
//! time. (Anonymous pages are observed in every switch: their use changes faster, and a demand fault is all that is recorded
//! of it.)

use crate::outcome::Outcome;

/// When an application's file accesses are observed next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileWatch {
    /// One switch of so many is observed.
    interval: u8,
    /// Switches until the next one.
    left: u8,
}

/// A plan foresaw a switch where so many of its pages were used for each one that was missed, or fetched for nothing.
const FORESEEN_MIN: u64 = 4;

impl FileWatch {
    /// A switch begins for which something is fetched. Returns whether its file accesses are to be observed.
    pub fn takes_one(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }

    /// What a switch showed for which something was fetched: where file pages were not, what the plan would have fetched.
    /// Of `interval_max` switches on end one is observed at least.
    pub fn learn(&mut self, outcome: &Outcome, interval_max: u8) {
        let (planned, demanded) = (outcome.holdout_precision, outcome.holdout_recall);
        let used = outcome.used + planned.hits;
        let unused = outcome.unused + planned.misses();
        let missed = outcome.missed + demanded.misses();
        if used + missed + unused == 0 {
            // It was in memory: nothing is known of what was planned.
            self.left = self.interval.saturating_sub(1);
            return;
        }
        let is_foreseen = used >= FORESEEN_MIN * (missed + unused);
        let longer = self.interval.saturating_mul(2);
        self.interval = if is_foreseen { longer } else { 1 }.clamp(1, interval_max.max(1));
        self.left = self.interval - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Share;

    fn outcome(used: u64, missed: u64, unused: u64) -> Outcome {
        Outcome {
            used,
            missed,
            unused,
            ..Outcome::default()
        }
    }

    /// Which of twelve switches with this outcome are observed.
    fn observed(watch: &mut FileWatch, outcome: &Outcome, interval_max: u8) -> Vec<u32> {
        let switches = 0..12;
        let is_observed = |_: &u32| {
            let takes_one = watch.takes_one();
            if takes_one {
                watch.learn(outcome, interval_max);
            }
            takes_one
        };
        switches.filter(is_observed).collect()
    }

    #[test]
    fn what_shows_nothing_changes_nothing() {
        let (foreseen, nothing) = (outcome(1_000, 50, 100), Outcome::default());
        let mut watch = FileWatch::default();
        assert_eq!(observed(&mut watch, &nothing, 4).len(), 12);
        // Every second one is observed then, and stays so.
        assert_eq!(observed(&mut watch, &foreseen, 2), [0, 1, 3, 5, 7, 9, 11]);
        assert_eq!(observed(&mut watch, &nothing, 4), [1, 3, 5, 7, 9, 11]);
    }

    #[test]
    fn what_is_foreseen_is_observed_ever_less_often() {
        let mut watch = FileWatch::default();
        let foreseen = outcome(1_000, 50, 100);
        assert_eq!(observed(&mut watch, &foreseen, 4), [0, 1, 3, 7, 11]);
        assert_eq!(
            observed(&mut FileWatch::default(), &foreseen, 1).len(),
            12,
            "an interval of one switch is every switch"
        );
    }

    #[test]
    fn what_would_have_been_fetched_counts_where_nothing_was() {
        let held_out = |hits, of, missed| Outcome {
            holdout_precision: Share { hits, of },
            holdout_recall: Share {
                hits,
                of: hits + missed,
            },
            ..Outcome::default()
        };
        let foreseen = observed(&mut FileWatch::default(), &held_out(1_000, 1_100, 50), 4);
        assert_eq!(foreseen, [0, 1, 3, 7, 11]);
        for surprise in [held_out(1_000, 1_300, 0), held_out(1_000, 1_000, 300)] {
            assert_eq!(observed(&mut FileWatch::default(), &surprise, 4).len(), 12);
        }
    }

    #[test]
    fn a_surprise_has_the_next_switch_observed() {
        for surprise in [outcome(1_000, 300, 0), outcome(1_000, 0, 300)] {
            let mut watch = FileWatch::default();
            observed(&mut watch, &outcome(1_000, 0, 0), 4);
            while !watch.takes_one() {}
            watch.learn(&surprise, 4);
            assert_eq!(observed(&mut watch, &surprise, 4).len(), 12);
        }
    }
}
