//! A core came online: the kernel says so to who listens for events of devices.

use prepage_kernel::sched::online_cpus;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group that the kernel itself speaks to; udev's events are another one's.
const KERNEL_GROUP: u32 = 1;

/// What such an event begins with, and one that tells of any core; the core's number follows, and a NUL.
const ONLINE: &[u8] = b"online@/devices/system/cpu/cpu";
const OFFLINE: &[u8] = b"offline@/devices/system/cpu/cpu";

/// Most bytes of an event that are looked at.
const EVENT_BYTES_MAX: usize = 256;

/// Becomes readable when something happens to a device (netlink(7), NETLINK_KOBJECT_UEVENT): rarely, and never by itself.
#[derive(Debug)]
pub struct Cores {
    socket: OwnedFd,
    /// Those that were online when one was last said to come or go.
    online: Vec<usize>,
}

impl Cores {
    /// Begins to watch.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn watch() -> Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (family, protocol) = (AddressFamily::NETLINK, Some(KOBJECT_UEVENT));
        let socket = socket_with(family, SocketType::DGRAM, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        let online = online_cpus().unwrap_or_default();
        Ok(Self { socket, online })
    }

    /// Whether a core came online since the last call, as far as is known. Where there were more events than the kernel keeps, as
    /// when a package has all devices looked at anew, those that are online tell: one that went and came meanwhile is missed.
    pub fn came_online(&mut self) -> bool {
        let (mut came_online, mut is_to_be_looked_at) = (false, false);
        let mut event = [0; EVENT_BYTES_MAX];
        loop {
            match recv(&self.socket, &mut event[..], RecvFlags::empty()) {
                Ok((len, _)) => {
                    let event = &event[..len];
                    came_online |= event.starts_with(ONLINE);
                    is_to_be_looked_at |= event.starts_with(OFFLINE);
                }
                Err(Errno::NOBUFS) => is_to_be_looked_at = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if came_online || is_to_be_looked_at {
            let before = std::mem::replace(&mut self.online, online_cpus().unwrap_or_default());
            came_online |= self.online.iter().any(|core| !before.contains(core));
        }
        came_online
    }
}

impl AsFd for Cores {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root may have the kernel say it: nothing happens to the core.
    #[test]
    fn a_core_that_comes_online_is_told_from_other_events() {
        let mut cores = Cores::watch().expect("a socket");
        cores.came_online();
        let say = |word: &str| {
            let said = std::fs::write("/sys/devices/system/cpu/cpu0/uevent", word);
            said.expect("this test needs root");
        };
        for (word, is_online) in [("change", false), ("online", true), ("offline", false)] {
            say(word);
            assert_eq!(cores.came_online(), is_online, "{word}");
        }
        let all = cores.online.clone();
        // The kernel keeps some hundred: of those that are too many, the cores that are online tell.
        let say_too_often = || {
            // It is told once: to another who listens as well.
            let other = Cores::watch().expect("a socket");
            (0..2_000).for_each(|_| say("change"));
            let first = recv(&other.socket, &mut [0; 1][..], RecvFlags::PEEK);
            assert!(matches!(first, Err(Errno::NOBUFS)), "{first:?}");
        };
        say_too_often();
        assert!(!cores.came_online(), "none did");
        say_too_often();
        cores.online.pop();
        assert!(cores.came_online(), "one did");
        assert_eq!(cores.online, all);
        assert!(!cores.came_online());
    }
}
