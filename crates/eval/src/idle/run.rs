//! The run: touches the machine, writes the record, puts the machine back whatever happens.

use super::IdleOptions;
use super::bench::{Bench, Running};
use super::histogram::Histogram;
use super::mode::IdleMode;
use super::record::{Line, Parameters, Run, Slot, Wakeup};
use super::sample;
use super::services::{self, ServiceKind};
use crate::circumstances;
use crate::error::{Error, Result};
use crate::random::Random;
use crate::record::{FORMAT, Writer};
use crate::restore::Restorer;
use crate::run::{only_run, wait_for_quiet_machine};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tries of one slot before the run goes on without it.
const ATTEMPTS_MAX: u32 = 4;
/// Tries in all: a stranger's load is nobody's fault and tried again more often.
const STRANGERS_ATTEMPTS_MAX: u32 = 12;

/// Runs the experiment.
pub fn run(options: &IdleOptions) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let cause = "it needs root: control groups, swap, page maps";
        return Err(Error::new("wake", "services", cause));
    }
    let parameters = &options.parameters;
    let chosen = services::choose(&options.services, options.installs)?;
    let _only = only_run()?;
    let mut restorer = Restorer::start()?;
    let bin = options.prepage_bin.as_deref();
    let mut bench = Bench::set_up(parameters, bin, &mut restorer)?;
    let mut writer = Writer::open(&options.out, false)?;
    writer.write(&Line::Idle(Box::new(first_line(&bench, parameters))))?;
    for kind in chosen {
        measure_service(&mut bench, parameters, kind, &mut writer)?;
    }
    drop(restorer);
    Ok(())
}

fn first_line(bench: &Bench, parameters: &Parameters) -> Run {
    let prepage = bench.prepage.as_ref();
    let versions = [
        ("prepage-eval", env!("CARGO_PKG_VERSION").to_owned()),
        ("prepage", prepage.map_or(String::new(), |p| p.version())),
    ];
    Run {
        format: FORMAT,
        time_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs()),
        parameters: parameters.clone(),
        machine: circumstances::machine(&bench.hierarchies, &bench.places.disk),
        versions: versions
            .map(|(name, version)| (name.to_owned(), version))
            .into(),
    }
}

/// Starts one service, has prepage learn it, measures all of its slots and ends it.
fn measure_service(
    bench: &mut Bench,
    parameters: &Parameters,
    kind: ServiceKind,
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
    for slot in slots(parameters, kind.name) {
        measure_slot(bench, &mut running, parameters, slot, false, writer)?;
    }
    running.end();
    Ok(())
}

/// Every slot of one service, in order: blocks that hold every mode once, each in a seeded random order.
fn slots(parameters: &Parameters, service: &str) -> Vec<Slot> {
    let block = |block: u32| {
        let mut modes = parameters.modes.clone();
        Random::stream(parameters.seed, &format!("idle {service} {block}")).shuffle(&mut modes);
        modes
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
    let mut tries = 0;
    while tries < ATTEMPTS_MAX && slot.attempt < STRANGERS_ATTEMPTS_MAX {
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
                if discarded.reason == sample::STRANGERS_LOAD {
                    wait_for_quiet_machine();
                } else {
                    tries += 1;
                }
                writer.write(&Line::DiscardedWakeup(discarded))?;
            }
        }
        slot.attempt += 1;
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
