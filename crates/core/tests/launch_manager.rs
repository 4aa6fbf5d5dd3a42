//! The launch manager: the paper's scenarios, and random launches of an application that changes, checked after each.

use prepage_core::extent::Extent;
use prepage_core::identity::FileId;
use prepage_core::launch::manager::{
    Decision, Help, LaunchFacts, LaunchState, Learned, Measured, OffReason, Phase, begin, end,
    generate, is_unclear,
};
use prepage_core::launch::plan::PlanLimits;
use prepage_core::launch::recording::{
    Access, CallKind, LaunchEnd, PathCall, Recording, Source, first_accesses,
};
use prepage_core::launch::sequence::{LaunchSequence, TURNS};
use prepage_core::params::launch::{LaunchOrder, LaunchParams, LaunchStart, TIMES_MAX};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PAGE: u64 = 4096;

fn file(name: u32, version: i64) -> FileId {
    FileId {
        path: format!("/usr/lib/{name}").into(),
        device: (8, 1),
        inode: u64::from(name),
        size: 1 << 24,
        mtime_ns: version,
    }
}

/// An application as it is now: its files with their versions and the pages that every launch reads.
#[derive(Clone)]
struct App {
    source: Source,
    files: BTreeMap<u32, (i64, Vec<Extent>)>,
    launch_us: u64,
}

impl App {
    fn of(files: u32, pages: u64) -> Self {
        let file = |name| (name, (0, vec![Extent::new(0, pages)]));
        Self {
            source: Source::Accesses,
            files: (0..files).map(file).collect(),
            launch_us: 200_000,
        }
    }

    fn pages(&self) -> u64 {
        let pages = self.files.values().flat_map(|(_, extents)| extents);
        pages.map(|e| e.len).sum()
    }

    /// What a launch that is not helped shows: its own pages, and those of `more`.
    fn recording(&self, more: &[(u32, Extent)]) -> Recording {
        let own = self
            .files
            .iter()
            .flat_map(|(&name, (_, e))| e.iter().map(move |&e| (name, e)));
        let all: Vec<(u32, Extent)> = own.chain(more.iter().copied()).collect();
        let names: BTreeSet<u32> = all.iter().map(|(name, _)| *name).collect();
        let version = |name| self.files.get(&name).map_or(0, |(version, _)| *version);
        let access = |(at, (name, extent)): (usize, (u32, Extent))| Access {
            file: names.iter().position(|n| *n == name).expect("named") as u32,
            extent,
            at_us: at as u64,
            is_demanded: true,
            is_certain: true,
        };
        let accesses = first_accesses(all.into_iter().enumerate().map(access).collect());
        Recording {
            source: self.source,
            files: names
                .iter()
                .map(|&name| file(name, version(name)))
                .collect(),
            accesses,
            calls: Vec::new(),
            is_path_profile: false,
            metadata: Vec::new(),
            requests: Vec::new(),
            events_lost: 0,
            files_left_out: 0,
            end: LaunchEnd::Idle,
        }
    }
}

fn facts(changed_files: &[FileId]) -> LaunchFacts<'_> {
    LaunchFacts {
        changed_files,
        is_rotational: false,
        limits: PlanLimits {
            page_bytes: PAGE,
            call_bytes_max: 1 << 20,
        },
    }
}

fn measured(app: &App, decision: &Decision) -> Measured {
    Measured {
        began_ns: 1_000,
        launch_us: Some(app.launch_us / if decision.prefetch.is_some() { 2 } else { 1 }),
        help_us: 0,
        recording_us: 0,
        device_pages: app.pages(),
        end: LaunchEnd::Exit,
        help: match (&decision.prefetch, decision.is_held_out) {
            (Some(_), _) => Help::Helped,
            (None, true) => Help::HeldOut,
            (None, false) => Help::None,
        },
        stale_files: Vec::new(),
    }
}

/// One cold launch, recorded as decided. `more` is what it reads besides.
fn launch(
    state: &mut LaunchState,
    app: &App,
    more: &[(u32, Extent)],
    params: &LaunchParams,
) -> (Decision, Learned) {
    let decision = begin(state, &facts(&[]), params);
    let mut recording = app.recording(more);
    if decision.profiles_paths {
        let path = "/etc/ld.so.preload".into();
        recording.calls.push(PathCall {
            kind: CallKind::Open,
            path,
            is_found: false,
        });
        recording.is_path_profile = true;
    }
    let recording = decision.records.then_some(&recording);
    let learned = end(state, recording, &measured(app, &decision), params);
    assert!(state.is_valid());
    (decision, learned)
}

/// An application that is being helped.
fn learned(app: &App, params: &LaunchParams) -> LaunchState {
    let mut state = LaunchState::default();
    for _ in 0..params.n_rawseq {
        launch(&mut state, app, &[], params);
    }
    generate(&mut state, None, PAGE);
    assert_eq!(state.phase, Phase::Prefetch);
    state
}

/// One that was learned from launches of which nothing was read from the device, each recorded like this.
fn learned_from(recording: &Recording, app: &App, params: &LaunchParams) -> LaunchState {
    let mut state = LaunchState::default();
    for _ in 0..params.n_rawseq {
        let decision = begin(&mut state, &facts(&[]), params);
        assert!(decision.records);
        let measured = Measured {
            device_pages: 0,
            ..measured(app, &decision)
        };
        end(&mut state, Some(recording), &measured, params);
    }
    generate(&mut state, None, PAGE);
    state
}

fn planned(decision: &Decision) -> BTreeSet<(FileId, u64)> {
    let Some(plan) = &decision.prefetch else {
        return BTreeSet::new();
    };
    let pages = plan
        .reads
        .iter()
        .flat_map(|r| (r.extent.start..r.extent.end()).map(move |p| (r.file, p)));
    pages
        .map(|(at, page)| (plan.files[at as usize].clone(), page))
        .collect()
}

#[test]
fn the_first_launch_profiles_paths_and_the_n_rawseqth_leads_to_help() {
    let (params, app) = (LaunchParams::default(), App::of(4, 400));
    let mut state = LaunchState::default();
    let foreign = [(7, Extent::new(0, 50))];
    let (first, outcome) = launch(&mut state, &app, &foreign, &params);
    assert!(first.records && first.profiles_paths && first.prefetch.is_none());
    assert_eq!(
        (outcome, state.phase, state.n_init),
        (Learned::Recorded, Phase::Profiling, 1)
    );
    let (second, outcome) = launch(&mut state, &app, &[], &params);
    assert!(second.records && !second.profiles_paths && second.prefetch.is_none());
    assert_eq!(
        (outcome, state.phase, state.n_init),
        (Learned::Generation, Phase::Generation, 2)
    );
    // Nobody calls `generate`: the launch does.
    let (third, outcome) = launch(&mut state, &app, &[], &params);
    let plan = third.prefetch.expect("helped");
    assert_eq!(
        (plan.pages(), plan.gap_pages, plan.paths.len()),
        (app.pages(), 0, 1)
    );
    assert!(
        plan.files.iter().all(|f| *f != file(7, 0)),
        "a foreign file stayed"
    );
    assert_eq!(
        (outcome, state.phase, state.n_init),
        (Learned::Nothing, Phase::Prefetch, 0)
    );
}

#[test]
fn a_miss_ratio_above_r_miss_deletes_the_sequence() {
    let (params, app) = (LaunchParams::default(), App::of(20, 100));
    let mut state = learned(&app, &params);
    // As many as R_miss allows: two requests of twenty.
    let few = [(30, Extent::new(0, 1)), (31, Extent::new(0, 1))];
    let (_, outcome) = launch(&mut state, &app, &few, &params);
    assert_eq!((outcome, state.phase), (Learned::Nothing, Phase::Prefetch));
    assert_eq!(state.misses.map(|m| m.others), Some(2));
    let more = [few[0], few[1], (32, Extent::new(0, 1))];
    let (_, outcome) = launch(&mut state, &app, &more, &params);
    assert_eq!(
        (outcome, state.phase, state.n_init),
        (Learned::Deleted, Phase::Profiling, 1)
    );
    // That launch's recording was the first of the new sequence.
    let (next, outcome) = launch(&mut state, &app, &more, &params);
    assert!(next.prefetch.is_none() && next.profiles_paths);
    assert_eq!(outcome, Learned::Generation);
    assert_eq!(state.deletions, 1);
    let (helped, _) = launch(&mut state, &app, &more, &params);
    assert_eq!(planned(&helped).len() as u64, app.pages() + 3);
    assert_eq!(state.deletions, 0);
}

#[test]
fn the_miss_ratio_is_checked_every_n_chk_launches_and_less_often_where_that_costs() {
    let params = LaunchParams {
        n_chk: 3,
        n_chk_costly: 5,
        holdout_every: 0,
        ..LaunchParams::default()
    };
    let app = App::of(4, 400);
    let mut state = learned(&app, &params);
    let records = |state: &mut LaunchState| launch(state, &app, &[], &params).0.records;
    let seen: Vec<bool> = (0..6).map(|_| records(&mut state)).collect();
    assert_eq!(seen, [false, false, true, false, false, true]);
    state.recording_share = 0.02;
    let seen: Vec<bool> = (0..5).map(|_| records(&mut state)).collect();
    assert_eq!(seen, [false, false, false, false, true]);
}

#[test]
fn a_new_library_is_learned_anew_and_the_rest_stays() {
    let params = LaunchParams {
        holdout_every: 0,
        ..LaunchParams::default()
    };
    let mut app = App::of(4, 400);
    let mut state = learned(&app, &params);
    app.files.insert(2, (1, vec![Extent::new(50, 300)]));
    let (_, outcome) = launch(&mut state, &app, &[], &params);
    assert_eq!(outcome, Learned::Relearning(1));
    let (while_learning, outcome) = launch(&mut state, &app, &[], &params);
    assert_eq!(outcome, Learned::Recorded);
    let pages = planned(&while_learning);
    assert_eq!(pages.len(), 1200);
    assert!(pages.iter().all(|(f, _)| f.inode != 2));
    let (after, _) = launch(&mut state, &app, &[], &params);
    assert_eq!(
        planned(&after)
            .iter()
            .filter(|(f, _)| *f == file(2, 1))
            .count(),
        300
    );
}

#[test]
fn paths_are_profiled_anew_where_more_than_r_miss_of_the_pages_are_of_other_files() {
    let params = LaunchParams {
        holdout_every: 0,
        ..LaunchParams::default()
    };
    for (pages, profiles) in [(30, false), (300, true)] {
        let mut app = App::of(4, 400);
        app.files.insert(4, (0, vec![Extent::new(0, pages)]));
        let mut state = learned(&app, &params);
        Arc::make_mut(&mut state.sequence).is_path_profile = true;
        app.files.insert(4, (1, vec![Extent::new(0, pages)]));
        launch(&mut state, &app, &[], &params);
        let (next, _) = launch(&mut state, &app, &[], &params);
        assert_eq!(next.profiles_paths, profiles, "{pages} pages");
    }
}

#[test]
fn a_file_that_is_gone_is_forgotten_and_one_that_is_written_anew_each_time_not_learned() {
    let (params, mut app) = (LaunchParams::default(), App::of(20, 100));
    let mut state = learned(&app, &params);
    app.files.remove(&3);
    let decision = begin(&mut state, &facts(&[]), &params);
    let seen = Measured {
        stale_files: vec![file(3, 0)],
        ..measured(&app, &decision)
    };
    // What is taken in because of that includes a file that has another version in every launch.
    let mut outcomes = vec![];
    app.files.insert(30, (0, vec![Extent::new(0, 10)]));
    outcomes.push(end(&mut state, Some(&app.recording(&[])), &seen, &params));
    for version in 1..4 {
        app.files.insert(30, (version, vec![Extent::new(0, 10)]));
        outcomes.push(launch(&mut state, &app, &[], &params).1);
    }
    let nothing = || Learned::Nothing;
    assert_eq!(
        outcomes,
        [Learned::Relearning(1), nothing(), nothing(), nothing()]
    );
    let names: BTreeSet<u64> = state.sequence.files.iter().map(|f| f.file.inode).collect();
    assert_eq!(names, (0..20).filter(|name| *name != 3).collect());
}

/// A launch that reads so many of the application's files, and nothing from the device but these pages.
fn part_launch(
    state: &mut LaunchState,
    app: &App,
    files: usize,
    device_pages: u64,
    params: &LaunchParams,
) -> Learned {
    let decision = begin(state, &facts(&[]), params);
    let mut part = app.clone();
    part.files = app.files.clone().into_iter().take(files).collect();
    let recording = decision.records.then(|| part.recording(&[]));
    let seen = Measured {
        device_pages,
        launch_us: Some(20_000),
        ..measured(&part, &decision)
    };
    end(state, recording.as_ref(), &seen, params)
}

#[test]
fn what_hands_a_file_to_a_running_one_is_no_launch() {
    let (params, app) = (LaunchParams::default(), App::of(10, 400));
    let first = || {
        let mut state = LaunchState::default();
        launch(&mut state, &app, &[], &params);
        state
    };
    let mut state = first();
    for _ in 0..20 {
        let outcome = part_launch(&mut state, &app, 4, 399, &params);
        assert_eq!((outcome, state.n_init), (Learned::Nothing, 1));
    }
    let (_, outcome) = launch(&mut state, &app, &[], &params);
    assert_eq!(outcome, Learned::Generation);
    assert_eq!(state.sequence.pages(), app.pages());
    // Without end it says that the first was no launch like the others.
    let mut state = first();
    let outcomes = (0..64).map(|_| part_launch(&mut state, &app, 4, 0, &params));
    let outcomes: Vec<Learned> = outcomes.collect();
    let (last, before) = outcomes.split_last().expect("there are some");
    assert!(before.iter().all(|outcome| *outcome == Learned::Nothing));
    assert_eq!(*last, Learned::Off(OffReason::Unsteady));
    // It is one where it is cold, or uses as much as others.
    for (files, device_pages) in [(4, 400), (5, 0)] {
        let mut state = first();
        let outcome = part_launch(&mut state, &app, files, device_pages, &params);
        assert_eq!(outcome, Learned::Generation, "{files} files");
        assert_eq!(state.sequence.pages(), 400 * files as u64);
    }
}

proptest! {
    /// Whatever comes between: in which phase, and whether changed files are being learned.
    #[test]
    fn what_is_handed_over_to_a_running_one_changes_nothing_of_what_is_learned(
        steps in prop::collection::vec((any::<bool>(), 0..60u32, prop::collection::vec(1..5usize, 0..4)), 1..30),
    ) {
        let params = LaunchParams { holdout_every: 0, ..LaunchParams::default() };
        let mut app = App::of(10, 400);
        let (mut state, mut alone) = (LaunchState::default(), LaunchState::default());
        for (is_cold, updated, between) in steps {
            if let Some((version, _)) = app.files.get_mut(&updated) {
                *version += 1;
            }
            let device_pages = if is_cold { app.pages() } else { 0 };
            for state in [&mut state, &mut alone] {
                part_launch(state, &app, app.files.len(), device_pages, &params);
            }
            if alone.is_left_alone() {
                break;
            }
            prop_assert_eq!(&state.sequence.files, &alone.sequence.files);
            prop_assert_eq!(&state.sequence.reads, &alone.sequence.reads);
            for files in between {
                part_launch(&mut state, &app, files, 0, &params);
            }
        }
    }
}

#[test]
fn a_state_from_elsewhere_is_checked() {
    let valid = learned(&App::of(4, 400), &LaunchParams::default());
    assert!(valid.is_valid());
    let no_share = LaunchState {
        recording_share: f32::NAN,
        ..valid.clone()
    };
    assert!(!no_share.is_valid());
    let with = |change: fn(&mut LaunchSequence)| {
        let mut state = valid.clone();
        change(Arc::make_mut(&mut state.sequence));
        state.is_valid()
    };
    assert!(!with(|s| s.reads[0].file = 4));
    assert!(!with(|s| s.reads[0].extent.len = 0));
    assert!(!with(|s| s.reads[0].extent.len = u64::MAX));
    assert!(!with(|s| s.reads[0].extent.start = u64::MAX));
    assert!(!with(|s| s.reads[1].file = 0), "a page twice");
    assert!(!with(|s| s.files[0].file.path = "relative".into()));
    assert!(!with(|s| s.files[0].file.path = "/a\0b".into()));
}

#[test]
fn another_executable_is_noticed_before_its_launch() {
    let (params, app) = (LaunchParams::default(), App::of(4, 400));
    let mut state = learned(&app, &params);
    let decision = begin(&mut state, &facts(&[file(0, 1)]), &params);
    assert!(decision.records && decision.profiles_paths);
    assert!(planned(&decision).iter().all(|(f, _)| f.inode != 0));
    // In the profiling phase everything begins anew.
    let mut state = LaunchState::default();
    launch(&mut state, &app, &[], &params);
    begin(&mut state, &facts(&[file(0, 1)]), &params);
    assert_eq!((state.n_init, state.sequence.files.len()), (0, 0));
}

#[test]
fn an_application_too_small_to_gain_is_left_alone_and_tried_again_ever_later() {
    let params = LaunchParams {
        retry_launches: 4,
        retry_launches_max: 8,
        ..LaunchParams::default()
    };
    let few_pages = App::of(2, 100);
    let short = App {
        launch_us: 2_200,
        ..App::of(4, 400)
    };
    for app in [few_pages, short] {
        let mut state = LaunchState::default();
        let mut pauses = Vec::new();
        for _ in 0..4 {
            while state.phase == Phase::Profiling {
                launch(&mut state, &app, &[], &params);
            }
            assert_eq!(state.phase, Phase::Off(OffReason::TooSmall));
            let mut pause = 1;
            while launch(&mut state, &app, &[], &params).0 == Decision::default() {
                pause += 1;
            }
            pauses.push(pause);
        }
        assert_eq!(pauses, [4, 8, 8, 8]);
    }
}

/// As of a program that takes 2 ms with what it reads in memory, and 60 without.
#[test]
fn an_application_is_too_small_by_what_its_cold_launches_take() {
    let params = LaunchParams::default();
    let (warm_us, app) = (2_000, App::of(4, 400));
    for (cold_us, is_small) in [(60_000, false), (2_900, true)] {
        // Whether the first launch is cold or not: it is traced, so that its time says nothing.
        for first_device_pages in [0, app.pages()] {
            let mut state = LaunchState::default();
            let launch = |state: &mut LaunchState, us: u64, device_pages: u64| {
                let decision = begin(state, &facts(&[]), &params);
                let recording = Recording {
                    is_path_profile: decision.profiles_paths,
                    metadata: Vec::new(),
                    ..app.recording(&[])
                };
                let seen = Measured {
                    launch_us: Some(us),
                    device_pages,
                    ..measured(&app, &decision)
                };
                let recording = decision.records.then_some(&recording);
                end(state, recording, &seen, &params);
                decision
            };
            launch(&mut state, 4 * warm_us, first_device_pages);
            for _ in 1..40 {
                launch(&mut state, warm_us, 0);
                assert!(!state.is_left_alone(), "{:?}", state.phase);
            }
            let cold = |state: &mut LaunchState| launch(state, cold_us, app.pages()).is_held_out;
            while !cold(&mut state) {}
            let expected = match is_small {
                true => Phase::Off(OffReason::TooSmall),
                false => Phase::Prefetch,
            };
            assert_eq!(state.phase, expected, "{cold_us} us cold");
        }
    }
}

/// A launch that does more than the rings hold.
fn overflowing_launch(state: &mut LaunchState, app: &App, params: &LaunchParams) -> Decision {
    let decision = begin(state, &facts(&[]), params);
    let recording = Recording {
        events_lost: 1,
        is_path_profile: decision.profiles_paths,
        metadata: Vec::new(),
        ..app.recording(&[])
    };
    let recording = decision.records.then_some(&recording);
    end(state, recording, &measured(app, &decision), params);
    decision
}

#[test]
fn an_application_that_cannot_be_recorded_is_traced_twice_and_left_alone_ever_longer() {
    let params = LaunchParams {
        retry_launches: 4,
        retry_launches_max: 8,
        ..LaunchParams::default()
    };
    let (app, mut state) = (App::of(4, 400), LaunchState::default());
    for pause in [4, 8, 8] {
        let mut traced = 0;
        let mut recorded = 0;
        while state.phase == Phase::Profiling || state.retry_left <= 1 {
            let decision = overflowing_launch(&mut state, &app, &params);
            traced += u32::from(decision.profiles_paths);
            recorded += u32::from(decision.records);
        }
        assert_eq!((traced, recorded), (2, 4));
        assert_eq!(state.phase, Phase::Off(OffReason::Unsteady));
        assert_eq!(state.retry_left, pause);
        for _ in 1..pause {
            let decision = overflowing_launch(&mut state, &app, &params);
            assert_eq!(decision, Decision::default());
        }
    }
    // One that can be recorded now and then is learned.
    let mut state = LaunchState::default();
    for _ in 0..params.n_rawseq {
        for _ in 0..3 {
            assert!(overflowing_launch(&mut state, &app, &params).records);
        }
        launch(&mut state, &app, &[], &params);
    }
    assert_eq!(state.phase, Phase::Generation);
}

#[test]
fn a_helped_application_that_cannot_be_recorded_any_more_is_recorded_when_it_is_checked() {
    let params = LaunchParams {
        holdout_every: 0,
        n_chk_costly: 10,
        n_refine: 0,
        ..LaunchParams::default()
    };
    let app = App::of(4, 400);
    let mut state = learned(&app, &params);
    state.relearns = true;
    let decisions: Vec<Decision> = (0..44)
        .map(|_| overflowing_launch(&mut state, &app, &params))
        .collect();
    assert!(decisions.iter().all(|decision| decision.prefetch.is_some()));
    let recorded = decisions[4..].iter().filter(|decision| decision.records);
    assert_eq!(recorded.count(), 4, "of 40, one in ten");
    assert!(
        decisions[4..]
            .iter()
            .all(|decision| !decision.profiles_paths)
    );
}

/// A cold launch of an application that is being helped, which takes so long; whether it was held out.
fn timed_launch(
    state: &mut LaunchState,
    app: &App,
    params: &LaunchParams,
    launch_us: impl FnOnce(bool) -> u64,
) -> bool {
    let decision = begin(state, &facts(&[]), params);
    let is_held_out = decision.is_held_out;
    assert_eq!(decision.prefetch.is_none(), is_held_out);
    let seen = Measured {
        launch_us: Some(launch_us(is_held_out)),
        ..measured(app, &decision)
    };
    end(state, Some(&app.recording(&[])), &seen, params);
    is_held_out
}

#[test]
fn every_second_launch_is_held_out_until_it_is_known_whether_help_helps_and_every_kth_then() {
    let params = LaunchParams {
        holdout_every: 4,
        trial_launch_us: u64::MAX,
        ..LaunchParams::default()
    };
    let app = App::of(4, 400);
    let mut state = learned(&app, &params);
    state.retry_launches = 16;
    let (no, yes) = (false, true);
    let expected = [no, yes, no, yes, no, yes, no, no, no, yes, no, no, no, yes];
    for is_held_out in expected {
        let launched = timed_launch(&mut state, &app, &params, |held_out| {
            if held_out { 200_000 } else { 120_000 }
        });
        assert_eq!(launched, is_held_out);
        assert_eq!(state.phase, Phase::Prefetch);
    }
    // That it helps makes up for past attempts in vain.
    assert_eq!(state.retry_launches, 0);
    assert_eq!(state.helped.median_us(), Some(120_000));
    assert_eq!((state.helped.len(), state.held_out.len()), (9, 5));
    // Warm launches say nothing of it.
    let mut state = learned(&app, &params);
    for _ in 0..20 {
        let decision = begin(&mut state, &facts(&[]), &params);
        let seen = Measured {
            launch_us: Some(50_000),
            device_pages: 10,
            ..measured(&app, &decision)
        };
        end(&mut state, Some(&app.recording(&[])), &seen, &params);
    }
    assert!(state.phase == Phase::Prefetch && state.helped.is_empty());
}

/// As where the kernel does not tell: the launch held out is not seen to be cold.
#[test]
fn no_two_launches_in_a_row_are_held_out_whatever_is_seen_of_them() {
    let params = LaunchParams::default();
    let app = App::of(4, 400);
    let mut state = learned(&app, &params);
    let mut was_held_out = false;
    for _ in 0..40 {
        let decision = begin(&mut state, &facts(&[]), &params);
        assert!(
            !(was_held_out && decision.is_held_out),
            "{}",
            state.launches
        );
        was_held_out = decision.is_held_out;
        let device_pages = if was_held_out { 0 } else { app.pages() };
        let seen = Measured {
            device_pages,
            ..measured(&app, &decision)
        };
        end(&mut state, Some(&app.recording(&[])), &seen, &params);
    }
}

#[test]
fn help_that_does_not_help_is_switched_off_after_three_launches_of_each_kind() {
    let params = LaunchParams::default();
    let app = App {
        launch_us: 14_900,
        ..App::of(4, 400)
    };
    // As with git: 14.9 ms cold, 18.7 helped, however disturbed.
    let mut state = learned(&app, &params);
    state.retry_launches = 16;
    for (launches, helped_us) in [(1, 18_700), (3, 17_900), (5, 22_000)] {
        assert_eq!(
            (state.phase, state.launches),
            (Phase::Prefetch, launches + 1)
        );
        for held_out in [false, true] {
            let us = [helped_us, 14_900][usize::from(held_out)];
            assert_eq!(timed_launch(&mut state, &app, &params, |_| us), held_out);
        }
    }
    assert_eq!(state.phase, Phase::Off(OffReason::NotHelping));
    assert_eq!((state.launches, state.retry_launches), (8, 32));
    // Without hold-outs nothing is known.
    let never = LaunchParams {
        holdout_every: 0,
        ..params
    };
    let mut state = learned(&app, &never);
    (0..40).for_each(|_| assert!(!timed_launch(&mut state, &app, &never, |_| 20_000)));
    assert_eq!(state.phase, Phase::Prefetch);
}

#[test]
fn help_that_takes_as_long_as_it_can_gain_ends_with_the_first_launch_held_out() {
    let params = LaunchParams::default();
    let app = App {
        launch_us: 4_000,
        ..App::of(4, 400)
    };
    // As with gpg: 4 ms warm, 8 cold; prepage itself takes 4.5 before the program begins, or 3. And as with nmap, of which no
    // launch was warm: its cold ones, helped, are not what help cannot fall below.
    for (help_us, was_warm, is_beyond) in [
        (4_500, true, true),
        (3_000, true, false),
        (4_500, false, false),
    ] {
        let mut state = learned(&app, &params);
        let launches = [(0, help_us + 4_000), (400, 8_900), (400, 8_000)];
        for (device_pages, launch_us) in &launches[usize::from(!was_warm)..] {
            assert_eq!(state.phase, Phase::Prefetch);
            let decision = begin(&mut state, &facts(&[]), &params);
            let seen = Measured {
                launch_us: Some(*launch_us),
                device_pages: *device_pages,
                help_us,
                ..measured(&app, &decision)
            };
            end(&mut state, None, &seen, &params);
        }
        assert_eq!((state.helped.len(), state.held_out.len()), (1, 1));
        let expected = [Phase::Prefetch, Phase::Off(OffReason::NotHelping)];
        assert_eq!(state.phase, expected[usize::from(is_beyond)]);
    }
}

#[test]
fn a_launch_held_out_checks_nothing_and_is_recorded_where_only_that_shows_its_end() {
    let params = LaunchParams {
        n_chk: 4,
        holdout_every: 4,
        ..LaunchParams::default()
    };
    let app = App::of(4, 400);
    for (last, is_recorded) in [(LaunchEnd::Exit, false), (LaunchEnd::Idle, true)] {
        let mut state = learned(&app, &params);
        // Every recording may come too late to be learned from.
        let decided: Vec<(bool, bool)> = (0..9)
            .map(|_| {
                let decision = begin(&mut state, &facts(&[]), &params);
                let measured = Measured {
                    end: last,
                    ..measured(&app, &decision)
                };
                end(&mut state, None, &measured, &params);
                (decision.is_held_out, decision.records)
            })
            .collect();
        let (helped, held_out, checked) = ((false, false), (true, is_recorded), (false, true));
        let expected = [
            helped, helped, helped, held_out, checked, helped, helped, held_out, checked,
        ];
        assert_eq!(decided, expected);
    }
}

#[test]
fn a_launch_that_recording_slowed_counts_only_where_none_has_an_end_without() {
    let params = LaunchParams {
        n_chk: 1,
        n_chk_costly: 1,
        ..LaunchParams::default()
    };
    let app = App::of(4, 400);
    for (last, recording_us, is_counted) in [
        (LaunchEnd::Exit, app.launch_us / 2, false),
        (LaunchEnd::Exit, 0, true),
        (LaunchEnd::Idle, app.launch_us / 2, true),
    ] {
        let mut state = learned(&app, &params);
        let decision = begin(&mut state, &facts(&[]), &params);
        assert!(decision.records && decision.prefetch.is_some());
        let measured = Measured {
            end: last,
            recording_us,
            ..measured(&app, &decision)
        };
        end(&mut state, Some(&app.recording(&[])), &measured, &params);
        assert_eq!(state.helped.is_empty(), !is_counted, "{last:?}");
    }
}

/// As of a program with a window on a kernel that reports insertions: what its launches show of their time is when they last
/// read from the device, at once where they are helped.
#[test]
fn launches_of_which_nobody_knows_the_length_are_not_compared_and_not_short() {
    let params = LaunchParams {
        n_chk: 2,
        n_chk_costly: 1_000_000,
        holdout_every: 3,
        ..LaunchParams::default()
    };
    let app = App {
        source: Source::Insertions,
        ..App::of(4, 400)
    };
    let mut state = LaunchState::default();
    let (mut n_held_out, mut n_recorded) = (0, 0);
    for launch in 0..40 {
        let decision = begin(&mut state, &facts(&[]), &params);
        n_held_out += u32::from(decision.is_held_out);
        n_recorded += u32::from(decision.records);
        let end_is = LaunchEnd::Idle;
        let last_us = if decision.prefetch.is_some() { 0 } else { 900 };
        let seen = Measured {
            launch_us: end_is.is_of_length(app.source).then_some(last_us),
            help_us: 100,
            recording_us: 50_000,
            // Some are warm.
            device_pages: if launch % 5 == 4 { 0 } else { app.pages() },
            end: end_is,
            ..measured(&app, &decision)
        };
        // Of one that is held out, the beginning is missed.
        let recording = decision.records && !decision.is_held_out;
        let recording = recording.then(|| app.recording(&[]));
        end(&mut state, recording.as_ref(), &seen, &params);
        assert!(!state.is_left_alone(), "{:?}", state.phase);
        assert!(!is_unclear(&state, &params));
    }
    assert_eq!(state.phase, Phase::Prefetch);
    // No trial, and no check put off for what recording would cost.
    assert!((10..=13).contains(&n_held_out), "{n_held_out} held out");
    assert!(n_recorded > 20, "{n_recorded} recorded");
    assert_eq!((state.helped.len(), state.held_out.len()), (0, 0));
    assert_eq!((state.longest_us, state.warm_us), (0, None));
    assert!(state.recording_share.abs() < f32::EPSILON);
}

#[test]
fn what_is_tried_is_the_whole_of_help_and_refined_when_that_is_clear() {
    let params = LaunchParams {
        n_chk: 32,
        n_chk_costly: 32,
        refine_every: 1,
        ..LaunchParams::default()
    };
    let app = App {
        launch_us: 20_000,
        ..App::of(1, 1_600)
    };
    // Of each window a launch reads one page; the others were in memory, as far as is known.
    let used: Vec<u64> = (0..1_600).step_by(16).collect();
    let from_memory = faulting_launch(&used, &(0..1_600).collect());
    let mut state = learned_from(&from_memory, &app, &params);
    while is_unclear(&state, &params) {
        let decision = begin(&mut state, &facts(&[]), &params);
        assert!(!decision.records);
        let planned = planned(&decision).len();
        assert_eq!(planned, if decision.is_held_out { 0 } else { 1_600 });
        end(&mut state, None, &measured(&app, &decision), &params);
    }
    assert_eq!((state.helped.len(), state.held_out.len()), (3, 3));
    let decision = begin(&mut state, &facts(&[]), &params);
    assert!(decision.records && !decision.is_held_out);
    let windows = 1_600 / 16_u64;
    let left_out = windows.div_ceil(TURNS) * 16;
    assert_eq!(planned(&decision).len() as u64, 1_600 - left_out);
}

#[test]
fn how_long_a_warm_launch_takes_is_not_learned_from_a_traced_one() {
    let params = LaunchParams::default();
    let app = App::of(1, 1_600);
    let warm_us = |is_path_profile| {
        let mut state = LaunchState::default();
        let decision = begin(&mut state, &facts(&[]), &params);
        let recording = Recording {
            is_path_profile,
            ..app.recording(&[])
        };
        let measured = Measured {
            device_pages: 0,
            ..measured(&app, &decision)
        };
        end(&mut state, Some(&recording), &measured, &params);
        state.warm_us
    };
    assert_eq!(warm_us(false), Some(app.launch_us));
    assert_eq!(warm_us(true), None);
}

#[test]
fn where_recording_costs_time_a_small_change_waits_for_the_next_check_and_a_large_one_does_not() {
    let params = LaunchParams {
        holdout_every: 0,
        ..LaunchParams::default()
    };
    let state = LaunchState {
        recording_share: 2.0 * params.recording_share_max,
        n_pref: 0,
        ..learned(&App::of(20, 50), &params)
    };
    let first_recorded = |changed: &[FileId]| {
        let mut state = state.clone();
        let mut launches = (1..100).filter(|_| begin(&mut state, &facts(changed), &params).records);
        launches.next().expect("one is checked")
    };
    assert_eq!(first_recorded(&[file(3, 1)]), params.n_chk_costly);
    let many: Vec<FileId> = (0..5).map(|name| file(name, 1)).collect();
    assert_eq!(first_recorded(&many), 1);
}

#[test]
fn what_is_in_doubt_is_fetched_in_its_place_by_all_launches_but_one_in_so_many() {
    let params = LaunchParams {
        holdout_every: 0,
        merge_gap_pages: 0,
        ..LaunchParams::default()
    };
    // Nothing is tried where no launch is held out, however short they are.
    let app = App {
        launch_us: params.trial_launch_us / 2,
        ..App::of(1, 1_600)
    };
    let used: Vec<u64> = (0..1_600).step_by(16).collect();
    let from_memory = faulting_launch(&used, &(0..1_600).filter(|page| page % 160 > 0).collect());
    let mut state = learned_from(&from_memory, &app, &params);
    assert_eq!(certain_pages(&state.sequence), 10);
    let decision = begin(&mut state, &facts(&[]), &params);
    let reads = &decision.prefetch.as_ref().expect("it is helped").reads;
    let pages = reads.iter().flat_map(|r| r.extent.start..r.extent.end());
    assert!(pages.is_sorted(), "{reads:?}");
    // And left out, in part, of one launch in so many.
    for at in 2..=3 * params.refine_every {
        let decision = begin(&mut state, &facts(&[]), &params);
        let is_whole = planned(&decision).len() == 1_600;
        assert_eq!(is_whole, at % params.refine_every != 0, "launch {at}");
        assert!(is_whole || decision.records);
    }
}

#[test]
fn longer_launches_are_helped_but_for_the_hold_outs() {
    let (params, app) = (LaunchParams::default(), App::of(4, 400));
    let mut state = learned(&app, &params);
    for at in 1..=3 * params.holdout_every {
        let is_held_out = timed_launch(&mut state, &app, &params, |_| 100_000);
        assert_eq!(is_held_out, at % params.holdout_every == 0, "launch {at}");
    }
}

/// Normally distributed noise around 1, reproducible.
struct Noise {
    state: u64,
    deviation: f64,
}

impl Noise {
    fn next(&mut self) -> f64 {
        // Twelve uniform numbers add up to a normal one, nearly.
        let sum: f64 = (0..12).map(|_| self.uniform()).sum();
        1.0 + self.deviation * (sum - 6.0)
    }

    fn uniform(&mut self) -> f64 {
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        self.state = self
            .state
            .wrapping_mul(FACTOR)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Of a thousand applications whose helped launches take `ratio` of the time of others, give or take: how many are
/// switched off within so many launches in the prefetch phase.
fn switched_off(ratio: f64, deviation: f64, launches: u32) -> u32 {
    let params = LaunchParams {
        trial_launch_us: u64::MAX,
        ..LaunchParams::default()
    };
    let app = App::of(1, 800);
    let ready = learned(&app, &params);
    let is_off = |seed: &u64| {
        let (mut state, mut noise) = (
            ready.clone(),
            Noise {
                state: *seed,
                deviation,
            },
        );
        (0..launches).any(|_| {
            timed_launch(&mut state, &app, &params, |held_out| {
                let mean = if held_out {
                    100_000.0
                } else {
                    100_000.0 * ratio
                };
                (mean * noise.next()) as u64
            });
            state.phase != Phase::Prefetch
        })
    };
    (0..1_000u64).filter(is_off).count() as u32
}

#[test]
fn noise_misleads_rarely() {
    // Launches differ by a tenth. What harms is left alone soon: nine in ten after six launches, all after sixteen.
    let off = |ratio, launches| switched_off(ratio, 0.1, launches);
    assert!(off(1.25, 6) > 850 && off(1.25, 16) > 990);
    assert!(off(1.1, 16) > 950);
    // What helps is not: not one in a hundred in as many launches.
    assert!(off(0.8, 100) < 10);
    // Nor most of what helps as little as launches differ, and half of what does nothing is noticed.
    assert!(off(0.9, 100) < 150 && off(1.0, 16) > 500);
}

proptest! {
    /// Whatever one launch of each kind is disturbed by.
    #[test]
    fn one_disturbed_launch_of_a_kind_turns_no_verdict(
        is_shorter in any::<bool>(),
        disturbed in (0..20u64, 1..1_000_000u64),
        other in (0..20u64, 1..1_000_000u64),
    ) {
        let (params, app) = (LaunchParams::default(), App::of(4, 400));
        let mut state = learned(&app, &params);
        let (mut counts, helped_us) = ([0; 2], if is_shorter { 80_000 } else { 125_000 });
        for _ in 0..40 {
            if state.phase != Phase::Prefetch {
                break;
            }
            timed_launch(&mut state, &app, &params, |held_out| {
                let kind = usize::from(held_out);
                counts[kind] += 1;
                let (at, us) = [disturbed, other][kind];
                if counts[kind] == at { us } else { [helped_us, 100_000][kind] }
            });
        }
        let expected = if is_shorter { Phase::Prefetch } else { Phase::Off(OffReason::NotHelping) };
        prop_assert_eq!(state.phase, expected);
    }
}

#[test]
fn an_application_whose_launches_differ_each_time_is_left_alone() {
    let (params, mut state) = (LaunchParams::default(), LaunchState::default());
    let mut app = App::of(4, 400);
    for at in 0..20 {
        // Every third launch is of something else.
        let names = if at % 3 == 2 {
            10 * at..10 * at + 4
        } else {
            0..4
        };
        app.files = names
            .map(|name| (name, (0, vec![Extent::new(0, 400)])))
            .collect();
        launch(&mut state, &app, &[], &params);
    }
    assert_eq!(state.phase, Phase::Off(OffReason::Unsteady));
}

#[test]
fn insertions_add_up_from_launch_to_launch() {
    let params = LaunchParams::default();
    let mut app = App {
        source: Source::Insertions,
        ..App::of(2, 300)
    };
    let mut state = learned(&app, &params);
    // Much was in memory until now: a launch after a reboot shows it.
    app.files.insert(2, (0, vec![Extent::new(0, 500)]));
    let (_, outcome) = launch(&mut state, &app, &[], &params);
    assert_eq!((outcome, state.phase), (Learned::Recorded, Phase::Prefetch));
    assert_eq!(state.sequence.pages(), 1100);
}

#[test]
fn an_application_first_launched_warm_is_not_judged_by_warm_launches() {
    let params = LaunchParams::default();
    let app = App {
        source: Source::Insertions,
        launch_us: 14_900,
        ..App::of(0, 0)
    };
    // Nothing was inserted; its paths are known.
    let mut recording = app.recording(&[]);
    recording.calls.push(PathCall {
        kind: CallKind::Open,
        path: "/etc/ld.so.preload".into(),
        is_found: false,
    });
    let mut state = learned_from(&recording, &app, &params);
    assert_eq!((state.phase, state.sequence.pages()), (Phase::Prefetch, 0));
    let mut n_held_out = 0;
    for _ in 0..40 {
        let decision = begin(&mut state, &facts(&[]), &params);
        n_held_out += u32::from(decision.is_held_out);
        assert_eq!(decision.prefetch.is_none(), decision.is_held_out);
        let warm = Measured {
            launch_us: Some(app.launch_us),
            device_pages: 0,
            ..measured(&app, &decision)
        };
        end(&mut state, None, &warm, &params);
        assert_eq!(state.phase, Phase::Prefetch);
    }
    assert!(n_held_out > 0 && !state.was_cold);
    assert_eq!((state.helped.len(), state.held_out.len()), (0, 0));
    assert_eq!(state.warm_us, Some(app.launch_us));
}

#[test]
fn a_rotational_device_gets_sorted_prefetch() {
    let (params, app) = (LaunchParams::default(), App::of(4, 400));
    let mut state = learned(&app, &params);
    let rotational = LaunchFacts {
        is_rotational: true,
        ..facts(&[])
    };
    let plan = begin(&mut state, &rotational, &params)
        .prefetch
        .expect("helped");
    assert_eq!(plan.start, LaunchStart::Before);
    let none = LaunchParams {
        order: LaunchOrder::None,
        ..params
    };
    assert_eq!(begin(&mut state, &facts(&[]), &none).prefetch, None);
}

#[test]
fn lost_events_teach_nothing() {
    let (params, app) = (LaunchParams::default(), App::of(4, 400));
    let mut state = LaunchState::default();
    let decision = begin(&mut state, &facts(&[]), &params);
    let lossy = Recording {
        events_lost: 1,
        ..app.recording(&[])
    };
    let outcome = end(
        &mut state,
        Some(&lossy),
        &measured(&app, &decision),
        &params,
    );
    assert_eq!((outcome, state.n_init), (Learned::Nothing, 0));
}

/// What happens, in the model.
#[derive(Clone, Debug)]
enum Step {
    /// The application is launched.
    Launch(Launch),
    /// A file gets another version, of which pages are read from another one on.
    Update { name: u32, from: u64 },
    /// The engine found the time.
    Generate,
}

#[derive(Clone, Debug)]
struct Launch {
    /// Files that it reads besides, and where.
    more: Vec<(u32, u64)>,
    is_cold: bool,
    events_lost: u64,
    /// Launches at the same time.
    count: usize,
    launch_us: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let more = prop::collection::vec((20..24u32, 0..40u64), 0..3);
    let lost = prop_oneof![9 => Just(0u64), 1 => Just(1)];
    let launch = (more, any::<bool>(), lost, 1..3usize, 1..400_000u64);
    let launch = launch.prop_map(|(more, is_cold, events_lost, count, launch_us)| {
        Step::Launch(Launch {
            more,
            is_cold,
            events_lost,
            count,
            launch_us,
        })
    });
    let update = (0..4u32, 0..50u64).prop_map(|(name, from)| Step::Update { name, from });
    let step = prop_oneof![12 => launch, 1 => update, 1 => Just(Step::Generate)];
    prop::collection::vec(step, 1..60)
}

/// How many usable recordings showed a page of a file's version.
type Shown = BTreeMap<(FileId, u64), u32>;

fn check(
    state: &LaunchState,
    decision: &Decision,
    shown: &Shown,
    app: &App,
    params: &LaunchParams,
) {
    if let Some(plan) = &decision.prefetch {
        assert_eq!(state.phase, Phase::Prefetch);
        assert!(!decision.is_held_out && plan.gap_pages <= plan.pages());
    }
    if state.phase == Phase::Prefetch && decision.prefetch.is_none() {
        let has_pages = state.sequence.confirmed(params.n_rawseq).next().is_some();
        assert!(decision.is_held_out || !has_pages);
    }
    assert!(!decision.profiles_paths || decision.records);
    assert!(decision.records || state.phase != Phase::Profiling);
    for (file, page) in planned(decision) {
        // Never what was not seen often enough; gap pages aside, of which these runs have none.
        let times = shown.get(&(file.clone(), page)).copied().unwrap_or(0);
        let needed = if app.source == Source::Accesses {
            params.n_rawseq
        } else {
            1
        };
        assert!(
            times >= needed,
            "{}:{page} was seen {times} times",
            file.path
        );
    }
    if let (Phase::Off(_), false) = (state.phase, decision.records) {
        assert_eq!(*decision, Decision::default());
    }
}

proptest! {
    #[test]
    fn whatever_happens_only_what_was_seen_is_fetched_and_the_state_stays_sound(
        steps in steps(),
        n_rawseq in 1..4u32,
        // Where every launch is held out, nothing is learned any more.
        holdout_every in prop_oneof![Just(0), 2..5u32],
        is_partial in any::<bool>(),
    ) {
        let params = LaunchParams {
            n_rawseq,
            holdout_every,
            merge_gap_pages: 0,
            pages_min: 100,
            samples_min: 2,
            retry_launches: 2,
            retry_launches_max: 4,
            ..LaunchParams::default()
        };
        let source = if is_partial { Source::Insertions } else { Source::Accesses };
        let mut app = App { source, ..App::of(4, 50) };
        let (mut state, mut shown) = (LaunchState::default(), Shown::new());
        let mut has_lost = false;
        for step in steps {
            let launched = match step {
                Step::Launch(launched) => launched,
                Step::Update { name, from } => {
                    let version = app.files[&name].0 + 1;
                    app.files.insert(name, (version, vec![Extent::new(from, 50)]));
                    continue;
                }
                Step::Generate => {
                    generate(&mut state, None, PAGE);
                    continue;
                }
            };
            let more = launched.more.iter().map(|&(name, at)| (name, Extent::new(at, 10)));
            let more: Vec<_> = more.collect();
            let executable = [file(0, app.files[&0].0)];
            let mut decisions = Vec::new();
            for _ in 0..launched.count {
                let decision = begin(&mut state, &facts(&executable), &params);
                check(&state, &decision, &shown, &app, &params);
                decisions.push(decision);
            }
            for decision in decisions {
                let seen = Recording { events_lost: launched.events_lost, ..app.recording(&more) };
                let seen = decision.records.then_some(seen);
                for access in seen.iter().filter(|s| s.is_usable()).flat_map(|s| &s.accesses) {
                    let file = &seen.as_ref().expect("some").files[access.file as usize];
                    for page in access.extent.start..access.extent.end() {
                        *shown.entry((file.clone(), page)).or_default() += 1;
                    }
                }
                let device_pages = if launched.is_cold { app.pages() } else { 0 };
                let launch_us = Some(launched.launch_us);
                let times = Measured { device_pages, launch_us, ..measured(&app, &decision) };
                end(&mut state, seen.as_ref(), &times, &params);
                prop_assert!(state.is_valid());
                prop_assert!(state.n_init <= params.n_rawseq);
                // A check is due at once after a large change, and rarely where recordings lose events.
                has_lost |= launched.events_lost > 0;
                let n_pref_max = params.n_chk.max(params.n_chk_costly);
                let is_rare = has_lost && state.n_pref < n_pref_max;
                prop_assert!(
                    state.n_pref < params.n_chk || state.n_held_out == 0 || state.n_pref == n_pref_max || is_rare
                );
                prop_assert!(state.helped.len().max(state.held_out.len()) <= TIMES_MAX);
                prop_assert!(state.retry_left <= params.retry_launches_max);
                prop_assert!(state.is_left_alone() == (state.retry_left > 0));
            }
        }
        // Whatever was before: an application that changes no more is helped in the end, with all its pages.
        for _ in 0..40 {
            launch(&mut state, &app, &[], &params);
        }
        prop_assert_eq!(state.phase, Phase::Prefetch);
        let pages: u64 = state.sequence.confirmed(n_rawseq).map(|r| r.extent.len).sum();
        prop_assert!(pages >= app.pages());
    }
}

/// Pages that launches are known to use.
fn certain_pages(sequence: &LaunchSequence) -> u64 {
    let certain = sequence.reads.iter().filter(|r| r.is_certain);
    certain.map(|r| r.extent.len).sum()
}

/// What a launch that uses these pages of a file shows on a kernel that maps the pages in memory around each fault,
/// 16 at a time, with these pages fetched before it and the rest read on demand.
fn faulting_launch(used: &[u64], fetched: &BTreeSet<u64>) -> Recording {
    let (mut in_memory, mut mapped) = (fetched.clone(), BTreeSet::new());
    let mut accesses = Vec::new();
    for (at_us, &page) in (0..).zip(used) {
        if mapped.contains(&page) {
            continue;
        }
        let access = |start, is_certain| Access {
            file: 0,
            extent: Extent::new(start, 1),
            at_us,
            is_demanded: false,
            is_certain,
        };
        // What it waits for is reported by itself.
        if in_memory.insert(page) {
            accesses.push(access(page, true));
        }
        for around in (page / 16 * 16..page / 16 * 16 + 16).filter(|p| in_memory.contains(p)) {
            mapped.insert(around);
            accesses.push(access(around, false));
        }
    }
    Recording {
        accesses: first_accesses(accesses),
        ..App::of(1, 1).recording(&[])
    }
}

proptest! {
    #[test]
    fn launches_from_memory_are_refined_by_cold_ones_to_what_is_used(
        used in prop::collection::btree_set(0..600u64, 40..200),
        seed in any::<u64>(),
        refine_every in prop::sample::select(vec![1u32, 3, 8]),
    ) {
        let params = LaunchParams { pages_min: 1, launch_us_min: 0, holdout_every: 0, merge_gap_pages: 0, refine_every, ..LaunchParams::default() };
        let everything: BTreeSet<u64> = (0..600).collect();
        let mut order: Vec<u64> = used.iter().copied().collect();
        order.sort_by_key(|page| page.wrapping_mul(seed | 1) % 601);
        let app = App::of(1, 600);
        let mut state = learned_from(&faulting_launch(&order, &everything), &app, &params);
        let finish = |state: &mut LaunchState, decision: &Decision, recording: &Recording, device_pages| {
            let measured = Measured { device_pages, ..measured(&app, decision) };
            end(state, decision.records.then_some(recording), &measured, &params)
        };
        let from_memory = state.sequence.pages();
        prop_assert!(from_memory >= used.len() as u64, "every page of a window is known");
        // Launches from memory teach nothing, and do not count.
        for _ in 0..3 {
            let decision = begin(&mut state, &facts(&[]), &params);
            finish(&mut state, &decision, &faulting_launch(&order, &everything), 0);
        }
        prop_assert_eq!((state.n_refined, state.sequence.pages()), (0, from_memory));
        // Those between them are recorded too, and show nothing of what is in doubt.
        for _ in 0..=params.n_refine * refine_every {
            let decision = begin(&mut state, &facts(&[]), &params);
            let planned: BTreeSet<u64> = planned(&decision).into_iter().map(|(_, page)| page).collect();
            finish(&mut state, &decision, &faulting_launch(&order, &planned), from_memory);
            prop_assert!(state.is_valid());
        }
        let known: BTreeSet<u64> =
            state.sequence.reads.iter().flat_map(|r| r.extent.start..r.extent.end()).collect();
        let missing: Vec<_> = used.difference(&known).collect();
        prop_assert!(missing.is_empty(), "{missing:?} are used and not known");
        let certain = certain_pages(&state.sequence);
        prop_assert!(certain <= used.len() as u64, "a page that is not used counts as used");
        prop_assert!(!state.sequence.has_uncertain(), "{} of {} in doubt", state.sequence.pages() - certain, known.len());
    }
}
