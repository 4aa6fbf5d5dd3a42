//! What became of file pages in a switch.
//!
//! Where the kernel reports accesses (6.12 and later), use is what it reports: exact for read(2), and for the page of a
//! mapped file that a fault is for. The pages around it that were in memory were mapped along: unknown. Any other page
//! without a report was unused where prepaging fetched it, since it was not cached before, or where it is not cached at
//! the end; otherwise it may have been mapped all along: unknown.
//!
//! Where the kernel reports insertions only, a page counts as used where it is mapped at the end and was not cached
//! before, as the paper's mapcount says (ASAP section 4.2). Of what nobody maps, what the application itself had read from
//! the device counts as used, with what the kernel read ahead for it; where prepaging reads it, its use does not show, and
//! it is given up after some switches, to see whether the application reads it again.

use crate::members::Member;
use crate::observe::files::{FileEvents, InodeKey};
use crate::observe::resolve::View;
use crate::roots::{Found, Roots};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::{FileObservation, RANKS};
use prepage_core::identity::FileId;
use prepage_kernel::cachestat::cachestat;
use prepage_kernel::page::page_size;
use prepage_kernel::pagemap::Categories;
use prepage_kernel::{maps, mincore};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Observes a file where the kernel reports accesses, but for their order. `asked` are the pages of the tables and of the plan.
pub fn from_reports(
    roots: &Roots,
    file: &FileId,
    asked: &ExtentSet,
    theirs: &FileEvents,
    ours: &FileEvents,
) -> FileObservation {
    let end = file.size.div_ceil(page_size());
    let accessed = cells(&theirs.accessed()).truncated(end);
    let fetched = ours.added().truncated(end);
    let mapped = theirs.mapped_along(ours).intersection(asked);
    let came = theirs.added().union(&fetched);
    // What is not in memory, and has not come there, was not mapped along either.
    let silent = asked.difference(&accessed).difference(&fetched);
    let may_be_cached = cached_of(roots, file, &silent.union(&mapped).difference(&came));
    let unknown = mapped.intersection(&came).union(&may_be_cached);
    FileObservation {
        demanded: theirs.added().intersection(&accessed),
        unknown: unknown.difference(&accessed),
        unobservable: ExtentSet::new(),
        accessed,
        fetched,
        order: Vec::new(),
    }
}

/// Pages that are learned together: a request for one costs the device about as much as one for so many, and tables of
/// single pages take several times the memory.
const CELL_PAGES: u64 = 4;

/// The cells that hold these pages.
fn cells(pages: &ExtentSet) -> ExtentSet {
    let cell = |extent: &Extent| {
        let start = extent.start / CELL_PAGES * CELL_PAGES;
        Extent::between(start, extent.end().next_multiple_of(CELL_PAGES))
    };
    pages.extents().iter().map(cell).collect()
}

/// Observes a file where the kernel reports insertions only. `mapped` are its pages that are mapped now, `mappable`
/// those that some process could have mapped.
pub fn from_mappings(
    roots: &Roots,
    file: &FileId,
    asked: &ExtentSet,
    mapped: &Mapped,
    theirs: &FileEvents,
    ours: &FileEvents,
) -> FileObservation {
    let end = file.size.div_ceil(page_size());
    let (fetched, read) = (ours.added().truncated(end), theirs.added().truncated(end));
    let through_mappings = mapped.present.intersection(&fetched.union(&read));
    let accessed = through_mappings.union(&read.difference(&mapped.mappable));
    let unused = fetched
        .intersection(&mapped.mappable)
        .difference(&mapped.present);
    // What is not in memory, and has not come there, was not used either.
    let silent = asked.difference(&accessed).difference(&fetched);
    let absent = silent.difference(&cached_of(roots, file, &silent));
    FileObservation {
        demanded: read.intersection(&accessed),
        unknown: asked
            .difference(&accessed)
            .difference(&unused)
            .difference(&absent),
        unobservable: fetched.difference(&mapped.mappable).difference(&accessed),
        accessed,
        fetched,
        order: Vec::new(),
    }
}

/// The place of each access among all, 0 to [`RANKS`] - 1, by file: accesses are sorted by time, and each step holds
/// the same number of first accesses. Where the kernel reports insertions only, of each insertion.
pub fn ranks<'a>(
    files: impl Iterator<Item = (InodeKey, &'a FileEvents)>,
    reports_access: bool,
) -> HashMap<InodeKey, Vec<(Extent, u8)>> {
    let mut all: Vec<(u64, InodeKey, Extent)> = files
        .flat_map(|(key, events)| {
            let accesses = events.accesses(reports_access);
            accesses.map(move |(at, extent)| (at, key, extent))
        })
        .collect();
    all.sort_unstable();
    let mut seen = HashSet::new();
    all.retain(|&(_, key, extent)| seen.insert((key, extent.start)));
    let count = all.len();
    let mut ranks: HashMap<InodeKey, Vec<(Extent, u8)>> = HashMap::new();
    for (index, (_, key, extent)) in all.into_iter().enumerate() {
        let rank = index * usize::from(RANKS) / count;
        ranks.entry(key).or_default().push((extent, rank as u8));
    }
    ranks
}

/// Pages of one file in the application's address spaces.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// Mapped in some page table.
    pub present: ExtentSet,
    /// Within some mapping.
    pub mappable: ExtentSet,
}

/// The mapped pages of these inodes, which are named as tracepoints do, over all processes.
pub fn mapped(
    members: &[Arc<Member>],
    wanted: &HashSet<InodeKey>,
    view: &View,
) -> HashMap<InodeKey, Mapped> {
    let mut files: HashMap<InodeKey, Mapped> = HashMap::new();
    for member in members {
        for mapping in maps::read(member.instance.pid).unwrap_or_default() {
            let key = view.key_of_mapped(mapping.dev, mapping.inode);
            if !wanted.contains(&key) {
                continue;
            }
            let whole = mapping.pages_of_file();
            let whole = Extent::between(whole.start, whole.end);
            let there = present_pages(member, mapping.pages().start, whole);
            let file = files.entry(key).or_default();
            file.present = file.present.union(&there);
            file.mappable = file.mappable.union(&ExtentSet::from(vec![whole]));
        }
    }
    files
}

/// The pages of a file's extent that are mapped from this page of the address space on: a mapping may be of terabytes, of a sparse
/// file.
fn present_pages(member: &Member, first: u64, file: Extent) -> ExtentSet {
    let is_there = Categories::FILE | Categories::PRESENT;
    let mut regions = Vec::new();
    // Of a process that ends meanwhile, what was found until then.
    let _ = member.pagemap.scan(
        first..first + file.len,
        is_there,
        Categories::NONE,
        &mut regions,
    );
    let of_file = |page: u64| file.start + (page - first);
    let regions = regions.into_iter().map(|region| region.pages);
    regions
        .map(|pages| Extent::between(of_file(pages.start), of_file(pages.end)))
        .collect()
}

/// As [`cached`], of a file that is opened for it; all of the pages where it cannot be.
fn cached_of(roots: &Roots, file: &FileId, pages: &ExtentSet) -> ExtentSet {
    if pages.is_empty() {
        return ExtentSet::new();
    }
    match roots.open(file) {
        Found::Same(fd) => cached(fd.as_fd(), pages),
        Found::Stale | Found::Denied => pages.clone(),
    }
}

/// Those of the pages of an open file that are in the page cache now. Where that cannot be asked, all of them: unknown.
pub fn cached(file: BorrowedFd<'_>, pages: &ExtentSet) -> ExtentSet {
    let is_overlay = is_overlay(file);
    let mut cached = ExtentSet::new();
    for &extent in pages.extents() {
        add_cached(file, extent, is_overlay, &mut cached);
    }
    cached
}

/// How many of these pages are in the page cache; `None` where that cannot be asked (before 6.5; from 6.13 on of a file that we
/// could neither write nor own). One call, but for an overlay.
pub fn cached_count(file: BorrowedFd<'_>, pages: Extent) -> Option<u64> {
    let (start, len) = (pages.start * page_size(), pages.len * page_size());
    match cachestat(file, start, len).ok().map(|stat| stat.cached) {
        None | Some(0) if is_overlay(file) => {
            Some(cached(file, &ExtentSet::from(vec![pages])).pages())
        }
        count => count,
    }
}

/// `statfs` magic of overlayfs.
const OVERLAY_MAGIC: u64 = 0x794c_7630;

fn is_overlay(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 == OVERLAY_MAGIC)
}

/// Most pages that are looked at one by one at once.
const LOOKED_AT_MAX: u64 = 1 << 16;

/// Of more pages in one piece that cannot be counted nothing is told: each would be looked at.
const UNCOUNTED_MAX: u64 = 1 << 28;

/// Adds those of an extent that are in the page cache, to those of extents before it. It may be of terabytes, of a sparse file.
fn add_cached(fd: BorrowedFd<'_>, extent: Extent, is_overlay: bool, found: &mut ExtentSet) {
    let (start, len) = (extent.start * page_size(), extent.len * page_size());
    // An overlay's own inode never holds a page, and cachestat asks no other.
    let counted = (!is_overlay).then(|| cachestat(fd, start, len).ok());
    match counted.flatten().map(|stat| stat.cached) {
        Some(0) => {}
        Some(cached) if cached >= extent.len => found.push_back(extent),
        None if extent.len > UNCOUNTED_MAX => found.push_back(extent),
        _ if extent.len > LOOKED_AT_MAX => {
            let middle = extent.start + extent.len / 2;
            add_cached(fd, Extent::between(extent.start, middle), is_overlay, found);
            add_cached(fd, Extent::between(middle, extent.end()), is_overlay, found);
        }
        _ => match mincore::resident(fd, start, len) {
            Ok(resident) => {
                let pages = (extent.start..).zip(resident).filter(|&(_, there)| there);
                pages.for_each(|(page, _)| found.push_back(Extent::new(page, 1)));
            }
            Err(_) => found.push_back(extent),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_cached_of_more_than_can_be_mapped_is_found_page_by_page() {
        const PAGES: u64 = 1 << 36;
        let file = memfd_create("prepage-test", MemfdFlags::CLOEXEC).map(File::from);
        let file = file.expect("memfd");
        file.set_len(PAGES * page_size()).expect("a sparse file");
        let there = [0, 7, 8, PAGES / 2 - 1, PAGES / 2, PAGES - 1];
        for page in there {
            let written = file.write_at(&[1], page * page_size());
            assert_eq!(written.expect("write"), 1);
        }
        let pages = ExtentSet::from(vec![Extent::new(0, 5), Extent::between(6, PAGES)]);
        let counted = cachestat(file.as_fd(), 0, 0);
        counted.expect("this test needs cachestat (6.5)");
        let found = cached(file.as_fd(), &pages);
        assert_eq!(
            found,
            there.map(|page| Extent::new(page, 1)).into_iter().collect()
        );
    }
}
