//! Standard output, whose reader may go away, as `head` does.

use crate::error::{Error, Result};
use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints a line.
///
/// # Errors
/// Where it cannot be written. That the reader is gone is an error of its own, with which a program ends and says
/// nothing ([`Error::is_reader_gone`]).
pub fn print_line(text: impl fmt::Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::reader_gone()),
        Err(error) => Err(Error::new("write to", "standard output", error)),
    }
}
