//! `study` of launches: every number is a pure function of the record.

use super::measures::{bound, compared, gap_closed, has_gap, ratio_to_bound, time_ms};
use super::order_bound::{OrderBound, order_bound};
use super::overall::{self, GroupRow};
use super::overheads::{OverheadRow, overheads};
use super::record::{Discarded, FirstAccesses, Launch, Line, ProgramFacts, Run, Simultaneous};
use super::scenario::Scenario;
use super::sequence::{SequenceRow, sequence};
use super::usage::{UsageRow, usage};
use crate::error::Result;
use crate::record::read;
use crate::source::Source;
use crate::statistics::{Estimate, bootstrap, median, median_estimate, median_of};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The scenarios that are what a user gets: who types `prepage run`, and who has the service.
pub const USED: [Scenario; 2] = [Scenario::Fast, Scenario::Detected];

/// Everything that one record of launches says.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchStudy {
    /// Which record.
    pub source: Source,
    /// The circumstances.
    pub run: Run,
    /// One row a program, in the order of measuring.
    pub programs: Vec<ProgramRow>,
    /// The programs together: those with every scenario, and where there are others these and all.
    pub overall: Vec<GroupRow>,
    /// Launches at once.
    pub simultaneous: Vec<SimultaneousRow>,
    /// Discarded launches by program and reason.
    pub discarded: BTreeMap<String, usize>,
}

impl LaunchStudy {
    /// Whether it is of a record without launches, but those that it was learned from.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.simultaneous.is_empty() && self.discarded.is_empty()
    }

    /// How many samples there are of each program and scenario.
    pub fn sample_counts(&self) -> impl Iterator<Item = usize> {
        let rows = self.programs.iter().flat_map(|program| &program.scenarios);
        rows.map(|row| row.samples)
    }
}

/// One program. A number without a confidence interval is not there.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramRow {
    /// Its name.
    pub program: String,
    /// One row a scenario.
    pub scenarios: Vec<ScenarioRow>,
    /// Whether it is clearly faster warm than cold; nothing where too few launches tell.
    pub has_gap: Option<bool>,
    /// t_bound = max(t_ssd, t_cpu) (FAST, equation 5), with t_cpu = t_warm: no overlap of the two can be faster.
    pub bound_ms: Option<Estimate>,
    /// The bound of a launch that runs while its pages come in.
    pub order_bound: Option<OrderBound>,
    /// Pages of the sequence that prepage knew after each launch that it learned from (FAST Figure 5).
    pub learned_pages: Vec<u64>,
    /// Its launch sequence, and what launches miss in it.
    pub sequence: Option<SequenceRow>,
    /// The cases of FAST Table 4, where they were measured.
    pub overheads: Vec<OverheadRow>,
    /// What prepage took for it.
    pub costs: Vec<CostRow>,
    /// When its launches used processors and disk (FAST Figure 7).
    pub usage: Vec<UsageRow>,
}

/// One scenario of one program.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioRow {
    /// The scenario.
    pub scenario: Scenario,
    /// How many samples.
    pub samples: usize,
    /// In how many prepage fetched something.
    pub helped: usize,
    /// In how many prepage left the program alone.
    pub left_alone: usize,
    /// How many the cap ended: they took at least so long.
    pub capped: usize,
    /// Pages that prepage fetched: the median.
    pub fetched_pages: Option<f64>,
    /// Other programs whose sequences it fetched.
    pub other_programs: BTreeSet<String>,
    /// Every time, in the order of measuring.
    #[serde(skip)]
    pub times_ms: Vec<f64>,
    /// The median.
    pub time_ms: Option<Estimate>,
    /// Time over that of cold: median of the blocks' ratios.
    pub ratio_to_cold: Option<Estimate>,
    /// Time less that of cold: median of the blocks' differences.
    pub over_cold_ms: Option<Estimate>,
    /// (cold - scenario) / (cold - warm), of medians over the same blocks, where that gap is clear.
    pub gap_closed: Option<Estimate>,
    /// Time over the bound of the program ([`ProgramRow::bound_ms`]), of medians over the same blocks; of what a user gets.
    pub ratio_to_bound: Option<Estimate>,
    /// Until the last block was read for the launch, the paper's measure of launch time: the median of those that prepage
    /// recorded.
    pub last_block_ms: Option<Estimate>,
    /// From the exec until prepage's service began to help, in microseconds: the median. Only of launches that it saw so.
    pub noticed_us: Option<Estimate>,
}

/// What prepage took for a program's launches (FAST, Table 4), by its own reports.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// What.
    pub name: &'static str,
    /// The median.
    pub median: f64,
    /// Launches that it rests on.
    pub n: usize,
}

/// So many programs at once.
#[derive(Clone, Debug, Serialize)]
pub struct SimultaneousRow {
    /// How many.
    pub count: usize,
    /// The scenario.
    pub scenario: Scenario,
    /// Until the last has finished: the median.
    pub last_ms: Option<Estimate>,
    /// The same over cold, paired.
    pub ratio_to_cold: Option<Estimate>,
    /// Each program's own end over that in cold, paired by block: the mean of the programs' medians. Blocks are drawn whole.
    pub each_to_cold: Option<Estimate>,
}

/// Studies one record.
pub fn study(path: &Path) -> Result<LaunchStudy> {
    let study = study_lines(read(path)?);
    Ok(LaunchStudy {
        source: Source::of(path, study.run.time_unix_s),
        ..study
    })
}

/// Studies the lines of one record, whose first is its circumstances.
pub fn study_lines(lines: Vec<Line>) -> LaunchStudy {
    let (mut learning, mut launches) = (Vec::new(), Vec::new());
    let (mut simultaneous, mut discarded) = (Vec::new(), Vec::new());
    let (mut accesses, mut over_time) = (Vec::new(), Vec::new());
    let mut first = None;
    for line in lines {
        match line {
            Line::Launches(run) => add_circumstances(&mut first, *run),
            // The service has learned apart from `prepage run`, whose numbers these are.
            Line::LearningLaunch(launch) if launch.slot.scenario == Scenario::Detected => {}
            Line::LearningLaunch(launch) => learning.push(*launch),
            Line::FirstAccesses(one) => accesses.push(*one),
            Line::Launch(launch) => launches.push(*launch),
            Line::LaunchActivity(launch) => over_time.push(*launch),
            Line::Simultaneous(several) => simultaneous.push(*several),
            Line::DiscardedLaunch(one) => discarded.push(*one),
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for launch in launches.iter().chain(&over_time) {
        if !names.contains(&&*launch.slot.program) {
            names.push(&launch.slot.program);
        }
    }
    let of = |all: &[Launch], name: &str| -> Vec<Launch> {
        let own = all.iter().filter(|launch| launch.slot.program == name);
        own.cloned().collect()
    };
    let measured: Vec<Vec<Launch>> = names.iter().map(|name| of(&launches, name)).collect();
    let programs: Vec<ProgramRow> = names
        .iter()
        .zip(&measured)
        .map(|(name, own)| {
            let recorded = accesses.iter().filter(|one| one.program == *name);
            let recorded: Vec<&FirstAccesses> =
                recorded.filter(|one| one.events_lost == 0).collect();
            ProgramRow {
                usage: usage(&of(&over_time, name)),
                ..program_row(name, own, &of(&learning, name), &recorded)
            }
        })
        .collect();
    LaunchStudy {
        source: Source::default(),
        run: first.expect("a record begins with its circumstances"),
        overall: overall::overall(&programs, &measured),
        programs,
        simultaneous: simultaneous_rows(&simultaneous),
        discarded: reasons(&discarded),
    }
}

/// A run that was resumed may have been asked for more programs than before.
fn add_circumstances(first: &mut Option<Run>, run: Run) {
    let Some(first) = first else {
        *first = Some(run);
        return;
    };
    let is_new = |facts: &ProgramFacts| first.programs.iter().all(|f| f.name != facts.name);
    let new: Vec<ProgramFacts> = run.programs.into_iter().filter(is_new).collect();
    first.programs.extend(new);
}

/// The discarded launches by reason, without the numbers and words in which two of one cause differ.
fn reasons(discarded: &[Discarded]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for one in discarded {
        let reason = one.reason.split(':').next().unwrap_or_default();
        *reasons
            .entry(format!("{} {reason}", one.slot.program))
            .or_default() += 1;
    }
    reasons
}

fn program_row(
    name: &str,
    launches: &[Launch],
    learning: &[Launch],
    recorded: &[&FirstAccesses],
) -> ProgramRow {
    let mut scenarios: Vec<Scenario> = launches.iter().map(|l| l.slot.scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    let has_gap = has_gap(launches);
    let is_clear = has_gap == Some(true);
    ProgramRow {
        program: name.to_owned(),
        scenarios: scenarios
            .iter()
            .map(|&scenario| scenario_row(launches, scenario, is_clear))
            .collect(),
        has_gap,
        bound_ms: bound(launches),
        order_bound: order_bound(launches, recorded, is_clear),
        learned_pages: of_last_session(learning)
            .iter()
            .filter_map(|l| l.known_pages)
            .collect(),
        sequence: sequence(launches),
        overheads: overheads(launches),
        costs: costs(launches, learning),
        usage: Vec::new(),
    }
}

/// The launches that the last session of a record has learned from: each learns anew, from block 0 on.
fn of_last_session(learning: &[Launch]) -> &[Launch] {
    let begin = learning.iter().rposition(|launch| launch.slot.block == 0);
    &learning[begin.unwrap_or(0)..]
}

/// The gap closed is none where the gap is not clear.
fn scenario_row(launches: &[Launch], scenario: Scenario, is_clear: bool) -> ScenarioRow {
    let own: Vec<&Launch> = launches
        .iter()
        .filter(|launch| launch.slot.scenario == scenario)
        .collect();
    let times_ms: Vec<f64> = own.iter().map(|launch| time_ms(launch)).collect();
    let reported = |path| -> Vec<f64> { own.iter().filter_map(|l| l.reported(path)).collect() };
    let others = own.iter().filter_map(|l| l.other_program.clone());
    let is_compared = scenario != Scenario::Cold;
    ScenarioRow {
        scenario,
        samples: own.len(),
        helped: own.iter().filter(|launch| launch.is_helped()).count(),
        left_alone: own.iter().filter(|launch| launch.left_alone).count(),
        capped: own.iter().filter(|launch| launch.capped).count(),
        fetched_pages: median(&reported("prefetch.pages")),
        other_programs: others.collect(),
        time_ms: median_estimate(&times_ms),
        times_ms,
        ratio_to_cold: is_compared
            .then(|| median_estimate(&compared(launches, scenario, |time, cold| time / cold)))
            .flatten(),
        over_cold_ms: is_compared
            .then(|| median_estimate(&compared(launches, scenario, |time, cold| time - cold)))
            .flatten(),
        gap_closed: (is_clear
            && is_compared
            && scenario != Scenario::Warm
            && scenario.runs_program())
        .then(|| gap_closed(launches, scenario))
        .flatten(),
        ratio_to_bound: USED
            .contains(&scenario)
            .then(|| ratio_to_bound(launches, scenario))
            .flatten(),
        last_block_ms: median_estimate(&reported("last_block_us")).map(|us| us.map(|us| us / 1e3)),
        noticed_us: median_estimate(&reported("noticed_us")),
    }
}

/// Name, and path in prepage's report of a launch that it helps.
const COSTS: [(&str, &str); 9] = [
    ("recording CPU, us", "recording.cpu_us"),
    ("recorded pages", "recording.pages"),
    ("lost events", "recording.lost"),
    ("fetched pages", "prefetch.pages"),
    ("replayed paths", "prefetch.paths"),
    ("prefetch calls", "prefetch.calls"),
    ("prefetch CPU, us", "prefetch.cpu_us"),
    ("submitted, us", "prefetch.submitted_us"),
    ("begin to exec, us", "t_begin_to_exec_us"),
];

fn costs(launches: &[Launch], learning: &[Launch]) -> Vec<CostRow> {
    let mut rows = Vec::new();
    let mut add = |name: &'static str, values: Vec<f64>| {
        rows.extend(median(&values).map(|median| CostRow {
            name,
            median,
            n: values.len(),
        }));
    };
    // The first launch that is recorded has its system calls recorded too; later ones do not.
    let recorded = |is_profiled: bool| -> Vec<f64> {
        learning
            .iter()
            .filter(|l| (l.slot.block == 0) == is_profiled)
            .filter_map(|l| l.reported("recording.cpu_us"))
            .collect()
    };
    add("1st learning CPU, us", recorded(true));
    add("later learning CPU, us", recorded(false));
    for (name, path) in COSTS {
        let of = launches
            .iter()
            .filter(|l| l.slot.scenario == Scenario::Fast);
        add(name, of.filter_map(|l| l.reported(path)).collect());
    }
    let last = launches.iter().rfind(|l| l.is_helped());
    add(
        "store, bytes",
        last.map(|l| l.store_bytes as f64).into_iter().collect(),
    );
    rows
}

fn last_ms(several: &Simultaneous) -> f64 {
    several.t_end_ns.values().max().copied().unwrap_or(0) as f64 / 1e6
}

fn simultaneous_rows(all: &[Simultaneous]) -> Vec<SimultaneousRow> {
    let mut by_kind: BTreeMap<(usize, Scenario), BTreeMap<u32, &Simultaneous>> = BTreeMap::new();
    for several in all {
        let of_kind = by_kind
            .entry((several.count, several.scenario))
            .or_default();
        of_kind.insert(several.block, several);
    }
    let row =
        |(&(count, scenario), of_kind): (&(usize, Scenario), &BTreeMap<u32, &Simultaneous>)| {
            let last: Vec<f64> = of_kind.values().map(|several| last_ms(several)).collect();
            let cold = by_kind.get(&(count, Scenario::Cold));
            let pairs: Vec<(&Simultaneous, &Simultaneous)> = of_kind
                .iter()
                .filter(|_| scenario != Scenario::Cold)
                .filter_map(|(block, &several)| Some((several, *cold?.get(block)?)))
                .collect();
            let of_last = pairs
                .iter()
                .map(|(with, cold)| last_ms(with) / last_ms(cold));
            SimultaneousRow {
                count,
                scenario,
                last_ms: median_estimate(&last),
                ratio_to_cold: median_estimate(&of_last.collect::<Vec<f64>>()),
                each_to_cold: bootstrap(pairs.len(), |drawn| each_to_cold(&pairs, drawn)),
            }
        };
    by_kind.iter().map(row).collect()
}

/// The mean, over the programs that all pairs have, of the median of their ratios in the drawn pairs.
fn each_to_cold(pairs: &[(&Simultaneous, &Simultaneous)], drawn: &[usize]) -> Option<f64> {
    let end_ns = |of: &Simultaneous, name: &str| of.t_end_ns.get(name).map(|&ns| ns as f64);
    let ratios = |name: &String| -> Option<Vec<f64>> {
        let of_pair = |(with, cold): &(&Simultaneous, &Simultaneous)| {
            Some(end_ns(with, name)? / end_ns(cold, name)?)
        };
        pairs.iter().map(of_pair).collect()
    };
    let names = pairs.first()?.0.t_end_ns.keys();
    let medians: Vec<f64> = names
        .filter_map(|name| median_of(&ratios(name)?, drawn))
        .collect();
    (!medians.is_empty()).then(|| medians.iter().sum::<f64>() / medians.len() as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::record::CacheState;
    use super::super::record::tests::{detected, launch, run};
    use super::*;

    /// Ten blocks of two programs, some twice as slow as others in every scenario; what is fetched takes 60 ms.
    pub fn lines() -> Vec<Line> {
        let times = [
            (Scenario::Cold, 200.0),
            (Scenario::Warm, 100.0),
            (Scenario::Fast, 120.0),
            (Scenario::PrefetchOnly, 60.0),
        ];
        let scenarios = times.map(|(scenario, _)| scenario);
        let mut lines = vec![Line::Launches(Box::new(run(&scenarios)))];
        for program in ["git", "gcc", "node", "vim"] {
            let learned = launch(program, 0, Scenario::Record, 210.0);
            lines.push(Line::LearningLaunch(Box::new(learned)));
            for block in 0..10 {
                let slow = 1.0 + f64::from(block % 2);
                for (scenario, ms) in times {
                    let launch = launch(program, block, scenario, ms * slow);
                    lines.push(Line::Launch(Box::new(launch)));
                }
            }
        }
        lines
    }

    fn row(program: &ProgramRow, scenario: Scenario) -> &ScenarioRow {
        let mut rows = program.scenarios.iter();
        rows.find(|row| row.scenario == scenario).unwrap()
    }

    #[test]
    fn pairs_are_free_of_what_slows_a_whole_block() {
        let study = study_lines(lines());
        assert_eq!(study.programs.len(), 4);
        let fast = row(&study.programs[0], Scenario::Fast);
        let ratio = fast.ratio_to_cold.unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high), (0.6, 0.6, 0.6));
        let gap = fast.gap_closed.unwrap();
        assert!((gap.value - 0.8).abs() < 1e-9 && (gap.high - gap.low).abs() < 1e-9);
        assert_eq!((fast.samples, fast.helped), (10, 10));
        assert_eq!(row(&study.programs[0], Scenario::Cold).helped, 0);
        assert!(
            row(&study.programs[0], Scenario::Cold)
                .ratio_to_cold
                .is_none()
        );
    }

    #[test]
    fn the_bound_is_the_larger_of_device_and_processor() {
        let study = study_lines(lines());
        // Warm, 100 ms or 200 ms, is more than what the device takes.
        assert_eq!(study.programs[0].bound_ms.unwrap().value, 150.0);
        let mut slow_device = lines();
        for line in &mut slow_device {
            if let Line::Launch(launch) = line
                && launch.slot.scenario == Scenario::PrefetchOnly
            {
                // What the report says counts, not when the command returned.
                launch.report = Some(serde_json::json!({"prefetch": {"completed_us": 300_000}}));
            }
        }
        let study = study_lines(slow_device);
        assert_eq!(study.programs[0].bound_ms.unwrap().value, 300.0);
    }

    #[test]
    fn costs_come_from_the_reports() {
        let study = study_lines(lines());
        let cost = |name| {
            let mut costs = study.programs[0].costs.iter();
            costs.find(|cost| cost.name == name).map(|c| c.median)
        };
        assert_eq!(cost("prefetch CPU, us"), Some(500.0));
        assert_eq!(cost("store, bytes"), Some(4_096.0));
        assert_eq!(cost("begin to exec, us"), None);
    }

    /// The same, and each block has a launch that the service saw 400 us after its exec, and one that taught it before.
    pub fn with_detected() -> Vec<Line> {
        let mut lines = lines();
        for program in ["git", "gcc", "node", "vim"] {
            let mut learned = detected(program, 0, 210.0, 300);
            learned.known_pages = Some(700);
            lines.push(Line::LearningLaunch(Box::new(learned)));
            for block in 0..10 {
                let slow = 1.0 + f64::from(block % 2);
                let launch = detected(program, block, 130.0 * slow, 400);
                lines.push(Line::Launch(Box::new(launch)));
            }
        }
        lines
    }

    #[test]
    fn detected_launches_stand_beside_the_others_and_change_none_of_their_numbers() {
        let (before, study) = (study_lines(lines()), study_lines(with_detected()));
        let detected = row(&study.programs[0], Scenario::Detected);
        assert_eq!(detected.ratio_to_cold.unwrap().value, 0.65);
        assert_eq!(detected.over_cold_ms.unwrap().value, -105.0);
        assert!((detected.gap_closed.unwrap().value - 0.7).abs() < 1e-9);
        let noticed_us = detected.noticed_us.map(|e| (e.value, e.n));
        assert_eq!((noticed_us, detected.helped), (Some((400.0, 10)), 10));
        let json = |study: &LaunchStudy| {
            let mut study = study.clone();
            for group in &mut study.overall {
                let scenarios = &mut group.scenarios;
                scenarios.retain(|o| o.scenario != Scenario::Detected);
            }
            for program in &mut study.programs {
                let scenarios = &mut program.scenarios;
                scenarios.retain(|s| s.scenario != Scenario::Detected);
            }
            serde_json::to_value(study).unwrap()
        };
        assert_eq!(json(&study), json(&before));
    }

    #[test]
    fn simultaneous_launches_are_compared_by_the_last() {
        // git, the first to finish, is not helped.
        let several = |block, scenario, last_ms: u64| Simultaneous {
            count: 2,
            block,
            order: 0,
            scenario,
            t0_monotonic_ns: 0,
            t_end_ns: BTreeMap::from([
                ("git".into(), 1_000_000),
                ("gcc".into(), last_ms * 1_000_000),
            ]),
            capped: false,
            state: CacheState::default(),
            helped: 2,
            system: BTreeMap::new(),
        };
        let mut lines = lines();
        for block in 0..5 {
            lines.push(Line::Simultaneous(Box::new(several(
                block,
                Scenario::Cold,
                400,
            ))));
            lines.push(Line::Simultaneous(Box::new(several(
                block,
                Scenario::Fast,
                300,
            ))));
        }
        let rows = study_lines(lines).simultaneous;
        let [cold, fast] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert!(cold.ratio_to_cold.is_none());
        assert_eq!(fast.ratio_to_cold.unwrap().value, 0.75);
        assert_eq!(fast.last_ms.unwrap().value, 300.0);
        assert!(cold.each_to_cold.is_none());
        assert_eq!(fast.each_to_cold.map(|e| (e.value, e.n)), Some((0.875, 5)));
    }

    #[test]
    fn few_samples_make_no_claim_and_discarded_ones_are_counted() {
        let mut lines = lines();
        lines.retain(|line| !matches!(line, Line::Launch(launch) if launch.slot.block > 2));
        for cached in [65, 99] {
            lines.push(Line::DiscardedLaunch(Box::new(Discarded {
                slot: launch("git", 0, Scenario::Cold, 1.0).slot,
                reason: format!("not cold: {cached} pages cached"),
                state: None,
            })));
        }
        let study = study_lines(lines);
        assert!(
            row(&study.programs[0], Scenario::Fast)
                .ratio_to_cold
                .is_none()
        );
        assert!(study.overall.is_empty());
        assert_eq!(study.discarded["git not cold"], 2);
    }
}
