//! Switches of several applications that are under way at once, as where one goes back and forth between them faster than
//! switches end.

use crate::cache::switch_reading;
use crate::rig::{Rig, named, next_observation, of_files, params};
use prepage_core::app::Known;
use prepage_core::identity::AppId;
use prepage_core::machine::Action;
use prepage_core::params::Mode;
use prepage_engine::{EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::sched::sleep_us;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Machine};
use std::sync::Arc;

const PAGES: u64 = 512;

fn observe(app: &AppId, switch: u64, awaits_onset: bool) -> Action {
    Action::Observe {
        app: app.clone(),
        switch,
        files: true,
        awaits_onset,
    }
}

fn collect(app: &AppId, switch: u64) -> Action {
    Action::Collect {
        app: app.clone(),
        switch,
        plan: Arc::default(),
        known: Known::default(),
    }
}

fn perform(rig: &mut Rig, actions: impl IntoIterator<Item = Action>) {
    for action in actions {
        rig.engine.perform(monotonic_ns(), action);
    }
}

#[test]
fn a_switch_sees_no_file_access_from_before_it_began() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("read", 2048);
    let (mut child, other) = (Child::spawn(1), Child::spawn(1));
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    rig.set_mode(Mode::Observe);
    let other_app = named("other");
    rig.engine.follow(&other_app, &[Members::Tree(other.pid())]);
    perform(&mut rig, [observe(&other_app, 1, false)]);
    for _ in 0..2 {
        let record = switch_reading(&mut rig, &mut child, "readfile", &path, &path);
        assert_eq!(of_files(&record).demanded, 32, "{record:?}");
        let record = rig.switch(|| ());
        assert_eq!(of_files(&record).demanded, 0, "{record:?}");
    }
}

/// Else it would seem quiet where its application goes on.
#[test]
fn what_others_fault_until_a_switch_ends_is_told() {
    let _machine = Machine::with_swap();
    let (mut child, other) = (Child::spawn(PAGES), Child::spawn(1));
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let (app, other_app) = (rig.app.clone(), named("other"));
    rig.engine.follow(&other_app, &[Members::Tree(other.pid())]);
    child.swap_out();
    perform(
        &mut rig,
        [observe(&app, 1, false), observe(&other_app, 1, false)],
    );
    rig.engine.drain_faults();
    child.tell_pages("read", 0..PAGES);
    perform(&mut rig, [collect(&other_app, 1)]);
    let bursts = rig.engine.drain_faults();
    let theirs = bursts.iter().filter(|burst| burst.pid == child.pid());
    let told: u64 = theirs.map(|burst| u64::from(burst.count)).sum();
    assert!(told >= PAGES * 9 / 10, "{told} faults");
}

/// The user's signal comes after the first faults that it led to.
#[test]
fn the_first_faults_of_a_switch_are_its_own_where_background_activity_is_observed() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut engine = EngineParams::default();
    // However slow the machine is.
    engine.observe.lookback_ms = 10_000;
    let mut rig = Rig::new(&child, &engine, params());
    let app = rig.app.clone();
    child.swap_out();
    perform(&mut rig, [observe(&app, 1, true)]);
    sleep_us(10_000);
    child.tell_pages("read", 0..PAGES / 2);
    perform(&mut rig, [collect(&app, 1), observe(&app, 2, false)]);
    next_observation(&mut rig).expect("of the first");
    child.tell_pages("read", PAGES / 2..PAGES);
    perform(&mut rig, [collect(&app, 2)]);
    let (_, switch, seen) = next_observation(&mut rig).expect("of the second");
    assert_eq!(switch, 2);
    let faulted = rig.seen(&child, &seen).faulted.pages();
    assert!(faulted >= PAGES * 9 / 10, "{faulted} of {PAGES}");
}

/// Of a loss nobody knows whose it was, but it is none of switches that begin later.
#[test]
fn what_was_lost_before_a_switch_voids_it_not() {
    let _machine = Machine::with_swap();
    let (mut child, mut other) = (Child::spawn(PAGES), Child::spawn(PAGES));
    let mut engine = EngineParams::default();
    engine.observe.fault_buffer_pages = PAGES as usize / 8;
    engine.observe.lookback_ms = 0;
    let mut rig = Rig::new(&child, &engine, params());
    let (app, other_app) = (rig.app.clone(), named("other"));
    rig.engine.follow(&other_app, &[Members::Tree(other.pid())]);
    other.swap_out();
    perform(&mut rig, [observe(&other_app, 1, false)]);
    other.tell_pages("read", 0..PAGES);
    rig.engine.drain_faults();
    // There is room again once the one that lost is over, but another is under way all the time.
    perform(&mut rig, [observe(&app, 1, false), collect(&other_app, 1)]);
    let (_, _, seen) = next_observation(&mut rig).expect("observed");
    assert!(seen.events_lost > 0);
    child.swap_out();
    child.tell_pages("read", 0..PAGES / 16);
    perform(&mut rig, [collect(&app, 1)]);
    let (_, _, seen) = next_observation(&mut rig).expect("observed");
    assert_eq!((seen.events_lost, seen.void), (0, None));
}
