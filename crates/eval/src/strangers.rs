//! What the machine did while something was measured, and how much of it strangers did: all who take no part in it.

use crate::attempts::STRANGERS_LOAD;
use crate::circumstances::{CAPACITY, load, system_counters};
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
        let ms = |name: &str| system.get(name).copied().unwrap_or(0.0);
        // Not `busy_ms`: a tick charges all of its time to what it interrupts, which with work that keeps in step with the ticks,
        // as requests at a fixed rate, is always the same. When a processor is idle, a kernel without idle ticks knows exactly.
        let free_ms = ms("idle_ms") + ms("iowait_ms") + ms("steal_ms");
        let strangers_ms = (ms(CAPACITY) - free_ms - own_ms).max(0.0);
        system.insert(STRANGERS.into(), strangers_ms);
        system.insert("load".into(), before.load);
        system
    }
}

/// Why nothing is to be made of what was counted, where strangers used more than so many hundredths of the processors' time.
pub fn why_disturbed(system: &BTreeMap<String, f64>, percent_max: f64) -> Option<&'static str> {
    // Each of three numbers of /proc/stat is in hundredths of a second.
    const RESOLUTION_MS: f64 = 30.0;
    let most_ms = system[CAPACITY] * percent_max / 100.0 + RESOLUTION_MS;
    (system[STRANGERS] > most_ms).then_some(STRANGERS_LOAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_may_use_a_share_of_all_processors() {
        let why = |strangers_ms| {
            let system = [(STRANGERS, strangers_ms), (CAPACITY, 2_000.0)];
            let system = system.map(|(name, value)| (name.to_owned(), value));
            why_disturbed(&BTreeMap::from(system), 10.0)
        };
        assert_eq!(why(230.0), None);
        assert_eq!(why(231.0), Some(STRANGERS_LOAD));
    }

    #[test]
    fn who_takes_part_is_no_stranger() {
        let counted = |all: [(&str, f64); 5]| {
            let all = all.map(|(name, value)| (name.to_owned(), value));
            BTreeMap::from(all)
        };
        let counters = |capacity, busy, idle, iowait, steal| {
            counted([
                (CAPACITY, capacity),
                ("busy_ms", busy),
                ("idle_ms", idle),
                ("iowait_ms", iowait),
                ("steal_ms", steal),
            ])
        };
        let before = Moment {
            own_cpu_us: 5_000,
            counters: counters(100.0, 60.0, 20.0, 10.0, 0.0),
            load: 0.5,
        };
        let after = Moment {
            own_cpu_us: 45_000,
            counters: counters(300.0, 200.0, 90.0, 25.0, 5.0),
            load: 0.7,
        };
        // Of 200 ms 90 are idle, stolen or waiting, and 40 ours: whatever the ticks say.
        let mut expected = counters(200.0, 140.0, 70.0, 15.0, 5.0);
        expected.extend([(STRANGERS.to_owned(), 70.0), ("load".to_owned(), 0.5)]);
        assert_eq!(after.since(&before), expected);
    }
}
