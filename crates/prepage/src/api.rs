//! The service's interface: its methods, what they take and give, and their errors. Shared by service and clients.

use crate::launch::options::LaunchOptions;
use crate::launch::record::{DecisionRecord, LaunchRecord};
use crate::wire::Request;
use prepage_core::launch::manager::Phase;
use prepage_core::launch::misses::Misses;
use prepage_core::launch::recording::CallKind;
use prepage_core::outcome::SwitchRecord;
use prepage_core::params::Mode;
use prepage_engine::CorePolicy;
use prepage_engine::store::StoredApp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The name of our interface.
pub const INTERFACE: &str = "org.prepage.Prepage1";

/// The interface that every Varlink service has.
pub const SERVICE_INTERFACE: &str = "org.varlink.service";

/// Our interface, as Varlink describes it.
pub const DESCRIPTION: &str = include_str!("org.prepage.Prepage1.varlink");

/// The description of the interface that every Varlink service has.
pub const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");

/// Which application is meant: by a process, a control group or a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// One of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its control group: an absolute directory of any hierarchy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its name; with `pid` or `cgroup`, the name to give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Who reports a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reporter {
    /// A framework or a user says so.
    #[default]
    Explicit,
    /// A window got the focus.
    Focus,
}

/// Parameters of `SwitchBegin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BeginParameters {
    /// The application.
    #[serde(flatten)]
    pub target: Target,
    /// Who reports it.
    pub source: Reporter,
}

impl BeginParameters {
    /// By hand: serde does not refuse unknown fields of a struct that another is flattened into.
    fn read(mut parameters: Map<String, Value>) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Source {
            #[serde(default)]
            source: Reporter,
        }
        let source = parameters.remove_entry("source").into_iter().collect();
        Ok(Self {
            source: read::<Source>(source)?.source,
            target: read(parameters)?,
        })
    }
}

/// Parameters of `LaunchBegin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchBeginParameters {
    /// The executable that the caller is about to execute: an absolute path.
    pub exe: String,
    /// What names the application: the executable, or what it interprets.
    pub name: String,
    /// How this launch differs from what is configured.
    #[serde(default)]
    pub options: LaunchOptions,
    /// Whether the caller traces it.
    #[serde(default)]
    pub tracing: Tracing,
}

/// Whether whoever launches a program traces its paths, where they are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracing {
    /// It does not.
    #[default]
    No,
    /// It can: then the launch begins with the next call.
    Possible,
    /// It does.
    Ready,
}

/// Parameters of the methods on one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchParameters {
    /// The launch, as the reply to `LaunchBegin` names it.
    pub launch: u64,
}

/// How a launch went on, as its caller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchOutcome {
    /// The picture that stays is there.
    Settled,
    /// The program was not executed.
    Failed,
}

/// Parameters of `LaunchEnd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchEndParameters {
    /// As in [`LaunchParameters`].
    pub launch: u64,
    /// How it went on.
    pub outcome: LaunchOutcome,
}

/// Parameters of `LaunchPaths`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchPathsParameters {
    /// As in [`LaunchParameters`].
    pub launch: u64,
    /// Path calls, in order: what each did, its absolute path, and whether that was found.
    pub calls: Vec<(CallKind, String, bool)>,
    /// With the last of them: whether these are all that the launch made.
    pub complete: Option<bool>,
}

/// Parameters of `SetMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeParameters {
    /// The mode.
    pub mode: Mode,
}

/// Parameters of `SetCorePolicy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePolicyParameters {
    /// The policy.
    pub core_policy: CorePolicy,
}

/// Parameters of the methods on one application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppParameters {
    /// Its id, as replies give it, or a name that only one application has.
    pub app: String,
}

/// Parameters of `Stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatsParameters {
    /// The application; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
}

/// Parameters of `Import`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportParameters {
    /// An exported profile, its bytes in hexadecimal.
    pub profile: String,
}

/// Parameters of `org.varlink.service.GetInterfaceDescription`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceParameters {
    /// The interface's name.
    pub interface: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `org.varlink.service.GetInfo`
    GetInfo,
    /// `org.varlink.service.GetInterfaceDescription`
    GetInterfaceDescription(InterfaceParameters),
    /// `Track`
    Track(Target),
    /// `Untrack`
    Untrack(Target),
    /// `SwitchBegin`
    SwitchBegin(BeginParameters),
    /// `SwitchEnd`
    SwitchEnd(Target),
    /// `Restore`
    Restore(Target),
    /// `RestoreReport`
    RestoreReport(RestoreParameters),
    /// `LaunchBegin`
    LaunchBegin(LaunchBeginParameters),
    /// `LaunchEnd`
    LaunchEnd(LaunchEndParameters),
    /// `LaunchPaths`
    LaunchPaths(LaunchPathsParameters),
    /// `LaunchPrefetched`
    LaunchPrefetched(LaunchParameters),
    /// `LaunchReport`
    LaunchReport(LaunchParameters),
    /// `SetMode`
    SetMode(ModeParameters),
    /// `SetCorePolicy`
    SetCorePolicy(CorePolicyParameters),
    /// `Status`
    Status,
    /// `ListApps`
    ListApps,
    /// `Forget`
    Forget(AppParameters),
    /// `Export`
    Export(AppParameters),
    /// `Import`
    Import(ImportParameters),
    /// `Explain`
    Explain(AppParameters),
    /// `Stats`
    Stats(StatsParameters),
}

impl Call {
    /// Reads a request as one of our methods.
    ///
    /// # Errors
    /// The Varlink error to answer with.
    pub fn parse(request: Request) -> Result<Self, ApiError> {
        let Request {
            method,
            mut parameters,
            ..
        } = request;
        drop_nulls(&mut parameters);
        let (interface, name) = method.rsplit_once('.').unwrap_or_default();
        match (interface, name) {
            (SERVICE_INTERFACE, "GetInfo") => {
                read::<NoParameters>(parameters).map(|_| Self::GetInfo)
            }
            (SERVICE_INTERFACE, "GetInterfaceDescription") => {
                read(parameters).map(Self::GetInterfaceDescription)
            }
            (INTERFACE, "Track") => read(parameters).map(Self::Track),
            (INTERFACE, "Untrack") => read(parameters).map(Self::Untrack),
            (INTERFACE, "SwitchBegin") => BeginParameters::read(parameters).map(Self::SwitchBegin),
            (INTERFACE, "SwitchEnd") => read(parameters).map(Self::SwitchEnd),
            (INTERFACE, "Restore") => read(parameters).map(Self::Restore),
            (INTERFACE, "RestoreReport") => read(parameters).map(Self::RestoreReport),
            (INTERFACE, "LaunchBegin") => read(parameters).map(Self::LaunchBegin),
            (INTERFACE, "LaunchEnd") => read(parameters).map(Self::LaunchEnd),
            (INTERFACE, "LaunchPaths") => read(parameters).map(Self::LaunchPaths),
            (INTERFACE, "LaunchPrefetched") => read(parameters).map(Self::LaunchPrefetched),
            (INTERFACE, "LaunchReport") => read(parameters).map(Self::LaunchReport),
            (INTERFACE, "SetMode") => read(parameters).map(Self::SetMode),
            (INTERFACE, "SetCorePolicy") => read(parameters).map(Self::SetCorePolicy),
            (INTERFACE, "Status") => read::<NoParameters>(parameters).map(|_| Self::Status),
            (INTERFACE, "ListApps") => read::<NoParameters>(parameters).map(|_| Self::ListApps),
            (INTERFACE, "Forget") => read(parameters).map(Self::Forget),
            (INTERFACE, "Export") => read(parameters).map(Self::Export),
            (INTERFACE, "Import") => read(parameters).map(Self::Import),
            (INTERFACE, "Explain") => read(parameters).map(Self::Explain),
            (INTERFACE, "Stats") => read(parameters).map(Self::Stats),
            (SERVICE_INTERFACE | INTERFACE, _) => Err(ApiError::MethodNotFound(method)),
            _ => Err(ApiError::InterfaceNotFound(interface.into())),
        }
    }
}

/// What is optional may be left out or null: a client that has a value for each parameter sends it so.
fn drop_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| {
        if let Value::Object(fields) = value {
            drop_nulls(fields);
        }
        !value.is_null()
    });
}

fn read<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, ApiError> {
    serde_json::from_value(Value::Object(parameters)).map_err(|error| {
        let reason = error.to_string();
        // serde names the parameter between backticks, where it is about one.
        let parameter = reason.split('`').nth(1).unwrap_or("parameters").to_owned();
        ApiError::InvalidParameter { parameter, reason }
    })
}

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
    /// Whether its paths are wanted: it has not begun, and does with the next call ([`Tracing`]).
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

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// Not a Varlink message.
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// There is no such interface.
    InterfaceNotFound(String),
    /// The interface has no such method.
    MethodNotFound(String),
    /// A parameter is missing, unknown or wrong.
    InvalidParameter {
        /// Which.
        parameter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The caller may not do that.
    PermissionDenied {
        /// Why, and who may.
        reason: String,
    },
    /// There is no such process, control group or application, or several.
    NotFound {
        /// What was looked for.
        reason: String,
    },
    /// The application is not tracked.
    NotTracked {
        /// Which.
        app: String,
    },
    /// It cannot be done.
    Failed {
        /// Why.
        reason: String,
    },
}

impl ApiError {
    /// Its name and parameters on the wire.
    pub fn to_wire(&self) -> (String, Value) {
        let ours = |name: &str| format!("{INTERFACE}.{name}");
        let varlink = |name: &str| format!("{SERVICE_INTERFACE}.{name}");
        match self {
            Self::Malformed { reason } => (ours("Malformed"), json!({ "reason": reason })),
            Self::InterfaceNotFound(interface) => (
                varlink("InterfaceNotFound"),
                json!({ "interface": interface }),
            ),
            Self::MethodNotFound(method) => {
                (varlink("MethodNotFound"), json!({ "method": method }))
            }
            Self::InvalidParameter { parameter, reason } => (
                varlink("InvalidParameter"),
                json!({ "parameter": parameter, "reason": reason }),
            ),
            Self::PermissionDenied { reason } => {
                (ours("PermissionDenied"), json!({ "reason": reason }))
            }
            Self::NotFound { reason } => (ours("NotFound"), json!({ "reason": reason })),
            Self::NotTracked { app } => (ours("NotTracked"), json!({ "app": app })),
            Self::Failed { reason } => (ours("Failed"), json!({ "reason": reason })),
        }
    }

    /// An error that came over the wire, in words for a person.
    pub fn describe(name: &str, parameters: &Map<String, Value>) -> String {
        let text = |key: &str| parameters.get(key).and_then(Value::as_str);
        let short = name.rsplit('.').next().unwrap_or(name);
        match (short, text("reason"), text("app")) {
            ("NotTracked", _, Some(app)) => format!(
                "{app} is not tracked: see `prepage status`, or track it with `prepage track`"
            ),
            (_, Some(reason), _) => reason.to_owned(),
            ("MethodNotFound", ..) => {
                "the service does not know this call: is prepaged older than prepage?".to_owned()
            }
            _ => format!("{name} {}", Value::Object(parameters.clone())),
        }
    }
}

/// Bytes in hexadecimal: JSON has no bytes.
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// What [`to_hexadecimal`] wrote; `None` where it is something else.
pub fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::options::parse_word;
    use crate::wire::parse_request;

    fn call(text: &str) -> Result<Call, ApiError> {
        Call::parse(parse_request(text.as_bytes()).expect("a request"))
    }

    #[test]
    fn hexadecimal_goes_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hexadecimal(&to_hexadecimal(&bytes)), Some(bytes));
        assert_eq!(from_hexadecimal("0"), None);
        assert_eq!(from_hexadecimal("0g"), None);
        assert_eq!(from_hexadecimal("é"), None);
    }

    #[test]
    fn wrong_calls_name_what_is_wrong() {
        let error = call(r#"{"method":"org.prepage.Prepage1.Track","parameters":{"pit":1}}"#);
        assert!(
            matches!(&error, Err(ApiError::InvalidParameter { parameter, .. }) if parameter == "pit"),
            "{error:?}"
        );
        let error = call(r#"{"method":"org.prepage.Prepage1.Nothing"}"#);
        assert_eq!(
            error,
            Err(ApiError::MethodNotFound(
                "org.prepage.Prepage1.Nothing".into()
            ))
        );
        let error = call(r#"{"method":"org.example.Status"}"#);
        assert_eq!(
            error,
            Err(ApiError::InterfaceNotFound("org.example".into()))
        );
        let error =
            call(r#"{"method":"org.prepage.Prepage1.SetMode","parameters":{"mode":"fast"}}"#);
        assert!(matches!(error, Err(ApiError::InvalidParameter { .. })));
    }

    #[test]
    fn the_beginning_of_a_switch_is_read_as_it_is_written() {
        let begin = |parameters: &str| {
            call(&format!(
                r#"{{"method":"{INTERFACE}.SwitchBegin","parameters":{parameters}}}"#
            ))
        };
        let target = Target {
            pid: Some(7),
            ..Target::default()
        };
        for source in [Reporter::Explicit, Reporter::Focus] {
            let given = BeginParameters {
                target: target.clone(),
                source,
            };
            let text = serde_json::to_string(&given).expect("encodable");
            assert_eq!(begin(&text), Ok(Call::SwitchBegin(given)), "{text}");
        }
        let without_source = BeginParameters {
            target,
            ..BeginParameters::default()
        };
        assert_eq!(begin(r#"{"pid":7}"#), Ok(Call::SwitchBegin(without_source)));
        for (wrong, named) in [
            (r#"{"pit":7}"#, "pit"),
            (r#"{"pid":7,"source":"wish"}"#, "wish"),
        ] {
            let Err(ApiError::InvalidParameter { parameter, .. }) = begin(wrong) else {
                panic!("{wrong} was taken")
            };
            assert_eq!(parameter, named);
        }
    }

    #[test]
    fn an_optional_parameter_may_be_null() {
        let read = |method: &str, parameters: &str| {
            call(&format!(
                r#"{{"method":"{INTERFACE}.{method}","parameters":{parameters}}}"#
            ))
        };
        for (method, given, left_out) in [
            (
                "SwitchBegin",
                r#"{"pid":7,"cgroup":null,"source":null}"#,
                r#"{"pid":7}"#,
            ),
            (
                "LaunchBegin",
                r#"{"exe":"/a","name":"/a","options":null,"tracing":null}"#,
                r#"{"exe":"/a","name":"/a"}"#,
            ),
            (
                "LaunchBegin",
                r#"{"exe":"/a","name":"/a","options":{"order":null,"record":null}}"#,
                r#"{"exe":"/a","name":"/a","options":{}}"#,
            ),
        ] {
            let expected = read(method, left_out);
            assert!(expected.is_ok(), "{left_out}: {expected:?}");
            assert_eq!(read(method, given), expected, "{given}");
        }
        let error = read("SetMode", r#"{"mode":null}"#);
        assert!(
            matches!(&error, Err(ApiError::InvalidParameter { parameter, .. }) if parameter == "mode"),
            "{error:?}"
        );
    }

    fn set(method: &str, parameter: &str, word: &str) -> Result<Call, ApiError> {
        call(&format!(
            r#"{{"method":"{INTERFACE}.{method}","parameters":{{"{parameter}":"{word}"}}}}"#
        ))
    }

    #[test]
    fn a_core_policy_is_read_by_its_word_and_by_no_other() {
        let set = |word| set("SetCorePolicy", "core_policy", word);
        for core_policy in CorePolicy::ALL {
            let parameters = CorePolicyParameters { core_policy };
            let word = core_policy.word();
            assert_eq!(set(word), Ok(Call::SetCorePolicy(parameters)), "{word}");
            assert_eq!(parse_word(word), Ok(core_policy));
        }
        assert!(matches!(set("big"), Err(ApiError::InvalidParameter { .. })));
    }

    #[test]
    fn a_mode_is_read_by_its_word_and_by_no_other() {
        let set = |word| set("SetMode", "mode", word);
        for mode in Mode::ALL {
            let word = mode.word();
            assert_eq!(set(word), Ok(Call::SetMode(ModeParameters { mode })));
            assert_eq!(parse_word(word), Ok(mode));
        }
        assert!(parse_word::<Mode>("fast").is_err());
    }

    #[test]
    fn every_method_of_the_description_exists() {
        for line in DESCRIPTION
            .lines()
            .filter_map(|l| l.strip_prefix("method "))
        {
            let name = line.split('(').next().unwrap_or_default();
            let request = parse_request(format!(r#"{{"method":"{INTERFACE}.{name}"}}"#).as_bytes());
            let parsed = Call::parse(request.expect("a request"));
            assert!(
                !matches!(parsed, Err(ApiError::MethodNotFound(_))),
                "{name}"
            );
        }
    }
}
