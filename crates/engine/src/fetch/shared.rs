//! Shared memory that was swapped out: it has no entry in the page table, and only its object knows what there is of it.
//!
//! What is mapped of it is in its object's page cache. Who else uses it, as an X server does, then has sixteen pages mapped by
//! a fault (fault-around), where one that was only brought to the swap cache takes a fault of its own.

use crate::members::Member;
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::identity::Instance;
use prepage_kernel::maps::Mapping;
use prepage_kernel::page::page_size;
use prepage_kernel::{procmap, shmem};
use std::fs::File;
use std::os::fd::AsFd;

/// What processes share, as one thread asks for it: the mapping that was asked last is kept, and what it is of is kept open.
#[derive(Debug, Default)]
pub struct SharedMemory {
    last: Option<Mapped>,
}

/// What a process maps.
#[derive(Debug)]
struct Mapped {
    instance: Instance,
    mapping: Mapping,
    /// Where it is shared memory.
    object: Option<File>,
}

impl SharedMemory {
    /// Those of a process's pages that are shared memory and swapped out; what an object has no page for is not among them. None
    /// where not all of the pages are of one mapping.
    pub fn swapped_out(&mut self, member: &Member, pages: Extent) -> ExtentSet {
        if !self
            .last
            .as_ref()
            .is_some_and(|last| last.has(member, pages))
        {
            self.last = Mapped::at(member, pages.start);
        }
        let last = self.last.as_ref().filter(|last| last.has(member, pages));
        last.map_or_else(ExtentSet::new, |last| last.swapped_out(pages))
    }
}

/// Those of these pages of a process, all of one mapping, that are swapped out. `None` where that is no shared
/// memory, or cannot be asked any more.
pub fn swapped_out_of(
    member: &Member,
    mapping: &Mapping,
    pages: impl Iterator<Item = Extent>,
) -> Option<ExtentSet> {
    let mapped = Mapped::of(member, mapping.clone());
    mapped.object.as_ref()?;
    let out = pages.flat_map(|pages| Vec::from(mapped.swapped_out(pages)));
    Some(out.collect())
}

impl Mapped {
    fn at(member: &Member, page: u64) -> Option<Self> {
        let asked = std::iter::once(page..page + 1);
        let mappings = procmap::mappings_of(member.instance.pid, asked).ok()?;
        Some(Self::of(member, mappings.into_iter().next()?))
    }

    fn of(member: &Member, mapping: Mapping) -> Self {
        let open = |_| mapping.open_shmem(member.instance.pid).ok();
        let object = mapping.shared_object().and_then(open);
        Self {
            instance: member.instance,
            // A process of the same pid may have taken its place.
            object: object.filter(|_| member.pagemap.is_of_living()),
            mapping,
        }
    }

    fn has(&self, member: &Member, pages: Extent) -> bool {
        let own = self.mapping.pages();
        self.instance == member.instance && own.start <= pages.start && pages.end() <= own.end
    }

    fn swapped_out(&self, pages: Extent) -> ExtentSet {
        pages.counted(&|pages| self.count_out(pages).unwrap_or(0))
    }

    fn count_out(&self, pages: Extent) -> Option<u64> {
        let object = self.object.as_ref()?;
        let start = self.mapping.page_of_file(pages.start) * page_size();
        shmem::swapped_out(object.as_fd(), start, pages.len * page_size()).ok()
    }
}
