//! setfsuid(2), setfsgid(2), setgroups(2): one thread reading files with another user's rights.

use crate::error::{Error, Result};
use rustix::fs::{Gid, Uid};
use std::collections::BTreeSet;
use std::marker::PhantomData;

/// Supplementary groups: the kernel's NGROUPS_MAX.
pub const GROUPS_MAX: usize = 65_536;

/// While it lives, the calling thread accesses files with the rights of another user. Dropping it returns.
///
/// - Only this thread changes: these are the system calls themselves, not glibc's process-wide versions.
/// - When the file system uid leaves 0, the kernel takes CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER and their
///   like from the thread's effective set, and gives back those that are *permitted* upon return to 0.
/// - The kernel marks the whole process non-dumpable upon such a change: its /proc/PID then belongs to root.
#[derive(Debug)]
pub struct FsUser {
    previous_uid: u32,
    previous_gid: u32,
    previous_groups: Option<Vec<Gid>>,
    /// The rights are the thread's: the guard must be dropped where it was made.
    _not_send: PhantomData<*const ()>,
}

impl FsUser {
    /// Switches the calling thread to `uid`, `gid` and, if given, these supplementary groups. Needs CAP_SETUID and
    /// CAP_SETGID where they are others than the thread has. On an error the thread is as it was.
    pub fn enter(uid: u32, gid: u32, groups: Option<&[u32]>) -> Result<FsUser> {
        let failed =
            |operation, error| Error::new(operation, format!("user {uid} group {gid}"), error);
        if uid == u32::MAX
            || gid == u32::MAX
            || groups.is_some_and(|groups| groups.len() > GROUPS_MAX)
        {
            return Err(failed("setfsuid", rustix::io::Errno::INVAL));
        }
        let mut guard = FsUser {
            previous_uid: set_fsuid(u32::MAX),
            previous_gid: set_fsgid(u32::MAX),
            previous_groups: None,
            _not_send: PhantomData,
        };
        // Groups and gid first: once the fsuid is the user's, all file rights are.
        if let Some(groups) = groups {
            let previous =
                rustix::process::getgroups().map_err(|error| failed("getgroups", error))?;
            let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
            let set = |groups: &[Gid]| groups.iter().map(|g| g.as_raw()).collect::<BTreeSet<u32>>();
            // Unlike setfsuid and setfsgid, it is refused even where it changes nothing.
            if set(&groups) != set(&previous) {
                rustix::thread::set_thread_groups(&groups)
                    .map_err(|error| failed("setgroups", error))?;
                guard.previous_groups = Some(previous);
            }
        }
        set_fsgid(gid);
        set_fsuid(uid);
        // setfsuid and setfsgid have no error: only asking again shows that they did nothing.
        if set_fsgid(u32::MAX) != gid || set_fsuid(u32::MAX) != uid {
            return Err(failed("setfsuid", rustix::io::Errno::PERM));
        }
        Ok(guard)
    }
}

impl Drop for FsUser {
    fn drop(&mut self) {
        set_fsuid(self.previous_uid);
        set_fsgid(self.previous_gid);
        if let Some(groups) = &self.previous_groups {
            // Cannot fail unless CAP_SETGID was given up meanwhile, and then the thread has fewer rights, not more.
            let restored = rustix::thread::set_thread_groups(groups);
            debug_assert!(restored.is_ok(), "setgroups back: {restored:?}");
        }
    }
}

/// Our effective user id.
pub fn effective_uid() -> u32 {
    Uid::as_raw(rustix::process::geteuid())
}

/// Our effective capabilities as a bit set, bit N being capability number N of capabilities(7).
pub fn effective_capabilities() -> Result<u64> {
    let sets = rustix::thread::capabilities(None)
        .map_err(|error| Error::new("capget", "the calling thread", error))?;
    Ok(sets.effective.bits())
}

/// Returns the previous one; u32::MAX (-1) is invalid and so only asks.
fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: takes no pointers and changes only the calling thread's credentials.
    unsafe { libc::setfsuid(uid) as u32 }
}

fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: takes no pointers and changes only the calling thread's credentials.
    unsafe { libc::setfsgid(gid) as u32 }
}
