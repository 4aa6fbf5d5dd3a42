//! *Launch*: what an application reads from disk while it begins to run, learned from some launches and read ahead,
//! beside the application, in the next (FAST: Joo et al., USENIX FAST 2011).
//!
//! A [`recording`] is what one launch showed. What several have in common ([`extract`]) is the application's launch
//! [`sequence`]; a [`plan`] says in which calls it is fetched. The [`manager`] decides for each launch whether to
//! record, to prefetch or to do neither. [`blocks`] maps device blocks back to files, and [`misses`] says what the
//! prefetch did not cover. [`metadata`] is what look-ups read of it.

pub mod blocks;
pub mod extract;
pub mod manager;
pub mod metadata;
pub mod misses;
mod page_map;
pub mod paths;
pub mod plan;
pub mod recording;
pub mod sequence;
