//! The FS_IOC_FIEMAP ioctl (2.6.28+, Documentation/filesystems/fiemap.rst): where on the device a file lies. It is what
//! FAST's LBA-to-inode map is made of (section 4.3).
//!
//! **Which device.** Physical offsets count from the start of the block device below the file system: for ext4, xfs and
//! f2fs that of `st_dev` ([`crate::open::fstat`]), which may be a partition: [`crate::block::Placement`] says where on
//! which disk it begins. Not so on btrfs, where they are offsets in the file system's own address space, and `st_dev` has
//! no device; and on overlay, where they are those of the layer that holds the file while `st_dev` is the overlay's.

use crate::error::{Error, Result, fd_subject};
use rustix::fd::{AsRawFd, BorrowedFd};

/// A contiguous range of a file that is contiguous on its device too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalExtent {
    /// Its first byte in the file.
    pub logical_bytes: u64,
    /// Its first byte on the device; meaningless where [`ExtentFlags::is_readable_at`] is false.
    pub physical_bytes: u64,
    /// Its length in bytes; the last may reach beyond the end of the file.
    pub len_bytes: u64,
    /// What else the file system says.
    pub flags: ExtentFlags,
}

/// FIEMAP_EXTENT_* of linux/fiemap.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentFlags(pub u32);

impl ExtentFlags {
    /// The last extent of the file.
    pub const LAST: ExtentFlags = ExtentFlags(0x1);
    /// No place on the device is known.
    pub const UNKNOWN: ExtentFlags = ExtentFlags(0x2);
    /// Written, but no place was chosen yet.
    pub const DELALLOC: ExtentFlags = ExtentFlags(0x4);
    /// Mixed with metadata (ext4 keeps small files in their inodes).
    pub const INLINE: ExtentFlags = ExtentFlags(0x200);
    /// Reserved, and reads as zeros without any access to the device.
    pub const UNWRITTEN: ExtentFlags = ExtentFlags(0x800);
    /// Shared with other files (reflinks, snapshots).
    pub const SHARED: ExtentFlags = ExtentFlags(0x2000);

    /// Whether all of these are set.
    pub fn has(self, flags: ExtentFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether a read of the file reads the device at the extent's physical offset.
    pub fn is_readable_at(self) -> bool {
        let elsewhere = ExtentFlags::UNKNOWN.0
            | ExtentFlags::DELALLOC.0
            | ExtentFlags::INLINE.0
            | ExtentFlags::UNWRITTEN.0;
        self.0 & elsewhere == 0
    }
}

/// The extents of a file, in the order of the file. What lies between them is holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhysicalExtents {
    /// The extents.
    pub list: Vec<PhysicalExtent>,
    /// Whether these are all: false where there are more than were asked for.
    pub complete: bool,
}

/// Extents per call; a call's buffer is on the stack.
const EXTENTS_PER_CALL: usize = 64;

/// struct fiemap.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// struct fiemap_extent.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Buffer {
    request: Request,
    extents: [Extent; EXTENTS_PER_CALL],
}

/// The size in the number of the ioctl is that of struct fiemap without extents.
const FS_IOC_FIEMAP: u32 = rustix::ioctl::opcode::read_write::<Request>(b'f', 11);

/// The extents of an open file or directory (not O_PATH), at most `extents_max`. Writes nothing back first
/// (FIEMAP_FLAG_SYNC), so that what was written just now may be without a place.
///
/// `EOPNOTSUPP` ([`Error::is_unsupported`]) on file systems without it: tmpfs, procfs, FUSE, network.
pub fn extents(fd: BorrowedFd<'_>, extents_max: usize) -> Result<PhysicalExtents> {
    let mut found = PhysicalExtents::default();
    let mut start = 0;
    while found.list.len() < extents_max {
        let wanted = EXTENTS_PER_CALL.min(extents_max - found.list.len());
        let buffer = map(fd, start, wanted)?;
        let mapped = (buffer.request.mapped_extents as usize).min(wanted);
        let before = found.list.len();
        found
            .list
            .extend(buffer.extents[..mapped].iter().map(physical));
        let Some(last) = found.list[before..].last() else {
            found.complete = true;
            break;
        };
        let end = last.logical_bytes.saturating_add(last.len_bytes);
        if last.flags.has(ExtentFlags::LAST) {
            found.complete = true;
            break;
        }
        if end <= start {
            let what = "the file system gave the same extent twice";
            return Err(Error::malformed(
                "ioctl(FS_IOC_FIEMAP)",
                fd_subject(fd),
                what,
            ));
        }
        start = end;
    }
    Ok(found)
}

fn map(fd: BorrowedFd<'_>, start: u64, wanted: usize) -> Result<Buffer> {
    let mut buffer = Buffer {
        request: Request {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: wanted as u32,
            reserved: 0,
        },
        extents: [Extent::default(); EXTENTS_PER_CALL],
    };
    // SAFETY: `buffer` is a live struct fiemap with room for `EXTENTS_PER_CALL` extents behind it, of which the kernel
    // writes at most `extent_count`; both are plain numbers.
    let result = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            FS_IOC_FIEMAP as _,
            std::ptr::from_mut(&mut buffer),
        )
    };
    match result {
        0 => Ok(buffer),
        _ => Err(Error::last("ioctl(FS_IOC_FIEMAP)", fd_subject(fd))),
    }
}

fn physical(extent: &Extent) -> PhysicalExtent {
    PhysicalExtent {
        logical_bytes: extent.logical,
        physical_bytes: extent.physical,
        len_bytes: extent.length,
        flags: ExtentFlags(extent.flags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_kernel() {
        assert_eq!(size_of::<Request>(), 32);
        assert_eq!(size_of::<Extent>(), 56);
        assert_eq!(std::mem::offset_of!(Buffer, extents), 32);
        assert_eq!(FS_IOC_FIEMAP, 0xc020_660b);
    }

    #[test]
    fn what_has_no_place_is_not_readable() {
        assert!(ExtentFlags::default().is_readable_at());
        assert!((ExtentFlags(ExtentFlags::LAST.0 | ExtentFlags::SHARED.0)).is_readable_at());
        for flags in [
            ExtentFlags::UNKNOWN,
            ExtentFlags::DELALLOC,
            ExtentFlags::INLINE,
            ExtentFlags::UNWRITTEN,
        ] {
            assert!(!ExtentFlags(flags.0 | ExtentFlags::LAST.0).is_readable_at());
        }
    }
}
