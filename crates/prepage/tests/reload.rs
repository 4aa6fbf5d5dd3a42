//! SIGHUP: the whole configuration is read again while the service runs.

mod common;

use common::{Service, TempDir, application, application_by, program, wait_until};
use prepage_core::identity::{AppId, AppKind};
use prepage_engine::store::{Store, TrackedBy};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::Machine;
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn child_role() {
    assert!(!prepage_kernel::testing::child::play_role(), "nobody asked");
}

/// Has the service read this configuration, and waits until its log holds `expected` once more than before.
fn reload(service: &Service, config: &str, expected: &str) {
    let before = service.log().matches(expected).count();
    std::fs::write(service.config(), config).expect("writable");
    service.signal(Signal::HUP);
    wait_until(expected, || {
        service.log().matches(expected).count() > before
    });
}

const READ: &str = "the configuration was read again";

/// The confidence that the next plan of the application has.
fn confidence(service: &Service, app: &str) -> f64 {
    let explained = service.json(&["explain", app]);
    let confidence = explained["confidence"].as_f64().expect("a number");
    (confidence * 100.0).round() / 100.0
}

#[test]
fn parameters_of_launches_hold_from_the_next_launch_on() {
    let service = Service::start("[launch]\nt_idle_ms = 600000\nt_timeout_ms = 600000\n");
    reload(
        &service,
        "[launch]\nt_idle_ms = 100\nt_timeout_ms = 300\n",
        READ,
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
    command.arg("--socket").arg(service.socket());
    let mut child = command
        .args(["run", "--", "sleep", "600"])
        .spawn()
        .expect("prepage");
    // It ends by being idle, or by its time being over: it runs on.
    wait_until("the launch's end", || !service.launches().is_empty());
    child.kill().and_then(|()| child.wait()).expect("ended");
}

fn fetching_threads(service: &Service) -> usize {
    threads(service, "prepage-anon")
}

/// The service's threads whose names begin so.
fn threads(service: &Service, prefix: &str) -> usize {
    let pid = service.pid();
    let threads = prepage_kernel::process::threads(pid).expect("running");
    let name = |tid: i32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default()
    };
    threads
        .iter()
        .filter(|&&tid| name(tid).starts_with(prefix))
        .count()
}

#[test]
fn parameters_of_the_estimators_hold_from_the_next_plan_on() {
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "planned");
    service.call(&["track", "--pid", &app.pid().to_string()]);
    assert_eq!(confidence(&service, "planned"), 0.6);
    reload(&service, "[budget]\nconfidence = 0.85\n", READ);
    assert_eq!(confidence(&service, "planned"), 0.85);
    reload(&service, "", READ);
    assert_eq!(confidence(&service, "planned"), 0.6);
}

#[test]
fn parameters_of_fetching_make_new_threads_and_end_the_old() {
    let service = Service::start("[fetch]\nanon_threads = 2\n");
    wait_until("two threads", || fetching_threads(&service) == 2);
    reload(&service, "[fetch]\nanon_threads = 5\n", READ);
    wait_until("five threads", || fetching_threads(&service) == 5);
}

#[test]
fn a_wrong_configuration_changes_nothing_and_is_reported_with_its_place() {
    let service = Service::start("[budget]\nconfidence = 0.7\n");
    let apps = TempDir::new();
    let app = application(&apps, "kept");
    service.call(&["track", "--pid", &app.pid().to_string()]);
    for (wrong, place) in [
        ("[budget\n", "prepage.toml:1"),
        ("[budget]\nconfidence = 0.9\nwaste = 1\n", "prepage.toml:3"),
        ("[budget]\n\nconfidence = 7.0\n", "prepage.toml:3"),
        ("[fetch]\nanon_nice = -100\n", "prepage.toml:2"),
    ] {
        reload(&service, wrong, "the configuration stays as it was");
        let log = service.log();
        assert!(
            log.lines().last().is_some_and(|l| l.contains(place)),
            "{log}"
        );
        assert_eq!(confidence(&service, "kept"), 0.7);
    }
}

#[test]
fn what_needs_a_restart_is_named_and_the_rest_is_taken_over() {
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "partly");
    service.call(&["track", "--pid", &app.pid().to_string()]);
    reload(
        &service,
        "[service]\nsocket = \"/nonexistent/s\"\n[observe]\nfile_ring_pages = 64\n[budget]\nconfidence = 0.8\n",
        READ,
    );
    let log = service.log();
    // The socket was given on the command line, which wins.
    assert!(!log.contains("service.socket"), "{log}");
    assert!(
        log.contains("observe.file_ring_pages stays as it was until the next start"),
        "{log}"
    );
    assert_eq!(confidence(&service, "partly"), 0.8);
}

#[test]
fn the_command_line_and_the_command_win_over_what_did_not_change() {
    let mut service = Service::start("");
    service.signal(Signal::TERM);
    service.wait();
    service.start_again(&["--mode", "observe"]);
    reload(&service, "[service]\nmode = \"anon\"\n", READ);
    assert_eq!(service.call(&["mode"]), "observe\n");
    service.call(&["mode", "off"]);
    reload(&service, "[switch]\nquiet_ms = 100\n", READ);
    assert_eq!(service.call(&["mode"]), "off\n");
}

#[test]
fn the_core_policy_is_changed_while_the_service_runs_and_holds_until_the_configuration_says_another()
 {
    const CORES: &str = "[fetch]\nbig_cores = [0, 1]\nlittle_cores = [0]\n";
    let service = Service::start(CORES);
    assert_eq!(service.call(&["policy"]), "asap\n");
    assert_eq!(service.call(&["policy", "big-all"]), "big-all (was asap)\n");
    let file_threads = || threads(&service, "prepage-file");
    wait_until("a thread on each big core", || file_threads() == 2);
    assert_eq!(service.json(&["policy"])["core_policy"], "big-all");
    assert_eq!(service.json(&["status"])["core_policy"], "big-all");
    service.call(&["policy", "iorap"]);
    wait_until("one thread", || file_threads() == 1);

    reload(&service, &format!("{CORES}pace_us = 30\n"), READ);
    assert_eq!(service.call(&["policy"]), "iorap\n");
    reload(&service, &format!("{CORES}core_policy = \"big1\"\n"), READ);
    assert_eq!(service.call(&["policy"]), "big1\n");

    let (status, said) = service.refused(&["policy", "fast"]);
    assert_eq!(status, 2);
    assert!(said.contains("little-all"), "{said}");
}

#[test]
fn the_onset_of_demand_faults_becomes_a_signal() {
    const PAGES: u64 = 2048;
    const REST: &str = "quiet_ms = 20\nrepeat_ms = 0\nonset_pause_ms = 0\n";
    let _machine = Machine::with_swap();
    let service = Service::start(&format!("[switch]\nonset_faults = 0\n{REST}"));
    let mut child = Child::spawn(PAGES);
    service.call(&["track", "--pid", &child.pid().to_string()]);
    child.swap_out();
    child.tell_pages("read", 0..PAGES);
    service.call(&["status"]);
    assert_eq!(service.switches(), [] as [serde_json::Value; 0]);
    reload(
        &service,
        &format!("[switch]\nonset_faults = 48\n{REST}"),
        READ,
    );
    // A service that gets no core until all pages are back finds nothing swapped out: the next burst is another chance.
    wait_until("the switch", || {
        child.swap_out();
        child.tell_pages("read", 0..PAGES);
        !service.switches().is_empty()
    });
    assert_eq!(service.switches()[0]["source"], "onset");
}

/// It would be tracked again as soon as one of its processes is seen.
#[test]
fn what_the_configuration_lists_is_untracked_once_it_is_taken_out_there() {
    let apps = TempDir::new();
    let _app = application(&apps, "taken-out");
    let service = Service::start("[service]\napplications = [\"taken-out\"]\n");
    let is_tracked = || {
        let status = service.json(&["status"]);
        !status["apps"].as_array().expect("a list").is_empty()
    };
    assert!(is_tracked());
    let (_, said) = service.refused(&["untrack", "--name", "taken-out"]);
    assert!(said.contains("service.applications"), "{said}");
    assert!(is_tracked());
    reload(&service, "", READ);
    assert!(is_tracked(), "until it is untracked");
    service.call(&["untrack", "--name", "taken-out"]);
    assert!(!is_tracked());
}

/// The user that is nobody.
const NOBODY: u32 = 65_534;

/// Most applications of one user that are tracked.
const OWNER_APPS_MAX: usize = 128;

/// A service that has ended and keeps as many applications of nobody as tracked as there is room for.
fn ended_service_without_room() -> Service {
    let mut service = Service::start("");
    // When it answers, it listens to signals.
    service.call(&["status"]);
    service.signal(Signal::TERM);
    assert!(service.wait().success());
    track_all_that_may_be(&service.directory.path().join("state"));
    service
}

/// Has a store of a service that does not run keep as many applications of nobody as tracked as there is room for.
fn track_all_that_may_be(state: &Path) {
    let (mut store, _) = Store::open(state).expect("a store");
    for number in 0..OWNER_APPS_MAX {
        let app = AppId {
            kind: AppKind::Executable,
            name: format!("/usr/bin/{number}").into(),
            owner: NOBODY,
        };
        store.set_tracked(&app, Some(TrackedBy::Name));
    }
}

#[test]
fn ids_that_a_user_was_given_have_no_room_of_their_own() {
    const GIVEN: u32 = 200_000;
    let apps = TempDir::new();
    let app = program(&apps, "given");
    let mut command = Command::new("setsid");
    let running = application_by(&app, command.arg(&app).arg("600").uid(GIVEN));
    let mut service = ended_service_without_room();
    let given = apps.path().join("subuid");
    std::fs::write(&given, format!("{NOBODY}:{GIVEN}:65536\n")).expect("writable");
    let has_file = std::path::Path::new("/etc/subuid").exists();
    assert!(
        has_file,
        "this test needs /etc/subuid, if empty, to mount another there"
    );
    // Of the service alone the file is another.
    let mut command = Command::new("unshare");
    let mount = "mount --bind \"$0\" /etc/subuid && exec \"$@\"";
    command.args(["--mount", "sh", "-c", mount]).arg(&given);
    let daemon = service.daemon();
    command.arg(daemon.get_program()).args(daemon.get_args());
    service.start_by(&mut command);
    let pid = running.pid().to_string();
    let track = || service.call_as(GIVEN, &["track", "--pid", &pid]);
    let refused = String::from_utf8_lossy(&track().stderr).into_owned();
    assert!(refused.contains("too many applications"), "{refused}");
    std::fs::write(&given, "").expect("writable");
    reload(&service, "", READ);
    let tracked = track();
    assert!(tracked.status.success(), "{tracked:?}");
}

#[test]
fn what_there_is_no_room_for_is_not_kept_as_tracked_and_told_once() {
    let apps = TempDir::new();
    let listed = program(&apps, "one-too-many");
    let mut command = Command::new("setsid");
    let _app = application_by(&listed, command.arg(&listed).arg("600").uid(NOBODY));
    let mut service = ended_service_without_room();
    let state = service.directory.path().join("state");
    let config = "[service]\napplications = [\"one-too-many\"]\n";
    std::fs::write(service.config(), config).expect("writable");
    service.start_again(&[]);
    service.call(&["status"]);
    reload(&service, config, READ);
    let told = format!("/one-too-many@{NOBODY} is not tracked");
    assert_eq!(service.log().matches(&told).count(), 1);
    service.signal(Signal::TERM);
    assert!(service.wait().success());
    let (store, _) = Store::look_at(&state).expect("a store");
    assert_eq!(store.tracked().count(), OWNER_APPS_MAX);
}
