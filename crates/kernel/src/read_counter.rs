//! What a process and those that it starts have devices read, counted: by the tracepoint block:block_bio_queue (2.6.31+), which
//! comes in the context of whoever asks, for faults, read(2) and readahead alike.

use crate::error::{Error, Result};
use crate::perf::{self, Subject, Wakeup};
use crate::tracefs::Tracefs;
use rustix::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

/// Reads, by the letters of blk_fill_rwbs: no other operation has an R but the seldom ZR.
const READS: &std::ffi::CStr = c"rwbs ~ \"*R*\"";

const IOC_SET_FILTER: u32 = rustix::ioctl::opcode::write::<*const libc::c_char>(b'$', 6);

/// Requests to read from block devices, of a process's first thread and of the threads and processes that it starts while they
/// are counted. Nothing is reported for each of them, so that counting costs the process next to nothing.
#[derive(Debug)]
pub struct ReadCounter(OwnedFd);

impl ReadCounter {
    /// Begins to count. Needs tracefs once, and the right to trace the process, or CAP_PERFMON: `EACCES`, `EPERM`; `ESRCH` where
    /// it is gone.
    pub fn open(pid: i32) -> Result<ReadCounter> {
        let attributes = perf::Attributes::counting(perf::TYPE_TRACEPOINT, event_id()?.into());
        let event = perf::open_event(&attributes, Subject::Thread(pid))?;
        // SAFETY: the ioctl reads a string that ends with NUL and lives longer than the call.
        match unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_FILTER as _, READS.as_ptr()) } {
            0 => Ok(ReadCounter(event)),
            _ => Err(Error::last(
                "ioctl(PERF_EVENT_IOC_SET_FILTER)",
                "block_bio_queue",
            )),
        }
    }

    /// The requests until now, those of processes that have ended too.
    pub fn count(&self) -> Result<u64> {
        let failed = |error| Error::new("read", "perf event", error);
        let mut value = [0; size_of::<u64>()];
        match rustix::io::read(&self.0, &mut value).map_err(failed)? {
            8 => Ok(u64::from_ne_bytes(value)),
            _ => Err(Error::malformed("read", "perf event", "a short read")),
        }
    }
}

/// The tracepoint's id, which stays while the kernel runs; asked for once. An event of ours that is off keeps the tracepoint in
/// use: when its last event is closed, the kernel (6.18) waits for grace periods of RCU, 40 ms, and lets nobody open any.
fn event_id() -> Result<u32> {
    static KEPT: OnceLock<(u32, OwnedFd)> = OnceLock::new();
    if let Some((id, _)) = KEPT.get() {
        return Ok(*id);
    }
    let id = Tracefs::open()?.event("block", "block_bio_queue")?.id;
    let off = perf::Attributes::sampling(perf::TYPE_TRACEPOINT, id.into(), 0, Wakeup::Events(1));
    let kept = perf::open_event(&off, Subject::Thread(0))?;
    Ok(KEPT.get_or_init(|| (id, kept)).0)
}
