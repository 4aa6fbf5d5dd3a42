//! What whoever launches may ask for: in which order, when, and whether to record.

use prepage_core::launch::manager::Decision;
use prepage_core::params::launch::{LaunchOrder, LaunchParams, LaunchStart};
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

/// Whether a launch is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    /// As the manager decides.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: such a launch teaches nothing.
    Never,
}

/// How one launch differs from what the configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaunchOptions {
    /// Order of the prefetch. Given, the launch is no hold-out either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<LaunchOrder>,
    /// When the application begins to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<LaunchStart>,
    /// Whether it is recorded.
    pub record: Record,
}

impl LaunchOptions {
    /// The parameters of this launch.
    pub fn parameters(&self, configured: &LaunchParams) -> LaunchParams {
        let mut params = configured.clone();
        if let Some(order) = self.order {
            (params.order, params.rotational_order) = (order, order);
            params.holdout_every = 0;
        }
        if let Some(start) = self.start {
            (params.start, params.rotational_start) = (start, start);
        }
        params
    }

    /// What was decided, changed as far as was asked for.
    pub fn amend(&self, decision: &mut Decision) {
        match self.record {
            Record::Auto => {}
            Record::Always => decision.records = true,
            Record::Never => (decision.records, decision.profiles_paths) = (false, false),
        }
        // What is not run shows nothing.
        if self.start == Some(LaunchStart::Only) {
            let prefetch = decision.prefetch.take();
            *decision = Decision {
                prefetch,
                ..Decision::default()
            };
        }
    }

    /// Whether nothing is asked for that differs from the configuration.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A word as serde knows it; otherwise what it may be.
pub fn parse_word<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    let words: StrDeserializer<'a, Error> = text.into_deserializer();
    T::deserialize(words).map_err(|error| {
        let text = error.to_string().replace('`', "");
        let expected = text.split_once("expected ").map(|(_, expected)| expected);
        format!("it is {}", expected.unwrap_or(&text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_configuration() {
        assert_eq!(parse_word("whole-files"), Ok(LaunchOrder::WholeFiles));
        assert_eq!(parse_word("only"), Ok(LaunchStart::Only));
        let error = parse_word::<LaunchOrder>("fast").expect_err("no order");
        assert!(error.contains("launch, lba, whole-files, none"), "{error}");
    }

    #[test]
    fn an_order_that_was_asked_for_is_not_held_out() {
        let configured = LaunchParams::default();
        let order = Some(LaunchOrder::Lba);
        let asked = LaunchOptions {
            order,
            ..LaunchOptions::default()
        };
        let params = asked.parameters(&configured);
        assert_eq!(
            (params.order, params.rotational_order),
            (LaunchOrder::Lba, LaunchOrder::Lba)
        );
        assert_eq!(params.holdout_every, 0);
        assert_eq!(LaunchOptions::default().parameters(&configured), configured);
    }
}
