//! The records that are kept.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results")
}

#[test]
fn what_is_said_to_be_kept_is_there() {
    let results = results();
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

/// What the study of the first lines of a kept record prints, what it complains of, and its exit status.
fn study_of_first(lines: usize, record: &str) -> (String, String, Option<i32>) {
    let name = format!("prepage-begun-{}-{record}", std::process::id());
    let begun = std::env::temp_dir().join(name.trim_end_matches(".gz"));
    let mut unpacked = Command::new("zcat")
        .arg(results().join(record))
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs zcat");
    let first = Command::new("head")
        .arg(format!("-n{lines}"))
        .stdin(unpacked.stdout.take().expect("piped"))
        .output()
        .expect("this test needs head");
    unpacked.wait().expect("ended");
    std::fs::write(&begun, &first.stdout).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .arg("study")
        .arg(&begun)
        .output()
        .expect("run prepage-eval");
    std::fs::remove_file(begun).expect("removed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code(),
    )
}

#[test]
fn a_record_without_samples_is_told_and_not_studied() {
    for record in [
        "launches.jsonl.gz",
        "idle-zram.jsonl.gz",
        "together.jsonl.gz",
    ] {
        let (shown, said, status) = study_of_first(1, record);
        assert_eq!((&*shown, status), ("", Some(1)), "{record}");
        assert!(
            said.contains(record.trim_end_matches(".gz"))
                && said.contains("no samples yet")
                && said.contains("--resume"),
            "{record}: {said}"
        );
        let (shown, said, status) = study_of_first(300, record);
        assert_eq!(
            (status, shown.is_empty()),
            (Some(0), false),
            "{record}: {said}"
        );
    }
}
