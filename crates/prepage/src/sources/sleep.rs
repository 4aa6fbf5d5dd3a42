//! The machine slept: while it is woken, the time of day jumps.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Result;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// The time of day at which the timer would expire, in seconds since 1970: never.
const NEVER_S: i64 = 1 << 40;

/// Two clocks are not read at once; no machine sleeps for less.
const ASLEEP_MIN_NS: i128 = 100_000_000;

/// Becomes readable when the time of day jumps (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET, 3.0): somebody has set it, or
/// the machine slept. Wakes nobody otherwise.
#[derive(Debug)]
pub struct Sleep {
    timer: OwnedFd,
    asleep_ns: i128,
}

impl Sleep {
    /// Begins to watch.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn watch() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let never = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: NEVER_S,
                tv_nsec: 0,
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &never)?;
        Ok(Self {
            timer,
            asleep_ns: asleep_ns(),
        })
    }

    /// Whether the machine has slept since the last call, and not only its time of day been set.
    pub fn was_asleep(&mut self) -> bool {
        // ECANCELED: that is what it says.
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        let before = std::mem::replace(&mut self.asleep_ns, asleep_ns());
        self.asleep_ns - before >= ASLEEP_MIN_NS
    }
}

impl AsFd for Sleep {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// How long the machine has slept since its start: CLOCK_MONOTONIC stands still then, and CLOCK_BOOTTIME goes on.
fn asleep_ns() -> i128 {
    let ns = |clock| {
        let time = clock_gettime(clock);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    ns(ClockId::Boottime) - ns(ClockId::Monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn nothing_is_reported_while_the_machine_is_awake() {
        let mut sleep = Sleep::watch().expect("a timer");
        let mut fds = [PollFd::new(&sleep, PollFlags::IN)];
        let soon = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        assert_eq!(poll(&mut fds, Some(&soon)), Ok(0));
        assert!(!sleep.was_asleep());
        sleep.asleep_ns -= 2 * ASLEEP_MIN_NS;
        assert!(sleep.was_asleep());
        assert!(!sleep.was_asleep(), "once");
    }
}
