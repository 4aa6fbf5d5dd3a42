//! How far a simulation is, on standard error, once a second at most.

use crate::clock::now_ns;
use std::sync::Mutex;

/// Between two lines.
const INTERVAL_NS: u64 = 1_000_000_000;

/// How many of the replays are done, by all threads together.
#[derive(Debug)]
pub struct Progress(Mutex<Done>);

#[derive(Debug)]
struct Done {
    done: usize,
    count: usize,
    start_ns: u64,
    said_ns: u64,
}

impl Progress {
    /// Of so many replays that begin now.
    pub fn of(count: usize) -> Self {
        Self(Mutex::new(Done::new(count, now_ns())))
    }

    /// One more is done.
    pub fn one_more(&self) {
        // A thread that panicked ends all with its panic.
        let Ok(mut done) = self.0.lock() else { return };
        if let Some(line) = done.one_more(now_ns()) {
            eprintln!("{line}");
        }
    }
}

impl Done {
    fn new(count: usize, now_ns: u64) -> Self {
        Self {
            done: 0,
            count,
            start_ns: now_ns,
            said_ns: now_ns,
        }
    }

    /// What there is to be said, if anything.
    fn one_more(&mut self, now_ns: u64) -> Option<String> {
        self.done += 1;
        if now_ns < self.said_ns + INTERVAL_NS {
            return None;
        }
        self.said_ns = now_ns;
        let Self { done, count, .. } = *self;
        let each_s = (now_ns - self.start_ns) as f64 / 1e9 / done as f64;
        let left_s = each_s * (count - done) as f64;
        Some(format!("      {done}/{count} replays, {left_s:.0} s left"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_says_how_much_is_left_and_what_is_short_says_nothing() {
        const START_NS: u64 = 7;
        let mut done = Done::new(8, START_NS);
        let lines: Vec<Option<String>> = (1..=8)
            .map(|i| done.one_more(START_NS + i * 400_000_000))
            .collect();
        let said: Vec<usize> = (0..8).filter(|&i| lines[i].is_some()).collect();
        assert_eq!(said, [2, 5]);
        assert_eq!(lines[2].as_deref(), Some("      3/8 replays, 2 s left"));
    }
}
