//! A slower disk: limits of a control group, which hold for the program and for what reads ahead for it alike.

use crate::circumstances;
use crate::error::{Error, Result};
use crate::restore::{Restorer, Undo};
use crate::sysfs;
use prepage_kernel::cgroup::{self, Hierarchy, Version};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Context;

/// Limits of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Requests a second.
    pub requests_per_s: u64,
}

/// The disks that can be imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// The eMMC memory of a small computer or phone.
    Emmc,
}

impl Disk {
    /// Its limits.
    pub fn throttle(self) -> Throttle {
        match self {
            Self::Emmc => Throttle {
                bytes_per_s: 250_000_000,
                requests_per_s: 8_000,
            },
        }
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

/// Makes a group of this name that reads the disk under `place` no faster; returns its `cgroup.procs`.
pub fn set_up(
    restorer: &mut Restorer,
    name: &str,
    place: &Path,
    throttle: Throttle,
) -> Result<PathBuf> {
    let hierarchy = find()?;
    let queue = circumstances::disk_queue(place)
        .ok_or_else(|| Error::new("find", "disk", "the run's directory lies on none"))?;
    let device = sysfs::read(queue.with_file_name("dev"))
        .ok_or_else(|| Error::new("read", queue.display(), "no device number"))?;
    if hierarchy.version == Version::V2 {
        sysfs::write(hierarchy.mount_point.join("cgroup.subtree_control"), "+io")?;
    }
    let directory = hierarchy.mount_point.join(name);
    restorer.register(&Undo::Groups(vec![directory.clone()]))?;
    fs::create_dir_all(&directory).context("make", directory.display())?;
    for (file, value) in settings(hierarchy.version, &device, throttle) {
        sysfs::write(directory.join(file), &value)?;
    }
    Ok(directory.join("cgroup.procs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same_limits() {
        let emmc = Disk::Emmc.throttle();
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
