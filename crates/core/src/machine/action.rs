//! What is to be done: the actions of the state machine.

use crate::app::Known;
use crate::extent::ExtentSet;
use crate::identity::{AppId, Instance};
use crate::params::{Mode, ReclaimParams};
use crate::plan::Plan;
use std::sync::Arc;

/// What a switch to an application needs memory for.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The application.
    pub app: AppId,
    /// What would be fetched of it, if it is out.
    pub plan: Arc<Plan>,
    /// Pages that came in beside the plan: the most of its last few switches.
    pub missed_pages: u64,
}

/// Something to do, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Begin to observe a switch.
    Observe {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// Whether its file accesses are asked for: see [`crate::file_watch::FileWatch`].
        files: bool,
        /// Whether the onset of a switch is waited for meanwhile: see [`crate::signal::Source::Unplanned`].
        awaits_onset: bool,
    },
    /// Fetch the plan's pages, of the kinds that the mode fetches, and answer with [`super::Event::Fetched`]. What is never
    /// answered lasts until the switch's cap.
    Fetch {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// What to fetch.
        plan: Arc<Plan>,
        /// Which kinds.
        mode: Mode,
        /// Whether something else than demand faults began the switch: somebody waits for it.
        is_announced: bool,
    },
    /// The switch is over: stop fetching, collect what it showed and answer with [`super::Event::Observed`].
    Collect {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// What was planned.
        plan: Arc<Plan>,
        /// The pages of the tables, whose use or disuse is asked for.
        known: Known,
    },
    /// Make pages cold again: they were mapped, and nothing vouches for their use.
    Cool {
        /// The process instance.
        instance: Instance,
        /// Virtual pages.
        pages: ExtentSet,
    },
    /// Have the kernel reclaim, where a memory limit above an application, or the machine, leaves less than what is out of its
    /// plan: see [`crate::ahead`]. A switch that begins ends it: [`Action::Observe`] does where no onset is awaited, and so does
    /// [`Action::Fetch`] for what was observed as unplanned faults so far.
    Reclaim {
        /// What those need that may be switched to next; all of it is in where an application is in use.
        needs: Vec<Need>,
        /// The applications that may be in use: the one switched to last, and the one last announced by more than its faults.
        in_use: Vec<AppId>,
        /// Which kinds of pages would be fetched.
        mode: Mode,
        /// How much, and when not.
        params: ReclaimParams,
    },
    /// Keep the application's profile.
    Store {
        /// The application.
        app: AppId,
    },
}
