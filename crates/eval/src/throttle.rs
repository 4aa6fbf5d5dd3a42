//! A slower disk: limits of a control group, which hold for the applications and for what reads ahead for them alike.
//!
//! The kernel counts by slices of 100 ms (block/blk-throttle.c, DFL_THROTL_SLICE) and lets what a slice allows pass at once:
//! the first 25 MB of a disk held to 250 MB a second come at the disk's own speed, which is all that a short launch reads. To
//! take a limit away and to set it again begins a new slice. So a thread does that every few milliseconds, with limits that
//! allow in 100 ms what the disk that is imitated delivers in the time since: no more passes at once.

use crate::circumstances;
use crate::error::{Context, Error, Result};
use crate::group;
use crate::restore::{Restorer, Undo};
use crate::sysfs;
use prepage_kernel::cgroup::{self, Hierarchy, Version};
use prepage_kernel::sched::{self, Policy};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The kernel's own slice.
const SLICE_MS: u64 = 100;

/// How often the limits are renewed at most: once a tick of a kernel with 250 of them a second, since what has to wait goes on
/// at ticks. With fewer ticks less passes than the limits say.
const TICK_MS: u64 = 4;

/// The largest request that page-cache reads make (force_page_cache_ra in mm/readahead.c), which has to pass in one period:
/// it would wait for ever, and all others behind it.
const REQUEST_BYTES: u64 = 2 << 20;

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
}

fn slice_ms() -> u64 {
    SLICE_MS
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
            period_ms: (REQUEST_BYTES * 1000).div_ceil(bytes_per_s).max(TICK_MS),
        })
    }
}

/// The files that hold limits.
fn files(version: Version) -> &'static [&'static str] {
    match version {
        Version::V1 => &[
            "blkio.throttle.read_bps_device",
            "blkio.throttle.read_iops_device",
        ],
        Version::V2 => &["io.max"],
    }
}

/// What is written to these files, one after the other, to take the limits of a device (`major:minor`) away.
fn no_limits(version: Version, device: &str) -> Vec<String> {
    match version {
        Version::V1 => vec![format!("{device} 0"); 2],
        Version::V2 => vec![format!("{device} rbps=max riops=max")],
    }
}

/// What is written to them so that within one slice of the kernel no more passes than these limits allow in so long.
fn limits(version: Version, device: &str, throttle: Throttle, time: Duration) -> Vec<String> {
    let in_slice = |per_s: u64| {
        let allowed = u128::from(per_s) * time.as_micros() / u128::from(SLICE_MS * 1000);
        u64::try_from(allowed).unwrap_or(u64::MAX).max(1)
    };
    let bytes_per_s = in_slice(throttle.bytes_per_s);
    let requests_per_s = in_slice(throttle.requests_per_s);
    match version {
        Version::V1 => vec![
            format!("{device} {bytes_per_s}"),
            format!("{device} {requests_per_s}"),
        ],
        Version::V2 => vec![format!(
            "{device} rbps={bytes_per_s} riops={requests_per_s}"
        )],
    }
}

/// Limits that are renewed until it is dropped; the group that has them is expected to vanish then.
#[derive(Debug)]
pub struct Pace {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Pace {
    fn start(
        directory: &Path,
        version: Version,
        device: String,
        throttle: Throttle,
    ) -> Result<Self> {
        let open = |name: &&str| {
            let path = directory.join(name);
            File::options()
                .write(true)
                .open(&path)
                .context("open", path.display())
        };
        let files = files(version)
            .iter()
            .map(open)
            .collect::<Result<Vec<_>>>()?;
        let period = Duration::from_millis(throttle.period_ms);
        let renew = move |time: Duration| -> std::io::Result<()> {
            let set = limits(version, &device, throttle, time);
            for ((file, none), value) in files.iter().zip(no_limits(version, &device)).zip(set) {
                file.write_all_at(none.as_bytes(), 0)?;
                file.write_all_at(value.as_bytes(), 0)?;
            }
            Ok(())
        };
        renew(period).context("limit", directory.display())?;
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            // Nobody has to wait for a period that is too long; where real time is denied, as punctual as the rest allows.
            let _ = sched::set_current_thread_policy(Policy::RealTime);
            let mut renewed = Instant::now();
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                renew(now - renewed)?;
                renewed = now;
            }
            Ok(())
        };
        let thread = thread::Builder::new()
            .name("disk-pace".into())
            .spawn(work)
            .context("start", "the thread that holds the disk back")?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the disk was not held back until the end: {error}");
        }
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
    restorer.register(&Undo::Groups(vec![hierarchy.mount_point.join(top)]))?;
    fs::create_dir_all(&directory).context("make", directory.display())?;
    if hierarchy.version == Version::V2 {
        group::enable_above(&hierarchy.mount_point, group, "io")?;
    }
    let pace = Pace::start(&directory, hierarchy.version, device, throttle)?;
    let has_own_hierarchy = hierarchy.version == Version::V1;
    let procs = has_own_hierarchy.then(|| directory.join("cgroup.procs"));
    Ok((pace, procs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::{group::Group, machine};

    #[test]
    fn both_versions_say_the_same_limits() {
        let emmc = Disk::Emmc.throttle().expect("it is held back");
        let tick = Duration::from_millis(4);
        assert_eq!(emmc.period_ms, 9, "2 MiB pass");
        assert_eq!(files(Version::V1).len(), 2);
        assert_eq!(
            limits(Version::V1, "254:0", emmc, tick),
            ["254:0 10000000", "254:0 320"]
        );
        assert_eq!(no_limits(Version::V1, "254:0"), ["254:0 0", "254:0 0"]);
        assert_eq!(files(Version::V2).len(), 1);
        assert_eq!(
            limits(Version::V2, "254:0", emmc, tick),
            ["254:0 rbps=10000000 riops=320"]
        );
        assert_eq!(
            no_limits(Version::V2, "254:0"),
            ["254:0 rbps=max riops=max"]
        );
    }

    #[test]
    fn a_late_renewal_allows_as_much_more_and_none_forbids_everything() {
        let emmc = Disk::Emmc.throttle().expect("it is held back");
        let of = |time| limits(Version::V2, "8:0", emmc, time);
        assert_eq!(
            of(Duration::from_millis(12)),
            ["8:0 rbps=30000000 riops=960"]
        );
        // 0 would be no number that the kernel takes.
        assert_eq!(of(Duration::ZERO), ["8:0 rbps=1 riops=1"]);
    }

    /// Reads 1.5 MB, which the kernel's own slice would let pass at once, at 20 MB a second. Needs root.
    #[test]
    fn what_a_slice_would_let_pass_at_once_takes_its_time() {
        let disk = machine::Disk::new(&["mkfs.ext4", "-q"], 8 << 20);
        let name = disk.device.file_name().expect("a device").to_owned();
        let number = sysfs::read(Path::new("/sys/class/block").join(name).join("dev"));
        let hierarchy = find().expect("a hierarchy with the controller");
        if hierarchy.version == Version::V2 {
            group::enable_above(&hierarchy.mount_point, "any", "io").expect("enable io");
        }
        let group = Group::create(&hierarchy);
        let throttle = Throttle {
            bytes_per_s: 20_000_000,
            requests_per_s: 1_000_000,
            period_ms: TICK_MS,
        };
        let number = number.expect("a device number");
        let directory = &group.0.directory;
        let pace = Pace::start(directory, hierarchy.version, number, throttle).expect("a pace");
        let read = format!(
            "echo $$ > {}/cgroup.procs; exec dd if={} of=/dev/null bs=64k count=24 iflag=direct",
            directory.display(),
            disk.device.display()
        );
        let start = Instant::now();
        machine::run("sh", &["-c", &read]);
        let took = start.elapsed();
        drop(pace);
        assert!(took > Duration::from_millis(50), "{took:?}");
    }
}
