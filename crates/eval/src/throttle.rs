//! A slower disk: limits of a control group, which hold for the applications and for what reads ahead for them alike.

mod pace;

pub use pace::Pace;

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

/// The largest request that page-cache reads make (force_page_cache_ra in mm/readahead.c), which has to pass in one period:
/// it would wait for ever, and all others behind it.
const REQUEST_BYTES: u64 = 2 << 20;

/// The controller of version 2.
const IO: &str = "io";

/// Limits of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Requests a second.
    pub requests_per_s: u64,
    /// What passes at once is what these limits allow in so many milliseconds; records that do not say it are from before the
    /// limits were renewed.
    #[serde(default = "slice_ms")]
    pub period_ms: u64,
    /// Whether requests that are merged on their way to the device count once. In records that do not say it they counted
    /// before that: a look-up on ext4 as 32.
    #[serde(default)]
    pub counts_merged: bool,
}

fn slice_ms() -> u64 {
    pace::SLICE_MS
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes_per_s / 1_000_000;
        write!(
            f,
            "{megabytes} MB and {} requests a second (what {} ms allow at once)",
            self.requests_per_s, self.period_ms
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
        let bytes_per_s = megabytes_per_s * 1_000_000;
        Some(Throttle {
            bytes_per_s,
            requests_per_s,
            period_ms: (REQUEST_BYTES * 1000)
                .div_ceil(bytes_per_s)
                .max(pace::TICK_MS),
            counts_merged: true,
        })
    }
}

fn find() -> Result<Hierarchy> {
    let mounted = cgroup::hierarchies().context("list", "control group hierarchies")?;
    let holds = |h: &&Hierarchy| {
        let controller = match h.version {
            Version::V1 => "blkio",
            Version::V2 => IO,
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
/// together, as long as the pace is kept. Returns with it what processes of these groups have to enter besides: in version 1
/// the controller has a hierarchy of its own, and its `cgroup.procs` is returned.
///
/// # Errors
/// Where no hierarchy has the controller, `place` lies on no disk, or the kernel refuses the limits.
pub fn hold(
    restorer: &mut Restorer,
    group: &str,
    place: &Path,
    throttle: Throttle,
) -> Result<(Pace, Option<PathBuf>)> {
    let hierarchy = find()?;
    let queue = circumstances::disk_queue(place)
        .ok_or_else(|| Error::new("find", "disk", "the run's directory lies on none"))?;
    let device = sysfs::read(queue.with_file_name("dev"))
        .ok_or_else(|| Error::new("read", queue.display(), "no device number"))?;
    let directory = hierarchy.mount_point.join(group);
    let top = Path::new(group).iter().next().unwrap_or_default();
    if hierarchy.version == Version::V2 {
        // Before the groups, so that it is undone after them.
        let undo = group::undo_enabling(&hierarchy.mount_point, IO);
        undo.iter().try_for_each(|undo| restorer.register(undo))?;
    }
    restorer.register(&Undo::Groups(vec![hierarchy.mount_point.join(top)]))?;
    fs::create_dir_all(&directory).context("make", directory.display())?;
    if hierarchy.version == Version::V2 {
        group::enable_above(&hierarchy.mount_point, group, IO)?;
    }
    // Undone before the groups: their processes are not to be held back while they end.
    restorer.register(&pace::undo(&directory, hierarchy.version, &device))?;
    let pace = Pace::start(&directory, hierarchy.version, device, throttle)?;
    let has_own_hierarchy = hierarchy.version == Version::V1;
    let procs = has_own_hierarchy.then(|| directory.join("cgroup.procs"));
    Ok((pace, procs))
}
