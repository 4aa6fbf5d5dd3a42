//! Commands on what `prepage run` keeps while no service runs.

mod common;

use common::{Service, TempDir, is_root, wait_until};
use prepage_core::launch::recording::FILES_MAX;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn prepage(arguments: &[&str], store: &Path) -> Command {
    assert!(
        is_root(),
        "without a service only root's launches are helped"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
    command.args(arguments).env("PREPAGE_STORE", store);
    command
}

fn output(arguments: &[&str], store: &Path) -> Output {
    prepage(arguments, store).output().expect("prepage")
}

/// What a command prints. It must succeed.
fn said(arguments: &[&str], store: &Path) -> String {
    let output = output(arguments, store);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    String::from_utf8(output.stdout).expect("text")
}

/// What a command complains of, with its status.
fn refused(arguments: &[&str], store: &Path) -> (Option<i32>, String) {
    let output = output(arguments, store);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), complaint)
}

/// A store in which one launch of perl(1) is kept.
fn learned(directory: &TempDir) -> PathBuf {
    let store = directory.path().join("store");
    let launched = ["run", "--", "/usr/bin/perl", "-e1"];
    assert!(output(&launched, &store).status.success());
    wait_until("its profile", || profiles(&store).next().is_some());
    store
}

/// The profiles of a store that may not be there yet.
fn profiles(store: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(store).into_iter().flatten().flatten();
    let is_profile = |path: &PathBuf| path.extension().is_some_and(|e| e == "profile");
    entries.map(|entry| entry.path()).filter(is_profile)
}

#[test]
fn what_launches_without_a_service_taught_can_be_looked_at() {
    let directory = TempDir::new();
    let store = learned(&directory);
    let listed = said(&["apps", "list"], &store);
    assert!(
        listed.contains("/usr/bin/perl@0") && listed.contains("profiling"),
        "{listed}"
    );
    let explained = said(&["explain", "perl"], &store);
    assert!(explained.contains("Launches: 1 seen"), "{explained}");
    let known = said(&["--json", "explain", "perl"], &store);
    let known: serde_json::Value = serde_json::from_str(&known).expect("JSON");
    assert_eq!(known["launch"]["recordings"][1], 2, "{known}");
    let counted = said(&["stats", "perl"], &store);
    assert!(counted.contains("held out"), "{counted}");
    let counted = said(&["stats", "--json"], &store);
    let counted: serde_json::Value = serde_json::from_str(&counted).expect("JSON");
    assert_eq!(counted["kept"][0]["launches"], 1, "{counted}");
    let (code, complaint) = refused(&["explain", "nothing-of-this-name"], &store);
    assert!(
        code == Some(1) && complaint.contains("nothing-of-this-name"),
        "{complaint}"
    );
}

#[test]
fn what_launches_without_a_service_taught_is_exported_forgotten_and_imported() {
    let directory = TempDir::new();
    let store = learned(&directory);
    let file = directory.path().join("perl.profile");
    let file = file.to_str().expect("text");
    let obstacle = profiles(&store)
        .next()
        .expect("learned")
        .with_extension("new");
    assert!(said(&["apps", "export", "perl", file], &store).contains("exported"));
    assert!(said(&["apps", "forget", "perl"], &store).contains("forgotten"));
    assert!(said(&["apps", "list"], &store).contains("nothing is kept"));
    // Where the profile is to be written there is a directory.
    std::fs::create_dir(&obstacle).expect("made");
    let (code, complaint) = refused(&["apps", "import", file], &store);
    let told = complaint.matches("Is a directory").count();
    assert!(code == Some(1) && told == 1, "{complaint}");
    std::fs::remove_dir(&obstacle).expect("removed");
    assert!(said(&["apps", "import", file], &store).contains("imported"));
    assert!(said(&["apps", "list"], &store).contains("perl@0"));
}

#[test]
fn a_store_is_named_where_it_belongs_in_each_command() {
    let directory = TempDir::new();
    let store = learned(&directory);
    let dir = store.to_str().expect("text");
    for arguments in [
        &["apps", "list", "--store", dir][..],
        &["apps", "--store", dir, "list"],
        &["stats", "--store", dir],
        &["explain", "perl", "--store", dir],
    ] {
        let text = said(arguments, Path::new("/nonexistent"));
        assert!(text.contains("perl@0"), "{arguments:?}: {text}");
    }
    let (code, complaint) = refused(&["apps", "list"], Path::new("/nonexistent"));
    assert!(
        code == Some(1) && complaint.contains("/nonexistent"),
        "{complaint}"
    );
}

#[test]
fn what_a_recording_has_no_room_for_is_counted() {
    let directory = TempDir::new();
    let (store, files) = (
        directory.path().join("store"),
        directory.path().join("files"),
    );
    std::fs::create_dir(&files).expect("made");
    // A thousand more than are recorded.
    let count = FILES_MAX + 1_000;
    for number in 0..count {
        std::fs::write(files.join(number.to_string()), b"x").expect("written");
    }
    let report = directory.path().join("report");
    let report = report.to_str().expect("text");
    // It is over when it exits: what it reads is in memory, so that it would be taken to be idle.
    let config = directory.path().join("config");
    std::fs::write(
        &config,
        "[launch]\nt_idle_ms = 60000\nt_timeout_ms = 60000\n",
    )
    .expect("written");
    let config = config.to_str().expect("text");
    let all = format!("cat {}/* | wc -c", files.display());
    let options = ["--report", report, "--config", config];
    let command = ["--", "/usr/bin/dash", "-c", &all];
    let launched = [&["run"], &options[..], &command].concat();
    let launch = |_| {
        let _ = std::fs::remove_file(report);
        assert_eq!(said(&launched, &store), format!("{count}\n"));
        let record = || std::fs::read_to_string(report).unwrap_or_default();
        wait_until("its report", || record().ends_with('\n'));
        serde_json::from_str(&record()).expect("JSON")
    };
    // On a busy machine a launch is not held until it can be recorded.
    let mut records = (0..10).map(launch);
    let is_recorded = |record: &serde_json::Value| !record["recording"].is_null();
    let record = records.find(is_recorded).expect("no launch was recorded");
    let left_out = record["files_left_out"].as_u64().expect("counted");
    assert!(left_out > 900, "{record}");
    let app = record["app"].as_str().expect("an id");
    let explained = said(&["explain", app], &store);
    assert!(
        explained.contains(&format!("left out: {left_out} files")),
        "{explained}"
    );
}

/// To look is not to repair: the service that has the store open is not disturbed, and a damaged profile stays.
#[test]
fn a_store_that_a_service_has_open_is_looked_at_and_not_changed() {
    let service = Service::start("");
    let store = service.directory.path().join("state");
    let damaged = store.join("x.profile");
    std::fs::write(&damaged, b"PREPAGE").expect("written");
    let output = output(&["apps", "list"], &store);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaint.contains("x.profile"),
        "{complaint}"
    );
    assert!(damaged.exists());
    let (code, complaint) = refused(&["apps", "forget", "x"], &store);
    assert!(
        code == Some(1) && complaint.contains("in use") && complaint.contains("--store"),
        "{complaint}"
    );
}

#[test]
fn where_no_service_answers_its_own_store_is_looked_at() {
    // Only root's configuration says where that is: the usual one may be there or not.
    let output = prepage(
        &["--socket", "/nonexistent/s", "apps", "list"],
        Path::new(""),
    )
    .env_remove("PREPAGE_STORE")
    .output()
    .expect("prepage");
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => assert!(complaint.contains("no service answers"), "{complaint}"),
        code => {
            assert_eq!(code, Some(3));
            assert!(complaint.contains("does not answer"), "{complaint}");
        }
    }
}
