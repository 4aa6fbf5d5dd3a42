//! Pages that a monitor in user space has to provide, and does not.

use crate::rig::{Rig, params, settle, settle_at};
use prepage_engine::{EngineParams, Executor};
use prepage_kernel::process;
use prepage_kernel::sched::{online_cpus, sleep_us};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Machine, eventually};
use std::ops::Range;

const PAGES: u64 = 2048;

/// Pages that a thread takes at once: long enough for the trap to snap behind its first.
const BATCH_PAGES: u64 = 512;

/// The last pages of the first batch: missing from the moment on at which its first page is brought in.
const TRAP: Range<u64> = BATCH_PAGES - 64..BATCH_PAGES;

const ATTEMPTS_MAX: usize = 5;

fn slow_batches() -> EngineParams {
    let mut engine = EngineParams::default();
    engine.fetch.anon_batch_pages = BATCH_PAGES;
    engine.fetch.anon_threads = 2;
    engine.fetch.watchdog_ms = 50;
    engine.observe.settle_ms = 300;
    engine
}

/// Threads of ours that fetch anonymous pages.
fn fetching_threads() -> usize {
    let own = process::own_pid();
    let name = |tid: &i32| std::fs::read_to_string(format!("/proc/{own}/task/{tid}/comm"));
    let threads = process::threads(own).expect("our threads");
    let names = threads.iter().filter_map(|tid| name(tid).ok());
    names
        .filter(|name| name.starts_with("prepage-anon"))
        .count()
}

/// A switch in which a thread hangs, that is ended nevertheless.
fn hang(rig: &mut Rig, child: &mut Child) {
    // The first thread has the first core to itself.
    let cpus = online_cpus().expect("CPUs");
    child.pin(*cpus.get(1).expect("this test needs two cores"));
    for _ in 0..ATTEMPTS_MAX {
        child.tell_at("answer", missing(child));
        child.tell_pages("verify", 0..PAGES);
        child.swap_out();
        child.set_trap(child.page(0), child.page(TRAP.start)..child.page(TRAP.end));
        let plan = rig.plan_of(child, [child.pages.clone()]);
        rig.fetch(&plan);
        child.trap_sprung();
        let others = child.page(BATCH_PAGES)..child.page(PAGES);
        eventually("the other pages are fetched", || {
            child
                .entries_at(&others)
                .iter()
                .all(|entry| entry.present())
        });
        let seen = rig.collect(&plan);
        // Where the thread was faster than the trap, it has finished and told of its pages.
        if !rig.seen(child, &seen).fetched.contains(child.page(0)) {
            return;
        }
    }
    panic!("no thread was caught in {ATTEMPTS_MAX} attempts");
}

fn missing(child: &Child) -> Vec<u64> {
    let entries = child.entries().into_iter().zip(child.pages.clone());
    let missing = entries.filter(|(entry, _)| !entry.present() && !entry.swapped());
    missing.map(|(_, page)| page).collect()
}

/// The switch after that, which finds the thread hanging. Returns the pages fetched, of those that are not missing.
fn next_switch(rig: &mut Rig, child: &mut Child) -> u64 {
    assert_eq!(rig.engine.threads_given_up(), 0, "nobody has looked yet");
    sleep_us(60_000);
    let rest = child.page(BATCH_PAGES)..child.page(PAGES);
    child.swap_out_at(&rest);
    let plan = rig.plan_of(child, [rest.clone()]);
    rig.fetch(&plan);
    settle_at(child, &rest);
    let seen = rig.collect(&plan);
    assert_eq!(rig.engine.threads_given_up(), 1);
    rig.seen(child, &seen).fetched.pages()
}

/// The monitor answers: the thread that hung ends by itself, and the application has all its memory.
fn answered(child: &mut Child, threads: usize) {
    child.tell_at("answer", missing(child));
    eventually("the thread that hung ends", || {
        fetching_threads() == threads
    });
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn a_thread_that_hangs_is_replaced_and_ends_when_the_monitor_answers() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &slow_batches(), params());
    child.tell_pages("monitor", 0..PAGES);
    eventually("those of earlier engines end", || fetching_threads() == 2);
    hang(&mut rig, &mut child);
    child.tell_pages("verify", BATCH_PAGES..PAGES);
    let fetched = next_switch(&mut rig, &mut child);
    assert_eq!((fetched, fetching_threads()), (PAGES - BATCH_PAGES, 3));
    answered(&mut child, 2);
}

#[test]
fn while_more_threads_hang_than_may_nothing_is_fetched_for_their_user() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut engine = slow_batches();
    engine.fetch.replacements_max = 0;
    let mut rig = Rig::new(&child, &engine, params());
    child.tell_pages("monitor", 0..PAGES);
    hang(&mut rig, &mut child);
    let fetched = next_switch(&mut rig, &mut child);
    assert_eq!((fetched, fetching_threads()), (0, 3));
    answered(&mut child, 2);
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    child.swap_out();
    rig.fetch(&plan);
    eventually("all is fetched again", || {
        child.entries().iter().all(|entry| entry.present())
    });
}

#[test]
fn markers_of_a_monitor_are_no_swapped_pages() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    child.tell_pages("discard", 16..32);
    child.tell_pages("mark", 16..32);
    child.swap_out();
    let plan = rig.plan_of(&child, [child.pages.clone()]);
    rig.fetch(&plan);
    settle(&child);
    let seen = rig.collect(&plan);
    assert_eq!(rig.seen(&child, &seen).fetched.pages(), 48);
    assert!(child.entries()[16..32].iter().all(|entry| !entry.present()));
    assert_eq!(rig.engine.threads_given_up(), 0);
    child.tell_pages("answer", 16..32);
    child.tell_pages("verify", 0..64);
}
