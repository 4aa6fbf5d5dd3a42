//! File accesses during a switch, from the kernel's filemap tracepoints.
//!
//! From 6.13 on the kernel reports accesses: `mm_filemap_get_pages` (read(2), exact), `mm_filemap_fault` and
//! `mm_filemap_map_pages` (mapped access, by fault-around window). Before, only insertions into the page cache are
//! reported, and use is told from what is mapped at the end ([`super::collect`]).

use crate::error::Result;
use crate::params::ObserveParams;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_kernel::filemap::{Filemap, FilemapKind};
use prepage_kernel::page::page_size;
use prepage_kernel::perf::{RingSwitch, TracepointRings, Wakeup};
use prepage_kernel::tracefs::Tracefs;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::BorrowedFd;

/// Device (major, minor) and inode, as tracepoints and `/proc/PID/maps` give them.
pub type InodeKey = ((u32, u32), u64);

/// One process's events on one file, in pages.
#[derive(Clone, Debug, Default)]
pub struct FileEvents {
    accessed: Vec<Extent>,
    added: Vec<Extent>,
}

impl FileEvents {
    /// Pages accessed, as far as the kernel says.
    pub fn accessed(&self) -> ExtentSet {
        self.accessed.iter().copied().collect()
    }

    /// Pages read from the device.
    pub fn added(&self) -> ExtentSet {
        self.added.iter().copied().collect()
    }
}

/// Extents kept for one process and file before they are merged.
const EXTENTS_UNMERGED_MAX: usize = 4096;

/// The tracepoints' rings and what they showed since the switch began.
#[derive(Debug)]
pub struct FileTrace {
    filemap: Filemap,
    rings: TracepointRings,
    files_max: usize,
    events: HashMap<(i32, InodeKey), FileEvents>,
    lost: u64,
}

impl FileTrace {
    /// Opens the rings on these cores, disabled.
    ///
    /// # Errors
    /// Where tracefs or system-wide sampling is not to be had.
    pub fn open(cpus: &[usize], params: &ObserveParams) -> Result<Self> {
        let tracefs = Tracefs::open()?;
        let wanted = match params.access_events {
            true => &FilemapKind::ALL[..],
            false => &[FilemapKind::Added],
        };
        let filemap = Filemap::find(&tracefs, wanted)?;
        let half = params.file_ring_pages as u64 * page_size() / 2;
        let watermark = Wakeup::Bytes(u32::try_from(half).unwrap_or(u32::MAX));
        let ids = filemap.event_ids();
        let rings = TracepointRings::open(&ids, cpus, params.file_ring_pages, watermark)?;
        Ok(Self {
            filemap,
            rings,
            files_max: params.file_buffer_files,
            events: HashMap::new(),
            lost: 0,
        })
    }

    /// Whether the kernel reports accesses, and not only insertions.
    pub fn reports_access(&self) -> bool {
        self.filemap.kinds().any(|kind| kind != FilemapKind::Added)
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

    /// Forgets what was recorded.
    pub fn clear(&mut self) {
        self.events.clear();
        self.lost = 0;
    }

    /// Takes what is in the rings.
    pub fn drain(&mut self) {
        let (filemap, events, files_max) = (&self.filemap, &mut self.events, self.files_max);
        let mut overflow = 0;
        let drained = self.rings.drain(|sample| {
            let Some(event) = filemap.decode(sample.event_id, sample.raw) else {
                return;
            };
            let key = (sample.pid, (event.dev, event.inode));
            if events.len() == files_max && !events.contains_key(&key) {
                overflow += 1;
                return;
            }
            let file = events.entry(key).or_default();
            let list = match event.kind {
                FilemapKind::Added => &mut file.added,
                _ => &mut file.accessed,
            };
            push(list, Extent::new(event.first_page, event.page_count));
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

    /// Events lost since the switch began.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Appends an extent; a long list is merged, so that re-reading one file for long cannot grow it without bound.
fn push(list: &mut Vec<Extent>, extent: Extent) {
    match list.last_mut() {
        Some(last) if last.start <= extent.start && extent.end() <= last.end() => {}
        Some(last) if last.end() == extent.start => last.len += extent.len,
        _ => list.push(extent),
    }
    if list.len() >= EXTENTS_UNMERGED_MAX {
        let merged = ExtentSet::from(std::mem::take(list));
        *list = merged.extents().to_vec();
        // A file that is read in a pattern of holes: the first of them are kept.
        list.truncate(EXTENTS_UNMERGED_MAX / 2);
    }
}
