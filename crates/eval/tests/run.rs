//! `prepage-eval run` as a user types it: what it cannot do is said before anything is touched. Needs root.

use std::process::Command;

/// What it says of these arguments, which it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .arg("run")
        .args(["--out", "/nonexistent/record.jsonl"])
        .args(arguments)
        .output()
        .expect("run prepage-eval");
    assert!(!output.status.success(), "{arguments:?} was not refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
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
    let record = std::env::temp_dir().join(format!("prepage-record-{}", std::process::id()));
    std::fs::write(&record, "hours of measurement\n").expect("writable");
    for command in [&["run"][..], &["launch", "--", "true"], &["idle"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
            .arg(command[0])
            .arg("--out")
            .arg(&record)
            .args(&command[1..])
            .output()
            .expect("run prepage-eval");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command:?}: {said}");
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
    let record = std::env::temp_dir().join(format!("prepage-{}.jsonl.gz", std::process::id()));
    std::fs::write(&record, "compressed").expect("writable");
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .args(["run", "--resume", "--out"])
        .arg(&record)
        .output()
        .expect("run prepage-eval");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("without .gz"),
        "{said}"
    );
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
