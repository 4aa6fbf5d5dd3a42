//! What a thread does to fetch anonymous pages (ASAP section 5.1).
//!
//! On zram the cores decompress: a page is brought in and mapped at once. On a disk, reads must be in flight
//! first: a span is submitted, then the span before it is mapped, which waits for its reads. So each thread has two
//! spans in flight: enough to keep the device busy, and few enough that a read which the application waits for is not
//! held up by the whole plan. Pages that are only watched are not mapped and so not waited for: of a span that holds no
//! others, the last one is mapped all the same, which waits for the reads before it.
//!
//! Where zram is in front of a disk, each page goes its own way, by the swap area that its entry in the page table names: those in
//! zram are not submitted, and wait for nothing.
//!
//! A page that zswap holds in front of a disk goes the disk's way, since pagemap cannot tell it apart, and costs one pass
//! over the swap cache more.

use crate::fetch::heart::Heart;
use crate::fetch::job::{Job, Part, Piece};
use crate::fetch::pool::GoesFirst;
use crate::fetch::shared::SharedMemory;
use crate::params::FetchParams;
use prepage_core::extent::{Extent, ExtentSet, by_key};
use prepage_kernel::pagemap::PageEntry;
use prepage_kernel::process_madvise::{self, Advice};
use prepage_kernel::{process_vm, sched};
use std::ops::Range;

/// Pages of one thread, by member, not yet in order.
type Pages = Vec<(usize, Extent)>;

/// Pages of one process, of some pieces of the plan, that were not mapped when they were looked at.
#[derive(Debug, Default)]
struct Absent {
    member: usize,
    /// To be mapped.
    map: Vec<Range<u64>>,
    /// To be brought to the swap cache only.
    watch: Vec<Range<u64>>,
    /// Of both, those that a disk has to read.
    on_disk: Vec<Range<u64>>,
    /// Shared memory that is swapped out, to be mapped.
    shared: Vec<Range<u64>>,
    /// Of pieces none of whose pages has an entry in the page table: shared memory that was swapped out, or nothing. To be
    /// brought to the swap cache only.
    empty: Vec<Range<u64>>,
    /// Without an entry, beside pages that are swapped out: given back to the kernel (MADV_DONTNEED).
    holes: Vec<Range<u64>>,
    /// The last to be watched that is private and on a disk: it may be mapped, to wait for the others.
    last_on_disk: Option<u64>,
}

impl Absent {
    /// Whether all pages were mapped.
    fn is_none(&self) -> bool {
        let all = [&self.map, &self.watch, &self.shared, &self.empty];
        all.iter().all(|pages| pages.is_empty())
    }
}

impl Window {
    /// The entries of a piece; `None` where it is not within the window.
    fn of(&self, piece: &Piece) -> Option<&[PageEntry]> {
        let from = piece.extent.start.checked_sub(self.first_page)? as usize;
        let entries = self.entries.get(from..from + piece.extent.len as usize)?;
        (self.member == piece.member).then_some(entries)
    }
}

/// Works on the job's anonymous pages, as thread number `thread` of those that do, until all are taken, or another job goes
/// first. Returns whether all are taken.
pub fn fetch(
    job: &Job,
    thread: usize,
    params: &FetchParams,
    heart: &Heart,
    first: &GoesFirst,
    part: &mut Part,
) -> bool {
    let mut worker = Worker {
        job,
        thread,
        params,
        heart,
        first,
        window: Window::default(),
        shared: SharedMemory::default(),
        brought: Vec::new(),
        empty: Vec::new(),
        waited_on: Vec::new(),
        since_pause: 0,
        has_paused: false,
    };
    let is_done = match job.swap.reads_disk {
        true => worker.submit_and_bring_all(),
        false => worker.bring_all(),
    };
    part.anon = by_key(worker.brought);
    part.empty = by_key(worker.empty);
    part.waited_on = by_key(worker.waited_on);
    is_done
}

struct Worker<'a> {
    job: &'a Job,
    thread: usize,
    params: &'a FetchParams,
    heart: &'a Heart,
    first: &'a GoesFirst,
    window: Window,
    shared: SharedMemory,
    brought: Pages,
    empty: Pages,
    waited_on: Pages,
    since_pause: u64,
    /// Since the pages were looked at, or their address space was last found to be the process's.
    has_paused: bool,
}

/// What the page table says of pages that follow each other in one process.
#[derive(Debug, Default)]
struct Window {
    member: usize,
    first_page: u64,
    entries: Vec<PageEntry>,
}

/// Pages that a window spans at most: their entries are one page table's.
const WINDOW_PAGES: u64 = 512;

/// Pages that are looked at together at most, where those before them were all in.
const LOOK_PAGES_MAX: u64 = 1_024;

impl Worker<'_> {
    /// For disks: submits one span ahead of the span that it brings in.
    fn submit_and_bring_all(&mut self) -> bool {
        let mut submitted = Vec::new();
        loop {
            let is_last = self.first.is_any();
            let mut span = match is_last {
                true => Vec::new(),
                false => self.job.take_to_submit(self.thread),
            };
            if span.is_empty() && submitted.is_empty() {
                return !is_last;
            }
            self.job.note_begin();
            self.heart.beat();
            for absent in self.admitted(&mut span) {
                self.read_ahead(absent.member, &absent.on_disk);
                self.read_ahead(absent.member, &absent.shared);
                self.read_ahead(absent.member, &absent.empty);
            }
            for absent in self.absent(&submitted) {
                self.bring(&absent);
                self.wait_for(&absent);
            }
            submitted = span;
        }
    }

    fn bring_all(&mut self) -> bool {
        let mut look_pages = self.params.anon_batch_pages;
        loop {
            if self.first.is_any() {
                return false;
            }
            let mut pieces = self.job.take_to_map(self.thread, look_pages);
            if pieces.is_empty() {
                return true;
            }
            self.job.note_begin();
            self.heart.beat();
            let all = self.admitted(&mut pieces);
            all.iter().for_each(|absent| self.bring(absent));
            // Where all is in, to look at it is what it costs.
            look_pages = match all.iter().all(Absent::is_none) {
                true => (look_pages * 2).min(LOOK_PAGES_MAX),
                false => self.params.anon_batch_pages,
            };
        }
    }

    /// Brings pages in, and maps those that are to be mapped.
    fn bring(&mut self, absent: &Absent) {
        self.read_ahead(absent.member, &absent.watch);
        for range in &absent.watch {
            note(&mut self.brought, absent.member, range.clone());
            self.pause_after(range.end - range.start);
        }
        self.read_ahead(absent.member, &absent.empty);
        for range in absent.empty.iter().chain(&absent.holes) {
            note(&mut self.empty, absent.member, range.clone());
            self.pause_after(range.end - range.start);
        }
        let mapped = absent.map.iter().chain(&absent.shared);
        let pages: Vec<u64> = mapped.cloned().flatten().collect();
        let pid = self.job.members[absent.member].instance.pid;
        let mut rest = pages.as_slice();
        while !rest.is_empty() && !self.job.is_cancelled() {
            self.heart.beat();
            let batch = &rest[..rest.len().min(self.params.anon_batch_pages as usize)];
            let member = &self.job.members[absent.member];
            if std::mem::take(&mut self.has_paused) && !member.pagemap.is_of_living() {
                break;
            }
            let Ok(read) = process_vm::touch(pid, batch) else {
                break;
            };
            for &page in &batch[..read] {
                note(&mut self.brought, absent.member, page..page + 1);
            }
            // A short call stopped at a page that cannot be read: go on behind it.
            rest = rest
                .get(read + usize::from(read < batch.len())..)
                .unwrap_or_default();
            self.pause_after(read as u64);
        }
    }

    /// Waits for the reads of pages none of which was mapped, by mapping the last one.
    fn wait_for(&mut self, absent: &Absent) {
        if let (true, Some(page)) = (absent.map.is_empty(), absent.last_on_disk) {
            let pid = self.job.members[absent.member].instance.pid;
            if process_vm::touch(pid, &[page]).is_ok_and(|read| read == 1) {
                note(&mut self.waited_on, absent.member, page..page + 1);
            }
        }
    }

    /// Has the reads of pages begin, mapping nothing.
    fn read_ahead(&self, member: usize, ranges: &[Range<u64>]) {
        if ranges.is_empty() {
            return;
        }
        let pidfd = self.job.members[member].process.pidfd();
        // A process that ends meanwhile, or a region that is gone: nothing left to bring in.
        let _ = process_madvise::advise_all(pidfd, Advice::WillNeed, ranges);
    }

    /// The absent pages of those of the pieces that there is headroom for; the others are removed.
    fn admitted(&mut self, pieces: &mut Vec<Piece>) -> Vec<Absent> {
        let mut all = Vec::new();
        self.window.entries.clear();
        self.has_paused = false;
        for index in 0..pieces.len() {
            let pages = self.look(&pieces[index..], &mut all);
            if !self.job.admit(&pieces[index], pages) {
                pieces.truncate(index);
                return self.absent(pieces);
            }
        }
        all
    }

    /// The absent pages of these pieces.
    fn absent(&mut self, pieces: &[Piece]) -> Vec<Absent> {
        let mut all = Vec::new();
        self.window.entries.clear();
        self.has_paused = false;
        for index in 0..pieces.len() {
            self.look(&pieces[index..], &mut all);
        }
        all
    }

    /// Reads the page table at the first of these pieces, with those behind it that are near.
    fn read_window(&mut self, pieces: &[Piece]) {
        let Some(first) = pieces.first() else { return };
        let start = first.extent.start;
        let is_near = |piece: &&Piece| {
            let end = piece.extent.end();
            piece.member == first.member && (start..=start + WINDOW_PAGES).contains(&end)
        };
        let last = pieces.iter().take_while(is_near).last().unwrap_or(first);
        let entries = &mut self.window.entries;
        entries.clear();
        entries.resize((last.extent.end() - start) as usize, PageEntry::default());
        let read = self.job.members[first.member].pagemap.read(start, entries);
        entries.truncate(read.unwrap_or(0));
        (self.window.member, self.window.first_page) = (first.member, start);
    }

    /// Adds those pages of the first of these pieces that are not mapped. Returns how many they are.
    fn look(&mut self, pieces: &[Piece], all: &mut Vec<Absent>) -> u64 {
        let Some(piece) = pieces.first() else {
            return 0;
        };
        if self.window.of(piece).is_none() {
            self.read_window(pieces);
        }
        // Short where the process has ended meanwhile.
        let entries = self.window.of(piece).unwrap_or_default();
        if all.last().is_none_or(|last| last.member != piece.member) {
            all.push(Absent {
                member: piece.member,
                ..Absent::default()
            });
        }
        let Some(absent) = all.last_mut() else {
            return 0;
        };
        if !entries.iter().any(|entry| entry.swapped()) {
            let mut runs = Vec::new();
            let pages = add_runs(&mut runs, piece.extent, entries, |e| !e.present());
            self.sort_empty(piece, runs, absent);
            return pages;
        }
        add_runs(&mut absent.holes, piece.extent, entries, |e| {
            !e.present() && !e.swapped()
        });
        let runs = match piece.watch {
            true => &mut absent.watch,
            false => &mut absent.map,
        };
        let is_on_disk = |entry| self.job.swap.is_on_disk(entry);
        add_runs(&mut absent.on_disk, piece.extent, entries, is_on_disk);
        let last = absent.on_disk.last().map(|run| run.end - 1);
        let is_ours = |page: &u64| piece.watch && *page >= piece.extent.start;
        absent.last_on_disk = last.filter(is_ours).or(absent.last_on_disk);
        add_runs(runs, piece.extent, entries, |e| e.swapped())
    }

    /// Adds pages of a piece none of which has an entry in the page table. Swapped shmem has none. To read it would allocate where
    /// its object has a hole, so that the object is asked; MADV_WILLNEED brings in only what exists.
    fn sort_empty(&mut self, piece: &Piece, runs: Vec<Range<u64>>, absent: &mut Absent) {
        let member = &self.job.members[piece.member];
        for run in runs {
            let run = Extent::between(run.start, run.end);
            let out = match piece.watch {
                true => ExtentSet::new(),
                false => self.shared.swapped_out(member, run),
            };
            let rest = ExtentSet::from(vec![run]).difference(&out);
            absent.shared.extend(ranges(&out));
            absent.empty.extend(ranges(&rest));
        }
    }

    /// Lets the application have its address space's lock.
    fn pause_after(&mut self, pages: u64) {
        self.since_pause += pages;
        if self.since_pause >= self.params.pace_pages && self.params.pace_us > 0 {
            self.since_pause = 0;
            self.has_paused = true;
            sched::sleep_us(self.params.pace_us);
        }
    }
}

fn ranges(set: &ExtentSet) -> impl Iterator<Item = Range<u64>> {
    set.extents().iter().map(|e| e.start..e.end())
}

/// Adds pages of a member, joining those that follow each other.
fn note(pages: &mut Pages, member: usize, range: Range<u64>) {
    match pages.last_mut() {
        Some((last, extent)) if *last == member && extent.end() == range.start => {
            extent.len += range.end - range.start;
        }
        _ => pages.push((member, Extent::between(range.start, range.end))),
    }
}

/// Adds the runs of pages of `extent` whose entry satisfies `wanted`. Returns the number of pages.
fn add_runs(
    runs: &mut Vec<Range<u64>>,
    extent: Extent,
    entries: &[PageEntry],
    wanted: impl Fn(PageEntry) -> bool,
) -> u64 {
    let mut pages = 0;
    for (page, &entry) in (extent.start..).zip(entries) {
        if !wanted(entry) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => runs.push(page..page + 1),
        }
        pages += 1;
    }
    pages
}
