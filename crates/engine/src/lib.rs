//! Executes what prepage-core decides: fetching, observing and keeping profiles.
//!
//! [`Engine`] is the real [`Executor`]: worker threads fetch ([`fetch`]), others observe ([`observe`]), one
//! writes profiles ([`store`]). All of them sleep until they are given something to do.
#![forbid(unsafe_code)]

pub mod accounts;
pub mod ahead;
mod engine;
mod error;
pub mod executor;
pub mod fetch;
pub mod launch;
mod locked;
mod mailbox;
mod members;
pub mod observe;
mod params;
pub mod patience;
mod restore;
mod roots;
pub mod store;
mod thread;

pub use engine::Engine;
pub use error::{Error, Result};
pub use executor::{COPIES_MAX, Executor, FaultBurst, Members};
pub use launch::{
    Accompanied, Coldness, Launch, LaunchResult, Launches, PathProfile, PrefetchOutcome,
    ReadyLaunch,
};
pub use members::Rights;
pub use observe::resolve::version_of;
pub use params::{CorePolicy, EngineParams, FetchParams, FileOrder, ObserveParams, ThreadPolicy};
pub use restore::Restored;
