//! The sign of life of a thread that may hang, for its watchdog.

use prepage_kernel::clock::monotonic_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When a thread last began a system call that may hang: a read of a region under userfaultfd, or of a file on a
/// file system that does not answer. 0 while it is idle.
#[derive(Debug, Default)]
pub struct Heart(AtomicU64);

impl Heart {
    /// The thread begins a call.
    pub fn beat(&self) {
        self.0.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// The thread is idle.
    pub fn rest(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the thread is idle.
    pub fn rests(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Whether the thread has been in one call for longer than `limit`.
    pub fn has_stopped(&self, limit: Duration) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(last));
        last != 0 && age > limit
    }
}
