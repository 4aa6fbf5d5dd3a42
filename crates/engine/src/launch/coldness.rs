//! What the device reads during a launch that nobody records, so that it takes as long as without prepage.

use prepage_core::launch::manager::Decision;
use prepage_kernel::page::page_size;
use prepage_kernel::read_counter::ReadCounter;
use prepage_kernel::vmstat;

/// What was read when a launch began.
#[derive(Debug)]
pub struct Coldness {
    reads: ReadCounter,
    bytes_read: u64,
}

impl Coldness {
    /// Of a launch that begins with this process, if it is held out and not recorded; best before its exec. `None` also where it
    /// cannot be seen.
    pub fn of(decision: &Decision, root_pid: i32) -> Option<Self> {
        let is_alone = decision.is_held_out && !decision.records;
        is_alone.then(|| Self::watch(root_pid)).flatten()
    }

    /// Of a launch that begins with this process. `None` where it cannot be seen.
    pub fn watch(root_pid: i32) -> Option<Self> {
        Some(Self {
            reads: ReadCounter::open(root_pid).ok()?,
            bytes_read: vmstat::bytes_read().ok()?,
        })
    }

    /// Pages that devices have read since then, for anybody; 0 if the launch asked for none of them. One request may be for
    /// megabytes, so that their number tells no more.
    pub fn device_pages(&self) -> u64 {
        let read = vmstat::bytes_read().unwrap_or(0);
        match self.reads.count() {
            Ok(1..) => read.saturating_sub(self.bytes_read) / page_size(),
            Ok(0) | Err(_) => 0,
        }
    }
}
