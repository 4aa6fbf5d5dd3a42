//! The sign of life of a thread that may hang, for its watchdog.

use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::process;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// When a thread last began a system call that may hang: a read of a region under userfaultfd, or of a file on a
/// file system that does not answer.
#[derive(Debug, Default)]
pub struct Heart {
    /// CLOCK_MONOTONIC; 0 while it is idle.
    last: AtomicU64,
    /// The thread's number; 0 until it says that it is its own.
    tid: AtomicI32,
}

impl Heart {
    /// It is the calling thread's.
    pub fn belong_here(&self) {
        self.tid.store(process::own_tid(), Ordering::Relaxed);
    }

    /// The thread begins a call.
    pub fn beat(&self) {
        self.last.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// The thread is idle.
    pub fn rest(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Whether the thread is idle.
    pub fn rests(&self) -> bool {
        self.last.load(Ordering::Relaxed) == 0
    }

    /// Whether the thread has been in one call for longer than `limit`, and waits there for something else than a processor.
    pub fn has_stopped(&self, limit: Duration) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(last));
        last != 0 && age > limit && !self.is_runnable()
    }

    /// Whether the thread runs, or would if others left it a processor, as they need not under SCHED_IDLE.
    fn is_runnable(&self) -> bool {
        let tid = self.tid.load(Ordering::Relaxed);
        tid != 0 && process::stat(tid).is_ok_and(|thread| thread.state == 'R')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn who_waits_for_a_processor_has_not_stopped() {
        let (heart, is_over) = (Arc::new(Heart::default()), Arc::new(AtomicBool::new(false)));
        let ((begun, has_begun), (end, ended)) = (channel(), channel::<()>());
        let limit = Duration::from_millis(1);
        let thread = thread::spawn({
            let (heart, is_over) = (Arc::clone(&heart), Arc::clone(&is_over));
            move || {
                heart.belong_here();
                heart.beat();
                begun.send(()).expect("it is waited for");
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                let _ = ended.recv();
            }
        });
        has_begun.recv().expect("it begins");
        thread::sleep(2 * limit);
        assert!(!heart.rests() && !heart.has_stopped(limit));
        is_over.store(true, Ordering::Relaxed);
        while !heart.has_stopped(limit) {
            thread::yield_now();
        }
        heart.rest();
        assert!(!heart.has_stopped(limit));
        drop(end);
        thread.join().expect("it ends");
    }
}
