//! What is printed, where its reader goes away, as `head` does.

use std::process::Command;

/// Runs it with a standard output that nobody reads; returns whether it succeeded, and what it complained of: how far it was is
/// no complaint.
fn unread(arguments: &[&str]) -> (bool, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .args(arguments)
        .stdout(writer)
        .output()
        .expect("run prepage-eval");
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints = said.lines().filter(|line| !line.ends_with(" s left"));
    (output.status.success(), complaints.collect())
}

#[test]
fn a_reader_that_is_gone_ends_every_command_quietly() {
    let record = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../results/launches.jsonl.gz"
    );
    for arguments in [&["study", record][..], &["simulate", "--synthetic", "1"]] {
        assert_eq!(unread(arguments), (true, String::new()), "{arguments:?}");
    }
    let (is_success, said) = unread(&["study", "/nonexistent/record.jsonl"]);
    assert!(!is_success && said.contains("/nonexistent"), "{said}");
}
