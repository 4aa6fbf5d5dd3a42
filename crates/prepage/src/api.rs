//! The service's interface: its methods, what they take and give, and their errors. Shared by service and clients.

mod error;
mod hexadecimal;
mod parameters;
mod replies;

pub use error::ApiError;
pub use hexadecimal::{from_hexadecimal, to_hexadecimal};
pub use parameters::*;
pub use replies::*;

use crate::wire::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The name of our interface.
pub const INTERFACE: &str = "org.prepage.Prepage1";

/// The interface that every Varlink service has.
pub const SERVICE_INTERFACE: &str = "org.varlink.service";

/// Our interface, as Varlink describes it.
pub const DESCRIPTION: &str = include_str!("api/org.prepage.Prepage1.varlink");

/// The description of the interface that every Varlink service has.
pub const SERVICE_DESCRIPTION: &str = include_str!("api/org.varlink.service.varlink");

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::options::parse_word;
    use crate::wire::parse_request;
    use prepage_core::params::Mode;
    use prepage_engine::CorePolicy;

    fn call(text: &str) -> Result<Call, ApiError> {
        Call::parse(parse_request(text.as_bytes()).expect("a request"))
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
