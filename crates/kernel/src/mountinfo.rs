//! /proc/PID/mountinfo: what is mounted where, and by which devices the kernel names files there.

use crate::error::{Error, Result};
use crate::{open, text};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount id.
    pub id: u64,
    /// Major and minor of the file system's device (`s_dev`).
    pub dev: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// Where.
    pub mount_point: PathBuf,
    /// File system type: `ext4`, `cgroup2`, ...
    pub fs_type: String,
    /// What is mounted: a device, or any name.
    pub source: PathBuf,
    /// The file system's own options, separated by commas. For cgroup v1, the controllers are among them.
    pub super_options: String,
}

/// The longest list of a process's mounts that is read, in bytes: those of 700 containers, with 1,500 bytes for each one's overlay
/// and what goes with it. Whoever has a namespace of their own may mount 100,000 there (fs.mount-max).
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Reads /proc/self/mountinfo. In the order of mounting: a later one hides an earlier one at the same place.
pub fn read() -> Result<Vec<Mount>> {
    const PATH: &str = "/proc/self/mountinfo";
    parsed(PATH, &text::read_bytes(PATH)?)
}

/// Reads /proc/PID/mountinfo: the mounts that this process sees. `EFBIG` where that is longer than 1 MiB.
pub fn read_of(pid: i32) -> Result<Vec<Mount>> {
    ProcessMounts::open(pid)?.read()
}

fn parsed(path: &str, bytes: &[u8]) -> Result<Vec<Mount>> {
    parse(bytes).map_err(|line| Error::malformed("parse", path, format!("malformed line {line:?}")))
}

/// The mounts that a process can reach, to be read later: it may have ended by then.
#[derive(Debug)]
pub struct ProcessMounts {
    file: File,
    path: String,
}

impl ProcessMounts {
    /// Opens /proc/PID/mountinfo, which takes hold of the process's mount namespace and root directory.
    pub fn open(pid: i32) -> Result<ProcessMounts> {
        let path = format!("/proc/{pid}/mountinfo");
        match File::open(&path) {
            Ok(file) => Ok(ProcessMounts { file, path }),
            Err(error) => Err(Error::new("open", path, error)),
        }
    }

    /// What is mounted now, with mount points below the process's root directory; once. `EFBIG` as of [`read_of`].
    pub fn read(self) -> Result<Vec<Mount>> {
        match text::read_whole_up_to(self.file, LIST_BYTES_MAX) {
            Ok(bytes) => parsed(&self.path, &bytes),
            Err(error) => Err(Error::new("read", self.path, error)),
        }
    }
}

/// Parses the contents of a mountinfo file. The error is the first malformed line.
pub fn parse(bytes: &[u8]) -> std::result::Result<Vec<Mount>, String> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| parse_line(line).ok_or_else(|| String::from_utf8_lossy(line).into_owned()))
        .collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = text_of(fields.next()?).parse().ok()?;
    let _parent = fields.next()?;
    let device = text_of(fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let root = path_of(fields.next()?);
    let mount_point = path_of(fields.next()?);
    let _options = fields.next()?;
    // Any number of optional fields, ended by a hyphen.
    fields.find(|&field| field == b"-")?;
    Some(Mount {
        id,
        dev: (major.parse().ok()?, minor.parse().ok()?),
        root,
        mount_point,
        fs_type: text_of(fields.next()?),
        source: path_of(fields.next()?),
        super_options: text_of(fields.next().unwrap_or_default()),
    })
}

fn text_of(field: &[u8]) -> String {
    String::from_utf8_lossy(&text::unescape_octal(field)).into_owned()
}

fn path_of(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(text::unescape_octal(field)))
}

/// The mount that an absolute path without links lies on: the last of those with the longest mount point.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())
}

/// A path below these mounts by which `path`, an absolute path without links below those that are mounted `there`, names the
/// same file: a directory of the same file system is mounted in both (a bind mount, as a sandbox is made of). `None` where there
/// is none.
pub fn same_file_here(path: &Path, there: &[Mount], here: &[Mount]) -> Option<PathBuf> {
    let mount = mount_of(there, path)?;
    let below = path.strip_prefix(&mount.mount_point).ok()?;
    let in_file_system = mount.root.join(below);
    here.iter().find_map(|candidate| {
        if candidate.dev != mount.dev {
            return None;
        }
        let below = in_file_system.strip_prefix(&candidate.root).ok()?;
        // Joined with nothing, a path gets a slash at its end.
        let found = match below.as_os_str().is_empty() {
            true => candidate.mount_point.clone(),
            false => candidate.mount_point.join(below),
        };
        // Another one may hide it.
        (mount_of(here, &found)?.id == candidate.id).then_some(found)
    })
}

/// Major and minor number of a device.
pub type Device = (u32, u32);

/// By which devices tracepoints name the files of mounts: `s_dev` of the file system that holds the pages. stat gives
/// another on btrfs (a number for each subvolume) and on overlay (its own; the pages belong to the file in a layer).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    by_mount: HashMap<u64, Device>,
    /// From an overlay's `s_dev` to that of its layers.
    layers: HashMap<Device, Device>,
}

impl Devices {
    /// Those of our own mounts. Layers that have no path here are left out.
    pub fn here() -> Devices {
        let mut devices = Devices::default();
        let mount_id = |layer: &Path| open::mount_id(rustix::fs::CWD, layer);
        devices.add_with(&read().unwrap_or_default(), mount_id);
        devices
    }

    /// Adds those of mounts elsewhere. Layers are looked up in the kernel's caches alone, where they are while the overlay is
    /// mounted: whoever mounted it may be anybody, and its options lead anywhere here, as to a server that does not answer.
    pub fn add(&mut self, mounts: &[Mount]) {
        self.add_with(mounts, open::cached_mount_id);
    }

    fn add_with(&mut self, mounts: &[Mount], mount_id: impl Fn(&Path) -> Option<u64>) {
        let by_mount = mounts.iter().map(|mount| (mount.id, mount.dev));
        self.by_mount.extend(by_mount);
        let overlays = mounts.iter().filter(|mount| mount.fs_type == "overlay");
        let layers = overlays.filter_map(|mount| {
            let layer = top_layer(&mount.super_options)?;
            let id = mount_id(Path::new(layer))?;
            Some((mount.dev, *self.by_mount.get(&id)?))
        });
        self.layers.extend(layers);
    }

    /// The device by which tracepoints name a file: `mount_id` and `dev` are those of stat. `None` where the mount is
    /// none of these, so that the file's path means nothing here: an overlay opens its layers' files by mounts of its own.
    pub fn of_file(&self, mount_id: Option<u64>, dev: u64) -> Option<Device> {
        let device = match mount_id {
            Some(id) => *self.by_mount.get(&id)?,
            None => (rustix::fs::major(dev), rustix::fs::minor(dev)),
        };
        Some(self.of_mapping(device))
    }

    /// The same for what is mapped: `dev` is that of [`crate::maps`], which is the overlay's own from 6.8 on.
    pub fn of_mapping(&self, dev: Device) -> Device {
        self.layers.get(&dev).copied().unwrap_or(dev)
    }
}

/// The directory in which an overlay's topmost layer lies, by its options. An inode number of the overlay is that of
/// the layer's file where all layers lie on one file system and the file was not copied up.
fn top_layer(options: &str) -> Option<&str> {
    let option = |name: &str| options.split(',').find_map(|o| o.strip_prefix(name));
    // As fsconfig(2) takes them since 6.7, one by one.
    let first = || option("lowerdir+=").or_else(|| option("lowerdir=")?.split(':').next());
    let layer = option("upperdir=").or_else(first);
    // An escaped separator would have cut it short.
    layer.filter(|path| path.starts_with('/') && !path.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        36 27 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - cgroup cgroup rw,memory\n\
        40 27 0:5 / /mnt rw - tmpfs  rw\n";

    #[test]
    fn optional_fields_and_escapes() {
        let mounts = parse(TEXT).expect("well formed");
        assert_eq!(mounts[0].source, Path::new("/dev/vda"));
        assert_eq!(mounts[1].mount_point, Path::new("/mnt 2"));
        assert_eq!(
            (mounts[1].fs_type.as_str(), mounts[1].super_options.as_str()),
            ("cgroup", "rw,memory")
        );
        assert_eq!(mounts[2].source, Path::new(""));
        let of = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.id);
        assert_eq!(
            [of("/mnt/x"), of("/mnt 2/x"), of("/mntx"), of("relative")],
            [Some(40), Some(36), Some(27), None]
        );
    }

    /// A sandbox made of bind mounts, as bwrap makes it, and the machine that it is on.
    #[test]
    fn a_path_in_a_sandbox_names_a_file_outside() {
        let here = parse(
            b"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /proc rw - proc proc rw\n\
              3 1 254:1 /sub /srv rw - ext4 /dev/vdb rw\n4 1 254:1 / /hidden rw - ext4 /dev/vdb rw\n\
              5 4 0:6 / /hidden/sub rw - tmpfs tmpfs rw\n6 1 7:0 / /snap/x rw - squashfs /dev/loop0 rw\n",
        );
        let there = parse(
            b"60 50 0:39 /newroot / rw - tmpfs tmpfs rw\n61 60 254:0 /lib/run/files /usr ro - ext4 /dev/vda rw\n\
              62 60 254:1 /sub/app /app ro - ext4 /dev/vdb rw\n63 60 254:1 /other /other ro - ext4 /dev/vdb rw\n\
              64 60 254:0 /file /etc/one ro - ext4 /dev/vda rw\n65 60 7:0 / /snap ro - squashfs /dev/loop0 rw\n\
              66 60 254:9 / /far ro - ext4 /dev/vdz rw\n67 60 254:1 /sub/in /in ro - ext4 /dev/vdb rw\n",
        );
        let (here, there) = (here.expect("well formed"), there.expect("well formed"));
        for (path, outside) in [
            ("/usr", Some("/lib/run/files")),
            ("/usr/lib/x.so", Some("/lib/run/files/lib/x.so")),
            ("/usrx", None),
            ("/app/bin", Some("/srv/app/bin")),
            ("/in/x", Some("/srv/in/x")),
            ("/other/x", Some("/hidden/other/x")),
            ("/etc/one", Some("/file")),
            ("/etc/two", None),
            ("/snap/bin", Some("/snap/x/bin")),
            ("/far/x", None),
            ("relative", None),
        ] {
            let found = same_file_here(Path::new(path), &there, &here);
            assert_eq!(found.as_deref(), outside.map(Path::new), "{path}");
            // Where nothing differs, neither does the path.
            let same = same_file_here(Path::new(path), &here, &here);
            assert!(same.is_none_or(|same| same == Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_top_layer_is_the_upper_or_the_first_lower() {
        assert_eq!(
            top_layer("rw,lowerdir=/a:/b,upperdir=/u,workdir=/w"),
            Some("/u")
        );
        assert_eq!(top_layer("ro,lowerdir=/a:/b"), Some("/a"));
        assert_eq!(
            top_layer("ro,lowerdir+=/a:1,lowerdir+=/b,datadir+=/d"),
            Some("/a:1")
        );
        assert_eq!(
            top_layer("ro,lowerdir=l/A:l/B"),
            None,
            "relative to whoever mounted it"
        );
        assert_eq!(top_layer("rw,lowerdir=/a\\:b"), None);
        assert_eq!(top_layer("rw"), None);
    }

    #[test]
    fn malformed_lines_are_errors() {
        for bad in [
            "x",
            "1 2 3:4 / / rw ext4 x rw",
            "1 2 34 / / rw - ext4 x rw",
            "1 2 3:4 / / rw -",
            "a 2 3:4 / / rw - a b c",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
