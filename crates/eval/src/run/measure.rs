//! Measures rounds, again where a switch of one has to be discarded.

use super::bench::{Bench, Running};
use super::blocks::{self, Purpose, Round, Step};
use super::observe::Outcome;
use super::{Options, cycle, footprint, together};
use crate::attempts::Attempts;
use crate::circumstances;
use crate::clock::now_ns;
use crate::error::{Error, Result};
use crate::record::{Line, Parameters, Setting, Slot, Switch, Writer};
use std::collections::HashSet;
use std::path::PathBuf;

/// Measures what is left, with all that is gone through before and between.
pub fn measure_all(
    bench: &mut Bench,
    apps: &mut [Running],
    options: &Options,
    left: &[Round],
    writer: &mut Writer,
) -> Result<()> {
    let parameters = &options.parameters;
    let names: Vec<&str> = apps.iter().map(|running| running.app.name).collect();
    let mut pictures = options.screenshots.clone().map(|directory| Pictures {
        directory,
        taken: HashSet::new(),
    });
    let start = now_ns();
    let steps = blocks::steps(parameters, &names, left);
    for (i, Step { purpose, round }) in steps.iter().enumerate() {
        let next = steps.get(i + 1).map_or(round, |step| &step.round);
        match purpose {
            Purpose::Learn => learn_from(bench, apps, parameters, (round, next), writer)?,
            Purpose::Settle => settle(bench, apps, parameters, (round, next))?,
            Purpose::Measure => {
                let wanted = Wanted {
                    attempts: attempts(parameters.setting, false),
                    line: line(round),
                    pictures: pictures.as_mut(),
                };
                measure_round(bench, apps, parameters, (round, next), wanted, writer)?;
            }
        }
        let (done, count) = (i + 1, steps.len());
        let each_s = seconds_since(start) / done as f64;
        let left_s = each_s * (count - done) as f64;
        eprintln!("      {done}/{count}, {each_s:.1} s each, {left_s:.0} s left");
    }
    for running in apps {
        let application = footprint::application(bench.service.as_ref(), running)?;
        writer.write(&Line::Application(Box::new(application)))?;
    }
    Ok(())
}

/// What the switches of a round are in the record.
fn line(round: &Round) -> fn(Box<Switch>) -> Line {
    match round.iter().all(|(_, slot)| blocks::is_for_stalls(slot)) {
        true => Line::Stalls,
        false => Line::Sample,
    }
}

/// Goes through a round for the state in which it leaves memory.
fn settle(
    bench: &mut Bench,
    apps: &mut [Running],
    parameters: &Parameters,
    (round, next): (&Round, &Round),
) -> Result<()> {
    for (index, slot, next) in blocks::with_next(round, next) {
        // Whether it could be used or not: it is not recorded.
        let _outcome = measure(bench, &mut apps[index], parameters, (slot, next))?;
    }
    Ok(())
}

/// Goes through a round for what prepage learns from it.
fn learn_from(
    bench: &mut Bench,
    apps: &mut [Running],
    parameters: &Parameters,
    with_next: (&Round, &Round),
    writer: &mut Writer,
) -> Result<()> {
    let wanted = Wanted {
        attempts: attempts(parameters.setting, true),
        line: Line::Warmup,
        pictures: None,
    };
    measure_round(bench, apps, parameters, with_next, wanted, writer)
}

fn seconds_since(start_ns: u64) -> f64 {
    (now_ns() - start_ns) as f64 / 1e9
}

/// How often a round is gone through. Together, a lost switch costs little beside the others of its round, and prepage
/// has learned from a warm-up whether it can be used or not.
fn attempts(setting: Setting, is_warmup: bool) -> Attempts {
    const TOGETHER_MAX: u32 = 3;
    match (setting, is_warmup) {
        (Setting::Together, true) => Attempts::at_most(1),
        (Setting::Together, false) => Attempts::at_most(TOGETHER_MAX),
        (Setting::Reclaimed | Setting::Pressure, _) => Attempts::default(),
    }
}

/// What is wanted of a round.
struct Wanted<'a> {
    /// How often it may be gone through.
    attempts: Attempts,
    /// What their switches are in the record.
    line: fn(Box<Switch>) -> Line,
    /// Where pictures are wanted.
    pictures: Option<&'a mut Pictures>,
}

/// Pictures of the applications, each after its first sample.
struct Pictures {
    directory: PathBuf,
    taken: HashSet<String>,
}

impl Pictures {
    fn take(&mut self, bench: &mut Bench, app: &str) -> Result<()> {
        if !self.taken.insert(app.to_owned()) {
            return Ok(());
        }
        bench.screen.save(&self.directory, app).map(drop)
    }
}

/// Goes through a round until every slot has a switch that can be used, or the attempts are over.
fn measure_round(
    bench: &mut Bench,
    apps: &mut [Running],
    parameters: &Parameters,
    (round, next): (&Round, &Round),
    mut wanted: Wanted<'_>,
    writer: &mut Writer,
) -> Result<()> {
    let mut attempts = wanted.attempts;
    let mut missing = vec![true; round.len()];
    while let Some(attempt) = attempts.next() {
        let mut reason = None;
        if attempt > 0
            && let Some(settling) = blocks::settling_round(parameters, None, round)
        {
            settle(bench, apps, parameters, (&settling, round))?;
        }
        for ((index, slot, next), is_missing) in blocks::with_next(round, next).zip(&mut missing) {
            let slot = Slot {
                attempt,
                ..slot.clone()
            };
            let start = now_ns();
            let outcome = measure(bench, &mut apps[index], parameters, (&slot, next))?;
            match outcome {
                _ if !*is_missing => {}
                Ok(switch) => {
                    show(&switch, seconds_since(start));
                    writer.write(&(wanted.line)(switch))?;
                    *is_missing = false;
                    if let Some(pictures) = &mut wanted.pictures {
                        pictures.take(bench, &slot.app)?;
                    }
                }
                Err(discarded) => {
                    let (app, mode) = (&slot.app, slot.mode.word());
                    eprintln!("{app:>12} {mode:>16}  discarded: {}", discarded.reason);
                    reason = Some(discarded.reason.clone());
                    writer.write(&Line::Discarded(discarded))?;
                }
            }
        }
        match reason {
            Some(reason) => attempts.discarded(&reason),
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Measures one switch, in the way of its setting; together, its application is left for the one that it has `next`.
fn measure(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    (slot, next): (&Slot, &Slot),
) -> Result<Outcome> {
    let outcome = match parameters.setting {
        Setting::Together => together::measure(bench, running, parameters, slot, next),
        Setting::Reclaimed | Setting::Pressure => cycle::measure(bench, running, parameters, slot),
    };
    match (why_over(bench, running), outcome) {
        (None, outcome) => outcome,
        // What fails otherwise is only the consequence.
        (Some(cause), Err(error)) => Err(Error::new(
            "measure",
            &slot.app,
            format!("{cause}: {error}"),
        )),
        (Some(cause), Ok(_)) => Err(Error::new("measure", &slot.app, cause)),
    }
}

/// Why nothing more can be measured, if so. A browser whose content process was killed still has its window, and would
/// be measured as a slow one.
fn why_over(bench: &Bench, running: &Running) -> Option<&'static str> {
    let was_killed = running.group.oom_kills() > 0;
    if circumstances::swap_devices().is_empty() {
        Some("swap was switched off")
    } else if was_killed {
        Some("the kernel killed one of its processes at the limit: raise --limit-mib")
    } else if running.has_ended() {
        Some("it has ended")
    } else if bench
        .service_group()
        .is_some_and(|group| group.oom_kills() > 0)
    {
        Some("the kernel killed prepage's service at the limit: raise --limit-mib")
    } else {
        None
    }
}

fn show(switch: &Switch, took_s: f64) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let majflt: u64 = switch.processes.values().map(|c| c.majflt).sum();
    let why_capped = match (switch.capped, switch.is_answered()) {
        (false, _) => "",
        (true, false) => "  no answer",
        (true, true) => "  never at rest",
    };
    let longest = switch.longest.as_ref().map(|longest| {
        let call = longest.call.as_deref().unwrap_or("call");
        let (fault_ms, call_ms) = (ms(longest.fault_ns), ms(longest.call_ns.unwrap_or(0)));
        format!("  longest fault {fault_ms:.1} ms, {call} {call_ms:.1} ms")
    });
    let longest = longest.unwrap_or_default();
    eprintln!(
        "{:>12} {:>16} first {:6.1} ms  settled {:6.1} ms  faults {majflt:6}  frames {:3}  cpu {:4.0} ms{longest}  (cycle {took_s:.2} s: {} rounds {:.0} ms, looking {:.0} ms){why_capped}",
        switch.slot.app,
        switch.slot.mode.word(),
        ms(switch.t_first_frame_ns),
        ms(switch.t_settled_ns),
        switch.frames.len(),
        switch.app_cpu_us as f64 / 1e3,
        switch.state.rounds,
        ms(switch.state.reclaim_ns),
        ms(switch.state.verify_ns),
    );
}
