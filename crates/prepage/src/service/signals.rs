//! What the kernel's signals mean to the service.

use prepage_kernel::signals::SignalFd;
use rustix::process::Signal;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// SIGTERM, SIGINT.
    End,
    /// SIGHUP.
    Reload,
}

/// The signals that are taken in. Blocks them for this thread and those it creates: call it before any other.
///
/// # Errors
/// Where the kernel refuses.
pub fn open() -> prepage_kernel::Result<SignalFd> {
    SignalFd::block_and_open(&[
        Signal::TERM.as_raw(),
        Signal::INT.as_raw(),
        Signal::HUP.as_raw(),
    ])
}

/// What a signal's number means.
pub fn order(signal: i32) -> Option<Order> {
    match signal {
        s if s == Signal::HUP.as_raw() => Some(Order::Reload),
        s if s == Signal::TERM.as_raw() || s == Signal::INT.as_raw() => Some(Order::End),
        _ => None,
    }
}
