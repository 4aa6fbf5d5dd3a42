//! One switch's fetching: the work, shared by all threads, and what came of it.

use super::headroom::Headroom;
use super::swap_layout::SwapLayout;
use crate::accounts::accountable;
use crate::locked::locked;
use crate::mailbox::Outbox;
use crate::members::Member;
use crate::roots;
use prepage_core::anon::{AnonTargets, RANKS};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::FileTargets;
use prepage_core::identity::{FileId, Instance};
use prepage_core::machine::{Event, Nanos};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_kernel::cgroup::Cgroup;
use prepage_kernel::clock::monotonic_ns;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Contiguous anonymous pages of one process.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Index into [`Job::members`].
    pub member: usize,
    /// Whether they are only brought to the swap cache, so that their use can be seen.
    pub watch: bool,
    /// Virtual pages.
    pub extent: Extent,
    /// Pages of the plan before it.
    before: u64,
}

/// A thread's share of the anonymous pages of one rank, counted over all pieces.
#[derive(Debug)]
struct Share {
    next: AtomicU64,
    end: u64,
}

/// One switch's plan, ready to be worked on.
#[derive(Debug)]
pub struct Job {
    /// The user that it counts for: whose application it is for, or who was given that user's id.
    pub owner: u32,
    /// The processes whose anonymous pages are fetched.
    pub members: Vec<Arc<Member>>,
    /// Their pages, by rank.
    pieces: Vec<Piece>,
    /// The pages of each rank that has any, counted over all pieces.
    ranks: Vec<Range<u64>>,
    /// The files, large ones first.
    pub files: Vec<JobFile>,
    /// Their pages in the order of first access: index into `files`, and pages.
    reads: Vec<(usize, Extent)>,
    reads_taken: AtomicUsize,
    /// The processes in whose root directories, and with whose rights, the files are read, the oldest first.
    pub file_members: Vec<Arc<Member>>,
    /// Where its anonymous pages are.
    pub swap: SwapLayout,
    /// Whether it goes before those that are being worked on for others.
    pub is_announced: bool,
    signalled: Nanos,
    /// For disks: the pages that a thread submits at a time, counted over all pieces.
    spans: Vec<Range<u64>>,
    spans_taken: AtomicUsize,
    /// Of each rank one share for each thread, so that two threads rarely meet in one page table, swap cluster or lock.
    shares: Vec<Vec<Share>>,
    /// The memory control groups that anonymous pages are charged to.
    groups: Vec<Cgroup>,
    /// What can still be charged to them; looked up by the first thread that asks.
    headroom: Mutex<Option<Headroom>>,
    /// Pages of the plan before the first that found no headroom: the rest is not fetched.
    end: AtomicU64,
    files_taken: Mutex<(usize, usize)>,
    cancelled: AtomicBool,
    first_fetch: AtomicU64,
    last_fetch: AtomicU64,
    done: Mutex<Fetched>,
    all_done: Condvar,
    /// What is told when all is done, and to whom.
    announcement: Option<(Outbox<Event>, Event)>,
}

/// A file of a job, opened by the first thread that needs it.
#[derive(Debug)]
pub struct JobFile {
    /// What is wanted of it.
    pub targets: FileTargets,
    opened: OnceLock<Option<OwnedFd>>,
}

impl JobFile {
    /// The open file; `open` is called once. `None` where it could not be opened, or is another version.
    pub fn fd(&self, open: impl FnOnce(&FileTargets) -> Option<OwnedFd>) -> Option<BorrowedFd<'_>> {
        let opened = self.opened.get_or_init(|| open(&self.targets));
        opened.as_ref().map(AsFd::as_fd)
    }
}

/// What a job has brought in.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Anonymous pages brought in, mapped or not, by process instance.
    pub anon: BTreeMap<Instance, ExtentSet>,
    /// Pages that had no entry in the page table: of these only shared memory may have come in.
    pub empty: BTreeMap<Instance, ExtentSet>,
    /// Of those brought in, the pages that were to be watched and were mapped all the same, to wait for reads: see
    /// [`crate::fetch::anon`].
    pub waited_on: BTreeMap<Instance, ExtentSet>,
    /// Files found updated, replaced, truncated or gone.
    pub stale_files: BTreeSet<FileId>,
    /// CPU time of the threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Threads that have not finished with the job.
    workers_left: usize,
}

impl Job {
    /// Prepares what `mode` fetches of `plan` for an application of this user's. `members` are its processes.
    pub fn new(
        owner: u32,
        plan: &Plan,
        mode: Mode,
        members: &[Arc<Member>],
        swap: SwapLayout,
        signalled: Nanos,
    ) -> Self {
        let mut job = Self {
            owner: accountable(owner),
            members: Vec::new(),
            pieces: Vec::new(),
            ranks: Vec::new(),
            files: Vec::new(),
            reads: Vec::new(),
            reads_taken: AtomicUsize::new(0),
            file_members: Vec::new(),
            swap,
            is_announced: false,
            signalled,
            spans: Vec::new(),
            spans_taken: AtomicUsize::new(0),
            shares: Vec::new(),
            groups: Vec::new(),
            headroom: Mutex::new(None),
            end: AtomicU64::new(u64::MAX),
            files_taken: Mutex::new((0, 0)),
            cancelled: AtomicBool::new(false),
            first_fetch: AtomicU64::new(0),
            last_fetch: AtomicU64::new(0),
            done: Mutex::new(Fetched::default()),
            all_done: Condvar::new(),
            announcement: None,
        };
        if mode.fetches_anon() {
            job.add_anon(plan, members);
        }
        if mode.fetches_files() {
            job.add_files(plan);
            job.file_members = roots::processes(members);
        }
        job
    }

    fn add_anon(&mut self, plan: &Plan, members: &[Arc<Member>]) {
        let mut of_members: Vec<(usize, &AnonTargets)> = Vec::new();
        for (instance, targets) in &plan.anon {
            if let Some(member) = members.iter().find(|m| m.instance == *instance) {
                of_members.push((self.members.len(), targets));
                self.members.push(Arc::clone(member));
            }
        }
        let mut before = 0;
        for rank in 0..RANKS {
            let first = before;
            for &(member, targets) in &of_members {
                for read in targets.of_rank(rank) {
                    let extent = read.extent();
                    self.pieces.push(Piece {
                        member,
                        watch: read.watch(),
                        extent,
                        before,
                    });
                    before += extent.len;
                }
            }
            if before > first {
                self.ranks.push(first..before);
            }
        }
    }

    fn add_files(&mut self, plan: &Plan) {
        let mut reads: Vec<(u8, usize, Extent)> = Vec::new();
        for (index, targets) in plan.files.iter().enumerate() {
            reads.extend(
                targets
                    .reads
                    .iter()
                    .map(|&(rank, extent)| (rank, index, extent)),
            );
            self.files.push(JobFile {
                targets: targets.clone(),
                opened: OnceLock::new(),
            });
        }
        reads.sort_unstable();
        self.reads = reads
            .into_iter()
            .map(|(_, index, extent)| (index, extent))
            .collect();
    }

    /// Whether there is nothing to fetch.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.files.is_empty()
    }

    /// Whether there are anonymous pages to fetch.
    pub fn has_anon(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Divides the anonymous pages of each rank among `threads` threads or, for a disk, all of them into spans of at most
    /// `span_pages` pages in `span_reads` reads.
    pub fn divide(&mut self, threads: usize, span_pages: u64, span_reads: usize) {
        let threads = threads.max(1) as u64;
        let share = |rank: &Range<u64>, index: u64| {
            let pages = rank.end - rank.start;
            Share {
                next: AtomicU64::new(rank.start + pages * index / threads),
                end: rank.start + pages * (index + 1) / threads,
            }
        };
        let shares = |rank| (0..threads).map(|index| share(rank, index)).collect();
        self.shares = self.ranks.iter().map(shares).collect();
        if self.swap.reads_disk {
            self.cut_into_spans(span_pages, span_reads);
        }
    }

    fn cut_into_spans(&mut self, span_pages: u64, span_reads: usize) {
        let (mut from, mut reads) = (0, 0);
        for piece in &self.pieces {
            let end = piece.before + piece.extent.len;
            reads += 1;
            while end - from >= span_pages || (reads >= span_reads && end > from) {
                let to = end.min(from + span_pages);
                self.spans.push(from..to);
                (from, reads) = (to, 0);
            }
        }
        let pages = self.all_pages();
        self.spans.extend((pages > from).then_some(from..pages));
    }

    /// Has `event` sent to `outbox` when every thread has finished.
    pub fn announce_end(&mut self, outbox: Outbox<Event>, event: Event) {
        self.announcement = Some((outbox, event));
    }

    /// Has no more anonymous pages fetched than these memory control groups have headroom for.
    pub fn keep_within(&mut self, groups: Vec<Cgroup>) {
        self.groups = groups;
    }

    /// Has no more than the plan's first `pages` anonymous pages fetched.
    pub fn keep_below(&mut self, pages: u64) {
        self.end.fetch_min(pages, Ordering::Relaxed);
    }

    /// Its anonymous pages.
    fn all_pages(&self) -> u64 {
        self.pieces.last().map_or(0, |p| p.before + p.extent.len)
    }

    /// Anonymous pages that its threads have yet to take up, and may.
    pub fn left_pages(&self) -> u64 {
        let end = self.all_pages().min(self.end.load(Ordering::Relaxed));
        end.saturating_sub(self.taken_pages())
    }

    /// Anonymous pages taken up by its threads.
    pub fn taken_pages(&self) -> u64 {
        let left = |share: &Share| share.end.saturating_sub(share.next.load(Ordering::Relaxed));
        let all = self.all_pages();
        match self.spans.get(self.spans_taken.load(Ordering::Relaxed)) {
            Some(span) if self.swap.reads_disk => span.start,
            _ if self.swap.reads_disk => all,
            _ => all - self.shares.iter().flatten().map(left).sum::<u64>(),
        }
    }

    /// Whether there is headroom for `pages` pages, about to be brought in, of a piece. If not, neither it nor what comes
    /// after it in the plan is fetched: above a limit the kernel takes away what the application uses, or kills it.
    pub fn admit(&self, piece: &Piece, pages: u64) -> bool {
        let admitted = locked(&self.headroom)
            .get_or_insert_with(|| Headroom::of(&self.groups))
            .take(pages);
        if !admitted {
            self.end.fetch_min(piece.before, Ordering::Relaxed);
        }
        admitted
    }

    /// Whether thread number `thread` leaves what is left to the first one: where each page that comes in pushes out
    /// another, threads stand in each other's way, and in the application's, which reclaims as well.
    fn leaves_rest(&self, thread: usize) -> bool {
        let is_used_up = || {
            locked(&self.headroom)
                .as_ref()
                .is_some_and(Headroom::is_used_up)
        };
        thread > 0 && is_used_up()
    }

    /// It is gone on with after others were worked on: what they were fetched has to be counted.
    pub fn resume(&self) {
        *locked(&self.headroom) = None;
    }

    /// Takes the next span, to be submitted to the swap device by thread number `thread`; empty when all are taken.
    pub fn take_to_submit(&self, thread: usize) -> Vec<Piece> {
        if self.leaves_rest(thread) {
            return Vec::new();
        }
        let index = self.spans_taken.fetch_add(1, Ordering::Relaxed);
        let span = self.spans.get(index);
        span.map_or_else(Vec::new, |span| self.pieces_of(span.start, span.end))
    }

    /// Takes the next `pages` pages to be brought in, at most: of the first rank that has any left, of thread number
    /// `thread`'s share and then of the others'; empty when all are taken.
    pub fn take_to_map(&self, thread: usize, pages: u64) -> Vec<Piece> {
        if self.leaves_rest(thread) {
            return Vec::new();
        }
        let in_turn = |shares: &Vec<Share>| {
            let count = shares.len();
            (0..count).find_map(|turn| {
                let share = &shares[(thread + turn) % count];
                let taken = self.take(&share.next, pages, share.end);
                (!taken.is_empty()).then_some(taken)
            })
        };
        self.shares.iter().find_map(in_turn).unwrap_or_default()
    }

    fn take(&self, next: &AtomicU64, pages: u64, end: u64) -> Vec<Piece> {
        if next.load(Ordering::Relaxed) >= end {
            return Vec::new();
        }
        let from = next.fetch_add(pages, Ordering::Relaxed);
        self.pieces_of(from, from.saturating_add(pages).min(end))
    }

    /// The pieces, and parts of pieces, of these pages; none where the job is cancelled, and none that found no headroom.
    fn pieces_of(&self, from: u64, to: u64) -> Vec<Piece> {
        let to = to.min(self.end.load(Ordering::Relaxed));
        if from >= to || self.is_cancelled() {
            return Vec::new();
        }
        let first = self
            .pieces
            .partition_point(|p| p.before + p.extent.len <= from);
        let mut taken = Vec::new();
        for piece in self.pieces[first..].iter().take_while(|p| p.before < to) {
            let skip = from.saturating_sub(piece.before);
            let end = piece.extent.len.min(to - piece.before);
            taken.push(Piece {
                extent: Extent::between(piece.extent.start + skip, piece.extent.start + end),
                before: piece.before + skip,
                ..*piece
            });
        }
        taken
    }

    /// Takes a file: the largest left, or the smallest left. The file is the unit of work (ASAP section 5.2).
    pub fn take_file(&self, largest: bool) -> Option<&JobFile> {
        let mut taken = locked(&self.files_taken);
        if self.is_cancelled() || taken.0 + taken.1 >= self.files.len() {
            return None;
        }
        if largest {
            taken.0 += 1;
            return self.files.get(taken.0 - 1);
        }
        taken.1 += 1;
        self.files.get(self.files.len() - taken.1)
    }

    /// Takes the next read in the order of first access.
    pub fn take_read(&self) -> Option<(&JobFile, Extent)> {
        if self.is_cancelled() {
            return None;
        }
        let index = self.reads_taken.fetch_add(1, Ordering::Relaxed);
        let &(file, extent) = self.reads.get(index)?;
        Some((self.files.get(file)?, extent))
    }

    /// Whether the switch is over: what is left is not fetched.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Ends fetching after the calls under way.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Notes that a fetch begins.
    pub fn note_begin(&self) {
        if self.first_fetch.load(Ordering::Relaxed) == 0 {
            let now = monotonic_ns();
            // Another thread was first where this fails.
            let _ = self
                .first_fetch
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Sets how many threads will call [`Job::finish`].
    pub fn expect_workers(&self, workers: usize) {
        locked(&self.done).workers_left = workers;
        if workers == 0 {
            self.announce();
        }
    }

    /// Takes what one thread has done so far.
    pub fn put(&self, part: Part) {
        let mut done = locked(&self.done);
        self.add(&mut done.anon, part.anon);
        self.add(&mut done.empty, part.empty);
        self.add(&mut done.waited_on, part.waited_on);
        done.stale_files.extend(part.stale_files);
        done.cpu_ns += part.cpu_ns;
    }

    /// Takes one thread's last results.
    pub fn finish(&self, part: Part) {
        self.last_fetch.fetch_max(monotonic_ns(), Ordering::Relaxed);
        self.put(part);
        let mut done = locked(&self.done);
        done.workers_left = done.workers_left.saturating_sub(1);
        if done.workers_left == 0 {
            self.all_done.notify_all();
            self.announce();
        }
    }

    fn announce(&self) {
        if let Some((outbox, event)) = &self.announcement {
            outbox.send(event.clone());
        }
    }

    fn add(&self, all: &mut BTreeMap<Instance, ExtentSet>, part: BTreeMap<usize, ExtentSet>) {
        for (member, pages) in part {
            let set = all.entry(self.members[member].instance).or_default();
            *set = set.union(&pages);
        }
    }

    /// Waits until every thread has finished, `limit` at the longest, and takes the results. A thread that hangs
    /// in a call is not waited for longer: what it has done is unknown.
    pub fn take_fetched(&self, limit: Duration) -> Fetched {
        let done = locked(&self.done);
        let (mut done, _) = self
            .all_done
            .wait_timeout_while(done, limit, |done| done.workers_left > 0)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *done)
    }

    /// From the signal to the first fetch, and to the end of the last, in microseconds; 0 where nothing was
    /// fetched.
    pub fn times_us(&self) -> (u64, u64) {
        let since = |at: &AtomicU64| match at.load(Ordering::Relaxed) {
            0 => 0,
            at => at.saturating_sub(self.signalled) / 1_000,
        };
        (since(&self.first_fetch), since(&self.last_fetch))
    }
}

/// What one thread has done for a job.
#[derive(Debug, Default)]
pub struct Part {
    /// Anonymous pages brought in, by index into [`Job::members`].
    pub anon: BTreeMap<usize, ExtentSet>,
    /// Pages that had no entry in the page table.
    pub empty: BTreeMap<usize, ExtentSet>,
    /// Of those brought in, the pages that were to be watched and were mapped, to wait for reads.
    pub waited_on: BTreeMap<usize, ExtentSet>,
    /// Files found changed.
    pub stale_files: Vec<FileId>,
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
}
