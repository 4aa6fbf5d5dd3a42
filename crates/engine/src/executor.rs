//! The seam between what is decided and what is done.

use crate::ahead::Reclaimed;
use crate::error::Result;
use crate::params::EngineParams;
use crate::restore::Restored;
use prepage_core::identity::{AppId, Instance};
use prepage_core::machine::{Action, Event, Nanos};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Most copies of one application followed.
pub const COPIES_MAX: usize = 32;

/// Which processes make up an application, or one copy of it where several run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Members {
    /// Every process in a control group and below it: an absolute directory of any hierarchy, v1 or v2.
    Cgroup(PathBuf),
    /// A process and its descendants.
    Tree(i32),
}

/// Demand faults of one process since they were last drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultBurst {
    /// Process id (thread group).
    pub pid: i32,
    /// Number of demand faults.
    pub count: u32,
    /// Time of the first, monotonic.
    pub first_at: Nanos,
    /// Time of the last, monotonic.
    pub last_at: Nanos,
}

/// Executes actions. The service runs the real one, [`crate::Engine`]; tests run a scripted one.
pub trait Executor {
    /// Follows an application's processes, over all its copies (at most [`COPIES_MAX`]); these, and no others any
    /// more. Their instances come as events.
    fn follow(&mut self, app: &AppId, copies: &[Members]);

    /// Follows them no longer.
    fn unfollow(&mut self, app: &AppId);

    /// Says that the application's next switch is to the copy that this process belongs to: the pages of other copies
    /// are then neither fetched nor judged. To all of them where no process is given, or one that is not known.
    fn aim(&mut self, app: &AppId, pid: Option<i32>);

    /// Starts an action; what comes of it arrives in [`Executor::events`]. Never blocks on the application, its
    /// files or its swap device.
    fn perform(&mut self, now: Nanos, action: Action);

    /// Takes up other parameters from the next action on; a fetch under way goes on under those it began with. Rings
    /// are not opened anew: what [`crate::ObserveParams`] documents as needing a restart is not taken up.
    ///
    /// # Errors
    /// Where a thread cannot be created; nothing is changed then.
    fn set_params(&mut self, params: &EngineParams) -> Result<()>;

    /// What has happened since the last call: observations, instances begun and ended, files found changed.
    fn events(&mut self) -> Vec<Event>;

    /// Whether demand faults are recorded at all: from the beginning, until it is turned off.
    fn listen(&mut self, on: bool);

    /// Records no demand faults for now, or does again. A switch that begins ends that, and where one is under way it does not
    /// begin.
    fn pause_faults(&mut self, on: bool);

    /// Demand faults since the last call, of all processes of the machine, by process.
    fn drain_faults(&mut self) -> Vec<FaultBurst>;

    /// The application's demand faults since `since`, as far as they were drained and are kept
    /// ([`crate::ObserveParams::lookback_ms`]): process id and virtual page.
    fn recent_faults(&self, app: &AppId, since: Nanos) -> Vec<(i32, u64)>;

    /// The application that a process belongs to, among those followed.
    fn app_of(&self, pid: i32) -> Option<AppId>;

    /// The share (0 to 1) of these planned anonymous pages, as far as they are of the copy that process `pid` belongs
    /// to, that is swapped out now.
    fn swapped_share(&self, app: &AppId, pid: i32, instances: &[(Instance, Vec<u64>)]) -> f32;

    /// Readable when [`Executor::events`] has something.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Readable when [`Executor::drain_faults`] has so much that a switch may have begun.
    fn fault_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Adapts to the cores that are online now: fetches on each, and opens the rings anew, by other descriptors, since the
    /// events of a core that goes offline end, without a word (perf_event_exit_cpu). What happens meanwhile is not seen: the
    /// observation of a switch under way is void. Returns what the kernel refused, and what that costs.
    fn adapt_to_cores(&mut self) -> Vec<String>;

    /// Threads that hung in a call, fetching or observing, and were given up, so far.
    fn threads_given_up(&self) -> usize;

    /// What was reclaimed ahead of switches so far.
    fn reclaimed(&self) -> Reclaimed;

    /// Begins to bring back all of an application that is swapped out, and the file pages of this plan. Returns the number to
    /// ask [`Executor::restored`] by.
    ///
    /// # Errors
    /// Where no thread can be created, or too many are under way.
    fn restore(&mut self, app: &AppId, plan: &Arc<Plan>, mode: Mode) -> Result<u64>;

    /// How far that has come; `None` where there was none of this number, or it is long over.
    fn restored(&self, number: u64) -> Option<Restored>;
}
