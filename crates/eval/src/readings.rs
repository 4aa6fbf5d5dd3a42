//! Takes readings every few milliseconds while something is watched, in a thread of its own.

use crate::clock::now_ns;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// When readings are taken.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two readings.
    pub interval_ns: u64,
    /// At most so many are taken.
    pub readings_max: usize,
}

/// A thread that takes readings.
#[derive(Debug)]
pub struct Recorder<R> {
    thread: JoinHandle<Vec<R>>,
    /// Dropped to end it.
    stop: Sender<()>,
}

impl<R: Send + 'static> Recorder<R> {
    /// Takes the first reading at once, the others until it is ended, and the last one then, unless there are enough.
    pub fn start(pace: Pace, mut read: impl FnMut() -> R + Send + 'static) -> Self {
        let next_ns = now_ns() + pace.interval_ns;
        let first = read();
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || take(pace, next_ns, first, read, &stopped));
        Self { thread, stop }
    }

    /// Ends it. The readings, in order; none where the thread failed.
    pub fn finish(self) -> Vec<R> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn take<R>(
    pace: Pace,
    mut next_ns: u64,
    first: R,
    mut read: impl FnMut() -> R,
    stopped: &Receiver<()>,
) -> Vec<R> {
    let mut readings = vec![first];
    while readings.len() < pace.readings_max {
        let wait = Duration::from_nanos(next_ns.saturating_sub(now_ns()));
        let is_ended = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        let t_ns = now_ns();
        readings.push(read());
        if is_ended {
            break;
        }
        // One that was late, since all cores were busy, is not made up for.
        next_ns = (next_ns + pace.interval_ns).max(t_ns + pace.interval_ns / 2);
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::sleep_ms;

    const PACE: Pace = Pace {
        interval_ns: 2_000_000,
        readings_max: 5,
    };

    #[test]
    fn readings_follow_each_other_until_they_are_ended_or_enough() {
        let recorder = Recorder::start(PACE, now_ns);
        assert_eq!(recorder.finish().len(), 2, "at once, and when it is ended");
        let recorder = Recorder::start(PACE, now_ns);
        sleep_ms(200);
        let readings = recorder.finish();
        assert_eq!(readings.len(), PACE.readings_max);
        assert!(readings.is_sorted(), "{readings:?}");
    }
}
