//! File accesses during a switch, from the kernel's filemap tracepoints.
//!
//! From 6.13 on the kernel reports accesses: `mm_filemap_get_pages` (read(2)) and `mm_filemap_fault`, which are exact,
//! and `mm_filemap_map_pages`, the pages that it mapped around a fault. Which of them was accessed, the fault's address
//! says; of the others nothing is known, if they were in memory. Before, only insertions into the page cache are
//! reported, and use is told from what is mapped at the end ([`super::collect`]).

use crate::error::Result;
use crate::observe::waits::{self, Wait, waits};
use crate::params::ObserveParams;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::WINDOW_PAGES;
use prepage_core::machine::Nanos;
use prepage_kernel::filemap::{FaultAddresses, Filemap, FilemapKind};
use prepage_kernel::page::page_size;
use prepage_kernel::perf::{RingSwitch, TracepointRings, Wakeup};
use prepage_kernel::tracefs::Tracefs;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::BorrowedFd;

/// Device (major, minor) and inode, as tracepoints and `/proc/PID/maps` give them.
pub type InodeKey = ((u32, u32), u64);

/// One process's events on one file, in pages.
#[derive(Clone, Debug, Default)]
pub struct FileEvents {
    accessed: Vec<Event>,
    mapped: Vec<Event>,
    added: Vec<Event>,
}

/// What happened to some pages, and when.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: Nanos,
    extent: Extent,
}

impl FileEvents {
    /// Pages accessed, as far as the kernel says.
    pub fn accessed(&self) -> ExtentSet {
        pages(&self.accessed)
    }

    /// Pages that may have been mapped along with others, and so accessed without a report: those around a fault that
    /// had not been brought in only after it, by these or by `ours`.
    pub fn mapped_along(&self, ours: &FileEvents) -> ExtentSet {
        let mut first: BTreeMap<u64, Nanos> = BTreeMap::new();
        for event in self.added.iter().chain(&ours.added) {
            for page in event.extent.start..event.extent.end() {
                let at = first.entry(page).or_insert(event.at);
                *at = event.at.min(*at);
            }
        }
        let was_there = |at: Nanos, page: &u64| first.get(page).is_none_or(|&came| came <= at);
        let mapped = self.mapped.iter().flat_map(|event| {
            let pages = event.extent.start..event.extent.end();
            pages.filter(|page| was_there(event.at, page))
        });
        ExtentSet::from_pages(mapped.collect())
    }

    /// Accesses with their times, in no order, and what was mapped along.
    pub fn accesses(&self) -> impl Iterator<Item = (Nanos, Extent)> + '_ {
        let events = self.accessed.iter().chain(&self.mapped);
        events.map(|event| (event.at, event.extent))
    }

    /// Whether some were accessed through a mapping, as far as the kernel says.
    pub fn is_mapped(&self) -> bool {
        !self.mapped.is_empty()
    }

    /// Pages read from the device.
    pub fn added(&self) -> ExtentSet {
        pages(&self.added)
    }
}

fn pages(events: &[Event]) -> ExtentSet {
    events.iter().map(|event| event.extent).collect()
}

/// Extents kept for one process and file, of each kind.
const EXTENTS_MAX: usize = 8192;

/// Accesses kept in their order, over all processes: 56 bytes each.
const IN_ORDER_MAX: usize = 1 << 15;

/// What an application did to files in a switch.
#[derive(Debug)]
pub struct FilesSeen {
    /// Its events, by inode.
    pub theirs: HashMap<InodeKey, FileEvents>,
    /// Those of our fetching threads.
    pub ours: HashMap<InodeKey, FileEvents>,
    /// Its waits for pages in flight; `None` where nothing tells them, or not all of it was kept.
    pub waits: Option<Vec<Wait>>,
    /// Whether the kernel reports accesses, and not only insertions.
    pub reports_access: bool,
    /// Events lost.
    pub lost: u64,
}

/// The tracepoints' rings and what they showed since the switch began.
#[derive(Debug)]
pub struct FileTrace {
    filemap: Filemap,
    rings: TracepointRings,
    files_max: usize,
    events: HashMap<(i32, InodeKey), FileEvents>,
    /// What waits are told from.
    in_order: Vec<waits::Access>,
    lost: u64,
}

impl FileTrace {
    /// Opens the rings on these cores, disabled.
    ///
    /// # Errors
    /// Where tracefs or system-wide sampling is not to be had.
    pub fn open(cpus: &[usize], params: &ObserveParams) -> Result<Self> {
        let tracefs = Tracefs::open()?;
        let filemap = Filemap::find(&tracefs, params.filemap_kinds())?;
        let (ids, pages) = (filemap.event_ids_with_faults(), params.file_ring_pages);
        let rings = TracepointRings::open(&ids, cpus, pages, Wakeup::half_full(pages))?;
        Ok(Self {
            filemap,
            rings,
            files_max: params.file_buffer_files,
            events: HashMap::new(),
            in_order: Vec::new(),
            lost: 0,
        })
    }

    /// Descriptors that become readable when the rings are half full.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.fds().collect()
    }

    /// Turns recording on and off, from another thread.
    ///
    /// # Errors
    /// Where the descriptors cannot be duplicated.
    pub fn switch(&self) -> Result<RingSwitch> {
        Ok(self.rings.switch()?)
    }

    /// Sets how many (process, file) pairs are kept for one switch, from the next drain on.
    pub fn set_files_max(&mut self, files: usize) {
        self.files_max = files;
    }

    /// Forgets what was recorded.
    pub fn clear(&mut self) {
        self.events.clear();
        self.in_order.clear();
        self.lost = 0;
    }

    /// Takes what is in the rings.
    pub fn drain(&mut self) {
        let (filemap, events, files_max) = (&self.filemap, &mut self.events, self.files_max);
        let in_order = &mut self.in_order;
        let mut overflow = 0;
        let mut faults = FaultAddresses::default();
        let drained = self.rings.drain(|sample| {
            if faults.note(&sample) {
                return;
            }
            let Some(event) = filemap.decode(sample.event_id, sample.raw) else {
                return;
            };
            let key = (sample.pid, (event.dev, event.inode));
            if events.len() >= files_max && !events.contains_key(&key) {
                overflow += 1;
                return;
            }
            let file = events.entry(key).or_default();
            let extent = Extent::new(event.first_page, event.page_count);
            let at = sample.time_ns;
            let has_room = match event.kind {
                FilemapKind::Added => append(&mut file.added, Event { at, extent }),
                FilemapKind::MapPages => {
                    let address = faults.take(sample.tid);
                    let page = address.and_then(|a| accessed_page(extent, a));
                    let is_kept = page.is_none_or(|page| {
                        let extent = Extent::new(page, 1);
                        append(&mut file.accessed, Event { at, extent })
                    });
                    push(&mut file.mapped, Event { at, extent }) && is_kept
                }
                FilemapKind::Fault | FilemapKind::GetPages => {
                    append(&mut file.accessed, Event { at, extent })
                }
            };
            overflow += u64::from(!has_room);
            if event.kind == FilemapKind::Added {
                return;
            }
            if in_order.len() < IN_ORDER_MAX {
                in_order.push(waits::Access {
                    at,
                    pid: sample.pid,
                    tid: sample.tid,
                    kind: event.kind,
                    key: (event.dev, event.inode),
                    extent,
                });
            }
        });
        // What a full ring lost is counted later, or never: at least one.
        self.lost += drained.lost + overflow + drained.full;
    }

    /// What the application of these processes did to files.
    pub fn seen(&self, pids: &BTreeSet<i32>) -> FilesSeen {
        FilesSeen {
            theirs: self.of(pids),
            ours: self.of(&BTreeSet::from([std::process::id() as i32])),
            waits: self.waits(pids),
            reports_access: self.filemap.reports_access(),
            lost: self.lost,
        }
    }

    fn of(&self, pids: &BTreeSet<i32>) -> HashMap<InodeKey, FileEvents> {
        let mut files: HashMap<InodeKey, FileEvents> = HashMap::new();
        for ((pid, key), events) in &self.events {
            if pids.contains(pid) {
                let file = files.entry(*key).or_default();
                file.accessed.extend_from_slice(&events.accessed);
                file.mapped.extend_from_slice(&events.mapped);
                file.added.extend_from_slice(&events.added);
            }
        }
        files
    }

    /// The waits of these processes for pages in flight. `None` where the kernel does not report what they are told
    /// from, or not all of it was kept.
    fn waits(&self, pids: &BTreeSet<i32>) -> Option<Vec<Wait>> {
        let reports = |wanted| self.filemap.kinds().any(|kind| kind == wanted);
        let is_whole = self.lost == 0 && self.in_order.len() < IN_ORDER_MAX;
        let is_told = reports(FilemapKind::Fault) && reports(FilemapKind::MapPages) && is_whole;
        let theirs = self.in_order.iter().filter(|a| pids.contains(&a.pid));
        is_told.then(|| waits(theirs.copied().collect()))
    }
}

/// Which of the pages that a fault mapped it was for. A window is aligned in memory, unless a mapping begins or ends in
/// it: then it is not known.
fn accessed_page(window: Extent, address: u64) -> Option<u64> {
    let place = address / page_size() % WINDOW_PAGES;
    (window.len == WINDOW_PAGES).then_some(window.start + place)
}

/// A process that comes back to a page after so few others makes no new access of it: databases do, to a file's header.
const RECENT: usize = 8;

/// Appends an event. A process that reads a file page by page makes one access of it. Returns whether there was room.
fn append(events: &mut Vec<Event>, event: Event) -> bool {
    let holds = |held: &Event| {
        held.extent.start <= event.extent.start && event.extent.end() <= held.extent.end()
    };
    if events.iter().rev().take(RECENT).any(holds) {
        return true;
    }
    match events.last_mut().map(|last| &mut last.extent) {
        Some(last) if last.end() == event.extent.start => last.len += event.extent.len,
        _ => return push(events, event),
    }
    true
}

/// Beyond the bound only what happened first is kept. Returns whether there was room.
fn push(events: &mut Vec<Event>, event: Event) -> bool {
    let has_room = events.len() < EXTENTS_MAX;
    if has_room {
        events.push(event);
    }
    has_room
}
