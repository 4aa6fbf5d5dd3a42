//! A slower disk: limits of a control group, which hold for the applications and for what reads ahead for them alike.

use crate::circumstances;
use crate::error::{Context, Error, Result};
use crate::group;
use crate::restore::{Restorer, Undo};
use crate::sysfs;
use prepage_kernel::cgroup::{self, Hierarchy, Version};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Limits of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Requests a second.
    pub requests_per_s: u64,
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes_per_s / 1_000_000;
        write!(
            f,
            "{megabytes} MB and {} requests a second",
            self.requests_per_s
        )
    }
}

/// The disks that can be imitated. Their figures are those that Samsung gives for sequential and random reads in the
/// comparison of its embedded storage (press release of 30 January 2019, "Samsung Breaks Terabyte Threshold for Smartphone
/// Storage"). A limit bounds the rate only: a single read is as fast as on the machine's own disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// The machine's own disk, not held back.
    Native,
    /// UFS 2.1, of phones from 2017 on: 860 MB/s, 42,000 requests a second (512 GB eUFS 2.1).
    Ufs,
    /// eMMC 5.1, of small computers and cheaper phones: 250 MB/s, as eMMC 5.0; 8,000 requests a second, between the
    /// 7,000 of 5.0 and the 11,000 of 5.1.
    Emmc,
}

impl Disk {
    /// Its limits; the machine's own disk has none.
    pub fn throttle(self) -> Option<Throttle> {
        let (megabytes_per_s, requests_per_s) = match self {
            Self::Native => return None,
            Self::Ufs => (860, 42_000),
            Self::Emmc => (250, 8_000),
        };
        Some(Throttle {
            bytes_per_s: megabytes_per_s * 1_000_000,
            requests_per_s,
        })
    }
}

/// The files and values that set these limits for a device (`major:minor`).
fn settings(version: Version, device: &str, throttle: Throttle) -> Vec<(&'static str, String)> {
    let Throttle {
        bytes_per_s,
        requests_per_s,
    } = throttle;
    match version {
        Version::V1 => vec![
            (
                "blkio.throttle.read_bps_device",
                format!("{device} {bytes_per_s}"),
            ),
            (
                "blkio.throttle.read_iops_device",
                format!("{device} {requests_per_s}"),
            ),
        ],
        Version::V2 => vec![(
            "io.max",
            format!("{device} rbps={bytes_per_s} riops={requests_per_s}"),
        )],
    }
}

fn find() -> Result<Hierarchy> {
    let mounted = cgroup::hierarchies().context("list", "control group hierarchies")?;
    let holds = |h: &&Hierarchy| {
        let controller = match h.version {
            Version::V1 => "blkio",
            Version::V2 => "io",
        };
        h.controllers.iter().any(|name| name == controller)
    };
    mounted.iter().find(holds).cloned().ok_or_else(|| {
        Error::new(
            "find",
            "control group for I/O",
            "no hierarchy has the controller (blkio or io): measure without --throttle",
        )
    })
}

/// Holds the reads from the disk under `place` by a group of this run, and by those below it, to these limits, all
/// together. Returns what processes of these groups have to enter besides: in version 1 the controller has a hierarchy
/// of its own, and its `cgroup.procs` is returned.
///
/// # Errors
/// Where no hierarchy has the controller, `place` lies on no disk, or the kernel refuses the limits.
pub fn hold(
    restorer: &mut Restorer,
    group: &str,
    place: &Path,
    throttle: Throttle,
) -> Result<Option<PathBuf>> {
    let hierarchy = find()?;
    let queue = circumstances::disk_queue(place)
        .ok_or_else(|| Error::new("find", "disk", "the run's directory lies on none"))?;
    let device = sysfs::read(queue.with_file_name("dev"))
        .ok_or_else(|| Error::new("read", queue.display(), "no device number"))?;
    let directory = hierarchy.mount_point.join(group);
    let top = Path::new(group).iter().next().unwrap_or_default();
    restorer.register(&Undo::Groups(vec![hierarchy.mount_point.join(top)]))?;
    fs::create_dir_all(&directory).context("make", directory.display())?;
    if hierarchy.version == Version::V2 {
        group::enable_above(&hierarchy.mount_point, group, "io")?;
    }
    for (file, value) in settings(hierarchy.version, &device, throttle) {
        sysfs::write(directory.join(file), &value)?;
    }
    let has_own_hierarchy = hierarchy.version == Version::V1;
    Ok(has_own_hierarchy.then(|| directory.join("cgroup.procs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same_limits() {
        let emmc = Disk::Emmc.throttle().expect("it is held back");
        assert_eq!(
            settings(Version::V1, "254:0", emmc),
            [
                ("blkio.throttle.read_bps_device", "254:0 250000000".into()),
                ("blkio.throttle.read_iops_device", "254:0 8000".into()),
            ]
        );
        assert_eq!(
            settings(Version::V2, "254:0", emmc),
            [("io.max", "254:0 rbps=250000000 riops=8000".into())]
        );
    }
}
