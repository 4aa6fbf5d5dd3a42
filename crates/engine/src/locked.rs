//! Locks whose holders leave nothing half-done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also where a thread that held it panicked: here none leaves anything half-done that matters.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
