//! /proc/meminfo: the machine's memory.

use crate::error::{Error, Result};
use crate::text;

/// The machine's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meminfo {
    /// MemTotal: what the kernel manages.
    pub total_bytes: u64,
    /// MemAvailable (3.14+): what can be had without swapping, by the kernel's estimate: free, and most of the page cache.
    pub available_bytes: u64,
    /// SwapFree.
    pub free_swap_bytes: u64,
}

impl Meminfo {
    /// Reads it.
    pub fn read() -> Result<Meminfo> {
        const PATH: &str = "/proc/meminfo";
        let malformed = || {
            Error::malformed(
                "parse",
                PATH,
                "MemTotal, MemAvailable or SwapFree is missing",
            )
        };
        parse(&text::read_text(PATH)?).ok_or_else(malformed)
    }
}

/// `None` where a line is missing.
fn parse(contents: &str) -> Option<Meminfo> {
    let bytes = |key: &str| {
        let value = contents.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Meminfo {
        total_bytes: bytes("MemTotal:")?,
        available_bytes: bytes("MemAvailable:")?,
        free_swap_bytes: bytes("SwapFree:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_the_kernel_writes() {
        let text =
            "MemTotal: 24689112 kB\nMemFree: 1 kB\nMemAvailable:   23923752 kB\nSwapFree:   7 kB\n";
        let expected = Meminfo {
            total_bytes: 24_689_112 << 10,
            available_bytes: 23_923_752 << 10,
            free_swap_bytes: 7 << 10,
        };
        assert_eq!(parse(text), Some(expected));
        for (good, bad) in [
            ("MemTotal", "Mem"),
            (" kB", ""),
            ("24689112", "x"),
            ("SwapFree", "Free"),
        ] {
            let bad = text.replace(good, bad);
            assert_eq!(parse(&bad), None, "{bad:?}");
        }
    }
}
