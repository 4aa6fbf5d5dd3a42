//! Memory control groups: who is charged, and what a limit does.

use crate::cache::{cached, drop_cache};
use crate::rig::{Rig, params, plan_of_file, settle};
use prepage_engine::EngineParams;
use prepage_kernel::cgroup::Controller;
use prepage_kernel::page::page_size;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::group::{Group, Moved, v1};
use prepage_kernel::testing::machine::{Directory, Machine, eventually};

const PAGES: u64 = 4096;

/// Charges are kept back in batches for each CPU, and page tables are charged too.
const SLACK_PAGES: u64 = PAGES / 8;

fn child_in(group: &Group) -> Child {
    let mut child = Child::spawn(PAGES);
    group.0.add(child.pid()).expect("move the child");
    // Pages are charged when they come to be: so only those of the new program.
    child.exec();
    child
}

#[test]
fn anonymous_pages_are_charged_to_the_application_and_file_pages_to_us() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let memory = v1("memory");
    let (theirs, ours) = (Group::create(&memory), Group::create(&memory));
    let mut child = child_in(&theirs);
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

fn is_kept_within_its_limit(engine: &EngineParams, headroom: u64) {
    let group = Group::create(&v1("memory"));
    let mut child = child_in(&group);
    let mut rig = Rig::new(&child, engine, params());
    child.swap_out();
    group.write(
        "memory.limit_in_bytes",
        group.usage_bytes() + headroom * page_size(),
    );
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
    assert_eq!(
        group.read_number("memory.failcnt"),
        0,
        "the limit was reached"
    );
    group.write("memory.limit_in_bytes", -1);
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

#[test]
fn without_headroom_nothing_is_fetched() {
    let _machine = Machine::with_swap();
    let group = Group::create(&v1("memory"));
    let mut child = child_in(&group);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    child.swap_out();
    group.write("memory.limit_in_bytes", group.usage_bytes());
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    rig.fetch(&plan);
    settle(&child);
    let seen = rig.collect(&plan);
    assert_eq!(rig.seen(&child, &seen).fetched.pages(), 0);
    assert!(child.entries().iter().all(|entry| entry.swapped()));
    group.write("memory.limit_in_bytes", -1);
    child.tell_pages("verify", 0..PAGES);
}
