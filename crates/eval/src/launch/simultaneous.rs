//! Several programs launched at once (FAST, Figure 8): the time until the last of them has finished.

use super::bench::{Bench, Learned};
use super::cache::{self, SequencePages};
use super::held::{Held, Running};
use super::order;
use super::record::{CacheState, Key, Line, Parameters, Simultaneous, has_fetched};
use super::scenario::Scenario;
use crate::circumstances::{system_counters, system_since};
use crate::error::Result;
use crate::record::{Earlier, Writer, retain_incomplete};
use std::collections::BTreeMap;

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
        let at = Simultaneous {
            count,
            block,
            order,
            scenario,
            t0_monotonic_ns: 0,
            t_end_ns: BTreeMap::new(),
            capped: false,
            state: CacheState::default(),
            helped: 0,
            system: BTreeMap::new(),
        };
        let measured = measure(bench, parameters, programs, at)?;
        show(&measured);
        writer.write(&Line::Simultaneous(Box::new(measured)))?;
    }
    Ok(())
}

/// Launches all of these programs at once.
fn measure(
    bench: &Bench,
    parameters: &Parameters,
    programs: &[&Learned],
    at: Simultaneous,
) -> Result<Simultaneous> {
    let pages: Vec<&SequencePages> = programs.iter().map(|learned| &learned.pages).collect();
    let state = cache::make_cold(&pages)?;
    let hold = |learned: &&Learned| {
        let program = &learned.program;
        let command = bench
            .prepage
            .scenario(&program.name, at.scenario, &program.command);
        bench.hold(program, &command)
    };
    let held: Vec<Held> = programs.iter().map(hold).collect::<Result<_>>()?;
    cache::drop_all()?;
    let before = system_counters();
    let mut running: Vec<Running> = Vec::with_capacity(held.len());
    for command in held {
        running.push(command.release()?);
    }
    let t0_ns = running[0].t0_ns;
    let (t_end_ns, capped) = wait_for_all(parameters, programs, &mut running)?;
    let after = system_counters();
    let takes_part = at.scenario != Scenario::Cold;
    let helped = programs
        .iter()
        .filter(|learned| takes_part && was_helped(bench, learned, at.scenario))
        .count();
    bench.end_processes();
    if capped {
        running.into_iter().for_each(Running::reap);
    }
    Ok(Simultaneous {
        t0_monotonic_ns: t0_ns,
        t_end_ns,
        capped,
        state,
        helped,
        system: system_since(&after, &before),
        ..at
    })
}

/// Waits for every program's exit or the cap, and says when each was over.
fn wait_for_all(
    parameters: &Parameters,
    programs: &[&Learned],
    running: &mut [Running],
) -> Result<(BTreeMap<String, u64>, bool)> {
    let t0_ns = running[0].t0_ns;
    let cap_ns = parameters.cap_ms * 1_000_000;
    // Each in a thread of its own: the moment of an exit is when it is seen.
    let exits = std::thread::scope(|scope| {
        let waits: Vec<_> = running
            .iter_mut()
            .map(|running| scope.spawn(move || running.wait_until(t0_ns + cap_ns)))
            .collect();
        waits
            .into_iter()
            .map(|wait| wait.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let capped = exits.iter().any(Option::is_none);
    let ends = exits
        .into_iter()
        .map(|exit| exit.map_or(cap_ns, |(t_ns, _)| t_ns - t0_ns));
    let names = programs.iter().map(|learned| learned.program.name.clone());
    Ok((names.zip(ends).collect(), capped))
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
