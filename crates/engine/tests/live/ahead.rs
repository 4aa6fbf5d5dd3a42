//! Headroom ahead of a switch: what lacks is reclaimed, from whom it may be, and not while somebody waits.

use crate::rig::{Rig, params, settle};
use prepage_core::identity::AppId;
use prepage_core::machine::{Action, Need};
use prepage_core::params::{Mode, ReclaimParams};
use prepage_core::plan::Plan;
use prepage_engine::{EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::page::page_size;
use prepage_kernel::sched;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::group::{Group, memory};
use prepage_kernel::testing::machine::{Machine, eventually};
use std::ops::Range;
use std::sync::Arc;

const PAGES: u64 = 4096;

/// Another application's.
const OTHERS_PAGES: u64 = PAGES * 3;

/// A small application's.
const SMALL_PAGES: u64 = PAGES / 4;

/// Long enough for something to have been reclaimed.
const WHILE_US: u64 = 500_000;

/// An application that is out, another one, which fills the limit of both, and a small one below that limit too.
struct Scene {
    rig: Rig,
    plan: Plan,
    child: Child,
    other: Child,
    others: Range<u64>,
    small: Child,
    /// Removed before the one above them.
    _groups: [Group; 3],
    above: Group,
    _machine: Machine,
}

/// Has headroom looked after for what is out of a plan, and for no more, while this other application is in use.
fn look(rig: &mut Rig, plan: &Plan, share_max: f32, in_use: Vec<AppId>) {
    let params = ReclaimParams {
        plan_multiple: 1.0,
        share_max,
        // Others on this machine may wait.
        stall_percent_max: 100,
        ..ReclaimParams::default()
    };
    let need = Need {
        app: rig.app.clone(),
        plan: Arc::new(plan.clone()),
        missed_pages: 0,
    };
    let reclaim = Action::Reclaim {
        needs: vec![need],
        in_use,
        mode: Mode::Full,
        params,
    };
    rig.engine.perform(monotonic_ns(), reclaim);
}

impl Scene {
    fn new() -> Scene {
        let machine = Machine::with_swap();
        let above = Group::create(&memory());
        let [ours, theirs, smalls] = [(); 3].map(|()| Group::below(&above));
        let mut child = Child::spawn_in(&ours.0, PAGES);
        let mut other = Child::spawn(1);
        theirs.0.add(other.pid()).expect("move the other");
        let others = other.map("private", OTHERS_PAGES);
        let small = Child::spawn_in(&smalls.0, SMALL_PAGES);
        let rig = Rig::new(&child, &EngineParams::default(), params());
        let plan = rig.plan_of(&child, [child.pages.clone()]);
        child.swap_out();
        above.limit_memory(above.usage_bytes());
        Scene {
            rig,
            plan,
            child,
            other,
            others,
            small,
            _groups: [ours, theirs, smalls],
            above,
            _machine: machine,
        }
    }

    fn look(&mut self, share_max: f32) {
        look(&mut self.rig, &self.plan, share_max, Vec::new());
    }

    /// Pages of the small application that are out.
    fn small_out(&self) -> usize {
        let entries = self.small.entries();
        entries.iter().filter(|entry| entry.swapped()).count()
    }

    fn left_pages(&self) -> u64 {
        let limits = self.above.0.limits().expect("limits");
        limits[0].left_bytes / page_size()
    }

    fn reclaimed_pages(&self) -> u64 {
        self.rig.engine.reclaimed().bytes / page_size()
    }

    /// Both have what they had.
    fn end(mut self) {
        self.above.limit_memory_no_longer();
        self.child.tell_pages("verify", 0..PAGES);
        self.other.tell_at("verify", self.others.clone());
        self.small.tell_pages("verify", 0..SMALL_PAGES);
    }
}

#[test]
fn what_is_out_of_a_plan_is_made_room_for() {
    let mut scene = Scene::new();
    assert!(scene.left_pages() < PAGES / 4, "{}", scene.left_pages());
    scene.look(1.0);
    eventually("there is headroom", || scene.left_pages() >= PAGES);
    eventually("it is reported", || scene.reclaimed_pages() > 0);
    assert!(scene.reclaimed_pages() < PAGES * 2, "no more than lacks");
    assert_eq!(scene.rig.engine.reclaimed().times, 1);
    assert!(scene.child.entries().iter().all(|entry| entry.swapped()));
    assert_eq!(scene.small_out(), 0, "who holds most gives");

    // All of it comes in then, and none of the other's goes for it.
    let present = |scene: &Scene| {
        let entries = scene.other.entries_at(&scene.others);
        entries.iter().filter(|entry| entry.present()).count()
    };
    let before = present(&scene);
    let plan = scene.plan.clone();
    scene.rig.fetch(&plan);
    settle(&scene.child);
    scene.rig.collect(&plan);
    let fetched = scene.child.entries().iter().filter(|e| e.present()).count();
    assert!(fetched as u64 >= PAGES * 3 / 4, "{fetched}");
    assert!(before - present(&scene) < PAGES as usize / 8);
    scene.end();
}

#[test]
fn the_application_in_use_gives_what_others_cannot() {
    let mut scene = Scene::new();
    let other = AppId {
        name: "other".into(),
        ..scene.rig.app.clone()
    };
    let members = Members::Tree(scene.other.pid());
    scene.rig.engine.follow(&other, &[members]);
    let plan = scene.plan.clone();
    look(&mut scene.rig, &plan, 1.0, vec![other.clone()]);
    eventually("there is headroom", || scene.left_pages() >= PAGES);
    let small_out = scene.small_out() as u64;
    assert!(small_out > SMALL_PAGES / 2, "{small_out}");
    scene.rig.engine.unfollow(&other);
    scene.end();
}

#[test]
fn no_more_than_a_share_of_the_limit_is_kept_free() {
    let mut scene = Scene::new();
    let limit = scene.above.0.memory_limit_bytes().expect("limit");
    let tenth = limit.expect("limited") / page_size() / 10;
    scene.look(0.1);
    eventually("there is headroom", || scene.left_pages() >= tenth);
    sched::sleep_us(WHILE_US);
    let left = scene.left_pages();
    assert!(left < tenth + PAGES / 2, "{left} of {tenth}");
    scene.end();
}

#[test]
fn nothing_is_reclaimed_for_what_is_in() {
    let mut scene = Scene::new();
    scene.above.limit_memory_no_longer();
    scene.child.tell_pages("verify", 0..PAGES);
    scene.above.limit_memory(scene.above.usage_bytes());
    scene.look(1.0);
    sched::sleep_us(WHILE_US);
    assert_eq!(scene.reclaimed_pages(), 0);
    scene.end();
}

#[test]
fn a_switch_that_begins_ends_it() {
    let mut scene = Scene::new();
    scene.look(1.0);
    // It is still being looked whether somebody waits for memory.
    let nothing = Plan::default();
    scene.rig.fetch(&nothing);
    sched::sleep_us(WHILE_US);
    assert_eq!(scene.reclaimed_pages(), 0);
    scene.rig.collect(&nothing);
    scene.end();
}

/// What an application needs next is not made room for by what it has now.
#[test]
fn nothing_is_reclaimed_under_a_limit_of_the_application_alone() {
    let _machine = Machine::with_swap();
    let group = Group::create(&memory());
    let mut child = Child::spawn_in(&group.0, PAGES);
    child.map("private", OTHERS_PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    child.swap_out();
    group.limit_memory(group.usage_bytes());
    look(&mut rig, &plan, 1.0, Vec::new());
    sched::sleep_us(WHILE_US);
    assert_eq!(rig.engine.reclaimed().bytes, 0);
    group.limit_memory_no_longer();
    child.tell_pages("verify", 0..PAGES);
}
