//! Pressure stall information (4.20+): /proc/pressure/memory and memory.pressure of cgroups (v2).

use crate::error::{Error, Result};
use crate::text;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// System-wide memory pressure.
pub const MEMORY: &str = "/proc/pressure/memory";

/// Time lost to waiting for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Percent of the last 10 s.
    pub avg10_percent: f32,
    /// Percent of the last 60 s.
    pub avg60_percent: f32,
    /// In all, in us.
    pub total_us: u64,
}

/// Memory pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPressure {
    /// At least one task waited.
    pub some: Stall,
    /// All tasks that were not idle waited.
    pub full: Stall,
}

impl MemoryPressure {
    /// Reads the system's. `ENOENT` or `EOPNOTSUPP` where the kernel is without (or booted with psi=0).
    pub fn read() -> Result<MemoryPressure> {
        MemoryPressure::read_file(Path::new(MEMORY))
    }

    /// Reads a pressure file, such as memory.pressure of a v2 cgroup.
    pub fn read_file(path: &Path) -> Result<MemoryPressure> {
        parse(&text::read_text(path)?)
            .ok_or_else(|| Error::malformed("parse", path.to_string_lossy(), "not a pressure file"))
    }
}

/// Parses a pressure file; `None` where it is malformed. Without a line `full` (CPU before 5.13) that is zero.
pub fn parse(contents: &str) -> Option<MemoryPressure> {
    let mut pressure = MemoryPressure::default();
    let mut has_some = false;
    for line in contents.lines() {
        let (kind, rest) = line.split_once(' ')?;
        let stall = parse_stall(rest)?;
        match kind {
            "some" => {
                pressure.some = stall;
                has_some = true;
            }
            "full" => pressure.full = stall,
            _ => return None,
        }
    }
    has_some.then_some(pressure)
}

fn parse_stall(fields: &str) -> Option<Stall> {
    let mut stall = Stall::default();
    for field in fields.split_ascii_whitespace() {
        let (key, value) = field.split_once('=')?;
        match key {
            "avg10" => stall.avg10_percent = value.parse().ok()?,
            "avg60" => stall.avg60_percent = value.parse().ok()?,
            "total" => stall.total_us = value.parse().ok()?,
            _ => {}
        }
    }
    Some(stall)
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
    fn parses_both_lines() {
        let text = "some avg10=1.50 avg60=0.20 avg300=0.00 total=286390\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=7\n";
        let pressure = parse(text).expect("well formed");
        assert_eq!(
            (pressure.some.avg10_percent, pressure.some.total_us),
            (1.5, 286390)
        );
        assert_eq!(
            (pressure.full.avg10_percent, pressure.full.total_us),
            (0.25, 7)
        );
        for bad in [
            "",
            "full avg10=0.1 total=1\n",
            "some avg10=x total=1\n",
            "some\n",
            "other avg10=1\n",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
