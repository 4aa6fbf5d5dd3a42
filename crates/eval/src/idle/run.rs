//! The run: touches the machine, writes the record, puts the machine back whatever happens.

use super::IdleOptions;
use super::bench::{Bench, Running};
use super::histogram::Histogram;
use super::mode::IdleMode;
use super::record::{Line, Parameters, Run, Slot, Wakeup};
use super::sample;
use super::services::{self, ServiceKind};
use crate::attempts::Attempts;
use crate::circumstances;
use crate::duration::{self, counted};
use crate::error::{Error, Result};
use crate::ground::only_run;
use crate::random::Random;
use crate::record::{Earlier, FORMAT, Writer, check_out, retain_incomplete};
use crate::restore::Restorer;
use crate::service::Service;

/// Runs the experiment.
pub fn run(options: &IdleOptions) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let cause = "it needs root: control groups, swap, page maps";
        return Err(Error::new("wake", "services", cause));
    }
    check_out(&options.out, options.resume)?;
    let parameters = &options.parameters;
    // Before anything is installed, which would disturb the run that is waited for, and before the record is read, which that one
    // may be writing.
    let _only = only_run()?;
    let chosen = services::choose(&options.services, options.installs)?;
    let earlier = Earlier::<Line>::read(&options.out, options.resume, parameters)?;
    let left: Vec<(ServiceKind, Vec<Slot>)> = chosen
        .into_iter()
        .map(|kind| {
            let mut slots = slots(parameters, kind.name);
            let is_missing = |slot: &Slot| !earlier.has(&slot.key());
            retain_incomplete(&mut slots, |slot| slot.block, is_missing);
            (kind, slots)
        })
        .filter(|(_, slots)| !slots.is_empty())
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    earlier.check_build()?;
    let counts: Vec<usize> = left.iter().map(|(_, slots)| slots.len()).collect();
    say_how_long(parameters, &counts);
    let mut restorer = Restorer::start()?;
    let bin = options.prepage_bin.as_deref();
    let mut bench = Bench::set_up(parameters, bin, &mut restorer)?;
    let mut writer = earlier.writer(&options.out)?;
    writer.write(&Line::Idle(Box::new(first_line(&bench, parameters))))?;
    for (kind, slots) in left {
        measure_service(&mut bench, parameters, kind, slots, &mut writer)?;
    }
    drop(restorer);
    Ok(())
}

/// Says about how long so many wakeups of each service take, as two cores with zram took them.
fn say_how_long(parameters: &Parameters, left: &[usize]) {
    let wakeups = counted(left.iter().sum::<usize>() as u64, "wakeup");
    let services = counted(left.len() as u64, "service");
    duration::say(
        &format!("{wakeups} of {services}"),
        expected_ms(parameters, left),
    );
}

fn expected_ms(parameters: &Parameters, left: &[usize]) -> u64 {
    // To start and fill a service; and to reclaim one, look at it and settle, also before prepage learns.
    const START_MS: u64 = 20_000;
    const RECLAIM_MS: u64 = 5_000;
    const LEARNING_RECLAIM_MS: u64 = 1_000;
    let learns = parameters.modes.iter().any(|mode| mode.is_helped());
    let learning = if learns { parameters.warmup.into() } else { 0 };
    let learning_ms = parameters.use_ms + sample::LEARNING_WINDOW_MS + LEARNING_RECLAIM_MS;
    let wakeup_ms = parameters.use_ms + parameters.window_ms + RECLAIM_MS;
    let service_ms =
        |wakeups: &usize| START_MS + learning * learning_ms + *wakeups as u64 * wakeup_ms;
    left.iter().map(service_ms).sum()
}

fn first_line(bench: &Bench, parameters: &Parameters) -> Run {
    Run {
        format: FORMAT,
        time_unix_s: circumstances::time_unix_s(),
        parameters: parameters.clone(),
        machine: bench.ground.machine(),
        versions: circumstances::versions(bench.prepage.as_ref().map(Service::version)),
    }
}

/// Starts one service, has prepage learn it, measures these of its slots and ends it.
fn measure_service(
    bench: &mut Bench,
    parameters: &Parameters,
    kind: ServiceKind,
    slots: Vec<Slot>,
    writer: &mut Writer,
) -> Result<()> {
    eprintln!("== {}: starting and filling it ==", kind.name);
    let (mut running, facts) = bench.start(kind, parameters)?;
    eprintln!(
        "   {} keys, {} MiB in memory, {} requests a second",
        facts.keys,
        facts.anon_bytes >> 20,
        facts.rate_hz
    );
    writer.write(&Line::Service(Box::new(facts)))?;
    let warmup = if bench.prepage.is_some() {
        parameters.warmup
    } else {
        0
    };
    for block in 0..warmup {
        let slot = Slot {
            service: kind.name.to_owned(),
            block,
            order: 0,
            mode: IdleMode::FullBegin,
            attempt: 0,
        };
        measure_slot(bench, &mut running, parameters, slot, true, writer)?;
    }
    for slot in slots {
        measure_slot(bench, &mut running, parameters, slot, false, writer)?;
    }
    running.end();
    Ok(())
}

/// Every slot of one service, in order: blocks that hold every mode once, each in a seeded random order, the second of two in
/// that of the first reversed.
fn slots(parameters: &Parameters, service: &str) -> Vec<Slot> {
    let purpose = format!("idle {service}");
    let block = |block: u32| {
        Random::in_block(parameters.seed, &purpose, block, &parameters.modes)
            .into_iter()
            .enumerate()
            .map(move |(order, mode)| Slot {
                service: service.to_owned(),
                block,
                order: order as u32,
                mode,
                attempt: 0,
            })
    };
    (0..parameters.samples).flat_map(block).collect()
}

/// Measures one slot, again if the wakeup has to be discarded.
fn measure_slot(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    mut slot: Slot,
    is_learning: bool,
    writer: &mut Writer,
) -> Result<()> {
    let mut attempts = Attempts::default();
    while let Some(attempt) = attempts.next() {
        slot.attempt = attempt;
        match sample::measure(bench, running, parameters, &slot, is_learning)? {
            Ok(wakeup) => {
                show(&wakeup, is_learning);
                return writer.write(&match is_learning {
                    true => Line::LearningWakeup(wakeup),
                    false => Line::Wakeup(wakeup),
                });
            }
            Err(discarded) => {
                let word = slot.mode.word();
                eprintln!("{word:>12}  discarded: {}", discarded.reason);
                attempts.discarded(&discarded.reason);
                writer.write(&Line::DiscardedWakeup(discarded))?;
            }
        }
    }
    Ok(())
}

fn show(wakeup: &Wakeup, is_learning: bool) {
    let all = Histogram::merged(&wakeup.latencies_by_second);
    eprintln!(
        "{:>12}{}  first {:7.2} ms  p50 {:6.2}  p99 {:7.2}  max {:7.2}  faults {:6} ({} in the first second)  prepage {:4.0} ms CPU  {} switches",
        wakeup.slot.mode.word(),
        if is_learning { " (learning)" } else { "" },
        f64::from(wakeup.first_us) / 1e3,
        all.quantile_ms(0.5),
        all.quantile_ms(0.99),
        all.quantile_ms(1.0),
        wakeup.counters.majflt,
        wakeup.majflt_by_second.first().unwrap_or(&0),
        wakeup.prepage_cpu_us as f64 / 1e3,
        wakeup.prepage.len(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_run_takes_what_its_settings_make_it_take() {
        let parameters = Parameters::of(vec![IdleMode::Off]);
        let unhelped = expected_ms(&parameters, &[10]);
        assert_eq!(unhelped, 20_000 + 10 * 18_000);
        assert_eq!(expected_ms(&parameters, &[10, 10]), 2 * unhelped);
        let helped = Parameters::of(vec![IdleMode::FullBegin]);
        assert_eq!(expected_ms(&helped, &[10]), unhelped + 8 * 8_000);
        let longer = Parameters {
            window_ms: 20_000,
            ..parameters
        };
        assert_eq!(expected_ms(&longer, &[10]), unhelped + 10 * 10_000);
    }

    #[test]
    fn every_block_holds_every_mode_once_and_orders_differ() {
        let modes = super::super::MODES;
        let parameters = Parameters {
            samples: 20,
            ..Parameters::of(modes.to_vec())
        };
        let all = slots(&parameters, "redis");
        assert_eq!(all, slots(&parameters, "redis"));
        let mut orders = HashSet::new();
        for block in all.chunks(modes.len()) {
            let mut order: Vec<IdleMode> = block.iter().map(|slot| slot.mode).collect();
            orders.insert(order.clone());
            order.sort_unstable();
            assert_eq!(order, modes);
        }
        assert_eq!(all.len(), 20 * modes.len());
        assert!(orders.len() > 5);
    }
}
