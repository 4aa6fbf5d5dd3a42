//! Whether somebody waits for memory.

use prepage_core::machine::Nanos;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::psi;
use std::time::Duration;

/// How long it is looked whether somebody waits for memory, before and while it is reclaimed.
const STALL_WINDOW: Duration = Duration::from_millis(100);

/// Whether tasks wait for memory, anywhere on the machine.
#[derive(Debug)]
pub struct Stalls {
    percent_max: u32,
    /// The last look: when, and microseconds waited since the machine's start. `None` where the kernel does not say.
    last: Option<(Nanos, u64)>,
    /// More was waited than is allowed, in some window since [`Stalls::watch`] began.
    were_many: bool,
}

impl Stalls {
    /// Allows so many percent of the time.
    pub fn new(percent_max: u32) -> Self {
        Self {
            percent_max,
            last: None,
            were_many: false,
        }
    }

    /// Looks for the length of one window. Returns whether more was waited in it than is allowed; never where the kernel does not
    /// say.
    pub fn watch(&mut self) -> bool {
        (self.last, self.were_many) = (waited(), false);
        std::thread::sleep(STALL_WINDOW);
        self.are_many()
    }

    /// Whether more was waited than is allowed, in a window since [`Stalls::watch`] began that is over.
    pub fn are_many(&mut self) -> bool {
        let window_ns = STALL_WINDOW.as_nanos() as Nanos;
        let is_over = |(at, _): (Nanos, u64)| monotonic_ns().saturating_sub(at) >= window_ns;
        if self.last.is_some_and(is_over) {
            self.note(waited());
        }
        self.were_many
    }

    /// A window is over.
    fn note(&mut self, now: Option<(Nanos, u64)>) {
        if let (Some((before_at, before_us)), Some((at, us))) = (self.last, now) {
            let past_us = at.saturating_sub(before_at) / 1_000;
            let stalled_us = us.saturating_sub(before_us);
            self.were_many |= stalled_us * 100 > past_us * u64::from(self.percent_max);
        }
        self.last = now;
    }
}

fn waited() -> Option<(Nanos, u64)> {
    let waited_us = psi::waited_us().ok()?;
    Some((monotonic_ns(), waited_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_of_many_stalls_is_enough() {
        let mut stalls = Stalls {
            percent_max: 10,
            last: Some((0, 5_000)),
            were_many: false,
        };
        let mut many_after = |now| {
            stalls.note(now);
            stalls.were_many
        };
        let ms = 1_000_000;
        assert!(!many_after(Some((100 * ms, 15_000))), "a tenth");
        assert!(many_after(Some((200 * ms, 25_001))));
        assert!(many_after(Some((300 * ms, 25_001))), "and then none");
        assert!(many_after(None));
    }
}
