//! Where signals come from: each source turns what happens outside into something the service acts upon. None of
//! them polls.

pub mod api;
pub mod cores;
pub mod execs;
pub mod exits;
pub mod focus;
pub mod groups;
pub mod onset;
pub mod pressure;
pub mod sleep;
