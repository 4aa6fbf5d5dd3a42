//! The two protocols that the services speak, as far as the client needs them.

use std::fmt::Write as _;
use std::io::{self, BufRead, Error, Read};

/// Keys that one request asks for: as a page is put together from several records.
pub const KEYS_PER_REQUEST: usize = 10;
/// No line of a response is longer.
const LINE_BYTES_MAX: u64 = 8 << 10;
/// No body or value is longer.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// How a service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// That of Redis (RESP2): `MGET`, answered by an array of strings.
    Resp,
    /// HTTP/1.1: `GET /?keys=1,2,3`, answered with status 200 and a body of a stated length.
    Http,
}

/// The name of a key in Redis.
pub fn resp_key(key: u32) -> String {
    format!("user:{key:09}")
}

/// A command of Redis.
pub fn resp_command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend_from_slice(word);
        out.extend(b"\r\n");
    }
    out
}

impl Protocol {
    /// The bytes of a request for these keys.
    pub fn request(self, keys: &[u32]) -> Vec<u8> {
        match self {
            Self::Resp => {
                let keys: Vec<String> = keys.iter().map(|&key| resp_key(key)).collect();
                let mut words: Vec<&[u8]> = vec![b"MGET"];
                words.extend(keys.iter().map(|key| key.as_bytes()));
                resp_command(&words)
            }
            Self::Http => {
                let mut out = String::from("GET /?keys=");
                for (i, key) in keys.iter().enumerate() {
                    let _ = write!(out, "{}{key}", if i > 0 { "," } else { "" });
                }
                out += " HTTP/1.1\r\nHost: localhost\r\n\r\n";
                out.into_bytes()
            }
        }
    }

    /// Reads one whole response to a request for so many keys.
    ///
    /// # Errors
    /// Where the connection breaks, and where the response is not what was asked for.
    pub fn read_response(self, from: &mut impl BufRead, keys: usize) -> io::Result<()> {
        match self {
            Self::Resp => read_array(from, keys),
            Self::Http => read_http(from),
        }
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn skip(from: &mut impl BufRead, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut from.take(bytes), &mut io::sink())?;
    match skipped == bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn unexpected(line: &str) -> Error {
    Error::other(format!("unexpected in a response: {line:?}"))
}

/// A number after a prefix.
fn number(line: &str, prefix: &str) -> io::Result<u64> {
    let digits = line.strip_prefix(prefix).map(str::trim);
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| unexpected(line))
}

/// A length after a prefix.
fn length_bytes(line: &str, prefix: &str) -> io::Result<u64> {
    let bytes = number(line, prefix)?;
    match bytes <= BODY_BYTES_MAX {
        true => Ok(bytes),
        false => Err(unexpected(line)),
    }
}

fn read_array(from: &mut impl BufRead, strings: usize) -> io::Result<()> {
    let line = read_line(from)?;
    if number(&line, "*")? != strings as u64 {
        return Err(unexpected(&line));
    }
    for _ in 0..strings {
        // A key that is missing is answered by "$-1", which is no length.
        let line = read_line(from)?;
        let bytes = length_bytes(&line, "$")?;
        skip(from, bytes + 2)?;
    }
    Ok(())
}

fn read_http(from: &mut impl BufRead) -> io::Result<()> {
    const HEADERS_MAX: usize = 64;
    let status = read_line(from)?;
    if !status.starts_with("HTTP/1.1 200") {
        return Err(unexpected(&status));
    }
    let mut body_bytes = None;
    for _ in 0..HEADERS_MAX {
        let line = read_line(from)?.to_ascii_lowercase();
        match body_bytes {
            Some(bytes) if line.is_empty() => return skip(from, bytes),
            _ if line.starts_with("content-length:") => {
                body_bytes = Some(length_bytes(&line, "content-length:")?);
            }
            _ => {}
        }
    }
    Err(Error::other("a response of unknown length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_is_asked_and_understood() {
        let request = Protocol::Resp.request(&[7, 12]);
        assert_eq!(
            request,
            b"*3\r\n$4\r\nMGET\r\n$14\r\nuser:000000007\r\n$14\r\nuser:000000012\r\n"
        );
        let read = |text: &str| {
            let mut from = text.as_bytes();
            let result = Protocol::Resp.read_response(&mut from, 2);
            result.map(|()| from.len()).map_err(|e| e.to_string())
        };
        assert_eq!(read("*2\r\n$1\r\na\r\n$3\r\nb\r\n\r\n+rest"), Ok(5));
        for wrong in [
            "*2\r\n$1\r\na\r\n$-1\r\n",
            "*1\r\n$1\r\na\r\n",
            "-ERR wrong\r\n",
            "*2\r\n$1\r\na\r\n$3\r\nb",
            "*2\r\n$99999999999\r\na",
            "",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn http_is_asked_and_understood() {
        let request = String::from_utf8(Protocol::Http.request(&[7, 12])).unwrap();
        assert!(
            request.starts_with("GET /?keys=7,12 HTTP/1.1\r\n"),
            "{request}"
        );
        let read = |text: &str| {
            let mut from = text.as_bytes();
            let result = Protocol::Http.read_response(&mut from, 2);
            result.map(|()| from.len()).map_err(|e| e.to_string())
        };
        let head = "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 4\r\n\r\n";
        assert_eq!(read(&format!("{head}bodyHTTP")), Ok(4));
        assert!(read(&format!("{head}bod")).is_err());
        assert!(read("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(read("HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
