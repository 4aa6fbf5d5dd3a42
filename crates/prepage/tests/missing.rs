//! What a service says that is missing on its machine, which changes while it runs.

mod common;

use common::{Service, TempDir, application};
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
