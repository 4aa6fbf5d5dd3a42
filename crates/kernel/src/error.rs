//! The error of every call in this crate: which operation failed, on what, and the kernel's reason.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::fmt;
use std::io;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed kernel operation. Displays as
/// `process_vm_readv of process 123: No such process (ESRCH 3)`.
#[derive(Debug)]
pub struct Error {
    operation: &'static str,
    subject: String,
    source: io::Error,
}

/// An open file as the subject of an error.
pub(crate) fn fd_subject(fd: BorrowedFd<'_>) -> String {
    format!("fd {}", fd.as_raw_fd())
}

impl Error {
    /// An error of `operation` (a system call or an action in words) on `subject` (a path or `process 123`).
    pub fn new(
        operation: &'static str,
        subject: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Error {
            operation,
            subject: subject.into(),
            source: source.into(),
        }
    }

    /// The error of the last failed system call of this thread.
    pub(crate) fn last(operation: &'static str, subject: impl Into<String>) -> Self {
        Error::new(operation, subject, io::Error::last_os_error())
    }

    /// What the kernel (or a caller) gave does not have the form it must have.
    pub(crate) fn malformed(
        operation: &'static str,
        subject: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Error::new(
            operation,
            subject,
            io::Error::new(io::ErrorKind::InvalidData, what.into()),
        )
    }

    /// The system call or action that failed.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// What it was done to: a path, or `process 123`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The kernel's error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Whether the process is gone: `ESRCH`, or `ENOENT` under `/proc/PID`. A normal value, not a failure.
    pub fn is_gone(&self) -> bool {
        match self.errno() {
            Some(libc::ESRCH) => true,
            Some(libc::ENOENT) => self
                .subject
                .strip_prefix("/proc/")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())),
            _ => false,
        }
    }

    /// Whether an answer was waited for in vain: `ETIMEDOUT`.
    pub fn is_unanswered(&self) -> bool {
        self.errno() == Some(libc::ETIMEDOUT)
    }

    /// Whether the caller lacks the rights: `EPERM` or `EACCES`.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// Whether the path does not exist: `ENOENT` or `ENOTDIR`.
    pub fn is_not_found(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENOTDIR))
    }

    /// Whether a path does not name a regular file (any more): `ENOENT`, `ENOTDIR`, `ELOOP`, or what
    /// [`crate::open::open_in_root`] says of anything else.
    pub fn is_no_file(&self) -> bool {
        match self.errno() {
            Some(errno) => matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::ELOOP),
            None => self.source.kind() == io::ErrorKind::Unsupported,
        }
    }

    /// Whether this kernel does not have the interface: `ENOSYS`, `ENOTTY` or `EOPNOTSUPP`.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENOSYS | libc::ENOTTY | libc::EOPNOTSUPP)
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: ", self.operation, self.subject)?;
        let Some(errno) = self.errno() else {
            return write!(f, "{}", self.source);
        };
        // The standard library appends "(os error 3)"; the symbolic name says more.
        let message = self.source.to_string();
        let message = message.split(" (os error").next().unwrap_or_default();
        match errno_name(errno) {
            Some(name) => write!(f, "{message} ({name} {errno})"),
            None => write!(f, "{message} (errno {errno})"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Symbolic names of the errors that the interfaces of this crate return.
fn errno_name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::E2BIG => "E2BIG",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EXDEV => "EXDEV",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENFILE => "ENFILE",
        libc::EMFILE => "EMFILE",
        libc::ENOTTY => "ENOTTY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::ESPIPE => "ESPIPE",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::ELOOP => "ELOOP",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ESTALE => "ESTALE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_operation_subject_reason_and_number() {
        let error = Error::new(
            "process_vm_readv",
            "process 123",
            io::Error::from_raw_os_error(libc::ESRCH),
        );
        assert_eq!(
            error.to_string(),
            "process_vm_readv of process 123: No such process (ESRCH 3)"
        );
        assert!(error.is_gone());
        assert_eq!(error.errno(), Some(3));
    }

    #[test]
    fn enoent_means_gone_only_below_a_process_directory() {
        let enoent =
            |subject: &str| Error::new("open", subject, io::Error::from_raw_os_error(libc::ENOENT));
        assert!(enoent("/proc/12/stat").is_gone());
        assert!(!enoent("/proc/swaps").is_gone());
        assert!(!enoent("/etc/12").is_gone());
        assert!(enoent("/etc/12").is_not_found());
    }

    #[test]
    fn malformed_input_has_no_number() {
        let error = Error::malformed("parse", "/proc/swaps", "no header");
        assert_eq!(error.errno(), None);
        assert_eq!(error.to_string(), "parse of /proc/swaps: no header");
    }
}
