//! What the application's threads waited for in the page cache, from the order of their events.
//!
//! A fault on a mapped file page maps what of its window is up to date (`mm_filemap_map_pages`). Where the page itself
//! is not, the kernel goes on to `mm_filemap_fault`, and finds the page absent, which the thread then reads
//! (`mm_filemap_add_to_page_cache`), or locked, since a read of it is in flight. It lets go of the address space, sleeps
//! until the page is unlocked and has the fault tried again: a second event of the same thread on the same page, with
//! no other of that thread in between. That is `mm_filemap_map_pages` after a read and `mm_filemap_fault` after a
//! write. A page that was up to date is mapped by the first attempt, and there is no second event.

use crate::observe::files::{FileEvents, InodeKey};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::machine::Nanos;
use prepage_core::outcome::Late;
use prepage_core::plan::Plan;
use prepage_kernel::filemap::FilemapKind;
use std::collections::{BTreeSet, HashMap, HashSet};

/// One thread's access to a file, as the kernel reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When.
    pub at: Nanos,
    /// The process (thread group).
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Any kind but insertion.
    pub kind: FilemapKind,
    /// The file.
    pub key: InodeKey,
    /// Its pages: of a fault one, of mapping the window.
    pub extent: Extent,
}

/// A fault that had to be tried again: the thread waited for the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The file.
    pub key: InodeKey,
    /// The page.
    pub page: u64,
    /// For how long, in nanoseconds.
    pub ns: u64,
}

/// The waits among these accesses, which are given in any order: a thread that slept may have woken on another core,
/// whose ring is read before that of the first.
pub fn waits(mut accesses: Vec<Access>) -> Vec<Wait> {
    accesses.sort_unstable_by_key(|access| (access.tid, access.at));
    let pairs = accesses.windows(2).map(|pair| (pair[0], pair[1]));
    let retried = pairs.filter(|(first, second)| {
        let is_retry = match second.kind {
            FilemapKind::MapPages => second.extent.contains(first.extent.start),
            FilemapKind::Fault => second.extent == first.extent,
            FilemapKind::GetPages | FilemapKind::Added => false,
        };
        let same = first.tid == second.tid && first.key == second.key;
        first.kind == FilemapKind::Fault && same && is_retry
    });
    let wait = |(first, second): (Access, Access)| Wait {
        key: first.key,
        page: first.extent.start,
        ns: second.at - first.at,
    };
    retried.map(wait).collect()
}

/// What the application waited for of the pages that were being fetched for it. A page that it read itself, too, was
/// in flight for another reason. `theirs` are the application's events, `ours` those of the fetching threads.
pub fn late(
    waits: &[Wait],
    plan: &Plan,
    theirs: &HashMap<InodeKey, FileEvents>,
    ours: &HashMap<InodeKey, FileEvents>,
) -> Late {
    let added = |events: &HashMap<InodeKey, FileEvents>, key: InodeKey| {
        events.get(&key).map(FileEvents::added).unwrap_or_default()
    };
    let keys: HashSet<InodeKey> = waits.iter().map(|wait| wait.key).collect();
    let planned = plan
        .files
        .iter()
        .map(|t| ((t.file.device, t.file.inode), t));
    let fetched: HashMap<InodeKey, ExtentSet> = planned
        .filter(|(key, _)| keys.contains(key))
        .map(|(key, t)| {
            let ours = added(ours, key).intersection(&t.read);
            (key, ours.difference(&added(theirs, key)))
        })
        .collect();
    let is_late = |wait: &&Wait| {
        let pages = fetched.get(&wait.key);
        pages.is_some_and(|pages| pages.contains(wait.page))
    };
    let late: Vec<&Wait> = waits.iter().filter(is_late).collect();
    let pages: BTreeSet<_> = late.iter().map(|wait| (wait.key, wait.page)).collect();
    Late {
        pages: pages.len() as u64,
        wait_us: late.iter().map(|wait| wait.ns).sum::<u64>() / 1_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FilemapKind::{Fault, GetPages, MapPages};

    const FILE: InodeKey = ((254, 0), 7);

    fn access(tid: i32, at: Nanos, kind: FilemapKind, start: u64) -> Access {
        let len = if kind == Fault { 1 } else { 16 };
        Access {
            at,
            pid: 1,
            tid,
            kind,
            key: FILE,
            extent: Extent::new(start, len),
        }
    }

    fn pages(accesses: &[Access]) -> Vec<(u64, u64)> {
        let mut reversed = accesses.to_vec();
        reversed.reverse();
        let found = waits(accesses.to_vec());
        assert_eq!(found, waits(reversed), "the order that they are given in");
        found.iter().map(|wait| (wait.page, wait.ns)).collect()
    }

    #[test]
    fn a_fault_that_is_tried_again_is_a_wait() {
        let read = [access(1, 10, Fault, 20), access(1, 500, MapPages, 16)];
        assert_eq!(pages(&read), [(20, 490)]);
        let written = [access(1, 10, Fault, 20), access(1, 70, Fault, 20)];
        assert_eq!(pages(&written), [(20, 60)]);
    }

    #[test]
    fn a_fault_that_is_served_at_once_is_none() {
        for next in [
            access(1, 20, MapPages, 64),
            access(1, 20, Fault, 21),
            // The file is read by system call, over the same pages.
            access(1, 20, GetPages, 16),
            access(2, 20, MapPages, 16),
            Access {
                key: ((254, 0), 8),
                ..access(1, 20, MapPages, 16)
            },
        ] {
            assert_eq!(pages(&[access(1, 10, Fault, 20), next]), [], "{next:?}");
        }
        assert_eq!(pages(&[access(1, 10, Fault, 20)]), []);
    }

    #[test]
    fn threads_are_told_apart() {
        let mixed = [
            access(1, 10, Fault, 20),
            access(2, 15, Fault, 40),
            access(2, 30, MapPages, 0),
            access(1, 90, MapPages, 16),
        ];
        assert_eq!(pages(&mixed), [(20, 80)]);
    }
}
