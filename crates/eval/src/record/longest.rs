//! The longest single waits of an application in a switch.

use serde::{Deserialize, Serialize};

/// Of all its threads: what began after the activation and ended before watching did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// The longest page fault; 0 where there was none.
    pub fault_ns: u64,
    /// Page faults, minor ones too.
    pub faults: u64,
    /// The longest call that changes an address space: mmap, munmap, mremap, mprotect or brk; 0 where there was none, and
    /// nothing where the kernel has no tracepoints of system calls.
    pub call_ns: Option<u64>,
    /// Which of these it was; nothing where there was none.
    pub call: Option<String>,
    /// How many such calls there were.
    pub calls: u64,
    /// Events that are missing, of anyone's faults and calls: where there are some, the longest may be among them.
    pub lost: u64,
}
