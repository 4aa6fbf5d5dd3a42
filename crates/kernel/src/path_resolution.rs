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
    let (given, directory) = match argument {
        PathArgument::Path(index) => (text(tid, arguments[index]), libc::AT_FDCWD),
        PathArgument::PathAt => (text(tid, arguments[1]), arguments[0] as i32),
        PathArgument::SocketAddress => {
            let path = socket_path(tid, arguments[1], arguments[2]);
            (path, libc::AT_FDCWD)
        }
        PathArgument::Descriptor => {
            return match directory_path(tid, arguments[0] as i32) {
                Some(path) => Resolved::Path(path),
                None => Resolved::Unknown,
            };
        }
    };
    match given {
        Resolved::Path(path) if path.is_empty() => Resolved::Nothing,
        Resolved::Path(path) if path[0] != b'/' => match directory_path(tid, directory) {
            Some(mut absolute) => {
                if absolute.last() != Some(&b'/') {
                    absolute.push(b'/');
                }
                absolute.extend(&path);
                Resolved::Path(absolute)
            }
            None => Resolved::Unknown,
        },
        given => given,
    }
}

/// A path as it is given, by the address of its text.
fn text(tid: i32, address: u64) -> Resolved {
    let mut path = Vec::new();
    match address {
        0 => Resolved::Nothing,
        _ => match process_vm::read_text(tid, address, PATH_BYTES_MAX, &mut path) {
            Ok(true) => Resolved::Path(path),
            _ => Resolved::Unknown,
        },
    }
}

/// The path of a socket's address (unix(7)), which ends with a NUL or with the address; it begins with one where it is abstract.
fn socket_path(tid: i32, address: u64, bytes: u64) -> Resolved {
    const FAMILY_BYTES: usize = size_of::<libc::sa_family_t>();
    let mut read = [0; size_of::<libc::sockaddr_un>()];
    let bytes = read.len().min(bytes as usize);
    match process_vm::read(tid, address, &mut read[..bytes]) {
        Ok(count) if count == bytes => {}
        _ => return Resolved::Unknown,
    }
    let (family, path) = read.split_at(FAMILY_BYTES);
    if family != (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes() {
        return Resolved::Nothing;
    }
    // What was not read is 0.
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    Resolved::Path(path.to_vec())
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
