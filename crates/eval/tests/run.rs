//! `prepage-eval run` as a user types it: what it cannot do is said before anything is touched. Needs root.

use std::process::Command;

/// What it says of this command line, which it refuses.
fn refusal_of(line: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .args(line)
        .output()
        .expect("run prepage-eval");
    assert!(!output.status.success(), "{line:?} was not refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `run` says of these arguments, which it refuses.
fn refusal(arguments: &[&str]) -> String {
    let run = ["run", "--out", "/nonexistent/record.jsonl"];
    refusal_of(&[&run, arguments].concat())
}

/// A file whose name ends so, with this text.
fn record(end: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("prepage-{}-{end}", std::process::id()));
    std::fs::write(&path, text).expect("writable");
    path.to_str().expect("text").to_owned()
}

#[test]
fn an_unknown_application_is_refused_with_those_that_are_known() {
    let said = refusal(&["--apps", "chromium,gmp"]);
    assert!(
        said.contains("gmp") && said.contains("gimp") && said.contains("thunderbird"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_run_of_ones_own_is_refused() {
    for (arguments, expected) in [
        (&["--", "no-such-program"][..], "no-such-program"),
        (&["--answer-key", "Nxt", "--", "sh"], "Nxt"),
        (&["--answer-key", "space"], "COMMAND"),
        (&["--user", "no-such-user", "--", "sh"], "no-such-user"),
        (&["--user", "nobody"], "COMMAND"),
        (&["--apps", "gimp", "--", "sh"], "--apps"),
        (&["--setting", "together", "--", "sh"], "two at least"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn together_takes_two_applications_and_nothing_resident() {
    let together = ["--setting", "together", "--apps"];
    let said = refusal(&[&together[..], &["gimp"]].concat());
    assert!(said.contains("two at least"), "{said}");
    let said = refusal(&[&together[..], &["gimp,evince", "--modes", "resident,off"]].concat());
    assert!(said.contains("resident"), "{said}");
}

#[test]
fn a_level_that_a_factor_does_not_have_is_refused_with_those_that_it_has() {
    for (arguments, expected) in [
        (["--throttle", "sata"], "native, ufs, emmc"),
        (["--swap", "tape"], "zram, disk, zswap"),
        (["--mthp", "always"], "off, on"),
        (["--modes", "full:fast"], "full:little-all"),
    ] {
        let said = refusal(&arguments);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn files_are_dropped_alone_only_where_anonymous_pages_have_room() {
    let said = refusal(&["--setting", "pressure", "--modes", "files_dropped,off"]);
    assert!(said.contains("--setting reclaimed"), "{said}");
}

#[test]
fn applications_are_launched_beside_reclaimed_ones_alone() {
    for setting in ["pressure", "together"] {
        let said = refusal(&[
            "--apps",
            "gimp,evince",
            "--setting",
            setting,
            "--modes",
            "launch,off",
        ]);
        assert!(said.contains("--setting reclaimed"), "{said}");
    }
}

#[test]
fn what_another_setting_counts_is_refused() {
    let said = refusal(&["--rounds", "3"]);
    assert!(said.contains("--samples"), "{said}");
    let said = refusal(&["--setting", "together", "--apps", "all", "--samples", "3"]);
    assert!(said.contains("--rounds"), "{said}");
}

#[test]
fn a_record_that_is_there_is_not_written_over() {
    let record = record("record.jsonl", "hours of measurement\n");
    for command in [&["run"][..], &["launch", "--", "true"], &["idle"]] {
        let line = [&command[..1], &["--out", &record], &command[1..]].concat();
        let said = refusal_of(&line);
        assert!(
            said.contains("is there already") && said.contains("--resume"),
            "{command:?}: {said}"
        );
        let kept = std::fs::read_to_string(&record).expect("the record is there");
        assert_eq!(kept, "hours of measurement\n", "{command:?}");
    }
    std::fs::remove_file(&record).expect("own file");
}

#[test]
fn a_compressed_record_is_not_written_to() {
    let record = record("record.jsonl.gz", "compressed");
    let said = refusal_of(&["run", "--resume", "--out", &record]);
    assert!(said.contains("without .gz"), "{said}");
    assert_eq!(std::fs::read(&record).expect("it stays"), b"compressed");
    std::fs::remove_file(&record).expect("own file");
}

#[test]
fn recorded_switches_are_those_of_mode_observe() {
    let said = refusal(&["--switches", "/nonexistent/s.jsonl", "--modes", "off,full"]);
    assert!(
        said.contains("observe") && said.contains("--modes"),
        "{said}"
    );
}
