//! CLOCK_MONOTONIC, the clock of every time in this crate, the perf samples included; and the time of day.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// The time of day, in nanoseconds since 1970; 0 before.
pub fn wall_ns() -> i64 {
    let now = nanoseconds(clock_gettime(ClockId::Realtime));
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// A kernel time as nanoseconds; a negative one, which these clocks never give, as 0.
pub(crate) fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
