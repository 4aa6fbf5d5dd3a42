//! CPUs and the calling thread's place on them: affinity, policy, slice, timer slack.

use crate::clock::nanoseconds;
use crate::error::{Error, Result};
use crate::text;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::num::NonZeroU64;
use std::time::Duration;

/// The CPUs that are online.
pub fn online_cpus() -> Result<Vec<usize>> {
    cpus("/sys/devices/system/cpu/online")
}

/// The CPUs that there may be: online, offline, or to be plugged in.
pub fn possible_cpus() -> Result<Vec<usize>> {
    cpus("/sys/devices/system/cpu/possible")
}

fn cpus(path: &str) -> Result<Vec<usize>> {
    let list = text::read_line(path)?;
    text::parse_list(&list)
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| Error::malformed("parse", path, list))
}

/// The capacity of a CPU where the kernel gives none.
pub const CAPACITY_DEFAULT: u32 = 1024;

/// The online CPUs with their capacities: 1024 for the fastest, less for little cores (cpu_capacity, on arm64 and
/// others; from 6.12 on also on some x86). Machines without the file have equal CPUs: [`CAPACITY_DEFAULT`].
pub fn capacities() -> Result<Vec<(usize, u32)>> {
    let capacity = |cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        text::read_number(path).unwrap_or(CAPACITY_DEFAULT)
    };
    Ok(online_cpus()?
        .into_iter()
        .map(|cpu| (cpu, capacity(cpu)))
        .collect())
}

fn of_thread(operation: &'static str, error: rustix::io::Errno) -> Error {
    Error::new(operation, "the calling thread", error)
}

/// Binds the calling thread to these CPUs. `EINVAL` where none is online or allowed by the cpuset.
pub fn pin_current_thread(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(of_thread("sched_setaffinity", rustix::io::Errno::INVAL));
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|error| of_thread("sched_setaffinity", error))
}

/// A scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_OTHER.
    Other {
        /// -20 (most) to 19 (least). Raising it again needs CAP_SYS_NICE.
        nice: i32,
        /// The slice in us: a shorter one runs sooner and for less long. Honoured from 6.12 on, where the kernel clamps
        /// it to 100 us..100 ms; ignored before. `None` is the kernel's default.
        slice_us: Option<u64>,
    },
    /// SCHED_IDLE: only where nothing else wants to run; holds locks while preempted.
    Idle,
    /// SCHED_FIFO at the lowest real-time priority: no ordinary thread preempts it, so that it never waits with a lock
    /// held. It keeps its core until it sleeps. Needs CAP_SYS_NICE.
    RealTime,
}

/// struct sched_attr of linux/sched/types.h, SCHED_ATTR_SIZE_VER0 (3.14).
#[repr(C)]
#[derive(Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_IDLE: u32 = 5;

/// The lowest real-time priority.
const REAL_TIME_PRIORITY: u32 = 1;

/// Sets the calling thread's policy. `EPERM` for a lower nice value, or for real time, without CAP_SYS_NICE (for real
/// time also in a cgroup v1 `cpu` group without real-time runtime).
pub fn set_current_thread_policy(policy: Policy) -> Result<()> {
    let mut attributes = SchedAttributes {
        size: size_of::<SchedAttributes>() as u32,
        ..SchedAttributes::default()
    };
    match policy {
        Policy::Other { nice, slice_us } => {
            attributes.policy = SCHED_OTHER;
            attributes.nice = nice;
            attributes.runtime = slice_us.unwrap_or(0).saturating_mul(1000);
        }
        Policy::Idle => attributes.policy = SCHED_IDLE,
        Policy::RealTime => {
            attributes.policy = SCHED_FIFO;
            attributes.priority = REAL_TIME_PRIORITY;
        }
    }
    // SAFETY: `attributes` is a live sched_attr that states its own size; 0 is the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            0,
            std::ptr::from_ref(&attributes),
            0_u32,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(Error::last("sched_setattr", "the calling thread")),
    }
}

/// The calling thread's policy. The slice is `Some` only where this kernel has custom slices (6.12+).
pub fn current_thread_policy() -> Result<Policy> {
    let mut attributes = SchedAttributes::default();
    let size = size_of::<SchedAttributes>() as u32;
    // SAFETY: the kernel writes at most `size` bytes to the exclusively borrowed `attributes`; 0 is the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            std::ptr::from_mut(&mut attributes),
            size,
            0_u32,
        )
    };
    if result != 0 {
        return Err(Error::last("sched_getattr", "the calling thread"));
    }
    match attributes.policy {
        SCHED_IDLE => Ok(Policy::Idle),
        SCHED_FIFO => Ok(Policy::RealTime),
        _ => Ok(Policy::Other {
            nice: attributes.nice,
            slice_us: (attributes.runtime > 0).then_some(attributes.runtime / 1000),
        }),
    }
}

/// CPU time of the calling thread in ns, user and system.
pub fn thread_cpu_time_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(
        rustix::time::ClockId::ThreadCPUTime,
    ))
}

/// Sets by how much the kernel may delay the calling thread's timers (PR_SET_TIMERSLACK). The default is 50 us, which
/// makes a sleep of 20 us one of 70; 1 ns makes it near 20.
pub fn set_timer_slack_ns(slack_ns: NonZeroU64) -> Result<()> {
    rustix::thread::set_current_timer_slack(Some(slack_ns))
        .map_err(|error| of_thread("prctl(PR_SET_TIMERSLACK)", error))
}

/// Sleeps so many us, plus the timer slack.
pub fn sleep_us(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}
