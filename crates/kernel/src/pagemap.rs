//! /proc/PID/pagemap: one 64-bit entry per page, and the PAGEMAP_SCAN ioctl (6.7+) over it.

use crate::error::{Error, Result};
use crate::page::{address_of, page_size};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::ops::{BitOr, Range};
use std::sync::OnceLock;

/// One entry of pagemap. Page frame numbers are not offered: nothing here needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageEntry(pub u64);

impl PageEntry {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE_OR_SHARED: u64 = 1 << 61;
    const GUARD: u64 = 1 << 58;
    const SWAP_TYPE: u64 = 0x1f;
    /// The highest swap type, never an area's. Markers have it (5.19+): they say something of a page that is not there.
    /// Without CAP_SYS_ADMIN pagemap gives no type.
    const MARKER: u64 = Self::SWAP_TYPE;

    /// The page is mapped by the page table. A page that is only in the page or swap cache is not.
    pub fn present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// The page table holds a swap entry: the page is in a swap area, or in the swap cache but not touched since.
    /// Never set for shmem, whose swap entries are in the page cache's tree. Also set while a page migrates, with a
    /// type above that of every swap area. Not set for markers, which the kernel reports like swap entries: guard pages
    /// (6.13+), and missing pages that userfaultfd write-protects (6.4+), where a reader allocates or waits for a monitor.
    pub fn swapped(self) -> bool {
        self.0 & (Self::SWAPPED | Self::GUARD) == Self::SWAPPED
            && self.0 & Self::SWAP_TYPE != Self::MARKER
    }

    /// The number of the swap area ([`crate::swaps::SwapArea::index`]) of a swapped page.
    pub fn swap_type(self) -> Option<u32> {
        self.swapped().then_some((self.0 & Self::SWAP_TYPE) as u32)
    }

    /// The page's offset in its swap area, in pages. 0 without CAP_SYS_ADMIN on some kernels.
    pub fn swap_offset(self) -> Option<u64> {
        self.swapped().then_some((self.0 >> 5) & ((1 << 50) - 1))
    }

    /// The page belongs to a file or to shared memory; otherwise it is private anonymous.
    pub fn file_or_shared(self) -> bool {
        self.0 & Self::FILE_OR_SHARED != 0
    }

    fn categories(self) -> Categories {
        let mut categories = Categories::NONE;
        if self.present() {
            categories = categories | Categories::PRESENT;
        }
        if self.swapped() {
            categories = categories | Categories::SWAPPED;
        }
        // Without a page there is nothing that could belong to a file.
        if self.file_or_shared() && categories != Categories::NONE {
            categories = categories | Categories::FILE;
        }
        categories
    }
}

/// A set of the categories by which [`Pagemap::scan`] selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories(u64);

impl Categories {
    /// The empty set.
    pub const NONE: Categories = Categories(0);
    /// Belongs to a file or to shared memory (PAGE_IS_FILE).
    pub const FILE: Categories = Categories(1 << 2);
    /// Mapped by the page table (PAGE_IS_PRESENT).
    pub const PRESENT: Categories = Categories(1 << 3);
    /// The page table holds a swap entry (PAGE_IS_SWAPPED).
    pub const SWAPPED: Categories = Categories(1 << 4);

    const ALL: u64 = (1 << 2) | (1 << 3) | (1 << 4);
    /// PAGE_IS_GUARD (6.15+): scans skip such pages, on which a reader gets a fault, not a page.
    const GUARD: u64 = 1 << 8;

    /// Whether every category of `other` is in this set.
    pub fn contains(self, other: Categories) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether some category of `other` is in this set.
    pub fn intersects(self, other: Categories) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Categories {
    type Output = Categories;
    fn bitor(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }
}

/// A contiguous range of pages of the same categories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRegion {
    /// Page numbers.
    pub pages: Range<u64>,
    /// What all of them are.
    pub categories: Categories,
}

/// How much of PAGEMAP_SCAN this kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanSupport {
    /// Not there (before 6.7): scans read the entries.
    Absent,
    /// There, without the category for guard pages.
    Plain,
    /// There, with the category for guard pages.
    WithGuard,
}

/// Regions per ioctl, and pages per read: both about 12 KiB of stack.
const SCAN_REGIONS: usize = 512;
const READ_ENTRIES: usize = 1536;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// struct pm_scan_arg of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: u32 = rustix::ioctl::opcode::read_write::<ScanArgument>(b'f', 16);

/// An open pagemap. It stays with the address space it was opened on: after exit or exec of the process, reads give
/// nothing.
#[derive(Debug)]
pub struct Pagemap {
    fd: OwnedFd,
    pid: i32,
}

impl Pagemap {
    /// Opens /proc/PID/pagemap; needs the right to ptrace-read the process.
    pub fn open(pid: i32) -> Result<Pagemap> {
        Pagemap::open_path(&format!("/proc/{pid}/pagemap"), pid)
    }

    fn open_path(path: &str, pid: i32) -> Result<Pagemap> {
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::new("open", path, error))?;
        Ok(Pagemap { fd, pid })
    }

    fn failed(&self, operation: &'static str, error: rustix::io::Errno) -> Error {
        Error::new(operation, format!("/proc/{}/pagemap", self.pid), error)
    }

    /// Whether the address space is still some process's: after an exec it is not.
    ///
    /// Asked by a read that is not of whole entries: of an address space that is gone the kernel reads nothing, of another it refuses
    /// that with EINVAL, before it waits for the lock of the address space (pagemap_read() in fs/proc/task_mmu.c).
    pub fn is_of_living(&self) -> bool {
        rustix::io::pread(&self.fd, &mut [0_u8], 0) == Err(rustix::io::Errno::INVAL)
    }

    /// Reads the entries of the pages from `first_page` on and returns how many were read: fewer than asked at the end
    /// of the address space, none when the process has exited. Pages without a mapping have an empty entry.
    pub fn read(&self, first_page: u64, entries: &mut [PageEntry]) -> Result<usize> {
        let mut buffer = [0_u8; READ_ENTRIES * 8];
        let mut filled = 0;
        while filled < entries.len() {
            let wanted = (entries.len() - filled).min(READ_ENTRIES);
            let Some(offset) = (first_page + filled as u64).checked_mul(8) else {
                break;
            };
            let bytes = match rustix::io::pread(&self.fd, &mut buffer[..wanted * 8], offset) {
                Ok(bytes) => bytes,
                Err(rustix::io::Errno::INTR) => continue,
                // Beyond the address space: EFAULT or EINVAL by kernel version, what was read before still holds.
                Err(_) if filled > 0 => break,
                Err(error) => return Err(self.failed("pread", error)),
            };
            for chunk in buffer[..bytes].chunks_exact(8) {
                entries[filled] = PageEntry(crate::ring::u64_at(chunk, 0).unwrap_or(0));
                filled += 1;
            }
            if bytes < wanted * 8 {
                break;
            }
        }
        Ok(filled)
    }

    /// Appends to `out` the regions of `pages` (ascending, maximal) whose pages have all `required` categories and
    /// none of the `excluded`. Required or excluded must not be empty, and guard pages are never among them.
    ///
    /// Uses PAGEMAP_SCAN where there is one, else reads every entry: the result is the same, but that PAGEMAP_SCAN counts
    /// userfaultfd's markers as swapped.
    pub fn scan(
        &self,
        pages: Range<u64>,
        required: Categories,
        excluded: Categories,
        out: &mut Vec<PageRegion>,
    ) -> Result<()> {
        match scan_support() {
            ScanSupport::Absent => self.scan_by_read(pages, required, excluded, out),
            support => self.scan_by_ioctl(pages, required, excluded, support, out),
        }
    }

    /// [`Pagemap::scan`] by reading every entry, on every kernel.
    pub fn scan_by_read(
        &self,
        pages: Range<u64>,
        required: Categories,
        excluded: Categories,
        out: &mut Vec<PageRegion>,
    ) -> Result<()> {
        let floor = out.len();
        let mut entries = [PageEntry::default(); READ_ENTRIES];
        let mut next = pages.start;
        while next < pages.end {
            let wanted = (pages.end - next).min(READ_ENTRIES as u64) as usize;
            let count = self.read(next, &mut entries[..wanted])?;
            for (entry, page) in entries[..count].iter().zip(next..) {
                let categories = entry.categories();
                let wanted = categories.contains(required) && !categories.intersects(excluded);
                if wanted && entry.0 & PageEntry::GUARD == 0 {
                    append(out, floor, page..page + 1, categories);
                }
            }
            next += count as u64;
            if count < wanted {
                break;
            }
        }
        Ok(())
    }

    fn scan_by_ioctl(
        &self,
        pages: Range<u64>,
        required: Categories,
        excluded: Categories,
        support: ScanSupport,
        out: &mut Vec<PageRegion>,
    ) -> Result<()> {
        let guard = if support == ScanSupport::WithGuard {
            Categories::GUARD
        } else {
            0
        };
        let overflow = || self.failed("ioctl(PAGEMAP_SCAN)", rustix::io::Errno::INVAL);
        let floor = out.len();
        let mut regions = [RawRegion::default(); SCAN_REGIONS];
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: address_of(pages.start).ok_or_else(overflow)?,
            end: address_of(pages.end).ok_or_else(overflow)?,
            category_inverted: excluded.0 | guard,
            category_mask: required.0 | excluded.0 | guard,
            return_mask: Categories::ALL,
            ..ScanArgument::default()
        };
        while argument.start < argument.end {
            let count = ioctl_scan(&self.fd, &mut argument, &mut regions)
                .map_err(|error| self.failed("ioctl(PAGEMAP_SCAN)", error))?;
            for region in &regions[..count] {
                let pages = region.start / page_size()..region.end / page_size();
                append(
                    out,
                    floor,
                    pages,
                    Categories(region.categories & Categories::ALL),
                );
            }
            // walk_end is the end of the range when the vector was large enough; a kernel that does not move on (the
            // process has exited) ends the scan.
            if argument.walk_end <= argument.start {
                break;
            }
            argument.start = argument.walk_end;
        }
        Ok(())
    }
}

/// Extends the last region of this scan (those before `floor` are not ours) or starts one.
fn append(out: &mut Vec<PageRegion>, floor: usize, pages: Range<u64>, categories: Categories) {
    match out[floor..].last_mut() {
        Some(last) if last.pages.end == pages.start && last.categories == categories => {
            last.pages.end = pages.end
        }
        _ => out.push(PageRegion { pages, categories }),
    }
}

fn ioctl_scan(
    fd: &OwnedFd,
    argument: &mut ScanArgument,
    regions: &mut [RawRegion],
) -> std::result::Result<usize, rustix::io::Errno> {
    argument.vec = regions.as_mut_ptr() as u64;
    argument.vec_len = regions.len() as u64;
    // SAFETY: `argument` is a valid pm_scan_arg whose `size` is its own, and its vector is the exclusively borrowed
    // `regions`; flags is 0, so the kernel changes nothing else.
    let count = unsafe {
        libc::ioctl(
            fd.as_fd().as_raw_fd(),
            PAGEMAP_SCAN as _,
            std::ptr::from_mut(argument),
        )
    };
    match usize::try_from(count) {
        Ok(count) => Ok(count.min(regions.len())),
        Err(_) => Err(last_errno()),
    }
}

fn last_errno() -> rustix::io::Errno {
    let errno = std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO);
    rustix::io::Errno::from_raw_os_error(errno)
}

/// How much of PAGEMAP_SCAN this kernel has: probed once on our own pagemap.
pub fn scan_support() -> ScanSupport {
    static SUPPORT: OnceLock<ScanSupport> = OnceLock::new();
    *SUPPORT.get_or_init(|| {
        let Ok(own) = Pagemap::open_path("/proc/self/pagemap", 0) else {
            return ScanSupport::Absent;
        };
        // A kernel that does not know a category answers EINVAL; one without the ioctl, ENOTTY.
        let accepts = |mask: u64| {
            let mut regions = [RawRegion::default(); 1];
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start: page_size(),
                end: 2 * page_size(),
                category_mask: mask,
                return_mask: Categories::ALL,
                ..ScanArgument::default()
            };
            ioctl_scan(&own.fd, &mut argument, &mut regions).is_ok()
        };
        if accepts(Categories::SWAPPED.0 | Categories::GUARD) {
            ScanSupport::WithGuard
        } else if accepts(Categories::SWAPPED.0) {
            ScanSupport::Plain
        } else {
            ScanSupport::Absent
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_bits() {
        let swapped = PageEntry((1 << 62) | (77 << 5) | 3);
        assert!(swapped.swapped() && !swapped.present());
        assert_eq!(
            (swapped.swap_type(), swapped.swap_offset()),
            (Some(3), Some(77))
        );
        let guard = PageEntry(swapped.0 | (1 << 58));
        assert!(!guard.swapped());
        assert_eq!(guard.swap_type(), None);
        let present = PageEntry((1 << 63) | (1 << 61) | (1 << 56) | 3);
        assert!(present.present() && present.file_or_shared());
        assert_eq!(present.swap_type(), None);
    }

    #[test]
    fn append_merges_only_its_own_scan() {
        let mut out = vec![PageRegion {
            pages: 0..4,
            categories: Categories::PRESENT,
        }];
        append(&mut out, 1, 4..5, Categories::PRESENT);
        append(&mut out, 1, 5..6, Categories::PRESENT);
        append(&mut out, 1, 6..7, Categories::SWAPPED);
        append(&mut out, 1, 8..9, Categories::SWAPPED);
        let pages: Vec<_> = out.into_iter().map(|region| region.pages).collect();
        assert_eq!(pages, [0..4, 4..6, 6..7, 8..9]);
    }
}
