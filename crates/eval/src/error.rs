//! The one error type of this crate: the operation, what it was done to, and the cause.

use std::fmt;

/// A result whose error names the operation and its subject.
pub type Result<T> = std::result::Result<T, Error>;

/// Says which operation failed, on what, and why.
#[derive(Debug)]
pub struct Error {
    operation: &'static str,
    subject: String,
    cause: String,
    is_reader_gone: bool,
}

impl Error {
    /// An error of our own judgement, where no system call failed.
    pub fn new(
        operation: &'static str,
        subject: impl fmt::Display,
        cause: impl fmt::Display,
    ) -> Self {
        Self {
            operation,
            subject: subject.to_string(),
            cause: cause.to_string(),
            is_reader_gone: false,
        }
    }

    /// Whoever reads standard output wants no more.
    pub fn reader_gone() -> Self {
        Self {
            is_reader_gone: true,
            ..Self::new("write to", "standard output", "its reader is gone")
        }
    }

    /// Whether it is [`Error::reader_gone`].
    pub fn is_reader_gone(&self) -> bool {
        self.is_reader_gone
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.subject, self.cause)
    }
}

impl std::error::Error for Error {}

/// Adds the operation and its subject to an error from elsewhere.
pub trait Context<T> {
    /// Wraps the error, if there is one.
    fn context(self, operation: &'static str, subject: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, operation: &'static str, subject: impl fmt::Display) -> Result<T> {
        self.map_err(|cause| Error::new(operation, subject, cause))
    }
}
