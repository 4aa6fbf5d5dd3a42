//! What the device reads during a launch that nobody records, so that it takes as long as without prepage.
//!
//! Devices are asked to read by other programs too, so a launch counts as cold only where its own processes asked for something. The
//! kernel sums that up for each process, and nobody can ask once it is gone: so they are asked a quarter of a millisecond after
//! the launch began, and after twice as long again, until they have. An event that counts (perf) would say it of all of them,
//! also at the end, but takes 8 to 30 ms to be opened where no other is (6.18: RCU), as long as launches take.

use crate::launch::LAUNCHES_MAX;
use prepage_core::launch::manager::Decision;
use prepage_kernel::page::page_size;
use prepage_kernel::{Process, process, vmstat};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// When the launch's processes are first looked at.
const FIRST_LOOK: Duration = Duration::from_micros(250);

/// How often, at most: the last time, half a minute later.
const LOOKS_MAX: u32 = 17;

/// Most processes that are looked at.
const PROCESSES_MAX: usize = 64;

/// Most threads that look at once: where a launch is over, its own looks for as long again at most.
const WATCHERS_MAX: usize = 2 * LAUNCHES_MAX;

/// Each of these threads has it.
static WATCHERS: LazyLock<Arc<()>> = LazyLock::new(Arc::default);

/// What was read when a launch began.
#[derive(Debug)]
pub struct Coldness {
    bytes_read: u64,
    has_asked: Arc<AtomicBool>,
}

impl Coldness {
    /// Of a launch that begins with this process, if it is held out and not recorded; best before its exec. `None` also where it
    /// cannot be seen.
    pub fn of(decision: &Decision, root_pid: i32) -> Option<Self> {
        let is_alone = decision.is_held_out && !decision.records;
        is_alone.then(|| Self::watch(root_pid)).flatten()
    }

    /// Of a launch that begins with this process. `None` where it cannot be seen, or too many are. It is looked at no more once
    /// this is dropped: at the latest after as long again as it was until then.
    pub fn watch(root_pid: i32) -> Option<Self> {
        let watcher = Arc::clone(&WATCHERS);
        // One is the static's own.
        if Arc::strong_count(&watcher) > WATCHERS_MAX + 1 {
            return None;
        }
        let bytes_read = vmstat::bytes_read().ok()?;
        let root = Process::open(root_pid).ok()?;
        let before = bytes_read_by_tree(root_pid);
        let has_asked = Arc::new(AtomicBool::new(false));
        std::thread::Builder::new()
            .name("prepage-cold".to_owned())
            .spawn({
                let has_asked = Arc::downgrade(&has_asked);
                move || {
                    let _watcher = watcher;
                    let mut looks = (0..LOOKS_MAX).map(|look| FIRST_LOOK * 2_u32.pow(look));
                    let is_over = |pause| {
                        // Once it has exited too: until its parent has noticed, the kernel tells.
                        let has_exited = root.exits_within(pause);
                        let Some(has_asked) = has_asked.upgrade() else {
                            return true;
                        };
                        let asked = bytes_read_by_tree(root_pid) > before;
                        has_asked.fetch_or(asked, Ordering::Relaxed);
                        has_exited || asked
                    };
                    looks.any(is_over);
                }
            })
            .ok()?;
        Some(Self {
            bytes_read,
            has_asked,
        })
    }

    /// Pages that devices have read since then, for anybody; 0 if the launch was not seen to ask for any. One request may be for
    /// megabytes, so that their number tells no more.
    pub fn device_pages(&self) -> u64 {
        let read = vmstat::bytes_read().unwrap_or(0);
        match self.has_asked.load(Ordering::Relaxed) {
            true => read.saturating_sub(self.bytes_read) / page_size(),
            false => 0,
        }
    }
}

/// Bytes that a process and those below it had devices read.
fn bytes_read_by_tree(root_pid: i32) -> u64 {
    let pids = process::tree(root_pid, PROCESSES_MAX);
    // What is gone meanwhile counts with its parent.
    pids.iter()
        .map(|&pid| process::bytes_read(pid).unwrap_or(0))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::machine::eventually;
    use prepage_kernel::testing::sleeping::Sleeping;

    #[test]
    fn so_many_are_watched_and_none_that_nobody_asks_about_any_more() {
        let process = Sleeping::spawn();
        let others: Vec<_> = (0..WATCHERS_MAX).map(|_| Arc::clone(&WATCHERS)).collect();
        assert!(Coldness::watch(process.pid()).is_none());
        drop(others);
        let coldness = Coldness::watch(process.pid()).expect("there is room again");
        drop(coldness);
        eventually("the thread ends before the process does", || {
            Arc::strong_count(&WATCHERS) == 1
        });
    }
}
