//! Varlink's messages: JSON objects, each ended by a NUL byte. Pure: bytes in, requests and replies out.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Most bytes of one request. The largest is a profile to be imported.
pub const REQUEST_BYTES_MAX: usize = 9 << 20;

/// Most bytes of one request that imports nothing, and of any from a caller who is not root: none of those needs more.
pub const SMALL_REQUEST_BYTES_MAX: usize = 16 << 10;

/// Most separators of one request, no fewer than a small one can hold: a list of numbers takes up many times its length once
/// it is read. What makes the largest request long is one string.
const SEPARATORS_MAX: usize = SMALL_REQUEST_BYTES_MAX;

/// What one connection has sent and nobody has looked at yet.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    /// Bytes at the front that are known to hold no NUL.
    searched: usize,
    message_bytes_max: usize,
}

/// A message is longer than the connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The bound, in bytes.
    pub bytes_max: usize,
}

impl Incoming {
    /// Nothing received yet; no message may be longer than `message_bytes_max`.
    pub fn new(message_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            searched: 0,
            message_bytes_max,
        }
    }

    /// Takes in what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, without its NUL; `None` where it has not fully arrived.
    ///
    /// # Errors
    /// [`TooLong`]: the connection is of no use any more, since the message's end cannot be found.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let found = self.bytes[self.searched..].iter().position(|&b| b == 0);
        let length = found.map_or(self.bytes.len(), |at| self.searched + at);
        if length > self.message_bytes_max {
            return Err(TooLong {
                bytes_max: self.message_bytes_max,
            });
        }
        self.searched = length;
        if found.is_none() {
            return Ok(None);
        }
        let rest = self.bytes.split_off(length + 1);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.pop();
        self.searched = 0;
        Ok(Some(message))
    }

    /// Bytes that wait here.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing waits here.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Request {
    /// Interface and method, `org.prepage.Prepage1.Status`.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Whether the caller wants no reply.
    #[serde(default)]
    pub oneway: bool,
}

/// Reads one message as a call.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_request(message: &[u8]) -> Result<Request, String> {
    let is_separator = |byte: &&u8| matches!(**byte, b',' | b'[' | b'{');
    if message.iter().filter(is_separator).count() > SEPARATORS_MAX {
        return Err(format!("more than {SEPARATORS_MAX} values"));
    }
    let request: Request = serde_json::from_slice(message).map_err(|e| e.to_string())?;
    match request.method.rsplit_once('.') {
        Some((interface, method)) if !interface.is_empty() && !method.is_empty() => Ok(request),
        _ => Err("the method must be INTERFACE.METHOD".into()),
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Reply {
    /// What was asked for, or what belongs to the error.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Interface and name of the error, if it is one.
    #[serde(default)]
    pub error: Option<String>,
}

/// Reads one message as an answer.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_reply(message: &[u8]) -> Result<Reply, String> {
    serde_json::from_slice(message).map_err(|e| e.to_string())
}

/// A call, as it goes over the wire.
pub fn encode_request(method: &str, parameters: &Value) -> Vec<u8> {
    ended(&json!({ "method": method, "parameters": parameters }))
}

/// An answer, as it goes over the wire.
pub fn encode_reply(parameters: &Value) -> Vec<u8> {
    ended(&json!({ "parameters": parameters }))
}

/// An error, as it goes over the wire.
pub fn encode_error(name: &str, parameters: &Value) -> Vec<u8> {
    ended(&json!({ "error": name, "parameters": parameters }))
}

fn ended(message: &Value) -> Vec<u8> {
    // JSON writes a NUL inside a string as \u0000, so that the only NUL is the end.
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::machine::Lcg;

    #[test]
    fn messages_arrive_in_any_pieces() {
        let stream = [
            encode_request("a.B", &json!({})),
            encode_request("a.C", &json!({"x": "\0"})),
        ]
        .concat();
        for piece in 1..stream.len() {
            let mut incoming = Incoming::new(1024);
            let mut methods = Vec::new();
            for part in stream.chunks(piece) {
                incoming.push(part);
                while let Some(message) = incoming.next_message().expect("short enough") {
                    methods.push(parse_request(&message).expect("well formed").method);
                }
            }
            assert_eq!(methods, ["a.B", "a.C"], "pieces of {piece} bytes");
            assert!(incoming.is_empty());
        }
    }

    #[test]
    fn a_message_without_end_is_refused_at_its_bound() {
        let mut incoming = Incoming::new(8);
        incoming.push(b"12345678");
        assert_eq!(incoming.next_message(), Ok(None));
        incoming.push(b"9");
        assert_eq!(incoming.next_message(), Err(TooLong { bytes_max: 8 }));
        let mut incoming = Incoming::new(8);
        incoming.push(b"123456789\0");
        assert_eq!(incoming.next_message(), Err(TooLong { bytes_max: 8 }));
    }

    #[test]
    fn malformed_requests_are_errors() {
        for bad in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"method":3}"#,
            r#"{"method":"x"}"#,
            r#"{"method":"."}"#,
            r#"{"method":"a.b","parameters":[]}"#,
            r#"{"method":"a.b","oneway":1}"#,
            r#"{"method":"a.b"}x"#,
        ] {
            assert!(parse_request(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let deep = format!(
            r#"{{"method":"a.b","parameters":{{"x":{}}}}}"#,
            "[".repeat(100_000)
        );
        assert!(
            parse_request(deep.as_bytes()).is_err(),
            "nesting is bounded"
        );
        let wide = |len| {
            let values = "0,".repeat(len);
            format!(r#"{{"method":"a.b","parameters":{{"x":[{values}0]}}}}"#)
        };
        assert!(parse_request(wide(8_000).as_bytes()).is_ok());
        let refused = parse_request(wide(1 << 20).as_bytes());
        assert!(refused.is_err_and(|reason| reason.contains("more than")));
    }

    #[test]
    fn any_bytes_are_an_error_or_a_request_never_a_panic() {
        let sample = encode_request(
            "org.prepage.Prepage1.Track",
            &json!({"pid": 12, "name": "ü"}),
        );
        let mut random = Lcg(1);
        let mut below = |bound: usize| random.below(bound as u64) as usize;
        for _ in 0..20_000 {
            let mut bytes = sample.clone();
            for _ in 0..below(6) {
                let at = below(bytes.len());
                bytes[at] = below(256) as u8;
            }
            bytes.truncate(below(bytes.len() + 1));
            let mut incoming = Incoming::new(64);
            incoming.push(&bytes);
            while let Ok(Some(message)) = incoming.next_message() {
                let _ = parse_request(&message);
                let _ = parse_reply(&message);
            }
        }
    }
}
