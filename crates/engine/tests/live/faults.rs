//! What can go wrong during a fetch: the application lives on untouched.

use crate::rig::{Rig, params, settle};
use prepage_core::machine::Event;
use prepage_engine::EngineParams;
use prepage_engine::executor::Executor;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Machine, eventually};

const PAGES: u64 = 2048;

/// A child whose whole region is planned, swapped out.
fn learned(child: &mut Child, engine: &EngineParams) -> Rig {
    let mut rig = Rig::new(child, engine, params());
    for _ in 0..2 {
        child.swap_out();
        rig.switch(|| child.tell_pages("read", 0..PAGES));
    }
    child.swap_out();
    rig
}

#[test]
fn regions_unmapped_locked_or_without_access_are_passed_over() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = learned(&mut child, &EngineParams::default());
    child.tell_pages("unmap", (100..200).chain(900..1000));
    child.tell_pages("none", 300..400);
    child.tell_pages("discard", 500..600);
    child.tell_pages("lock", 700..710);
    rig.begin();
    settle(&child);
    let entries = child.entries();
    let record = rig.end();
    let present =
        |range: std::ops::Range<usize>| entries[range].iter().filter(|e| e.present()).count();
    assert_eq!(present(100..200), 0);
    assert_eq!(present(500..600), 0, "a discarded page came back");
    assert!(record.anon.fetched >= PAGES - 500, "{record:?}");
    child.tell_pages("access", 300..400);
    let kept = (0..PAGES).filter(|i| {
        ![100..200, 900..1000, 500..600]
            .iter()
            .any(|r| r.contains(i))
    });
    child.tell_pages("verify", kept);
}

#[test]
fn a_process_that_exits_during_a_fetch_takes_its_tables_with_it() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut engine = EngineParams::default();
    // Slow enough to be in the middle.
    (engine.fetch.pace_pages, engine.fetch.pace_us) = (16, 2_000);
    let mut rig = learned(&mut child, &engine);
    rig.begin();
    prepage_kernel::sched::sleep_us(5_000);
    child.kill();
    rig.end();
    let app = rig.app.clone();
    assert_eq!(
        rig.machine.app(&app).expect("tracked").instances().count(),
        0
    );
    assert_eq!(
        rig.machine.app(&app).expect("tracked").plan().anon_pages(),
        0
    );
}

#[test]
fn a_process_that_execs_is_another_instance() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = learned(&mut child, &EngineParams::default());
    child.exec();
    child.swap_out();
    // The plan is for the address space that is gone.
    rig.begin();
    settle(&child);
    assert!(child.entries().iter().all(|entry| entry.swapped()));
    let record = rig.end();
    assert_eq!(record.anon.fetched, 0, "{record:?}");
    let app = rig.app.clone();
    assert_eq!(
        rig.machine.app(&app).expect("tracked").instances().count(),
        1
    );
}

#[test]
fn swap_turned_off_during_a_fetch_harms_nothing() {
    let mut machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut engine = EngineParams::default();
    // Slow enough to be in the middle.
    (engine.fetch.pace_pages, engine.fetch.pace_us) = (16, 5_000);
    let mut rig = Rig::new(&child, &engine, params());
    child.swap_out();
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    rig.fetch(&plan);
    eventually("the fetch is under way", || child.entry(0).present());
    machine.turn_swap_off();
    let seen = rig.collect(&plan);
    let fetched = rig.seen(&child, &seen).fetched.pages();
    assert!(
        (1..PAGES).contains(&fetched),
        "{fetched} pages were fetched"
    );
    assert!(child.entries().iter().all(|entry| entry.present()));
    child.tell_pages("verify", 0..PAGES);

    // Without any swap.
    rig.fetch(&plan);
    let seen = rig.collect(&plan);
    assert_eq!(rig.seen(&child, &seen).fetched.pages(), 0);
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn overflowing_rings_are_counted_and_void_the_observation() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut engine = EngineParams::default();
    engine.observe.fault_ring_pages = 1;
    let mut rig = Rig::new(&child, &engine, params());
    child.swap_out();
    let record = rig.switch(|| {
        for _ in 0..2 {
            child.tell_pages("read", 0..PAGES);
            child.swap_out();
        }
        child.tell_pages("read", 0..1);
    });
    assert!(record.events_lost > 0, "{record:?}");
    assert!(record.void.is_some(), "{record:?}");
}

#[test]
fn an_application_that_is_untracked_during_a_fetch_is_left_alone() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = learned(&mut child, &EngineParams::default());
    rig.begin();
    let app = rig.app.clone();
    rig.step(Event::Untracked { app: app.clone() });
    rig.engine.unfollow(&app);
    prepage_kernel::sched::sleep_us(50_000);
    rig.take_events();
    child.tell_pages("read", 0..PAGES);
    assert!(rig.machine.app(&app).is_none());
}
