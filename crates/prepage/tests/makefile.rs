//! What make does with the programs that cargo built, wherever that was.

use std::path::Path;
use std::process::Command;

/// The lines that `make TARGET` would execute where cargo builds in `directory`.
fn lines_of(target: &str, directory: Option<&str>) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    make.args(["--dry-run", "--directory"])
        .arg(root)
        .arg(target);
    make.env_remove("CARGO_TARGET_DIR");
    make.envs(directory.map(|path| ("CARGO_TARGET_DIR", path)));
    let output = make.output().expect("this test needs make");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn programs_are_taken_from_where_cargo_builds_them() {
    for target in [
        "install",
        "demo",
        "bench-fetch",
        "bench-zram",
        "bench-report",
    ] {
        let usual = lines_of(target, None);
        assert!(usual.contains(" target/release"), "{target}: {usual}");
        let elsewhere = lines_of(target, Some("/else/where"));
        assert!(
            elsewhere.contains(" /else/where/release"),
            "{target}: {elsewhere}"
        );
        assert!(
            !elsewhere.contains(" target/release"),
            "{target}: {elsewhere}"
        );
    }
}
