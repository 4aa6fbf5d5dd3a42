//! Parameters given on the command line by the names that the configuration file has: `budget.confidence=0.7`.

use crate::error::{Context, Error, Result};
use prepage_core::params::Params;
use serde_json::{Value, json};

/// Most points that sweeps may make together.
const POINTS_MAX: usize = 1024;

/// The tables that a replay depends on.
const TABLES: [&str; 3] = ["anon", "file", "budget"];

/// Why a replay does not depend on a parameter, if it does not.
fn without_effect(table: &str, key: &str) -> Option<&'static str> {
    match (table, key) {
        ("budget", "confidence_pressure") => Some("there is no memory pressure in a replay"),
        ("budget", "cool_below") => Some("nothing is made cold in a replay"),
        ("launch", _) => Some("a recording holds switches, no launches"),
        _ if TABLES.contains(&table) => None,
        _ => Some("a recording holds no times"),
    }
}

/// Parameters under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What was set, as it was given; empty where nothing was.
    pub name: String,
    /// All of them.
    pub params: Params,
}

/// `base` with these `KEY=VALUE` set.
///
/// # Errors
/// An unknown key, a value that it does not take, or one that no replay depends on.
pub fn set(base: &Params, given: &[String]) -> Result<Params> {
    given
        .iter()
        .try_fold(base.clone(), |params, given| {
            let (key, value) = split(given)?;
            with(&params, key, value)
        })
        .and_then(checked)
}

/// `base` at every combination of the values of `KEY=V1,V2,...`; `base` itself where none is given.
///
/// # Errors
/// As [`set`]; more than 1,024 combinations.
pub fn sweep(base: &Params, given: &[String]) -> Result<Vec<Point>> {
    let mut points = vec![Point {
        name: String::new(),
        params: base.clone(),
    }];
    for given in given {
        let (key, values) = split(given)?;
        let values: Vec<&str> = values.split(',').collect();
        if points.len() * values.len() > POINTS_MAX {
            let cause = format!("it makes more than {POINTS_MAX} combinations");
            return Err(Error::new("sweep", given, cause));
        }
        let with_each = points.iter().flat_map(|point| {
            let named = |value: &&str| {
                let name = format!("{} {key}={value}", point.name);
                let params = with(&point.params, key, value)?;
                Ok(Point {
                    name: name.trim_start().to_owned(),
                    params,
                })
            };
            values.iter().map(named).collect::<Vec<_>>()
        });
        points = with_each.collect::<Result<_>>()?;
    }
    for point in &points {
        checked(point.params.clone())?;
    }
    Ok(points)
}

fn split(given: &str) -> Result<(&str, &str)> {
    given.split_once('=').ok_or_else(|| {
        Error::new(
            "read",
            given,
            "it is not KEY=VALUE, as budget.confidence=0.7",
        )
    })
}

fn checked(params: Params) -> Result<Params> {
    params.check().context("set", "parameters")?;
    Ok(params)
}

/// Ranges are left to the end: what is out of range by itself may be right together with what is set next.
fn with(params: &Params, key: &str, value: &str) -> Result<Params> {
    let mut all = json!(params);
    let (table, name) = key.split_once('.').unwrap_or_default();
    let Some(place) = all.get_mut(table).and_then(|keys| keys.get_mut(name)) else {
        return Err(Error::new("set", key, format!("it is one of {}", keys())));
    };
    if let Some(why) = without_effect(table, name) {
        return Err(Error::new("set", key, format!("it has no effect: {why}")));
    }
    // Words need no quotes here.
    *place = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.into()));
    serde_json::from_value(all).context("set", format!("{key}={value}"))
}

fn keys() -> String {
    let tables = json!(Params::default());
    let tables = tables.as_object().into_iter().flatten();
    let keys = tables.flat_map(|(table, keys)| {
        let keys = keys.as_object().into_iter().flatten();
        let with_effect = keys.filter(|(key, _)| without_effect(table, key).is_none());
        with_effect.map(move |(key, _)| format!("{table}.{key}"))
    });
    keys.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::params::AnonRule;

    fn given(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn every_parameter_that_has_an_effect_is_set_by_its_name() {
        let list = [
            "anon.rule=paper",
            "anon.runs_max=100",
            "file.merge_gap_pages=0",
            "budget.confidence=0.75",
        ];
        let params = set(&Params::default(), &given(&list)).expect("right");
        assert_eq!(params.anon.rule, AnonRule::Paper);
        assert_eq!(
            (params.anon.runs_max, params.file.merge_gap_pages),
            (100, 0)
        );
        assert_eq!(params.budget.confidence, 0.75);
        for key in keys().split(", ") {
            let same = json!(Params::default());
            let (table, name) = key.split_once('.').expect("a key");
            let text = format!("{key}={}", same[table][name]);
            assert_eq!(
                set(&Params::default(), &[text]).expect(key),
                Params::default()
            );
        }
    }

    #[test]
    fn mistakes_say_what_is_wrong() {
        for (text, part) in [
            ("anon.rule", "KEY=VALUE"),
            ("anon.rules=paper", "anon.rule, "),
            ("confidence=1", "budget.confidence"),
            ("anon.rule=best", "`paper` or `history`"),
            ("anon.timeout_switches=x", "expected u8"),
            ("anon.timeout_switches=0", "1 to 127"),
            ("switch.quiet_ms=3", "no times"),
        ] {
            let error = set(&Params::default(), &given(&[text])).expect_err(text);
            assert!(error.to_string().contains(part), "{error}");
            let error = sweep(&Params::default(), &given(&[text])).expect_err(text);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn sweeps_make_every_combination_in_order() {
        let sweeps = given(&["anon.timeout_switches=3,5", "budget.confidence=0.5,0.6,0.7"]);
        let points = sweep(&Params::default(), &sweeps).expect("right");
        let names: Vec<&str> = points.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names[0], "anon.timeout_switches=3 budget.confidence=0.5");
        assert_eq!(
            (names.len(), names[4]),
            (6, "anon.timeout_switches=5 budget.confidence=0.6")
        );
        assert_eq!(points[4].params, Params::default());
        assert_eq!(sweep(&Params::default(), &[]).expect("right").len(), 1);
        let many = (0..2000)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(",");
        assert!(
            sweep(
                &Params::default(),
                &[format!("file.merge_gap_pages={many}")]
            )
            .is_err()
        );
        // Neither order of the two is right at every step; together they are.
        let both = given(&["file.profile_switches=5", "file.profile_accesses_min=3"]);
        assert!(set(&Params::default(), &both).is_ok());
    }
}
