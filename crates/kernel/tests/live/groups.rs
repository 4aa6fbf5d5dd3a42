//! cgroups: finding, members, freezer notifications, reclaim.

use prepage_kernel::cgroup::{self, Cgroup, Controller, FreezerState, Hierarchy, Version};
use prepage_kernel::inotify::{FileEvent, Inotify};
use prepage_kernel::reclaim::Domain;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::group::{Group, freezers, memory, v2};
use prepage_kernel::testing::machine::{Directory, Machine, Setting, eventually};
use prepage_kernel::{mincore, readahead, swaps};
use rustix::fd::AsFd;

fn thaw_is_notified(hierarchy: &Hierarchy) {
    let mut child = Child::spawn(4);
    let group = Group::create(hierarchy);
    let freezer = &group.0;
    freezer.add(child.pid()).expect("move the child");
    assert_eq!(freezer.members(10).expect("members").pids, [child.pid()]);
    let hierarchies = [hierarchy.clone()];
    let found =
        cgroup::of_process(&hierarchies, child.pid(), Controller::Freezer).expect("membership");
    assert_eq!(found.as_ref(), Some(freezer));

    freezer.set_frozen(true).expect("freeze");
    eventually("it is frozen", || {
        freezer.freezer_state().expect("state") == FreezerState::Frozen
    });
    let inotify = Inotify::new().expect("inotify");
    // In version 1 nobody is told but of writes to the file itself.
    let file = freezer.directory.join(match freezer.version {
        Version::V1 => "freezer.state",
        Version::V2 => "cgroup.events",
    });
    let watch = inotify.watch(&file).expect("watch");
    let mut events = Vec::new();
    inotify
        .drain(100, |event| events.push(event))
        .expect("drain");
    assert_eq!(events, []);
    freezer.set_frozen(false).expect("thaw");
    eventually("a thaw is notified", || {
        inotify
            .drain(100, |event| events.push(event))
            .expect("drain");
        events.contains(&FileEvent::Modified(watch))
    });
    eventually("it is thawed", || {
        freezer.freezer_state().expect("state") == FreezerState::Thawed
    });
    child.tell("read", 0);

    child.kill();
    drop(group);
    inotify.unwatch(watch).expect("the file is gone");
    inotify.unwatch(watch).expect("a watch that has ended");
}

#[test]
fn thaw_is_notified_by_each_version() {
    let _machine = Machine::lock();
    freezers().iter().for_each(thaw_is_notified);
}

#[test]
fn members_are_those_of_the_subtree_and_bounded() {
    let _machine = Machine::lock();
    let (one, two) = (Child::spawn(1), Child::spawn(1));
    let group = Group::create(&v2());
    let below = Cgroup {
        version: Version::V2,
        directory: group.0.directory.join("below"),
    };
    std::fs::create_dir(&below.directory).expect("create a cgroup");
    group.0.add(one.pid()).expect("move");
    below.add(two.pid()).expect("move");
    let mut members = group.0.members(10).expect("members");
    members.pids.sort_unstable();
    let mut expected = vec![one.pid(), two.pid()];
    expected.sort_unstable();
    assert_eq!((members.pids, members.truncated), (expected, false));
    assert_eq!(cgroup::procs(&group.0.directory).expect("procs").len(), 2);
    let members = group.0.members(1).expect("members");
    assert_eq!((members.pids.len(), members.truncated), (1, true));
    drop((one, two));
    eventually("the cgroup is empty", || {
        cgroup::procs(&group.0.directory).expect("procs").is_empty()
    });
    eventually("the cgroup below is empty", || {
        std::fs::remove_dir(&below.directory).is_ok()
    });
    assert_eq!(below.members(10).expect("a removed cgroup").pids, []);
}

#[test]
fn headroom_is_what_the_tightest_limit_above_leaves() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let _lists = Setting::lru_lists();
    let page = prepage_kernel::page::page_size();
    let above = Group::create(&memory());
    let group = Group::below(&above);
    // The kernel charges in batches of 64 pages for each CPU, and its own memory too.
    let has_headroom = |pages: u64| {
        let headroom = group.0.memory_headroom().expect("headroom");
        let headroom = headroom.expect("limited").bytes / page;
        assert!(
            (pages.saturating_sub(256)..=pages).contains(&headroom),
            "{headroom} of {pages}"
        );
    };
    assert_eq!(group.0.memory_headroom().expect("headroom"), None);
    above.limit_memory(4096 * page);
    has_headroom(4096);
    group.limit_memory(2048 * page);
    has_headroom(2048);
    let mut child = Child::spawn(1);
    group.0.add(child.pid()).expect("move the child");
    // Anonymous pages that nobody uses are headroom where they may be swapped out.
    child.map("private", 1024);
    has_headroom(2048);
    group.swap_no_longer();
    has_headroom(1024);
    // File pages that nobody uses go first: they are headroom.
    let path = directory.file("inactive", 512);
    let file = std::fs::File::open(&path).expect("open");
    eventually("the file is out of the cache", || {
        readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
        let resident = mincore::resident(file.as_fd(), 0, 512 * page);
        !resident.expect("mincore").contains(&true)
    });
    child.tell_file("readfile", &path, 0, 512);
    assert!(group.usage_bytes() >= (1536 - 256) * page);
    has_headroom(1024);
}

#[test]
fn a_part_of_a_cgroup_is_reclaimed() {
    const PAGES: u64 = 8_192;
    let _machine = Machine::with_swap();
    let page = prepage_kernel::page::page_size();
    let group = Group::create(&memory());
    let mut child = Child::spawn(1);
    group.0.add(child.pid()).expect("move the child");
    let pages = child.map("private", PAGES);
    let domain = Domain::Cgroup(group.0.clone());
    let present = || {
        let entries = child.entries_at(&pages);
        entries.iter().filter(|entry| entry.present()).count() as u64
    };
    assert_eq!(present(), PAGES);
    let asked = PAGES / 8;
    let reclaimed = domain.reclaim(asked * page, &mut || true).expect("reclaim") / page;
    assert!((asked..PAGES / 2).contains(&reclaimed), "{reclaimed}");
    let left = present();
    assert!((PAGES / 2..=PAGES - asked / 2).contains(&left), "{left}");

    // Nothing goes where nothing is to go on, and little where it ends soon.
    assert_eq!(domain.reclaim(u64::MAX, &mut || false).expect("reclaim"), 0);
    assert_eq!(present(), left);
    let mut steps = 0..3;
    let reclaimed = domain.reclaim(u64::MAX, &mut || steps.next().is_some());
    assert!(reclaimed.expect("reclaim") < left * page);
    assert!(present() > 0);
    child.tell_at("verify", pages);
}

#[test]
fn a_cgroup_that_is_gone_is_an_error() {
    let group = Group::create(&memory());
    let domain = Domain::Cgroup(group.0.clone());
    drop(group);
    let error = domain.reclaim(1, &mut || true).expect_err("it is gone");
    assert!(error.is_not_found(), "{error}");
}

/// By the file that version 2 has for it, which takes bytes, a step at a time.
#[test]
fn a_part_of_a_cgroup_is_reclaimed_by_steps_of_version_2() {
    const STEP: u64 = 1 << 20;
    let directory = Directory::new();
    let file = directory.path("memory.reclaim");
    let domain = Domain::Cgroup(Cgroup {
        version: Version::V2,
        directory: directory.path(""),
    });
    assert!(domain.reclaim(1, &mut || true).is_err(), "before 5.19");
    std::fs::write(&file, "").expect("write");
    assert_eq!(domain.reclaim(0, &mut || true).expect("reclaim"), 0);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "");
    let reclaimed = domain.reclaim(2 * STEP + 1, &mut || true);
    assert_eq!(reclaimed.expect("reclaim"), 3 * STEP);
    assert_eq!(
        std::fs::read_to_string(&file).expect("read"),
        STEP.to_string()
    );
    let mut steps = 0..2;
    let reclaimed = domain.reclaim(u64::MAX, &mut || steps.next().is_some());
    assert_eq!(reclaimed.expect("reclaim"), 2 * STEP);
}

#[test]
fn the_machine_is_reclaimed() {
    let _machine = Machine::with_swap();
    let hierarchies = cgroup::hierarchies().expect("hierarchies");
    let domain = Domain::machine(&hierarchies);
    let domain =
        domain.expect("this test needs Linux 6.17, or memory controlled by version 2 of cgroups");
    let reclaimed = domain.reclaim(1 << 20, &mut || true).expect("reclaim");
    assert!(reclaimed <= 1 << 20, "{reclaimed}");
}

#[test]
fn limits_are_those_of_the_group_and_of_those_above() {
    let _machine = Machine::lock();
    let page = prepage_kernel::page::page_size();
    let above = Group::create(&memory());
    let group = Group::below(&above);
    assert_eq!(group.0.limits().expect("limits"), []);
    above.limit_memory(4096 * page);
    let limits = group.0.limits().expect("limits");
    assert_eq!(limits.len(), 1);
    assert_eq!(
        (&limits[0].cgroup, limits[0].limit_bytes),
        (&above.0, 4096 * page)
    );
    assert!((3584 * page..=4096 * page).contains(&limits[0].left_bytes));
    group.limit_memory(2048 * page);
    let of_both = group.0.limits().expect("limits");
    let of_both: Vec<_> = of_both.iter().map(|one| one.limit_bytes / page).collect();
    assert_eq!(of_both, [2048, 4096]);
}

#[test]
fn memory_of_a_cgroup_is_counted_and_reclaimed() {
    let _machine = Machine::with_swap();
    let group = Group::create(&memory());
    let child = Child::spawn_in(&group.0, 16);
    let before = group.0.memory_usage_bytes().expect("usage");
    assert!(before > 16 * prepage_kernel::page::page_size(), "{before}");
    let (anonymous, can_freeze) = match group.0.version {
        Version::V1 => ("total_rss", false),
        Version::V2 => ("anon", true),
    };
    assert!(group.0.memory_stat().expect("stat").contains_key(anonymous));
    assert_eq!(group.0.memory_limit_bytes().expect("limit"), None);
    assert_eq!(group.0.freezer_state().is_ok(), can_freeze);
    eventually("all of it is reclaimed", || {
        let all = Domain::Cgroup(group.0.clone());
        let _ = all.reclaim(u64::MAX, &mut || true);
        child.entries().iter().all(|entry| entry.swapped())
    });
    assert!(group.0.swap_usage_bytes().expect("swap") > 0);
    let found = cgroup::of_process(
        &cgroup::hierarchies().expect("hierarchies"),
        child.pid(),
        Controller::Memory,
    );
    assert_eq!(found.expect("membership").expect("mounted"), group.0);
}

/// The unit leaves the service as much swap as it takes to see into which area the kernel swaps next.
#[test]
fn a_process_that_may_swap_what_the_unit_allows_is_told_which_area_is_filled_next() {
    let _machine = Machine::with_swap();
    let unit = include_str!("../../../../dist/prepaged.service");
    let mut lines = unit.lines();
    let allowed = lines.find_map(|line| line.strip_prefix("MemorySwapMax="));
    let group = Group::create(&memory());
    let limits_swap = group.0.version == Version::V2;
    if limits_swap {
        group.write("memory.swap.max", allowed.expect("set"));
    }
    let mut child = Child::spawn_in(&group.0, 1);
    let mut filled = None;
    eventually("it is told", || {
        filled = child.swap_type_filled_next();
        filled.is_some()
    });
    let areas = swaps::areas().expect("swap areas");
    assert!(
        areas.iter().any(|area| Some(area.index) == filled),
        "{filled:?} of {areas:?}"
    );
    if limits_swap {
        group.write("memory.swap.max", 0);
        assert_eq!(child.swap_type_filled_next(), None);
    }
}
