//! The replay simulator: the state machine over recorded and synthetic switches.

use prepage_core::app::{AppModel, Observation, Profile};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::identity::{AppId, AppKind, FileId, Instance};
use prepage_core::params::{AnonRule, FileCandidates, Mode, Params};
use prepage_core::replay::baseline::{Baseline, replay_baselines};
use prepage_core::replay::synthetic::{Recurrence, SplitMix64, Synthetic, recurrence};
use prepage_core::replay::{RecordedAnon, RecordedFile, RecordedSwitch, Tally, observe, replay};
use proptest::prelude::*;

fn precision(tally: &Tally) -> f64 {
    tally.precision().ratio().unwrap_or(f64::NAN)
}

fn recall(tally: &Tally) -> f64 {
    tally.recall().ratio().unwrap_or(f64::NAN)
}

fn paper() -> Params {
    let mut params = Params::default();
    params.anon.rule = AnonRule::Paper;
    params.anon.observe_interval_max = 1;
    params.file.file_candidates = FileCandidates::Offline;
    params
}

/// Nothing recurs but what the test adds.
const NOTHING: Recurrence = Recurrence {
    invariant_pages: 0,
    invariant_access: 1.0,
    contexts: 1,
    context_pages: 0,
    context_access: 1.0,
    context_change: 0.0,
    occasional_pages: 0,
    occasional_access_max: 1.0,
    noise_pages: 0,
    drift: 0.0,
    cluster_pages_max: 8,
    gap_pages_max: 40,
};

fn workload(anon: Recurrence, file: Recurrence) -> Synthetic {
    Synthetic {
        anon,
        file,
        switches: 40,
        apps: 2,
        files: 4,
        ..Synthetic::default()
    }
}

#[test]
fn the_generator_is_splitmix64() {
    let mut random = SplitMix64(0);
    assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
    assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    assert!((0..1_000).all(|_| random.below(7) < 7));
    assert_eq!(random.below(0), 0);
    assert!(!random.chance(0.0) && random.chance(1.0));
}

#[test]
fn the_synthetic_workload_recurs_as_the_papers_figures_5_and_6() {
    let (mut anon, mut file) = ([0; 10], [0; 10]);
    for seed in 0..20 {
        let workload = Synthetic {
            seed,
            switches: 10,
            ..Synthetic::default()
        };
        let bars = recurrence::<10>(workload.switches());
        for n in 0..10 {
            anon[n] += bars.0[n];
            file[n] += bars.1[n];
        }
    }
    let share = |bars: &[u64; 10], of: std::ops::Range<usize>| {
        bars[of].iter().sum::<u64>() as f64 / bars.iter().sum::<u64>() as f64
    };
    assert!((share(&anon, 8..10) - 0.44).abs() < 0.02, "{anon:?}");
    assert!((share(&file, 8..10) - 0.75).abs() < 0.03, "{file:?}");
    assert!((share(&file, 0..4) - 0.10).abs() < 0.04, "{file:?}");
}

#[test]
fn the_same_recording_gives_the_same_result() {
    let workload = Synthetic {
        switches: 15,
        restart: 0.1,
        file_update: 0.2,
        ..Synthetic::default()
    };
    let run = || replay(workload.switches(), &Params::default(), Mode::Full);
    assert_eq!(run(), run());
    assert!(workload.switches().eq(workload.switches()));
    let other = Synthetic {
        seed: 2,
        ..workload.clone()
    };
    assert!(!workload.switches().eq(other.switches()));
}

#[test]
fn what_always_recurs_is_all_fetched_and_nothing_else() {
    let all = Recurrence {
        invariant_pages: 3_000,
        ..NOTHING
    };
    for params in [Params::default(), paper()] {
        let workload = workload(all.clone(), all.clone());
        let replayed = replay(workload.switches(), &params, Mode::Full);
        let (anon, file) = replayed.since(12);
        assert_eq!((anon.wasted(), file.used), (0, file.fetched));
        assert_eq!((precision(&anon), recall(&anon)), (1.0, 1.0));
        assert_eq!((precision(&file), recall(&file)), (1.0, 1.0));
    }
}

#[test]
fn what_never_recurs_is_hardly_fetched() {
    let noise = Recurrence {
        noise_pages: 2_000,
        ..NOTHING
    };
    for params in [Params::default(), paper()] {
        let workload = workload(noise.clone(), noise.clone());
        let replayed = replay(workload.switches(), &params, Mode::Full);
        // It takes one switch to learn that nothing recurs.
        let (anon, file) = replayed.since(4);
        assert_eq!((anon.fetched, file.fetched), (0, 0));
        assert!(replayed.anon.fetched <= 4_000 * 2, "{:?}", replayed.anon);
    }
}

#[test]
fn a_drifting_context_is_followed() {
    let drifting = Recurrence {
        drift: 0.05,
        context_change: 0.5,
        ..Recurrence::ANON
    };
    let workload = workload(drifting, NOTHING);
    let replayed = |params: &Params| replay(workload.switches(), params, Mode::Anon).since(11).0;
    let (history, paper) = (replayed(&Params::default()), replayed(&paper()));
    let baselines = [Baseline::Union, Baseline::Frequency(0.5)];
    let [union, frequent] = replay_baselines(workload.switches(), baselines);
    let (union, frequent) = (union.since(11).0, frequent.since(11).0);
    assert!(precision(&history) > precision(&union) + 0.3);
    assert!(recall(&history) > recall(&frequent) + 0.15);
    assert!(recall(&paper) > 0.6 && recall(&history) > 0.6);
}

#[test]
fn the_history_rule_is_more_precise_than_the_papers_where_all_use_is_seen() {
    let workload = workload(Recurrence::ANON, NOTHING);
    let mut params = Params::default();
    params.anon.observe_interval_max = 1;
    let history = replay(workload.switches(), &params, Mode::Anon).since(11).0;
    let paper = replay(workload.switches(), &paper(), Mode::Anon)
        .since(11)
        .0;
    assert!(precision(&history) > precision(&paper) + 0.05);
    assert!(history.wasted() * 3 < paper.wasted() * 2);
    assert!(recall(&history) > recall(&paper) - 0.15);
}

#[test]
fn a_higher_confidence_is_more_precise_and_recalls_less() {
    let workload = workload(Recurrence::ANON, NOTHING);
    let mut last: Option<Tally> = None;
    for confidence in [0.3, 0.5, 0.7, 0.9] {
        let mut params = Params::default();
        params.budget.confidence = confidence;
        let anon = replay(workload.switches(), &params, Mode::Anon).since(11).0;
        if let Some(last) = last.replace(anon) {
            assert!(precision(&anon) > precision(&last), "{confidence}");
            assert!(recall(&anon) < recall(&last), "{confidence}");
        }
    }
}

#[test]
fn the_seen_precision_is_the_true_one_where_all_use_is_seen() {
    let workload = workload(Recurrence::ANON, Recurrence::FILE);
    let mut params = Params::default();
    params.anon.observe_interval_max = 1;
    for switch in replay(workload.switches(), &params, Mode::Full).switches {
        assert_eq!(switch.anon_seen, switch.anon.precision());
        assert_eq!(switch.anon.watched, switch.anon.fetched);
        assert!(switch.file_seen.of <= switch.file.fetched);
    }
}

/// Nearly: each page of a sample is among those not looked at for longest.
#[test]
fn a_sample_tells_the_precision_of_all() {
    let workload = workload(Recurrence::ANON, NOTHING);
    let mut params = Params::default();
    for interval in [4, 16] {
        params.anon.observe_interval_max = interval;
        let replayed = replay(workload.switches(), &params, Mode::Anon);
        let (mut hits, mut of) = (0, 0);
        for switch in replayed.switches.iter().skip(10) {
            (hits, of) = (hits + switch.anon_seen.hits, of + switch.anon_seen.of);
        }
        let (tally, _) = replayed.since(11);
        assert!(tally.watched * 2 < tally.fetched, "{tally:?}");
        let (seen, truth) = (hits as f64 / of as f64, precision(&tally));
        assert!(
            (seen - truth).abs() < 0.03,
            "1 in {interval}: {seen} of {truth}"
        );
    }
}

#[test]
fn memory_that_is_given_up_in_pieces_is_noticed_at_once() {
    // 64 blocks; one half is needed in ten switches and the other in the ten after them.
    let phase = |start: u64| {
        let one = |_| {
            let anon = RecordedAnon {
                instance: instance(0),
                accessed: pages(start, 32 * 64),
                swapped: None,
            };
            switch(vec![anon], Vec::new())
        };
        (0..10).map(one).collect::<Vec<_>>()
    };
    let switches = [phase(0), phase(32 * 64)].concat();
    let replayed = replay(&switches, &Params::default(), Mode::Anon);
    let wasted: Vec<u64> = replayed.switches.iter().map(|s| s.anon.wasted()).collect();
    // Planned when it was given up, looked at, and perhaps once more while the calibration still trusts it.
    assert!(wasted[10] >= 32 * 64);
    assert!(wasted[13..].iter().all(|&wasted| wasted == 0), "{wasted:?}");
}

/// Bytes that an application without processes takes of which nothing is known.
fn nothing_known() -> u64 {
    AppModel::default().bytes() as u64
}

#[test]
fn the_mode_says_what_is_fetched() {
    let workload = workload(Recurrence::ANON, Recurrence::FILE);
    let run = |mode| replay(workload.switches(), &Params::default(), mode);
    for mode in [Mode::Off, Mode::Observe, Mode::Anon, Mode::File, Mode::Full] {
        let replayed = run(mode);
        assert_eq!(replayed.anon.fetched > 0, mode.fetches_anon(), "{mode:?}");
        assert_eq!(replayed.file.fetched > 0, mode.fetches_files(), "{mode:?}");
        let is_learned = replayed.bytes_max > nothing_known() + 1_000;
        assert_eq!(is_learned, mode != Mode::Off, "{mode:?}");
        assert_eq!(replayed.anon.demanded, run(Mode::Off).anon.demanded);
    }
}

#[test]
fn baselines_are_what_they_say() {
    let workload = workload(Recurrence::ANON, Recurrence::FILE);
    let run = |baseline| {
        let [replayed] = replay_baselines(workload.switches(), [baseline]);
        replayed
    };
    let oracle = run(Baseline::Oracle);
    assert_eq!((precision(&oracle.anon), recall(&oracle.anon)), (1.0, 1.0));
    assert_eq!((precision(&oracle.file), recall(&oracle.file)), (1.0, 1.0));
    assert_eq!(run(Baseline::Nothing).anon.fetched, 0);
    let (union, last) = (run(Baseline::Union).anon, run(Baseline::LastFootprint).anon);
    assert!(recall(&union) > recall(&last) && precision(&union) < precision(&last));
    assert_eq!(run(Baseline::Frequency(0.0)).anon, union);
    let frequent = run(Baseline::Frequency(0.9)).anon;
    assert!(precision(&frequent) > precision(&last));
    let both = [Baseline::Oracle, Baseline::Frequency(0.9)];
    let at_once = replay_baselines(workload.switches(), both);
    assert_eq!(at_once, both.map(run));
    let machine = replay(workload.switches(), &Params::default(), Mode::Full);
    assert_eq!(machine.anon.demanded, oracle.anon.demanded);
    assert_eq!(machine.file.demanded, oracle.file.demanded);
}

fn pages(start: u64, len: u64) -> ExtentSet {
    ExtentSet::from(vec![Extent::new(start, len)])
}

fn instance(exec: u64) -> Instance {
    Instance {
        pid: 7,
        start_ticks: 1,
        exec,
    }
}

fn file(mtime_ns: i64) -> FileId {
    FileId {
        path: "/usr/lib/lib.so".into(),
        device: (8, 1),
        inode: 3,
        size: 1 << 20,
        mtime_ns,
    }
}

fn switch(anon: Vec<RecordedAnon>, files: Vec<RecordedFile>) -> RecordedSwitch {
    RecordedSwitch {
        app: AppId {
            kind: AppKind::Named,
            name: "one".into(),
            owner: 1000,
        },
        ended: Vec::new(),
        started: Vec::new(),
        changed: Vec::new(),
        anon,
        files,
    }
}

#[test]
fn resident_pages_are_neither_fetched_nor_missed() {
    let anon = |swapped| RecordedAnon {
        instance: instance(0),
        accessed: pages(0, 100),
        swapped,
    };
    let recorded = vec![
        switch(vec![anon(None)], Vec::new()),
        switch(vec![anon(Some(pages(80, 40)))], Vec::new()),
    ];
    let replayed = replay(recorded, &Params::default(), Mode::Full);
    let second = replayed.switches[1].anon;
    assert_eq!((second.fetched, second.used), (20, 20));
    assert_eq!((second.demanded, second.spared), (20, 20));
}

#[test]
fn another_program_in_the_process_begins_anew() {
    let anon = |exec| RecordedAnon {
        instance: instance(exec),
        accessed: pages(0, 100),
        swapped: None,
    };
    let mut ended = switch(Vec::new(), Vec::new());
    ended.ended = vec![instance(1)];
    let recorded = vec![
        switch(vec![anon(0)], Vec::new()),
        switch(vec![anon(0)], Vec::new()),
        switch(vec![anon(1)], Vec::new()),
        switch(vec![anon(1)], Vec::new()),
        ended,
    ];
    let replayed = replay(recorded, &Params::default(), Mode::Full);
    let fetched: Vec<u64> = replayed.switches.iter().map(|s| s.anon.fetched).collect();
    assert_eq!(fetched, [0, 100, 0, 100, 0]);
    assert_eq!(replayed.switches[4].bytes, nothing_known());
}

#[test]
fn an_instance_that_rests_wastes_what_was_planned_for_it() {
    let anon = RecordedAnon {
        instance: instance(0),
        accessed: pages(0, 100),
        swapped: None,
    };
    let recorded = vec![
        switch(vec![anon], Vec::new()),
        switch(Vec::new(), Vec::new()),
    ];
    let replayed = replay(recorded, &Params::default(), Mode::Full);
    assert_eq!(replayed.switches[1].anon.wasted(), 100);
}

#[test]
fn a_replaced_file_is_not_fetched_under_its_old_name() {
    let access = |version, demanded| RecordedFile {
        file: file(version),
        accessed: pages(0, 64),
        demanded,
        unknown: ExtentSet::new(),
    };
    let all = || pages(0, 64);
    let mut changed = switch(Vec::new(), vec![access(2, all())]);
    changed.changed = vec![file(1)];
    let recorded = vec![
        switch(Vec::new(), vec![access(0, all())]),
        switch(Vec::new(), vec![access(0, pages(0, 10))]),
        switch(Vec::new(), vec![access(1, all())]),
        switch(Vec::new(), vec![access(1, all())]),
        changed,
    ];
    let mut params = Params::default();
    params.file.observe_interval_max = 1;
    let replayed = replay(recorded, &params, Mode::Full);
    let fetched: Vec<u64> = replayed.switches.iter().map(|s| s.file.fetched).collect();
    // In the second switch the other pages are in the page cache; in the third the file is found to be another.
    assert_eq!(fetched, [0, 10, 0, 64, 0]);
    assert_eq!(replayed.file.wasted(), 0);
}

fn sets() -> impl Strategy<Value = ExtentSet> {
    let extent = (0..300u64, 1..40u64).prop_map(|(start, len)| Extent::new(start, len));
    prop::collection::vec(extent, 0..6).prop_map(ExtentSet::from)
}

fn recorded() -> impl Strategy<Value = RecordedSwitch> {
    let anon = (0..2u64, sets(), prop::option::of(sets())).prop_map(|(exec, accessed, swapped)| {
        RecordedAnon {
            instance: Instance {
                pid: exec as i32,
                ..instance(exec)
            },
            accessed,
            swapped,
        }
    });
    let file = (sets(), sets(), sets()).prop_map(|(accessed, demanded, unknown)| RecordedFile {
        file: file(0),
        demanded: demanded.intersection(&accessed),
        accessed,
        unknown,
    });
    let anon = prop::option::of(anon);
    (anon, prop::option::of(file))
        .prop_map(|(anon, file)| switch(anon.into_iter().collect(), file.into_iter().collect()))
}

/// That an observation holds no more than the executor can see, and contradicts neither itself nor the truth.
fn check_observation(recorded: &RecordedSwitch, seen: &Observation, app: &AppModel) {
    for (instance, seen) in &seen.anon {
        let truth = recorded.anon.iter().find(|r| r.instance == *instance);
        let accessed = truth.map(|r| r.accessed.clone()).unwrap_or_default();
        let planned = app.plan().anon.iter().find(|(i, _)| i == instance);
        let planned = planned.map(|(_, t)| t.clone()).unwrap_or_default();
        assert!(seen.faulted.intersection(&seen.fetched).is_empty());
        assert!(seen.accessed().intersection(&seen.unused).is_empty());
        assert!(seen.accessed().difference(&accessed).is_empty());
        assert!(seen.unused.intersection(&accessed).is_empty());
        assert!(seen.fetched.difference(&planned.all()).is_empty());
        let seen_of_mapped = seen.used.union(&seen.unused).intersection(&planned.map());
        assert!(seen_of_mapped.intersection(&seen.fetched).is_empty());
    }
    for (file, seen) in &seen.files {
        let truth = recorded.files.iter().find(|r| r.file == *file);
        let accessed = truth.map(|r| r.accessed.clone()).unwrap_or_default();
        assert_eq!(seen.accessed, accessed);
        assert!(seen.demanded.difference(&accessed).is_empty());
        assert!(seen.demanded.intersection(&seen.fetched).is_empty());
    }
}

proptest! {
    #[test]
    fn an_observation_is_what_the_executor_could_see(
        switches in prop::collection::vec(recorded(), 1..10),
    ) {
        let params = Params::default();
        let mut app = AppModel::new(Profile::default(), &params);
        for recorded in &switches {
            for anon in &recorded.anon {
                app.instance_started(anon.instance);
            }
            let seen = observe(recorded, app.plan(), Mode::Full, &app.known());
            check_observation(recorded, &seen, &app);
            app.learn(&seen, &params);
        }
    }

    #[test]
    fn a_replay_adds_up(switches in prop::collection::vec(recorded(), 0..12)) {
        let replayed = replay(switches.clone(), &Params::default(), Mode::Full);
        prop_assert_eq!(replayed.switches.len(), switches.len());
        for (recorded, replayed) in switches.iter().zip(&replayed.switches) {
            for tally in [replayed.anon, replayed.file] {
                prop_assert!(tally.used <= tally.fetched && tally.gap_used <= tally.gap);
                prop_assert!(tally.spared <= tally.demanded && tally.watched <= tally.fetched);
                prop_assert!(tally.spared <= tally.used + tally.gap_used);
            }
            let demanded = recorded.files.iter().map(|f| f.demanded.pages()).sum::<u64>();
            prop_assert_eq!(replayed.file.demanded, demanded);
        }
        prop_assert_eq!(replayed.since(1), (replayed.anon, replayed.file));
    }
}
