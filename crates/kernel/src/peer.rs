//! SO_PEERCRED of unix(7): who is at the other end of a socket.

use crate::error::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Who connected, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process, in our pid namespace. `None` outside of it: the kernel says 0, which rustix's type for it cannot hold.
    pub pid: Option<i32>,
    /// Its effective user.
    pub uid: u32,
}

/// Who is at the other end of a connected socket.
pub fn of(socket: BorrowedFd<'_>) -> Result<Peer> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `peer`, which is as long, exclusively ours, and of integers only.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(Peer {
            pid: Some(peer.pid).filter(|&pid| pid > 0),
            uid: peer.uid,
        }),
        _ => Err(Error::last("getsockopt(SO_PEERCRED)", "a socket")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{credentials, process};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn at_the_other_end_of_ones_own_socket_one_is_oneself() {
        let (one, _other) = UnixStream::pair().expect("sockets");
        let own = Peer {
            pid: Some(process::own_pid()),
            uid: credentials::effective_uid(),
        };
        assert_eq!(of(one.as_fd()).expect("a peer"), own);
        let null = std::fs::File::open("/dev/null").expect("open");
        let error = of(null.as_fd()).expect_err("no socket");
        assert_eq!(error.errno(), Some(libc::ENOTSOCK));
    }
}
