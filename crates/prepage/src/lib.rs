//! The service `prepaged` and the command line `prepage`.
//!
//! Data flow in the service: [`sources`] turn what happens (API calls, demand faults, thawed cgroups, ended
//! processes) into events; [`service`] gives them to [`prepage_core::machine::Machine`] and its actions to a
//! [`prepage_engine::Executor`]. One thread, one epoll: nothing runs while nothing happens.
//!
//! The commands are clients of the service's API: [`commands`] over [`client`], with the messages of [`api`] in the
//! frames of [`wire`].
#![forbid(unsafe_code)]

pub mod api;
pub mod cgroups;
pub mod client;
pub mod commands;
pub mod config;
pub mod discover;
pub mod identity;
pub mod journal;
pub mod service;
pub mod sources;
pub mod wire;
