//! pagemap, process_vm_readv and process_madvise on a child.

use prepage_kernel::maps::Mapping;
use prepage_kernel::pagemap::{
    Categories, PageEntry, PageRegion, Pagemap, ScanSupport, scan_support,
};
use prepage_kernel::process_madvise::{Advice, Advised, advise, advise_all, pageout};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Lcg, Machine, Setting, eventually};
use prepage_kernel::{Process, maps, process, process_vm, procmap, shmem, swaps};
use rustix::fs::{FallocateFlags, fallocate};
use std::ops::Range;
use std::os::fd::AsFd;

#[test]
fn touch_swaps_in_and_maps_what_it_is_asked_and_nothing_else() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    assert!(
        child
            .entries()
            .iter()
            .all(|entry| entry.present() && !entry.file_or_shared())
    );
    child.swap_out();
    let areas = swaps::areas().expect("swap areas");
    for entry in child.entries() {
        assert!(entry.swapped());
        let kind = entry.swap_type().expect("swapped");
        assert!(
            areas.iter().any(|area| area.index == kind),
            "type {kind} of {areas:?}"
        );
    }
    let even: Vec<u64> = child.pages.clone().step_by(2).collect();
    assert_eq!(process_vm::touch(child.pid(), &even).expect("touch"), 32);
    for (index, entry) in child.entries().iter().enumerate() {
        assert_eq!(
            (entry.present(), entry.swapped()),
            (index % 2 == 0, index % 2 == 1),
            "page {index}"
        );
    }
    assert_eq!(process_vm::touch(child.pid(), &[]).expect("nothing"), 0);
}

#[test]
fn touch_takes_more_pages_than_one_call() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(2500);
    child.swap_out();
    let all: Vec<u64> = child.pages.clone().collect();
    assert_eq!(process_vm::touch(child.pid(), &all).expect("touch"), 2500);
    assert!(child.entries().iter().all(|entry| entry.present()));
}

#[test]
fn willneed_leaves_pages_swapped_until_they_are_touched() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    child.swap_out();
    let ranges = [
        child.page(0)..child.page(16),
        child.page(32)..child.page(48),
    ];
    assert_eq!(
        advise(child.process.pidfd(), Advice::WillNeed, &ranges).expect("willneed"),
        32
    );
    assert!(
        child.entries().iter().all(|entry| entry.swapped()),
        "in the swap cache, not mapped"
    );
    child.tell("read", 3);
    child.tell("write", 40);
    let present: Vec<usize> = (0..64)
        .filter(|&index| child.entry(index as u64).present())
        .collect();
    assert_eq!(present, [3, 40], "exactly what the application touched");
}

#[test]
fn cold_and_pageout_tell_how_far_they_came() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(32);
    let all = [child.pages.clone()];
    assert_eq!(
        advise(child.process.pidfd(), Advice::Cold, &all).expect("cold"),
        32
    );
    assert!(
        child.entries().iter().all(|entry| entry.present()),
        "cold evicts nothing"
    );
    assert_eq!(pageout(child.process.pidfd(), &all).expect("pageout"), 32);
    child.swap_out();
    assert_eq!(
        advise(child.process.pidfd(), Advice::WillNeed, &[]).expect("nothing"),
        0
    );
}

#[test]
fn calls_stop_at_a_hole_and_resume_after_it() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(32);
    child.swap_out();
    child.tell("unmap", 10);
    let all: Vec<u64> = child.pages.clone().collect();
    assert_eq!(process_vm::touch(child.pid(), &all).expect("touch"), 10);
    assert_eq!(
        process_vm::touch(child.pid(), &all[10..]).expect("the hole first"),
        0
    );
    assert_eq!(
        process_vm::touch(child.pid(), &all[11..]).expect("after it"),
        21
    );

    let ranges = [
        child.page(0)..child.page(4),
        child.page(8)..child.page(12),
        child.page(20)..child.page(24),
    ];
    let pidfd = child.process.pidfd();
    assert_eq!(
        advise(pidfd, Advice::WillNeed, &ranges).expect("up to the hole"),
        4
    );
    assert_eq!(
        advise(pidfd, Advice::WillNeed, &ranges[1..]).expect("the hole first"),
        0
    );
    let advised = advise_all(pidfd, Advice::WillNeed, &ranges).expect("all");
    assert_eq!(
        advised,
        Advised {
            pages: 8,
            ranges_skipped: 1,
            pages_skipped: 4
        }
    );
}

#[test]
fn advise_all_takes_more_ranges_than_one_call() {
    let _machine = Machine::lock();
    let mut child = Child::spawn(5000);
    child.tell("unmap", 2);
    child.tell("unmap", 4000);
    let ranges: Vec<_> = (0..2500)
        .map(|index| child.page(2 * index)..child.page(2 * index + 1))
        .collect();
    let advised = advise_all(child.process.pidfd(), Advice::Cold, &ranges).expect("all");
    assert_eq!(
        advised,
        Advised {
            pages: 2498,
            ranges_skipped: 2,
            pages_skipped: 2
        }
    );
}

#[test]
fn unreadable_pages_stop_a_touch() {
    let _machine = Machine::lock();
    let mut child = Child::spawn(16);
    child.tell("none", 5);
    let all: Vec<u64> = child.pages.clone().collect();
    assert_eq!(process_vm::touch(child.pid(), &all).expect("PROT_NONE"), 5);
    assert_eq!(
        process_vm::touch(child.pid(), &[u64::MAX]).expect("no such address"),
        0
    );
    let vvar = maps::read(child.pid()).expect("maps");
    if let Some(vvar) = vvar
        .iter()
        .find(|mapping| mapping.label.as_deref() == Some("[vvar]"))
    {
        assert_eq!(
            process_vm::touch(child.pid(), &[vvar.pages().start]).expect("device memory"),
            0
        );
    }
}

#[test]
fn guard_pages_stop_a_touch() {
    let _machine = Machine::lock();
    let mut child = Child::spawn(16);
    child.tell("guard", 9);
    let all: Vec<u64> = child.pages.clone().collect();
    assert_eq!(process_vm::touch(child.pid(), &all).expect("guard page"), 9);
    assert!(!child.entry(9).swapped(), "a guard page is not swapped");
}

#[test]
fn locked_memory_takes_no_pageout() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(16);
    child.tell("lock", 7);
    let ranges: Vec<_> = child.pages.clone().map(|page| page..page + 1).collect();
    let advised = advise_all(child.process.pidfd(), Advice::PageOut, &ranges).expect("all");
    assert_eq!(
        advised,
        Advised {
            pages: 15,
            ranges_skipped: 1,
            pages_skipped: 1
        }
    );
    assert!(child.entry(7).present());
}

#[test]
fn a_process_that_is_gone_is_a_normal_value() {
    let _machine = Machine::lock();
    let mut child = Child::spawn(4);
    let pid = child.pid();
    let pagemap = child.process.pagemap().expect("pagemap");
    let pages: Vec<u64> = child.pages.clone().collect();
    child.kill();
    assert!(!child.process.is_alive());
    assert!(process_vm::touch(pid, &pages).expect_err("gone").is_gone());
    assert!(
        advise(
            child.process.pidfd(),
            Advice::WillNeed,
            &[child.pages.clone()]
        )
        .expect_err("gone")
        .is_gone()
    );
    assert!(Process::open(pid).expect_err("gone").is_gone());
    assert!(Process::open(0).expect_err("no process").is_gone());
    assert!(Process::open(-1).expect_err("no process").is_gone());
    assert!(process::stat(pid).expect_err("gone").is_gone());
    assert!(process::status(pid).expect_err("gone").is_gone());
    assert!(process::exe(pid).expect_err("gone").is_gone());
    assert!(process::exec_generation(pid).expect_err("gone").is_gone());
    assert!(process::children(pid).expect_err("gone").is_gone());
    assert!(maps::read(pid).expect_err("gone").is_gone());
    assert!(
        prepage_kernel::fds::open_files(pid)
            .expect_err("gone")
            .is_gone()
    );
    assert!(
        prepage_kernel::cgroup::membership(pid)
            .expect_err("gone")
            .is_gone()
    );
    assert!(Pagemap::open(pid).expect_err("gone").is_gone());
    assert!(child.process.pagemap().expect_err("gone").is_gone());
    let mut entries = [Default::default(); 4];
    assert_eq!(
        pagemap
            .read(pages[0], &mut entries)
            .expect("an open pagemap of nobody"),
        0
    );
    let mut regions = Vec::new();
    let scanned = pagemap.scan(
        child.pages.clone(),
        Categories::PRESENT,
        Categories::NONE,
        &mut regions,
    );
    assert!(regions.is_empty(), "{scanned:?}");
}

#[test]
fn of_a_process_that_maps_more_than_is_read_no_part_passes_for_all() {
    const MAPPINGS: usize = 4_500;
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file_of_long_path();
    let mut child = Child::spawn(1);
    assert!(!maps::read(child.pid()).expect("maps").is_empty());
    for _ in 0..MAPPINGS {
        child.tell_file("mapfile", &path, 0, 1);
    }
    let error = maps::read(child.pid()).expect_err("it is longer than 16 MiB");
    assert!(error.to_string().ends_with("(EFBIG 27)"), "{error}");
}

/// As the first has ended and its pid is another's: what is held of it is of nobody.
#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let _machine = Machine::lock();
    let mut first = Child::spawn(16);
    let pagemap = first.process.pagemap().expect("open");
    first.kill();
    let second = Child::spawn_as(first.pid(), &[], 16);
    assert_eq!(second.pid(), first.pid());
    assert!(second.process.is_alive() && !first.process.is_alive());
    assert!(first.process.pagemap().expect_err("another's").is_gone());
    assert!(!pagemap.is_of_living());
    let mut entries = [PageEntry::default(); 16];
    let read = pagemap.read(second.pages.start, &mut entries);
    assert!(read.is_err() || entries.iter().all(|entry| !entry.present()));
    let all = [second.pages.clone()];
    let advised = advise(first.process.pidfd(), Advice::PageOut, &all);
    assert!(advised.expect_err("gone").is_gone());
    assert!(second.entries().iter().all(|entry| entry.present()));
}

#[test]
fn a_zombie_is_not_alive() {
    let _machine = Machine::lock();
    let mut zombie = std::process::Command::new("true")
        .spawn()
        .expect("run true");
    let pid = zombie.id() as i32;
    eventually("true ends", || {
        process::stat(pid).expect("not reaped").state == 'Z'
    });
    assert!(Process::open(pid).expect_err("a zombie").is_gone());
    assert!(process::status(pid).expect("not reaped").without_memory);
    assert_eq!(maps::read(pid).expect("not reaped"), []);
    zombie.wait().expect("reap");
}

#[test]
fn exec_changes_the_generation_and_not_the_identity() {
    let _machine = Machine::lock();
    let mut child = Child::spawn(4);
    let before = process::exec_generation(child.pid()).expect("generation");
    assert_eq!(
        process::exec_generation(child.pid()).expect("generation"),
        before
    );
    let pagemap = child.process.pagemap().expect("pagemap");
    let first = child.pages.start;
    child.exec();
    assert_ne!(
        process::exec_generation(child.pid()).expect("generation"),
        before
    );
    assert_eq!(
        Process::open(child.pid()).expect("alive").id(),
        child.process.id()
    );
    let mut entries = [Default::default(); 1];
    assert_eq!(
        pagemap
            .read(first, &mut entries)
            .expect("the old address space"),
        0
    );
}

#[test]
fn facts_about_a_child() {
    let _machine = Machine::lock();
    let child = Child::spawn(8);
    let own = process::own_pid();
    let stat = process::stat(child.pid()).expect("stat");
    assert_eq!(
        (stat.pid, stat.ppid, stat.start_ticks),
        (child.pid(), own, child.process.id().start_ticks)
    );
    assert!(
        process::processes()
            .expect("processes")
            .contains(&child.pid())
    );
    assert!(
        process::children(own)
            .expect("children")
            .contains(&child.pid())
    );
    let status = process::status(child.pid()).expect("status");
    assert!(status.vm_rss_kib > 0 && !status.without_memory);
    assert_eq!(status.uid.file_system, 0);
    assert_eq!(
        process::exe(child.pid()).expect("exe"),
        std::env::current_exe().expect("own path")
    );
    assert!(
        process::cmdline(child.pid())
            .expect("cmdline")
            .iter()
            .any(|argument| argument == "--exact")
    );
    let maps = maps::read(child.pid()).expect("maps");
    let byte = child.pages.start * prepage_kernel::page::page_size();
    let region = maps
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&byte))
        .expect("mapped");
    assert!(
        region.readable
            && region.writable
            && !region.executable
            && !region.shared
            && region.path.is_none()
    );
    // Asked for single ones, the kernel says the same. The vsyscall page is in the text alone.
    let is_own = |mapping: &&Mapping| mapping.label.as_deref() != Some("[vsyscall]");
    let own: Vec<Mapping> = maps.iter().filter(is_own).cloned().collect();
    let all = procmap::mappings_of(child.pid(), std::iter::once(0..u64::MAX));
    assert_eq!(all.expect("mappings"), own);
    let two = [&own[1], &own[own.len() - 1]].map(Mapping::pages);
    // Between them and behind the last there is nothing.
    let gap = |after: &Mapping| after.pages().end..after.pages().end + 1;
    let is_mapped = |pages: &Range<u64>| own.iter().any(|m| m.pages().contains(&pages.start));
    assert!(!is_mapped(&gap(&own[own.len() - 1])));
    let asked = two.into_iter().chain([gap(&own[own.len() - 1])]);
    let found = procmap::mappings_of(child.pid(), asked);
    assert_eq!(
        found.expect("mappings"),
        [&own[1], &own[own.len() - 1]].map(Mapping::clone)
    );
    let exe = std::env::current_exe().expect("own path");
    assert!(
        maps.iter()
            .any(|mapping| mapping.executable && mapping.path.as_ref() == Some(&exe))
    );
    assert!(
        maps.iter()
            .any(|mapping| mapping.label.as_deref() == Some("[stack]"))
    );
}

#[test]
fn shared_memory_alone_is_opened_as_such() {
    let mut child = Child::spawn(16);
    for (kind, is_shared) in [("memfd", true), ("shared", true), ("private", false)] {
        let pages = child.map(kind, 4);
        let mapping = child.mapping_at(&pages);
        let opened = mapping.map(|mapping| mapping.open_shmem(child.pid()).is_ok());
        assert_eq!(opened.unwrap_or(false), is_shared, "{kind}");
    }
    // Whatever its name says, a file on another file system is none.
    let mappings = maps::read(child.pid()).expect("maps");
    let file = mappings.iter().find(|m| m.executable && m.inode > 0);
    let mut file = file.expect("its own program").clone();
    file.path = Some("/dev/shm/x".into());
    assert!(file.is_shmem());
    let error = file.open_shmem(child.pid()).expect_err("it is a file");
    assert!(error.to_string().contains("Invalid argument"), "{error}");
}

#[test]
fn of_shared_memory_what_is_swapped_out_is_counted_without_its_holes() {
    const PAGES: u64 = 64;
    let _machine = Machine::with_swap();
    let page = prepage_kernel::page::page_size();
    let mut child = Child::spawn(1);
    for kind in ["memfd", "shared"] {
        let pages = child.map(kind, PAGES);
        let path = child.object_path_at(&pages);
        let object = std::fs::File::options().read(true).write(true).open(path);
        let object = object.expect("open");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&object, punch, 8 * page, 4 * page).expect("a hole");
        let out = |first: u64, count: u64| {
            let out = shmem::swapped_out(object.as_fd(), first * page, count * page);
            out.expect("count")
        };
        let held = |first: u64, count: u64| {
            shmem::held(object.as_fd(), first * page, count * page).expect("count")
        };
        assert_eq!(held(0, PAGES), PAGES - 4, "{kind}");
        child.swap_out_at(&pages);
        for count in [&out as &dyn Fn(u64, u64) -> u64, &held] {
            assert_eq!(count(0, PAGES), PAGES - 4, "{kind}");
            assert_eq!((count(6, 3), count(8, 4), count(11, 2)), (2, 0, 1));
            // Behind its end there is nothing.
            assert_eq!((count(PAGES - 3, 30), count(PAGES, 1)), (3, 0));
        }
        child.tell_at("read", pages.start + 20..pages.start + 30);
        // Before 6.5 what is in memory is not told apart.
        assert!([6, 16].contains(&out(16, 16)), "{kind}: {}", out(16, 16));
        assert_eq!(held(16, 16), 16, "{kind}");
    }
    let file = std::fs::File::open("/proc/self/stat").expect("open");
    assert!(shmem::held(file.as_fd(), 0, page).is_err());
}

/// PAGEMAP_SCAN and reading every entry must agree on whatever state the pages are in.
#[test]
fn scan_agrees_with_reading_every_entry() {
    let _machine = Machine::with_swap();
    assert_ne!(
        scan_support(),
        ScanSupport::Absent,
        "this test needs PAGEMAP_SCAN (6.7)"
    );
    const PAGES: u64 = 2200;
    let mut child = Child::spawn(PAGES);
    child.swap_out();
    let mut random = Lcg(2024);
    for _ in 0..600 {
        let action = ["read", "write", "discard", "read", "read"][random.below(5) as usize];
        child.tell(action, random.below(PAGES));
    }
    for index in [0, 100, 101, PAGES - 1] {
        child.tell("unmap", index);
    }
    child.tell("none", 50);
    if scan_support() == ScanSupport::WithGuard {
        child.tell("guard", 60);
        child.tell("guard", 61);
    }
    let pagemap = child.process.pagemap().expect("pagemap");
    let mut ranges: Vec<_> = maps::read(child.pid())
        .expect("maps")
        .iter()
        .map(|mapping| mapping.pages())
        .collect();
    ranges.retain(|range| range.end < 1 << 40);
    ranges.push(child.pages.start - 50..child.pages.end + 50);
    ranges.extend((0..50).map(|_| {
        let start = child.pages.start + random.below(PAGES);
        start..start + random.below(PAGES)
    }));
    let mut seen = 0;
    for range in ranges {
        for (required, excluded) in [
            (Categories::PRESENT, Categories::NONE),
            (Categories::SWAPPED, Categories::NONE),
            (Categories::PRESENT, Categories::FILE),
            (Categories::PRESENT | Categories::FILE, Categories::NONE),
            (Categories::NONE, Categories::PRESENT | Categories::FILE),
        ] {
            // Without a required category, holes count too, and the kernel skips those between mappings.
            if required == Categories::NONE
                && !(child.pages.start + 102..child.pages.end - 1).contains(&range.start)
            {
                continue;
            }
            let (mut scanned, mut read) = (Vec::new(), Vec::new());
            pagemap
                .scan(range.clone(), required, excluded, &mut scanned)
                .expect("scan");
            pagemap
                .scan_by_read(range.clone(), required, excluded, &mut read)
                .expect("read");
            if required == Categories::NONE {
                let inside = |region: &PageRegion| region.pages.end < child.pages.end - 1;
                scanned.retain(inside);
                read.retain(inside);
            }
            assert_eq!(scanned, read, "{range:?} {required:?} {excluded:?}");
            seen += scanned.len();
        }
    }
    assert!(seen > 1000, "{seen} regions: too few to mean anything");
}

#[test]
fn huge_pages_take_no_pageout() {
    let _machine = Machine::lock();
    let _huge = Setting::huge_pages(1);
    let mut child = Child::spawn(1);
    let range = child.map("hugetlb", (2 << 20) / prepage_kernel::page::page_size());
    let paged_out = pageout(child.process.pidfd(), std::slice::from_ref(&range));
    assert_eq!(paged_out.expect("pageout"), 0);
    assert_eq!(
        process_vm::touch(child.pid(), &[range.start]).expect("touch"),
        1
    );
}

#[test]
fn swapped_shared_memory_is_neither_present_nor_swapped() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(1);
    let pages = child.map("shared", 32);
    let mapped = |entry: &PageEntry| entry.present() && entry.file_or_shared();
    assert!(child.entries_at(&pages).iter().all(mapped));
    child.swap_out_at(&pages);
    let entries = child.entries_at(&pages);
    assert!(
        entries
            .iter()
            .all(|entry| !entry.present() && !entry.swapped())
    );
    let all: Vec<u64> = pages.clone().collect();
    assert_eq!(process_vm::touch(child.pid(), &all).expect("touch"), 32);
    assert!(child.entries_at(&pages).iter().all(mapped));
    child.tell_at("verify", pages);
}
