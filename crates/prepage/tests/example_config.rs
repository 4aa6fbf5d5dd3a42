//! `dist/prepage.toml` holds every parameter with its default and the documentation that stands where the parameter is
//! defined. It is made here: `UPDATE_EXAMPLE=1 cargo test -p prepage --test example_config` writes it anew.

use prepage::config::{Config, merge};
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# The configuration of prepaged: every parameter with its default. It goes to /etc/prepage/prepage.toml with its values
# commented out: what is not set has the default of the version that runs. Files in /etc/prepage/prepage.toml.d/*.toml
# win over it, key by key, in the order of their names. Unknown keys and values outside their ranges are errors.
# `prepaged --check` says whether it is right. `systemctl reload prepaged` (SIGHUP) takes a change over, but for the
# parameters of which it says here that a change needs a restart.
#
# Generated from the documentation of the code by crates/prepage/tests/example_config.rs.
";

/// The tables, the struct that defines each, and the source that documents it.
const TABLES: [(&str, &str, &str); 9] = [
    (
        "service",
        "ServiceSettings",
        include_str!("../src/config.rs"),
    ),
    (
        "anon",
        "AnonParams",
        include_str!("../../core/src/params.rs"),
    ),
    (
        "file",
        "FileParams",
        include_str!("../../core/src/params.rs"),
    ),
    (
        "switch",
        "SwitchParams",
        include_str!("../../core/src/params.rs"),
    ),
    (
        "budget",
        "BudgetParams",
        include_str!("../../core/src/params.rs"),
    ),
    (
        "reclaim",
        "ReclaimParams",
        include_str!("../../core/src/params.rs"),
    ),
    (
        "launch",
        "LaunchParams",
        include_str!("../../core/src/params/launch.rs"),
    ),
    (
        "fetch",
        "FetchParams",
        include_str!("../../engine/src/params.rs"),
    ),
    (
        "observe",
        "ObserveParams",
        include_str!("../../engine/src/params.rs"),
    ),
];

fn comment(line: &str) -> Option<&str> {
    let text = line.trim().strip_prefix("///")?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// The documentation of a struct, and of each of its fields.
fn documentation(source: &str, name: &str) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let opening = format!("pub struct {name} {{");
    let lines: Vec<&str> = source.lines().collect();
    let at = lines
        .iter()
        .position(|l| *l == opening)
        .unwrap_or_else(|| panic!("no struct {name}"));
    let above = lines[..at]
        .iter()
        .rev()
        .take_while(|l| !l.trim().is_empty() && **l != "}");
    let mut head: Vec<String> = above
        .filter_map(|l| comment(l))
        .map(str::to_owned)
        .collect();
    head.reverse();
    let (mut fields, mut pending) = (Vec::new(), Vec::new());
    for line in lines[at + 1..].iter().take_while(|l| **l != "}") {
        if let Some(text) = comment(line) {
            pending.push(text.to_owned());
        } else if let Some((field, _)) = line
            .trim()
            .strip_prefix("pub ")
            .and_then(|l| l.split_once(':'))
        {
            fields.push((field.to_owned(), std::mem::take(&mut pending)));
        }
    }
    (head, fields)
}

/// What a word may be, as the parser says when it is given another.
fn allowed(table: &str, field: &str) -> Option<String> {
    let text = format!("[{table}]\n{field} = \"?\"\n");
    let error = merge(&[(PathBuf::from("x"), text)]).err()?.to_string();
    let (_, words) = error.split_once("unknown variant `?`, expected ")?;
    let words = words.split_once(", in:").map_or(words, |(words, _)| words);
    Some(words.trim_start_matches("one of ").replace('`', "\""))
}

fn example() -> String {
    let defaults = toml::Table::try_from(Config::default()).expect("serializable");
    let mut text = HEAD.to_owned();
    for (table, name, source) in TABLES {
        let (head, fields) = documentation(source, name);
        let values = defaults[table].as_table().expect("a table");
        assert_eq!(
            values.len(),
            fields.len(),
            "every field of [{table}] is documented"
        );
        text += "\n";
        head.iter().for_each(|line| text += &format!("# {line}\n"));
        text += &format!("[{table}]\n");
        for (field, lines) in fields {
            assert!(!lines.is_empty(), "{table}.{field} is documented");
            lines.iter().for_each(|line| text += &format!("# {line}\n"));
            if let Some(words) = allowed(table, &field) {
                text += &format!("# One of: {words}.\n");
            }
            if let Some(range) = Config::range(&format!("{table}.{field}")) {
                text += &format!("# Range: {range}.\n");
            }
            text += &format!("{field} = {}\n", value(&values[&field]));
        }
    }
    text
}

/// A value as people write it: a share that is kept in 32 bits reads 0.7, not 0.699999988079071.
fn value(value: &toml::Value) -> String {
    match value {
        toml::Value::Float(number) => format!("{:?}", *number as f32),
        other => other.to_string(),
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/prepage.toml")
}

#[test]
fn the_example_is_what_the_code_documents() {
    let made = example();
    if std::env::var_os("UPDATE_EXAMPLE").is_some() {
        std::fs::write(path(), &made).expect("writable");
    }
    let kept = std::fs::read_to_string(path()).unwrap_or_default();
    let pairs = kept.lines().zip(made.lines()).enumerate();
    let differs = pairs
        .map(|(at, lines)| (at + 1, lines))
        .find(|(_, (kept, made))| kept != made);
    assert!(
        kept == made,
        "dist/prepage.toml is out of date ({differs:?}): UPDATE_EXAMPLE=1 cargo test -p prepage --test example_config"
    );
}

#[test]
fn the_example_parses_to_the_defaults() {
    let text = std::fs::read_to_string(path()).expect("dist/prepage.toml");
    let config = merge(&[(path(), text)]).expect("well formed");
    assert!(
        config == Config::default(),
        "dist/prepage.toml does not hold the defaults"
    );
}
