//! What happens: the events of the state machine.

use super::Nanos;
use crate::app::{Observation, Profile};
use crate::identity::{AppId, FileId, Instance};
use crate::params::{Mode, Params};
use crate::signal::Source;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An application is to be followed; `profile` is what is known of it.
    Tracked {
        /// The application.
        app: AppId,
        /// What the store holds of it, empty where it holds nothing.
        profile: Box<Profile>,
    },
    /// An application is no longer to be followed.
    Untracked {
        /// The application.
        app: AppId,
    },
    /// One of its processes began, or began another program.
    InstanceStarted {
        /// The application.
        app: AppId,
        /// The process instance.
        instance: Instance,
    },
    /// One of its processes ended.
    InstanceEnded {
        /// The application.
        app: AppId,
        /// The process instance.
        instance: Instance,
    },
    /// The application is switched to.
    Begin {
        /// The application.
        app: AppId,
        /// Who says so.
        source: Source,
    },
    /// The switch is over.
    End {
        /// The application.
        app: AppId,
    },
    /// Demand faults were seen in a tracked application.
    DemandFaults {
        /// The application.
        app: AppId,
        /// Number since the last such event.
        count: u64,
        /// Time of the last of them.
        last_at: Nanos,
    },
    /// All that a switch's plan holds was fetched, as far as it could be.
    Fetched {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
    },
    /// Time has passed: the deadline that [`super::Machine::deadline`] gave has come.
    Tick,
    /// The executor has collected what a switch showed.
    Observed {
        /// The application.
        app: AppId,
        /// Number of the switch.
        switch: u64,
        /// What it showed.
        observation: Box<Observation>,
    },
    /// A file was found updated, replaced, truncated or gone.
    FileChanged {
        /// The application.
        app: AppId,
        /// The file, in the version that was known.
        file: FileId,
    },
    /// The mode is to change, for all applications.
    SetMode(
        /// The mode.
        Mode,
    ),
    /// Other parameters hold from now on: the next plans are made with them.
    SetParams(
        /// The parameters, within their ranges.
        Box<Params>,
    ),
    /// Memory pressure began or ended.
    Pressure {
        /// Whether there is pressure.
        under_pressure: bool,
    },
}
