//! How long single page faults take, and single calls that change an address space: of all processes, by perf events at
//! their beginnings and ends.
//!
//! **Faults.** The kernel counts a fault before it resolves it, and once more, as major or minor, when it has: in every
//! version and architecture, without tracefs or kprobes. What is between includes the wait for the lock of the address
//! space, for the device, and for a processor. A fault that ends in a signal has no end, and is none here. What one
//! process faults in for another (ptrace, process_vm_readv) is not seen, nor what the kernel populates (mlock).
//!
//! **Calls.** Tracepoints at both ends of a system call (CONFIG_FTRACE_SYSCALLS). Those of 32-bit programs are not seen.
//! While they are enabled, every system call of every process takes the kernel's slower way in and out.

use crate::error::{Error, Result};
use crate::perf::{Drained, FaultEvent, FaultRings, TracepointRings, Wakeup};
use crate::tracefs::{self, Tracefs};
use std::collections::HashMap;
use std::num::NonZeroU64;

/// A system call that changes an address space, whose lock it takes for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapCall {
    /// mmap.
    Mmap,
    /// munmap.
    Munmap,
    /// mremap.
    Mremap,
    /// mprotect.
    Mprotect,
    /// brk.
    Brk,
}

impl MapCall {
    /// All of them.
    pub const ALL: [MapCall; 5] = [
        MapCall::Mmap,
        MapCall::Munmap,
        MapCall::Mremap,
        MapCall::Mprotect,
        MapCall::Brk,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            MapCall::Mmap => "mmap",
            MapCall::Munmap => "munmap",
            MapCall::Mremap => "mremap",
            MapCall::Mprotect => "mprotect",
            MapCall::Brk => "brk",
        }
    }
}

/// What takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A page fault.
    Fault {
        /// The faulting byte address.
        address: u64,
    },
    /// A call.
    Call(MapCall),
}

/// Which end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Its beginning.
    Begin,
    /// Its end.
    End,
}

/// One end of a fault or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
    /// Process, in our pid namespace.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// What it is of.
    pub kind: SpanKind,
    /// Which end.
    pub edge: Edge,
}

/// A fault or call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Process, in our pid namespace.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// What it was.
    pub kind: SpanKind,
    /// When it began: CLOCK_MONOTONIC, in ns.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

impl Span {
    /// How long it took.
    pub fn len_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }
}

/// The rings in which both ends of faults and calls are.
#[derive(Debug)]
pub struct SpanRings {
    begun: FaultRings,
    resolved: FaultRings,
    calls: Result<CallRings>,
}

#[derive(Debug)]
struct CallRings {
    rings: TracepointRings,
    /// What each tracepoint means, by its id.
    meanings: HashMap<u32, (MapCall, Edge)>,
}

impl SpanRings {
    /// Opens rings of `ring_pages` (a power of two) pages on each of `cpus`, three on each CPU, disabled. Fails where faults
    /// cannot be sampled ([`FaultRings::open`]); where only calls cannot, they are left out.
    pub fn open(cpus: &[usize], ring_pages: usize) -> Result<SpanRings> {
        let faults = |events: &[FaultEvent]| {
            let wakeup = Wakeup::half_full(ring_pages);
            FaultRings::open_for(events, cpus, ring_pages, NonZeroU64::MIN, wakeup)
        };
        Ok(SpanRings {
            begun: faults(&[FaultEvent::Begun])?,
            resolved: faults(&[FaultEvent::Major, FaultEvent::Minor])?,
            calls: CallRings::open(cpus, ring_pages),
        })
    }

    /// Why calls are not seen, if they are not.
    pub fn why_no_calls(&self) -> Option<&Error> {
        self.calls.as_ref().err()
    }

    /// Starts sampling.
    pub fn enable(&self) -> Result<()> {
        self.begun.enable()?;
        self.resolved.enable()?;
        match &self.calls {
            Ok(calls) => calls.rings.enable(),
            Err(_) => Ok(()),
        }
    }

    /// Stops sampling; what is in the rings stays.
    pub fn disable(&self) -> Result<()> {
        self.begun.disable()?;
        self.resolved.disable()?;
        match &self.calls {
            Ok(calls) => calls.rings.disable(),
            Err(_) => Ok(()),
        }
    }

    /// Empties the rings, in no order. Bounded by their size.
    pub fn drain(&mut self, mut visit: impl FnMut(Mark)) -> Drained {
        let mut drained = Drained::default();
        let faults = [
            (&mut self.begun, Edge::Begin),
            (&mut self.resolved, Edge::End),
        ];
        for (rings, edge) in faults {
            drained += rings.drain(|sample| {
                visit(Mark {
                    time_ns: sample.time_ns,
                    pid: sample.pid,
                    tid: sample.tid,
                    kind: SpanKind::Fault {
                        address: sample.address,
                    },
                    edge,
                });
            });
        }
        if let Ok(calls) = &mut self.calls {
            drained += calls.drain(visit);
        }
        drained
    }
}

impl CallRings {
    fn open(cpus: &[usize], ring_pages: usize) -> Result<CallRings> {
        let tracefs = Tracefs::open()?;
        let mut meanings = HashMap::new();
        for (edge, prefix) in [(Edge::Begin, "sys_enter_"), (Edge::End, "sys_exit_")] {
            let names = MapCall::ALL.map(|call| format!("{prefix}{}", call.name()));
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let formats = tracefs::events(&tracefs, "syscalls", &names)?;
            let found = MapCall::ALL.into_iter().zip(formats);
            meanings.extend(found.filter_map(|(call, format)| Some((format?.id, (call, edge)))));
        }
        if meanings.is_empty() {
            let cause = "this kernel has none (CONFIG_FTRACE_SYSCALLS)";
            return Err(Error::malformed(
                "find",
                "tracepoints of system calls",
                cause,
            ));
        }
        let ids: Vec<u32> = meanings.keys().copied().collect();
        let rings = TracepointRings::open(&ids, cpus, ring_pages, Wakeup::half_full(ring_pages))?;
        Ok(CallRings { rings, meanings })
    }

    fn drain(&mut self, mut visit: impl FnMut(Mark)) -> Drained {
        let meanings = &self.meanings;
        self.rings.drain(|sample| {
            if let Some(&(call, edge)) = meanings.get(&sample.event_id) {
                visit(Mark {
                    time_ns: sample.time_ns,
                    pid: sample.pid,
                    tid: sample.tid,
                    kind: SpanKind::Call(call),
                    edge,
                });
            }
        })
    }
}

/// The faults and calls of which both ends are among these marks, in the order in which they ended. Sorts the marks.
pub fn pair(marks: &mut [Mark]) -> Vec<Span> {
    marks.sort_by_key(|mark| mark.time_ns);
    let mut begun: HashMap<(i32, bool), Mark> = HashMap::new();
    let mut spans = Vec::new();
    for &mark in marks.iter() {
        // A call may fault.
        let of = (mark.tid, matches!(mark.kind, SpanKind::Fault { .. }));
        match mark.edge {
            // One that is still there has failed, or its end was lost.
            Edge::Begin => drop(begun.insert(of, mark)),
            Edge::End => {
                let begin = begun.remove(&of).filter(|begin| begin.kind == mark.kind);
                spans.extend(begin.map(|begin| Span {
                    pid: mark.pid,
                    tid: mark.tid,
                    kind: mark.kind,
                    begin_ns: begin.time_ns,
                    end_ns: mark.time_ns,
                }));
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    const MMAP: SpanKind = SpanKind::Call(MapCall::Mmap);
    const FAULT: SpanKind = SpanKind::Fault { address: 0x1000 };
    const OTHER_FAULT: SpanKind = SpanKind::Fault { address: 0x2000 };

    fn pairs(marks: &[(u64, i32, SpanKind, Edge)]) -> Vec<(i32, SpanKind, u64)> {
        let mark = |&(time_ns, tid, kind, edge): &(u64, i32, SpanKind, Edge)| Mark {
            time_ns,
            pid: 1,
            tid,
            kind,
            edge,
        };
        let mut marks: Vec<Mark> = marks.iter().map(mark).collect();
        let spans = pair(&mut marks);
        let of = |span: Span| (span.tid, span.kind, span.len_ns());
        spans.into_iter().map(of).collect()
    }

    #[test]
    fn ends_are_paired_by_thread_whatever_ring_they_were_in() {
        let marks = [
            (40, 1, FAULT, Edge::End),
            (30, 2, FAULT, Edge::End),
            (10, 1, FAULT, Edge::Begin),
            (20, 2, FAULT, Edge::Begin),
        ];
        assert_eq!(pairs(&marks), [(2, FAULT, 10), (1, FAULT, 30)]);
    }

    #[test]
    fn a_call_may_fault() {
        let marks = [
            (10, 1, MMAP, Edge::Begin),
            (12, 1, FAULT, Edge::Begin),
            (15, 1, FAULT, Edge::End),
            (20, 1, MMAP, Edge::End),
        ];
        assert_eq!(pairs(&marks), [(1, FAULT, 3), (1, MMAP, 10)]);
    }

    #[test]
    fn what_has_one_end_only_is_none() {
        let failed = [
            (10, 1, FAULT, Edge::Begin),
            (90, 1, OTHER_FAULT, Edge::Begin),
            (95, 1, OTHER_FAULT, Edge::End),
        ];
        assert_eq!(pairs(&failed), [(1, OTHER_FAULT, 5)]);
        let lost = [
            (10, 1, FAULT, Edge::Begin),
            (90, 1, OTHER_FAULT, Edge::End),
            (99, 1, FAULT, Edge::End),
        ];
        assert_eq!(pairs(&lost), []);
    }
}
