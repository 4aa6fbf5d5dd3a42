//! Block devices: the queue settings in sysfs of the device that holds a path, and where on which disk a partition lies.

use crate::error::{Error, Result};
use crate::mountinfo::Mount;
use crate::{mountinfo, text};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a readahead call is cut to where its device is not known, in KiB: as large as read_ahead_kb is unless somebody
/// sets it (VM_READAHEAD_PAGES), and so no larger than [`BlockDevice::readahead_cap_kib`] of any device of which nobody
/// has.
pub const READAHEAD_CAP_KIB_DEFAULT: u64 = 128;

/// File systems that lie on block devices by whose numbers the kernel does not name them. Only root mounts them, so that what is
/// mounted is a device, and no text of a user's, as it is of FUSE and of most that may be mounted in a user namespace.
const NAMED_BY_SOURCE: [&str; 2] = ["btrfs", "bcachefs"];

/// A whole block device: partitions are resolved to the device they lie on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    directory: PathBuf,
    name: String,
}

impl BlockDevice {
    /// The device with this number (`st_dev` or `st_rdev` of stat).
    pub fn of_number(dev: u64) -> Result<BlockDevice> {
        let link = PathBuf::from(format!(
            "/sys/dev/block/{}:{}",
            rustix::fs::major(dev),
            rustix::fs::minor(dev)
        ));
        let failed = |error| Error::new("readlink", link.to_string_lossy(), error);
        let mut directory = std::fs::canonicalize(&link).map_err(failed)?;
        // A partition's directory lies in that of its device, which has the queue.
        if directory.join("partition").exists() {
            directory.pop();
        }
        let name = directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(BlockDevice { directory, name })
    }

    /// The device that holds a file or directory; that of a block special file is itself. `ENOENT` for file systems
    /// without one (tmpfs, network, overlay). Of several devices below one file system, the one it was mounted from.
    pub fn of_path(path: &Path) -> Result<BlockDevice> {
        let failed = |error| Error::new("stat", path.to_string_lossy(), error);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.file_type().is_block_device() {
            return BlockDevice::of_number(metadata.rdev());
        }
        let device = BlockDevice::of_number(metadata.dev());
        if device.is_ok() {
            return device;
        }
        // btrfs gives each subvolume a number without a device: ask by the mount instead.
        let path = std::fs::canonicalize(path).map_err(failed)?;
        let mounts = mountinfo::read()?;
        match mountinfo::mount_of(&mounts, &path) {
            Some(mount) => BlockDevice::of_mount(mount).or(device),
            None => device,
        }
    }

    /// The device that a file system was mounted from, by the mount table. The file system is not asked, nor is any that a user
    /// may name. `ENOENT` where there is none.
    pub fn of_mount(mount: &Mount) -> Result<BlockDevice> {
        let (major, minor) = mount.dev;
        let device = BlockDevice::of_number(rustix::fs::makedev(major, minor));
        if device.is_ok() || !NAMED_BY_SOURCE.contains(&mount.fs_type.as_str()) {
            return device;
        }
        match std::fs::metadata(&mount.source) {
            Ok(source) if source.file_type().is_block_device() => {
                BlockDevice::of_number(source.rdev())
            }
            _ => device,
        }
    }

    /// The kernel's name: `sda`, `nvme0n1`, `zram0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is made of other devices (dm, md), which its requests go to.
    pub fn is_stacked(&self) -> bool {
        let below = std::fs::read_dir(self.directory.join("slaves"));
        below.is_ok_and(|mut below| below.next().is_some())
    }

    fn queue(&self, file: &str) -> PathBuf {
        self.directory.join("queue").join(file)
    }

    /// Sequential readahead in KiB.
    pub fn read_ahead_kib(&self) -> Result<u64> {
        text::read_number(self.queue("read_ahead_kb"))
    }

    /// The largest request in KiB.
    pub fn max_sectors_kib(&self) -> Result<u64> {
        text::read_number(self.queue("max_sectors_kb"))
    }

    /// Whether it rotates. Virtual disks are taken not to: virtio and Xen say 1 for want of anything better, whatever
    /// the host keeps them on.
    pub fn rotational(&self) -> Result<bool> {
        let says_so = text::read_number::<u32>(self.queue("rotational"))? != 0;
        Ok(says_so && !self.is_virtual())
    }

    /// Whether its driver is one for virtual machines (the bus of /sys/class/block/NAME/device).
    fn is_virtual(&self) -> bool {
        let bus = std::fs::read_link(self.directory.join("device/subsystem"));
        bus.is_ok_and(|bus| bus.ends_with("virtio") || bus.ends_with("xen"))
    }

    /// What the settings say a readahead call is capped at, in KiB: the larger of max_sectors_kb (io_pages) and
    /// read_ahead_kb. On a disk, measured, it is.
    pub fn readahead_cap_kib(&self) -> Result<u64> {
        Ok(self.read_ahead_kib()?.max(self.max_sectors_kib()?))
    }
}

/// Where a block device lies on its disk: what turns the offsets of [`crate::fiemap`] into the sectors of
/// [`crate::block_trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Major and minor of the whole disk.
    pub disk: (u32, u32),
    /// Where the device begins on it, in bytes: 0 unless it is a partition.
    pub start_bytes: u64,
}

impl Placement {
    /// That of the block device with this number (`st_dev` or `st_rdev` of stat). A stacked device (dm, md) counts as a
    /// disk of its own. `ENOENT` where the number is that of no block device, as on btrfs, overlay and tmpfs.
    pub fn of_number(dev: u64) -> Result<Placement> {
        let number = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let link = format!("/sys/dev/block/{}:{}", number.0, number.1);
        let directory = std::fs::canonicalize(&link)
            .map_err(|error| Error::new("readlink", link.as_str(), error))?;
        if !directory.join("partition").exists() {
            return Ok(Placement {
                disk: number,
                start_bytes: 0,
            });
        }
        // Counted in units of 512 bytes, whatever the disk's sectors are.
        let start_sectors: u64 = text::read_number(directory.join("start"))?;
        let disk = directory.join("../dev");
        let line = text::read_line(&disk)?;
        let parsed = line
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let disk = parsed.ok_or_else(|| Error::malformed("parse", disk.to_string_lossy(), line))?;
        Ok(Placement {
            disk,
            start_bytes: start_sectors * crate::block_trace::SECTOR_BYTES,
        })
    }
}

/// Opens the block device with this number, to be read, by the name that the kernel gives it below /dev: /dev/block is udev's,
/// which containers and small systems are without. `ENODEV` where that name is another device's.
pub fn open_by_number(dev: u64) -> Result<File> {
    let number = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = format!("/sys/dev/block/{}:{}/uevent", number.0, number.1);
    let facts = text::read_text(&path)?;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let name = name.ok_or_else(|| Error::malformed("parse", path.as_str(), "no DEVNAME"))?;
    let path = Path::new("/dev").join(name);
    let failed = |error| Error::new("open", path.to_string_lossy(), error);
    let file = File::open(&path).map_err(failed)?;
    match file.metadata().map_err(failed)?.rdev() == dev {
        true => Ok(file),
        false => Err(failed(rustix::io::Errno::NODEV.into())),
    }
}
