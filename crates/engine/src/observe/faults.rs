//! Demand faults of all processes: the paper's fault logging (ASAP section 4), without a kernel patch.
//!
//! Two sets of rings, one per core each. The *log* takes every major fault and wakes nobody until it is half full.
//! The *onset* takes every n-th and wakes the service, so that a switch that no signal announced is noticed; it is
//! off while nobody wants it. A fetching thread's own faults are not counted by the kernel.

use crate::error::Result;
use crate::executor::FaultBurst;
use crate::params::ObserveParams;
use prepage_core::machine::Nanos;
use prepage_kernel::page::page_size;
use prepage_kernel::perf::{FaultRings, Wakeup};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

/// Demand faults of one switch: the paper's fault buffer, bounded.
#[derive(Debug, Default)]
pub struct FaultBuffer {
    /// Virtual pages faulted on and when, by process id, in no order, repeated where faulted on twice.
    pub pages: BTreeMap<i32, Vec<(u64, Nanos)>>,
    /// The same of processes that are no application's, those that faulted most.
    pub of_others: BTreeMap<i32, Vec<(u64, Nanos)>>,
    /// Faults that did not fit, or that the rings lost, as far as they were counted.
    pub lost: u64,
    /// Whether more were lost than were counted.
    pub overflowed: bool,
}

/// Most faults kept of processes that are no application's: four windows of 4 million pixels.
const OTHERS_FAULTS_MAX: usize = 16_384;

/// Fewer of one process are not looked into: that takes as long as they do.
const OTHERS_FAULTS_MIN: usize = 32;

/// Most such processes that are looked into: of each the mappings are asked for.
const OTHERS_MAX: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Fault {
    at: Nanos,
    pid: i32,
    page: u64,
}

/// The rings, and the buffers of the switches under way.
#[derive(Debug)]
pub struct FaultLog {
    log: FaultRings,
    onset: FaultRings,
    /// Whether anything is reported.
    is_on: bool,
    /// But not for now.
    is_paused: bool,
    buffer_pages: usize,
    /// Faults of the processes followed, in no order.
    recent: Vec<Fault>,
    /// Faults of others while switches were under way.
    of_others: Vec<Fault>,
    losses: Vec<Loss>,
}

/// Faults that were lost until a time.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Nanos,
    faults: u64,
    /// Whether more were lost than were counted.
    is_more: bool,
}

impl FaultLog {
    /// Opens the rings on these cores, enabled.
    ///
    /// # Errors
    /// Where the kernel refuses system-wide sampling: see [`FaultRings::open`].
    pub fn open(cpus: &[usize], params: &ObserveParams) -> Result<Self> {
        let every = NonZeroU64::MIN;
        let nth = NonZeroU64::new(params.onset_wakeup_faults.into()).unwrap_or(every);
        let pages = params.fault_ring_pages;
        let log = FaultRings::open(cpus, pages, every, Wakeup::half_full(pages))?;
        let onset = FaultRings::open(cpus, 1, nth, Wakeup::Events(1))?;
        log.enable()?;
        onset.enable()?;
        Ok(Self {
            log,
            onset,
            is_on: true,
            is_paused: false,
            buffer_pages: params.fault_buffer_pages,
            recent: Vec::new(),
            of_others: Vec::new(),
            losses: Vec::new(),
        })
    }

    /// Sets how many faults are kept for one switch, from the next drain on.
    pub fn set_buffer_pages(&mut self, pages: usize) {
        self.buffer_pages = pages;
    }

    /// Whether anything is reported.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Descriptors that become readable when faults should be looked at.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.log.fds().chain(self.onset.fds()).collect()
    }

    /// Turns the onset's wakeups off and on: during a switch nobody waits for them. Where nothing is reported, they stay off.
    pub fn set_onset(&self, on: bool) {
        // It only changes who is woken; a kernel that refuses costs wakeups, nothing else.
        let _ = if on && self.is_on && !self.is_paused {
            self.onset.enable()
        } else {
            self.onset.disable()
        };
    }

    /// Turns both sets of rings off and on.
    pub fn listen(&mut self, on: bool) {
        // As above: a kernel that refuses costs events that nobody looks at.
        let _ = if on {
            self.log.enable()
        } else {
            self.log.disable()
        };
        (self.is_on, self.is_paused) = (on, false);
        self.set_onset(on);
        self.recent.clear();
        self.of_others.clear();
    }

    /// Turns both off for now, and on again. What the kernel records of a fault takes a tenth of the time that the fault takes
    /// where memory is swapped out to memory.
    pub fn pause(&mut self, on: bool) {
        if !self.is_on || self.is_paused == on {
            return;
        }
        self.is_paused = on;
        // As above.
        let _ = if on {
            self.log.disable()
        } else {
            self.log.enable()
        };
        self.set_onset(!on);
    }

    /// Faults of the switches under way are missing.
    pub fn note_gap(&mut self, now: Nanos) {
        self.losses.push(Loss {
            at: now,
            faults: 0,
            is_more: true,
        });
    }

    /// Forgets what was before `before`: no switch under way or to come wants it.
    pub fn forget(&mut self, before: Nanos) {
        for faults in [&mut self.recent, &mut self.of_others] {
            faults.retain(|fault| fault.at >= before);
            faults.shrink_to(4096);
        }
        self.losses.retain(|loss| loss.at >= before);
    }

    /// Empties the rings, and keeps the faults of the processes that `keep` wants, and so many of others while `keep_others`.
    /// Returns the bursts of all.
    pub fn drain(
        &mut self,
        now: Nanos,
        mut keep: impl FnMut(i32) -> bool,
        keep_others: bool,
    ) -> Vec<FaultBurst> {
        self.onset.drain(|_| {});
        let mut bursts: HashMap<i32, (FaultBurst, bool)> = HashMap::new();
        let page_shift = page_size().trailing_zeros();
        let (recent, of_others) = (&mut self.recent, &mut self.of_others);
        let buffer_pages = self.buffer_pages;
        let mut overflow = 0;
        let drained = self.log.drain(|fault| {
            let at = fault.time_ns;
            let (burst, kept) = bursts.entry(fault.pid).or_insert_with(|| {
                let pid = fault.pid;
                let burst = FaultBurst {
                    pid,
                    count: 0,
                    first_at: at,
                    last_at: at,
                };
                (burst, keep(pid))
            });
            burst.count += 1;
            burst.first_at = burst.first_at.min(at);
            burst.last_at = burst.last_at.max(at);
            let fault = Fault {
                at,
                pid: fault.pid,
                page: fault.address >> page_shift,
            };
            match *kept {
                true if recent.len() < buffer_pages => recent.push(fault),
                true => overflow += 1,
                false if keep_others && of_others.len() < OTHERS_FAULTS_MAX => {
                    of_others.push(fault)
                }
                false => {}
            }
        });
        let (faults, is_more) = (drained.lost + overflow, drained.full > 0);
        if faults > 0 || is_more {
            self.losses.push(Loss {
                at: now,
                faults,
                is_more,
            });
        }
        bursts.into_values().map(|(burst, _)| burst).collect()
    }

    /// The faults kept since `since`, of the processes that `wanted` wants: process id and virtual page.
    pub fn recent(&self, wanted: impl Fn(i32) -> bool, since: Nanos) -> Vec<(i32, u64)> {
        let recent = self.recent.iter();
        let wanted = recent.filter(|fault| fault.at >= since && wanted(fault.pid));
        wanted.map(|fault| (fault.pid, fault.page)).collect()
    }

    /// Takes the faults of these processes since `since`. Those since `kept_from` stay, for a switch that begins now.
    pub fn take(&mut self, pids: &BTreeSet<i32>, since: Nanos, kept_from: Nanos) -> FaultBuffer {
        let mut taken = FaultBuffer::default();
        self.recent.retain(|fault| {
            let theirs = pids.contains(&fault.pid);
            if theirs && fault.at >= since {
                let pages = taken.pages.entry(fault.pid).or_default();
                pages.push((fault.page, fault.at));
            }
            !theirs || fault.at >= kept_from
        });
        taken
    }

    /// How many faults were lost since `since`, whose is not known, and whether there were more.
    pub fn lost(&self, since: Nanos) -> (u64, bool) {
        let losses = || self.losses.iter().filter(|loss| loss.at >= since);
        let counted = losses().map(|loss| loss.faults).sum();
        (counted, losses().any(|loss| loss.is_more))
    }

    /// The faults of others since `since`, of the few processes that have most: process id, and virtual pages with when.
    pub fn of_others(&self, since: Nanos) -> BTreeMap<i32, Vec<(u64, Nanos)>> {
        let mut by_pid: BTreeMap<i32, Vec<(u64, Nanos)>> = BTreeMap::new();
        for fault in self.of_others.iter().filter(|fault| fault.at >= since) {
            let pages = by_pid.entry(fault.pid).or_default();
            pages.push((fault.page, fault.at));
        }
        by_pid.retain(|_, pages| pages.len() >= OTHERS_FAULTS_MIN);
        let mut most: Vec<_> = by_pid.into_iter().collect();
        most.sort_by_key(|(_, pages)| std::cmp::Reverse(pages.len()));
        most.truncate(OTHERS_MAX);
        most.into_iter().collect()
    }
}
