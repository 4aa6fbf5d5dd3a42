//! Ended processes: a pidfd for the main process of each copy of each tracked application.

use prepage_core::identity::AppId;
use prepage_kernel::Process;
use std::collections::BTreeMap;

/// The main processes, by the number under which the event loop knows them.
#[derive(Debug, Default)]
pub struct Exits {
    processes: BTreeMap<u32, (AppId, Process)>,
    next: u32,
}

impl Exits {
    /// Adds a process; its pidfd is readable once it has ended.
    ///
    /// # Errors
    /// Where it is gone already.
    pub fn add(&mut self, app: &AppId, pid: i32) -> prepage_kernel::Result<(u32, &Process)> {
        let process = Process::open(pid)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        // The number may come again after 2^32 processes: the older one has long ended.
        self.processes.remove(&number);
        let entry = self
            .processes
            .entry(number)
            .or_insert((app.clone(), process));
        Ok((number, &entry.1))
    }

    /// The application and the pid that this number stood for; the process is closed with this.
    pub fn take(&mut self, number: u32) -> Option<(AppId, i32)> {
        let (app, process) = self.processes.remove(&number)?;
        Some((app, process.pid()))
    }

    /// Forgets the processes of an application.
    pub fn remove(&mut self, app: &AppId) {
        self.processes.retain(|_, (owner, _)| owner != app);
    }
}
