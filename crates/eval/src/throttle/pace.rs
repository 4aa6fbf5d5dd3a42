//! Limits that let nothing pass in advance.
//!
//! The kernel counts by slices of 100 ms (block/blk-throttle.c, DFL_THROTL_SLICE) and lets what a slice allows pass at once:
//! the first 25 MB of a disk held to 250 MB a second come at the disk's own speed, which is all that a short launch reads. To
//! take a limit away and to set it again begins a new slice. So a thread does that every few milliseconds, with limits that
//! allow in 100 ms what the disk that is imitated delivers in the time since: no more passes at once.

use super::Throttle;
use crate::error::{Context, Result};
use prepage_kernel::cgroup::Version;
use prepage_kernel::sched::{self, Policy};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The kernel's own slice.
pub const SLICE_MS: u64 = 100;

/// How often the limits are renewed at most: once a tick of a kernel with 250 of them a second, since what has to wait goes on
/// at ticks. With fewer ticks less passes than the limits say.
pub const TICK_MS: u64 = 4;

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
    /// Begins to hold a device (`major:minor`) back, by this directory of a hierarchy of this version.
    ///
    /// # Errors
    /// Where the kernel refuses the limits.
    pub fn start(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{Disk, find};
    use crate::{group, sysfs};
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
