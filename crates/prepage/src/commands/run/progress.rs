//! What is asked for and takes longer than a second says so on standard error, before the command runs.

use super::complain;
use prepage_kernel::process::{own_pid, threads};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What takes longer says so.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// How long a thread that has ended may still be listed.
const LISTED_MAX: Duration = Duration::from_millis(100);

/// Says a text once, when it is late enough.
#[derive(Debug)]
pub struct Progress {
    due: Instant,
    text: Option<&'static str>,
}

impl Progress {
    /// Of something that begins now.
    pub fn begin(text: Option<&'static str>) -> Self {
        let due = Instant::now() + SAID_AFTER;
        Self { due, text }
    }

    /// Until there is something to say.
    pub fn left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Says it, if it is due.
    pub fn look(&mut self) {
        if self.left().is_zero()
            && let Some(text) = self.text.take()
        {
            complain(text);
        }
    }
}

/// Does work that nobody can look at meanwhile, and says a text if it takes long.
pub fn during<T>(text: &'static str, work: impl FnOnce() -> T) -> T {
    let result = during_after(SAID_AFTER, || complain(text), work);
    // What is forked next must have one thread, which the kernel has to see.
    let until = Instant::now() + LISTED_MAX;
    while threads(own_pid()).is_ok_and(|threads| threads.len() > 1) && Instant::now() < until {
        std::thread::yield_now();
    }
    result
}

fn during_after<T>(after: Duration, say: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    let (working, done) = channel::<()>();
    std::thread::scope(|scope| {
        // Without a thread nothing is said.
        let sayer = std::thread::Builder::new().spawn_scoped(scope, move || {
            if done.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                say();
            }
        });
        let result = work();
        drop(working);
        if let Ok(sayer) = sayer {
            // A panic of it has been reported.
            let _ = sayer.join();
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_says_so_and_nothing_else_does() {
        let (said, hears) = channel();
        let say = || said.send(()).expect("heard");
        // Work that ends when it was said.
        let heard = during_after(Duration::ZERO, say, || hears.recv());
        assert_eq!(heard, Ok(()));
        let say = || said.send(()).expect("heard");
        assert_eq!(during_after(Duration::from_secs(3_600), say, || 7), 7);
        assert!(hears.try_recv().is_err());
    }
}
