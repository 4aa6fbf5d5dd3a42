//! One-value files of the kernel: read trimmed, written whole.

use crate::error::{Context, Result};
use std::fs;
use std::path::Path;

/// The trimmed contents, or `None` where the file does not exist or cannot be read.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The contents as a number, if it is one.
pub fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.parse().ok()
}

/// Writes a value; the kernel's refusal is the error.
pub fn write(path: impl AsRef<Path>, value: &str) -> Result<()> {
    let path = path.as_ref();
    fs::write(path, value).context("write", path.display())
}

/// The chosen one of a list such as `always [madvise] never`.
pub fn bracketed(list: &str) -> &str {
    list.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(list, |(chosen, _)| chosen)
}

/// "name value" lines, as memory.stat and /proc/vmstat have them.
pub fn parse_pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name, value.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_pairs() {
        assert_eq!(bracketed("lzo-rle lzo [lz4]"), "lz4");
        assert_eq!(bracketed("none"), "none");
        assert_eq!(
            parse_pairs("cache 1\nrss 2\nbad x\n").collect::<Vec<_>>(),
            [("cache", 1), ("rss", 2)]
        );
    }
}
