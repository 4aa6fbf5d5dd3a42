//! Anonymous pages, from the demand fault to the prepaged page.

use crate::rig::{Rig, demand_faults, of_files, params, settle};
use crate::threads::fetching_threads;
use prepage_core::anon::AnonTargets;
use prepage_core::extent::Extent;
use prepage_core::outcome::Void;
use prepage_core::params::{AnonRule, Mode};
use prepage_core::plan::Plan;
use prepage_core::signal::Source;
use prepage_engine::{Engine, EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::support::Support;
use prepage_kernel::swaps::{self, SwapKind};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{
    Directory, Machine, Setting, SwapFile, eventually, zswap_counters,
};
use prepage_kernel::testing::page_cache::drop_cache;
use std::ops::Range;

const PAGES: u64 = 1024;

#[test]
fn pages_that_recur_are_there_before_they_are_touched() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let footprint: Vec<u64> = (0..PAGES).filter(|i| i % 8 < 5).collect();
    for round in 0..3 {
        child.swap_out();
        let record = rig.switch(|| child.tell_pages("read", footprint.clone()));
        assert_eq!(record.void, None, "round {round}: {record:?}");
    }
    child.swap_out();
    let before = demand_faults(&child);
    rig.begin();
    rig.wait_for_fetch();
    let entries = child.entries();
    child.tell_pages("read", footprint.clone());
    let record = rig.end();
    let faults = demand_faults(&child) - before;
    assert!(
        faults < footprint.len() as u64 / 20,
        "{faults} demand faults left: {record:?}"
    );
    assert!(
        record.anon.fetched >= footprint.len() as u64 * 9 / 10,
        "{record:?}"
    );
    let unwanted = (0..PAGES).filter(|i| !footprint.contains(i) && entries[*i as usize].present());
    assert!(unwanted.count() < 8, "pages came in that nobody wanted");
}

#[test]
fn unplanned_faults_that_turn_out_to_be_a_switch_count_from_the_first_on() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut params = params();
    params.switch.onset_pause_ms = 0;
    let mut rig = Rig::new(&child, &EngineParams::default(), params);
    for _ in 0..3 {
        child.swap_out();
        rig.switch(|| child.tell_pages("read", 0..256));
    }
    child.swap_out();
    let began = monotonic_ns();
    rig.begin_by(Source::Unplanned);
    child.tell_pages("read", 512..768);
    rig.engine.drain_faults();
    let faults = rig.engine.recent_faults(&rig.app, began);
    let wanted = |page| (child.pid(), child.pages.start + page);
    assert!((512..768).all(|page| faults.contains(&wanted(page))));
    let later = rig.engine.recent_faults(&rig.app, monotonic_ns());
    assert_eq!(later, []);
    let is_out = |pages: Range<usize>| child.entries()[pages].iter().all(|e| e.swapped());
    assert!(is_out(0..256), "it was fetched for");
    rig.begin_by(Source::Onset);
    rig.wait_for_fetch();
    let record = rig.end();
    assert_eq!((record.source, record.void), (Source::Onset, None));
    assert!(record.anon.fetched >= 240, "{record:?}");
    assert!(record.anon.missed >= 250, "{record:?}");
    let model = rig.machine.app(&rig.app).expect("tracked");
    let planned = model.plan().anon_among(&faults);
    assert!(planned >= 250, "{planned} of them are planned next time");
}

#[test]
fn faults_are_not_recorded_in_a_pause_which_a_switch_ends() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    rig.set_mode(Mode::Observe);
    let mut faults = |rig: &mut Rig| {
        child.swap_out();
        rig.engine.drain_faults();
        child.tell_pages("read", 0..PAGES / 2);
        let bursts = rig.engine.drain_faults();
        let own = bursts.iter().filter(|burst| burst.pid == child.pid());
        own.map(|burst| u64::from(burst.count)).sum::<u64>()
    };
    let all = PAGES / 2 * 9 / 10..;
    rig.engine.pause_faults(true);
    assert_eq!(faults(&mut rig), 0);
    rig.engine.pause_faults(false);
    assert!(all.contains(&faults(&mut rig)));
    rig.engine.pause_faults(true);
    rig.begin();
    assert!(all.contains(&faults(&mut rig)));
    rig.engine.pause_faults(true);
    assert!(all.contains(&faults(&mut rig)), "one is under way");
    rig.end();
    assert!(all.contains(&faults(&mut rig)), "nothing was paused");
}

/// As after the machine slept, whose cores but one were offline.
#[test]
fn faults_and_file_accesses_are_seen_in_rings_that_were_opened_anew() {
    let _machine = Machine::with_swap();
    let directory = Directory::new();
    let path = directory.file("read", 64);
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    rig.set_mode(Mode::Observe);
    let mut use_it = |rig: &mut Rig| {
        child.swap_out();
        drop_cache(&path);
        let record = rig.switch(|| {
            // The watch on openings begins a moment after the switch, in a thread of its own.
            prepage_kernel::sched::sleep_us(20_000);
            child.tell_pages("read", 0..PAGES / 2);
            child.tell_file("readfile", &path, 0, 64);
        });
        assert_eq!((record.void, record.unresolved), (None, 0), "{record:?}");
        (record.anon.demanded, of_files(&record).demanded)
    };
    for round in 0..2 {
        let (pages, of_file) = use_it(&mut rig);
        assert!(pages >= PAGES / 2, "round {round}: {pages}");
        assert_eq!(of_file, 64, "round {round}");
        assert_eq!(rig.engine.adapt_to_cores(), [] as [String; 0]);
    }
}

#[test]
fn a_core_that_came_online_fetches_as_well() {
    let _machine = Machine::lock();
    let fetching_threads = || fetching_threads("prepage-anon").len();
    eventually("engines of other tests ended", || fetching_threads() == 0);
    let mut support = Support::probe();
    let cores = std::mem::take(&mut support.cpu_capacities);
    support.cpu_capacities = vec![cores[0]];
    let mut engine = Engine::start(&EngineParams::default(), &support).expect("threads");
    eventually("one thread", || fetching_threads() == 1);
    assert_eq!(engine.adapt_to_cores(), [] as [String; 0]);
    eventually("one for each core", || fetching_threads() == cores.len());
}

#[test]
fn an_observation_in_which_the_rings_were_opened_anew_is_void() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    child.swap_out();
    rig.begin();
    child.tell_pages("read", 0..PAGES / 2);
    assert_eq!(rig.engine.adapt_to_cores(), [] as [String; 0]);
    let record = rig.end();
    assert_eq!(record.void, Some(Void::EventsLost), "{record:?}");
    child.swap_out();
    let record = rig.switch(|| child.tell_pages("read", 0..PAGES / 2));
    assert_eq!(record.void, None, "{record:?}");
}

#[test]
fn what_is_watched_tells_use_from_disuse_exactly() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut params = params();
    // Every page is watched in every switch.
    params.anon.observe_interval_max = 1;
    let mut rig = Rig::new(&child, &EngineParams::default(), params);
    for _ in 0..2 {
        child.swap_out();
        rig.switch(|| child.tell_pages("write", 0..PAGES / 2));
    }
    child.swap_out();
    rig.begin();
    rig.wait_for_fetch();
    child.tell_pages("read", 0..PAGES / 4);
    let record = rig.end();
    // On a busy machine the application still faults on one or a few, now and then.
    let (anon, overtaken) = (&record.anon, record.anon.overtaken);
    assert!(overtaken <= 8, "{record:?}");
    assert_eq!(anon.fetched, PAGES / 2 - overtaken, "{record:?}");
    assert_eq!(
        (anon.used, anon.unused),
        (PAGES / 4 - overtaken, PAGES / 4),
        "{record:?}"
    );
    assert_eq!((anon.unknown, anon.demanded), (0, overtaken));
}

/// Whole blocks of the plan, and single pages of others.
#[test]
fn pages_that_were_given_back_are_neither_fetched_nor_used_and_are_forgotten() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    // Every page is watched in every switch; then as the paper maps most.
    for (rule, interval) in [(AnonRule::History, 1), (AnonRule::Paper, 128)] {
        let mut params = params();
        params.anon.rule = rule;
        params.anon.observe_interval_max = interval;
        let mut rig = Rig::new(&child, &EngineParams::default(), params);
        for _ in 0..3 {
            child.swap_out();
            rig.switch(|| child.tell_pages("write", 0..PAGES));
        }
        let is_given_back =
            |page: &u64| *page < PAGES / 4 || *page < PAGES / 2 && page.is_multiple_of(2);
        let given_back: Vec<u64> = (0..PAGES).filter(is_given_back).collect();
        let kept = PAGES - given_back.len() as u64;
        for _ in 0..8 {
            child.swap_out();
            child.tell_pages("discard", given_back.clone());
            rig.begin();
            rig.wait_for_fetch();
            // To write to them makes new pages of them.
            child.tell_pages("write", 0..PAGES);
            let record = rig.end();
            let anon = &record.anon;
            // Where the fetching threads were kept from the cores, the application was first at some.
            let came_in = anon.fetched + anon.overtaken;
            assert_eq!((record.void, came_in), (None, kept), "{record:?}");
            assert!(anon.used <= kept && anon.unused == 0, "{record:?}");
        }
        let plan = rig.machine.app(&rig.app).expect("tracked").plan();
        assert_eq!(plan.anon_pages(), kept, "they are not planned any more");
    }
}

#[test]
fn the_papers_rule_needs_two_switches_to_promote_and_five_to_evict() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    let mut params = params();
    params.anon.rule = AnonRule::Paper;
    params.anon.observe_interval_max = 1;
    let mut rig = Rig::new(&child, &EngineParams::default(), params);
    let mut fetched = Vec::new();
    for round in 0..9 {
        child.swap_out();
        rig.begin();
        rig.wait_for_fetch();
        if round < 2 {
            child.tell_pages("read", 0..64);
        }
        fetched.push(rig.end().anon.fetched);
    }
    assert_eq!(fetched, [0, 0, 64, 64, 64, 64, 64, 0, 0]);
}

#[test]
fn a_held_out_switch_gives_precision_and_recall_against_the_baseline() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    for _ in 0..3 {
        child.swap_out();
        rig.switch(|| child.tell_pages("read", 0..400));
    }
    rig.set_mode(Mode::Observe);
    child.swap_out();
    let record = rig.switch(|| child.tell_pages("read", 200..600));
    assert_eq!(record.anon.fetched, 0);
    // Pages that the kernel has not let go of after writing them out are back without a wait: few, and not always.
    let (demanded, recall) = (record.anon.demanded, record.anon.holdout_recall);
    assert!((390..=400).contains(&demanded), "{record:?}");
    assert_eq!(recall.of, demanded, "{record:?}");
    assert!((demanded - 200..=200).contains(&recall.hits), "{record:?}");
    let precision = record.anon.holdout_precision;
    assert_eq!(precision.of, 400, "{record:?}");
    assert!((190..=200).contains(&precision.hits), "{record:?}");
}

#[test]
fn an_observation_during_which_the_group_was_reclaimed_is_void() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    let mut params = params();
    params.anon.observe_interval_max = 128;
    let mut rig = Rig::new(&child, &EngineParams::default(), params);
    for _ in 0..10 {
        child.swap_out();
        rig.switch(|| child.tell_pages("read", 0..PAGES));
    }
    child.swap_out();
    rig.begin();
    rig.wait_for_fetch();
    child.swap_out();
    let record = rig.end();
    assert_eq!(record.void, Some(Void::Reclaimed), "{record:?}");
}

/// Of two rounds of faults in one observation the first are swapped out again: whether the other pages were used,
/// nobody can tell.
#[test]
fn where_nothing_was_mapped_demand_faults_show_reclaim() {
    let _machine = Machine::with_swap();
    for mode in [Mode::Observe, Mode::Full] {
        let mut child = Child::spawn(PAGES);
        let mut rig = Rig::new(&child, &EngineParams::default(), params());
        child.swap_out();
        // Known from here on; in the next switch all of them are watched and none is mapped.
        rig.switch(|| child.tell_pages("read", 0..PAGES / 2));
        rig.set_mode(mode);
        child.swap_out();
        rig.begin();
        if mode == Mode::Full {
            rig.wait_for_fetch();
        }
        child.tell_pages("read", 0..PAGES / 2);
        child.tell_pages("read", PAGES / 2..PAGES / 2 + 64);
        child.swap_out();
        let record = rig.end();
        assert_eq!(record.void, Some(Void::Reclaimed), "{mode:?}: {record:?}");
    }
}

#[test]
fn a_mode_that_observes_fetches_nothing() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(64);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    for _ in 0..3 {
        child.swap_out();
        rig.switch(|| child.tell_pages("read", 0..64));
    }
    rig.set_mode(Mode::Observe);
    child.swap_out();
    rig.begin();
    settle(&child);
    assert!(child.entries().iter().all(|entry| entry.swapped()));
    rig.end();
}

#[test]
fn pages_on_a_disk_are_submitted_then_mapped() {
    let mut machine = Machine::lock();
    machine.turn_swap_off();
    let _swap = SwapFile::new(32 << 20);
    let mut child = Child::spawn(PAGES);
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    child.swap_out();
    let mapped = Extent::between(child.page(0), child.page(PAGES / 2));
    let watched = Extent::new(mapped.end(), PAGES / 4);
    let mut plan = rig.plan_of(&child, []);
    plan.anon[0].1 = AnonTargets::new([(mapped, 0, false), (watched, 0, true)]);
    rig.fetch(&plan);
    settle(&child);
    let entries = child.entries();
    let (planned, rest) = entries.split_at(PAGES as usize / 2);
    let (of_watched, not_planned) = rest.split_at(PAGES as usize / 4);
    assert!(planned.iter().all(|entry| entry.present()));
    assert!(not_planned.iter().all(|entry| entry.swapped()));
    // Of watched pages, the last of each span is mapped, to wait for the others' reads: nobody learns from it.
    let span_pages = EngineParams::default().fetch.disk_span_pages;
    let waited_on = of_watched.iter().filter(|entry| entry.present()).count() as u64;
    assert!(
        (1..=PAGES / 4 / span_pages + 1).contains(&waited_on),
        "{waited_on}"
    );
    let seen = rig.collect(&plan);
    let seen = rig.seen(&child, &seen);
    assert_eq!(seen.fetched.pages(), PAGES * 3 / 4);
    assert!(seen.used.is_empty(), "nobody used them");
    assert_eq!(seen.unused.pages(), PAGES / 4 - waited_on);
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn pages_in_zram_and_on_a_disk_come_in_together() {
    let (_machine, _file) = Machine::with_file_before_zram(PAGES / 2);
    let mut child = Child::spawn(PAGES);
    child.swap_out();
    let areas = swaps::areas().expect("areas");
    let used = |kind| areas.iter().any(|a| a.kind == kind && a.used_kib >= 256);
    assert!(
        used(SwapKind::File) && used(SwapKind::Zram),
        "both hold a part: {areas:?}"
    );
    // Only now, so that the engine sees what is where.
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let mapped = Extent::between(child.page(0), child.page(PAGES / 2));
    let watched = Extent::between(mapped.end(), child.page(PAGES));
    let mut plan = rig.plan_of(&child, []);
    plan.anon[0].1 = AnonTargets::new([(mapped, 0, false), (watched, 0, true)]);
    rig.fetch(&plan);
    settle(&child);
    let entries = child.entries();
    let (of_mapped, _) = entries.split_at(PAGES as usize / 2);
    assert!(of_mapped.iter().all(|entry| entry.present()));
    child.tell_pages("read", PAGES / 2..PAGES / 2 + 64);
    let seen = rig.collect(&plan);
    let seen = rig.seen(&child, &seen);
    assert_eq!(seen.fetched.pages(), PAGES);
    assert_eq!(seen.faulted.pages(), 0, "watched pages were in memory");
    child.tell_pages("verify", 0..PAGES);
}

#[test]
fn pages_that_zswap_holds_before_a_disk_come_in() {
    let mut machine = Machine::lock();
    machine.turn_swap_off();
    let _swap = SwapFile::new(32 << 20);
    let _zswap = Setting::zswap();
    let mut child = Child::spawn(PAGES);
    let before = zswap_counters();
    child.swap_out();
    let out = zswap_counters();
    assert!(out[0] >= before[0] + PAGES, "{before:?}, {out:?}");
    let mut rig = Rig::new(&child, &EngineParams::default(), params());
    let planned = child.page(0)..child.page(PAGES * 3 / 4);
    let plan = rig.plan_of(&child, [planned]);
    rig.fetch(&plan);
    rig.wait_for_fetch();
    let entries = child.entries();
    let (planned, rest) = entries.split_at(PAGES as usize * 3 / 4);
    assert!(planned.iter().all(|entry| entry.present()));
    assert!(rest.iter().all(|entry| entry.swapped()));
    let back = zswap_counters();
    assert!(back[1] >= out[1] + PAGES * 3 / 4, "{out:?}, {back:?}");
    let seen = rig.collect(&plan);
    assert_eq!(rig.seen(&child, &seen).fetched.pages(), PAGES * 3 / 4);
    child.tell_pages("verify", 0..PAGES);
}

/// What has the pid of a process that ended, at the same addresses, is neither fetched what that used nor taken for it.
#[test]
fn a_process_that_has_the_pid_of_one_before_is_another() {
    /// So that both have their pages at the same addresses.
    const NOT_RANDOMIZED: [&str; 2] = ["setarch", "--addr-no-randomize"];
    let _machine = Machine::with_swap();
    let mut first = Child::spawn_through(&NOT_RANDOMIZED, PAGES);
    let mut rig = Rig::new(&first, &EngineParams::default(), params());
    for _ in 0..2 {
        first.swap_out();
        rig.switch(|| first.tell_pages("read", 0..PAGES / 2));
    }
    let (instance, pages) = (rig.instance(&first), first.pages.clone());
    let plan = rig.machine.app(&rig.app).expect("tracked").plan().clone();
    assert!(plan.anon_pages() >= PAGES / 2 - 8, "{}", plan.anon_pages());
    first.kill();
    let mut second = Child::spawn_as(first.pid(), &NOT_RANDOMIZED, PAGES);
    assert_eq!((second.pid(), &second.pages), (first.pid(), &pages));
    second.swap_out();
    let is_out = |second: &Child| second.entries().iter().all(|entry| entry.swapped());
    // The plan is fetched before anybody looks which processes there are: the one that is known has this pid.
    rig.begin();
    rig.wait_for_fetch();
    assert!(is_out(&second), "it was fetched what another had used");
    let record = rig.end();
    assert_eq!(record.anon.fetched, 0, "{record:?}");
    assert_ne!(rig.instance(&second), instance);
    // Nor where that plan comes once more.
    rig.fetch(&plan);
    rig.collect(&plan);
    assert!(is_out(&second), "it was fetched what another had used");
    // What it uses is learned for itself.
    for _ in 0..3 {
        second.swap_out();
        rig.switch(|| second.tell_pages("read", PAGES / 2..PAGES));
    }
    second.swap_out();
    rig.begin();
    rig.wait_for_fetch();
    let of_first = &second.entries()[..PAGES as usize / 2];
    assert!(of_first.iter().all(|entry| entry.swapped()));
    let record = rig.end();
    assert!(record.anon.fetched >= PAGES / 2 * 9 / 10, "{record:?}");
}

#[test]
fn a_switch_to_one_of_two_copies_leaves_the_other_alone() {
    let _machine = Machine::with_swap();
    let mut children = [Child::spawn(PAGES), Child::spawn(PAGES)];
    let mut rig = Rig::new(&children[0], &EngineParams::default(), params());
    let app = rig.app.clone();
    let copies = children.each_ref().map(|child| Members::Tree(child.pid()));
    rig.engine.follow(&app, &copies);
    rig.take_events();
    children.iter_mut().for_each(Child::swap_out);
    let mut plan = Plan::default();
    for child in &children {
        plan.anon
            .extend(rig.plan_of(child, [child.pages.clone()]).anon);
    }
    let out = |child: &Child| child.entries().iter().all(|entry| entry.swapped());
    let [first, second] = &children;
    for (pid, is_left) in [(Some(second.pid()), true), (None, false)] {
        rig.engine.aim(&app, pid);
        rig.fetch(&plan);
        settle(first);
        settle(second);
        let seen = rig.collect(&plan);
        assert_eq!(out(first), is_left);
        assert!(second.entries().iter().all(|entry| entry.present()));
        assert_eq!(seen.anon.contains_key(&rig.instance(first)), !is_left);
    }
}
