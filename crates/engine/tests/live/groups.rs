//! Memory control groups: who is charged, and what a limit does.

use crate::rig::{Rig, params, plan_of_file, settle};
use prepage_engine::EngineParams;
use prepage_kernel::cgroup::Controller;
use prepage_kernel::page::page_size;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::group::{Group, Moved, memory};
use prepage_kernel::testing::machine::{Directory, Machine, Setting, eventually};
use prepage_kernel::testing::page_cache::{cached, drop_cache};

const PAGES: u64 = 4096;

/// Charges are kept back in batches for each CPU, and page tables are charged too.
const SLACK_PAGES: u64 = PAGES / 8;

#[test]
fn anonymous_pages_are_charged_to_the_application_and_file_pages_to_us() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let memory = memory();
    let (theirs, ours) = (Group::create(&memory), Group::create(&memory));
    let mut child = Child::spawn_in(&theirs.0, PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let _moved = Moved::to(&ours, Controller::Memory);
    let charged = || [&theirs, &ours].map(|group| group.usage_bytes() / page_size());
    let all = PAGES - SLACK_PAGES..PAGES + SLACK_PAGES;

    child.swap_out();
    let before = charged();
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    rig.fetch(&plan);
    settle(&child);
    rig.collect(&plan);
    let [theirs, ours] = charged();
    assert!(all.contains(&(theirs - before[0])), "{before:?} {theirs}");
    assert!(ours < before[1] + SLACK_PAGES, "{before:?} {ours}");

    let path = directory.file("charged", PAGES);
    drop_cache(&path);
    let before = charged();
    let plan = plan_of_file(&path, 0..PAGES);
    rig.fetch(&plan);
    eventually("the file is fetched", || cached(&path, 0, PAGES) == PAGES);
    rig.collect(&plan);
    // They stay charged to whoever read them first.
    child.tell_file("readfile", &path, 0, PAGES);
    let [theirs, ours] = charged();
    assert!(theirs < before[0] + SLACK_PAGES, "{before:?} {theirs}");
    assert!(all.contains(&(ours - before[1])), "{before:?} {ours}");
}

/// So many pages the kernel charges to a group at once (MEMCG_CHARGE_BATCH).
const CHARGE_BATCH_PAGES: u64 = 64;

fn is_kept_within_its_limit(engine: &EngineParams, headroom: u64) {
    let group = Group::create(&memory());
    let mut child = Child::spawn_in(&group.0, PAGES);
    let mut rig = Rig::new(&child, engine, params());
    child.swap_out();
    group.limit_memory(group.usage_bytes() + headroom * page_size());
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    rig.fetch(&plan);
    settle(&child);
    let seen = rig.collect(&plan);
    let fetched = rig.seen(&child, &seen).fetched.pages();
    assert!(
        (headroom / 2..=headroom).contains(&fetched),
        "{fetched} pages fetched"
    );
    let present = child
        .entries()
        .iter()
        .filter(|entry| entry.present())
        .count();
    assert_eq!(
        present as u64, fetched,
        "all that were fetched are still there"
    );
    // What a batch leaves is kept for its core. A batch that does not fit counts as a failure, too, though its pages are
    // then charged one by one: where there is not room for all of them, the count says nothing.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    if headroom - fetched > (cores + 1) * CHARGE_BATCH_PAGES {
        assert_eq!(group.limit_failures(), 0, "the limit was reached");
    }
    group.limit_memory_no_longer();
    child.tell_pages("verify", 0..PAGES);
}

/// Beyond its limit the kernel would take pages away that the application uses, or kill it.
#[test]
fn no_more_is_fetched_than_the_memory_group_has_headroom_for() {
    let _machine = Machine::with_swap();
    for threads in [1, 2] {
        let mut engine = EngineParams::default();
        engine.fetch.anon_threads = threads;
        is_kept_within_its_limit(&engine, PAGES / 4);
        is_kept_within_its_limit(&engine, PAGES * 3 / 4);
    }
}

/// How many pages are fetched where the limit of `above` is reached, and `unswappable` lose no more anonymous pages; the OOM
/// killer is not called.
fn fetched_at_the_limit(unswappable: &[&Group], above: &Group, child: &mut Child) -> u64 {
    let mut rig = Rig::new(child, &EngineParams::default(), params());
    child.swap_out();
    unswappable.iter().for_each(|group| group.swap_no_longer());
    above.limit_memory(above.usage_bytes());
    let plan = rig.plan_of(child, [child.pages.clone()]);
    rig.fetch(&plan);
    settle(child);
    let seen = rig.collect(&plan);
    let fetched = rig.seen(child, &seen).fetched.pages();
    for group in unswappable.iter().chain([&above]) {
        assert_eq!(group.oom_kills(), 0, "the OOM killer was called");
    }
    fetched
}

#[test]
fn without_headroom_nothing_is_fetched() {
    let _machine = Machine::with_swap();
    let group = Group::create(&memory());
    let mut child = Child::spawn_in(&group.0, PAGES);
    // Else what is inactive of the child itself could make room.
    assert_eq!(fetched_at_the_limit(&[&group], &group, &mut child), 0);
    assert!(child.entries().iter().all(|entry| entry.swapped()));
    group.limit_memory_no_longer();
    child.tell_pages("verify", 0..PAGES);
}

/// Other applications' pages that nobody uses are no reason to fetch nothing: the kernel takes them away, as it does for
/// demand faults.
#[test]
fn where_others_fill_the_limit_what_they_do_not_use_makes_room() {
    const OTHERS_PAGES: u64 = PAGES * 2;
    let _machine = Machine::with_swap();
    let _lists = Setting::lru_lists();
    for can_make_room in [true, false] {
        let above = Group::create(&memory());
        let (ours, others) = (Group::below(&above), Group::below(&above));
        let mut other = Child::spawn(1);
        others.0.add(other.pid()).expect("move the other");
        let pages = other.map("private", OTHERS_PAGES);
        let mut child = Child::spawn_in(&ours.0, PAGES);
        let unswappable: &[&Group] = if can_make_room {
            &[]
        } else {
            &[&others, &ours]
        };
        let fetched = fetched_at_the_limit(unswappable, &above, &mut child);
        for group in [&ours, &others] {
            assert_eq!(group.oom_kills(), 0, "the OOM killer was called");
        }
        if can_make_room {
            assert!(fetched >= PAGES * 9 / 10, "{fetched} pages fetched");
            assert!(above.limit_failures() > 0, "there was room");
            let entries = other.entries_at(&pages);
            let swapped = entries.iter().filter(|entry| entry.swapped()).count() as u64;
            assert!(swapped >= PAGES / 2, "{swapped} of the other's pages went");
        } else {
            assert_eq!(fetched, 0, "nobody can make room");
            assert!(child.entries().iter().all(|entry| entry.swapped()));
        }
        above.limit_memory_no_longer();
        child.tell_pages("verify", 0..PAGES);
        other.tell_at("verify", pages);
    }
}
