//! Pressure stall information (4.20+): /proc/pressure/memory and memory.pressure of cgroups (v2).

use crate::error::{Error, Result};
use crate::text;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// System-wide memory pressure.
pub const MEMORY: &str = "/proc/pressure/memory";

/// How long some task has waited for memory since the machine's start, in us. `ENOENT` or `EOPNOTSUPP` where the kernel
/// does not say (without PSI, or booted with psi=0).
pub fn waited_us() -> Result<u64> {
    let contents = text::read_text(MEMORY)?;
    parse(&contents).ok_or_else(|| Error::malformed("parse", MEMORY, contents))
}

/// The total of a pressure file's line `some`; `None` where that is malformed.
fn parse(contents: &str) -> Option<u64> {
    let line = contents
        .lines()
        .find_map(|line| line.strip_prefix("some "))?;
    let mut fields = line.split_ascii_whitespace();
    let total = fields.find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok()
}

/// A descriptor that polls as POLLPRI, at most once a window, when tasks have waited for memory for `stall_us` within
/// `window_us` (500 ms to 10 s). It lasts as long as the descriptor; POLLERR when its cgroup is gone.
///
/// Without CAP_SYS_RESOURCE the window must be a multiple of 2 s (6.5+): `EINVAL`, and before that `EPERM`. Such a trigger is
/// woken by the first stall after it was made, be it of 1 ms (seen on 6.18): its first window begins at the total of the
/// other kind of triggers, which stands still while there are none.
pub fn trigger(file: &Path, stall_us: u64, window_us: u64) -> Result<OwnedFd> {
    let subject = || file.to_string_lossy();
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(file, flags, Mode::empty())
        .map_err(|error| Error::new("open", subject(), error))?;
    let text = format!("some {stall_us} {window_us}\0");
    let written = rustix::io::write(&fd, text.as_bytes())
        .map_err(|error| Error::new("write", subject(), error))?;
    if written == text.len() {
        Ok(fd)
    } else {
        Err(Error::malformed(
            "write",
            subject(),
            "short write of a trigger",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_that_of_any_task() {
        let text = "some avg10=1.50 avg60=0.20 avg300=0.00 total=286390\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse(text), Some(286390));
        for bad in [
            "",
            "full avg10=0.1 total=1\n",
            "some avg10=1 total=x\n",
            "some\n",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
