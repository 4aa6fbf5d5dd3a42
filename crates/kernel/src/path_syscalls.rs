//! Which system calls look a path up, and where among their arguments it is: pure.

use libc::c_long;

/// What a call does with the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathCallKind {
    /// Opens it (or creates it).
    Open,
    /// Asks for what its inode says: stat, access, statfs, xattrs; chdir, inotify, and connect to a socket, too.
    Stat,
    /// Reads it as a symbolic link.
    ReadLink,
    /// Lists it, an open directory.
    ReadDir,
    /// Executes it.
    Exec,
}

/// Where the path of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathArgument {
    /// The argument of this index is its address; it is relative to the working directory.
    Path(usize),
    /// The second is its address; it is relative to the directory of which the first is the descriptor.
    PathAt,
    /// The first argument is the descriptor of what is meant.
    Descriptor,
    /// The second is the address of a socket's address, the third its length: of AF_UNIX, it may be a path.
    SocketAddress,
}

/// The system calls with a path that launches make (FAST's list, section 4.3, without those that only change
/// something, and with what was added to Linux since), by their numbers in our own ABI.
pub(crate) fn path_call(number: u64) -> Option<(PathCallKind, PathArgument)> {
    use PathArgument::{Descriptor, Path, PathAt, SocketAddress};
    use PathCallKind::{Exec, Open, ReadDir, ReadLink, Stat};
    Some(match c_long::try_from(number).ok()? {
        libc::SYS_openat | libc::SYS_openat2 => (Open, PathAt),
        libc::SYS_newfstatat | libc::SYS_statx => (Stat, PathAt),
        libc::SYS_faccessat | libc::SYS_faccessat2 => (Stat, PathAt),
        libc::SYS_statfs | libc::SYS_chdir => (Stat, Path(0)),
        libc::SYS_getxattr | libc::SYS_lgetxattr => (Stat, Path(0)),
        libc::SYS_inotify_add_watch => (Stat, Path(1)),
        libc::SYS_connect => (Stat, SocketAddress),
        libc::SYS_readlinkat => (ReadLink, PathAt),
        libc::SYS_getdents64 => (ReadDir, Descriptor),
        libc::SYS_execve => (Exec, Path(0)),
        libc::SYS_execveat => (Exec, PathAt),
        number => return older_path_call(number),
    })
}

/// The calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
fn older_path_call(number: c_long) -> Option<(PathCallKind, PathArgument)> {
    use PathArgument::{Descriptor, Path};
    use PathCallKind::{Open, ReadDir, ReadLink, Stat};
    Some(match number {
        libc::SYS_open | libc::SYS_creat => (Open, Path(0)),
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => (Stat, Path(0)),
        libc::SYS_readlink => (ReadLink, Path(0)),
        libc::SYS_getdents => (ReadDir, Descriptor),
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn older_path_call(_number: c_long) -> Option<(PathCallKind, PathArgument)> {
    None
}

/// AUDIT_ARCH_* of our own ABI, in which [`path_call`] counts: the number of the ELF machine, and bits for 64-bit and
/// little endian. 0 where that is not known here: no system call is of such an ABI.
pub(crate) const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    62 | 0xc000_0000
} else if cfg!(target_arch = "aarch64") {
    183 | 0xc000_0000
} else if cfg!(target_arch = "riscv64") {
    243 | 0xc000_0000
} else {
    0
};

/// Whether a path that was looked up with this result exists. What was refused for another reason than that it does
/// not exist, such as EACCES, EEXIST, and EINVAL of a readlink, does.
pub(crate) fn is_found(result: i64) -> bool {
    result != -i64::from(libc::ENOENT) && result != -i64::from(libc::ENOTDIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_our_own_abi() {
        let call = |number: c_long| path_call(number as u64);
        let open = (PathCallKind::Open, PathArgument::PathAt);
        assert_eq!(call(libc::SYS_openat), Some(open));
        let exec = (PathCallKind::Exec, PathArgument::Path(0));
        assert_eq!(call(libc::SYS_execve), Some(exec));
        assert_eq!(call(libc::SYS_read), None);
        assert_eq!(path_call(u64::MAX), None);
    }

    #[test]
    fn only_enoent_and_enotdir_mean_that_it_does_not_exist() {
        for errno in [libc::ENOENT, libc::ENOTDIR] {
            assert!(!is_found(-i64::from(errno)));
        }
        for result in [0, 3, -i64::from(libc::EACCES), -i64::from(libc::EINVAL)] {
            assert!(is_found(result));
        }
    }
}
