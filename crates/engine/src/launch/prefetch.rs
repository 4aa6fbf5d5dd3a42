//! One launch's prefetch (FAST section 4.3: the application prefetcher), beside the launch.
//!
//! One thread reads the data, in the order of the plan; others open the files ahead of it, with the rights of the
//! application's owner, so that data seldom waits for the look-up of a path; further threads replay the path calls. A
//! device works best with many requests and an application waits least when few are ahead of its own: the reads in
//! flight are bounded by their bytes.
//!
//! The pages are charged to the memory control group of these threads, not to the application's.

use crate::launch::crew::Task;
use crate::launch::place::Place;
use crate::locked::locked;
use crate::observe::file_pages::cached_count;
use crate::params::FetchParams;
use crate::roots::{Found, open_version};
use prepage_core::extent::Extent;
use prepage_core::identity::FileId;
use prepage_core::launch::blocks::Device;
use prepage_core::launch::metadata::MetadataRead;
use prepage_core::launch::paths::{PathRead, PathReplay, split};
use prepage_core::launch::plan::LaunchPlan;
use prepage_core::machine::Nanos;
use prepage_kernel::block::open_by_number;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::open::{look_up_in_root, read_directory_in_root, read_link_in_root};
use prepage_kernel::page::page_size;
use prepage_kernel::process::bytes_read_by_thread;
use prepage_kernel::readahead;
use prepage_kernel::sched::{self, Policy};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Files that one prefetch keeps open. Whatever else it reads is opened for one read.
const OPEN_FILES_MAX: usize = 256;
/// Threads that open files: each waits for a directory or an inode, one after the other.
pub const OPENERS: usize = 3;
/// Scheduler slice of the thread that reads, in microseconds (6.12 and later).
const READER_SLICE_US: u64 = 100;
/// How many times `fetch.watchdog_ms` the reader waits for the first file to be opened.
const START_WAITS: u32 = 8;
/// Most entries of a directory that are listed ahead.
const ENTRIES_MAX: usize = 65_536;

/// What a prefetch did. Times are since the launch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchOutcome {
    /// When its last read was submitted, in microseconds; `None`: it ended before.
    pub submitted_us: Option<u64>,
    /// When its last read was complete, in microseconds: the pages were there. `None`: it ended before.
    pub completed_us: Option<u64>,
    /// Pages read from the device: those that were not in memory.
    pub pages: u64,
    /// Calls that read them.
    pub calls: u64,
    /// Pages of inodes and directories asked for.
    pub metadata_pages: u64,
    /// Paths replayed.
    pub paths: u64,
    /// CPU time, in microseconds.
    pub cpu_us: u64,
}

/// A launch's plan and how far it is.
#[derive(Debug)]
pub struct Prefetch {
    plan: Arc<LaunchPlan>,
    place: Arc<Place>,
    began: Nanos,
    depth_pages: u64,
    hang_max: Duration,
    /// By file: the index of its last read.
    last_reads: Vec<usize>,
    is_cancelled: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    files: Vec<Slot>,
    /// Slots that are open.
    open: usize,
    /// The file that the reader waits for.
    awaited: Option<u32>,
    tasks_left: usize,
    /// Threads that open ahead.
    openers_left: usize,
    /// Whoever opens ahead has ended, or hangs: the reader opens for itself.
    reader_opens: bool,
    reads_done: bool,
    outcome: PrefetchOutcome,
    stale_files: Vec<FileId>,
    cpu_ns: u64,
}

/// A file of the plan.
#[derive(Clone, Debug)]
enum Slot {
    New,
    /// Some thread is about it.
    Opening,
    Open(Arc<OwnedFd>),
    /// Not to be read: gone, another version, or not for this user.
    Skipped,
}

impl Prefetch {
    /// Prepares a plan for a launch that began at `began`.
    pub fn new(
        plan: Arc<LaunchPlan>,
        place: Arc<Place>,
        began: Nanos,
        params: &FetchParams,
    ) -> Self {
        let mut last_reads = vec![0; plan.files.len()];
        for (index, read) in plan.reads.iter().enumerate() {
            if let Some(last) = last_reads.get_mut(read.file as usize) {
                *last = index;
            }
        }
        Self {
            depth_pages: (params.launch_depth_bytes / page_size()).max(1),
            hang_max: Duration::from_millis(params.watchdog_ms),
            state: Mutex::new(State {
                files: vec![Slot::New; plan.files.len()],
                open: 0,
                awaited: None,
                tasks_left: 0,
                openers_left: 0,
                reader_opens: false,
                reads_done: false,
                outcome: PrefetchOutcome::default(),
                stale_files: Vec::new(),
                cpu_ns: 0,
            }),
            plan,
            place,
            began,
            last_reads,
            is_cancelled: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    /// What there is to do: the data first, since its order matters most.
    pub fn tasks(self: &Arc<Self>, path_threads: usize) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        let mut add = |work: Box<dyn FnOnce(&Self) + Send>| {
            let prefetch = Arc::clone(self);
            tasks.push(Box::new(move || prefetch.work(work)));
        };
        if !self.plan.metadata.is_empty() {
            add(Box::new(Self::read_metadata));
        }
        if !self.plan.reads.is_empty() {
            self.lock().openers_left = OPENERS;
            add(Box::new(Self::open_ahead));
            add(Box::new(Self::read));
            (1..OPENERS).for_each(|_| add(Box::new(Self::open_ahead)));
        }
        for share in split(&self.plan.paths, path_threads) {
            if !share.is_empty() {
                add(Box::new(move |prefetch| prefetch.replay(&share)));
            }
        }
        self.lock().tasks_left = tasks.len();
        tasks
    }

    /// Tasks that nobody will do.
    pub fn give_up(&self, tasks: usize) {
        self.lock().tasks_left -= tasks;
        self.changed.notify_all();
    }

    /// Ends it after the calls under way.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        // Under the lock, so that nobody who has just looked at the flag sleeps on.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Waits until everything is done, `limit` at the longest. Returns whether it is.
    pub fn wait(&self, limit: Duration) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| state.tasks_left > 0)
            .unwrap_or_else(PoisonError::into_inner);
        state.tasks_left == 0
    }

    /// What it has done so far, and which files it found changed or gone.
    pub fn outcome(&self) -> (PrefetchOutcome, Vec<FileId>) {
        let state = self.lock();
        let outcome = PrefetchOutcome {
            cpu_us: state.cpu_ns / 1_000,
            ..state.outcome
        };
        (outcome, state.stale_files.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left nothing half-done that matters here.
        locked(&self.state)
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    fn work(&self, work: Box<dyn FnOnce(&Self) + Send>) {
        let before = sched::thread_cpu_time_ns();
        work(self);
        let cpu_ns = sched::thread_cpu_time_ns().saturating_sub(before);
        let mut state = self.lock();
        state.cpu_ns += cpu_ns;
        state.tasks_left -= 1;
        drop(state);
        self.changed.notify_all();
    }

    fn open_ahead(&self) {
        self.open_in_order();
        let mut state = self.lock();
        state.openers_left -= 1;
        state.reader_opens |= state.openers_left == 0;
        drop(state);
        self.changed.notify_all();
    }

    /// Opens files in the order of their first reads.
    fn open_in_order(&self) {
        let Ok(_owner) = self.place.as_owner() else {
            return;
        };
        for read in &self.plan.reads {
            let has_to_wait = |state: &mut State| {
                state.open >= OPEN_FILES_MAX && !state.reads_done && !self.is_cancelled()
            };
            let mut state = self
                .changed
                .wait_while(self.lock(), has_to_wait)
                .unwrap_or_else(PoisonError::into_inner);
            if state.reads_done || self.is_cancelled() {
                return;
            }
            let Some(slot @ Slot::New) = state.files.get_mut(read.file as usize) else {
                continue;
            };
            *slot = Slot::Opening;
            drop(state);
            self.keep(read.file, self.open(read.file));
        }
    }

    /// Opens a file in the version that was learned, with the rights that the thread has.
    fn open(&self, file: u32) -> Option<Arc<OwnedFd>> {
        let wanted = self.plan.files.get(file as usize)?;
        if !self.place.is_local(&wanted.path) {
            return None;
        }
        match open_version(self.place.root(), wanted) {
            Found::Same(fd) => return Some(Arc::new(fd)),
            Found::Stale => self.lock().stale_files.push(wanted.clone()),
            // The profile stays.
            Found::Denied => {}
        }
        None
    }

    fn keep(&self, file: u32, opened: Option<Arc<OwnedFd>>) {
        let mut state = self.lock();
        state.open += usize::from(opened.is_some());
        state.files[file as usize] = opened.map_or(Slot::Skipped, Slot::Open);
        // Nobody else waits for a file, and to wake the reader for each takes what opens them off its core.
        let is_awaited = state.awaited == Some(file) || state.open >= OPEN_FILES_MAX;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// A file to read now: mostly it is open. `None` where it is not to be read, or hangs.
    fn file(&self, file: u32) -> Option<Arc<OwnedFd>> {
        // The reader opens nothing itself that may hang, as long as somebody else does: that hangs where it has been
        // about one file for so long. It may have to wait for a thread first.
        let is_awaited = |state: &mut State| match state.files.get(file as usize) {
            Some(Slot::Opening) => true,
            // Who opens ahead waits for the reader where there are too many, and the reader not for them.
            Some(Slot::New) => !state.reader_opens && state.open < OPEN_FILES_MAX,
            _ => false,
        };
        let mut state = self.lock();
        state.awaited = Some(file);
        for _ in 0..START_WAITS {
            let waited;
            (state, waited) = self
                .changed
                .wait_timeout_while(state, self.hang_max, is_awaited)
                .unwrap_or_else(PoisonError::into_inner);
            let is_about_one = state.files.iter().any(|s| matches!(s, Slot::Opening));
            if !waited.timed_out() || is_about_one {
                state.reader_opens |= waited.timed_out();
                break;
            }
        }
        state.awaited = None;
        match state.files.get_mut(file as usize)? {
            Slot::Open(fd) => Some(Arc::clone(fd)),
            Slot::Opening | Slot::Skipped => None,
            slot @ Slot::New => {
                *slot = Slot::Opening;
                drop(state);
                let owner = self.place.as_owner();
                let opened = owner.ok().and_then(|_owner| self.open(file));
                self.keep(file, opened.clone());
                opened
            }
        }
    }

    /// Closes a file after its last read, and before it where too many are open: then it is opened once more.
    fn close(&self, file: u32, is_last: bool) {
        let mut state = self.lock();
        let is_crowded = state.open > OPEN_FILES_MAX;
        let slot = &mut state.files[file as usize];
        let after = match is_last {
            true => Slot::Skipped,
            false if is_crowded && matches!(slot, Slot::Open(_)) => Slot::New,
            false => return,
        };
        if matches!(std::mem::replace(slot, after), Slot::Open(_)) {
            let was_full = state.open >= OPEN_FILES_MAX;
            state.open -= 1;
            drop(state);
            if was_full {
                self.changed.notify_all();
            }
        }
    }

    /// Reads the data. With a short slice, so that it runs as soon as a file is open or a read is complete, before threads that look
    /// paths up; what the kernel refuses is done without.
    fn read(&self) {
        let by_slice = |slice_us| {
            if let Ok(Policy::Other { nice, .. }) = sched::current_thread_policy() {
                let _ = sched::set_current_thread_policy(Policy::Other { nice, slice_us });
            }
        };
        by_slice(Some(READER_SLICE_US));
        self.read_in_order();
        by_slice(None);
    }

    fn read_in_order(&self) {
        let mut reader = Reader::default();
        for (index, read) in self.plan.reads.iter().enumerate() {
            if self.is_cancelled() {
                break;
            }
            if let Some(file) = self.file(read.file) {
                reader.submit(&file, read.extent);
            }
            let is_last = self.last_reads.get(read.file as usize) == Some(&index);
            self.close(read.file, is_last);
            if reader.in_flight_pages > self.depth_pages {
                reader.wait_until(self.depth_pages / 2);
            }
        }
        let submitted_us = self.now_us();
        reader.wait_for_all();
        let completed_us = self.now_us();
        let pages = reader.pages_read();
        let is_complete = !self.is_cancelled();
        let mut state = self.lock();
        state.outcome.pages = pages;
        state.outcome.calls = reader.calls;
        state.outcome.submitted_us = is_complete.then_some(submitted_us);
        state.outcome.completed_us = is_complete.then_some(completed_us);
        state.reads_done = true;
    }

    /// Reads inodes and directories by the page caches of their devices, where look-ups find them. With this process's own
    /// rights: where a device may not be opened, look-ups read for themselves.
    fn read_metadata(&self) {
        let mut devices: BTreeMap<Device, Option<Arc<OwnedFd>>> = BTreeMap::new();
        let (mut reader, mut pages) = (Reader::default(), 0);
        for MetadataRead { device, extent } in &self.plan.metadata {
            if self.is_cancelled() {
                break;
            }
            let number = rustix::fs::makedev(device.0, device.1);
            let opened = devices
                .entry(*device)
                .or_insert_with(|| Some(Arc::new(open_by_number(number).ok()?.into())));
            // No device is longer than an offset can say.
            let has_place = extent.end().checked_mul(page_size()).is_some();
            if let Some(opened) = opened.as_ref().filter(|_| has_place)
                && reader.ask(opened, *extent)
            {
                pages += extent.len;
            }
        }
        self.lock().outcome.metadata_pages = pages;
        // Who waits for all of a prefetch waits for these reads.
        reader.wait_for_all();
    }

    fn now_us(&self) -> u64 {
        monotonic_ns().saturating_sub(self.began) / 1_000
    }

    /// Replays paths, for the metadata that they read.
    fn replay(&self, paths: &[PathReplay]) {
        let Ok(_owner) = self.place.as_owner() else {
            return;
        };
        let mut replayed = 0;
        for replay in paths {
            if self.is_cancelled() {
                break;
            }
            if !self.place.is_local(&replay.path) {
                continue;
            }
            replayed += 1;
            let (root, path) = (self.place.root(), Path::new(&*replay.path));
            // Only what it leaves in the caches counts: that a path does not exist, too.
            match replay.read {
                PathRead::Stat => _ = look_up_in_root(root, path),
                PathRead::ReadLink => drop(read_link_in_root(root, path)),
                PathRead::ReadDir => drop(read_directory_in_root(root, path, ENTRIES_MAX)),
            }
        }
        self.lock().outcome.paths += replayed;
    }
}

/// The reads of one thread.
#[derive(Default)]
struct Reader {
    /// Reads submitted and not known to be complete, oldest first.
    in_flight: VecDeque<(Arc<OwnedFd>, Extent)>,
    in_flight_pages: u64,
    /// Pages that were not in memory, of the reads of which that was asked.
    pages: u64,
    calls: u64,
    sum: Sum,
}

/// What the kernel sums up of the bytes that it has devices read for a thread.
#[derive(Clone, Copy, Default)]
enum Sum {
    /// Not asked for.
    #[default]
    NotNeeded,
    /// So many bytes when the reads began that only this counts.
    Since(u64),
    /// It does not sum them up.
    Unknown,
}

impl Reader {
    /// Asks for what is not in memory.
    fn submit(&mut self, file: &Arc<OwnedFd>, extent: Extent) {
        self.submit_beyond(file, extent, cached_count(file.as_fd(), extent));
    }

    /// Asks for what is not in memory, of which that is known; else for everything, most of which may be there: then what the
    /// device reads for this thread counts, from here on for all its reads. mincore(2) says of a file that is not ours that
    /// all of it is there.
    fn submit_beyond(&mut self, file: &Arc<OwnedFd>, extent: Extent, cached: Option<u64>) {
        if let (None, Sum::NotNeeded) = (cached, self.sum) {
            self.sum = bytes_read_by_thread().map_or(Sum::Unknown, Sum::Since);
        }
        let cached = cached.unwrap_or(0);
        let is_asked = cached < extent.len && self.ask(file, extent);
        if is_asked && !matches!(self.sum, Sum::Since(_)) {
            self.pages += extent.len - cached;
        }
    }

    /// Pages that the device has read. Where nobody can say, all that were asked for.
    fn pages_read(&self) -> u64 {
        let Sum::Since(before) = self.sum else {
            return self.pages;
        };
        let bytes = bytes_read_by_thread().map_or(0, |now| now.saturating_sub(before));
        self.pages + bytes / page_size()
    }

    /// Asks for pages. Returns whether they may be in flight: a hint, and what cannot be read ahead is read on demand.
    fn ask(&mut self, file: &Arc<OwnedFd>, extent: Extent) -> bool {
        let (offset, len) = (extent.start * page_size(), extent.len * page_size());
        let is_asked = readahead::readahead(file.as_fd(), offset, len).is_ok();
        if is_asked {
            self.calls += 1;
            self.in_flight.push_back((Arc::clone(file), extent));
            self.in_flight_pages += extent.len;
        }
        is_asked
    }

    /// Waits until at most so many pages are in flight, as far as the device completes reads in their order: for the last
    /// page of the last read that has to be complete then.
    fn wait_until(&mut self, pages_max: u64) {
        let mut last = None;
        while self.in_flight_pages > pages_max {
            let Some((file, pages)) = self.in_flight.pop_front() else {
                break;
            };
            self.in_flight_pages -= pages.len;
            last = Some((file, pages.end() - 1));
        }
        if let Some((file, page)) = last {
            wait_for(&file, page);
        }
    }

    /// Waits for every page that may be in flight: a device completes in any order.
    fn wait_for_all(&mut self) {
        for (file, pages) in self.in_flight.drain(..) {
            (pages.start..pages.end()).for_each(|page| wait_for(&file, page));
        }
        self.in_flight_pages = 0;
    }
}

/// Reads a byte of a page: it is there when the read of the page is complete.
fn wait_for(file: &OwnedFd, page: u64) {
    // Behind the end of a file that was truncated meanwhile there is nothing to wait for.
    let _ = rustix::io::pread(file, &mut [0u8], page * page_size());
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::machine::{Directory, Machine};
    use prepage_kernel::testing::page_cache::drop_cache;
    use std::fs::File;

    #[test]
    fn where_the_page_cache_cannot_be_asked_what_the_device_reads_counts() {
        let (_machine, directory) = (Machine::lock(), Directory::new());
        let path = directory.file("file", 64);
        let file = Arc::new(OwnedFd::from(File::open(&path).expect("open")));
        let read = |reads: &[(u64, u64, Option<u64>)]| {
            let mut reader = Reader::default();
            for &(start, len, cached) in reads {
                reader.submit_beyond(&file, Extent::new(start, len), cached);
            }
            reader.wait_for_all();
            (reader.pages_read(), reader.calls)
        };
        drop_cache(&path);
        assert_eq!(read(&[(8, 32, None)]), (32, 1));
        assert_eq!(read(&[(8, 32, None)]), (0, 1), "it is in memory");
        assert_eq!(read(&[(32, 16, None)]), (8, 1), "half of it is");
        // Of some files it can be asked.
        drop_cache(&path);
        assert_eq!(
            read(&[(0, 4, Some(0)), (8, 4, None), (16, 4, Some(0))]),
            (12, 3)
        );
        assert_eq!(
            read(&[(0, 4, Some(4)), (8, 4, None), (24, 4, Some(0))]),
            (4, 2)
        );
    }
}
