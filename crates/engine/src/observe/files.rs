//! File accesses during a switch, from the kernel's filemap tracepoints.
//!
//! From 6.12 on the kernel reports accesses: `mm_filemap_get_pages` (read(2)) and `mm_filemap_fault`, which are exact,
//! and `mm_filemap_map_pages`, the pages that it mapped around a fault. Which of them was accessed, the fault's address
//! says; of the others nothing is known, if they were in memory. Before, only insertions into the page cache are
//! reported, and use is told from what is mapped at the end ([`super::collect`]).

use crate::error::Result;
use crate::observe::file_table::FileTable;
use crate::observe::waits::{Access, Wait, waits};
use crate::params::ObserveParams;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::WINDOW_PAGES;
use prepage_core::machine::Nanos;
use prepage_kernel::filemap::{FaultAddresses, Filemap, FilemapKind};
use prepage_kernel::page::page_size;
use prepage_kernel::perf::{RingSwitch, TracepointRings, Wakeup};
use prepage_kernel::process::own_pid;
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
        let may_be_along = pages(&self.mapped);
        let mut first: BTreeMap<u64, Nanos> = BTreeMap::new();
        for event in self.added.iter().chain(&ours.added) {
            // Of what is only read there may be millions.
            let added = ExtentSet::from_iter([event.extent]).intersection(&may_be_along);
            for page in added.iter_pages() {
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

    /// Accesses with their times, in no order, and what was mapped along; where the kernel reports no access, insertions.
    pub fn accesses(&self, reports_access: bool) -> impl Iterator<Item = (Nanos, Extent)> + '_ {
        let (some, more): (&[Event], &[Event]) = match reports_access {
            true => (&self.accessed, &self.mapped),
            false => (&self.added, &[]),
        };
        let events = some.iter().chain(more);
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

    /// Takes an event. Of a fault that mapped pages, `page` is the one that it was for, if known. Returns whether there
    /// was room.
    pub(super) fn add(&mut self, access: &Access, page: Option<u64>) -> bool {
        let (at, extent) = (access.at, access.extent);
        match access.kind {
            FilemapKind::Added => append(&mut self.added, Event { at, extent }),
            FilemapKind::MapPages => {
                let is_kept = page.is_none_or(|page| {
                    let extent = Extent::new(page, 1);
                    append(&mut self.accessed, Event { at, extent })
                });
                push(&mut self.mapped, Event { at, extent }) && is_kept
            }
            FilemapKind::Fault | FilemapKind::GetPages => {
                append(&mut self.accessed, Event { at, extent })
            }
        }
    }

    /// Whether there is room for any event.
    pub(super) fn has_room(&self) -> bool {
        let lists = [&self.accessed, &self.mapped, &self.added];
        lists.iter().all(|list| list.len() < EXTENTS_MAX)
    }

    /// Takes out what happened at this time or later.
    pub(super) fn split_off(&mut self, at: Nanos) -> Self {
        let later = |events: &mut Vec<Event>| events.extract_if(.., |e| e.at >= at).collect();
        Self {
            accessed: later(&mut self.accessed),
            mapped: later(&mut self.mapped),
            added: later(&mut self.added),
        }
    }

    /// Whether nothing happened.
    pub(super) fn is_empty(&self) -> bool {
        let lists = [&self.accessed, &self.mapped, &self.added];
        lists.iter().all(|list| list.is_empty())
    }

    /// Adds what another process did to the file.
    pub(super) fn extend(&mut self, other: &FileEvents) {
        self.accessed.extend_from_slice(&other.accessed);
        self.mapped.extend_from_slice(&other.mapped);
        self.added.extend_from_slice(&other.added);
    }
}

fn pages(events: &[Event]) -> ExtentSet {
    events.iter().map(|event| event.extent).collect()
}

/// Extents kept for one process and file, of each kind.
const EXTENTS_MAX: usize = 8192;

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
    table: FileTable,
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
            table: FileTable::new(params.file_buffer_files),
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

    /// What was recorded is kept in this.
    pub fn table(&mut self) -> &mut FileTable {
        &mut self.table
    }

    /// Takes what is in the rings. `members` looks up which processes' events are wanted, where they do not all fit.
    pub fn drain(&mut self, members: impl Fn() -> BTreeSet<i32>) {
        let (filemap, table) = (&self.filemap, &mut self.table);
        let mut faults = FaultAddresses::default();
        let drained = self.rings.drain(|sample| {
            if faults.note(&sample) {
                return;
            }
            let Some(event) = filemap.decode(sample.event_id, sample.raw) else {
                return;
            };
            let access = Access {
                at: sample.time_ns,
                pid: sample.pid,
                tid: sample.tid,
                kind: event.kind,
                key: (event.dev, event.inode),
                extent: Extent::new(event.first_page, event.page_count),
            };
            let address = match event.kind {
                FilemapKind::MapPages => faults.take(sample.tid),
                _ => None,
            };
            let page = address.and_then(|a| accessed_page(access.extent, a));
            table.add(access, page, &members);
        });
        // What a full ring lost is counted later, or never: at least one.
        self.table.lose(drained.lost + drained.full);
    }

    /// What the application of these processes did to files since its switch began.
    pub fn seen(&self, pids: &BTreeSet<i32>, began: Nanos) -> FilesSeen {
        let lost = self.table.lost(began);
        let reports = |wanted| self.filemap.kinds().any(|kind| kind == wanted);
        let tells_waits = reports(FilemapKind::Fault) && reports(FilemapKind::MapPages);
        let in_order = (tells_waits && lost == 0).then(|| self.table.in_order(pids, began));
        FilesSeen {
            theirs: self.table.of(pids, began),
            ours: self.table.of(&BTreeSet::from([own_pid()]), began),
            waits: in_order.flatten().map(waits),
            reports_access: self.filemap.reports_access(),
            lost,
        }
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
