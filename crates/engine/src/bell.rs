//! What wakes a thread that polls: an eventfd.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable from its first ring until it is silenced.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// Where no descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// The descriptor, to be polled for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes it readable.
    pub fn ring(&self) {
        // It can only fail where 2^64 wakeups are pending.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn silence(&self) {
        // Not rung: nothing to silence.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}
