//! What the page cache holds of a test's files.

use super::machine::eventually;
use crate::page::page_size;
use crate::{page_cache, readahead};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Pages of these that the page cache holds.
pub fn cached_of(file: &File, first: u64, count: u64) -> u64 {
    let (offset, len) = (first * page_size(), count * page_size());
    page_cache::cached(file.as_fd(), offset, len).expect("what is cached")
}

/// [`cached_of`] the file that has this path.
pub fn cached(path: &Path, first: u64, count: u64) -> u64 {
    cached_of(&File::open(path).expect("open"), first, count)
}

/// Drops a file from the page cache. No process may map it.
pub fn drop_cache(path: &Path) {
    let file = File::open(path).expect("open");
    let pages = file.metadata().expect("stat").len().div_ceil(page_size());
    eventually("the file is out of the cache", || {
        readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("fadvise");
        cached_of(&file, 0, pages) == 0
    });
}
