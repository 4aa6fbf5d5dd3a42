//! The filemap tracepoints: which pages of which files are read and accessed.

use crate::error::Result;
use crate::ring::{PAGE_FAULT, TracepointSample};
use crate::tracefs::{EventFormat, Field, Tracefs};
use std::collections::HashMap;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilemapKind {
    /// mm_filemap_add_to_page_cache: read from the disk into the page cache (or written anew). On ext4, metadata shows
    /// as pages of the block device's inode.
    Added,
    /// mm_filemap_get_pages (6.12+): read(2) asks for these pages.
    GetPages,
    /// mm_filemap_fault (6.12+): an access through a mapping that found no page in the page table.
    Fault,
    /// mm_filemap_map_pages (6.12+): pages mapped around a fault (fault_around_bytes, usually 64 KiB), not all accessed.
    MapPages,
}

impl FilemapKind {
    /// All four.
    pub const ALL: [FilemapKind; 4] = [
        FilemapKind::Added,
        FilemapKind::GetPages,
        FilemapKind::Fault,
        FilemapKind::MapPages,
    ];

    /// The tracepoint's name in the system `filemap`.
    pub fn tracepoint(self) -> &'static str {
        match self {
            FilemapKind::Added => "mm_filemap_add_to_page_cache",
            FilemapKind::GetPages => "mm_filemap_get_pages",
            FilemapKind::Fault => "mm_filemap_fault",
            FilemapKind::MapPages => "mm_filemap_map_pages",
        }
    }
}

/// A decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilemapEvent {
    /// Which tracepoint.
    pub kind: FilemapKind,
    /// Major and minor of the file system's device (`s_dev`, as in /proc/PID/maps; stat differs on btrfs and overlay).
    pub dev: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// The first page, in pages from the start of the file.
    pub first_page: u64,
    /// How many pages, at least 1.
    pub page_count: u64,
}

/// How to decode one tracepoint on this kernel.
#[derive(Clone, Debug)]
struct Layout {
    kind: FilemapKind,
    id: u32,
    dev: Field,
    inode: Field,
    index: Field,
    /// `order` (6.1+) of Added, `last_index` of GetPages and MapPages.
    extent: Option<Field>,
}

/// Those filemap tracepoints that this kernel has.
#[derive(Clone, Debug, Default)]
pub struct Filemap {
    layouts: Vec<Layout>,
}

impl Filemap {
    /// Looks up the tracepoints of `wanted`; those that this kernel lacks are left out.
    pub fn find(tracefs: &Tracefs, wanted: &[FilemapKind]) -> Result<Filemap> {
        let names: Vec<&str> = wanted.iter().map(|kind| kind.tracepoint()).collect();
        let formats = crate::tracefs::events(tracefs, "filemap", &names)?;
        let found = wanted.iter().zip(formats);
        let layouts = found.filter_map(|(&kind, format)| layout(kind, &format?));
        Ok(Filemap {
            layouts: layouts.collect(),
        })
    }

    /// Which of them this kernel has.
    pub fn kinds(&self) -> impl Iterator<Item = FilemapKind> {
        self.layouts.iter().map(|layout| layout.kind)
    }

    /// Whether one of them reports accesses, and not only insertions.
    pub fn reports_access(&self) -> bool {
        self.kinds().any(|kind| kind != FilemapKind::Added)
    }

    /// Their ids, for [`crate::perf::TracepointRings::open`].
    pub fn event_ids(&self) -> Vec<u32> {
        self.layouts.iter().map(|layout| layout.id).collect()
    }

    /// The same, and [`PAGE_FAULT`] where some report accesses: for [`FaultAddresses`].
    pub fn event_ids_with_faults(&self) -> Vec<u32> {
        let mut ids = self.event_ids();
        ids.extend(self.reports_access().then_some(PAGE_FAULT));
        ids
    }

    /// Decodes a sample ([`crate::ring::TracepointSample`]); `None` for another tracepoint's or a malformed one.
    pub fn decode(&self, event_id: u32, raw: &[u8]) -> Option<FilemapEvent> {
        let layout = self.layouts.iter().find(|layout| layout.id == event_id)?;
        let first_page = layout.index.unsigned(raw)?;
        let extent = match &layout.extent {
            Some(field) => Some(field.unsigned(raw)?),
            None => None,
        };
        let page_count = match (layout.kind, extent) {
            (FilemapKind::Added, Some(order)) => 1_u64.checked_shl(u32::try_from(order).ok()?)?,
            (_, Some(last_page)) => last_page.checked_sub(first_page)?.checked_add(1)?,
            (_, None) => 1,
        };
        Some(FilemapEvent {
            kind: layout.kind,
            dev: crate::tracefs::device(layout.dev.unsigned(raw)?)?,
            inode: layout.inode.unsigned(raw)?,
            first_page,
            page_count,
        })
    }
}

/// The addresses of faults, by thread, until the kernel reports which pages it mapped around them. The samples of a CPU are
/// in order, and a thread resolves a fault on the CPU that reported it, unless it is moved meanwhile: then it is not known
/// which of the pages was accessed.
#[derive(Debug, Default)]
pub struct FaultAddresses(HashMap<i32, u64>);

impl FaultAddresses {
    /// Notes a fault. Returns whether the sample is one.
    pub fn note(&mut self, sample: &TracepointSample<'_>) -> bool {
        let is_fault = sample.event_id == PAGE_FAULT;
        if is_fault {
            self.0.insert(sample.tid, sample.address);
        }
        is_fault
    }

    /// The byte address of the fault that a thread's mapping of pages resolves.
    pub fn take(&mut self, tid: i32) -> Option<u64> {
        self.0.remove(&tid)
    }
}

fn layout(kind: FilemapKind, format: &EventFormat) -> Option<Layout> {
    let field = |name: &str| format.field(name).cloned();
    Some(Layout {
        kind,
        id: format.id,
        dev: field("s_dev")?,
        inode: field("i_ino")?,
        index: field("index")?,
        extent: match kind {
            FilemapKind::Added => field("order"),
            FilemapKind::GetPages | FilemapKind::MapPages => Some(field("last_index")?),
            FilemapKind::Fault => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::parse_format;

    fn filemap(kind: FilemapKind, last: &str) -> Filemap {
        let text = format!(
            "ID: 7\n\tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;\n\
             \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
             \tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;\n{last}"
        );
        let format = parse_format(&text).expect("well formed");
        Filemap {
            layouts: vec![layout(kind, &format).expect("complete")],
        }
    }

    fn record(last: u64) -> Vec<u8> {
        let device = (254_u64 << 20) | 3;
        [0, 1234, device, 10, last]
            .iter()
            .flat_map(|word: &u64| word.to_ne_bytes())
            .collect()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn decodes_extents() {
        let get = filemap(
            FilemapKind::GetPages,
            "\tfield:unsigned long last_index;\toffset:32;\tsize:8;\tsigned:0;\n",
        );
        let event = get.decode(7, &record(12)).expect("well formed");
        assert_eq!(
            (event.dev, event.inode, event.first_page, event.page_count),
            ((254, 3), 1234, 10, 3)
        );
        assert_eq!(get.decode(7, &record(9)), None, "ends before it begins");
        assert_eq!(get.decode(8, &record(12)), None, "another tracepoint");
        assert_eq!(get.decode(7, &record(12)[..39]), None, "truncated");

        let added = filemap(
            FilemapKind::Added,
            "\tfield:unsigned char order;\toffset:32;\tsize:1;\tsigned:0;\n",
        );
        assert_eq!(
            added.decode(7, &record(4)).map(|event| event.page_count),
            Some(16)
        );
        assert_eq!(added.decode(7, &record(200)), None, "absurd order");
        let old = filemap(FilemapKind::Added, "");
        assert_eq!(
            old.decode(7, &record(4)).map(|event| event.page_count),
            Some(1)
        );
    }
}
