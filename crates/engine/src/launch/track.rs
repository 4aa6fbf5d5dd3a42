//! What one launch has shown so far.

use crate::launch::Launch;
use crate::launch::path_profile::PathProfile;
use crate::launch::place::Place;
use crate::launch::rings::{Batch, BlockSample, Fork, Mapped, PageEvent};
use crate::launch::sandboxes::{Sandbox, Sandboxes};
use crate::observe::files::InodeKey;
use crate::observe::opens::Opening;
use crate::observe::resolve::View;
use crate::patience;
use prepage_core::extent::{Extent, ExtentSet, by_key};
use prepage_core::launch::recording::{
    ACCESSES_MAX, Access, BlockRequest, CALLS_MAX, CallKind, FILES_MAX, Issuer, PathCall,
    REQUESTS_MAX, Source, first_accesses,
};
use prepage_core::machine::Nanos;
use prepage_kernel::block_trace::{BlockKind, BlockOperation, SECTOR_BYTES};
use prepage_kernel::filemap::FilemapKind;
use prepage_kernel::{Process, maps, process};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Most processes of one launch.
pub const PROCESSES_MAX: usize = 4_096;
/// Most inodes of which the path is kept: of a launch's openings, most are of files that it reads.
const PATHS_MAX: usize = 2 * FILES_MAX;
/// Most files counted beyond those that are kept.
const LEFT_OUT_MAX: usize = 1 << 16;
/// Longest path kept, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// Accesses taken before those that are no first ones are dropped.
const ACCESSES_KEPT_MAX: usize = 2 * ACCESSES_MAX;

/// How a launch is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Not at all.
    No,
    /// From its beginning: the rings are on.
    Whole,
    /// From when the rings are open: what the device read for it is known then, nothing else.
    Late,
}

/// A launch under way.
#[derive(Debug)]
pub struct Track {
    /// What the caller said of it.
    pub launch: Launch,
    /// Where its paths hold; `None` where it was gone already.
    pub place: Option<Arc<Place>>,
    /// The process whose end is waited for: the launch's own, then what is left of its tree.
    pub awaited: Option<Process>,
    /// What it showed, while it is recorded.
    pub seen: Option<Seen>,
    /// How that is recorded.
    pub recorded: Recorded,
    /// When the next look is due whether it is over, in microseconds since it began.
    pub look_us: u64,
    /// CPU time of the recording thread when it began, in nanoseconds.
    pub cpu_ns: u64,
}

/// What a recorded launch showed. Its size is bounded by the constants above and those of
/// [`prepage_core::launch::recording`].
#[derive(Debug)]
pub struct Seen {
    began: Nanos,
    own_pid: i32,
    /// How its files are named.
    pub view: View,
    /// Its processes that have other things mounted.
    pub sandboxes: Sandboxes,
    /// Where accesses come from.
    pub source: Source,
    /// Processes of the launch, ended ones included.
    pub pids: HashSet<i32>,
    /// Inodes accessed.
    pub keys: Vec<InodeKey>,
    indices: HashMap<InodeKey, u32>,
    /// Those beyond [`FILES_MAX`], so many of which are counted.
    pub left_out: HashSet<InodeKey>,
    /// Accesses; their files are indices of `keys`.
    pub accessed: Vec<Access>,
    /// What the launch had to read from the device, likewise.
    pub added: Vec<Access>,
    /// What was fetched for it, likewise.
    pub fetched: Vec<Access>,
    /// Paths of inodes.
    pub paths: HashMap<InodeKey, Arc<str>>,
    /// Files that it opened.
    pub opened: Vec<PathCall>,
    /// Block requests, anybody's.
    pub requests: Vec<BlockRequest>,
    /// Requests that are not complete, by disk and first sector.
    issued: HashMap<((u32, u32), u64), usize>,
    /// All its path calls, if it is traced.
    pub profile: Option<PathProfile>,
    /// Events lost.
    pub lost: u64,
    /// How often openings were lost, by which most files are named.
    pub openings_lost: u64,
}

impl Seen {
    /// Of a launch that begins with this process, which may have children and mappings already.
    pub fn new(launch: &Launch, source: Source, profile: Option<PathProfile>) -> Self {
        let mut seen = Self {
            began: launch.began,
            own_pid: process::own_pid(),
            view: View::of([launch.root_pid]),
            sandboxes: Sandboxes::of(launch.root_pid),
            source,
            pids: HashSet::from_iter(process::tree(launch.root_pid, PROCESSES_MAX)),
            keys: Vec::new(),
            indices: HashMap::new(),
            left_out: HashSet::new(),
            accessed: Vec::new(),
            added: Vec::new(),
            fetched: Vec::new(),
            paths: HashMap::new(),
            opened: Vec::new(),
            requests: Vec::new(),
            issued: HashMap::new(),
            profile,
            lost: 0,
            openings_lost: 0,
        };
        for pid in seen.pids.clone() {
            seen.look_at(pid);
            // A process that vanished maps nothing.
            let mappings = patience::of_process(pid, move || maps::read(pid).unwrap_or_default());
            for mapping in mappings.unwrap_or_default() {
                let key = seen.view.key_of_mapped(mapping.dev, mapping.inode);
                let path = mapping.path.filter(|_| !mapping.deleted);
                if let Some(path) = path.and_then(|path| seen.path_in_root(pid, &path)) {
                    note_path(&mut seen.paths, key, &path);
                }
            }
        }
        seen
    }

    /// Takes in what the rings and the watch on openings held.
    pub fn take(&mut self, batch: &Batch, openings: &[Opening]) {
        self.lost += batch.lost;
        self.openings_lost += batch.openings_lost;
        batch.forks.iter().for_each(|fork| self.fork(fork));
        let pids: Vec<i32> = self.pids.iter().copied().collect();
        // Whoever was executed maps what it consists of.
        let maps = |pid: &&i32| batch.mapped.contains_key(pid);
        pids.iter().filter(maps).for_each(|&pid| self.look_at(pid));
        // What is mapped has its path below the root directory of its process, which may be another (chroot(2)).
        openings.iter().for_each(|opening| self.open(opening));
        for &pid in &pids {
            let mapped = batch.mapped.get(&pid).into_iter().flatten();
            mapped.for_each(|mapped| self.map(pid, mapped));
        }
        let pages = pids.iter().filter_map(|pid| batch.pages.get(pid));
        pages.flatten().for_each(|event| self.page(event));
        let fetched = batch.pages.get(&self.own_pid).into_iter().flatten();
        fetched.for_each(|event| self.fetch(event));
        batch.blocks.iter().for_each(|sample| self.block(sample));
    }

    fn fork(&mut self, fork: &Fork) {
        if fork.at < self.began {
            return;
        }
        let is_ours = self.pids.contains(&fork.parent_pid) && fork.pid != self.own_pid;
        if is_ours && self.pids.len() < PROCESSES_MAX {
            self.pids.insert(fork.pid);
        } else if !is_ours {
            // A pid of ours that was used again.
            self.pids.remove(&fork.pid);
        }
    }

    /// Looks whether a process is in a sandbox now.
    pub fn look_at(&mut self, pid: i32) {
        if let Some(mounted) = self.sandboxes.look_at(pid) {
            self.view.add(mounted);
        }
    }

    /// A path of a process, as we see it, as the launch's first process means it.
    pub fn path_in_root(&self, pid: i32, path: &Path) -> Option<String> {
        self.path_out_of(self.sandboxes.of_process(pid), path)
    }

    fn path_out_of(&self, sandbox: Option<Sandbox<'_>>, path: &Path) -> Option<String> {
        match sandbox {
            Some(sandbox) => sandbox.outside(path),
            None => self.view.in_root(path),
        }
    }

    fn map(&mut self, pid: i32, mapped: &Mapped) {
        let path = std::str::from_utf8(&mapped.path).ok();
        // Unlike ours of it, the process's own path begins at its root directory.
        if let Some(path) = path.and_then(|path| self.sandboxes.outside(pid, path)) {
            let (device, inode) = mapped.key;
            let key = self.view.key_of_mapped(device, inode);
            note_path(&mut self.paths, key, &path);
        }
    }

    fn open(&mut self, opening: &Opening) {
        if !self.pids.contains(&opening.pid) {
            return;
        }
        let Some(key) = self.view.key_of(opening) else {
            return;
        };
        let sandbox = opening.mount_id.and_then(|id| self.sandboxes.of_mount(id));
        let path = self.path_out_of(sandbox, &opening.path);
        let path = path.and_then(|path| note_path(&mut self.paths, key, &path));
        if let (Some(path), true) = (path, self.opened.len() < CALLS_MAX) {
            self.opened.push(PathCall {
                kind: CallKind::Open,
                path,
                is_found: true,
            });
        }
    }

    fn page(&mut self, event: &PageEvent) {
        let Some(access) = self.access(event) else {
            return;
        };
        match event.kind {
            FilemapKind::Added => append(&mut self.added, access),
            _ => append(&mut self.accessed, access),
        }
    }

    /// A page of the prefetch.
    fn fetch(&mut self, event: &PageEvent) {
        if event.kind == FilemapKind::Added
            && let Some(access) = self.access(event)
        {
            append(&mut self.fetched, access);
        }
    }

    fn access(&mut self, event: &PageEvent) -> Option<Access> {
        if event.at < self.began {
            return None;
        }
        let at_us = self.us(event.at);
        let file = self.index(event.key)?;
        Some(Access {
            file,
            extent: event.extent,
            at_us,
            is_demanded: event.kind == FilemapKind::Added,
            is_certain: event.kind != FilemapKind::MapPages,
        })
    }

    fn index(&mut self, key: InodeKey) -> Option<u32> {
        if let Some(&index) = self.indices.get(&key) {
            return Some(index);
        }
        // What comes later than so many files is left out of the recording too.
        if self.keys.len() == FILES_MAX {
            if self.left_out.len() < LEFT_OUT_MAX {
                self.left_out.insert(key);
            }
            return None;
        }
        let index = self.keys.len() as u32;
        self.keys.push(key);
        self.indices.insert(key, index);
        Some(index)
    }

    fn block(&mut self, sample: &BlockSample) {
        let BlockSample { at, pid, event } = *sample;
        if at < self.began {
            return;
        }
        let place = (event.disk, event.first_sector);
        match event.kind {
            BlockKind::Complete => {
                if let Some(index) = self.issued.remove(&place) {
                    self.requests[index].completed_us = Some(self.us(at));
                }
            }
            // A request that the driver could not take is issued again.
            BlockKind::Issue if self.issued.contains_key(&place) => {}
            BlockKind::Issue if event.operation == BlockOperation::Other => {}
            BlockKind::Issue if self.requests.len() < REQUESTS_MAX => {
                self.issued.insert(place, self.requests.len());
                self.requests.push(BlockRequest {
                    device: event.disk,
                    start_bytes: event.first_sector * SECTOR_BYTES,
                    len_bytes: event.sector_count * SECTOR_BYTES,
                    is_write: event.operation == BlockOperation::Write,
                    issuer: match pid {
                        pid if self.pids.contains(&pid) => Issuer::Launch,
                        pid if pid == self.own_pid => Issuer::Prefetcher,
                        _ => Issuer::Other,
                    },
                    completed_us: None,
                });
            }
            BlockKind::Issue => {}
        }
    }

    fn us(&self, at: Nanos) -> u64 {
        at.saturating_sub(self.began) / 1_000
    }

    /// Whether the launch accessed this file.
    pub fn has_accessed(&self, key: &InodeKey) -> bool {
        self.indices.contains_key(key)
    }

    /// A process of the tree that has not ended.
    pub fn living(&self) -> Option<Process> {
        self.pids.iter().find_map(|&pid| Process::open(pid).ok())
    }

    /// When the launch last needed a page, in microseconds since it began: it read the page from the device, or accessed
    /// one of its launch sequence, which may have been fetched for it, for the first time. While there is no sequence,
    /// every first access counts. Where the kernel reports insertions only, what it read itself is all that is known: that
    /// shows that it goes on, but not how long it took ([`prepage_core::launch::recording::LaunchEnd::is_of_length`]).
    pub fn last_need_us(&self, launch: &Launch) -> u64 {
        // In the order of the launch, not of the pages.
        let sequence = &launch.sequence;
        let wanted = by_key(sequence.reads.iter().filter_map(|read| {
            let file = &sequence.files.get(read.file as usize)?.file;
            Some(((file.device, file.inode), read.extent))
        }));
        let is_wanted = |access: &&Access| {
            let key = self.keys.get(access.file as usize);
            let pages = key.and_then(|key| wanted.get(key));
            let accessed = ExtentSet::from(vec![access.extent]);
            sequence.reads.is_empty()
                || pages.is_some_and(|pages| !pages.intersection(&accessed).is_empty())
        };
        let first = first_accesses(self.accessed.clone());
        let needs = first.iter().filter(is_wanted).chain(&self.added);
        needs.map(|access| access.at_us).max().unwrap_or(0)
    }
}

/// Notes the path of an inode below the launch's root directory, and returns it; `None` where it has none, or there are too many.
fn note_path(
    paths: &mut HashMap<InodeKey, Arc<str>>,
    key: InodeKey,
    path: &str,
) -> Option<Arc<str>> {
    let is_path = path.starts_with('/') && !path.starts_with("//") && !path.ends_with(" (deleted)");
    if !is_path || path.len() > PATH_BYTES_MAX {
        return None;
    }
    match paths.get(&key) {
        Some(known) if **known == *path => Some(Arc::clone(known)),
        // A file of two names: each is a path that was looked up.
        Some(_) => Some(path.into()),
        None if paths.len() < PATHS_MAX => {
            let path: Arc<str> = path.into();
            paths.insert(key, Arc::clone(&path));
            Some(path)
        }
        None => None,
    }
}

/// Appends an access. A process that reads a file page by page makes one access of it. Of pages that were mapped along
/// with others every time counts: which of them were in memory changes.
fn append(list: &mut Vec<Access>, access: Access) {
    let continues = |last: &&mut Access| last.is_certain && last.file == access.file;
    if let Some(last) = list.last_mut().filter(continues)
        && access.is_certain
    {
        let (known, new) = (&mut last.extent, access.extent);
        if known.start <= new.start && new.end() <= known.end() {
            return;
        }
        if known.end() == new.start {
            *known = Extent::between(known.start, new.end());
            return;
        }
    }
    if list.len() == ACCESSES_KEPT_MAX {
        *list = first_accesses(std::mem::take(list));
    }
    // Beyond that, only what was accessed first is kept.
    if list.len() < ACCESSES_KEPT_MAX {
        list.push(access);
    }
}
