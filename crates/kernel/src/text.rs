//! Reading and parsing the small text files of procfs, sysfs and cgroupfs.

use crate::error::{Error, Result};
use std::io::Read;
use std::path::Path;

/// What is read at once: most of these files are shorter, and say that they are empty when asked for their size.
const READ_BYTES: usize = 4_096;

/// Reads a whole file: open, one read that gets it all, another that finds the end, close.
pub(crate) fn read_bytes(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    read_at_most(path, u64::MAX)
}

/// Reads a file whose length is somebody else's choice: so many bytes of it at most.
pub(crate) fn read_at_most(path: impl AsRef<Path>, bytes_max: u64) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let failed = |error: std::io::Error| Error::new("read", path.to_string_lossy(), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::with_capacity(READ_BYTES);
    // `File::read_to_end` would ask for the size first, and read into a buffer of that; `Take` reads into what is there.
    let read = file.take(bytes_max).read_to_end(&mut bytes);
    read.map_err(failed)?;
    Ok(bytes)
}

/// Reads a whole file whose length is somebody else's choice: `EFBIG` where it is longer than so many bytes, since a part of a
/// list says nothing of what is not in it.
pub(crate) fn read_whole_up_to(file: std::fs::File, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(READ_BYTES);
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(rustix::io::Errno::FBIG.into()),
        false => Ok(bytes),
    }
}

/// Reads a whole text file. Bytes that are not UTF-8 (names of processes and files) are replaced.
pub(crate) fn read_text(path: impl AsRef<Path>) -> Result<String> {
    Ok(String::from_utf8_lossy(&read_bytes(path)?).into_owned())
}

/// Reads a text file, without the newline at its end.
pub(crate) fn read_line(path: impl AsRef<Path>) -> Result<String> {
    Ok(read_text(path)?.trim_end().to_owned())
}

/// Reads a file that holds one number.
pub(crate) fn read_number<N: std::str::FromStr>(path: impl AsRef<Path>) -> Result<N> {
    let path = path.as_ref();
    let text = read_line(path)?;
    text.parse().map_err(|_| {
        Error::malformed(
            "parse",
            path.to_string_lossy(),
            format!("not a number: {text:?}"),
        )
    })
}

/// Reads the number behind `key`, its separator included, from the line of a file that begins with it.
pub(crate) fn read_field<N: std::str::FromStr>(path: &str, key: &str) -> Result<N> {
    let text = read_text(path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    value
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| {
            let name = key.trim_end_matches([':', ' ']);
            Error::malformed("parse", path, format!("no {name}"))
        })
}

/// Writes text in one write(2), as control files demand, without creating the file.
pub(crate) fn write_text(path: impl AsRef<Path>, text: &str) -> Result<()> {
    use std::io::Write;
    let path = path.as_ref();
    let failed = |error| Error::new("write", path.to_string_lossy(), error);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// Undoes the `\ooo` octal escapes with which the kernel writes paths into the tables of procfs (seq_file's
/// mangle_path). Anything that is not such an escape stays.
pub(crate) fn unescape_octal(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        match (first, tail) {
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                out.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// Parses the kernel's lists of numbers: `0-3,8,10-11`. An empty list is empty.
pub(crate) fn parse_list(text: &str) -> Option<Vec<usize>> {
    /// No machine has more CPUs; a malformed list must not make us allocate without bound.
    const ENTRIES_MAX: usize = 1 << 16;
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().ok()?;
        let last: usize = last.trim().parse().ok()?;
        if first > last || last - first >= ENTRIES_MAX || numbers.len() >= ENTRIES_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read_whole() {
        let path = std::env::temp_dir().join(format!("prepage-text-{}", std::process::id()));
        for len in [
            0,
            1,
            READ_BYTES - 1,
            READ_BYTES,
            READ_BYTES + 1,
            5 * READ_BYTES,
        ] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            std::fs::write(&path, &bytes).expect("a temporary file");
            assert_eq!(read_bytes(&path).expect("it is there"), bytes);
        }
        std::fs::remove_file(&path).expect("it is there");
        assert!(read_bytes(&path).is_err());
        let some = read_at_most("/proc/self/stat", 3).expect("every process has it");
        assert_eq!(some.len(), 3);
        let stat = read_bytes("/proc/self/stat").expect("every process has it");
        assert!(stat.ends_with(b"\n"));
    }

    #[test]
    fn of_a_file_that_is_too_long_nothing_is_read() {
        let up_to = |bytes_max| {
            let file = std::fs::File::open("/proc/version").expect("every kernel has it");
            read_whole_up_to(file, bytes_max).map_err(|error| error.raw_os_error())
        };
        let whole = read_bytes("/proc/version").expect("every kernel has it");
        let len = whole.len() as u64;
        assert_eq!(up_to(len), Ok(whole));
        assert_eq!(up_to(len - 1), Err(Some(libc::EFBIG)));
        assert_eq!(up_to(0), Err(Some(libc::EFBIG)));
    }

    #[test]
    fn octal_escapes() {
        assert_eq!(unescape_octal(br"/a\040b\011c"), b"/a b\tc");
        assert_eq!(unescape_octal(br"\0\9\04"), br"\0\9\04");
        assert_eq!(unescape_octal(br"\377"), [255]);
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("3-1"), None);
        assert_eq!(parse_list("0-99999999999"), None);
        assert_eq!(parse_list("x"), None);
    }
}
