//! Memory that the application shares with processes which are none of its own, and which they use for it: an X server reads
//! the picture of a window from the application's shared memory. Where it is swapped out, the server waits for it, and the
//! person with it, while the application itself touches none of it.
//!
//! Demand faults of such a process say where in its own address space; which object that is, and where the application maps
//! it, its and the application's mappings say. What was fetched of it and used shows in the object: a page that somebody
//! faulted on is in its page cache, while one that was only brought to the swap cache is not. A page that was there all along
//! looks used as well.

use crate::members::Member;
use crate::observe::faults::FaultBuffer;
use crate::observe::file_pages::cached_count;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::machine::Nanos;
use prepage_kernel::maps::{self, Mapping, SharedObject};
use prepage_kernel::procmap;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Pages of objects that were demanded, and when.
type Demanded = HashMap<SharedObject, Vec<(u64, Nanos)>>;

/// Takes the faults of others on memory that one of these processes maps as well for its own: the first of them's that does.
/// The rest of the others' faults is forgotten.
pub fn take_over(members: &[Arc<Member>], faults: &mut FaultBuffer) {
    let mut demanded = Demanded::new();
    for (pid, pages) in std::mem::take(&mut faults.of_others) {
        let set = ExtentSet::from_pages(pages.iter().map(|&(page, _)| page).collect());
        let ranges = set.extents().iter().map(|e| e.start..e.end());
        // A process that has ended meanwhile shares nothing.
        let mappings = procmap::mappings_of(pid, ranges).unwrap_or_default();
        note_demanded(&mut demanded, &mappings, &pages);
    }
    for member in members {
        if demanded.is_empty() {
            return;
        }
        let pid = member.instance.pid;
        let found = find_demanded(&mut demanded, &maps::read(pid).unwrap_or_default());
        if !found.is_empty() {
            faults.pages.entry(pid).or_default().extend(found);
        }
    }
}

fn objects(mappings: &[Mapping]) -> impl Iterator<Item = (SharedObject, &Mapping)> {
    let object = |mapping| Some((Mapping::shared_object(mapping)?, mapping));
    mappings.iter().filter_map(object)
}

/// Adds those of a process's pages that are of shared memory, as pages of the object.
fn note_demanded(demanded: &mut Demanded, mappings: &[Mapping], pages: &[(u64, Nanos)]) {
    for (object, mapping) in objects(mappings) {
        let own = mapping.pages();
        let within = pages.iter().filter(|(page, _)| own.contains(page));
        let mut of_object = within
            .map(|&(page, at)| (mapping.page_of_file(page), at))
            .peekable();
        if of_object.peek().is_some() {
            demanded.entry(object).or_default().extend(of_object);
        }
    }
}

/// Takes out what these mappings hold, as pages of their process.
fn find_demanded(demanded: &mut Demanded, mappings: &[Mapping]) -> Vec<(u64, Nanos)> {
    let mut found = Vec::new();
    for (object, mapping) in objects(mappings) {
        let Some(pages) = demanded.get_mut(&object) else {
            continue;
        };
        let held = mapping.pages_of_file();
        let taken = pages.extract_if(.., |(page, _)| held.contains(page));
        found.extend(taken.map(|(page, at)| (mapping.page_at(page), at)));
        if pages.is_empty() {
            demanded.remove(&object);
        }
    }
    found
}

/// Those of a process's pages of shared memory, none of which it maps itself, that are in their object's page cache: others
/// use them. None where that cannot be asked (before 6.5).
pub fn used_by_others(pid: i32, mapping: &Mapping, pages: &ExtentSet) -> ExtentSet {
    let own = mapping.pages();
    let within = pages.intersection(&ExtentSet::from(vec![Extent::between(own.start, own.end)]));
    if within.is_empty() {
        return within;
    }
    // Gone meanwhile: not used any more.
    let Ok(object) = mapping.open_shmem(pid) else {
        return ExtentSet::new();
    };
    let count = |pages: Extent| {
        let start = mapping.page_of_file(pages.start);
        cached_count(object.as_fd(), Extent::new(start, pages.len)).unwrap_or(0)
    };
    let cached = within.extents().iter().map(|extent| extent.counted(&count));
    cached.flat_map(Vec::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::page::page_size;
    use proptest::prelude::*;

    /// Mappings of a few objects, one behind the other: length and gap in pages, object, offset in pages, shared.
    fn mappings(parts: &[(u64, u64, u8, u64, bool)]) -> Vec<Mapping> {
        let mut page = 0;
        let mut mappings = Vec::new();
        for &(len, gap, object, offset, shared) in parts {
            page += gap;
            mappings.push(Mapping {
                start: page * page_size(),
                end: (page + len) * page_size(),
                readable: true,
                writable: true,
                executable: false,
                shared,
                offset: offset * page_size(),
                dev: (0, 1),
                inode: u64::from(object / 2),
                path: Some(
                    [["/memfd:a", "/SYSV00000000"], ["/usr/lib/b", "/memfd:c"]]
                        [usize::from(object / 2)][usize::from(object % 2)]
                    .into(),
                ),
                label: None,
                deleted: true,
            });
            page += len;
        }
        mappings
    }

    /// What a page of a process is of an object of shared memory.
    fn of_object(mappings: &[Mapping], page: u64) -> Option<(String, u64)> {
        let mapping = mappings.iter().find(|m| m.pages().contains(&page))?;
        let name = mapping.path.as_ref()?.to_str()?.to_owned();
        let offset = mapping.offset / page_size() + page - mapping.pages().start;
        (mapping.shared && !name.starts_with("/usr")).then_some((name, offset))
    }

    proptest! {
        #[test]
        fn a_fault_of_another_is_one_on_the_first_page_of_ours_that_is_the_same(
            theirs in prop::collection::vec((1u64..6, 0u64..3, 0u8..4, 0u64..6, any::<bool>()), 0..6),
            ours in prop::collection::vec((1u64..6, 0u64..3, 0u8..4, 0u64..6, any::<bool>()), 0..6),
            pages in prop::collection::btree_set(0u64..40, 0..20),
        ) {
            let (theirs, ours) = (mappings(&theirs), mappings(&ours));
            let faults: Vec<(u64, Nanos)> = pages.iter().map(|&page| (page, page + 100)).collect();
            let mut demanded = Demanded::new();
            note_demanded(&mut demanded, &theirs, &faults);
            let mut found = find_demanded(&mut demanded, &ours);
            let mut expected: Vec<(u64, Nanos)> = faults
                .iter()
                .filter_map(|&(page, at)| {
                    let wanted = of_object(&theirs, page)?;
                    let own = (0..60).find(|&own| of_object(&ours, own).as_ref() == Some(&wanted))?;
                    Some((own, at))
                })
                .collect();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&found, &expected);
            let left: usize = demanded.values().map(Vec::len).sum();
            let of_theirs = faults.iter().filter(|(page, _)| of_object(&theirs, *page).is_some());
            prop_assert_eq!(left, of_theirs.count() - found.len());
        }
    }
}
