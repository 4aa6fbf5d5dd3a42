//! The Linux kernel interfaces that prepage uses: mechanism without policy, one interface per file.
//!
//! - This is the only crate of the workspace with `unsafe` code: one block per system call, each with the reason why
//!   it holds. rustix's safe wrappers are used wherever they exist.
//! - Nothing here decides anything. Functions do what they are asked and report how far they came.
//! - A process, cgroup or file that vanished is a normal value: see [`Error::is_gone`].
//! - What this kernel offers is probed, in [`support`]; no kernel version is ever compared. Versions in comments say
//!   where an interface comes from.
//! - *Page numbers* are virtual addresses (or file offsets) divided by [`page::page_size`], as `u64`. Everything else
//!   carries its unit in its name.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "64-bit targets only: perf rings, pagemap offsets and file offsets are used as 64-bit values"
);

pub mod allocator;
pub mod block;
pub mod block_trace;
pub mod cachestat;
pub mod cgroup;
pub mod clock;
pub mod credentials;
pub mod error;
pub mod exec;
pub mod exec_trace;
pub mod fanotify;
mod fault_around;
pub mod fds;
pub mod fiemap;
pub mod filemap;
pub mod inotify;
pub mod maps;
pub mod meminfo;
pub mod mincore;
pub mod mountinfo;
pub mod open;
pub mod page;
pub mod page_cache;
pub mod pagemap;
pub mod path_calls;
mod path_resolution;
mod path_syscalls;
pub mod peer;
pub mod perf;
pub mod process;
pub mod process_madvise;
pub mod process_vm;
pub mod procmap;
pub mod psi;
pub mod ptrace;
pub mod readable;
pub mod readahead;
pub mod reclaim;
pub mod ring;
pub mod sched;
pub mod shmem;
pub mod signals;
pub mod spans;
pub mod spawn;
pub mod support;
pub mod swaps;
pub mod task_events;
#[cfg(feature = "testing")]
pub mod testing;
mod text;
pub mod tracefs;
pub mod user_namespace;
pub mod vmstat;
pub mod zram;

pub use error::{Error, Result};
pub use process::{Process, ProcessId};
