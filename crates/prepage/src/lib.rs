//! The service `prepaged` and the command line `prepage`.
//!
//! Data flow in the service: [`sources`] turn what happens (API calls, demand faults, thawed cgroups, ended
//! processes) into events; [`service`] gives them to [`prepage_core::machine::Machine`] and its actions to a
//! [`prepage_engine::Executor`]. One thread, one epoll: nothing runs while nothing happens.
//!
//! A launch is helped by the service, where it is told of it or sees it ([`service`]), and by `prepage run` itself where
//! there is no service ([`commands`]); what both decide and learn is in [`launch`].
//!
//! The commands are clients of the service's API: [`commands`] over [`client`], with the messages of [`api`] in the
//! frames of [`wire`].
#![forbid(unsafe_code)]

pub mod api;
pub mod cgroups;
pub mod client;
pub mod commands;
pub mod config;
pub mod containers;
pub mod discover;
pub mod error;
pub mod explain;
pub mod identity;
pub mod interpreters;
pub mod journal;
pub mod launch;
pub mod service;
pub mod sources;
pub mod wire;
