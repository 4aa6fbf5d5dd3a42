//! What the kernel reports while launches are recorded: file accesses, processes and block requests, system-wide.
//!
//! The rings are opened once and disabled while nothing is recorded.

use crate::error::Result;
use crate::locked::locked;
use crate::observe::files::InodeKey;
use crate::observe::opens::{Opening, Opens};
use crate::params::ObserveParams;
use crate::patience;
use prepage_core::extent::Extent;
use prepage_core::launch::recording::Source;
use prepage_core::machine::Nanos;
use prepage_kernel::block_trace::{BlockEvent, BlockKind, BlockTrace};
use prepage_kernel::filemap::{Filemap, FilemapKind};
use prepage_kernel::perf::{RingSwitch, TracepointRings, Wakeup};
use prepage_kernel::task_events::{TaskEvent, TaskRings};
use prepage_kernel::tracefs::Tracefs;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Pages of a core's ring for processes and mappings. A mapping takes about 150 bytes.
const TASK_RING_PAGES: usize = 64;

/// Openings taken from the kernel's queue at a time: its size, and behind them what says that it was full.
const OPENINGS_MAX: usize = 16_384 + 1;

/// How long who begins a launch waits for the watch on openings: it takes a fraction of a millisecond.
const WATCH_MAX: Duration = Duration::from_millis(200);

/// How long the recorder waits for what it has seen: the kernel opens each file once more.
const OPENINGS_WAIT_MAX: Duration = Duration::from_secs(1);

/// A page event of a process.
#[derive(Clone, Copy, Debug)]
pub struct PageEvent {
    /// When.
    pub at: Nanos,
    /// What happened to them.
    pub kind: FilemapKind,
    /// The file.
    pub key: InodeKey,
    /// Its pages.
    pub extent: Extent,
}

/// A process began.
#[derive(Clone, Copy, Debug)]
pub struct Fork {
    /// When.
    pub at: Nanos,
    /// The new process.
    pub pid: i32,
    /// Its parent.
    pub parent_pid: i32,
}

/// A process mapped a file.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// The file.
    pub key: InodeKey,
    /// Its path below the process's root.
    pub path: Box<[u8]>,
}

/// A block event, in the context of a process.
#[derive(Clone, Copy, Debug)]
pub struct BlockSample {
    /// When.
    pub at: Nanos,
    /// Process.
    pub pid: i32,
    /// What happened.
    pub event: BlockEvent,
}

/// What the rings held: bounded by their size.
#[derive(Debug, Default)]
pub struct Batch {
    /// In the order of time.
    pub forks: Vec<Fork>,
    /// By process.
    pub mapped: HashMap<i32, Vec<Mapped>>,
    /// By process, in no order.
    pub pages: HashMap<i32, Vec<PageEvent>>,
    /// In the order of time.
    pub blocks: Vec<BlockSample>,
    /// Events that did not fit into a ring, as far as the kernel has said so.
    pub lost: u64,
    /// How often openings were lost.
    pub openings_lost: u64,
}

/// The rings.
#[derive(Debug)]
pub struct Rings {
    filemap: Filemap,
    blocks: BlockTrace,
    trace: TracepointRings,
    tasks: TaskRings,
}

impl Rings {
    /// Opens them on these cores, disabled. The addresses of page faults, which would tell the page that was accessed from those
    /// that its fault mapped along, are not among what they report: each fault of anonymous memory has one too, and a fifth
    /// of LibreOffice's launch went there.
    ///
    /// # Errors
    /// Where tracefs or system-wide sampling is not to be had.
    pub fn open(cpus: &[usize], params: &ObserveParams) -> Result<Self> {
        let tracefs = Tracefs::open()?;
        let filemap = Filemap::find(&tracefs, params.filemap_kinds())?;
        let blocks = BlockTrace::find(&tracefs, &BlockKind::ALL)?;
        let ids = [filemap.event_ids(), blocks.event_ids()].concat();
        let pages = params.file_ring_pages;
        Ok(Self {
            trace: TracepointRings::open(&ids, cpus, pages, Wakeup::half_full(pages))?,
            tasks: TaskRings::open(cpus, TASK_RING_PAGES, Wakeup::half_full(TASK_RING_PAGES))?,
            filemap,
            blocks,
        })
    }

    /// Whether the kernel reports accesses, or only insertions.
    pub fn source(&self) -> Source {
        match self.filemap.reports_access() {
            true => Source::Accesses,
            false => Source::Insertions,
        }
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.trace.fds().chain(self.tasks.fds())
    }

    /// Takes what is in the rings.
    pub fn drain(&mut self) -> Batch {
        let mut batch = Batch::default();
        let (filemap, blocks) = (&self.filemap, &self.blocks);
        // First the accesses: the fork of a process that has any is then in the other ring.
        let trace = self.trace.drain(|sample| {
            let (at, pid) = (sample.time_ns, sample.pid);
            if let Some(event) = filemap.decode(sample.event_id, sample.raw) {
                batch.pages.entry(pid).or_default().push(PageEvent {
                    at,
                    kind: event.kind,
                    key: (event.dev, event.inode),
                    extent: Extent::new(event.first_page, event.page_count),
                });
            } else if let Some(event) = blocks.decode(sample.event_id, sample.raw) {
                batch.blocks.push(BlockSample { at, pid, event });
            }
        });
        let tasks = self.tasks.drain(|record| match record.event {
            TaskEvent::Fork { parent_pid } if parent_pid != record.pid => batch.forks.push(Fork {
                at: record.time_ns,
                pid: record.pid,
                parent_pid,
            }),
            TaskEvent::Map { dev, inode, path } => {
                batch.mapped.entry(record.pid).or_default().push(Mapped {
                    key: (dev, inode),
                    path: path.into(),
                })
            }
            _ => {}
        });
        batch.forks.sort_by_key(|fork| fork.at);
        batch.blocks.sort_by_key(|sample| sample.at);
        // What a full ring lost is counted later, or never: at least one.
        batch.lost = trace.lost + trace.full + tasks.lost + tasks.full;
        batch
    }
}

/// What is on while a launch is recorded: the rings and the watch on openings.
#[derive(Debug)]
pub struct Gate {
    switches: [RingSwitch; 2],
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    launches: usize,
    /// `None` where fanotify is not to be had, and where a file system did not answer.
    opens: Option<Opens>,
    /// A file system did not answer: what is opened is not known any more.
    is_given_up: bool,
}

impl Gate {
    /// That of these rings.
    ///
    /// # Errors
    /// Where their descriptors cannot be duplicated.
    pub fn of(rings: &Rings) -> Result<Self> {
        Ok(Self {
            switches: [rings.trace.switch()?, rings.tasks.switch()?],
            recorded: Mutex::default(),
        })
    }

    /// A recording begins: everything from now on is reported.
    pub fn enter(&self) {
        let mut recorded = self.lock();
        recorded.launches += 1;
        if recorded.launches == 1 {
            // A kernel that refuses now shows in a recording without accesses.
            let _ = self.switches.iter().try_for_each(RingSwitch::enable);
            let started = patience::of_openings(WATCH_MAX, Opens::start);
            recorded.is_given_up = started.is_none();
            recorded.opens = started.flatten();
        }
    }

    /// A recording is over.
    pub fn leave(&self) {
        let mut recorded = self.lock();
        recorded.launches -= 1;
        if recorded.launches == 0 {
            let _ = self.switches.iter().try_for_each(RingSwitch::disable);
            let opens = recorded.opens.take();
            // To close it takes the kernel some milliseconds, for which the next launch would wait.
            drop(recorded);
            drop(opens);
        }
    }

    /// What was opened since the last call, and how often some of it was lost. Where a file system does not answer, all
    /// is lost until all recordings are over.
    pub fn openings(&self) -> (Vec<Opening>, u64) {
        let mut recorded = self.lock();
        let Some(mut opens) = recorded.opens.take() else {
            return (Vec::new(), u64::from(recorded.is_given_up));
        };
        // Nothing is locked meanwhile.
        drop(recorded);
        let taken = patience::of_openings(OPENINGS_WAIT_MAX, move || {
            let mut openings = Vec::new();
            let lost = opens.drain(OPENINGS_MAX, |opening| openings.push(opening));
            (opens, openings, lost)
        });
        let mut recorded = self.lock();
        let Some((opens, openings, lost)) = taken else {
            recorded.is_given_up = true;
            return (Vec::new(), 1);
        };
        recorded.opens = Some(opens);
        (openings, lost)
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        locked(&self.recorded)
    }
}
