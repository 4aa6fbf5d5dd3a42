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
