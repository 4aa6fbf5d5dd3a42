//! What a thread does to fetch anonymous pages (ASAP section 5.1).
//!
//! On zram the cores decompress: a page is brought in and mapped at once. On a disk, reads must be in flight
//! first: a span is submitted, then the span before it is mapped, which waits for its reads. So each thread has two
//! spans in flight: enough to keep the device busy, and few enough that a read which the application waits for is not
//! held up by the whole plan. A page that zswap holds in front of a disk goes the disk's way, since pagemap cannot tell
//! it apart, and costs one pass over the swap cache more.

use crate::fetch::heart::Heart;
use crate::fetch::job::{Job, Part, Piece};
use crate::members::Member;
use crate::params::FetchParams;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_kernel::pagemap::PageEntry;
use prepage_kernel::{process_madvise, process_vm, sched};
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages brought in by one thread, by member, not yet in order.
type Brought = Vec<(usize, Extent)>;

/// Works on the job's anonymous pages, as thread number `thread` of those that do, until all are taken.
pub fn fetch(job: &Job, thread: usize, params: &FetchParams, heart: &Heart, part: &mut Part) {
    let mut worker = Worker {
        job,
        thread,
        params,
        heart,
        entries: Vec::new(),
        brought: Vec::new(),
        since_pause: 0,
    };
    match job.swaps_to_disk {
        true => worker.submit_and_bring_all(),
        false => worker.bring_all(),
    }
    let mut extents: BTreeMap<usize, Vec<Extent>> = BTreeMap::new();
    for (member, extent) in worker.brought {
        extents.entry(member).or_default().push(extent);
    }
    for (member, extents) in extents {
        part.anon.insert(member, ExtentSet::from(extents));
    }
}

struct Worker<'a> {
    job: &'a Job,
    thread: usize,
    params: &'a FetchParams,
    heart: &'a Heart,
    entries: Vec<PageEntry>,
    brought: Brought,
    since_pause: u64,
}

impl Worker<'_> {
    /// For disks: submits one span ahead of the span that it brings in.
    fn submit_and_bring_all(&mut self) {
        let mut submitted = Vec::new();
        loop {
            let span = self.job.take_to_submit(self.params.disk_span_pages);
            if span.is_empty() && submitted.is_empty() {
                return;
            }
            self.job.note_begin();
            self.heart.beat();
            let admitted = span.into_iter().take_while(|piece| self.submit(piece));
            let admitted = admitted.collect();
            for piece in std::mem::replace(&mut submitted, admitted) {
                self.bring(&piece);
            }
            self.pause_after(self.params.disk_span_pages);
        }
    }

    /// Has the reads of one piece begin, mapping nothing. Returns whether there is headroom for them.
    fn submit(&mut self, piece: &Piece) -> bool {
        let member = &self.job.members[piece.member];
        let ranges = self.absent(member, piece.extent);
        let admitted = self.job.admit(piece, pages_in(&ranges));
        if admitted {
            // A process that ends meanwhile, or a region that is gone: nothing left to bring in.
            let _ = process_madvise::willneed(member.process.pidfd(), &ranges);
        }
        admitted
    }

    fn bring_all(&mut self) {
        loop {
            let pieces = self
                .job
                .take_to_map(self.thread, self.params.anon_batch_pages);
            if pieces.is_empty() {
                return;
            }
            self.job.note_begin();
            self.heart.beat();
            for piece in pieces {
                self.bring(&piece);
            }
            self.pause_after(self.params.anon_batch_pages);
        }
    }

    /// Brings in one piece: pages that are present are skipped.
    fn bring(&mut self, piece: &Piece) {
        let member = &self.job.members[piece.member];
        let absent = self.absent(member, piece.extent);
        if absent.is_empty() {
            return;
        }
        // Swapped shmem has no swap entry in the page table. Reading it would allocate where it has a hole;
        // MADV_WILLNEED brings in only what exists.
        let swapped: Vec<Range<u64>> = runs(piece.extent, &self.entries, |e| e.swapped());
        // What goes to a disk was admitted when it was submitted.
        if !self.job.swaps_to_disk && !self.job.admit(piece, pages_in(&absent)) {
            return;
        }
        if piece.watch || swapped.is_empty() {
            let _ = process_madvise::willneed(member.process.pidfd(), &absent);
            self.note(piece.member, &absent);
            return;
        }
        let pages: Vec<u64> = swapped.into_iter().flatten().collect();
        let mut rest = pages.as_slice();
        while !rest.is_empty() && !self.job.is_cancelled() {
            let Ok(read) = process_vm::touch(member.instance.pid, rest) else {
                break;
            };
            let done: Vec<Range<u64>> = rest[..read].iter().map(|&p| p..p + 1).collect();
            self.note(piece.member, &done);
            // A short call stopped at a page that cannot be read: go on behind it.
            rest = rest.get(read + 1..).unwrap_or_default();
        }
    }

    /// Ranges of the extent's pages that are not mapped.
    fn absent(&mut self, member: &Member, extent: Extent) -> Vec<Range<u64>> {
        self.entries.clear();
        self.entries
            .resize(extent.len as usize, PageEntry::default());
        match member.pagemap.read(extent.start, &mut self.entries) {
            Ok(read) => self.entries.truncate(read),
            Err(_) => self.entries.clear(),
        }
        runs(extent, &self.entries, |e| !e.present())
    }

    fn note(&mut self, member: usize, ranges: &[Range<u64>]) {
        for range in ranges {
            match self.brought.last_mut() {
                Some((last, extent)) if *last == member && extent.end() == range.start => {
                    extent.len += range.end - range.start;
                }
                _ => self
                    .brought
                    .push((member, Extent::between(range.start, range.end))),
            }
        }
    }

    /// Lets the application have its address space's lock.
    fn pause_after(&mut self, pages: u64) {
        self.since_pause += pages;
        if self.since_pause >= self.params.pace_pages && self.params.pace_us > 0 {
            self.since_pause = 0;
            sched::sleep_us(self.params.pace_us);
        }
    }
}

fn pages_in(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// The runs of pages of `extent` whose entry satisfies `wanted`.
fn runs(
    extent: Extent,
    entries: &[PageEntry],
    wanted: impl Fn(PageEntry) -> bool,
) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (page, &entry) in (extent.start..).zip(entries) {
        if !wanted(entry) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}
