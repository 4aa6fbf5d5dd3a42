//! The absolute path that a system call of a stopped thread means: from its memory and from /proc.

use crate::path_syscalls::PathArgument;
use crate::process_vm;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// PATH_MAX: no longer path can be looked up.
const PATH_BYTES_MAX: usize = 4096;

/// What a call means.
pub(crate) enum Resolved {
    /// This absolute path.
    Path(Vec<u8>),
    /// There is a path, and we cannot tell which.
    Unknown,
    /// The call looks nothing up: it has no path, or an empty one and means its descriptor.
    Nothing,
}

/// The absolute path that a call means, read from the thread that stands at its entry.
pub(crate) fn resolve(tid: i32, argument: PathArgument, arguments: &[u64; 6]) -> Resolved {
    let (address, directory) = match argument {
        PathArgument::Path(index) => (arguments[index], libc::AT_FDCWD),
        PathArgument::PathAt => (arguments[1], arguments[0] as i32),
        PathArgument::Descriptor => {
            return match directory_path(tid, arguments[0] as i32) {
                Some(path) => Resolved::Path(path),
                None => Resolved::Unknown,
            };
        }
    };
    if address == 0 {
        return Resolved::Nothing;
    }
    let mut path = Vec::new();
    match process_vm::read_text(tid, address, PATH_BYTES_MAX, &mut path) {
        Ok(true) if path.is_empty() => Resolved::Nothing,
        Ok(true) if path[0] == b'/' => Resolved::Path(path),
        Ok(true) => match directory_path(tid, directory) {
            Some(mut absolute) => {
                if absolute.last() != Some(&b'/') {
                    absolute.push(b'/');
                }
                absolute.extend(&path);
                Resolved::Path(absolute)
            }
            None => Resolved::Unknown,
        },
        _ => Resolved::Unknown,
    }
}

/// The path of the thread's working directory or of what it has open, below its root directory; `None` where that has none any
/// more.
fn directory_path(tid: i32, descriptor: i32) -> Option<Vec<u8>> {
    let link = match descriptor {
        libc::AT_FDCWD => format!("/proc/{tid}/cwd"),
        descriptor => format!("/proc/{tid}/fd/{descriptor}"),
    };
    // Sockets read as `socket:[1]`, unreachable directories as `(unreachable)/x`, removed ones as `/x (deleted)`.
    let path = std::fs::read_link(link).ok()?;
    let root = std::fs::read_link(format!("/proc/{tid}/root")).ok()?;
    let below = path.strip_prefix(root).ok()?;
    let path = Path::new("/").join(below).into_os_string().into_vec();
    (!path.ends_with(b" (deleted)")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn own_directories_have_paths_and_sockets_have_none() {
        use std::os::fd::AsRawFd;
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let cwd = std::env::current_dir().expect("own directory");
        let path = directory_path(own, libc::AT_FDCWD).expect("a path");
        assert_eq!(path, cwd.as_os_str().as_bytes());
        let root = std::fs::File::open("/").expect("open");
        let path = directory_path(own, root.as_raw_fd()).expect("a path");
        assert_eq!(path, b"/");
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        assert_eq!(directory_path(own, socket.as_raw_fd()), None);
    }
}
