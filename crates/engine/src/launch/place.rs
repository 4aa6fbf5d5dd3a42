//! Where an application's paths hold, and with whose rights they are looked up.

use crate::members::Rights;
use prepage_kernel::Result;
use prepage_kernel::credentials::FsUser;
use prepage_kernel::mountinfo::{self, Mount, ProcessMounts};
use prepage_kernel::open::{
    FileStat, mount_id, open_directory_in_root, open_in_root, process_root,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::LazyLock;

type LazyMounts = LazyLock<Mounts, Box<dyn FnOnce() -> Mounts + Send>>;

/// File systems on block devices, or on top of such, as mountinfo names their types. Nothing else is looked at: a
/// network or FUSE file system may never answer, autofs mounts something, and /proc, /sys and tmpfs read no device.
const LOCAL_TYPES: [&str; 21] = [
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "iso9660",
    "jfs", "minix", "msdos", "nilfs2", "ntfs3", "overlay", "squashfs", "udf", "vfat", "xfs", "zfs",
];

/// A launch's root directory, mounts and rights, taken while its process lives.
#[derive(Debug)]
pub struct Place {
    root: OwnedFd,
    rights: Rights,
    /// Read when the first thread asks.
    mounts: LazyMounts,
}

impl Place {
    /// That of a process.
    ///
    /// # Errors
    /// Where the process is gone.
    pub fn of(pid: i32, rights: Rights) -> Result<Self> {
        let mounts = ProcessMounts::open(pid)?;
        let root = process_root(pid)?;
        let root_mount = mount_id(root.as_fd(), Path::new(""));
        let read = move || {
            let mut mounts = mounts.read().unwrap_or_default();
            mounts.extend(mount_of_root(root_mount, &mounts));
            Mounts::new(mounts)
        };
        Ok(Self {
            root,
            rights,
            mounts: LazyMounts::new(Box::new(read)),
        })
    }

    /// The root directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Gives this thread the file-system rights of the application's owner, while the guard lives.
    pub fn as_owner(&self) -> Result<FsUser> {
        self.rights.enter()
    }

    /// Opens a regular file, if the owner may read it.
    pub fn open_file(&self, path: &str) -> Result<(OwnedFd, FileStat)> {
        let _owner = self.as_owner()?;
        open_in_root(self.root(), Path::new(path))
    }

    /// Opens a directory, if the owner may list it.
    pub fn open_directory(&self, path: &str) -> Result<OwnedFd> {
        let _owner = self.as_owner()?;
        open_directory_in_root(self.root(), Path::new(path))
    }

    /// Whether an absolute path lies on a file system of a block device. No file system is asked. Where the mounts cannot
    /// be read, nothing counts as such.
    pub fn is_local(&self, path: &str) -> bool {
        self.mounts.is_local(path)
    }
}

/// What holds a root directory that is no mount point (chroot(2)), among whose mounts it is not: it is one of ours.
fn mount_of_root(id: Option<u64>, mounts: &[Mount]) -> Option<Mount> {
    let is_root = |mount: &Mount| mount.mount_point == Path::new("/");
    if mounts.iter().any(is_root) {
        return None;
    }
    let ours = mountinfo::read().unwrap_or_default();
    let holds = ours.into_iter().find(|mount| Some(mount.id) == id)?;
    let mount_point = "/".into();
    Some(Mount {
        mount_point,
        ..holds
    })
}

/// Mount points, the longest first, and of one place the one mounted last.
#[derive(Debug)]
struct Mounts(Vec<(String, bool)>);

impl Mounts {
    fn new(mounts: Vec<Mount>) -> Self {
        let point = |mount: Mount| {
            let point = mount.mount_point.into_os_string().into_string().ok()?;
            let is_local = LOCAL_TYPES.contains(&mount.fs_type.as_str());
            Some((point.trim_end_matches('/').to_owned(), is_local))
        };
        let mut points: Vec<_> = mounts.into_iter().rev().filter_map(point).collect();
        points.sort_by_key(|(point, _)| std::cmp::Reverse(point.len()));
        Self(points)
    }

    fn is_local(&self, path: &str) -> bool {
        let holds = |point: &str| {
            let rest = path.strip_prefix(point);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mount = self.0.iter().find(|(point, _)| holds(point));
        mount.is_some_and(|&(_, is_local)| is_local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_says_what_a_path_is_on() {
        let mounts = prepage_kernel::mountinfo::parse(
            b"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /proc rw - proc proc rw\n\
              3 1 0:9 / /mnt rw - fuse.sshfs me@there rw\n4 3 254:1 / /mnt/disk rw - xfs /dev/vdb rw\n\
              5 1 254:2 / /srv rw - ext4 /dev/vdc rw\n6 5 0:7 / /srv rw - nfs4 there:/ rw\n",
        );
        let mounts = Mounts::new(mounts.expect("well formed"));
        for (path, is_local) in [
            ("/", true),
            ("/procession", true),
            ("/proc/self/exe", false),
            ("/mnt", false),
            ("/mnt/x", false),
            ("/mnt/disk/x", true),
            ("/srv/x", false),
            ("relative", false),
        ] {
            assert_eq!(mounts.is_local(path), is_local, "{path}");
        }
        assert!(!Mounts::new(Vec::new()).is_local("/"), "nothing is known");
    }
}
