//! The error of this crate: the operation, what it was done to, and why it failed.

use std::path::PathBuf;

/// What failed.
#[derive(Debug)]
pub enum Error {
    /// A kernel interface.
    Kernel(prepage_kernel::Error),
    /// A file of the store.
    Store {
        /// What was done.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A service, or a launch that is over, uses the store.
    StoreLocked {
        /// The store's directory.
        path: PathBuf,
    },
    /// A profile that cannot be read.
    Profile {
        /// Where it came from.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A profile of a later version of the format than this: it stays as it is.
    NewerProfile {
        /// Where it is.
        origin: String,
        /// What is said of it.
        reason: String,
    },
    /// A thread could not be created.
    Thread {
        /// Its name.
        name: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// As many applications as may be are being brought back.
    ManyRestores {
        /// How many.
        under_way: usize,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(error) => error.fmt(f),
            Self::Store {
                operation,
                path,
                source,
            } => {
                write!(f, "{operation} of {}: {source}", path.display())
            }
            Self::StoreLocked { path } => write!(
                f,
                "the store {} is in use by a prepaged: stop that, or name another directory (--store; of a second prepaged, --state)",
                path.display()
            ),
            Self::Profile { origin, reason } | Self::NewerProfile { origin, reason } => {
                write!(f, "profile {origin}: {reason}")
            }
            Self::Thread { name, source } => write!(f, "creating thread {name}: {source}"),
            Self::ManyRestores { under_way } => {
                write!(
                    f,
                    "{under_way} applications are being brought back: try again when one is"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kernel(error) => Some(error),
            Self::Store { source, .. } | Self::Thread { source, .. } => Some(source),
            Self::StoreLocked { .. }
            | Self::Profile { .. }
            | Self::NewerProfile { .. }
            | Self::ManyRestores { .. } => None,
        }
    }
}

impl From<prepage_kernel::Error> for Error {
    fn from(error: prepage_kernel::Error) -> Self {
        Self::Kernel(error)
    }
}
