//! Window focus under sway, of whose windows Wayland alone tells no process: sway-ipc(7), which is i3's protocol. sway knows the process
//! of a Wayland client from the kernel, and that of an X client as it says itself.

use super::process;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What a message begins with; its length and its kind follow, of four bytes each in the machine's order.
const MAGIC: [u8; 6] = *b"i3-ipc";

/// Kind of the request for events, and of its answer.
const SUBSCRIBE: u32 = 2;

/// Kind of the event of a window.
const WINDOW: u32 = 0x8000_0003;

/// Most bytes of a message. That of a window has some thousand.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;

/// How long sway may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A connection to sway.
#[derive(Debug)]
pub struct FocusWatch {
    stream: BufReader<UnixStream>,
}

#[derive(Deserialize)]
struct Subscribed {
    success: bool,
}

#[derive(Deserialize)]
struct WindowEvent {
    change: String,
    container: Container,
}

#[derive(Deserialize)]
struct Container {
    pid: Option<i32>,
}

impl FocusWatch {
    /// Connects to this socket, and asks for the events of windows.
    ///
    /// # Errors
    /// Where nobody is there, or refuses.
    pub fn open(socket: &Path) -> Result<Self> {
        let failed = |error| Error::NoDisplay(format!("sway at {}: {error}", socket.display()));
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        (&stream)
            .write_all(&message(SUBSCRIBE, b"[\"window\"]"))
            .map_err(failed)?;
        let mut stream = BufReader::new(stream);
        let answer: Subscribed = loop {
            let (kind, payload) = read_message(&mut stream)?;
            if kind == SUBSCRIBE {
                break read(&payload)?;
            }
        };
        if !answer.success {
            return Err(Error::Display("sway tells no events of windows".into()));
        }
        stream.get_ref().set_read_timeout(None).map_err(failed)?;
        Ok(Self { stream })
    }

    /// Waits for a window to get the focus, and returns its process.
    ///
    /// # Errors
    /// Where sway ended, or cannot be understood.
    pub fn next_focus(&mut self) -> Result<i32> {
        loop {
            let (kind, payload) = read_message(&mut self.stream)?;
            if kind == WINDOW
                && let Some(pid) = focused(&payload)?
            {
                return Ok(pid);
            }
        }
    }
}

/// The process of the window that gets the focus by this event.
fn focused(event: &[u8]) -> Result<Option<i32>> {
    let event: WindowEvent = read(event)?;
    let pid = event.container.pid.and_then(process);
    Ok(pid.filter(|_| event.change == "focus"))
}

fn read<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T> {
    serde_json::from_slice(payload).map_err(|error| Error::Display(format!("sway: {error}")))
}

fn message(kind: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let (len, kind) = (len.to_ne_bytes(), kind.to_ne_bytes());
    [&MAGIC[..], &len, &kind, payload].concat()
}

/// Kind and payload of the next message.
fn read_message(stream: &mut impl Read) -> Result<(u32, Vec<u8>)> {
    let ended = |error| Error::DisplayEnded(format!("sway ended: {error}"));
    let (mut magic, mut len, mut kind) = ([0; MAGIC.len()], [0; 4], [0; 4]);
    for part in [&mut magic[..], &mut len, &mut kind] {
        stream.read_exact(part).map_err(ended)?;
    }
    let (len, kind) = (u32::from_ne_bytes(len), u32::from_ne_bytes(kind));
    if magic != MAGIC || len > MESSAGE_BYTES_MAX {
        return Err(Error::Display("sway sends what is no message".into()));
    }
    let mut payload = vec![0; len as usize];
    stream.read_exact(&mut payload).map_err(ended)?;
    Ok((kind, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of these messages, one after the other, is a focus, until they end.
    fn pids(messages: &[(u32, &str)]) -> Vec<i32> {
        let sent = messages
            .iter()
            .map(|(kind, payload)| message(*kind, payload.as_bytes()));
        let bytes = sent.collect::<Vec<_>>().concat();
        let (mut stream, mut pids) = (&bytes[..], Vec::new());
        while let Ok((kind, payload)) = read_message(&mut stream) {
            assert!(
                messages
                    .iter()
                    .any(|(k, p)| (*k, p.as_bytes()) == (kind, &payload[..]))
            );
            pids.extend(focused(&payload).expect("understood"));
        }
        assert!(stream.is_empty());
        pids
    }

    #[test]
    fn a_focus_is_the_process_of_its_window() {
        let messages = [
            (WINDOW, r#"{"change":"new","container":{"id":4,"pid":70}}"#),
            (
                WINDOW,
                r#"{"change":"focus","container":{"id":4,"pid":70,"name":"x"}}"#,
            ),
            (
                WINDOW,
                r#"{"change":"title","container":{"id":4,"pid":70}}"#,
            ),
            (WINDOW, r#"{"change":"focus","container":{"id":5,"pid":0}}"#),
            (WINDOW, r#"{"change":"focus","container":{"id":6}}"#),
            (
                WINDOW,
                r#"{"container":{"pid":71,"nodes":[]},"change":"focus"}"#,
            ),
        ];
        assert_eq!(pids(&messages), [70, 71]);
        assert!(focused(b"{}").is_err() && focused(b"").is_err());
    }

    #[test]
    fn what_is_no_message_is_refused_and_what_breaks_off_is_the_end() {
        let whole = message(WINDOW, b"{}");
        for len in 0..whole.len() {
            let ended = read_message(&mut &whole[..len]);
            assert!(matches!(ended, Err(Error::DisplayEnded(_))), "{len}");
        }
        assert_eq!(
            read_message(&mut &whole[..]).expect("whole"),
            (WINDOW, b"{}".to_vec())
        );
        let mut other = whole.clone();
        other[0] ^= 1;
        let mut long = whole;
        long[MAGIC.len()..][..4].copy_from_slice(&(MESSAGE_BYTES_MAX + 1).to_ne_bytes());
        for mut bytes in [&other[..], &long[..]] {
            assert!(matches!(read_message(&mut bytes), Err(Error::Display(_))));
        }
    }
}
