//! Bringing back all of an application ahead of need.

use crate::rig::{Rig, demand_faults, params};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_engine::{EngineParams, Executor, Members, Restored};
use prepage_kernel::cgroup::FreezerState;
use prepage_kernel::page::page_size;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::group::{Group, memory, v2};
use prepage_kernel::testing::machine::{Machine, eventually};
use std::sync::Arc;

const PAGES: u64 = 4096;

fn present(child: &Child) -> u64 {
    let entries = child.entries();
    entries.iter().filter(|entry| entry.present()).count() as u64
}

/// Restores with this plan and waits until it is done.
fn restore(rig: &mut Rig, plan: &Plan) -> Restored {
    let begun = rig
        .engine
        .restore(&rig.app, &Arc::new(plan.clone()), Mode::Full);
    let number = begun.expect("it begins");
    let state = |rig: &Rig| rig.engine.restored(number).expect("it is known");
    eventually("it is done", || state(rig).took_us.is_some());
    state(rig)
}

/// All of a child that is out.
fn all_comes_back_to(child: &Child) {
    let mut rig = Rig::new(child, &EngineParams::default(), params());
    assert_eq!(present(child), 0);
    // Of what nobody has ever seen used, too.
    let restored = restore(&mut rig, &Plan::default());
    assert_eq!(present(child), PAGES);
    assert!(restored.out_pages >= PAGES && restored.app == rig.app);
    assert!(restored.back_pages >= PAGES, "{restored:?}");
    let again = restore(&mut rig, &Plan::default());
    assert!(again.out_pages < PAGES / 8, "{again:?}");
}

#[test]
fn all_that_is_out_comes_back() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    child.swap_out();
    all_comes_back_to(&child);
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn what_its_processes_share_comes_back_once() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(16);
    let mut other = Child::spawn(16);
    let pages = child.map("memfd", PAGES);
    let path = child.object_path_at(&pages);
    let theirs = other.tell_file("mapfile", &path, 0, PAGES);
    other.tell_at("discard", theirs.clone());
    child.swap_out_at(&pages);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let both = [&child, &other].map(|child| Members::Tree(child.pid()));
    rig.engine.follow(&rig.app, &both);
    rig.take_events();
    let restored = restore(&mut rig, &Plan::default());
    assert!(restored.out_pages >= PAGES, "{restored:?}");
    assert!(restored.back_pages >= PAGES, "{restored:?}");
    assert!(restored.back_pages < PAGES * 9 / 8, "{restored:?}");
    let before = demand_faults(&other);
    other.tell_at("read", theirs);
    assert_eq!(demand_faults(&other), before);
    child.tell_at("verify", pages);
}

/// Of an address space that is only reserved, kernels without PAGEMAP_SCAN have every entry read.
#[test]
fn what_may_not_be_read_is_not_looked_for() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(16);
    let pages = child.map("private", PAGES);
    child.swap_out_at(&pages);
    child.tell_at("none", pages.clone());
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let restored = restore(&mut rig, &Plan::default());
    assert!(restored.out_pages < PAGES, "{restored:?}");
    child.tell_at("access", pages.clone());
    let restored = restore(&mut rig, &Plan::default());
    assert!(restored.out_pages >= PAGES, "{restored:?}");
    child.tell_at("verify", pages);
}

#[test]
fn all_of_a_frozen_application_comes_back_before_it_is_thawed() {
    let _machine = Machine::with_swap();
    let group = Group::create(&v2());
    let mut child = Child::spawn_in(&group.0, PAGES);
    child.swap_out();
    let freezer = &group.0;
    freezer.set_frozen(true).expect("freeze");
    let is_frozen = || {
        freezer
            .freezer_state()
            .is_ok_and(|state| state == FreezerState::Frozen)
    };
    eventually("it is frozen", is_frozen);
    all_comes_back_to(&child);
    assert!(is_frozen());
    freezer.set_frozen(false).expect("thaw");
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn all_that_is_out_comes_back_from_a_disk() {
    let (_machine, _file) = Machine::with_file_before_zram(PAGES * 2);
    let mut child = Child::spawn(PAGES);
    child.swap_out();
    all_comes_back_to(&child);
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn no_more_comes_back_than_a_limit_leaves_and_what_is_planned_comes_first() {
    const LEFT_PAGES: u64 = PAGES / 2;
    let _machine = Machine::with_swap();
    let group = Group::create(&memory());
    let mut child = Child::spawn_in(&group.0, PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let last = child.pages.end - PAGES / 4..child.pages.end;
    let plan = rig.plan_of(&child, [last]);
    child.swap_out();
    let limit = group.usage_bytes() + LEFT_PAGES * page_size();
    group.limit_memory(limit);
    let restored = restore(&mut rig, &plan);
    assert!(restored.back_pages <= LEFT_PAGES, "{restored:?}");
    let entries = child.entries();
    let is_planned_in = |entry: &prepage_kernel::pagemap::PageEntry| entry.present();
    let planned = &entries[entries.len() - PAGES as usize / 4..];
    assert!(planned.iter().all(is_planned_in), "{restored:?}");
    assert!(present(&child) > PAGES / 4);
    group.limit_memory_no_longer();
    child.tell_pages("verify", 0..PAGES);
}
