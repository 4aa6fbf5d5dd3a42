//! What a service says that is missing on its machine, which changes while it runs.

mod common;

use common::{Service, TempDir, application};
use prepage::service::{Finding, State, findings};
use prepage_kernel::support::{Fact, Support};
use prepage_kernel::testing::machine::{Machine, SwapFile};

#[test]
fn swap_is_missing_as_long_as_there_is_none_and_commands_that_depend_on_it_say_so() {
    let mut machine = Machine::lock();
    machine.turn_swap_off();
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "dependent");
    let pid = app.pid().to_string();
    let lacks_swap = || {
        let missing = service.json(&["status"])["missing"].clone();
        let missing = missing.as_array().expect("a list").clone();
        let lines = missing.iter().filter_map(|line| line.as_str());
        lines.into_iter().any(|line| line.starts_with("swap: "))
    };
    assert!(lacks_swap());
    let status = service.call(&["status"]);
    assert!(status.contains("no swap area is active"), "{status}");
    for arguments in [
        &["track", "--pid", &pid][..],
        &["switch", "begin", "--name", "dependent"],
        &["restore", "--name", "dependent"],
        &["explain", "dependent"],
        &["stats"],
    ] {
        let said = service.call(arguments);
        assert!(
            said.contains("see `prepage status`"),
            "{arguments:?}: {said}"
        );
    }
    let count = |arguments: &[&str]| service.json(arguments)["missing"].as_u64();
    let before = count(&["stats"]).expect("counted");
    let swap = SwapFile::new(16 << 20);
    assert!(!lacks_swap());
    for arguments in [
        &["track", "--pid", &pid][..],
        &["switch", "begin", "--name", "dependent"],
        &["restore", "--name", "dependent"],
        &["explain", "dependent"],
    ] {
        assert_eq!(count(arguments), Some(before - 1), "{arguments:?}");
    }
    drop(swap);
    assert!(lacks_swap());
}

#[test]
fn a_device_that_may_not_be_read_is_missing_where_there_is_one() {
    let mut support = Support::probe();
    let mut finding = |root_device_readable| {
        support.root_device_readable = root_device_readable;
        let is_it = |finding: &Finding| finding.what.starts_with("metadata blocks");
        let mut found = findings(&support).into_iter().filter(is_it);
        let finding = found.next().expect("it is spoken of");
        assert_eq!(found.next(), None);
        finding
    };
    let fact = |available, detail: &str| {
        let detail = detail.to_owned();
        Some(Fact { available, detail })
    };
    assert_eq!(finding(None).state, State::Note);
    assert_eq!(finding(fact(true, "/dev/sda")).state, State::Works);
    let denied = finding(fact(false, "open /dev/sda: Operation not permitted"));
    let line = denied.missing_line().expect("it is missing");
    assert!(line.contains("/dev/sda"), "{line}");
}
