//! What tables and plan of one application take: no more than `budget.table_bytes_max`, whatever it does.

use prepage_core::anon::{AnonObservation, AnonState, AnonTargets, RANKS, Table};
use prepage_core::app::{AppModel, INSTANCES_MAX, Observation, Profile};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::FileObservation;
use prepage_core::history::History;
use prepage_core::identity::{FileId, Instance};
use prepage_core::params::Params;
use prepage_core::plan::Plan;
use prepage_core::run_map::RunMap;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn instance(pid: i32) -> Instance {
    Instance {
        pid,
        start_ticks: 0,
        exec: 0,
    }
}

fn file(number: u64) -> FileId {
    FileId {
        path: format!("/usr/lib/a-directory/of-some-application/file-{number}").into(),
        device: (254, 0),
        inode: number,
        size: 1 << 40,
        mtime_ns: 0,
    }
}

/// So many single pages, one in `stride`.
fn scattered(count: u64, stride: u64) -> ExtentSet {
    ExtentSet::from_pages((0..count).map(|page| page * stride).collect())
}

/// So many that what always recurs is as good as certain.
const SWITCHES: usize = 10;

/// An application of `processes` processes that uses the same in each of them: `anon` of each, and `pages` of `files` files.
fn learned(processes: i32, anon: &ExtentSet, files: u64, pages: &ExtentSet) -> AppModel {
    let params = Params::default();
    let mut app = AppModel::new(Profile::default(), &params);
    let instances: Vec<_> = (1..=processes).map(instance).collect();
    instances.iter().for_each(|&one| app.instance_started(one));
    let of_process = AnonObservation {
        faulted: anon.clone(),
        ..AnonObservation::default()
    };
    let of_file = FileObservation {
        accessed: pages.clone(),
        demanded: pages.clone(),
        ..FileObservation::default()
    };
    let seen = Observation {
        anon: instances
            .iter()
            .map(|&one| (one, of_process.clone()))
            .collect(),
        files: (0..files).map(|n| (file(n), of_file.clone())).collect(),
        files_observed: true,
        ..Observation::default()
    };
    for _ in 0..SWITCHES {
        app.learn(&seen, &params);
        let (bytes, max) = (app.bytes(), params.budget.table_bytes_max);
        assert!(bytes <= max, "{bytes} of {max} bytes");
    }
    app
}

fn anon_pages(app: &AppModel) -> u64 {
    app.instances().map(|(_, table)| table.map().pages()).sum()
}

const NOTHING: ExtentSet = ExtentSet::new();

/// The size of memory that a browser's processes have, in pages that do not touch.
#[test]
fn scattered_pages_take_twelve_bytes_each_with_their_plan() {
    let params = Params::default();
    assert_eq!(params.budget.table_bytes_max, 300_000);
    let count = params.anon.runs_max as u64;
    let app = learned(1, &scattered(count, 3), 0, &NOTHING);
    assert_eq!((anon_pages(&app), app.plan().anon_pages()), (count, count));
    assert!(app.bytes() as u64 <= 12 * count + 10_000, "{}", app.bytes());
}

#[test]
fn whatever_is_used_tables_and_plan_keep_within_their_memory() {
    // More than there is room for, close together and each far from all others.
    for stride in [2, 63, 1 << 16, 1 << 24] {
        let app = learned(1, &scattered(30_000, stride), 0, &NOTHING);
        assert!(app.plan().anon_pages() > 5_000, "one in {stride}");
    }
    // Eight GiB in one piece are many reads.
    let whole = ExtentSet::from(vec![Extent::new(0, 2 << 20)]);
    let app = learned(1, &whole, 0, &NOTHING);
    assert!(app.plan().anon_pages() > 1 << 20);
    let app = learned(INSTANCES_MAX as i32, &scattered(200, 2), 0, &NOTHING);
    assert!(app.plan().anon_pages() > 10_000);
    // Files beside it: many, and many pieces of a few.
    let app = learned(4, &scattered(6_000, 2), 1_000, &scattered(9, 1_000));
    assert!(app.plan().anon_pages() > 5_000 && app.plan().file_pages() > 500);
    let app = learned(4, &scattered(6_000, 2), 3, &scattered(4_000, 1_000));
    assert!(app.plan().anon_pages() > 5_000 && app.plan().file_pages() > 500);
}

/// What was used in fewer switches goes first.
#[test]
fn what_is_evicted_for_want_of_memory_is_what_is_used_least() {
    let mut params = Params::default();
    let (always, once) = (
        scattered(2_000, 4),
        ExtentSet::from_pages((0..2_000).map(|n| 4 * n + 2).collect()),
    );
    let mut app = AppModel::new(Profile::default(), &params);
    app.instance_started(instance(1));
    for number in 0..4 {
        let faulted = match number {
            3 => always.union(&once),
            _ => always.clone(),
        };
        let seen = AnonObservation {
            faulted,
            ..AnonObservation::default()
        };
        let seen = Observation {
            anon: [(instance(1), seen)].into(),
            ..Observation::default()
        };
        app.learn(&seen, &params);
    }
    assert_eq!(anon_pages(&app), 4_000);
    params.budget.table_bytes_max = app.bytes() - 10_000;
    app.set_params(&params);
    assert!(app.bytes() <= params.budget.table_bytes_max);
    let (_, table) = app.instances().next().expect("one");
    let kept = table.map().pages_where(|_| true);
    assert!(always.difference(&kept).is_empty());
    assert!(!once.difference(&kept).is_empty());
}

/// Pages around the end of a stretch of 2^16, and far away.
fn places() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..300_u64,
        (1 << 16) - 150..(1 << 16) + 150_u64,
        (1 << 34) - 150..(1 << 34) + 150_u64,
    ]
}

/// Disjoint, ascending pieces with a rank, and whether they are watched.
fn pieces() -> impl Strategy<Value = Vec<(Extent, u8, bool)>> {
    let piece = (places(), 1..100_u64, 0..RANKS, any::<bool>());
    prop::collection::vec(piece, 0..40).prop_map(|mut pieces| {
        pieces.sort_unstable();
        let mut end = 0;
        let disjoint = pieces.into_iter().map(|(start, len, rank, watch)| {
            let extent = Extent::between(start.max(end), start + len);
            end = end.max(extent.end());
            (extent, rank, watch)
        });
        disjoint.filter(|(extent, ..)| !extent.is_empty()).collect()
    })
}

fn states() -> impl Strategy<Value = AnonState> {
    let seen = prop::collection::vec(any::<bool>(), 0..9);
    (any::<bool>(), 1..=127_u8, seen, 0..8_u8, 0..RANKS).prop_map(
        |(is_target, timeout, seen, observe_log2, rank)| AnonState {
            table: if is_target {
                Table::Target
            } else {
                Table::Candidate
            },
            timeout,
            history: seen.iter().fold(History::EMPTY, |h, &used| h.with(used)),
            observe_log2,
            rank,
        },
    )
}

proptest! {
    #[test]
    fn pages_among_a_plan_are_counted_by_process(
        planned in prop::collection::vec(pieces(), 0..4),
        asked in prop::collection::vec((0..5i32, places(), 0..120u64), 0..200),
    ) {
        let plan = Plan {
            anon: (0..).zip(&planned).map(|(pid, pieces)| {
                let instance = Instance { pid, start_ticks: 0, exec: 0 };
                (instance, AnonTargets::new(pieces.clone()))
            }).collect(),
            ..Plan::default()
        };
        let asked: Vec<_> = asked.into_iter().map(|(pid, place, after)| (pid, place + after)).collect();
        let is_planned = |&&(pid, page): &&(i32, u64)| {
            let mut pieces = planned.get(pid as usize).into_iter().flatten();
            pieces.any(|(extent, ..)| (extent.start..extent.end()).contains(&page))
        };
        prop_assert_eq!(plan.anon_among(&asked), asked.iter().filter(is_planned).count());
    }

    #[test]
    fn targets_are_their_pages_by_rank(pieces in pieces()) {
        let targets = AnonTargets::new(pieces.clone());
        let mut oracle: BTreeMap<u8, BTreeMap<u64, bool>> = BTreeMap::new();
        for (extent, rank, watch) in pieces {
            let pages = (extent.start..extent.end()).map(|page| (page, watch));
            oracle.entry(rank).or_default().extend(pages);
        }
        let (mut pages, mut all) = (0, Vec::new());
        for rank in 0..RANKS {
            let reads: Vec<_> = targets.of_rank(rank).collect();
            prop_assert!(reads.iter().all(|read| read.rank() == rank));
            for read in &reads {
                let extent = read.extent();
                prop_assert_eq!(extent.start / 64, (extent.end() - 1) / 64, "of one block");
            }
            let listed = reads.iter().flat_map(|read| {
                let pages = read.extent().start..read.extent().end();
                pages.map(|page| (page, read.watch()))
            });
            let listed: Vec<_> = listed.collect();
            let of_rank = oracle.remove(&rank).unwrap_or_default();
            prop_assert_eq!(&listed, &of_rank.into_iter().collect::<Vec<_>>());
            pages += listed.len() as u64;
            all.extend(reads);
        }
        prop_assert_eq!(targets.pages(), pages);
        prop_assert_eq!(targets.is_empty(), pages == 0);
        prop_assert_eq!(targets.reads().collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_state_is_kept_whole(pages in prop::collection::vec((places(), states()), 1..20)) {
        let (mut map, mut oracle) = (RunMap::default(), BTreeMap::new());
        for (page, state) in pages {
            map.update(&ExtentSet::from_pages(vec![page]), |_, _| Some(state));
            oracle.insert(page, state);
        }
        for (page, state) in oracle {
            prop_assert_eq!(map.get(page), Some(state));
        }
    }
}
