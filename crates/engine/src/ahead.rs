//! The thread that has memory reclaimed ahead of a switch: see [`prepage_core::ahead`].

mod givers;
mod lack;
mod stalls;

pub use lack::Wanting;

use crate::error::Result;
use crate::mailbox::{Closed, Inbox, Mailbox};
use givers::give;
use lack::lacks;
use prepage_core::params::{Mode, ReclaimParams};
use prepage_kernel::cgroup::{Cgroup, Hierarchy};
use prepage_kernel::reclaim::Domain;
use rustix::event::{PollFd, PollFlags, poll};
use stalls::Stalls;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often it is waited until nobody waits for memory, for a window each: two seconds in all.
const PAUSES_MAX: u32 = 20;

/// What is to be looked after.
#[derive(Debug)]
pub struct Task {
    /// Those that headroom is wanted for.
    pub wanting: Vec<Wanting>,
    /// The memory control groups of the application in use, which gives nothing while others have something to give.
    pub spared: Vec<Cgroup>,
    /// Which kinds of pages would be fetched.
    pub mode: Mode,
    /// How much, and when not.
    pub params: ReclaimParams,
}

/// What was reclaimed ahead of switches since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// How often something was.
    pub times: u64,
    /// How much in all, in bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Raised by each switch, not by what is only observed: what was asked for before is not gone on with.
    generation: AtomicU64,
    times: AtomicU64,
    bytes: AtomicU64,
}

/// The thread.
#[derive(Debug)]
pub struct Reclaimer {
    mailbox: Mailbox<(u64, Task), ()>,
    shared: Arc<Shared>,
}

impl Reclaimer {
    /// Creates it; it sleeps until it is told something.
    ///
    /// # Errors
    /// Where it cannot be created.
    pub fn start(hierarchies: Vec<Hierarchy>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let work = move |inbox: Inbox<_, ()>| work(&inbox, &of_thread, &hierarchies);
        Ok(Self {
            mailbox: Mailbox::start("prepage-reclaim", work)?,
            shared,
        })
    }

    /// Looks whether there is headroom, and has what lacks reclaimed.
    pub fn look(&self, task: Task) {
        let generation = self.shared.generation.load(Ordering::Relaxed);
        self.mailbox.tell((generation, task));
    }

    /// Ends that within some milliseconds.
    pub fn stop(&self) {
        self.shared.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// What was reclaimed so far.
    pub fn reclaimed(&self) -> Reclaimed {
        Reclaimed {
            times: self.shared.times.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }
}

fn work(inbox: &Inbox<(u64, Task), ()>, shared: &Shared, hierarchies: &[Hierarchy]) {
    let machine = Domain::machine(hierarchies);
    loop {
        let fd = inbox.fd();
        // Interrupted: it is looked whether there is something, and waited again.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        inbox.silence();
        let mut last = None;
        loop {
            match inbox.take() {
                Ok(Some(told)) => last = Some(told),
                Ok(None) => break,
                Err(Closed) => return,
            }
        }
        if let Some((generation, task)) = last {
            let goes_on = || shared.generation.load(Ordering::Relaxed) == generation;
            look(&task, machine.as_ref(), shared, &goes_on);
        }
    }
}

/// Has what lacks reclaimed, limit by limit, and of the machine at last.
fn look(task: &Task, machine: Option<&Domain>, shared: &Shared, goes_on: &dyn Fn() -> bool) {
    let mut stalls = Stalls::new(task.params.stall_percent_max);
    for _ in 0..PAUSES_MAX {
        let lacks = lacks(task, machine);
        if lacks.is_empty() || !goes_on() {
            return;
        }
        // Until nobody waits for memory: who does needs what is to be taken.
        if stalls.watch() {
            continue;
        }
        for lack in lacks {
            let mut nobody_waits = || goes_on() && !stalls.are_many();
            let bytes = give(&lack, &task.spared, &mut nobody_waits);
            shared
                .times
                .fetch_add(u64::from(bytes > 0), Ordering::Relaxed);
            shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if !stalls.are_many() {
            return;
        }
    }
}
