//! What the methods of the service answer.

use crate::launch::record::{DecisionRecord, LaunchRecord};
use prepage_core::launch::manager::Phase;
use prepage_core::launch::misses::Misses;
use prepage_core::outcome::SwitchRecord;
use prepage_core::params::Mode;
use prepage_engine::CorePolicy;
use prepage_engine::store::StoredApp;
use serde::{Deserialize, Serialize};

/// Reply to `Track`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackReply {
    /// The application's id.
    pub app: String,
    /// What makes it up: each copy's control group directory or `process tree of PID`, separated by commas, or
    /// `not running`.
    pub members: String,
    /// Whether it was not tracked before.
    pub new: bool,
    /// What its processes were tracked as until now, of which nothing else runs: that is tracked no longer.
    #[serde(default)]
    pub given_up: Vec<String>,
    /// How many things are missing on this machine, which `Status` names.
    #[serde(default)]
    pub missing: u64,
}

/// Reply to `Untrack`, `Forget` and `Import`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppReply {
    /// The application's id.
    pub app: String,
}

/// Reply to `SwitchBegin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginReply {
    /// The application's id, where it is tracked.
    pub app: Option<String>,
    /// Whether it is tracked; if not, nothing was done.
    pub tracked: bool,
    /// Whether a switch began; if not, one is under way or began within `switch.repeat_ms`, the application is left alone,
    /// or the mode is off.
    pub began: bool,
    /// How many things are missing on this machine, which `Status` names; 0 where a window's focus is reported: that is
    /// not looked up then.
    #[serde(default)]
    pub missing: u64,
}

/// Reply to `SwitchEnd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReply {
    /// The application's id.
    pub app: String,
    /// Whether a switch was under way.
    pub ended: bool,
}

/// Reply to `Restore`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReply {
    /// The application's id.
    pub app: String,
    /// The number to ask `RestoreReport` by.
    pub restore: u64,
    /// How many things are missing on this machine, which `Status` names.
    #[serde(default)]
    pub missing: u64,
}

/// Parameters of `RestoreReport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreParameters {
    /// As `Restore` gave it.
    pub restore: u64,
}

/// Reply to `RestoreReport`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReportReply {
    /// The application's id.
    pub app: String,
    /// Anonymous pages that were swapped out at the beginning; 0 while these are looked for.
    pub out_pages: u64,
    /// Of these, pages brought back so far.
    pub back_pages: u64,
    /// How long it took, in microseconds; none while it is under way.
    pub took_us: Option<u64>,
}

/// Reply to `LaunchBegin`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchBeginReply {
    /// The application's id.
    pub app: String,
    /// The launch; none where nothing is done for it.
    pub launch: Option<u64>,
    /// The phase in which it began.
    pub phase: Phase,
    /// What was decided.
    pub decision: DecisionRecord,
    /// Whether the caller should wait for `LaunchPrefetched` before it executes the program.
    pub waits: bool,
    /// Whether its paths are wanted: it has not begun, and does with the next call ([`super::Tracing`]).
    pub awaits_tracer: bool,
}

/// Reply to `LaunchPaths`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPathsReply {
    /// Whether the launch is over: then it need not be traced any more.
    pub over: bool,
}

/// Reply to `LaunchPrefetched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPrefetchedReply {
    /// Whether everything planned was fetched.
    pub complete: bool,
}

/// Reply to `LaunchReport`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchReportReply {
    /// What the launch did; none before it is over.
    pub record: Option<LaunchRecord>,
}

/// Reply to `SetMode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeReply {
    /// The mode in force now.
    pub mode: Mode,
    /// The mode before.
    pub before: Mode,
}

/// Reply to `SetCorePolicy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorePolicyReply {
    /// The policy in force now.
    pub core_policy: CorePolicy,
    /// The policy before.
    pub before: CorePolicy,
}

/// Reply to `Export`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportReply {
    /// The application's id.
    pub app: String,
    /// Its profile, in hexadecimal.
    pub profile: String,
}

/// Reply to `Status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReply {
    /// Version of the service.
    pub version: String,
    /// Its process id.
    pub pid: i32,
    /// The mode in force.
    pub mode: Mode,
    /// On which cores, and how, file pages are fetched.
    pub core_policy: CorePolicy,
    /// Whether there is memory pressure: tasks wait for memory, on the whole machine or in a control group at its limit.
    pub under_pressure: bool,
    /// What does not work on this machine now, and what that costs.
    pub missing: Vec<String>,
    /// Threads that hung in a system call, fetching or observing, and were given up.
    pub threads_given_up: u64,
    /// Bytes that were reclaimed ahead of switches since the start.
    pub reclaimed_ahead_bytes: u64,
    /// How often that was.
    pub reclaimed_ahead_times: u64,
    /// The applications tracked.
    pub apps: Vec<AppStatus>,
}

/// An application in [`StatusReply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppStatus {
    /// Its id.
    pub app: String,
    /// `running`, `switching` or `not running`.
    pub state: String,
    /// What makes it up, as in [`TrackReply`].
    pub members: String,
    /// Process instances followed.
    pub processes: u64,
    /// Switches seen in the life of its profile.
    pub switches: u64,
    /// Anonymous pages that the next switch would fetch.
    pub anon_planned_pages: u64,
    /// File pages that the next switch would fetch.
    pub file_planned_pages: u64,
    /// Bytes of its tables.
    pub table_bytes: u64,
    /// Launches seen in the life of its profile.
    pub launches: u64,
    /// What is done for its launches.
    pub launch_phase: Phase,
}

/// Reply to `ListApps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppsReply {
    /// What the store keeps.
    pub apps: Vec<KnownApp>,
}

/// An application in [`AppsReply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownApp {
    /// Its id.
    pub app: String,
    /// Whether it is tracked.
    pub tracked: bool,
    /// Switches seen in the life of its profile.
    pub switches: u64,
    /// Launches seen in the life of its profile.
    pub launches: u64,
    /// What is done for its launches.
    pub launch_phase: Phase,
    /// Size of its profile on disk, in bytes.
    pub profile_bytes: u64,
}

impl From<StoredApp> for KnownApp {
    fn from(stored: StoredApp) -> Self {
        Self {
            app: stored.app.to_string(),
            tracked: stored.tracked,
            switches: stored.switches,
            launches: stored.launches,
            launch_phase: stored.launch_phase,
            profile_bytes: stored.bytes,
        }
    }
}

/// Reply to `Stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsReply {
    /// The last switches, by application, oldest first.
    pub switches: Vec<SwitchOf>,
    /// The last launches, likewise.
    pub launches: Vec<LaunchRecord>,
    /// What a store keeps of launches, where no service was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptLaunches>,
    /// How many things are missing on this machine, which `Status` names.
    #[serde(default)]
    pub missing: u64,
}

/// What a store keeps of an application's launches, all together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptLaunches {
    /// The application's id.
    pub app: String,
    /// Launches seen.
    pub launches: u64,
    /// What is done for the next one.
    pub phase: Phase,
    /// As in [`ExplainedLaunch`].
    pub helped_us: (Option<u64>, u64),
    /// As in [`ExplainedLaunch`].
    pub held_out_us: (Option<u64>, u64),
    /// The misses last counted.
    pub misses: Option<Misses>,
}

/// A switch in [`StatsReply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchOf {
    /// The application's id.
    pub app: String,
    /// What it did.
    #[serde(flatten)]
    pub record: SwitchRecord,
}

/// Reply to `Explain`: what is known, what would be fetched and why, what the last switches did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainReply {
    /// The application's id.
    pub app: String,
    /// Whether it is tracked.
    pub tracked: bool,
    /// The mode in force.
    pub mode: Mode,
    /// Switches seen in the life of its profile.
    pub switches: u64,
    /// Profiling switches done, of how many (the paper's Offline Candidate Table).
    pub profiled: (u8, u8),
    /// Anonymous pages below this probability of use are not fetched.
    pub confidence: f32,
    /// File pages below this one are not.
    pub file_confidence: f32,
    /// Why they are that high.
    pub confidence_reason: String,
    /// Switches for which it is left alone from now on, since its demand did not end.
    pub left_alone: u32,
    /// How many things are missing on this machine, which `Status` names.
    #[serde(default)]
    pub missing: u64,
    /// Anonymous pages known, by process.
    pub processes: Vec<ExplainedTable>,
    /// File pages known, by file; the largest plans first.
    pub files: Vec<ExplainedTable>,
    /// Files that are known and not listed.
    pub files_left_out: u64,
    /// Their pages, and those of them that would be fetched.
    #[serde(default)]
    pub pages_left_out: (u64, u64),
    /// The last switches, oldest first.
    pub last: Vec<SwitchRecord>,
    /// What is known of its launches.
    pub launch: ExplainedLaunch,
}

/// What is known of an application's launches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedLaunch {
    /// Launches seen.
    pub launches: u64,
    /// What is done for the next one, and why not more.
    pub phase: Phase,
    /// Recordings made in the profiling phase, of how many (N_rawseq).
    pub recordings: (u32, u32),
    /// Launches for which the application is still left alone.
    pub left_alone: u32,
    /// Pages of the launch sequence.
    pub sequence_pages: u64,
    /// Paths of the launch sequence.
    pub sequence_paths: u64,
    /// Pages of inodes and directories that are read by their devices.
    pub metadata_pages: u64,
    /// Files of the launch sequence.
    pub sequence_files: u64,
    /// Those with the most pages.
    pub files: Vec<SequenceFilePages>,
    /// Files that the launch last recorded used beyond those that a recording holds: nothing is learned of them.
    #[serde(default)]
    pub files_left_out: u64,
    /// The misses last counted.
    pub misses: Option<Misses>,
    /// Median time of helped cold launches in microseconds, and of how many.
    pub helped_us: (Option<u64>, u64),
    /// The same of those held out.
    pub held_out_us: (Option<u64>, u64),
    /// The last launches, oldest first.
    pub last: Vec<LaunchRecord>,
}

/// A file of a launch sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceFilePages {
    /// Its path.
    pub path: String,
    /// Its pages in the sequence.
    pub pages: u64,
    /// Recordings that they were learned from.
    pub recordings: u32,
}

/// The pages known of one process or file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedTable {
    /// `process PID`, or the file's path.
    pub of: String,
    /// Pages known.
    pub known_pages: u64,
    /// Pages that the next switch would fetch.
    pub planned_pages: u64,
    /// By table and history.
    pub classes: Vec<ExplainedClass>,
}

/// Pages that share a table and a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedClass {
    /// Name of the table.
    pub table: String,
    /// Last known observations, oldest first: `+` used, `-` not used.
    pub history: String,
    /// Pages.
    pub pages: u64,
    /// Measured probability that they are used in the next switch.
    pub probability: f32,
    /// How many of them the next switch would fetch.
    pub planned_pages: u64,
}
