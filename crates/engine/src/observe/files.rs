//! File accesses during a switch, from the kernel's filemap tracepoints.
//!
//! From 6.13 on the kernel reports accesses: `mm_filemap_get_pages` (read(2), exact), `mm_filemap_fault` and
//! `mm_filemap_map_pages` (mapped access, by fault-around window). Before, only insertions into the page cache are
//! reported, and use is told from what is mapped at the end ([`super::collect`]).

use crate::error::Result;
use crate::observe::waits::{self, Wait, waits};
use crate::params::ObserveParams;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::machine::Nanos;
use prepage_kernel::filemap::{Filemap, FilemapKind};
use prepage_kernel::perf::{RingSwitch, TracepointRings, Wakeup};
use prepage_kernel::tracefs::Tracefs;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::BorrowedFd;

/// Device (major, minor) and inode, as tracepoints and `/proc/PID/maps` give them.
pub type InodeKey = ((u32, u32), u64);

/// One process's events on one file, in pages.
#[derive(Clone, Debug, Default)]
pub struct FileEvents {
    accessed: Vec<Access>,
    added: Vec<Extent>,
}

/// An access, and when.
#[derive(Clone, Copy, Debug)]
struct Access {
    at: Nanos,
    extent: Extent,
}

impl FileEvents {
    /// Pages accessed, as far as the kernel says.
    pub fn accessed(&self) -> ExtentSet {
        self.accessed.iter().map(|access| access.extent).collect()
    }

    /// Accesses with their times, in no order.
    pub fn accesses(&self) -> impl Iterator<Item = (Nanos, Extent)> + '_ {
        self.accessed
            .iter()
            .map(|access| (access.at, access.extent))
    }

    /// Pages read from the device.
    pub fn added(&self) -> ExtentSet {
        self.added.iter().copied().collect()
    }
}

/// Extents kept for one process and file.
const EXTENTS_MAX: usize = 8192;

/// Accesses kept in their order, over all processes: 56 bytes each.
const IN_ORDER_MAX: usize = 1 << 15;

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
        let (ids, pages) = (filemap.event_ids(), params.file_ring_pages);
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

    /// Whether the kernel reports accesses, and not only insertions.
    pub fn reports_access(&self) -> bool {
        self.filemap.reports_access()
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
        let drained = self.rings.drain(|sample| {
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
            if event.kind == FilemapKind::Added {
                return file.add(extent);
            }
            file.access(sample.time_ns, extent);
            if in_order.len() < IN_ORDER_MAX {
                in_order.push(waits::Access {
                    at: sample.time_ns,
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

    /// What these processes did to files, by inode.
    pub fn of(&self, pids: &BTreeSet<i32>) -> HashMap<InodeKey, FileEvents> {
        let mut files: HashMap<InodeKey, FileEvents> = HashMap::new();
        for ((pid, key), events) in &self.events {
            if pids.contains(pid) {
                let file = files.entry(*key).or_default();
                file.accessed.extend_from_slice(&events.accessed);
                file.added.extend_from_slice(&events.added);
            }
        }
        files
    }

    /// The waits of these processes for pages in flight. `None` where the kernel does not report what they are told
    /// from, or not all of it was kept.
    pub fn waits(&self, pids: &BTreeSet<i32>) -> Option<Vec<Wait>> {
        let reports = |wanted| self.filemap.kinds().any(|kind| kind == wanted);
        let is_whole = self.lost == 0 && self.in_order.len() < IN_ORDER_MAX;
        let is_told = reports(FilemapKind::Fault) && reports(FilemapKind::MapPages) && is_whole;
        let theirs = self.in_order.iter().filter(|a| pids.contains(&a.pid));
        is_told.then(|| waits(theirs.copied().collect()))
    }

    /// Events lost since the switch began.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl FileEvents {
    /// Takes in an access. A process that reads a file page by page makes one access of it.
    fn access(&mut self, at: Nanos, extent: Extent) {
        let room = self.accessed.len() < EXTENTS_MAX;
        match self.accessed.last_mut().map(|last| &mut last.extent) {
            Some(last) if last.start <= extent.start && extent.end() <= last.end() => {}
            Some(last) if last.end() == extent.start => last.len += extent.len,
            // Beyond the bound only what was accessed first is kept.
            _ if room => self.accessed.push(Access { at, extent }),
            _ => {}
        }
    }

    fn add(&mut self, extent: Extent) {
        let room = self.added.len() < EXTENTS_MAX;
        match self.added.last_mut() {
            Some(last) if last.end() == extent.start => last.len += extent.len,
            _ if room => self.added.push(extent),
            _ => {}
        }
    }
}
