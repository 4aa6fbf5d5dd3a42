//! epoll and the one timer, by what the descriptors stand for.

use prepage_core::machine::Nanos;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io::Result;

/// Most events taken at once.
const EVENTS_MAX: usize = 64;

const NOT_AT_ALL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What a descriptor stands for, in the order in which what happened at once is looked at: signals of a switch first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Token {
    /// A connection of the API.
    Connection(u32),
    /// Control groups.
    Groups,
    /// Programs that were executed.
    Execs,
    /// Demand faults.
    Faults,
    /// What the executor has to tell.
    Executor,
    /// Launches that are over.
    Launches,
    /// The main process of an application.
    Exit(u32),
    /// New connections.
    Listener,
    /// Memory pressure.
    Pressure,
    /// The timer.
    Timer,
    /// Signals of the kernel: terminate, reload.
    Signals,
    /// The machine slept.
    Sleep,
    /// Something happened to a core, or to another device.
    Cores,
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Connection(number) => u64::from(number),
            Self::Exit(number) => 1 << 32 | u64::from(number),
            Self::Groups => 2 << 32,
            Self::Faults => 3 << 32,
            Self::Executor => 4 << 32,
            Self::Listener => 5 << 32,
            Self::Pressure => 6 << 32,
            Self::Timer => 7 << 32,
            Self::Signals => 8 << 32,
            Self::Execs => 9 << 32,
            Self::Launches => 10 << 32,
            Self::Sleep => 11 << 32,
            Self::Cores => 12 << 32,
        }
    }

    fn decode(value: u64) -> Option<Self> {
        let number = (value & u64::from(u32::MAX)) as u32;
        Some(match value >> 32 {
            0 => Self::Connection(number),
            1 => Self::Exit(number),
            2 => Self::Groups,
            3 => Self::Faults,
            4 => Self::Executor,
            5 => Self::Listener,
            6 => Self::Pressure,
            7 => Self::Timer,
            8 => Self::Signals,
            9 => Self::Execs,
            10 => Self::Launches,
            11 => Self::Sleep,
            12 => Self::Cores,
            _ => return None,
        })
    }
}

/// epoll with a timer in it.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Option<Nanos>,
}

impl Poller {
    /// Nothing watched, the timer not armed.
    ///
    /// # Errors
    /// Where the kernel refuses the descriptors.
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let poller = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            armed: None,
        };
        poller.add(&poller.timer, Token::Timer, EventFlags::IN)?;
        Ok(poller)
    }

    /// Watches a descriptor, until it is closed.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn add(&self, fd: impl AsFd, token: Token, events: EventFlags) -> Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token.encode()),
            events,
        )?)
    }

    /// Watches it for something else.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn change(&self, fd: impl AsFd, token: Token, events: EventFlags) -> Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            fd,
            EventData::new_u64(token.encode()),
            events,
        )?)
    }

    /// Waits for something to happen, and then no longer than `deadline`, which shows as [`Token::Timer`]; not at all where there is
    /// something else to do.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn wait(&mut self, deadline: Option<Nanos>, is_busy: bool) -> Result<Vec<Token>> {
        self.arm(deadline)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            is_busy.then_some(&NOT_AT_ALL),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut tokens: Vec<Token> = events
            .iter()
            .filter_map(|event| Token::decode(event.data.u64()))
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        if tokens.contains(&Token::Timer) {
            // The count of expirations says nothing; reading it makes the timer silent again.
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
            self.armed = None;
        }
        Ok(tokens)
    }

    fn arm(&mut self, deadline: Option<Nanos>) -> Result<()> {
        if self.armed == deadline {
            return Ok(());
        }
        // Zero would disarm it; a time that has passed fires at once.
        let at = deadline.map_or(0, |at| at.max(1));
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (at % 1_000_000_000).cast_signed(),
        };
        let setting = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed = deadline;
        Ok(())
    }
}
