//! The block tracepoints: which requests go to which disks (what FAST records with blktrace, section 4.1).
//!
//! **Whose request it is.** [`BlockKind::Issue`] is seen in the context that hands the request to the driver: mostly
//! the task that reads, when it flushes its plug, but a kworker where the request was queued behind others, and a task
//! that submits its own requests may dispatch another's. [`BlockKind::Complete`] is seen in the interrupt, in whatever
//! task that hit. So the process of a sample is a hint; a request is attributed by *what* it reads: the extents of
//! files ([`crate::fiemap`], [`crate::block::Placement`]), or by what recurs from launch to launch (FAST, section 4.2).
//!
//! **What is missing.** On a 6.18 virtual machine perf records nothing from interrupts that hit an idle CPU, and says
//! nothing of it: most completions of a lone reader are missing. Issues come from tasks and are all there; one that the
//! driver could not take comes again.
//!
//! Requests exist where a driver has a request queue (disks, NVMe, loop). Stacked devices without one (dm, md) show as
//! requests of what lies below them, at other sectors.

use crate::error::Result;
use crate::tracefs::{self, EventFormat, Field, Tracefs};

/// Bytes in a sector, whatever the disk's own sectors are.
pub const SECTOR_BYTES: u64 = 512;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// block_rq_issue: the driver gets the request.
    Issue,
    /// block_rq_complete: the disk is done with it, or with a part of it.
    Complete,
}

impl BlockKind {
    /// Both.
    pub const ALL: [BlockKind; 2] = [BlockKind::Issue, BlockKind::Complete];

    /// The tracepoint's name in the system `block`.
    pub fn tracepoint(self) -> &'static str {
        match self {
            BlockKind::Issue => "block_rq_issue",
            BlockKind::Complete => "block_rq_complete",
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockOperation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flush, discard, and what concerns no sectors.
    Other,
}

/// A decoded event. Time and process are those of the sample ([`crate::ring::TracepointSample`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Which tracepoint.
    pub kind: BlockKind,
    /// Major and minor of the whole disk, never of a partition.
    pub disk: (u32, u32),
    /// The first sector from the start of the disk, in units of [`SECTOR_BYTES`].
    pub first_sector: u64,
    /// How many; 0 for a request without sectors.
    pub sector_count: u64,
    /// Read, write, or neither.
    pub operation: BlockOperation,
    /// Asked for by readahead (REQ_RAHEAD).
    pub readahead: bool,
    /// Metadata of a file system (REQ_META), where the file system says so: ext4 does.
    pub metadata: bool,
    /// The name of the task in whose context it was issued, padded with NUL; absent on completion.
    pub comm: Option<[u8; 16]>,
}

/// How to decode one tracepoint on this kernel.
#[derive(Clone, Debug)]
struct Layout {
    kind: BlockKind,
    id: u32,
    dev: Field,
    sector: Field,
    count: Field,
    /// `char rwbs[]`: 8 bytes, 10 in newer kernels.
    rwbs: Field,
    comm: Option<Field>,
}

/// Those block tracepoints that this kernel has.
#[derive(Clone, Debug, Default)]
pub struct BlockTrace {
    layouts: Vec<Layout>,
}

impl BlockTrace {
    /// Looks up the tracepoints of `wanted`; those that this kernel lacks are left out.
    pub fn find(tracefs: &Tracefs, wanted: &[BlockKind]) -> Result<BlockTrace> {
        let names: Vec<&str> = wanted.iter().map(|kind| kind.tracepoint()).collect();
        let formats = tracefs::events(tracefs, "block", &names)?;
        let found = wanted.iter().zip(formats);
        let layouts = found.filter_map(|(&kind, format)| layout(kind, &format?));
        Ok(BlockTrace {
            layouts: layouts.collect(),
        })
    }

    /// Which of them this kernel has.
    pub fn kinds(&self) -> impl Iterator<Item = BlockKind> {
        self.layouts.iter().map(|layout| layout.kind)
    }

    /// Their ids, for [`crate::perf::TracepointRings::open`].
    pub fn event_ids(&self) -> Vec<u32> {
        self.layouts.iter().map(|layout| layout.id).collect()
    }

    /// Decodes a sample ([`crate::ring::TracepointSample`]); `None` for another tracepoint's or a malformed one.
    pub fn decode(&self, event_id: u32, raw: &[u8]) -> Option<BlockEvent> {
        let layout = self.layouts.iter().find(|layout| layout.id == event_id)?;
        let sector_count = layout.count.unsigned(raw)?;
        let flags = RequestFlags::parse(layout.rwbs.bytes(raw)?);
        let comm = match &layout.comm {
            Some(field) => Some(field.bytes(raw)?.try_into().ok()?),
            None => None,
        };
        Some(BlockEvent {
            kind: layout.kind,
            disk: tracefs::device(layout.dev.unsigned(raw)?)?,
            first_sector: layout.sector.unsigned(raw)?,
            sector_count,
            operation: flags.operation,
            readahead: flags.readahead,
            metadata: flags.metadata,
            comm,
        })
    }
}

fn layout(kind: BlockKind, format: &EventFormat) -> Option<Layout> {
    let field = |name: &str| format.field(name).cloned();
    Some(Layout {
        kind,
        id: format.id,
        dev: field("dev")?,
        sector: field("sector")?,
        count: field("nr_sector")?,
        rwbs: field("rwbs")?,
        comm: match kind {
            BlockKind::Issue => Some(field("comm")?),
            BlockKind::Complete => None,
        },
    })
}

struct RequestFlags {
    operation: BlockOperation,
    readahead: bool,
    metadata: bool,
}

impl RequestFlags {
    /// blk_fill_rwbs: `F` if it flushes first, the operation (`R`, `W`, `D`, `DE`, `F`, `N`, `Z..`), then `F` (FUA), `A`
    /// (readahead), `S` (sync), `M` (metadata), `U` (atomic).
    fn parse(rwbs: &[u8]) -> RequestFlags {
        let letters = rwbs.split(|&byte| byte == 0).next().unwrap_or_default();
        let has = |letter| letters.contains(&letter);
        RequestFlags {
            operation: match letters.iter().find(|&&letter| letter != b'F') {
                Some(b'R') => BlockOperation::Read,
                Some(b'W') => BlockOperation::Write,
                _ => BlockOperation::Other,
            },
            readahead: has(b'A'),
            metadata: has(b'M'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::parse_format;

    const FORMAT: &str = "ID: 7\n\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:38;\tsize:16;\tsigned:0;\n";

    fn record(rwbs: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 54];
        record[8..12].copy_from_slice(&((254_u32 << 20) | 3).to_ne_bytes());
        record[16..24].copy_from_slice(&1000_u64.to_ne_bytes());
        record[24..28].copy_from_slice(&64_u32.to_ne_bytes());
        record[28..28 + rwbs.len()].copy_from_slice(rwbs);
        record[38..43].copy_from_slice(b"emacs");
        record
    }

    #[test]
    fn decodes_requests() {
        let format = parse_format(FORMAT).expect("well formed");
        let trace = BlockTrace {
            layouts: vec![layout(BlockKind::Issue, &format).expect("complete")],
        };
        let event = trace.decode(7, &record(b"RAM")).expect("well formed");
        assert_eq!((event.disk, event.first_sector), ((254, 3), 1000));
        assert_eq!(
            (event.sector_count, event.operation),
            (64, BlockOperation::Read)
        );
        assert!(event.readahead && event.metadata);
        assert_eq!(event.comm.expect("of an issue")[..6], *b"emacs\0");
        assert_eq!(trace.decode(8, &record(b"R")), None, "another tracepoint");
        assert_eq!(trace.decode(7, &record(b"R")[..53]), None, "truncated");
    }

    #[test]
    fn operations() {
        let operation = |rwbs: &[u8]| RequestFlags::parse(rwbs).operation;
        assert_eq!(operation(b"R\0A"), BlockOperation::Read);
        assert_eq!(operation(b"WS"), BlockOperation::Write);
        assert_eq!(operation(b"FWFSM"), BlockOperation::Write);
        for other in [&b"FF"[..], b"F", b"DE", b"N", b"ZR", b""] {
            assert_eq!(operation(other), BlockOperation::Other);
        }
        assert!(!RequestFlags::parse(b"R\0A").readahead, "ended by NUL");
    }
}
