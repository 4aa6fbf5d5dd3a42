//! /proc/vmstat: counters of the whole system.

use crate::error::{Error, Result};
use crate::text;

const PATH: &str = "/proc/vmstat";

/// Bytes that all block devices were asked to read since boot (`pgpgin`, which counts KiB).
pub fn bytes_read() -> Result<u64> {
    let kib: u64 = text::read_field(PATH, "pgpgin ")?;
    kib.checked_mul(1024)
        .ok_or_else(|| Error::malformed("parse", PATH, "pgpgin is too large"))
}
