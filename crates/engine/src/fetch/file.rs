//! What a thread does to fetch file pages (ASAP section 5.2): asynchronous reads into the page cache.
//!
//! The pages are charged to the memory control group of this thread, which is the service's, not the application's.
//! Files are opened with the file-system rights of the application's owner, in the application's root directory, so
//! that nobody's pages are read that the application could not read.

use crate::fetch::cores::FileThread;
use crate::fetch::heart::Heart;
use crate::fetch::job::{Job, JobFile, Part};
use crate::fetch::pool::GoesFirst;
use crate::params::{CorePolicy, FetchParams, FileOrder};
use crate::roots::{Found, Roots};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_kernel::block::{BlockDevice, READAHEAD_CAP_KIB_DEFAULT};
use prepage_kernel::page::page_size;
use prepage_kernel::{open, readahead};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

/// `statfs` magic of F2FS, which maps files by direct and indirect node blocks.
const F2FS_MAGIC: u64 = 0xf2f5_2010;
/// `statfs` magic of ext2, ext3 and ext4.
const EXT_MAGIC: u64 = 0xef53;
/// Inode flag of ext4: the file is mapped by extents, not by indirect blocks.
const EXT4_EXTENTS_FL: u32 = 0x0008_0000;

/// Works on the job's files until all are taken, or another job goes first. Returns whether all are taken.
pub fn fetch(
    job: &Job,
    thread: &FileThread,
    params: &FetchParams,
    heart: &Heart,
    first: &GoesFirst,
    part: &mut Part,
) -> bool {
    let Some(oldest) = job.file_members.first() else {
        return true;
    };
    let roots = Roots::of(&job.file_members);
    let Ok(_user) = oldest.rights.enter() else {
        return true;
    };
    let mut reader = Reader {
        job,
        roots,
        params,
        heart,
        first,
        part,
        caps: BTreeMap::new(),
        in_flight: VecDeque::new(),
        in_flight_pages: 0,
    };
    match params.file_order {
        FileOrder::File => reader.read_by_file(thread.largest),
        // The order is one thread's to keep; idle ones would only break it.
        FileOrder::Access if thread.largest => reader.read_by_access(),
        FileOrder::Access => true,
    }
}

/// One thread's work on a job's files.
struct Reader<'a> {
    job: &'a Job,
    roots: Roots,
    params: &'a FetchParams,
    heart: &'a Heart,
    first: &'a GoesFirst,
    part: &'a mut Part,
    /// What a call to a file of this device is cut to, in pages.
    caps: BTreeMap<u64, u64>,
    /// Reads submitted and not known to be complete, oldest first.
    in_flight: VecDeque<(BorrowedFd<'a>, Extent)>,
    in_flight_pages: u64,
}

impl<'a> Reader<'a> {
    /// The paper's way: the file is the unit of work, its metadata comes first.
    fn read_by_file(&mut self, largest: bool) -> bool {
        loop {
            if self.first.is_any() {
                return false;
            }
            let Some(file) = self.job.take_file(largest) else {
                return true;
            };
            let Some(fd) = self.open(file) else { continue };
            self.read_metadata(fd, &file.targets.read);
            for call in calls(&file.targets.read, self.call_pages(fd)) {
                if self.job.is_cancelled() {
                    return true;
                }
                self.submit(fd, call);
            }
        }
    }

    /// In the order of first access, so much in flight and no more.
    fn read_by_access(&mut self) -> bool {
        let depth_pages = (self.params.file_depth_bytes / page_size()).max(1);
        loop {
            if self.first.is_any() {
                return false;
            }
            let Some((file, extent)) = self.job.take_read() else {
                return true;
            };
            let Some(fd) = self.open(file) else { continue };
            let extent = ExtentSet::from(vec![extent]);
            for call in calls(&extent, self.call_pages(fd)) {
                self.submit(fd, call);
                self.in_flight.push_back((fd, call));
                self.in_flight_pages += call.len;
                while self.in_flight_pages > depth_pages && !self.job.is_cancelled() {
                    self.wait_for_oldest();
                }
            }
        }
    }

    fn open(&mut self, file: &'a JobFile) -> Option<BorrowedFd<'a>> {
        self.job.note_begin();
        self.heart.beat();
        let (roots, stale) = (&self.roots, &mut self.part.stale_files);
        file.fd(|targets| match roots.open(&targets.file) {
            Found::Same(fd) => Some(fd),
            Found::Stale => {
                stale.push(targets.file.clone());
                None
            }
            // The profile stays.
            Found::Denied => None,
        })
    }

    /// Pages that one call asks for: what the device takes, since the kernel silently cuts a larger one.
    fn call_pages(&mut self, fd: BorrowedFd<'_>) -> u64 {
        let wanted = match self.params.core_policy {
            CorePolicy::Iorap => 1,
            _ => self.params.file_call_bytes / page_size(),
        };
        let cap = open::fstat(fd).map(|stat| {
            *self
                .caps
                .entry(stat.dev)
                .or_insert_with(|| cap_pages(stat.dev))
        });
        wanted.min(cap.unwrap_or(wanted)).max(1)
    }

    fn read_metadata(&self, fd: BorrowedFd<'_>, extents: &ExtentSet) {
        if maps_by_blocks(fd) {
            for page in metadata_offsets(extents, self.params.metadata_stride_pages) {
                self.submit(fd, Extent::new(page, 1));
            }
        }
    }

    fn submit(&self, fd: BorrowedFd<'_>, pages: Extent) {
        self.heart.beat();
        // A hint: what it cannot read ahead is read on demand.
        let _ = readahead::readahead(fd, pages.start * page_size(), pages.len * page_size());
    }

    /// Reads a byte of the oldest read's last page: it is there when the read is complete.
    fn wait_for_oldest(&mut self) {
        if let Some((fd, pages)) = self.in_flight.pop_front() {
            self.heart.beat();
            let last = (pages.end() - 1) * page_size();
            // Behind the end of a file that was truncated meanwhile there is nothing to wait for.
            let _ = rustix::io::pread(fd, &mut [0u8], last);
            self.in_flight_pages -= pages.len;
        }
    }
}

/// What the kernel cuts a readahead call to a file on this device to, in pages. A file system that has no device of its
/// own has another cut the call, as an overlay does, or cuts it itself: there it is what the kernel cuts calls to by
/// default.
fn cap_pages(dev: u64) -> u64 {
    let cap_kib = BlockDevice::of_number(dev).and_then(|device| device.readahead_cap_kib());
    (cap_kib.unwrap_or(READAHEAD_CAP_KIB_DEFAULT) << 10) / page_size()
}

/// Whether the file system maps this file by indirect or node blocks, so that metadata has to be read along it.
fn maps_by_blocks(fd: BorrowedFd<'_>) -> bool {
    let Ok(fs) = rustix::fs::fstatfs(fd) else {
        return false;
    };
    match fs.f_type as u64 {
        F2FS_MAGIC => true,
        EXT_MAGIC => {
            rustix::fs::ioctl_getflags(fd).is_ok_and(|flags| flags.bits() & EXT4_EXTENTS_FL == 0)
        }
        _ => false,
    }
}

/// One page in each stride that the extents touch.
fn metadata_offsets(extents: &ExtentSet, stride: u64) -> Vec<u64> {
    let mut offsets = Vec::new();
    for extent in extents.extents() {
        for index in extent.start / stride..extent.end().div_ceil(stride) {
            let offset = extent.start.max(index * stride);
            if offsets.last().is_none_or(|&last| last / stride != index) {
                offsets.push(offset);
            }
        }
    }
    offsets
}

/// The extents, cut to calls of at most `pages_max` pages.
fn calls(extents: &ExtentSet, pages_max: u64) -> impl Iterator<Item = Extent> + '_ {
    let extents = extents.extents().iter();
    extents.flat_map(move |extent| extent.pieces(pages_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(extents: &[(u64, u64)]) -> ExtentSet {
        extents
            .iter()
            .map(|&(start, len)| Extent::new(start, len))
            .collect()
    }

    #[test]
    fn metadata_is_read_once_in_each_stride_at_a_wanted_page() {
        let extents = set(&[(10, 5), (100, 1), (500, 600), (5000, 1)]);
        assert_eq!(metadata_offsets(&extents, 512), [10, 512, 1024, 5000]);
        assert_eq!(metadata_offsets(&ExtentSet::new(), 512), [] as [u64; 0]);
    }

    #[test]
    fn calls_have_an_end_where_the_device_is_not_known() {
        // No block device has a number of those that the kernel gives to other file systems.
        let nobodys = rustix::fs::makedev(0, 1);
        assert_eq!(cap_pages(nobodys) * page_size(), 128 << 10);
    }

    #[test]
    fn calls_cover_the_extents_exactly() {
        let extents = set(&[(3, 1), (10, 7), (100, 6)]);
        let calls: Vec<Extent> = calls(&extents, 3).collect();
        assert!(calls.iter().all(|c| (1..=3).contains(&c.len)));
        assert_eq!(calls.into_iter().collect::<ExtentSet>(), extents);
    }
}
