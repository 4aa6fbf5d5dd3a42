//! The records that are kept.

use std::path::Path;

#[test]
fn what_is_said_to_be_kept_is_there() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let text = std::fs::read_to_string(results.join("README.md")).expect("read");
    let words = text.split(|c: char| c.is_whitespace() || "`,()".contains(c));
    let records: Vec<&str> = words
        .filter(|word| word.ends_with(".jsonl.gz") && !word.contains('*'))
        .map(|word| word.trim_start_matches("results/"))
        .collect();
    assert!(records.len() > 10, "{records:?}");
    let missing = |record: &&&str| !results.join(record).is_file();
    let missing: Vec<_> = records.iter().filter(missing).collect();
    assert!(missing.is_empty(), "named and not kept: {missing:?}");
}

#[test]
fn every_record_is_made_by_a_part_of_make_bench() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let makefile = std::fs::read_to_string(root.join("Makefile")).expect("read");
    let parts = makefile.replace("\\\n", "");
    let parts = parts
        .lines()
        .find_map(|line| line.strip_prefix("BENCH_PARTS ="));
    let parts: Vec<&str> = parts.expect("the parts").split_whitespace().collect();
    let text = std::fs::read_to_string(root.join("results/README.md")).expect("read");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("jsonl.gz` |"));
    let commands = ["| `run ", "| `launch ", "| `idle ", "| `demo`"];
    let rows: Vec<&str> = rows
        .filter(|row| commands.iter().any(|command| row.contains(command)))
        .collect();
    assert!(rows.len() > 10, "{rows:#?}");
    let made_by_none: Vec<&&str> = rows
        .iter()
        .filter(|row| {
            let part = row.trim_end_matches(" |").rsplit("| ").next();
            let part = part.map(|part| part.trim_matches('`').trim_start_matches("bench-"));
            !part.is_some_and(|part| parts.contains(&part))
        })
        .collect();
    assert!(made_by_none.is_empty(), "{made_by_none:#?}");
}
