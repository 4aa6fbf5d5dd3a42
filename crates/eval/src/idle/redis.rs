//! Fills Redis through its own protocol.

use super::protocol::{resp_command, resp_key};
use crate::content::prose;
use crate::error::{Context, Error, Result};
use crate::random::Random;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

/// Bytes of a value.
const VALUE_BYTES: usize = 1_000;
/// Commands that are sent before their answers are read.
const PIPELINE: u32 = 500;
/// Words of the text that every value is cut from: far more than a page, so that no page holds the same twice.
const TEXT_WORDS: usize = 100_000;

/// Sets the keys from 0 to `keys`.
pub fn fill(port: u16, keys: u32, seed: u64) -> Result<()> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connect to", port)?;
    let mut random = Random::stream(seed, "values");
    let text = prose(&mut random, TEXT_WORDS);
    let mut stream = BufReader::new(stream);
    for start in (0..keys).step_by(PIPELINE as usize) {
        let end = keys.min(start.saturating_add(PIPELINE));
        let mut commands = Vec::new();
        for key in start..end {
            let at = random.below(text.len() - VALUE_BYTES);
            let value = &text.as_bytes()[at..at + VALUE_BYTES];
            commands.extend(resp_command(&[b"SET", resp_key(key).as_bytes(), value]));
        }
        let set = set_all(&mut stream, &commands, end - start);
        set.context("fill", "redis")?
            .map_err(|said| Error::new("fill", "redis", said))?;
    }
    Ok(())
}

/// Sends the commands and reads their answers; an answer that is not "OK" is what Redis said.
fn set_all(
    stream: &mut BufReader<TcpStream>,
    commands: &[u8],
    count: u32,
) -> io::Result<std::result::Result<(), String>> {
    stream.get_mut().write_all(commands)?;
    let mut line = String::new();
    for _ in 0..count {
        line.clear();
        stream.read_line(&mut line)?;
        if line != "+OK\r\n" {
            return Ok(Err(line));
        }
    }
    Ok(Ok(()))
}
