//! A FUSE file system that never answers.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Mounted there. Dropping it lets everybody go who waits for it.
pub struct HangingMount(pub PathBuf, Option<File>);

impl HangingMount {
    /// Mounts it at this directory.
    pub fn at(point: &Path) -> HangingMount {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.expect("these tests need /dev/fuse");
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let options = std::ffi::CString::new(options).expect("text");
        let flags = MountFlags::empty();
        mount("prepage-test", point, "fuse", flags, Some(&*options)).expect("mount");
        HangingMount(point.into(), Some(device))
    }
}

impl Drop for HangingMount {
    fn drop(&mut self) {
        drop(self.1.take());
        unmount(&self.0, UnmountFlags::DETACH).expect("unmount");
    }
}
