//! The run: touches the machine, writes the record, puts the machine back whatever happens.

use super::LaunchOptions;
use super::bench::{Bench, Learned};
use super::cache::SequencePages;
use super::order;
use super::prepage::Progress;
use super::programs::{self, Prepared};
use super::record::{Discarded, Launch, Learn, Line, Parameters, ProgramFacts, Run, Slot};
use super::sample;
use super::scenario::Scenario;
use super::simultaneous;
use crate::attempts::Attempts;
use crate::circumstances;
use crate::error::{Error, Result};
use crate::ground::only_run;
use crate::packages;
use crate::record::{Earlier, FORMAT, Writer};
use crate::restore::Restorer;

/// Launches from which prepage may learn a program: N_rawseq of the paper is 2, up to 16 cold ones after them refine the
/// sequence, and those of a short program are its trial, up to 8 held out and as many helped.
const LEARNING_LAUNCHES_MAX: u32 = 24;
/// Warm launches of which the first accesses are recorded.
const RECORDED_LAUNCHES: u32 = 5;
/// Launches after which prepage must have decided for the first time.
const PROFILING_LAUNCHES_MAX: u32 = 6;

/// Runs the experiment.
pub fn run(options: &LaunchOptions) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let cause = "it needs root: control groups, dropping caches, tracing";
        return Err(Error::new("launch", "the programs", cause));
    }
    let mut parameters = options.parameters.clone();
    let chosen = if options.command.is_empty() {
        programs::choose(&options.programs, options.installs)?
    } else {
        Vec::new()
    };
    leave_out_missing_vmtouch(&mut parameters);
    // Before the record is read: the run that is waited for may be writing it.
    let _only = only_run()?;
    let earlier = Earlier::<Line>::read(&options.out, options.resume, &parameters)?;
    let mut restorer = Restorer::start()?;
    let bin = options.prepage_bin.as_deref();
    let mut bench = Bench::set_up(bin, parameters.throttle, &mut restorer)?;
    eprintln!("making the programs' content ...");
    let mut prepared: Vec<Prepared> = chosen
        .iter()
        .map(|program| program.prepare(&bench.ground.places, parameters.seed))
        .collect::<Result<_>>()?;
    if !options.command.is_empty() {
        prepared.push(Prepared::of_command(
            &options.command,
            &bench.ground.places,
        )?);
    }
    if prepared.iter().any(|program| program.window.is_some()) {
        bench.start_session()?;
    }
    let facts = prepared.iter().map(Prepared::facts).collect();
    let at_once = simultaneous::left(&parameters, &earlier);
    // Those that are launched at once have to be learned for that, too.
    let is_left = |slots: &[Slot]| !slots.is_empty() || !at_once.is_empty();
    let left: Vec<(Prepared, Vec<Slot>)> = prepared
        .into_iter()
        .map(|program| {
            let mut slots = order::slots(&parameters, &program.name);
            slots.retain(|slot| !earlier.has(&slot.key()));
            (program, slots)
        })
        .filter(|(_, slots)| is_left(slots))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut writer = earlier.writer(&options.out)?;
    let first = first_line(&bench, &parameters, facts);
    writer.write(&Line::Launches(Box::new(first)))?;
    let mut learned = Vec::new();
    for (program, slots) in left {
        learned.extend(measure_program(
            &mut bench,
            &parameters,
            program,
            slots,
            &mut writer,
        )?);
    }
    simultaneous::measure_all(&bench, &parameters, &learned, at_once, &mut writer)?;
    drop(restorer);
    Ok(())
}

fn leave_out_missing_vmtouch(parameters: &mut Parameters) {
    let wanted = parameters.scenarios.contains(&Scenario::Vmtouch);
    if wanted && packages::locate("vmtouch").is_none() {
        eprintln!("the scenario vmtouch is left out, not installed: apt-get install vmtouch");
        parameters.scenarios.retain(|s| *s != Scenario::Vmtouch);
    }
}

fn first_line(bench: &Bench, parameters: &Parameters, programs: Vec<ProgramFacts>) -> Run {
    Run {
        format: FORMAT,
        time_unix_s: circumstances::time_unix_s(),
        parameters: parameters.clone(),
        programs,
        machine: bench.ground.machine(),
        versions: circumstances::versions(Some(bench.prepage.version())),
    }
}

/// Learns a program and measures these of its slots. `None` if prepage does not learn it, or leaves it alone: no help to
/// compare then.
fn measure_program(
    bench: &mut Bench,
    parameters: &Parameters,
    program: Prepared,
    slots: Vec<Slot>,
    writer: &mut Writer,
) -> Result<Option<Learned>> {
    eprintln!("== {} ==", program.name);
    let Some(learned) = learn(bench, parameters, program, writer)? else {
        return Ok(None);
    };
    if !slots.is_empty() && parameters.scenarios.contains(&Scenario::PrefetchOnly) {
        for _ in 0..RECORDED_LAUNCHES {
            let accesses = sample::record_accesses(bench, parameters, &learned)?;
            if let Some(accesses) = accesses {
                writer.write(&Line::FirstAccesses(Box::new(accesses)))?;
            }
        }
    }
    for slot in slots {
        // Of a program that is left alone nothing is known to prefetch. What was decided may change with any launch.
        let is_left_alone = bench.prepage.leaves_alone(&learned.program.name)?;
        if is_left_alone && slot.scenario.needs_sequence() {
            eprintln!(
                "{:>16}  left out: prepage leaves the program alone",
                slot.scenario.word()
            );
            continue;
        }
        measure_slot(bench, parameters, &learned, slot, is_left_alone, writer)?;
    }
    let is_left_alone = bench.prepage.leaves_alone(&learned.program.name)?;
    Ok((!is_left_alone).then_some(learned))
}

/// Launches a program until prepage knows what to do with it: helped, held out on trial and refined as by default. The
/// first launch, which writes what later ones find (profiles, caches), is nobody's.
fn learn(
    bench: &mut Bench,
    parameters: &Parameters,
    program: Prepared,
    writer: &mut Writer,
) -> Result<Option<Learned>> {
    sample::warm_up(bench, parameters, &program)?;
    let is_cold = parameters.learn == Learn::Cold;
    let mut pages = SequencePages::default();
    let mut progress = Progress::Learning;
    for block in 0..LEARNING_LAUNCHES_MAX {
        let slot = learning_slot(&program, block);
        match sample::learn(bench, parameters, &program, &slot, is_cold)? {
            Ok(launch) => {
                show(&launch, true);
                writer.write(&Line::LearningLaunch(launch))?;
            }
            Err(discarded) => {
                eprintln!("  left out: {}", discarded.reason);
                writer.write(&Line::DiscardedLaunch(discarded))?;
                return Ok(None);
            }
        }
        progress = bench.prepage.progress(&program.name)?;
        let is_enough = match &progress {
            Progress::Learning => block + 1 >= PROFILING_LAUNCHES_MAX,
            Progress::Helps { sequence, is_final } => {
                pages = SequencePages::of(sequence);
                // Warm launches refine nothing and are no trial.
                *is_final || !is_cold
            }
            // The sequence is not kept: the last one says what the program reads.
            Progress::LeavesAlone => true,
        };
        if is_enough {
            break;
        }
    }
    if !matches!(progress, Progress::Learning) {
        return Ok(Some(Learned { program, pages }));
    }
    let phase = bench.prepage.phase(&program.name);
    let reason = format!("prepage does not learn it: {phase}");
    eprintln!("  left out: {reason}");
    writer.write(&Line::DiscardedLaunch(Box::new(Discarded {
        slot: learning_slot(&program, PROFILING_LAUNCHES_MAX),
        reason,
        state: None,
    })))?;
    Ok(None)
}

fn learning_slot(program: &Prepared, block: u32) -> Slot {
    Slot {
        program: program.name.clone(),
        block,
        order: 0,
        scenario: Scenario::Record,
        attempt: 0,
    }
}

/// Measures one slot, again if the launch has to be discarded.
fn measure_slot(
    bench: &mut Bench,
    parameters: &Parameters,
    learned: &Learned,
    mut slot: Slot,
    is_left_alone: bool,
    writer: &mut Writer,
) -> Result<()> {
    let mut attempts = Attempts::default();
    while let Some(attempt) = attempts.next() {
        slot.attempt = attempt;
        match sample::measure(bench, parameters, learned, &slot, is_left_alone)? {
            Ok(launch) => {
                show(&launch, false);
                return writer.write(&Line::Launch(launch));
            }
            Err(discarded) => {
                let scenario = slot.scenario.word();
                eprintln!("{scenario:>16}  discarded: {}", discarded.reason);
                attempts.discarded(&discarded.reason);
                writer.write(&Line::DiscardedLaunch(discarded))?;
            }
        }
    }
    Ok(())
}

fn show(launch: &Launch, is_learning: bool) {
    let reported = |path| launch.reported(path).unwrap_or(0.0);
    let read_mib = launch.system.get("pgpgin").unwrap_or(&0.0) / 1024.0;
    eprintln!(
        "{:>16}  {:7.1} ms  read {read_mib:6.1} MiB  cpu {:6.1} ms  fetched {:6} pages by {:6.1} ms",
        if is_learning {
            "learning"
        } else {
            launch.slot.scenario.word()
        },
        launch.t_end_ns as f64 / 1e6,
        launch.cpu_us as f64 / 1e3,
        reported("prefetch.pages"),
        reported("prefetch.completed_us") / 1e3,
    );
}
