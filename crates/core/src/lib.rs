//! What prepage learns and decides, without I/O, clock or threads.
//!
//! `signal -> plan -> fetch -> observe -> learn` is one state machine, [`machine::Machine`]: events and times in,
//! actions out. The service, the replay simulator and fault injection run the same code.
//!
//! Sources: ASAP (Son et al., USENIX ATC 2021), sections 4 and 5; for launches FAST (Joo et al., USENIX FAST 2011),
//! section 4.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod anon;
pub mod app;
pub mod extent;
pub mod file;
pub mod file_watch;
pub mod history;
pub mod identity;
pub mod launch;
pub mod machine;
pub mod order;
pub mod outcome;
pub mod params;
pub mod plan;
pub mod replay;
pub mod rest;
pub mod run_map;
pub mod shell;
pub mod signal;
pub mod wrappers;
