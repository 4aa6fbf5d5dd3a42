//! What a thread does to fetch file pages (ASAP section 5.2): asynchronous reads into the page cache.
//!
//! The pages are charged to the memory control group of this thread, which is the service's, not the application's.
//! Files are opened with the file-system rights of the application's owner, in the application's root directory, so
//! that nobody's pages are read that the application could not read.

use crate::fetch::cores::FileThread;
use crate::fetch::heart::Heart;
use crate::fetch::job::{Job, Part};
use crate::params::{CorePolicy, FetchParams};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::FileTargets;
use prepage_core::identity::FileId;
use prepage_kernel::open::{FileStat, open_in_root, process_root};
use prepage_kernel::page::page_size;
use prepage_kernel::{credentials, readahead};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// `statfs` magic of F2FS, which maps files by direct and indirect node blocks.
const F2FS_MAGIC: u64 = 0xf2f5_2010;
/// `statfs` magic of ext2, ext3 and ext4.
const EXT_MAGIC: u64 = 0xef53;
/// Inode flag of ext4: the file is mapped by extents, not by indirect blocks.
const EXT4_EXTENTS_FL: u32 = 0x0008_0000;

/// Works on the job's files until all are taken.
pub fn fetch(job: &Job, thread: &FileThread, params: &FetchParams, heart: &Heart, part: &mut Part) {
    let (Some(pid), Some(rights)) = (job.root_pid, &job.rights) else {
        return;
    };
    // The application has ended: nothing to fetch for.
    let Ok(root) = process_root(pid) else { return };
    let user = credentials::FsUser::enter(rights.uid, rights.gid, Some(&rights.groups));
    let Ok(_user) = user else { return };
    while let Some(targets) = job.take_file(thread.largest) {
        job.note_begin();
        heart.beat();
        match open_in_root(root.as_fd(), Path::new(&*targets.file.path)) {
            Ok((fd, stat)) if is_version(&targets.file, &stat) => {
                read(job, fd.as_fd(), targets, params, heart);
            }
            Ok(_) => part.stale_files.push(targets.file.clone()),
            Err(error) if error.is_not_found() || error.is_unsupported() => {
                part.stale_files.push(targets.file.clone())
            }
            // Not to be read by this user, or busy: that may change; the profile stays.
            Err(_) => {}
        }
    }
}

/// Whether an open file is the version that was learned. The device number is not compared: on btrfs and overlay,
/// stat's differs from the tracepoints'.
fn is_version(file: &FileId, stat: &FileStat) -> bool {
    (file.inode, file.size, i128::from(file.mtime_ns))
        == (stat.inode, stat.size_bytes, stat.mtime_ns)
}

fn read(job: &Job, fd: BorrowedFd<'_>, targets: &FileTargets, params: &FetchParams, heart: &Heart) {
    let page = page_size();
    if maps_by_blocks(fd) {
        for offset in metadata_offsets(&targets.read, params.metadata_stride_pages) {
            // A hint: what it cannot read ahead is read on demand.
            let _ = readahead::readahead(fd, offset * page, page);
        }
    }
    let call_pages = match params.core_policy {
        CorePolicy::Iorap => 1,
        _ => (params.file_call_bytes / page).max(1),
    };
    for call in calls(&targets.read, call_pages) {
        if job.is_cancelled() {
            return;
        }
        heart.beat();
        let _ = readahead::readahead(fd, call.start * page, call.len * page);
    }
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
    extents.extents().iter().flat_map(move |extent| {
        (extent.start..extent.end())
            .step_by(pages_max as usize)
            .map(move |start| Extent::between(start, extent.end().min(start + pages_max)))
    })
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
    fn calls_cover_the_extents_exactly() {
        let extents = set(&[(3, 1), (10, 7), (100, 6)]);
        let calls: Vec<Extent> = calls(&extents, 3).collect();
        assert!(calls.iter().all(|c| (1..=3).contains(&c.len)));
        assert_eq!(calls.into_iter().collect::<ExtentSet>(), extents);
    }
}
