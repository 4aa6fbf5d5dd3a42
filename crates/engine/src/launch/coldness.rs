//! What the device reads during a launch that nobody records, so that it takes as long as without prepage.

use prepage_core::launch::manager::Decision;
use prepage_kernel::page::page_size;
use prepage_kernel::perf::FaultCounter;
use prepage_kernel::vmstat;

/// A launch that waited for fewer pages than this read nothing: what the device read meanwhile was for others. Cold ones wait
/// for more of their executable and libraries alone.
const FAULTS_MIN: u64 = 4;

/// What was read when a launch began.
#[derive(Debug)]
pub struct Coldness {
    faults: FaultCounter,
    bytes_read: u64,
}

impl Coldness {
    /// Of a launch that begins with this process, if it is held out and not recorded; best before its exec. `None` also where it
    /// cannot be seen.
    pub fn watch(decision: &Decision, root_pid: i32) -> Option<Self> {
        if !decision.is_held_out || decision.records {
            return None;
        }
        Some(Self {
            faults: FaultCounter::open(root_pid).ok()?,
            bytes_read: vmstat::bytes_read().ok()?,
        })
    }

    /// Pages that devices have read since then, for anybody; 0 if the launch waited for none.
    pub fn device_pages(&self) -> u64 {
        let faults = self.faults.count().unwrap_or(0);
        let read = vmstat::bytes_read().unwrap_or(0);
        match faults >= FAULTS_MIN {
            true => read.saturating_sub(self.bytes_read) / page_size(),
            false => 0,
        }
    }
}
