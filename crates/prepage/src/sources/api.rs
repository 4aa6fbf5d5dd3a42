//! The API's socket: connections, whole messages in, replies out. Everything about a connection has a bound: how many
//! there are, how long a message is, how long it may take to arrive, and how long its reply may wait to be read.

use crate::wire::{Incoming, REQUEST_BYTES_MAX, SMALL_REQUEST_BYTES_MAX, TooLong};
use prepage_core::machine::Nanos;
use prepage_engine::accounts::accountable;
use prepage_kernel::peer;
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Most connections at once.
const CONNECTIONS_MAX: usize = 64;

/// Most connections of one user who is not root.
const CONNECTIONS_OF_USER_MAX: usize = 16;

/// Connections kept free for root.
const CONNECTIONS_FOR_ROOT: usize = 8;

/// How long a message may take to arrive whole, and a reply to be read.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// Who calls, as the kernel says.
pub use prepage_kernel::peer::Peer as Caller;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// Who is at its other end.
    pub caller: Caller,
    incoming: Incoming,
    outgoing: Vec<u8>,
    sent: usize,
    /// Since when it has been owing us the rest of a message, or the reading of a reply.
    owing_since: Option<Nanos>,
    /// Nothing more is read: it is closed once everything is sent.
    ending: bool,
}

/// What became of the next one that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is the connection of this number.
    Connection(u32),
    /// There is no room for it, or it is gone: it is closed.
    Refused,
    /// There is none.
    Nobody,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// To be readable.
    Read,
    /// To be writable.
    Write,
    /// Nothing: it is over.
    Close,
}

impl Connection {
    fn new(stream: UnixStream, caller: Caller) -> Self {
        let bytes_max = match caller.uid {
            0 => REQUEST_BYTES_MAX,
            _ => SMALL_REQUEST_BYTES_MAX,
        };
        Self {
            stream,
            caller,
            incoming: Incoming::new(bytes_max),
            outgoing: Vec::new(),
            sent: 0,
            owing_since: None,
            ending: false,
        }
    }

    /// Reads what has arrived, at most `READ_BYTES`; nothing while a reply waits to be read, or once it is to end.
    pub fn receive(&mut self) {
        if self.ending || !self.outgoing.is_empty() {
            return;
        }
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ending = true,
            Ok(length) => self.incoming.push(&buffer[..length]),
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.ending = true,
        }
    }

    /// The next message. None while a reply waits to be read: who does not read is not served.
    ///
    /// # Errors
    /// [`TooLong`]: the connection ends once its reply is sent.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        if !self.outgoing.is_empty() {
            return Ok(None);
        }
        let message = self.incoming.next_message();
        match message {
            // What waits behind it is not waited for.
            Ok(Some(_)) => self.owing_since = None,
            Ok(None) => {}
            Err(_) => {
                // What is kept would be refused again, without end.
                self.incoming = Incoming::new(0);
                self.ending = true;
            }
        }
        message
    }

    /// Sends a reply, or what can be sent of it now.
    pub fn send(&mut self, reply: &[u8]) {
        self.outgoing.extend_from_slice(reply);
        self.flush();
    }

    /// Sends on.
    pub fn flush(&mut self) {
        while self.sent < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => return,
                Err(_) => {
                    self.ending = true;
                    break;
                }
            }
        }
        self.outgoing = Vec::new();
        self.sent = 0;
    }

    /// What it waits for now.
    pub fn wants(&mut self, now: Nanos) -> Wants {
        let owes = !self.outgoing.is_empty() || !self.incoming.is_empty();
        self.owing_since = owes.then(|| self.owing_since.unwrap_or(now));
        match (self.outgoing.is_empty(), self.ending) {
            (false, _) => Wants::Write,
            (true, true) => Wants::Close,
            (true, false) => Wants::Read,
        }
    }
}

fn make_directory(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let reason = format!("{} is no directory", directory.display());
            std::io::Error::new(error.kind(), reason)
        }
        _ => error,
    })
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The socket and its connections.
#[derive(Debug)]
pub struct ApiSocket {
    listener: UnixListener,
    path: PathBuf,
    connections: BTreeMap<u32, Connection>,
    next: u32,
}

impl ApiSocket {
    /// Listens at `path`, open to every user. A socket that nobody listens at is replaced.
    ///
    /// # Errors
    /// Where another service listens there, or the kernel refuses.
    pub fn listen(path: &Path) -> std::io::Result<Self> {
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            make_directory(directory)?;
        }
        if UnixStream::connect(path).is_ok() {
            let reason =
                "another service listens there: stop it, or give this one another --socket";
            return Err(std::io::Error::new(ErrorKind::AddrInUse, reason));
        }
        match std::fs::symlink_metadata(path) {
            Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
            Ok(_) => {
                let reason = "something else than a socket is there, and stays: give the service another --socket";
                return Err(std::io::Error::new(ErrorKind::AlreadyExists, reason));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(path, everybody)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.into(),
            connections: BTreeMap::new(),
            next: 0,
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listening socket.
    pub fn listener(&self) -> impl AsFd + '_ {
        &self.listener
    }

    /// Takes the next one that connects, and no more than that one: whoever connects ever again, in vain, holds up nobody.
    ///
    /// # Errors
    /// Where the kernel refuses, as at the limit of open files: ask again later.
    pub fn accept(&mut self) -> std::io::Result<Accepted> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(Accepted::Nobody),
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                    return Ok(Accepted::Refused);
                }
                _ => return Err(error),
            },
        };
        stream.set_nonblocking(true)?;
        let caller = peer::of(stream.as_fd()).map_err(std::io::Error::other)?;
        if !self.has_room_for(caller) {
            return Ok(Accepted::Refused);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let connection = Connection::new(stream, caller);
        self.connections.insert(number, connection);
        Ok(Accepted::Connection(number))
    }

    fn has_room_for(&self, caller: Caller) -> bool {
        let all = self.connections.len();
        let account = accountable(caller.uid);
        let own = self
            .connections
            .values()
            .filter(|c| accountable(c.caller.uid) == account);
        match caller.uid {
            0 => all < CONNECTIONS_MAX,
            _ => {
                all < CONNECTIONS_MAX - CONNECTIONS_FOR_ROOT
                    && own.count() < CONNECTIONS_OF_USER_MAX
            }
        }
    }

    /// A connection.
    pub fn connection(&mut self, number: u32) -> Option<&mut Connection> {
        self.connections.get_mut(&number)
    }

    /// Its socket.
    pub fn stream(&self, number: u32) -> Option<impl AsFd + '_> {
        self.connections.get(&number).map(|c| &c.stream)
    }

    /// Closes a connection.
    pub fn close(&mut self, number: u32) {
        self.connections.remove(&number);
    }

    /// When the next connection has been owing us something for too long.
    pub fn deadline(&self) -> Option<Nanos> {
        let owing = self.connections.values().filter_map(|c| c.owing_since);
        owing.min().map(|since| since.saturating_add(PATIENCE_NS))
    }

    /// Closes the connections that have been owing us something for too long.
    pub fn close_late(&mut self, now: Nanos) {
        let late = |c: &Connection| {
            c.owing_since
                .is_some_and(|s| s.saturating_add(PATIENCE_NS) <= now)
        };
        self.connections.retain(|_, connection| !late(connection));
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        // It may be gone with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::machine::Directory;

    #[test]
    fn each_that_connects_in_vain_is_refused_by_itself() {
        let directory = Directory::new();
        let path = directory.path("socket");
        let mut socket = ApiSocket::listen(&path).expect("it listens");
        let connect = || UnixStream::connect(&path).expect("it connects");
        let mut own = Vec::new();
        let mut accepted = || {
            own.push(connect());
            socket.accept().expect("it accepts")
        };
        let numbers: Vec<u32> = std::iter::from_fn(|| match accepted() {
            Accepted::Connection(number) => Some(number),
            other => {
                assert_eq!(other, Accepted::Refused);
                None
            }
        })
        .collect();
        assert!(numbers.len() >= CONNECTIONS_OF_USER_MAX, "{numbers:?}");
        let _in_vain: Vec<_> = (0..3).map(|_| connect()).collect();
        let next: Vec<_> = (0..4).map(|_| socket.accept().expect("answered")).collect();
        use Accepted::{Nobody, Refused};
        assert_eq!(next, [Refused, Refused, Refused, Nobody]);
        socket.close(numbers[0]);
        let _fits = connect();
        let next = socket.accept().expect("it accepts");
        assert!(matches!(next, Accepted::Connection(_)), "{next:?}");
    }
}
