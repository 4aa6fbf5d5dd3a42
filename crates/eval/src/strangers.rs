//! What the machine did while something was measured, and how much of it strangers did: all who take no part in it.

use crate::attempts::STRANGERS_LOAD;
use crate::circumstances::{load, system_counters};
use crate::clock::process_cpu_us;
use std::collections::BTreeMap;

/// In the counters of a sample: strangers' CPU time.
const STRANGERS: &str = "strangers_ms";

/// Machine-wide counters at one moment, and the CPU time of all who take part.
#[derive(Debug)]
pub struct Moment {
    own_cpu_us: u64,
    counters: BTreeMap<String, f64>,
    load: f64,
}

impl Moment {
    /// Reads them. This program takes part, and groups that have used so much CPU time.
    pub fn read(groups_cpu_us: u64) -> Self {
        Self {
            own_cpu_us: groups_cpu_us + process_cpu_us(),
            counters: system_counters(),
            load: load(),
        }
    }

    /// The differences since an earlier moment, what strangers used among them, and the load before.
    pub fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let since = |(name, now): (&String, &f64)| {
            let then = before.counters.get(name).unwrap_or(&0.0);
            (name.clone(), now - then)
        };
        let mut system: BTreeMap<String, f64> = self.counters.iter().map(since).collect();
        let own_ms = self.own_cpu_us.saturating_sub(before.own_cpu_us) as f64 / 1e3;
        let busy_ms = system.get("busy_ms").copied().unwrap_or(0.0);
        system.insert(STRANGERS.into(), (busy_ms - own_ms).max(0.0));
        system.insert("load".into(), before.load);
        system
    }
}

/// Why nothing is to be made of what was counted for so long on so many cores, where strangers used more of them than so many
/// hundredths.
pub fn why_disturbed(
    system: &BTreeMap<String, f64>,
    counted_ns: u64,
    cores: u64,
    percent_max: f64,
) -> Option<&'static str> {
    // /proc/stat counts in ticks of 10 ms on every processor: so much says nothing.
    const RESOLUTION_MS: f64 = 30.0;
    let window_ms = counted_ns as f64 / 1e6 * cores as f64;
    let most_ms = window_ms * percent_max / 100.0 + RESOLUTION_MS;
    (system[STRANGERS] > most_ms).then_some(STRANGERS_LOAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_may_use_a_share_of_all_processors() {
        let why = |strangers_ms| {
            let system = BTreeMap::from([(STRANGERS.to_owned(), strangers_ms)]);
            why_disturbed(&system, 1_000_000_000, 2, 10.0)
        };
        assert_eq!(why(230.0), None);
        assert_eq!(why(231.0), Some(STRANGERS_LOAD));
    }

    #[test]
    fn who_takes_part_is_no_stranger() {
        let moment = |own_cpu_us, busy_ms, load| Moment {
            own_cpu_us,
            counters: BTreeMap::from([("busy_ms".to_owned(), busy_ms)]),
            load,
        };
        let (before, after) = (moment(5_000, 100.0, 0.5), moment(45_000, 190.0, 0.7));
        let expected = [("busy_ms", 90.0), (STRANGERS, 50.0), ("load", 0.5)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(after.since(&before), BTreeMap::from(expected));
    }
}
