//! Tells the program its version, as `PREPAGE_EVAL_VERSION`: with the commit that it is built from, and `-dirty` where the code was
//! changed since. In sources without their repository the commit is not known, and left out.

use std::path::Path;
use std::process::Command;

/// What the program is built from.
const SOURCES: [&str; 8] = [
    "crates/core/src",
    "crates/kernel/src",
    "crates/engine/src",
    "crates/prepage/src",
    "crates/eval/src",
    "crates/eval/build.rs",
    "Cargo.toml",
    "Cargo.lock",
];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Of a repository that merely holds these sources, as one of packages does, the commit says nothing of them.
    let is_ours = root.join(".git").exists();
    let build = is_ours.then(|| build(&root)).flatten();
    let build = build.map_or_else(String::new, |build| format!(" ({build})"));
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=PREPAGE_EVAL_VERSION={version}{build}");
    let heads = ["HEAD", "logs/HEAD"];
    let heads = heads
        .iter()
        .filter_map(|head| git(&root, &["rev-parse", "--git-path", head]));
    let watched = SOURCES.map(str::to_owned).into_iter();
    // What is named and not there would have it built each time.
    for path in watched.chain(heads.filter(|_| is_ours)) {
        let path = root.join(path);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

fn build(root: &Path) -> Option<String> {
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let status = [&["status", "--porcelain", "--"][..], &SOURCES].concat();
    Some(match git(root, &status)?.is_empty() {
        true => commit,
        false => commit + "-dirty",
    })
}

/// What git says; nothing where it is not there or fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // Whoever works in the repository meanwhile is not to find it locked.
    command.arg("--no-optional-locks").args(arguments);
    let output = command.current_dir(root).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
