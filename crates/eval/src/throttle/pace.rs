//! Limits that let nothing pass in advance, and count what the device is asked for.
//!
//! The kernel counts by slices of 100 ms (block/blk-throttle.c, DFL_THROTL_SLICE) and lets what a slice allows pass at once:
//! the first 25 MB of a disk held to 250 MB a second come at the disk's own speed, which is all that a short launch reads. To
//! take a limit away and to set it again begins a new slice. So a thread does that every few milliseconds, with a limit that
//! allows in 100 ms what the disk that is imitated delivers in the time since: no more passes at once.
//!
//! Requests the kernel counts before they are merged: a look-up on ext4, which reads 32 blocks of inodes ahead one by one
//! (inode_readahead_blks), counts as 32, of which the device sees one or two. So only bytes are limited by the kernel. Of
//! requests the device's own count is read with every renewal; what were too many is owed, and nothing passes until the disk
//! that is imitated would have done with them.

use super::Throttle;
use crate::error::{Context, Result};
use crate::restore::Undo;
use prepage_kernel::cgroup::Version;
use prepage_kernel::sched::{self, Policy};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The kernel's own slice.
pub const SLICE_MS: u64 = 100;

/// How often the limit is renewed at most: once a tick of a kernel with 250 of them a second, since what has to wait goes on
/// at ticks. With fewer ticks less passes than the limit says.
pub const TICK_MS: u64 = 4;

/// The file that holds the limit of bytes.
fn file(version: Version) -> &'static str {
    match version {
        Version::V1 => "blkio.throttle.read_bps_device",
        Version::V2 => "io.max",
    }
}

/// What is written to it to take the limit of a device (`major:minor`) away.
fn no_limit(version: Version, device: &str) -> String {
    match version {
        Version::V1 => format!("{device} 0"),
        Version::V2 => format!("{device} rbps=max"),
    }
}

/// What takes away the limit of a device (`major:minor`) that is left behind where nobody renews it any more.
pub fn undo(directory: &Path, version: Version, device: &str) -> Undo {
    Undo::Value {
        path: directory.join(file(version)),
        contents: no_limit(version, device),
    }
}

/// What is written to it so that within one slice of the kernel no more passes than so many bytes a second allow in so long.
fn limit(version: Version, device: &str, bytes_per_s: u64, time: Duration) -> String {
    let in_slice = u128::from(bytes_per_s) * time.as_micros() / u128::from(SLICE_MS * 1000);
    // 0 would be no number that the kernel takes.
    let bytes_per_s = u64::try_from(in_slice).unwrap_or(u64::MAX).max(1);
    match version {
        Version::V1 => format!("{device} {bytes_per_s}"),
        Version::V2 => format!("{device} rbps={bytes_per_s}"),
    }
}

/// How much longer the disk that is imitated would take for requests than they have taken.
#[derive(Debug, Default)]
struct Debt(Duration);

impl Debt {
    /// Takes in what was asked for in so long, and returns what is owed now.
    fn take(&mut self, requests: u64, per_s: u64, time: Duration) -> Duration {
        let nanos = u128::from(requests) * 1_000_000_000 / u128::from(per_s.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.0 = self.0.saturating_add(takes).saturating_sub(time);
        self.0
    }
}

/// Reads that a device (`major:minor`) has completed, merged ones counted once (Documentation/block/stat.rst).
fn reads(stat: &Path) -> std::io::Result<u64> {
    let text = fs::read_to_string(stat)?;
    let reads = text.split_whitespace().next().and_then(|n| n.parse().ok());
    reads.ok_or_else(|| std::io::Error::other(format!("{}: no count of reads", stat.display())))
}

/// Limits that are renewed until it is dropped, or its group vanishes.
#[derive(Debug)]
pub struct Pace {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// What the limits are set by.
struct Limits {
    version: Version,
    device: String,
    file: File,
    stat: PathBuf,
    throttle: Throttle,
}

impl Limits {
    /// Begins a new slice, in which passes what the disk delivers in this time.
    fn renew(&self, time: Duration) -> std::io::Result<()> {
        let none = no_limit(self.version, &self.device);
        self.file.write_all_at(none.as_bytes(), 0)?;
        let limit = limit(self.version, &self.device, self.throttle.bytes_per_s, time);
        self.file.write_all_at(limit.as_bytes(), 0)
    }

    /// Renews them until `stopped` has no sender any more.
    fn keep(&self, stopped: &mpsc::Receiver<()>) -> std::io::Result<()> {
        let period = Duration::from_millis(self.throttle.period_ms);
        let (mut seen, mut renewed) = (Instant::now(), Instant::now());
        let (mut debt, mut reads_seen) = (Debt::default(), reads(&self.stat)?);
        let mut wait = period;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let (now, reads) = (Instant::now(), reads(&self.stat)?);
            let requests = reads.saturating_sub(reads_seen);
            let owed = debt.take(requests, self.throttle.requests_per_s, now - seen);
            (seen, reads_seen) = (now, reads);
            let pays = !owed.is_zero();
            let time = if pays { Duration::ZERO } else { now - renewed };
            match self.renew(time) {
                // The group has vanished: the run is over.
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => break,
                result => result?,
            }
            if pays {
                wait = owed;
            } else {
                (renewed, wait) = (now, period);
            }
        }
        Ok(())
    }
}

impl Pace {
    /// Begins to hold a device (`major:minor`) back, by this directory of a hierarchy of this version.
    ///
    /// # Errors
    /// Where the kernel refuses the limits, or counts no reads of the device.
    pub fn start(
        directory: &Path,
        version: Version,
        device: String,
        throttle: Throttle,
    ) -> Result<Self> {
        let path = directory.join(file(version));
        let file = File::options().write(true).open(&path);
        let limits = Limits {
            version,
            file: file.context("open", path.display())?,
            stat: Path::new("/sys/dev/block").join(&device).join("stat"),
            device,
            throttle,
        };
        reads(&limits.stat).context("read", limits.stat.display())?;
        let period = Duration::from_millis(throttle.period_ms);
        limits.renew(period).context("limit", directory.display())?;
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            // Nobody has to wait for a period that is too long; where real time is denied, as punctual as the rest allows.
            let _ = sched::set_current_thread_policy(Policy::RealTime);
            limits.keep(&stopped)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{Disk, find};
    use crate::{group, sysfs};
    use prepage_kernel::testing::{group::Group, machine};

    #[test]
    fn both_versions_say_the_same_limit() {
        let emmc = Disk::Emmc.throttle().expect("it is held back");
        let of = |version, time| limit(version, "254:0", emmc.bytes_per_s, time);
        let tick = Duration::from_millis(4);
        assert_eq!(emmc.period_ms, 9, "2 MiB pass");
        assert_eq!(of(Version::V1, tick), "254:0 10000000");
        assert_eq!(of(Version::V2, tick), "254:0 rbps=10000000");
        assert_eq!(no_limit(Version::V1, "254:0"), "254:0 0");
        assert_eq!(no_limit(Version::V2, "254:0"), "254:0 rbps=max");
        // A late renewal allows as much more, and none forbids everything.
        assert_eq!(of(Version::V2, 3 * tick), "254:0 rbps=30000000");
        assert_eq!(of(Version::V2, Duration::ZERO), "254:0 rbps=1");
    }

    #[test]
    fn too_many_requests_are_owed_until_the_disk_would_have_done_with_them() {
        let mut debt = Debt::default();
        let ms = Duration::from_millis;
        assert_eq!(debt.take(72, 8_000, ms(9)), ms(0), "as many as it allows");
        assert_eq!(debt.take(200, 8_000, ms(9)), ms(16), "25 ms of requests");
        assert_eq!(debt.take(8, 8_000, ms(16)), ms(1), "and 1 ms more");
        assert_eq!(debt.take(0, 8_000, ms(100)), ms(0));
        assert_eq!(debt.take(16, 8_000, ms(1)), ms(1), "nothing is saved up");
    }

    /// Reads blocks by dd from a loop device that is held back, and returns how long that took.
    fn read_held_back(
        bytes_per_s: u64,
        requests_per_s: u64,
        block_kib: u32,
        blocks: u32,
    ) -> Duration {
        let throttle = Throttle {
            bytes_per_s,
            requests_per_s,
            period_ms: TICK_MS,
            counts_merged: true,
        };
        let disk = machine::Disk::new(&["mkfs.ext4", "-q"], 8 << 20);
        let name = disk.device.file_name().expect("a device").to_owned();
        let number = sysfs::read(Path::new("/sys/class/block").join(name).join("dev"));
        let hierarchy = find().expect("a hierarchy with the controller");
        if hierarchy.version == Version::V2 {
            group::enable_above(&hierarchy.mount_point, "any", "io").expect("enable io");
        }
        let group = Group::create(&hierarchy);
        let number = number.expect("a device number");
        let directory = &group.0.directory;
        let _pace = Pace::start(directory, hierarchy.version, number, throttle).expect("a pace");
        let read = format!(
            "echo $$ > {}/cgroup.procs; exec dd if={} of=/dev/null bs={block_kib}k count={blocks} iflag=direct",
            directory.display(),
            disk.device.display()
        );
        let start = Instant::now();
        machine::run("sh", &["-c", &read]);
        start.elapsed()
    }

    /// Reads 1.5 MB, which the kernel's own slice would let pass at once, at 20 MB a second. Needs root.
    #[test]
    fn what_a_slice_would_let_pass_at_once_takes_its_time() {
        let took = read_held_back(20_000_000, 1_000_000, 64, 24);
        assert!(took > Duration::from_millis(50), "{took:?}");
    }

    /// Reads 2,000 blocks of 4 KiB, at 4,000 requests a second: 500 ms, but for what passes before they are first counted.
    /// Needs root.
    #[test]
    fn more_requests_than_the_disk_does_take_their_time() {
        let took = read_held_back(1_000_000_000, 4_000, 4, 2_000);
        assert!(took > Duration::from_millis(200), "{took:?}");
    }
}
