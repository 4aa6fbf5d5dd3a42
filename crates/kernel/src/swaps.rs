//! /proc/swaps and the settings of swapping: which areas there are and what they lie on.

use crate::block;
use crate::error::{Error, Result};
use crate::page::page_size;
use crate::pagemap::PageEntry;
use crate::process::{Process, own_pid};
use crate::process_madvise;
use crate::sched::sleep_us;
use crate::text;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a swap area lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// A zram device: compressed memory.
    Zram,
    /// Any other block device.
    Disk,
    /// A file.
    File,
}

/// A swap area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// Its place in /proc/swaps. This is pagemap's swap type as long as no area with a lower number has been switched
    /// off since: the kernel lists areas by type and leaves out unused ones without saying so.
    pub index: u32,
    /// The device or file.
    pub path: PathBuf,
    /// What it lies on.
    pub kind: SwapKind,
    /// Size in KiB.
    pub size_kib: u64,
    /// Used, in KiB.
    pub used_kib: u64,
    /// The higher, the earlier it is filled.
    pub priority: i32,
    /// Whether the device says that it rotates; `None` for files and where the device does not say.
    pub rotational: Option<bool>,
}

/// The active swap areas.
pub fn areas() -> Result<Vec<SwapArea>> {
    const PATH: &str = "/proc/swaps";
    let mut areas = parse(&text::read_bytes(PATH)?)
        .map_err(|line| Error::malformed("parse", PATH, format!("malformed line {line:?}")))?;
    for area in areas.iter_mut().filter(|area| area.kind != SwapKind::File) {
        let device = std::fs::metadata(&area.path).map(|metadata| metadata.rdev());
        if let Some(device) = device
            .ok()
            .and_then(|rdev| block::BlockDevice::of_number(rdev).ok())
        {
            area.rotational = device.rotational().ok();
            if device.name().starts_with("zram") {
                area.kind = SwapKind::Zram;
            }
        }
    }
    Ok(areas)
}

/// Parses the contents of /proc/swaps. The error is the first malformed line. A zram device is known by its name.
pub fn parse(bytes: &[u8]) -> std::result::Result<Vec<SwapArea>, String> {
    let lines = bytes
        .split(|&byte| byte == b'\n')
        .skip(1)
        .filter(|line| !line.is_empty());
    lines
        .zip(0..)
        .map(|(line, index)| {
            parse_line(line, index).ok_or_else(|| String::from_utf8_lossy(line).into_owned())
        })
        .collect()
}

/// `/dev/zram0 partition 8388604 532 100` with any white space, the path being octal-escaped.
fn parse_line(line: &[u8], index: u32) -> Option<SwapArea> {
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    // A removed swap file has "\040(deleted)" after its name: one field, since the space is escaped.
    let path = PathBuf::from(OsString::from_vec(text::unescape_octal(&line[..end])));
    let fields = String::from_utf8_lossy(&line[end..]);
    let mut fields = fields.split_ascii_whitespace();
    let kind = match fields.next()? {
        "file" => SwapKind::File,
        "partition"
            if path
                .file_name()?
                .to_str()
                .is_some_and(|name| name.starts_with("zram")) =>
        {
            SwapKind::Zram
        }
        "partition" => SwapKind::Disk,
        _ => return None,
    };
    Some(SwapArea {
        index,
        path,
        kind,
        size_kib: fields.next()?.parse().ok()?,
        used_kib: fields.next()?.parse().ok()?,
        priority: fields.next()?.parse().ok()?,
        rotational: None,
    })
}

/// The swap type, as pagemap has it, of the area into which the kernel swaps next: where a page of our own goes that is swapped
/// out for it (MADV_PAGEOUT, 5.4+). `None` where it stays (no swap, or none for our control group), and without CAP_SYS_ADMIN.
///
/// A new page waits on the processor that it was allocated on to be put on the LRU lists, and MADV_PAGEOUT empties the queue of the
/// processor that it runs on alone (`lru_add_drain`): where the thread changes its processor in between, the page stays (194 of 200
/// times, 6.18). So another page is tried.
pub fn type_filled_next() -> Result<Option<u32>> {
    const TRIES: usize = 4;
    let bytes = page_size() as usize;
    let own = Process::open(own_pid())?;
    let pagemap = own.pagemap()?;
    // They live until the end: each try is with another page.
    let mut buffers = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        // Of two pages' length and more, one page at least is nobody else's.
        let buffer = std::hint::black_box(vec![1u8; 3 * bytes]);
        let page = (buffer.as_ptr() as usize).div_ceil(bytes) as u64;
        buffers.push(buffer);
        let range = page..page + 1;
        process_madvise::pageout(own.pidfd(), std::slice::from_ref(&range))?;
        let mut entries = [PageEntry::default()];
        pagemap.read(page, &mut entries)?;
        let [entry] = entries;
        // At offset 0 is the area's header: the kernel hides where the page is.
        if entry.swap_offset().is_some_and(|offset| offset > 0) {
            return Ok(entry.swap_type());
        }
    }
    Ok(None)
}

/// Whether zswap compresses pages in front of the swap areas. `ENOENT` where the kernel is without.
pub fn zswap_enabled() -> Result<bool> {
    Ok(text::read_line("/sys/module/zswap/parameters/enabled")? == "Y")
}

/// vm.page-cluster: the binary logarithm of the pages that one swap-in reads ahead.
pub fn page_cluster() -> Result<u32> {
    text::read_number("/proc/sys/vm/page-cluster")
}

/// Turns the swap on a device or in a file off, with all that it holds coming back to memory (swapoff(2), CAP_SYS_ADMIN). Returns
/// whether it was swap: what is not, or is not there, is left as it is.
///
/// The kernel gives up with `ENOMEM`, whatever memory there is, where it comes upon a page that a fault is just taking out of the
/// area (`unuse_pte_range`: the entry's last use is gone, the swap cache's hold on it is not yet), so it is asked again: of 400
/// times that a process touched its swapped pages meanwhile, 18 failed at first (6.18). An `ENOMEM` that lasts is the error.
pub fn turn_off(path: &Path) -> Result<bool> {
    const TRIES: u32 = 50;
    let subject = || path.display().to_string();
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|error| Error::new("swapoff", subject(), error))?;
    let mut tries = 0;
    loop {
        // SAFETY: the kernel reads the string, which lives, up to its NUL.
        if unsafe { libc::swapoff(name.as_ptr()) } == 0 {
            return Ok(true);
        }
        let error = Error::last("swapoff", subject());
        tries += 1;
        match error.errno() {
            Some(libc::EINVAL | libc::ENOENT) => return Ok(false),
            Some(libc::ENOMEM) if tries < TRIES => sleep_us(10_000),
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_in_order() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/zram0                              partition\t8388604\t\t532\t\t100\n\
            /swap\\040file                          file\t\t1024\t\t0\t\t-2\n/dev/sda2 partition 5 4 3\n";
        let areas = parse(text).expect("well formed");
        assert_eq!(
            areas.iter().map(|area| area.kind).collect::<Vec<_>>(),
            [SwapKind::Zram, SwapKind::File, SwapKind::Disk]
        );
        assert_eq!(
            (areas[1].index, areas[1].path.as_path(), areas[1].priority),
            (1, "/swap file".as_ref(), -2)
        );
        assert_eq!((areas[0].size_kib, areas[0].used_kib), (8388604, 532));
        assert_eq!(parse(b"header\n"), Ok(vec![]));
        assert!(parse(b"header\n/dev/x partition 1 2\n").is_err());
        assert!(parse(b"header\n/dev/x other 1 2 3\n").is_err());
    }
}
