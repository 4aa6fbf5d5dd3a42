//! Memory pressure: the kernel's trigger says when it begins, and its silence that it is over.
//!
//! Pressure stall information is the whole machine's, and counts every task that waits for memory: also where its control
//! group is at a limit of its own while the machine has memory to spare.

use prepage_core::machine::Nanos;
use prepage_kernel::psi;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Window of the trigger: without CAP_SYS_RESOURCE the kernel takes only multiples of 2 s.
const WINDOW_US: u64 = 2_000_000;

/// Silence after which pressure is over: the trigger fires once in a window while it lasts.
const SILENCE_NS: u64 = 2 * WINDOW_US * 1_000;

/// The kernel's trigger.
#[derive(Debug)]
pub struct Pressure {
    trigger: OwnedFd,
    /// What tasks have waited in all, since the machine's start, at the earliest pressure there can be, in us.
    total_us_min: u64,
    until: Option<Nanos>,
}

impl Pressure {
    /// Asks the kernel to say when some task waits for memory for `percent` of the time.
    ///
    /// # Errors
    /// Where the kernel has no pressure stall information, or refuses.
    pub fn watch(percent: u32) -> prepage_kernel::Result<Self> {
        let stall_us = WINDOW_US * u64::from(percent) / 100;
        Ok(Self {
            total_us_min: psi::waited_us()? + stall_us,
            trigger: psi::trigger(Path::new(psi::MEMORY), stall_us, WINDOW_US)?,
            until: None,
        })
    }

    /// Whether there is pressure.
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// The trigger fired. Returns whether pressure begins with it.
    pub fn fired(&mut self, now: Nanos) -> bool {
        // The first stall fires it, however short (see [`psi::trigger`]).
        if psi::waited_us().is_ok_and(|waited_us| waited_us < self.total_us_min) {
            return false;
        }
        self.until.replace(now.saturating_add(SILENCE_NS)).is_none()
    }

    /// Returns whether it is over now.
    pub fn is_over(&mut self, now: Nanos) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// When [`Pressure::is_over`] is to be asked; never while there is none.
    pub fn deadline(&self) -> Option<Nanos> {
        self.until
    }
}

impl AsFd for Pressure {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.trigger.as_fd()
    }
}
