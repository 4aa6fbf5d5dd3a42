//! The monotonic clock, on the base that prepage's own records use.

use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    prepage_kernel::clock::monotonic_ns()
}

/// CPU time of this process, in microseconds.
pub fn process_cpu_us() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1_000
}

/// Sleeps for so many milliseconds.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
