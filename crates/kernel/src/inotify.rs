//! inotify(7): learning that a file was modified (a freezer's state, a cgroup's events).

use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::path::Path;

/// An inotify instance, non-blocking.
#[derive(Debug)]
pub struct Inotify {
    fd: OwnedFd,
}

/// A watched file of an [`Inotify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Watch(pub i32);

/// What happened to a watched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// IN_MODIFY: written to, or (cgroup v2's cgroup.events) changed by the kernel.
    Modified(Watch),
    /// The queue was full and events were dropped: look at every watched file.
    Overflow,
}

impl Inotify {
    /// A new instance. `EMFILE` at the user's limit of instances.
    pub fn new() -> Result<Inotify> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let fd =
            inotify::init(flags).map_err(|error| Error::new("inotify_init1", "inotify", error))?;
        Ok(Inotify { fd })
    }

    /// Watches a file for modification. The same file again gives the same watch. `ENOSPC` at the user's
    /// limit of watches.
    pub fn watch(&self, path: &Path) -> Result<Watch> {
        inotify::add_watch(&self.fd, path, WatchFlags::MODIFY)
            .map(Watch)
            .map_err(|error| Error::new("inotify_add_watch", path.to_string_lossy(), error))
    }

    /// Ends a watch. One that ended by itself is no error.
    pub fn unwatch(&self, watch: Watch) -> Result<()> {
        match inotify::remove_watch(&self.fd, watch.0) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(Error::new(
                "inotify_rm_watch",
                format!("watch {}", watch.0),
                error,
            )),
        }
    }

    /// The descriptor, readable (POLLIN) when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes at most `events_max` of the queued events; returns how many.
    pub fn drain(&self, events_max: usize, mut visit: impl FnMut(FileEvent)) -> Result<usize> {
        // Room for 16 events of watched files (16 bytes, without a name), all of which are visited once read: so the
        // bound may be exceeded by 15.
        let mut buffer = [MaybeUninit::<u8>::uninit(); 16 * 16];
        let mut count = 0;
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        while count < events_max || !reader.is_buffer_empty() {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::new("read", "inotify", error)),
            };
            count += 1;
            if let Some(event) = decode(&event) {
                visit(event);
            }
        }
        Ok(count)
    }
}

fn decode(event: &inotify::Event<'_>) -> Option<FileEvent> {
    let flags = event.events();
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        Some(FileEvent::Overflow)
    } else if flags.contains(ReadFlags::MODIFY) {
        Some(FileEvent::Modified(Watch(event.wd())))
    } else {
        None
    }
}
