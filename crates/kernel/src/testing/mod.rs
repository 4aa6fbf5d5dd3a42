//! What tests of this workspace need of the machine: root, swap, a lock, a child that does as it is told. Only with
//! the feature `testing`.
#![allow(missing_docs, reason = "read by test authors, next to the tests")]

pub mod child;
pub mod group;
pub mod hanging;
pub mod held;
pub mod machine;
pub mod page_cache;
pub mod sleeping;
