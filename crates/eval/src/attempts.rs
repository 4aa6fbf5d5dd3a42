//! How often one slot of a run is measured before the run goes on without it.

use crate::circumstances;
use crate::clock::sleep_ms;

/// Attempts that are discarded for what was measured.
const FAILED_MAX: u32 = 4;
/// Attempts in all: a stranger's load is nobody's fault and tried again more often.
const ATTEMPTS_MAX: u32 = 20;

/// The reason of a sample during which somebody else used the machine.
pub const STRANGERS_LOAD: &str = "a stranger's load";

/// The attempts at one slot.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    made: u32,
    failed: u32,
    made_max: u32,
}

impl Default for Attempts {
    fn default() -> Self {
        Self::at_most(ATTEMPTS_MAX)
    }
}

impl Attempts {
    /// So many in all, for whatever reason they are discarded.
    pub fn at_most(made_max: u32) -> Self {
        Self {
            made: 0,
            failed: 0,
            made_max,
        }
    }

    /// The number of the next attempt, from 0; `None` if there are to be no more.
    pub fn next(self) -> Option<u32> {
        (self.failed < FAILED_MAX && self.made < self.made_max).then_some(self.made)
    }

    /// Counts an attempt that was discarded for this reason. Where a stranger's load was it, the next one waits for a quiet
    /// machine.
    pub fn discarded(&mut self, reason: &str) {
        let is_strangers = reason.starts_with(STRANGERS_LOAD);
        self.made += 1;
        self.failed += u32::from(!is_strangers);
        if is_strangers && self.next().is_some() {
            wait_for_quiet_machine();
        }
    }
}

/// Waits, within bounds, until next to nobody uses the machine.
fn wait_for_quiet_machine() {
    const WINDOW_MS: u64 = 500;
    const BUSY_MS_MAX: f64 = 50.0;
    const WINDOWS_MAX: u32 = 120;
    let busy_ms = || circumstances::system_counters()["busy_ms"];
    for _ in 0..WINDOWS_MAX {
        let before = busy_ms();
        sleep_ms(WINDOW_MS);
        if busy_ms() - before <= BUSY_MS_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_numbered_and_end() {
        let mut attempts = Attempts::default();
        for number in 0..FAILED_MAX {
            assert_eq!(attempts.next(), Some(number));
            attempts.discarded("not cold: 99 pages cached");
        }
        assert_eq!(attempts.next(), None);
        let mut only = Attempts::at_most(1);
        only.discarded(STRANGERS_LOAD);
        assert_eq!(only.next(), None);
    }
}
