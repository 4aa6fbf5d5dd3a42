//! A client of the service: one connection, one call at a time.

use crate::api::{ApiError, INTERFACE};
use crate::error::{Error, Result};
use crate::wire::{self, Incoming};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the service listens unless it is told otherwise.
pub const SOCKET_DEFAULT: &str = "/run/prepage/prepage.sock";

/// How long a reply may take. The service answers at once; only a stuck one exceeds this.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of a reply.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Why the service closes a connection that nothing is wrong with.
const CLOSED: &str = "closed by the service: it is ending, or has as many connections as it takes at once; try again";

fn silence(waited: Duration) -> String {
    format!("no reply within {waited:?}: is it stopped or stuck?")
}

/// Connects to a socket, which may take so long; so may each read and write. A service that is stuck accepts nobody: when so
/// many wait for it as may, connect(2) waits as well.
fn open_within(socket: &Path, wait_max: Duration) -> std::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let stream = UnixStream::from(fd);
    stream.set_write_timeout(Some(wait_max))?;
    stream.set_read_timeout(Some(wait_max))?;
    rustix::net::connect(&stream, &address)?;
    Ok(stream)
}

/// A connection to the service.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    socket: PathBuf,
    reply_max: Duration,
    incoming: Incoming,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::NotRunning`] where nobody listens.
    pub fn connect(socket: &Path) -> Result<Self> {
        Self::connect_within(socket, REPLY_TIMEOUT)
    }

    /// Connects, which may take so long, and so may each reply.
    ///
    /// # Errors
    /// [`Error::NotRunning`] where nobody listens, [`Error::Broken`] where whoever does is stuck.
    pub fn connect_within(socket: &Path, reply_max: Duration) -> Result<Self> {
        let stream = open_within(socket, reply_max).map_err(|source| match source.kind() {
            ErrorKind::WouldBlock => Error::Broken {
                socket: socket.into(),
                reason: silence(reply_max),
            },
            _ => Error::NotRunning {
                socket: socket.into(),
                source,
            },
        })?;
        Ok(Self {
            stream,
            socket: socket.into(),
            reply_max,
            incoming: Incoming::new(REPLY_BYTES_MAX),
        })
    }

    /// Calls a method of our interface.
    ///
    /// # Errors
    /// [`Error::Refused`] where the service answers with an error; [`Error::Broken`] where it does not answer.
    pub fn call<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: &P,
    ) -> Result<R> {
        let parameters = serde_json::to_value(parameters).map_err(|e| self.broken(e))?;
        let reply = self.exchange(&format!("{INTERFACE}.{method}"), &parameters)?;
        serde_json::from_value(reply).map_err(|e| self.broken(e))
    }

    fn exchange(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        let request = wire::encode_request(method, parameters);
        let sent = self.stream.write_all(&request);
        // A service that refuses the message may close before it has read all of it: its answer says more.
        let message = match (self.receive(), sent) {
            (Ok(message), _) => message,
            (Err(_), Err(error)) if error.kind() == ErrorKind::BrokenPipe => {
                return Err(self.broken(CLOSED));
            }
            (Err(_), Err(error)) => return Err(self.broken(error)),
            (Err(error), Ok(())) => return Err(error),
        };
        let reply = wire::parse_reply(&message).map_err(|e| self.broken(e))?;
        match reply.error {
            Some(name) => Err(Error::Refused {
                reason: ApiError::describe(&name, &reply.parameters),
                name,
            }),
            None => Ok(Value::Object(reply.parameters)),
        }
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(message) = self
                .incoming
                .next_message()
                .map_err(|_| self.broken("the reply is too long"))?
            {
                return Ok(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(self.broken(CLOSED)),
                Ok(length) => self.incoming.push(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(self.broken(silence(self.reply_max)));
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(self.broken(CLOSED));
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    fn broken(&self, reason: impl std::fmt::Display) -> Error {
        Error::Broken {
            socket: self.socket.clone(),
            reason: reason.to_string(),
        }
    }
}
