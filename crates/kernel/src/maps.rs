//! /proc/PID/maps: the mappings of a process.

use crate::error::{Error, Result};
use crate::open::reopen;
use crate::text;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An object of shared memory: device, inode number, and name, since different kinds of it have inode numbers of their own on one
/// device.
pub type SharedObject = ((u32, u32), u64, Option<PathBuf>);

/// `statfs` magic of shared memory's file system (linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The longest list that is read, in bytes: 65,530 mappings, the most that a process may have unless somebody allows more
/// (vm.max_map_count), with names of 180 bytes. A name may be as long as whoever maps the file likes.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// One mapping (VMA).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte address.
    pub start: u64,
    /// Byte address after the last.
    pub end: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// MAP_SHARED; otherwise private.
    pub shared: bool,
    /// Offset of `start` in the file, in bytes. Meaningless without a file.
    pub offset: u64,
    /// Major and minor of the file system's device (`s_dev`). Not always what stat says: btrfs and overlay differ.
    pub dev: (u32, u32),
    /// Inode number; 0 without a file.
    pub inode: u64,
    /// The path, as seen from the root of the process that reads; also for memfd (`/memfd:NAME`) and shared anonymous
    /// memory (`/dev/zero`), which are `deleted`.
    pub path: Option<PathBuf>,
    /// A name of the kernel's that is not a path: `[heap]`, `[stack]`, `[vdso]`, `[anon:NAME]`, `anon_inode:[x]`.
    pub label: Option<String>,
    /// The file has been removed (or never had a name). A name that itself ends in ` (deleted)` looks the same.
    pub deleted: bool,
}

impl Mapping {
    /// The page numbers of the mapping.
    pub fn pages(&self) -> std::ops::Range<u64> {
        let size = crate::page::page_size();
        self.start / size..self.end / size
    }

    /// The page of the file that the mapping begins at. Meaningless without a file.
    pub fn first_page(&self) -> u64 {
        self.offset / crate::page::page_size()
    }

    /// The pages of the file that it maps. Meaningless without a file.
    pub fn pages_of_file(&self) -> std::ops::Range<u64> {
        let (first, own) = (self.first_page(), self.pages());
        first..first + (own.end - own.start)
    }

    /// The page of the file that is mapped at page number `page`, one of the mapping's. Meaningless without a file.
    pub fn page_of_file(&self, page: u64) -> u64 {
        page - self.pages().start + self.first_page()
    }

    /// The page number at which the mapping has a page of the file, one of those that it maps.
    pub fn page_at(&self, page_of_file: u64) -> u64 {
        page_of_file - self.first_page() + self.pages().start
    }

    /// Whether it is of shared memory that can be swapped out: memfd, POSIX and System V shared memory, shared anonymous
    /// memory, also where that has been given a name (PR_SET_VMA_ANON_NAME, 6.2). A file on another tmpfs looks like any file
    /// here.
    pub fn is_shmem(&self) -> bool {
        const NAMES: [&[u8]; 4] = [b"/memfd:", b"/dev/shm/", b"/SYSV", b"/dev/zero"];
        let is_named = self.path.as_ref().is_some_and(|path| {
            let path = path.as_os_str().as_bytes();
            NAMES.iter().any(|name| path.starts_with(name))
        });
        let label = self.label.as_deref().unwrap_or_default();
        is_named || label.starts_with("[anon_shmem:")
    }

    /// What it shares: `None` where it is private, or not of shared memory (see [`Self::is_shmem`]).
    pub fn shared_object(&self) -> Option<SharedObject> {
        let object = || (self.dev, self.inode, self.path.clone());
        (self.shared && self.is_shmem()).then(object)
    }

    /// Where what it is of can be opened, whether it has a name or not: a link in /proc/PID/map_files. To follow it takes
    /// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; it is gone where the mapping is no longer exactly this, or is of nothing.
    pub fn object_path(&self, pid: i32) -> PathBuf {
        format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end).into()
    }

    /// Opens, to be read, what process `pid` maps here, where it is shared memory: see [`Self::is_shmem`]. `EINVAL` where its
    /// name only looks so, as one on a file system of the process's own making may: that is not opened, which could block.
    ///
    /// Otherwise fails as [`Self::object_path`] says.
    pub fn open_shmem(&self, pid: i32) -> Result<File> {
        let path = self.object_path(pid);
        let failed = |error| Error::new("open", path.display().to_string(), error);
        let place = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let place = place.map_err(failed)?;
        let fs = rustix::fs::fstatfs(&place).map_err(failed)?;
        if fs.f_type as u64 != TMPFS_MAGIC {
            return Err(failed(Errno::INVAL));
        }
        let opened = reopen(&place, OFlags::empty());
        opened.map(File::from).map_err(failed)
    }
}

/// Reads /proc/PID/maps. Empty for kernel threads and zombies. `EFBIG` where it is longer than 16 MiB.
///
/// The kernel gives it in pages, mappings may change between them (before 6.11 under mmap_lock, a page at a time).
pub fn read(pid: i32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let bytes = File::open(&path).and_then(|file| text::read_whole_up_to(file, LIST_BYTES_MAX));
    let bytes = bytes.map_err(|error| Error::new("read", path.as_str(), error))?;
    parse(&bytes)
        .map_err(|line| Error::malformed("parse", path, format!("malformed line {line:?}")))
}

/// Parses the contents of a maps file. The error is the first malformed line.
pub fn parse(bytes: &[u8]) -> std::result::Result<Vec<Mapping>, String> {
    let mut mappings = Vec::with_capacity(bytes.len() / 64);
    for line in bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        mappings.push(parse_line(line).ok_or_else(|| String::from_utf8_lossy(line).into_owned())?);
    }
    Ok(mappings)
}

/// `55d0c0a00000-55d0c0a21000 rw-p 00001000 fe:00 123        /path/of the/file (deleted)`
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = token(line)?;
    let (permissions, rest) = token(rest)?;
    let (offset, rest) = token(rest)?;
    let (device, rest) = token(rest)?;
    let (inode, rest) = token(rest)?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let start = hexadecimal(&range[..dash])?;
    let end = hexadecimal(&range[dash + 1..])?;
    let &[r, w, x, s] = permissions else {
        return None;
    };
    let colon = device.iter().position(|&byte| byte == b':')?;
    let padding = rest.iter().take_while(|&&byte| byte == b' ').count();
    let (path, label, deleted) = parse_name(&rest[padding..]);
    Some(Mapping {
        start,
        end: (start < end).then_some(end)?,
        readable: flag(r, b'r')?,
        writable: flag(w, b'w')?,
        executable: flag(x, b'x')?,
        shared: match s {
            b's' => true,
            b'p' => false,
            _ => return None,
        },
        offset: hexadecimal(offset)?,
        dev: (
            u32::try_from(hexadecimal(&device[..colon])?).ok()?,
            u32::try_from(hexadecimal(&device[colon + 1..])?).ok()?,
        ),
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        path,
        label,
        deleted,
    })
}

pub(crate) fn parse_name(name: &[u8]) -> (Option<PathBuf>, Option<String>, bool) {
    if name.is_empty() {
        return (None, None, false);
    }
    if name[0] != b'/' {
        return (
            None,
            Some(String::from_utf8_lossy(name).into_owned()),
            false,
        );
    }
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    (
        Some(PathBuf::from(OsStr::from_bytes(&unescape_newline(name)))),
        None,
        deleted,
    )
}

/// In maps the kernel escapes only the newline, not even the backslash: a name that really holds `\012` reads the same.
fn unescape_newline(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        match rest.strip_prefix(br"\012") {
            Some(after) => {
                out.push(b'\n');
                rest = after;
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The next field and what follows the space after it.
fn token(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(bytes.len());
    (end > 0).then(|| (&bytes[..end], bytes.get(end + 1..).unwrap_or_default()))
}

fn flag(byte: u8, set: u8) -> Option<bool> {
    match byte {
        b'-' => Some(false),
        byte if byte == set => Some(true),
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value: u64, &digit| {
        Some((value << 4) | u64::from(char::from(digit).to_digit(16)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine::Lcg;

    const LINE: &[u8] = b"7f0000000000-7f0000021000 r-xs 00001000 fe:10 1234                       /a b\\012c (deleted)";

    #[test]
    fn reads_every_field() {
        let mapping = &parse(LINE).expect("well formed")[0];
        assert_eq!(
            (mapping.start, mapping.end),
            (0x7f00_0000_0000, 0x7f00_0002_1000)
        );
        assert!(
            mapping.readable
                && !mapping.writable
                && mapping.executable
                && mapping.shared
                && mapping.deleted
        );
        assert_eq!(
            (mapping.offset, mapping.dev, mapping.inode),
            (0x1000, (0xfe, 0x10), 1234)
        );
        assert_eq!(
            mapping.path.as_deref(),
            Some(std::path::Path::new("/a b\nc"))
        );
    }

    #[test]
    fn anonymous_and_labelled() {
        let text = b"1000-2000 ---p 00000000 00:00 0 \n3000-4000 rw-p 00000000 00:00 0    [heap]\n\
            5000-6000 rw-p 00000000 00:00 0    [anon:a (deleted)]\n\
            6000-7000 rw-s 00000000 00:01 25    [anon_shmem:pool]\n";
        let mappings = parse(text).expect("well formed");
        assert_eq!(
            (mappings[0].path.clone(), mappings[0].label.clone()),
            (None, None)
        );
        assert_eq!(mappings[1].label.as_deref(), Some("[heap]"));
        assert_eq!(mappings[2].label.as_deref(), Some("[anon:a (deleted)]"));
        assert!(!mappings[2].deleted);
        let are_shared = mappings.iter().map(|m| m.shared_object().is_some());
        assert!(are_shared.eq([false, false, false, true]));
    }

    #[test]
    fn malformed_lines_are_errors() {
        for bad in [
            "x",
            "1000 rw-p 0 0:0 0",
            "1000-0800 rw-p 0 0:0 0",
            "1000-2000 rwxq 0 0:0 0",
            "1000-2000 rw- 0 0:0 0",
            "1000-2000 rw-p z 0:0 0",
            "1000-2000 rw-p 0 00 0",
            "1000-2000 rw-p 0 0:0 -1",
            "1000-2000 rw-p 0 0:0",
            "11111111111111111-2 rw-p 0 0:0 0",
            "1000-2000 wr-p 0 0:0 0",
            " ",
            "-",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn any_damage_is_an_error_or_a_mapping_never_a_panic() {
        let mut random = Lcg(1);
        for _ in 0..20_000 {
            let mut line = LINE.to_vec();
            for _ in 0..3 {
                let at = random.below(line.len() as u64) as usize;
                line[at] = random.below(256) as u8;
            }
            line.truncate(random.below(line.len() as u64 + 1) as usize);
            let _ = parse(&line);
        }
    }
}
