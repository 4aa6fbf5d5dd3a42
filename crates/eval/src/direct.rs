//! Reads past the page cache (O_DIRECT).

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Result;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// What they are aligned to at most.
const ALIGN_BYTES: usize = 4096;

/// Opens a file or a device for them.
///
/// # Errors
/// Where it cannot be read, or the file system does not offer them.
pub fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Memory that is aligned as they want it.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Of so many bytes.
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + ALIGN_BYTES];
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES);
        bytes.truncate(start + len);
        Self { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}
