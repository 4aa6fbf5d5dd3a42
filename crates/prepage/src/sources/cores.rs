//! A core came online: the kernel says so to who listens for events of devices.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group that the kernel itself speaks to; udev's events are another one's.
const KERNEL_GROUP: u32 = 1;

/// What such an event begins with; a core's number follows, and a NUL.
const ONLINE: &[u8] = b"online@/devices/system/cpu/cpu";

/// Most bytes of an event that are looked at.
const EVENT_BYTES_MAX: usize = 256;

/// Becomes readable when something happens to a device (netlink(7), NETLINK_KOBJECT_UEVENT): rarely, and never by itself.
#[derive(Debug)]
pub struct Cores(OwnedFd);

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
        Ok(Self(socket))
    }

    /// Whether a core came online since the last call, as far as is known.
    pub fn came_online(&mut self) -> bool {
        let mut came_online = false;
        let mut event = [0; EVENT_BYTES_MAX];
        loop {
            match recv(&self.0, &mut event[..], RecvFlags::empty()) {
                Ok((len, _)) => came_online |= event[..len].starts_with(ONLINE),
                // There were more events than the kernel keeps.
                Err(Errno::NOBUFS) => came_online = true,
                Err(Errno::INTR) => {}
                Err(_) => return came_online,
            }
        }
    }
}

impl AsFd for Cores {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
        let say = |word: &str| std::fs::write("/sys/devices/system/cpu/cpu0/uevent", word);
        for (word, is_online) in [("change", false), ("online", true), ("offline", false)] {
            if say(word).is_ok() {
                assert_eq!(cores.came_online(), is_online, "{word}");
            }
        }
    }
}
