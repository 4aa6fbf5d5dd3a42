//! What the methods of the service take.

use super::{ApiError, read};
use crate::launch::options::LaunchOptions;
use prepage_core::launch::recording::CallKind;
use prepage_core::params::Mode;
use prepage_engine::CorePolicy;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    pub(super) fn read(mut parameters: Map<String, Value>) -> Result<Self, ApiError> {
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
