//! Several programs launched at once (FAST, Figure 8): when each of them has finished.

use super::bench::{Bench, Learned};
use super::cache::{self, SequencePages};
use super::counted::{Counted, why_failed};
use super::held::{Held, Running};
use super::order;
use super::record::{Discarded, Key, Line, Parameters, Simultaneous, Slot, has_fetched};
use super::scenario::Scenario;
use crate::attempts::Attempts;
use crate::error::Result;
use crate::log::with_last_words_of_application;
use crate::record::{Earlier, Writer, retain_incomplete};
use crate::strangers::why_disturbed;
use std::collections::BTreeMap;
use std::process::ExitStatus;

/// Repetitions of each number of programs and scenario.
const RUNS_MAX: u32 = 5;

/// One measurement: how many at once, block, place in the block, and scenario.
pub type Turn = (usize, u32, u32, Scenario);

/// What is asked for, of the blocks that a record does not hold whole.
pub fn left(parameters: &Parameters, earlier: &Earlier<Line>) -> Vec<Turn> {
    let mut left = Vec::new();
    for &count in &parameters.simultaneous {
        for block in 0..parameters.runs.min(RUNS_MAX) {
            let scenarios = order::simultaneous(parameters.seed, count, block);
            let turns = (0..).zip(scenarios);
            left.extend(turns.map(|(order, scenario)| (count, block, order, scenario)));
        }
    }
    let is_missing =
        |&(count, block, _, scenario): &Turn| !earlier.has(&Key::AtOnce(count, block, scenario));
    retain_incomplete(&mut left, |&(count, block, ..)| (count, block), is_missing);
    left
}

/// Launches the first `count` programs that exit, for each of the counts that was asked for.
pub fn measure_all(
    bench: &Bench,
    parameters: &Parameters,
    learned: &[Learned],
    left: Vec<Turn>,
    writer: &mut Writer,
) -> Result<()> {
    let exiting: Vec<&Learned> = learned
        .iter()
        .filter(|learned| learned.program.window.is_none())
        .collect();
    for (count, block, order, scenario) in left {
        let Some(programs) = exiting.get(..count) else {
            let there = exiting.len();
            eprintln!(
                "{count} at once is left out: {there} programs that exit were learned (--programs all)"
            );
            continue;
        };
        let at = Slot {
            program: format!("{count} at once"),
            block,
            order,
            scenario,
            attempt: 0,
        };
        measure_turn(bench, parameters, programs, at, writer)?;
    }
    Ok(())
}

/// Measures one turn, again if it has to be discarded.
fn measure_turn(
    bench: &Bench,
    parameters: &Parameters,
    programs: &[&Learned],
    mut at: Slot,
    writer: &mut Writer,
) -> Result<()> {
    let mut attempts = Attempts::default();
    while let Some(attempt) = attempts.next() {
        at.attempt = attempt;
        match measure(bench, parameters, programs, &at)? {
            Ok(measured) => {
                show(&measured);
                return writer.write(&Line::Simultaneous(measured));
            }
            Err(discarded) => {
                let (scenario, reason) = (at.scenario.word(), &discarded.reason);
                eprintln!("{:>14} {scenario:>8}: discarded: {reason}", at.program);
                attempts.discarded(reason);
                writer.write(&Line::DiscardedLaunch(discarded))?;
            }
        }
    }
    Ok(())
}

/// What became of a turn.
type Outcome = std::result::Result<Box<Simultaneous>, Box<Discarded>>;

/// Launches all of these programs at once.
fn measure(
    bench: &Bench,
    parameters: &Parameters,
    programs: &[&Learned],
    at: &Slot,
) -> Result<Outcome> {
    let pages: Vec<&SequencePages> = programs.iter().map(|learned| &learned.pages).collect();
    let state = cache::make_cold(&pages)?;
    let discard = |reason: String| {
        Ok(Err(Box::new(Discarded {
            slot: at.clone(),
            reason,
            state: Some(state),
        })))
    };
    if let Some(reason) = cache::why_not_cold(&state) {
        return discard(reason);
    }
    let seen = launch_all(bench, parameters, programs, at.scenario)?;
    let disturbed = why_disturbed(&seen.system, parameters.strangers_percent_max);
    let disturbed = disturbed.map(String::from);
    if let Some(reason) = disturbed.or_else(|| why_one_failed(bench, programs, &seen.exits)) {
        return discard(reason);
    }
    let cap_ns = parameters.cap_ms * 1_000_000;
    let ends = seen.exits.iter();
    let ends = ends.map(|exit| exit.map_or(cap_ns, |(t_ns, _)| t_ns - seen.t0_ns));
    let names = programs.iter().map(|learned| learned.program.name.clone());
    Ok(Ok(Box::new(Simultaneous {
        count: programs.len(),
        block: at.block,
        order: at.order,
        scenario: at.scenario,
        t0_monotonic_ns: seen.t0_ns,
        t_end_ns: names.zip(ends).collect(),
        capped: seen.exits.iter().any(Option::is_none),
        state,
        helped: seen.helped,
        system: seen.system,
    })))
}

/// What was seen of launches at once.
struct Seen {
    t0_ns: u64,
    exits: Vec<Exit>,
    system: BTreeMap<String, f64>,
    helped: usize,
}

/// Launches all from a cold cache, and sees their end.
fn launch_all(
    bench: &Bench,
    parameters: &Parameters,
    programs: &[&Learned],
    scenario: Scenario,
) -> Result<Seen> {
    let held = hold_all(bench, programs, scenario)?;
    cache::drop_all()?;
    let before = Counted::read(bench);
    let running = held.into_iter().map(Held::release);
    let mut running: Vec<Running> = running.collect::<Result<_>>()?;
    let t0_ns = running[0].t0_ns;
    let exits = wait_for_all(t0_ns + parameters.cap_ms * 1_000_000, &mut running)?;
    let (_, system) = Counted::read(bench).since(&before);
    let takes_part = scenario != Scenario::Cold;
    let helped = programs
        .iter()
        .filter(|learned| takes_part && was_helped(bench, learned, scenario))
        .count();
    bench.end_processes();
    if exits.iter().any(Option::is_none) {
        running.into_iter().for_each(Running::reap);
    }
    Ok(Seen {
        t0_ns,
        exits,
        system,
        helped,
    })
}

/// Starts all up to their exec.
fn hold_all(bench: &Bench, programs: &[&Learned], scenario: Scenario) -> Result<Vec<Held>> {
    let hold = |learned: &&Learned| {
        let program = &learned.program;
        let prepage = &bench.prepage;
        let command = prepage.scenario(&program.name, scenario, &program.command);
        bench.hold(program, &command)
    };
    programs.iter().map(hold).collect()
}

/// When a program exited, and how; nothing of one that the cap ended.
type Exit = Option<(u64, ExitStatus)>;

/// Waits for every program's exit until a moment of the monotonic clock.
fn wait_for_all(until_ns: u64, running: &mut [Running]) -> Result<Vec<Exit>> {
    // Each in a thread of its own: the moment of an exit is when it is seen.
    std::thread::scope(|scope| {
        let waits: Vec<_> = running
            .iter_mut()
            .map(|running| scope.spawn(move || running.wait_until(until_ns)))
            .collect();
        waits
            .into_iter()
            .map(|wait| wait.join().expect("no panic"))
            .collect()
    })
}

/// Why the first of the programs that failed did, with its last words: what it took is no launch.
fn why_one_failed(bench: &Bench, programs: &[&Learned], exits: &[Exit]) -> Option<String> {
    let mut each = programs.iter().zip(exits);
    each.find_map(|(learned, exit)| {
        let program = &learned.program;
        let why = why_failed(&program.name, exit.map(|(_, status)| status))?;
        Some(with_last_words_of_application(why, &bench.log(program)))
    })
}

fn was_helped(bench: &Bench, learned: &Learned, scenario: Scenario) -> bool {
    let report = bench
        .prepage
        .wait_for_report(&learned.program.name, scenario);
    has_fetched(report.as_ref())
}

fn show(measured: &Simultaneous) {
    let last_ns = measured.t_end_ns.values().max().copied().unwrap_or(0);
    eprintln!(
        "{:>3} at once {:>8}: last after {:7.1} ms, {} helped",
        measured.count,
        measured.scenario.word(),
        last_ns as f64 / 1e6,
        measured.helped
    );
}
