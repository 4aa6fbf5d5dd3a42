//! Fetching: threads created once, asleep until they are handed a job (ASAP section 5).
//!
//! A [`job::Job`] is one switch's plan with everything it needs. [`pool::Pool`] hands it to the threads; [`anon`]
//! and [`mod@file`] are what they do with it.

pub mod anon;
pub mod cores;
pub mod file;
mod headroom;
pub mod heart;
pub mod job;
pub mod pool;
pub mod shared;
pub mod swap_layout;
