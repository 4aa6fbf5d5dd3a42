//! Memory of every kind: what is swapped out is fetched, the rest is passed over, and none of it changes.

use crate::rig::{Rig, demand_faults, params, settle, settle_at};
use prepage_engine::{EngineParams, Executor};
use prepage_kernel::page::page_size;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Machine, Setting};
use prepage_kernel::{maps, process};
use rustix::fs::{FallocateFlags, fallocate, fstat};
use std::fs::File;
use std::ops::Range;

const PAGES: u64 = 256;

/// Pages of a huge page.
const HUGE: u64 = 512;

fn present(child: &Child, pages: &Range<u64>) -> u64 {
    let entries = child.entries_at(pages);
    entries.iter().filter(|entry| entry.present()).count() as u64
}

#[test]
fn private_and_shared_memory_that_is_swapped_out_is_fetched() {
    let _machine = Machine::with_swap();
    each_kind_is_fetched();
}

#[test]
fn so_it_is_from_a_disk() {
    let (_machine, _file) = Machine::with_file_before_zram(64 << 10);
    each_kind_is_fetched();
}

fn each_kind_is_fetched() {
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    // The page table shows nothing of the last two that are swapped out.
    for kind in ["private", "zero", "thp", "shared", "memfd"] {
        let pages = child.map(kind, 2 * HUGE);
        child.swap_out_at(&pages);
        let plan = rig.plan_of(&child, [pages.clone()]);
        rig.fetch(&plan);
        settle_at(&child, &pages);
        let seen = rig.collect(&plan);
        assert_eq!(present(&child, &pages), 2 * HUGE, "{kind}");
        assert_eq!(rig.seen(&child, &seen).fetched.pages(), 2 * HUGE, "{kind}");
        let before = demand_faults(&child);
        child.tell_at("verify", pages);
        let faults = demand_faults(&child) - before;
        assert!(faults < HUGE / 8, "{kind}: {faults} demand faults left");
    }
}

#[test]
fn what_shared_memory_does_not_hold_is_not_made() {
    let _machine = Machine::with_swap();
    let _cluster = Setting::no_swap_readahead();
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let pages = child.map("memfd", PAGES);
    child.swap_out_at(&pages);
    let object = File::options()
        .write(true)
        .open(child.object_path_at(&pages));
    let object = object.expect("open the object");
    // Every other page, and all of the second half.
    let odd = (0..PAGES / 2).filter(|page| page % 2 == 1);
    for page in odd.chain(PAGES / 2..PAGES) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&object, flags, page * page_size(), page_size()).expect("make a hole");
    }
    let held = || fstat(&object).expect("stat").st_blocks as u64 * 512 / page_size();
    assert_eq!(held(), PAGES / 4);
    let plan = rig.plan_of(&child, [pages.clone()]);
    rig.fetch(&plan);
    settle_at(&child, &pages);
    assert_eq!(present(&child, &pages), PAGES / 4);
    assert_eq!(held(), PAGES / 4);
}

#[test]
fn memory_that_is_not_swapped_out_is_left_alone() {
    let _machine = Machine::with_swap();
    let _huge = Setting::huge_pages(2);
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let full: Vec<Range<u64>> = [("hugetlb", HUGE), ("locked", PAGES), ("thp", HUGE)]
        .into_iter()
        .map(|(kind, pages)| child.map(kind, pages))
        .collect();
    let empty = ["reserved", "untouched"].map(|kind| child.map(kind, PAGES));
    let memory = || process::status(child.pid()).expect("status").rss_anon_kib;
    let before = memory();
    let plan = rig.plan_of(&child, full.iter().chain(&empty).cloned());
    rig.fetch(&plan);
    settle(&child);
    let seen = rig.collect(&plan);
    assert_eq!(rig.seen(&child, &seen).fetched.pages(), 0);
    assert_eq!(memory(), before, "something was allocated");
    for pages in empty {
        assert_eq!(present(&child, &pages), 0, "{pages:?}");
    }
    for pages in full {
        assert_eq!(
            present(&child, &pages),
            pages.end - pages.start,
            "{pages:?}"
        );
        child.tell_at("verify", pages);
    }
}

#[test]
fn a_plan_of_the_whole_address_space_changes_nothing() {
    let _machine = Machine::with_swap();
    let _huge = Setting::huge_pages(1);
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let kinds = ["shared", "memfd", "zero", "locked", "hugetlb"];
    let regions = kinds.map(|kind| child.map(kind, HUGE));
    child.map("reserved", PAGES);
    child.tell_pages("none", 16..32);
    child.swap_out();
    for pages in &regions[..3] {
        child.swap_out_at(pages);
    }
    let before = maps::read(child.pid()).expect("maps");
    // Kernel memory that is mapped ([vvar], [vdso]) and files are among them, and what lies between, as well as what is
    // above all user memory.
    let mut ranges: Vec<Range<u64>> = before.iter().map(|mapping| mapping.pages()).collect();
    let last = ranges.last().expect("mappings").clone();
    ranges.push(child.pages.start - 64..child.pages.start);
    ranges.retain(|range| range.end <= last.end);
    ranges.push(1 << 50..(1 << 50) + 64);
    let plan = rig.plan_of(&child, ranges);
    rig.fetch(&plan);
    settle(&child);
    rig.collect(&plan);
    assert_eq!(maps::read(child.pid()).expect("maps"), before);
    child.tell_pages("access", 16..32);
    child.tell_at("verify", child.pages.clone());
    for pages in regions {
        child.tell_at("verify", pages);
    }
    assert_eq!(rig.engine.threads_given_up(), 0);
}
