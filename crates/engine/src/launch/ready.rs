//! A launch that was decided ahead, when the one before was over: what is known is fetched for it, or it is held out, and
//! nothing is recorded. Who accompanies it needs nothing but this, and what it teaches is learned when it is over.

use crate::error::{Error, Result};
use crate::launch::LaunchResult;
use crate::launch::coldness::Coldness;
use crate::launch::place::Place;
use crate::launch::prefetch::{Prefetch, PrefetchOutcome};
use crate::members::Rights;
use crate::params::FetchParams;
use prepage_core::identity::FileId;
use prepage_core::launch::manager::{Decision, Help, Measured};
use prepage_core::launch::plan::LaunchPlan;
use prepage_core::launch::recording::LaunchEnd;
use prepage_core::machine::Nanos;
use prepage_core::params::launch::{LaunchParams, LaunchStart};
use prepage_kernel::Process;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::page::page_size;
use prepage_kernel::process::own_pid;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What is done for the next launch of an application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadyLaunch {
    /// What is fetched; nothing where the launch is held out.
    plan: Option<LaunchPlan>,
    /// Page size that the plan is for, in bytes.
    page_bytes: u64,
    /// As [`FetchParams`] has them.
    depth_bytes: u64,
    path_threads: usize,
    watchdog_ms: u64,
    /// How long a launch may take, in milliseconds.
    t_timeout_ms: u64,
}

/// How long the reads under way are waited for when the launch is over: a disk's.
const SETTLE_MAX: Duration = Duration::from_millis(200);

impl ReadyLaunch {
    /// What is done for a launch that needs no more than this; [`Help::None`] where it is to be recorded, waits for its
    /// prefetch, or is neither helped nor held out.
    pub fn help_of(decision: &Decision) -> Help {
        match &decision.prefetch {
            _ if decision.records => Help::None,
            _ if decision.is_held_out => Help::HeldOut,
            Some(plan) if plan.start == LaunchStart::Together => Help::Helped,
            _ => Help::None,
        }
    }

    /// What was decided for the next launch, if it needs no more ([`ReadyLaunch::help_of`]).
    pub fn of(decision: &Decision, fetch: &FetchParams, launch: &LaunchParams) -> Option<Self> {
        let plan = match Self::help_of(decision) {
            Help::None => return None,
            Help::HeldOut => None,
            Help::Helped => decision.prefetch.as_deref().cloned(),
        };
        Some(Self {
            plan,
            page_bytes: page_size(),
            depth_bytes: fetch.launch_depth_bytes,
            path_threads: fetch.path_threads,
            watchdog_ms: fetch.watchdog_ms,
            t_timeout_ms: launch.t_timeout_ms,
        })
    }

    /// Whether it is for this machine as it is.
    pub fn is_valid(&self) -> bool {
        self.page_bytes == page_size()
    }

    /// Fetches for a launch of this process's user that began at `began`, with threads of its own, until the launch is over; or
    /// sees what the device reads for one that is held out. `root` is its process, if that is not gone already; `wait_exec` waits
    /// for its exec, and says whether it came. Returns what the launch was; `None` where it was none.
    ///
    /// # Errors
    /// Where this process cannot see its own root directory.
    pub fn accompany(
        self,
        root: Option<&Process>,
        began: Nanos,
        wait_exec: impl FnOnce() -> bool,
    ) -> Result<Option<Accompanied>> {
        let limit = Duration::from_millis(self.t_timeout_ms);
        let coldness = match self.plan {
            Some(_) => None,
            None => root.and_then(|root| Coldness::watch(root.pid())),
        };
        let prefetch = self.begin(began)?;
        let executed = wait_exec().then(monotonic_ns);
        let end = executed.map(|_| match root {
            Some(root) if !root.exits_within(limit) => LaunchEnd::Timeout,
            _ => LaunchEnd::Exit,
        });
        let ended = monotonic_ns();
        let cold_pages = coldness.map_or(0, |coldness| coldness.device_pages());
        let fetched = prefetch.map(|prefetch| {
            prefetch.cancel();
            prefetch.wait(SETTLE_MAX);
            prefetch.outcome()
        });
        let device_pages = fetched.as_ref().map_or(cold_pages, |(done, _)| done.pages);
        let (prefetch, stale_files) = fetched.unzip();
        Ok(executed.zip(end).map(|(executed, end)| Accompanied {
            executed,
            launch_us: ended.saturating_sub(began) / 1_000,
            end,
            device_pages,
            prefetch,
            stale_files: stale_files.unwrap_or_default(),
        }))
    }

    /// Begins to fetch what there is to fetch.
    fn begin(self, began: Nanos) -> Result<Option<Arc<Prefetch>>> {
        let Some(plan) = self.plan else {
            return Ok(None);
        };
        let place = Place::of(own_pid(), Rights::own()).map_err(Error::Kernel)?;
        let fetch = FetchParams {
            launch_depth_bytes: self.depth_bytes,
            watchdog_ms: self.watchdog_ms,
            ..FetchParams::default()
        };
        let prefetch = Prefetch::new(Arc::new(plan), Arc::new(place), began, &fetch);
        let prefetch = Arc::new(prefetch);
        for task in prefetch.tasks(self.path_threads) {
            // One that hangs is not waited for.
            if std::thread::Builder::new().spawn(task).is_err() {
                prefetch.give_up(1);
            }
        }
        Ok(Some(prefetch))
    }
}

/// A launch that was decided ahead, and is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accompanied {
    /// When its command was executed, on the monotonic clock.
    pub executed: Nanos,
    /// From its beginning to its end, in microseconds.
    pub launch_us: u64,
    /// Why it was taken to be over.
    pub end: LaunchEnd,
    /// Pages that the device read: for the prefetch, or, where the launch was held out, for it.
    pub device_pages: u64,
    /// What was fetched; nothing where it was held out.
    pub prefetch: Option<PrefetchOutcome>,
    /// Files of the plan that were found changed or gone.
    pub stale_files: Vec<FileId>,
}

impl Accompanied {
    /// What was done for it.
    pub fn help(&self) -> Help {
        match self.prefetch {
            Some(_) => Help::Helped,
            None => Help::HeldOut,
        }
    }

    /// As the result of a launch that began at that time since 1970, in nanoseconds.
    pub fn into_result(self, began_wall_ns: i64) -> LaunchResult {
        let measured = Measured {
            began_ns: began_wall_ns,
            launch_us: Some(self.launch_us),
            help_us: 0,
            end: self.end,
            recording_us: 0,
            device_pages: self.device_pages,
            // Nobody saw when it was idle.
            help: match self.end {
                LaunchEnd::Timeout => Help::None,
                _ => self.help(),
            },
            stale_files: self.stale_files,
        };
        LaunchResult {
            prefetch: self.prefetch,
            ..LaunchResult::unrecorded(0, measured)
        }
    }
}
