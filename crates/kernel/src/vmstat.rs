//! /proc/vmstat: counters of the whole system.

use crate::error::{Error, Result};
use crate::text;

const PATH: &str = "/proc/vmstat";

/// Bytes that all block devices were asked to read since boot (`pgpgin`, which counts KiB).
pub fn bytes_read() -> Result<u64> {
    let text = text::read_text(PATH)?;
    let line = text.lines().find_map(|line| line.strip_prefix("pgpgin "));
    let kib: Option<u64> = line.and_then(|number| number.trim().parse().ok());
    kib.and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| Error::malformed("parse", PATH, "no pgpgin"))
}
