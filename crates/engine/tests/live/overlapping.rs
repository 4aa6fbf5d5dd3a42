//! Switches of several applications that are under way at once, as where one goes back and forth between them faster than
//! switches end.

use crate::cache::switch_reading;
use crate::rig::{
    self, Rig, named, next_observation, observe, of_files, params, plan_of_file, plan_of_pages,
};
use prepage_core::identity::AppId;
use prepage_core::machine::{Action, Event};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_engine::{EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::sched::sleep_us;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use std::sync::Arc;

const PAGES: u64 = 512;

fn collect(app: &AppId, switch: u64) -> Action {
    rig::collect(app, switch, &Plan::default())
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

/// Who is switched to next does not wait for all that was planned for who was left.
#[test]
fn what_is_announced_is_fetched_before_the_rest_of_what_was() {
    const NEXT_PAGES: u64 = 32;
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let (mut child, mut other) = (Child::spawn(PAGES), Child::spawn(NEXT_PAGES));
    let mut engine = EngineParams::default();
    engine.fetch.anon_threads = 1;
    // A tenth of a second at least.
    (engine.fetch.pace_pages, engine.fetch.pace_us) = (16, 5_000);
    let mut rig = Rig::new(&child, &engine, params());
    let (app, other_app) = (rig.app.clone(), named("other"));
    rig.engine.follow(&other_app, &[Members::Tree(other.pid())]);
    let started = rig
        .engine
        .events()
        .into_iter()
        .find_map(|event| match event {
            Event::InstanceStarted { app, instance } if app == other_app => Some(instance),
            _ => None,
        });
    let instance = started.expect("the other is followed");
    let path = directory.file("read", 2048);
    for is_announced in [true, false] {
        child.swap_out();
        other.swap_out();
        drop_cache(&path);
        let long = rig.plan_of(&child, [child.pages.clone()]);
        let mut next = plan_of_pages(instance, [other.pages.clone()]);
        next.files = plan_of_file(&path, 0..64).files;
        let fetch = |app: &AppId, plan: &Plan, is_announced| Action::Fetch {
            app: app.clone(),
            switch: 1,
            plan: Arc::new(plan.clone()),
            mode: Mode::Full,
            is_announced,
        };
        perform(
            &mut rig,
            [observe(&app, 1, false), fetch(&app, &long, true)],
        );
        perform(
            &mut rig,
            [
                observe(&other_app, 1, false),
                fetch(&other_app, &next, is_announced),
            ],
        );
        let mut order = Vec::new();
        eventually("both are fetched", || {
            let fetched = rig.engine.events().into_iter();
            order.extend(fetched.filter_map(|event| match event {
                Event::Fetched { app, .. } => Some(app),
                _ => None,
            }));
            order.len() == 2
        });
        let first = if is_announced { &other_app } else { &app };
        assert_eq!(&order[0], first, "announced: {is_announced}");
        let is_in = |child: &Child| child.entries().iter().all(|entry| entry.present());
        assert!(is_in(&child) && is_in(&other), "all of both");
        assert_eq!(cached(&path, 0, 64), 64);
        // What was fetched before it was set aside counts as well.
        perform(&mut rig, [collect(&app, 1)]);
        let (_, _, seen) = next_observation(&mut rig).expect("observed");
        assert_eq!(rig.seen(&child, &seen).fetched.pages(), PAGES);
        perform(&mut rig, [collect(&other_app, 1)]);
        next_observation(&mut rig).expect("observed");
    }
}
