//! PROCMAP_QUERY on /proc/PID/maps (6.11+): one mapping of a process by its address. To read the whole file formats every
//! mapping, to learn of a few.

use crate::error::{Error, Result};
use crate::maps::{self, Mapping};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// struct procmap_query of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const PROCMAP_QUERY: u32 = rustix::ioctl::opcode::read_write::<Query>(b'f', 17);

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
const COVERING_OR_NEXT: u64 = 16;

/// PATH_MAX and room for ` (deleted)`.
const NAME_BYTES_MAX: usize = 4096 + 16;

/// The mappings that hold some of these pages, in ascending order. `pages` ascend and do not overlap.
///
/// Mappings may change between one query and the next. The vsyscall page, which the text shows, is none of the process's.
pub fn mappings_of(
    pid: i32,
    pages: impl Iterator<Item = Range<u64>> + Clone,
) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let file = File::open(&path).map_err(|error| Error::new("open", &path, error))?;
    match query_all(&file.into(), pages.clone()) {
        Ok(mappings) => Ok(mappings),
        // ENOTTY before 6.11; a name that is too long, or a process that is gone, shows in the text as well.
        Err(_) => Ok(holding(pages, maps::read(pid)?)),
    }
}

/// Those of a process's mappings, as its text shows them, that hold some of these pages.
fn holding(pages: impl Iterator<Item = Range<u64>>, mut mappings: Vec<Mapping>) -> Vec<Mapping> {
    let mut pages = pages.peekable();
    mappings.retain(|mapping| {
        let own = mapping.pages();
        while pages.next_if(|range| range.end <= own.start).is_some() {}
        let holds_some = pages.peek().is_some_and(|range| range.start < own.end);
        holds_some && mapping.label.as_deref() != Some("[vsyscall]")
    });
    mappings
}

fn query_all(fd: &OwnedFd, pages: impl Iterator<Item = Range<u64>>) -> io::Result<Vec<Mapping>> {
    let page_bytes = crate::page::page_size();
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut name = vec![0; NAME_BYTES_MAX];
    for range in pages {
        let end = range.end.saturating_mul(page_bytes);
        let looked_at = mappings.last().map_or(0, |mapping| mapping.end);
        let mut address = looked_at.max(range.start.saturating_mul(page_bytes));
        while address < end {
            match query(fd, address, &mut name)? {
                None => return Ok(mappings),
                Some(next) if next.start >= end => break,
                Some(mapping) => {
                    address = mapping.end;
                    mappings.push(mapping);
                }
            }
        }
    }
    Ok(mappings)
}

/// The mapping that holds this byte address, or the next one; `None` behind the last.
fn query(fd: &OwnedFd, address: u64, name: &mut [u8]) -> io::Result<Option<Mapping>> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        flags: COVERING_OR_NEXT,
        address,
        name_size: u32::try_from(name.len()).unwrap_or(u32::MAX),
        name: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: `query` is a live procmap_query that states its own size; the kernel writes at most `name_size` bytes to the
    // exclusively borrowed `name`, and no build id, whose size is 0.
    let result = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            PROCMAP_QUERY as _,
            std::ptr::from_mut(&mut query),
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            _ => Err(error),
        };
    }
    // The size counts the NUL at its end; without a name it is 0.
    let name = name.get(..query.name_size.saturating_sub(1) as usize);
    let has = |flag| query.vma_flags & flag != 0;
    let (path, label, deleted) = maps::parse_name(name.unwrap_or_default());
    Ok(Some(Mapping {
        start: query.vma_start,
        end: query.vma_end,
        readable: has(READABLE),
        writable: has(WRITABLE),
        executable: has(EXECUTABLE),
        shared: has(SHARED),
        offset: query.vma_offset,
        dev: (query.dev_major, query.dev_minor),
        inode: query.inode,
        path,
        label,
        deleted,
    }))
}

#[cfg(test)]
mod tests {
    use super::{Mapping, holding};

    #[test]
    fn of_the_text_those_are_kept_that_hold_pages() {
        let text = "1000-3000 r--p 00000000 00:00 0 \n\
                    3000-4000 rw-p 00000000 00:00 0 \n\
                    6000-9000 rw-p 00000000 00:00 0 \n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let all = crate::maps::parse(text.as_bytes()).expect("maps");
        let starts = |pages: &[(u64, u64)]| {
            let pages = pages.iter().map(|&(start, end)| start..end);
            let kept = holding(pages, all.clone());
            kept.iter()
                .map(|m: &Mapping| m.start / 0x1000)
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(&[]), []);
        assert_eq!(starts(&[(0, 1), (4, 6), (9, 20)]), [] as [u64; 0]);
        assert_eq!(starts(&[(0, 2)]), [1]);
        assert_eq!(starts(&[(2, 3), (3, 5), (8, 9)]), [1, 3, 6]);
        assert_eq!(starts(&[(2, 7)]), [1, 3, 6]);
        assert_eq!(starts(&[(1, 2), (2, 3), (7, 8), (8, 30)]), [1, 6]);
        assert_eq!(starts(&[(0, u64::MAX)]), [1, 3, 6]);
    }
}
