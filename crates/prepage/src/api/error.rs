//! Why the service refuses a call, on the wire and in words.

use super::{INTERFACE, SERVICE_INTERFACE};
use serde_json::{Map, Value, json};

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
