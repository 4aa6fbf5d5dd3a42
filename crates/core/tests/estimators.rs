//! The two estimators and the plan against naive models, page by page.

use prepage_core::anon::{AnonObservation, AnonTable, RANKS, Table, rank_after};
use prepage_core::app::{AppModel, Observation, Profile, anon_outcome, file_outcome};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::file::{FileObservation, FileTables, Standing};
use prepage_core::history::Calibration;
use prepage_core::identity::{FileId, Instance};
use prepage_core::outcome::{Late, Void};
use prepage_core::params::{AnonParams, AnonRule, FileCandidates, FileParams, Params};
use prepage_core::plan::Knowledge;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PAGES: u64 = 200;

fn sets() -> impl Strategy<Value = ExtentSet> {
    let extent = (0..PAGES, 1..16u64).prop_map(|(start, len)| Extent::new(start, len));
    prop::collection::vec(extent, 0..8).prop_map(ExtentSet::from)
}

fn anon_observation() -> impl Strategy<Value = AnonObservation> {
    let ranks = prop::collection::vec(0..RANKS, 8);
    (sets(), sets(), sets(), sets(), sets(), ranks).prop_map(
        |(faulted, used, unused, always_shown, fetched, ranks)| {
            let order = faulted.extents().iter().copied().zip(ranks).collect();
            AnonObservation {
                faulted,
                used,
                unused,
                always_shown,
                fetched,
                order,
            }
        },
    )
}

/// ASAP section 4.3, as the paper says it: two tables, a counter for each page.
#[derive(Default)]
struct PaperModel {
    tables: BTreeMap<u64, (Table, u8)>,
}

impl PaperModel {
    fn learn(&mut self, seen: &AnonObservation, timeout: u8) {
        for page in 0..PAGES + 20 {
            let accessed = seen.faulted.contains(page) || seen.used.contains(page);
            match self.tables.get_mut(&page) {
                // Check and insertion.
                None if accessed => {
                    self.tables.insert(page, (Table::Candidate, timeout));
                }
                // Promotion, and the counter's reset.
                Some(state) if accessed => *state = (Table::Target, timeout),
                // Eviction when the counter reaches zero.
                Some((_, left)) if seen.unused.contains(page) => {
                    *left -= 1;
                    if *left == 0 {
                        self.tables.remove(&page);
                    }
                }
                // Unknown.
                _ => {}
            }
        }
    }
}

fn check_anon(table: &AnonTable, model: &PaperModel) {
    for page in 0..PAGES + 20 {
        let state = table.map().get(page).map(|s| (s.table, s.timeout));
        assert_eq!(state, model.tables.get(&page).copied(), "page {page}");
    }
    assert_eq!(table.map().pages(), model.tables.len() as u64);
}

proptest! {
    #[test]
    fn the_anonymous_tables_follow_the_paper(
        switches in prop::collection::vec(anon_observation(), 1..20),
        timeout_switches in 1..8u8,
    ) {
        let params = AnonParams { timeout_switches, ..AnonParams::default() };
        let (mut table, mut model) = (AnonTable::default(), PaperModel::default());
        let mut calibration = Calibration::default();
        for seen in &switches {
            table.learn(seen, &params, &mut calibration);
            model.learn(seen, timeout_switches);
            check_anon(&table, &model);
            prop_assert!(calibration.is_valid());
        }
        // By the paper's rule the target table is what is fetched.
        let paper = AnonParams { rule: AnonRule::Paper, ..params };
        let targets = table.targets(&paper, &calibration, 0.0, 1);
        let oracle = model.tables.iter().filter(|(_, s)| s.0 == Table::Target).map(|(&page, _)| page);
        prop_assert_eq!(targets.all(), ExtentSet::from_pages(oracle.collect()));
    }

    #[test]
    fn targets_are_what_is_confident_and_each_is_watched_in_its_turn(
        switches in prop::collection::vec(anon_observation(), 1..12),
        confidence in 0.0..=1.0f32,
        longest_log2 in 0..8u8,
        first in 0..1_000u64,
    ) {
        let params = AnonParams { observe_interval_max: 1 << longest_log2, ..AnonParams::default() };
        let (mut table, mut calibration) = (AnonTable::default(), Calibration::default());
        for seen in &switches {
            table.learn(seen, &params, &mut calibration);
        }
        let chosen: BTreeSet<u64> = (0..PAGES + 20)
            .filter(|&page| {
                let probability = table.map().get(page).map(|s| calibration.probability(s.history));
                probability.is_some_and(|p| p >= confidence)
            })
            .collect();
        let chosen = ExtentSet::from_pages(chosen.into_iter().collect());
        let mut watched = ExtentSet::new();
        for switch in first..first + (1 << longest_log2) {
            let targets = table.targets(&params, &calibration, confidence, switch);
            prop_assert!(targets.map().intersection(&targets.watch()).is_empty());
            prop_assert_eq!(&targets.all(), &chosen);
            watched = watched.union(&targets.watch());
        }
        prop_assert_eq!(watched, chosen);
    }

    #[test]
    fn pages_are_fetched_by_the_rank_at_which_they_are_demanded(
        switches in prop::collection::vec(anon_observation(), 1..12),
    ) {
        let (params, mut calibration) = (AnonParams::default(), Calibration::default());
        let (mut table, mut ranks) = (AnonTable::default(), BTreeMap::new());
        for seen in &switches {
            table.learn(seen, &params, &mut calibration);
            let pages = seen.order.iter().flat_map(|&(e, rank)| (e.start..e.end()).map(move |p| (p, rank)));
            for (page, rank) in pages {
                // Known of no rank: the last.
                let known = ranks.get(&page).copied().unwrap_or(RANKS - 1);
                let later = known + rank.saturating_sub(known) / 4;
                ranks.insert(page, if rank <= known { rank } else { later });
            }
            ranks.retain(|&page, _| table.map().get(page).is_some());
        }
        let rank_of = |page| ranks.get(&page).copied().unwrap_or(RANKS - 1);
        for (extent, state) in table.map().iter() {
            prop_assert!((extent.start..extent.end()).all(|page| rank_of(page) == state.rank));
        }
        let targets = table.targets(&params, &calibration, 0.0, 1);
        let order: Vec<(u8, u64)> = targets.reads().map(|r| (r.rank(), r.extent().start)).collect();
        prop_assert!(order.is_sorted());
        let pages: u64 = targets.reads().map(|r| r.extent().len).sum();
        prop_assert_eq!(pages, targets.pages());
        prop_assert_eq!(pages, table.map().pages());
        for rank in 0..RANKS {
            let of_rank = targets.of_rank(rank).flat_map(|r| r.extent().start..r.extent().end());
            prop_assert!(of_rank.into_iter().all(|page| rank_of(page) == rank));
        }
        let by_rank: usize = (0..RANKS).map(|rank| targets.of_rank(rank).count()).sum();
        prop_assert_eq!(by_rank, targets.reads().count());
    }

    #[test]
    fn a_bound_evicts_no_more_than_it_must_and_the_least_first(
        switches in prop::collection::vec(anon_observation(), 1..12),
        runs_max in 0..40usize,
    ) {
        let (mut table, params) = (AnonTable::default(), AnonParams::default());
        let mut calibration = Calibration::default();
        for seen in &switches {
            table.learn(seen, &params, &mut calibration);
        }
        let before = table.clone();
        table.bound(runs_max);
        prop_assert_eq!(table.map().runs(), before.map().runs().min(runs_max));
        let kept: Vec<_> = table.map().iter().collect();
        let evicted = before.map().iter().filter(|run| !kept.contains(run));
        let rank = |(_, s): &(Extent, prepage_core::anon::AnonState)| (s.timeout, s.table == Table::Target);
        let least_kept = kept.iter().map(rank).min();
        for run in evicted {
            prop_assert!(least_kept.is_none_or(|least| rank(&run) <= least));
        }
    }
}

#[test]
fn a_rank_lasts_four_times_as_long_as_the_one_before() {
    let ranks = [
        0,
        4_999,
        5_000,
        19_999,
        20_000,
        79_999,
        80_000,
        320_000,
        u64::MAX,
    ];
    assert_eq!(ranks.map(rank_after), [0, 0, 1, 1, 2, 2, 3, 4, 4]);
}

fn file_id(name: u32, version: i64) -> FileId {
    FileId {
        path: format!("/usr/lib/lib{name}.so").into(),
        device: (8, 1),
        inode: u64::from(name),
        size: 1 << 30,
        mtime_ns: version,
    }
}

fn file_observation() -> impl Strategy<Value = FileObservation> {
    let ranks = prop::collection::vec(any::<u8>(), 8);
    (sets(), sets(), sets(), sets(), sets(), ranks).prop_map(
        |(accessed, demanded, unknown, unobservable, fetched, ranks)| {
            let demanded = demanded.intersection(&accessed);
            let unobservable = unobservable
                .intersection(&unknown)
                .intersection(&fetched)
                .difference(&accessed);
            let order = accessed.extents().iter().copied().zip(ranks).collect();
            FileObservation {
                accessed,
                demanded,
                unknown,
                unobservable,
                fetched,
                order,
            }
        },
    )
}

type FileSwitch = BTreeMap<FileId, FileObservation>;

fn file_switches() -> impl Strategy<Value = Vec<FileSwitch>> {
    let one = prop::collection::btree_map(
        (0..3u32).prop_map(|n| file_id(n, 0)),
        file_observation(),
        0..3,
    );
    prop::collection::vec(one, 1..20)
}

/// ASAP section 4.2, as the paper says it, page by page; every page's state is kept in the simplest way.
#[derive(Default)]
struct FileModel {
    switches: u32,
    pages: BTreeMap<(FileId, u64), FilePage>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct FilePage {
    accesses: u32,
    trials: u32,
    target: bool,
    evicted: bool,
    misses: u32,
}

impl FileModel {
    fn learn(&mut self, seen: &FileSwitch, params: &FileParams) {
        let profiling = self.switches < u32::from(params.profile_switches);
        self.switches += u32::from(profiling);
        let nothing = FileObservation::default();
        let files = (0..3).map(|n| file_id(n, 0));
        for (file, page) in files.flat_map(|f| (0..PAGES + 20).map(move |p| (f.clone(), p))) {
            let seen = seen.get(&file).unwrap_or(&nothing);
            let key = (file, page);
            if seen.accessed.contains(page) {
                let before = self.switches - u32::from(profiling);
                let state = self.pages.entry(key).or_insert(FilePage {
                    accesses: 0,
                    trials: before,
                    target: false,
                    evicted: false,
                    misses: 0,
                });
                state.accesses += u32::from(profiling);
                state.trials += u32::from(profiling);
                state.misses = 0;
                let frequent = state.accesses * u32::from(params.profile_switches)
                    > u32::from(params.profile_accesses_min) * state.trials;
                let profiled = self.switches == u32::from(params.profile_switches);
                if seen.demanded.contains(page) && profiled && frequent {
                    (state.target, state.evicted) = (true, false);
                }
            } else {
                let Some(state) = self.pages.get_mut(&key) else {
                    continue;
                };
                if seen.unobservable.contains(page) {
                    state.misses += 2;
                } else if seen.unknown.contains(page) {
                    continue;
                } else {
                    state.misses += 1;
                    state.trials += u32::from(profiling);
                    if seen.fetched.contains(page) {
                        (state.target, state.evicted) = (false, true);
                    }
                }
                let is_static = params.file_candidates == FileCandidates::Offline
                    && !profiling
                    && state.accesses > 0;
                if state.misses >= u32::from(params.timeout_switches) && !is_static {
                    self.pages.remove(&key);
                }
            }
        }
    }
}

fn check_files(tables: &FileTables, model: &FileModel, params: &FileParams) {
    let mut pages = 0;
    for (file, map) in tables.iter() {
        for (extent, state) in map.iter() {
            pages += extent.len;
            for page in extent.start..extent.end() {
                let expected = model.pages.get(&(file.clone(), page));
                let Some(expected) = expected else {
                    panic!("{file:?} {page} {state:?}")
                };
                assert_eq!(u32::from(state.accesses), expected.accesses);
                assert_eq!(u32::from(state.trials), expected.trials);
                assert_eq!(state.standing == Standing::Target, expected.target);
                assert_eq!(state.standing == Standing::Evicted, expected.evicted);
                assert!((1..=params.timeout_switches).contains(&state.timeout));
            }
        }
    }
    assert_eq!(pages, model.pages.len() as u64);
}

/// What is read, from the naive model: wanted pages, and short gaps between them without evicted pages.
/// What is wanted of a file, and what is read: pages of one place in the order are merged.
fn expected_reads(
    model: &FileModel,
    tables: &FileTables,
    file: &FileId,
    gap_max: u64,
) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let known = tables.iter().find(|(id, _)| *id == file);
    let rank = |page: u64| {
        let run = known.and_then(|(_, map)| map.iter().find(|(e, _)| e.contains(page)));
        run.map(|(_, state)| state.rank)
    };
    let of = |keep: fn(&FilePage) -> bool| -> Vec<u64> {
        let pages = model
            .pages
            .iter()
            .filter(|((f, _), state)| f == file && keep(state));
        pages.map(|((_, page), _)| *page).collect()
    };
    let (wanted, evicted) = (of(|p| p.target), of(|p| p.evicted));
    let mut read: BTreeSet<u64> = wanted.iter().copied().collect();
    let mut by_rank: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for &page in &wanted {
        by_rank.entry(rank(page)).or_default().push(page);
    }
    for pair in by_rank.values().flat_map(|pages| pages.windows(2)) {
        let gap = pair[0] + 1..pair[1];
        if gap.end - gap.start < gap_max && !evicted.iter().any(|p| gap.contains(p)) {
            read.extend(gap);
        }
    }
    (wanted.into_iter().collect(), read)
}

proptest! {
    #[test]
    fn the_file_tables_follow_the_paper(
        switches in file_switches(),
        profile_switches in 2..6u8,
        timeout_switches in 2..12u8,
        merge_gap_pages in 0..20u64,
        online in any::<bool>(),
    ) {
        let params = FileParams {
            file_candidates: if online { FileCandidates::Online } else { FileCandidates::Offline },
            profile_switches,
            profile_accesses_min: profile_switches - 1,
            timeout_switches,
            merge_gap_pages,
            ..FileParams::default()
        };
        let (mut tables, mut model) = (FileTables::default(), FileModel::default());
        let mut calibration = Calibration::default();
        for seen in &switches {
            tables.learn(seen, &params, &mut calibration);
            model.learn(seen, &params);
            check_files(&tables, &model, &params);
            prop_assert!(calibration.is_valid());
            if online {
                continue;
            }
            let targets = tables.targets(&params, &calibration, 0.5);
            let largest_first = |pair: &[prepage_core::file::FileTargets]| {
                pair[0].wanted.pages() >= pair[1].wanted.pages()
            };
            prop_assert!(targets.windows(2).all(largest_first));
            let planned: u64 = targets.iter().map(|t| t.wanted.pages()).sum();
            prop_assert_eq!(planned, model.pages.values().filter(|p| p.target).count() as u64);
            for target in targets {
                let (wanted, read) = expected_reads(&model, &tables, &target.file, merge_gap_pages);
                prop_assert!(target.wanted.iter_pages().eq(wanted.iter().copied()));
                prop_assert!(target.read.iter_pages().eq(read.iter().copied()));
                prop_assert_eq!(target.gap_pages, (read.len() - wanted.len()) as u64);
            }
        }
    }

    #[test]
    fn the_bounds_of_the_file_tables_hold_and_leave_no_room(
        switches in file_switches(),
        runs_max in 1..30usize,
        files_max in 1..4usize,
    ) {
        let params = FileParams { runs_max, files_max, ..FileParams::default() };
        let (mut tables, mut calibration) = (FileTables::default(), Calibration::default());
        for seen in &switches {
            tables.learn(seen, &params, &mut calibration);
        }
        let (files, runs) = (tables.len(), tables.runs());
        tables.bound(&params);
        prop_assert!(tables.len() <= files_max && tables.runs() <= runs_max);
        prop_assert!(tables.iter().all(|(_, map)| !map.is_empty()));
        if files <= files_max {
            prop_assert_eq!(tables.runs(), runs.min(runs_max));
        }
    }
}

fn run(start: u64, len: u64) -> ExtentSet {
    ExtentSet::from(vec![Extent::new(start, len)])
}

fn one_file(seen: FileObservation) -> FileSwitch {
    [(file_id(0, 0), seen)].into()
}

/// Tables after the paper's profiling, with pages 0..40 demanded in each of its ten switches.
fn profiled(params: &FileParams) -> (FileTables, Calibration) {
    let (mut tables, mut calibration) = (FileTables::default(), Calibration::default());
    let seen = one_file(FileObservation {
        accessed: run(0, 40),
        demanded: run(0, 40),
        ..FileObservation::default()
    });
    for _ in 0..10 {
        tables.learn(&seen, params, &mut calibration);
    }
    (tables, calibration)
}

fn offline() -> FileParams {
    FileParams {
        file_candidates: FileCandidates::Offline,
        ..FileParams::default()
    }
}

#[test]
fn an_evicted_page_splits_its_extent_and_is_not_bridged() {
    let params = offline();
    let (mut tables, mut calibration) = profiled(&params);
    let before = tables.targets(&params, &calibration, 0.5);
    assert_eq!(before[0].read, run(0, 40));
    let seen = one_file(FileObservation {
        accessed: run(0, 40).difference(&run(20, 2)),
        fetched: run(0, 40),
        ..FileObservation::default()
    });
    tables.learn(&seen, &params, &mut calibration);
    let after = tables.targets(&params, &calibration, 0.5);
    let split = run(0, 20).union(&run(22, 18));
    assert_eq!((&after[0].wanted, &after[0].read), (&split, &split));
    assert_eq!(after[0].gap_pages, 0);
}

#[test]
fn more_than_eight_of_ten_make_a_candidate_and_eight_do_not() {
    for (accesses, expected) in [(8, 0), (9, 40)] {
        let params = offline();
        let (mut tables, mut calibration) = (FileTables::default(), Calibration::default());
        for switch in 0..10 {
            let accessed = if switch < accesses {
                run(0, 40)
            } else {
                ExtentSet::new()
            };
            let demanded = accessed.clone();
            let seen = FileObservation {
                accessed,
                demanded,
                ..FileObservation::default()
            };
            tables.learn(&one_file(seen), &params, &mut calibration);
        }
        assert_eq!(tables.profiled(), 10);
        let demanded = FileObservation {
            accessed: run(0, 40),
            demanded: run(0, 40),
            ..FileObservation::default()
        };
        tables.learn(&one_file(demanded), &params, &mut calibration);
        let targets = tables.targets(&params, &calibration, 0.5);
        let wanted: u64 = targets.iter().map(|t| t.wanted.pages()).sum();
        assert_eq!(wanted, expected, "{accesses} accesses");
    }
}

#[test]
fn overtaken_missed_and_late_are_told_apart() {
    let params = Params::default();
    let mut model = AppModel::new(Profile::default(), &params);
    let switch = |accessed: ExtentSet, demanded: ExtentSet, late| Observation {
        files: one_file(FileObservation {
            accessed,
            demanded,
            fetched: run(10, 30),
            ..FileObservation::default()
        }),
        files_observed: true,
        late,
        ..Observation::default()
    };
    model.learn(&switch(run(0, 40), run(0, 40), None), &params);
    let late = Some(Late {
        pages: 3,
        wait_us: 700,
    });
    // Of the planned pages 0..40, ten were demanded before they were fetched; twenty others were not planned.
    let seen = switch(run(0, 60), run(0, 10).union(&run(40, 20)), late);
    let outcome = file_outcome(model.plan(), &seen, false);
    assert_eq!((outcome.planned, outcome.demanded), (40, 30));
    assert_eq!((outcome.overtaken, outcome.missed), (10, 20));
    assert_eq!(outcome.late, late);
    let held_out = file_outcome(model.plan(), &seen, true);
    assert_eq!((held_out.overtaken, held_out.missed), (0, 0));
    let recall = held_out.holdout_recall;
    assert_eq!((recall.hits, recall.of), (10, 30));
    // Nothing tells late anonymous pages from others.
    assert_eq!(anon_outcome(&model, model.plan(), &seen, false).late, None);
}

/// What was used and swapped out again looks as if it had not been used.
#[test]
fn while_pages_are_reclaimed_only_their_use_is_learned() {
    let params = Params::default();
    let mut model = AppModel::new(Profile::default(), &params);
    model.instance_started(instance(1));
    let switch = |faulted: ExtentSet, unused: ExtentSet, void| {
        let anon = AnonObservation {
            faulted,
            unused,
            ..AnonObservation::default()
        };
        Observation {
            anon: [(instance(1), anon)].into(),
            void,
            ..Observation::default()
        }
    };
    for _ in 0..3 {
        model.learn(&switch(run(0, 64), run(0, 0), None), &params);
    }
    let planned = |model: &AppModel| model.plan().anon[0].1.all();
    assert_eq!(planned(&model), run(0, 64));
    let known = model.profile().anon_calibration.clone();
    let seen = |void| switch(run(64, 64), run(0, 64), Some(void));
    for void in [Void::EventsLost, Void::Superseded, Void::Background] {
        model.learn(&seen(void), &params);
        assert_eq!(planned(&model), run(0, 64), "{void:?}");
    }
    for _ in 0..3 {
        model.learn(&seen(Void::Reclaimed), &params);
    }
    assert_eq!(planned(&model), run(0, 128));
    assert_eq!(model.profile().anon_calibration, known);
}

#[test]
fn a_new_version_of_a_file_begins_anew_and_a_new_device_does_not() {
    let params = offline();
    for (id, kept) in [
        (file_id(0, 1), false),
        (
            FileId {
                inode: 99,
                ..file_id(0, 0)
            },
            false,
        ),
        (
            FileId {
                size: 4096,
                ..file_id(0, 0)
            },
            false,
        ),
        (
            FileId {
                device: (8, 2),
                ..file_id(0, 0)
            },
            true,
        ),
    ] {
        let (mut tables, mut calibration) = profiled(&params);
        let seen = FileObservation {
            accessed: run(0, 1),
            ..FileObservation::default()
        };
        tables.learn(&[(id.clone(), seen)].into(), &params, &mut calibration);
        assert_eq!(tables.len(), 1);
        let (file, map) = tables.iter().next().expect("one file");
        assert_eq!(file, &id);
        assert_eq!(map.pages(), if kept { 40 } else { 1 }, "{id:?}");
    }
    let (mut tables, _) = profiled(&params);
    assert!(tables.forget(&file_id(0, 0)) && tables.is_empty());
    assert!(!tables.forget(&file_id(0, 0)));
}

#[test]
fn online_candidates_help_from_the_second_switch_on_and_fall_soon() {
    let params = Params::default();
    let mut app = AppModel::new(Profile::default(), &params);
    let seen = |accessed: &ExtentSet, fetched: &ExtentSet| Observation {
        files: one_file(FileObservation {
            accessed: accessed.clone(),
            demanded: accessed.difference(fetched),
            fetched: fetched.clone(),
            ..FileObservation::default()
        }),
        files_observed: true,
        ..Observation::default()
    };
    app.learn(&seen(&run(0, 200), &ExtentSet::new()), &params);
    assert_eq!(app.plan().file_pages(), 200);
    // Nothing of it is used again, nor is what comes instead: once pages were seen not to be used after one use,
    // a page used once is not fetched.
    for switch in 1..4u64 {
        app.learn(&seen(&run(switch * 300, 200), &run(0, 200)), &params);
    }
    assert_eq!(app.plan().file_pages(), 0);
}

fn instance(pid: i32) -> Instance {
    Instance {
        pid,
        start_ticks: 1,
        exec: 0,
    }
}

proptest! {
    #[test]
    fn a_plan_keeps_its_budget_or_is_as_confident_as_can_be(
        anon_switches in prop::collection::vec(anon_observation(), 1..8),
        file_seen in file_switches(),
        confidence in 0.0..=1.0f32,
        file_confidence in 0.0..=1.0f32,
        waste_pages_max in 0..200u64,
        under_pressure in any::<bool>(),
    ) {
        let mut params = Params::default();
        params.budget.confidence = confidence;
        params.budget.file_confidence = file_confidence;
        params.budget.confidence_pressure = (confidence + 0.2).min(1.0);
        params.budget.waste_pages_max = waste_pages_max;
        let mut anon: BTreeMap<Instance, AnonTable> = BTreeMap::new();
        let (mut anon_calibration, mut file_calibration) = (Calibration::default(), Calibration::default());
        for (n, seen) in anon_switches.iter().enumerate() {
            let table = anon.entry(instance(n as i32 % 2)).or_default();
            table.learn(seen, &params.anon, &mut anon_calibration);
        }
        let mut files = FileTables::default();
        for seen in &file_seen {
            files.learn(seen, &params.file, &mut file_calibration);
        }
        let knowledge = Knowledge {
            anon: &anon,
            anon_calibration: &anon_calibration,
            files: &files,
            file_calibration: &file_calibration,
        };
        let plan = knowledge.plan(&params, under_pressure, 1);
        let mut waste = plan.gap_pages() as f64;
        for (instance, targets) in &plan.anon {
            for page in targets.all().iter_pages() {
                let state = anon[instance].map().get(page).expect("planned pages are known");
                let probability = anon_calibration.probability(state.history);
                prop_assert!(probability >= plan.confidence);
                waste += 1.0 - f64::from(probability);
            }
        }
        let known: BTreeMap<_, _> = files.iter().collect();
        for target in &plan.files {
            prop_assert!(target.wanted.difference(&target.read).is_empty());
            for page in target.wanted.iter_pages() {
                let state = known[&target.file].get(page).expect("planned pages are known");
                let probability = file_calibration.probability(state.history);
                prop_assert!(probability >= plan.file_confidence);
                waste += 1.0 - f64::from(probability);
            }
        }
        let pressure = params.budget.confidence_pressure;
        let (least, file_least) = if under_pressure { (pressure, pressure) } else { (confidence, file_confidence) };
        prop_assert!(plan.confidence >= least && plan.file_confidence >= file_least);
        let utmost = plan.confidence == 1.0 && plan.file_confidence == 1.0;
        prop_assert!(waste <= waste_pages_max as f64 + 0.1 || utmost);
    }
}
