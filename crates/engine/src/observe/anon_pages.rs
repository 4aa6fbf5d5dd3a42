//! What the page table says of a process's anonymous pages at the end of a switch: the paper's access logging (ASAP
//! section 4.3), without clearing access bits.
//!
//! A page that was brought to the swap cache and not mapped shows its use exactly: it is present where the
//! application touched it, and still a swap entry where it did not. A page that prepaging mapped shows nothing. A
//! page that was not prepaged and is known was not used where it is still swapped out; where it is present, it faulted
//! (and is in the fault buffer) or was resident all along.
//!
//! All this holds only while nothing is reclaimed: a page that was used and swapped out again looks like one that was not.
//! What share of the pages used went that way, those show that were in memory for certain, because the application
//! faulted on them or prepaging mapped them. The kernel counts reclaim by control group in v2 alone, and an application's
//! oldest pages may well make room for its new ones without harm to what is learned. Where there are no such pages (all
//! is watched, and the application faults on nothing), reclaim does not show.
//!
//! A page that had no entry when it was to be brought in is one of shared memory that was swapped out, or was given back to the
//! kernel and not there: such a page is not fetched, and if the application has touched it since, it is a new one.

use crate::members::Member;
use crate::observe::shared::used_by_others;
use prepage_core::anon::{AnonObservation, AnonTargets};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_kernel::maps::Mapping;
use prepage_kernel::pagemap::PageEntry;
use prepage_kernel::procmap;

/// Pages of one process by what its page table says.
#[derive(Debug, Default)]
struct Table {
    private: ExtentSet,
    shared: ExtentSet,
    swapped: ExtentSet,
    absent: ExtentSet,
}

/// What is asked about one process.
#[derive(Debug)]
pub struct Question<'a> {
    /// The process.
    pub member: &'a Member,
    /// Pages of its tables.
    pub known: &'a ExtentSet,
    /// Pages that were planned.
    pub planned: &'a AnonTargets,
    /// Pages that were brought in, mapped or not.
    pub fetched: &'a ExtentSet,
    /// Pages that had no entry in the page table when they were to be brought in.
    pub empty: &'a ExtentSet,
    /// Of those brought in, the pages that were to be watched and were mapped all the same: they show nothing.
    pub waited_on: &'a ExtentSet,
    /// Pages of demand faults: anonymous and file.
    pub faulted: ExtentSet,
}

/// The answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// What the estimator learns from.
    pub observation: AnonObservation,
    /// Pages that were in memory for certain: demand faults, and what prepaging mapped.
    pub were_present: u64,
    /// Those of them that are swapped out again.
    pub reclaimed: u64,
}

/// Answers from the page table.
pub fn observe(question: Question<'_>) -> Answer {
    let Question {
        member,
        known,
        planned,
        fetched,
        empty,
        waited_on,
        faulted,
    } = question;
    let asked = fetched.union(empty);
    let planned_all = planned.all();
    let interest = known.union(&planned_all).union(&faulted).union(&asked);
    let table = read_table(member, &interest);
    let Shmem {
        pages: shmem,
        used_by_others,
    } = look_for_shmem(member, &table, &faulted, &asked);
    let fetched = fetched.union(&empty.intersection(&shmem));
    let anonymous = table.private.union(&table.swapped).union(&shmem);
    let faulted = faulted.intersection(&anonymous);

    // Shared memory that was not to be watched was mapped, and shows nothing, unless it was in its object already, as what was
    // brought in for another process of the application.
    let to_be_watched = planned.watch();
    let unmapped = shmem.intersection(empty);
    let always_shown = unmapped.difference(&to_be_watched);
    let watched = to_be_watched.difference(waited_on).union(&unmapped);
    let present = table.private.union(&table.shared).union(&used_by_others);
    // Brought in, and gone from the address space since: no page of ours any more.
    let gone = table.absent.difference(&shmem);
    let fetched_now = fetched.difference(&gone);
    let used = fetched_now.intersection(&watched).intersection(&present);
    let out = table
        .swapped
        .union(&table.absent)
        .difference(&used_by_others);
    let fetched_unused = fetched_now.intersection(&watched).intersection(&out);
    let not_fetched_unused = known
        .union(&planned_all)
        .difference(&fetched_now)
        .intersection(&out);
    let new = empty.intersection(&table.private);
    let mapped = fetched_now.difference(&watched).difference(&shmem);
    let were_present = mapped.union(&faulted);
    Answer {
        were_present: were_present.pages(),
        reclaimed: were_present.intersection(&table.swapped).pages(),
        observation: AnonObservation {
            unused: fetched_unused
                .union(&not_fetched_unused)
                .union(&new)
                .difference(&faulted),
            // A page that was fetched after the application had faulted on it was overtaken, and its fault is what is
            // known of it.
            used: used.difference(&faulted),
            always_shown,
            fetched: fetched_now.difference(&faulted),
            faulted,
            order: Vec::new(),
        },
    }
}

/// Gap, in pages, up to which two extents are read from pagemap in one call.
const READ_GAP_PAGES: u64 = 128;

/// Most pages read in one call.
const READ_PAGES_MAX: u64 = 8192;

fn read_table(member: &Member, interest: &ExtentSet) -> Table {
    let mut table = Table::default();
    let mut entries = Vec::new();
    let (spans, _) = interest.merged(READ_GAP_PAGES, &ExtentSet::new());
    for span in spans.extents() {
        for Extent { start, len } in span.pieces(READ_PAGES_MAX) {
            entries.clear();
            entries.resize(len as usize, PageEntry::default());
            // A process that has ended has no pages.
            let read = member.pagemap.read(start, &mut entries).unwrap_or(0);
            for (page, entry) in (start..).zip(&entries[..read]) {
                table.sort(page, *entry);
            }
        }
    }
    for set in [
        &mut table.private,
        &mut table.shared,
        &mut table.swapped,
        &mut table.absent,
    ] {
        *set = set.intersection(interest);
    }
    table
}

impl Table {
    fn sort(&mut self, page: u64, entry: PageEntry) {
        let set = match (entry.present(), entry.swapped()) {
            (true, _) if entry.file_or_shared() => &mut self.shared,
            (true, _) => &mut self.private,
            (false, true) => &mut self.swapped,
            (false, false) => &mut self.absent,
        };
        set.push_back(Extent::new(page, 1));
    }
}

/// Fewer pages in doubt than this are not looked into: to read a large process's mappings, where the kernel cannot be
/// asked for single ones, takes as long as a hundred demand faults.
const DOUBTFUL_PAGES_MIN: u64 = 32;

/// Pages in question that are shared memory (shmem, memfd): swapped out, they have no entry in the page table.
#[derive(Debug, Default)]
struct Shmem {
    pages: ExtentSet,
    /// Of those that were to be brought in and that the process does not map: they are there, others having touched them.
    used_by_others: ExtentSet,
}

/// The mappings are read only where the page table leaves a doubt.
fn look_for_shmem(member: &Member, table: &Table, faulted: &ExtentSet, asked: &ExtentSet) -> Shmem {
    let doubtful = table.shared.union(&table.absent);
    let doubtful = doubtful.intersection(&faulted.union(asked));
    if doubtful.pages() < DOUBTFUL_PAGES_MIN {
        return Shmem::default();
    }
    let pages = doubtful.extents().iter().map(|e| e.start..e.end());
    let mut mappings = procmap::mappings_of(member.instance.pid, pages).unwrap_or_default();
    mappings.retain(Mapping::is_shmem);
    let all: ExtentSet = mappings
        .iter()
        .map(|mapping| {
            let pages = mapping.pages();
            Extent::between(pages.start, pages.end)
        })
        .collect();
    let not_mapped = table.absent.intersection(asked);
    let used = mappings.iter().flat_map(|mapping| {
        let used = used_by_others(member.instance.pid, mapping, &not_mapped);
        Vec::from(used)
    });
    Shmem {
        used_by_others: used.collect(),
        pages: doubtful.intersection(&all),
    }
}
