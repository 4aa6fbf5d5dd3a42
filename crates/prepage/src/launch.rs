//! What a launch is called, what is decided for it and what is learned from it: the same for `prepage run` without a
//! service and for the service.

pub mod command;
pub mod decide;
pub mod options;
pub mod record;
