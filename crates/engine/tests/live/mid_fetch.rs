//! What an application does to its memory and its files while they are being fetched: its contents are what it made them,
//! the fetch ends, and what it did is what is learned.

use crate::rig::{Rig, params, plan_of_file, settle};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_engine::EngineParams;
use prepage_kernel::page::page_size;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::hanging::HangingMount;
use prepage_kernel::testing::machine::{Directory, Machine, eventually, write_clean};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use std::fs::File;
use std::path::Path;

const PAGES: u64 = 128;

/// One thread that fetches half of the pages and sleeps, long enough for what happens in the middle on a busy machine.
fn slow() -> EngineParams {
    let mut engine = EngineParams::default();
    engine.fetch.anon_threads = 1;
    (engine.fetch.pace_pages, engine.fetch.pace_us) = (PAGES / 2, 3_000_000);
    engine.observe.settle_ms = 5_000;
    engine
}

/// A switch to a child whose region is planned and swapped out, of which the first pages are there.
fn begin(child: &mut Child) -> Rig {
    let mut rig = Rig::new(child, &slow(), params());
    // All is demanded, in the order of the addresses, in which it is fetched then.
    rig.set_mode(Mode::Observe);
    for _ in 0..2 {
        child.swap_out();
        rig.switch(|| child.tell_pages("read", 0..PAGES));
    }
    child.swap_out();
    rig.set_mode(Mode::Full);
    rig.begin();
    eventually("the fetch is under way", || present(child, 0..16) > 0);
    // It sleeps: what came between its first half's batches would end it without.
    settle(child);
    rig
}

fn present(child: &Child, pages: std::ops::Range<usize>) -> usize {
    let entries = &child.entries()[pages];
    entries.iter().filter(|entry| entry.present()).count()
}

#[test]
fn memory_that_is_unmapped_replaced_or_protected_in_the_middle_is_left_as_it_is() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = begin(&mut child);
    child.tell_pages("unmap", 64..80);
    child.tell_pages("remap", 80..96);
    child.tell_pages("none", 96..112);
    assert_eq!(present(&child, 112..128), 0, "all was fetched before that");
    rig.wait_for_fetch();
    assert_eq!(present(&child, 64..80), 0, "what is gone came back");
    assert_eq!(
        present(&child, 96..112),
        0,
        "what it cannot read was mapped"
    );
    child.tell_pages("verify", (0..64).chain(112..128));
    child.tell_pages("verify_remapped", 80..96);
    let record = rig.end();
    assert_eq!((record.void, record.anon.demanded), (None, 0), "{record:?}");
    // Of pages that it cannot read, those that are only watched came to the swap cache.
    let (fetched, changed) = (record.anon.fetched, 48);
    assert!(
        (PAGES - changed..PAGES - changed + 16).contains(&fetched),
        "{record:?}"
    );
    let (app, instance) = (rig.machine.app(&rig.app), rig.instance(&child));
    let mut tables = app.expect("tracked").instances();
    let (_, table) = tables.find(|(of, _)| **of == instance).expect("its table");
    let unused = |index| {
        let state = table.map().get(child.page(index)).expect("known");
        state.history.len() - state.history.used()
    };
    // Of what took the place of pages nothing is known.
    assert_eq!([0, 80, 95, 127].map(unused), [0; 4]);
    assert_eq!([64, 79, 96, 111].map(unused), [1; 4]);
    child.tell_pages("access", 96..112);
    child.tell_pages("verify", 96..112);
}

/// Without randomized addresses the new program has the same pages, swapped out.
#[test]
fn a_process_that_execs_in_the_middle_gets_nothing_of_its_old_plan() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn_through(&["setarch", "--addr-no-randomize"], PAGES);
    let mut rig = begin(&mut child);
    let before = child.pages.clone();
    child.exec();
    assert_eq!(child.pages, before, "it has other pages");
    child.swap_out();
    assert!(rig.is_fetching(), "all was fetched before that");
    rig.wait_for_fetch();
    assert_eq!(present(&child, 0..PAGES as usize), 0);
    let record = rig.end();
    // What was fetched before is gone: of what use it was, nobody knows.
    assert_eq!(record.anon.used + record.anon.unused, 0, "{record:?}");
    let app = rig.machine.app(&rig.app).expect("tracked");
    let tables: Vec<_> = app.instances().map(|(_, table)| table.map()).collect();
    assert_eq!(tables.len(), 1);
    assert!(tables[0].is_empty(), "learned of it: {tables:?}");
    assert_eq!(app.plan().anon_pages(), 0);
    child.tell_pages("verify", 0..PAGES);
}

const FILE_PAGES: u64 = 64;

/// What is read of the file before it changes, and after.
const READS: [Extent; 2] = [Extent::new(0, 16), Extent::new(32, 16)];

/// A plan of them, between which comes what a file system has to answer for.
fn plan_around(path: &Path, hanging: &HangingMount) -> Plan {
    let mut plan = plan_of_file(path, 0..16);
    let mut held = plan.files[0].clone();
    held.file.path = hanging.0.join("file").to_str().expect("text").into();
    held.reads = vec![(1, READS[0])];
    let targets = &mut plan.files[0];
    targets.wanted = READS.into_iter().collect();
    targets.read = targets.wanted.clone();
    targets.reads = vec![(0, READS[0]), (2, READS[1])];
    plan.files.push(held);
    plan
}

/// Has `change` happen to a file while it is being fetched. Returns what was fetched of it.
fn fetched_around(path: &Path, change: impl FnOnce()) -> ExtentSet {
    let directory = Directory::new();
    let child = Child::spawn(1);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    drop_cache(path);
    let hanging = HangingMount::at(&directory.0);
    let plan = plan_around(path, &hanging);
    rig.fetch(&plan);
    eventually("the first pages are fetched", || cached(path, 0, 16) == 16);
    change();
    assert!(rig.is_fetching());
    // Whoever waits for it goes on.
    drop(hanging);
    rig.wait_for_fetch();
    let seen = rig.collect(&plan);
    assert_eq!((seen.void, seen.events_lost), (None, 0));
    let of_file = &seen.files[&plan.files[0].file];
    assert!(of_file.accessed.is_empty(), "{of_file:?}");
    // The next switch fetches nothing of it.
    let next = plan_of_next(&plan);
    rig.fetch(&next);
    rig.wait_for_fetch();
    let seen = rig.collect(&next);
    let changed = &plan.files[0].file;
    assert!(seen.stale_files.contains(changed), "{seen:?}");
    assert!(seen.files[changed].fetched.is_empty(), "{seen:?}");
    of_file.fetched.clone()
}

/// The same without what held it up.
fn plan_of_next(plan: &Plan) -> Plan {
    Plan {
        files: vec![plan.files[0].clone()],
        ..Plan::default()
    }
}

#[test]
fn a_file_that_is_truncated_in_the_middle_stays_so() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("truncated", FILE_PAGES);
    let fetched = fetched_around(&path, || {
        let file = File::options().write(true).open(&path).expect("open");
        file.set_len(40 * page_size()).expect("truncate");
    });
    let left = [READS[0], Extent::new(32, 8)];
    assert_eq!(fetched, left.into_iter().collect());
    assert_eq!(cached(&path, 40, FILE_PAGES - 40), 0);
    let contents = std::fs::read(&path).expect("read");
    assert_eq!(contents, vec![b'x'; 40 * page_size() as usize]);
}

#[test]
fn of_a_file_that_is_replaced_in_the_middle_nothing_new_is_read() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("replaced", FILE_PAGES);
    let other = directory.path("other");
    write_clean(&other, FILE_PAGES);
    drop_cache(&other);
    let fetched = fetched_around(&path, || std::fs::rename(&other, &path).expect("rename"));
    assert_eq!(fetched, READS.into_iter().collect(), "of the old one");
    assert_eq!(cached(&path, 0, FILE_PAGES), 0);
}

#[test]
fn a_file_that_is_deleted_in_the_middle_is_gone() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("deleted", FILE_PAGES);
    let fetched = fetched_around(&path, || std::fs::remove_file(&path).expect("remove"));
    assert_eq!(fetched, READS.into_iter().collect());
    assert!(!path.exists());
}
