//! Threads that have a name.

use crate::error::{Error, Result};
use std::thread::{Builder, JoinHandle};

/// Address space of such a thread's stack, in bytes: a quarter of what is usual, of which it touches little.
const STACK_BYTES: usize = 512 << 10;

/// Starts a thread. Of its name the kernel keeps 15 bytes.
///
/// # Errors
/// [`Error::Thread`] where it cannot be created.
pub fn spawn(
    name: impl Into<String>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let name = name.into();
    let thread = Builder::new().name(name.clone()).stack_size(STACK_BYTES);
    thread
        .spawn(work)
        .map_err(|source| Error::Thread { name, source })
}
