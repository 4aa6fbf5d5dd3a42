//! Observing: what a switch demanded, what of the prepaged pages it used.
//!
//! Demand faults come from [`faults`] at any time; file accesses from [`files`] during a switch; at its end
//! `anon_pages` and `file_pages` ask the page tables and the page cache for the rest. [`observer`] is the thread that
//! empties the rings of files; what asks processes and file systems, and may hang, is done by [`collectors`].

mod anon_pages;
pub mod collect;
pub mod collectors;
pub mod faults;
pub mod file_pages;
pub mod file_table;
pub mod files;
pub mod observer;
pub(crate) mod opens;
pub(crate) mod resolve;
mod shared;
mod waits;
