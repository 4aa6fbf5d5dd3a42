//! Which pages of an application are present and which are swapped out; taking them out and bringing them back.

use crate::error::{Context, Result};
use prepage_kernel::maps::{self, Mapping};
use prepage_kernel::pagemap::{Categories, PageEntry, PageRegion, Pagemap};
use prepage_kernel::process_madvise::{Advice, advise_all};
use prepage_kernel::{Process, page_cache, process, process_vm};
use rustix::fs::{SeekFrom, seek};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Private memory without a file.
    Anonymous,
    /// tmpfs, memfd, System V and shared anonymous memory: swapped, not written to a file.
    Shmem,
    /// A file.
    File(FileKey),
}

/// A file as /proc/PID/maps names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    device: (u32, u32),
    inode: u64,
}

impl FileKey {
    /// That of a file by its `st_dev` and `st_ino`; on btrfs and overlay the maps name another device.
    pub fn of_stat(dev: u64, inode: u64) -> Self {
        let device = (rustix::fs::major(dev), rustix::fs::minor(dev));
        Self { device, inode }
    }
}

fn backing(mapping: &Mapping) -> Backing {
    match &mapping.path {
        None => Backing::Anonymous,
        Some(_) if mapping.is_shmem() => Backing::Shmem,
        Some(path) if path.to_string_lossy().starts_with("/anon_hugepage") => Backing::Shmem,
        Some(_) => Backing::File(FileKey {
            device: mapping.dev,
            inode: mapping.inode,
        }),
    }
}

/// The mappings that can hold pages of interest: not the kernel's own, and none that may not be accessed at all.
fn mappings(pid: i32) -> Result<Vec<Mapping>> {
    let all = match maps::read(pid) {
        Err(e) if e.is_gone() => Vec::new(),
        other => other.context("read mappings of", pid)?,
    };
    let of_kernel = |m: &Mapping| {
        m.label
            .as_ref()
            .is_some_and(|label| label.starts_with("[v"))
    };
    Ok(all
        .into_iter()
        .filter(|m| (m.readable || m.writable || m.executable) && !of_kernel(m))
        .collect())
}

/// Page counts over all processes of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Present, private anonymous (copies of file pages among them).
    pub present_anon: u64,
    /// Present, shared memory.
    pub present_shmem: u64,
    /// Present, of files that only the application maps.
    pub present_file: u64,
    /// Present, of files that a process outside maps too: nothing takes these out.
    pub present_file_shared: u64,
    /// Swapped out, private; a page shared after fork counts once.
    pub swapped_private: u64,
}

/// One process's page table, by its mappings.
struct Tables {
    process: Process,
    pagemap: Pagemap,
    mappings: Vec<Mapping>,
}

impl Tables {
    /// Opens them; `None` if the process is gone.
    fn open(pid: i32) -> Result<Option<Self>> {
        let process = match Process::open(pid) {
            Err(e) if e.is_gone() => return Ok(None),
            other => other.context("open process", pid)?,
        };
        let pagemap = match process.pagemap() {
            Err(e) if e.is_gone() => return Ok(None),
            other => other.context("open page map of", pid)?,
        };
        Ok(Some(Self {
            process,
            pagemap,
            mappings: mappings(pid)?,
        }))
    }

    /// The regions of a mapping that have all of one category.
    fn regions(&self, mapping: &Mapping, category: Categories) -> Result<Vec<PageRegion>> {
        let mut regions = Vec::new();
        let scanned = self
            .pagemap
            .scan(mapping.pages(), category, Categories::NONE, &mut regions);
        scanned.context("scan page map of", self.process.pid())?;
        Ok(regions)
    }

    /// The swap slots of a region: what identifies a page that several processes share after fork.
    fn swap_slots(&self, pages: &Range<u64>, slots: &mut Vec<(u32, u64)>) -> Result<()> {
        let mut entries = vec![PageEntry::default(); (pages.end - pages.start) as usize];
        let count = self
            .pagemap
            .read(pages.start, &mut entries)
            .context("read page map of", self.process.pid())?;
        slots.extend(
            entries[..count]
                .iter()
                .filter_map(|entry| Some((entry.swap_type()?, entry.swap_offset()?))),
        );
        Ok(())
    }
}

fn length(pages: &Range<u64>) -> u64 {
    pages.end - pages.start
}

/// Counts the pages of these processes. `shared` are the files that others map.
pub fn count_pages(pids: &[i32], shared: &HashSet<FileKey>) -> Result<PageCounts> {
    let mut counts = PageCounts::default();
    let mut slots = Vec::new();
    for &pid in pids {
        let Some(tables) = Tables::open(pid)? else {
            continue;
        };
        for mapping in &tables.mappings {
            for region in tables.regions(mapping, Categories::PRESENT)? {
                *present(&mut counts, &region, backing(mapping), shared) += length(&region.pages);
            }
            for region in tables.regions(mapping, Categories::SWAPPED)? {
                tables.swap_slots(&region.pages, &mut slots)?;
            }
        }
    }
    slots.sort_unstable();
    slots.dedup();
    counts.swapped_private = slots.len() as u64;
    Ok(counts)
}

/// The count that a present region belongs to.
fn present<'a>(
    counts: &'a mut PageCounts,
    region: &PageRegion,
    backing: Backing,
    shared: &HashSet<FileKey>,
) -> &'a mut u64 {
    if !region.categories.contains(Categories::FILE) {
        return &mut counts.present_anon;
    }
    match backing {
        Backing::File(key) if shared.contains(&key) => &mut counts.present_file_shared,
        Backing::File(_) => &mut counts.present_file,
        Backing::Shmem | Backing::Anonymous => &mut counts.present_shmem,
    }
}

/// The files that processes outside these map.
pub fn files_mapped_by_others(own: &[i32]) -> Result<HashSet<FileKey>> {
    let own: HashSet<i32> = own.iter().copied().collect();
    let mut files = HashSet::new();
    for pid in process::processes().context("list", "processes")? {
        if own.contains(&pid) {
            continue;
        }
        // A stranger may hide its mappings even from root; what only it maps then counts as not mapped.
        for mapping in mappings(pid).unwrap_or_default() {
            if let Backing::File(key) = backing(&mapping) {
                files.insert(key);
            }
        }
    }
    Ok(files)
}

/// Asks the kernel to page out every present page of these processes that goes to swap. Pages that several processes
/// map stay: reclaiming the group takes them.
pub fn page_out(pids: &[i32]) -> Result<()> {
    for &pid in pids {
        let Some(tables) = Tables::open(pid)? else {
            continue;
        };
        let mut ranges = Vec::new();
        for mapping in &tables.mappings {
            let of_file = matches!(backing(mapping), Backing::File(_));
            let regions = tables.regions(mapping, Categories::PRESENT)?;
            let swappable = |r: &PageRegion| !of_file || !r.categories.contains(Categories::FILE);
            ranges.extend(regions.into_iter().filter(swappable).map(|r| r.pages));
        }
        match advise_all(tables.process.pidfd(), Advice::PageOut, &ranges) {
            Err(e) if !e.is_gone() => return Err(e).context("page out", pid),
            _ => {}
        }
    }
    Ok(())
}

/// Brings every swapped-out page of these processes back, mapped.
pub fn bring_back(pids: &[i32]) -> Result<()> {
    for &pid in pids {
        let Some(tables) = Tables::open(pid)? else {
            continue;
        };
        for mapping in &tables.mappings {
            let absent = match backing(mapping) {
                Backing::Shmem => absent_shmem_pages(&tables, mapping)?,
                Backing::Anonymous | Backing::File(_) => {
                    let regions = tables.regions(mapping, Categories::SWAPPED)?;
                    regions.into_iter().flat_map(|r| r.pages).collect()
                }
            };
            touch_all(pid, &absent)?;
        }
    }
    Ok(())
}

fn touch_all(pid: i32, mut pages: &[u64]) -> Result<()> {
    while !pages.is_empty() {
        match process_vm::touch(pid, pages) {
            Err(e) if e.is_gone() => return Ok(()),
            // The page after those that were touched cannot be: go on behind it.
            touched => {
                pages = pages
                    .get(touched.context("touch pages of", pid)? + 1..)
                    .unwrap_or(&[])
            }
        }
    }
    Ok(())
}

/// A swapped page of shared memory shows no bit in the page map: those that are not present and hold something, by
/// asking the object itself. A page that holds nothing must not be touched, for that would make one.
fn absent_shmem_pages(tables: &Tables, mapping: &Mapping) -> Result<Vec<u64>> {
    let Ok(object) = mapping.open_shmem(tables.process.pid()) else {
        return Ok(Vec::new());
    };
    let present = tables.regions(mapping, Categories::PRESENT)?;
    let is_present = |page: u64| {
        let after = present.partition_point(|region| region.pages.start <= page);
        after > 0 && present[after - 1].pages.contains(&page)
    };
    let page_bytes = rustix::param::page_size() as u64;
    let end = mapping.offset + (mapping.end - mapping.start);
    let mut absent = Vec::new();
    let mut offset = mapping.offset;
    while let Ok(data) = seek(&object, SeekFrom::Data(offset)) {
        let Ok(hole) = seek(&object, SeekFrom::Hole(data)) else {
            break;
        };
        let page_at = |at: u64| (mapping.start + at.min(end) - mapping.offset) / page_bytes;
        absent.extend((page_at(data)..page_at(hole)).filter(|&page| !is_present(page)));
        if hole >= end || hole <= offset {
            break;
        }
        offset = hole;
    }
    Ok(absent)
}

/// How many pages of the files that only these processes map are in the page cache, whoever is charged for them.
pub fn cached_pages(pids: &[i32], shared: &HashSet<FileKey>) -> Result<u64> {
    Ok(cached_pages_of(&mapped_files(pids, shared)?))
}

/// How many pages of these files are in the page cache.
pub fn cached_pages_of(files: &[PathBuf]) -> u64 {
    let mut cached = 0;
    for path in files {
        // A file that was replaced or removed meanwhile has no name to ask by.
        let Ok(file) = File::open(path) else { continue };
        let length = file.metadata().map_or(0, |m| m.len());
        // A device, for instance, cannot be asked.
        cached += page_cache::cached(file.as_fd(), 0, length).unwrap_or(0);
    }
    cached
}

/// The paths of the files that these processes map, without those that others map.
pub fn mapped_files(pids: &[i32], shared: &HashSet<FileKey>) -> Result<Vec<PathBuf>> {
    let mut seen = shared.clone();
    let mut paths = Vec::new();
    for &pid in pids {
        for mapping in mappings(pid)? {
            if let (Backing::File(key), Some(path)) = (backing(&mapping), mapping.path)
                && seen.insert(key)
            {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Reads a whole file into the page cache, and returns when it is there: what is only asked for comes long after from a slow
/// device. Whoever calls is charged for its pages.
pub fn read_whole_file(path: &Path) {
    // A device that is mapped may have no end.
    if !path.is_file() {
        return;
    }
    let Ok(file) = File::open(path) else { return };
    const CALL_BYTES: usize = 1 << 20;
    // Of what cannot be read nothing can be said here: the sample says that it has major faults.
    let _ = io::copy(
        &mut BufReader::with_capacity(CALL_BYTES, file),
        &mut io::sink(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing_of(line: &str) -> Backing {
        backing(&maps::parse(line.as_bytes()).unwrap()[0])
    }

    #[test]
    fn kinds_of_mappings() {
        assert_eq!(
            backing_of("1000-2000 rw-p 00000000 00:00 0 "),
            Backing::Anonymous
        );
        assert_eq!(
            backing_of("1000-2000 rw-p 00000000 00:00 0    [heap]"),
            Backing::Anonymous
        );
        assert_eq!(
            backing_of("1000-2000 rw-s 00000000 00:01 7    /memfd:x (deleted)"),
            Backing::Shmem
        );
        let file = Backing::File(FileKey {
            device: (0xfe, 0),
            inode: 12,
        });
        assert_eq!(
            backing_of("1000-3000 r-xp 00000000 fe:00 12    /usr/lib/a b.so"),
            file
        );
    }

    #[test]
    fn own_pages_are_counted() {
        let memory = vec![1u8; 1 << 20];
        let counts = count_pages(&[process::own_pid()], &HashSet::new()).unwrap();
        assert!(counts.present_anon >= memory.len() as u64 / rustix::param::page_size() as u64);
        assert!(counts.present_file > 0);
    }
}
