//! The run: touches the machine, writes the record, puts the machine back whatever happens.

use super::LaunchOptions;
use super::bench::{Bench, Learned};
use super::detected::{self, Detector};
use super::learning;
use super::order;
use super::preload::{self, Preload};
use super::prepage::Helps;
use super::profiles::nearest;
use super::programs::{self, Prepared, Program};
use super::record::{Ends, Launch, Line, Parameters, ProgramFacts, Run, Slot};
use super::sample::{self, Subject};
use super::scenario::Scenario;
use super::simultaneous::{self, Turn};
use crate::attempts::Attempts;
use crate::circumstances;
use crate::duration::{self, counted};
use crate::error::{Error, Result};
use crate::ground::only_run;
use crate::packages;
use crate::record::{Earlier, FORMAT, Writer, check_out, retain_incomplete};
use crate::restore::Restorer;
use crate::service;

/// Warm launches of which the first accesses are recorded.
const RECORDED_LAUNCHES: u32 = 5;

/// Runs the experiment.
pub fn run(options: &LaunchOptions) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let cause = "it needs root: control groups, dropping caches, tracing";
        return Err(Error::new("launch", "the programs", cause));
    }
    check_out(&options.out, options.resume)?;
    // Before anything is installed, which would disturb the run that is waited for, and before the record is read, which that one
    // may be writing.
    let _only = only_run()?;
    let mut parameters = options.parameters.clone();
    let given = options.parameters.given.as_ref();
    let asked = programs::asked(given, &options.programs, options.installs)?;
    provide_tools(&mut parameters, options.installs)?;
    if parameters.scenarios.is_empty() {
        let cause = "no scenario is left: name one that needs nothing else, as cold";
        return Err(Error::new("launch", "the programs", cause));
    }
    let earlier = Earlier::<Line>::read(&options.out, options.resume, &parameters)?;
    let lacks = |program: &Program| !Slots::of(program.name, &parameters, &earlier).is_empty();
    if !asked.iter().any(lacks) && simultaneous::left(&parameters, &earlier).is_empty() {
        return Ok(());
    }
    earlier.check_build()?;
    say_how_long(&parameters, &asked, &earlier);
    let mut restorer = Restorer::start()?;
    let bin = options.prepage_bin.as_deref();
    let helps = match parameters.scenarios.iter().any(|s| s.has_made_profile()) {
        // What these measure is what help costs, also where it does not pay.
        true => Helps::All,
        false if !parameters.simultaneous.is_empty() => Helps::NoneHeldOut,
        false => Helps::AsByDefault,
    };
    let mut bench = Bench::set_up(bin, parameters.throttle, helps, &mut restorer)?;
    let user = given.and_then(|given| given.user.as_deref());
    bench.ground.places.give_to(user)?;
    if parameters.scenarios.contains(&Scenario::Detected) {
        service::check_binaries(bench.prepage.binaries())?;
    }
    eprintln!("making the programs' content ...");
    let prepare = |program: &Program| program.prepare(&bench.ground.places, parameters.seed);
    let prepared: Vec<Prepared> = asked.iter().map(prepare).collect::<Result<_>>()?;
    if prepared.iter().any(|program| program.window.is_some()) {
        bench.start_session()?;
    }
    let facts = prepared.iter().map(Prepared::facts).collect();
    let left = what_is_left(prepared, &parameters, &earlier);
    let mut writer = earlier.writer(&options.out)?;
    let first = first_line(&bench, &parameters, facts);
    writer.write(&Line::Launches(Box::new(first)))?;
    measure(&mut bench, &parameters, left, &mut writer)?;
    drop(restorer);
    Ok(())
}

/// What is to be measured of one program.
#[derive(Debug)]
struct Slots {
    /// Launches that are timed.
    timed: Vec<Slot>,
    /// Launches of their own, over time.
    over_time: Vec<Slot>,
}

impl Slots {
    fn of(program: &str, parameters: &Parameters, earlier: &Earlier<Line>) -> Self {
        let timed = left_of_blocks(order::slots(parameters, program), |slot| {
            earlier.has(&slot.key())
        });
        let mut over_time = order::timelines(parameters, program);
        over_time.retain(|slot| !earlier.has(&slot.key_over_time()));
        Self { timed, over_time }
    }

    fn is_empty(&self) -> bool {
        self.timed.is_empty() && self.over_time.is_empty()
    }

    fn has(&self, scenario: Scenario) -> bool {
        self.timed.iter().any(|slot| slot.scenario == scenario)
    }
}

/// The slots of a program's blocks that a record does not hold whole. Where it holds some and none that needs a launch
/// sequence, prepage left the program alone, and such a one is not missing.
fn left_of_blocks(mut slots: Vec<Slot>, has: impl Fn(&Slot) -> bool) -> Vec<Slot> {
    let mut held = slots.iter().filter(|slot| has(slot)).peekable();
    let is_left_alone = held.peek().is_some() && !held.any(|slot| slot.scenario.needs_sequence());
    let is_asked = |slot: &Slot| !(is_left_alone && slot.scenario.needs_sequence());
    let is_missing = |slot: &Slot| is_asked(slot) && !has(slot);
    retain_incomplete(&mut slots, |slot| slot.block, is_missing);
    slots
}

/// Says about how long it takes to measure what a record lacks of these programs.
fn say_how_long(parameters: &Parameters, programs: &[Program], earlier: &Earlier<Line>) {
    let launches = |program: &Program| {
        let slots = Slots::of(program.name, parameters, earlier);
        (slots.timed.len() + slots.over_time.len(), program.ends())
    };
    let mut left: Vec<(usize, Ends)> = programs.iter().map(launches).collect();
    let at_once = simultaneous::left(parameters, earlier).len();
    if at_once == 0 {
        left.retain(|(launches, _)| *launches > 0);
    }
    let launches = left.iter().map(|(launches, _)| launches).sum::<usize>() + at_once;
    let launches = counted(launches as u64, "launch");
    let programs = counted(left.len() as u64, "program");
    duration::say(
        &format!("{launches} of {programs}, and those that prepage learns from"),
        expected_ms(&left, at_once),
    );
}

/// As on two cores with a disk of their own: so many launches of each program, which ends so, and so many of several at once.
fn expected_ms(left: &[(usize, Ends)], at_once: usize) -> u64 {
    const AT_ONCE_MS: u64 = 1_000;
    let program_ms = |&(launches, ends): &(usize, Ends)| {
        // How many launches prepage learns from, it decides: fewer of long ones, of which none is on trial.
        let (start_ms, learning, launch_ms) = match ends {
            Ends::Picture => (5_000, 4, 6_000),
            Ends::Exit => (1_000, 10, 500),
        };
        start_ms + (learning + launches as u64) * launch_ms
    };
    left.iter().map(program_ms).sum::<u64>() + at_once as u64 * AT_ONCE_MS
}

/// What is to be measured.
struct Left {
    /// The programs, each with its slots.
    programs: Vec<(Prepared, Slots)>,
    /// Launches at once.
    at_once: Vec<Turn>,
}

fn what_is_left(prepared: Vec<Prepared>, parameters: &Parameters, earlier: &Earlier<Line>) -> Left {
    let at_once = simultaneous::left(parameters, earlier);
    let slots = |program: Prepared| {
        let slots = Slots::of(&program.name, parameters, earlier);
        (program, slots)
    };
    let mut programs: Vec<_> = prepared.into_iter().map(slots).collect();
    // What several programs are needed for needs all of them learned, not only those that have slots left.
    let needs_others =
        |scenario: &Scenario| matches!(scenario, Scenario::OtherProgram | Scenario::Preload);
    if at_once.is_empty() && !parameters.scenarios.iter().any(needs_others) {
        programs.retain(|(_, slots)| !slots.is_empty());
    }
    Left { programs, at_once }
}

/// Learns all programs, then measures each by itself and several at once.
fn measure(
    bench: &mut Bench,
    parameters: &Parameters,
    left: Left,
    writer: &mut Writer,
) -> Result<()> {
    let (mut learned, mut slots) = (Vec::new(), Vec::new());
    for (program, of_it) in left.programs {
        eprintln!("== {}: learning ==", program.name);
        if let Some(one) = learning::learn(bench, parameters, program, writer)? {
            learned.push(one);
            slots.push(of_it);
        }
    }
    for scenario in [Scenario::OtherProgram, Scenario::Preload] {
        if learned.len() < 2 && parameters.scenarios.contains(&scenario) {
            let word = scenario.word();
            eprintln!("the scenario {word} is left out: it takes two programs that prepage helps");
            slots
                .iter_mut()
                .for_each(|slots| slots.timed.retain(|slot| slot.scenario != scenario));
        }
    }
    if slots.iter().any(|slots| slots.has(Scenario::Preload)) {
        eprintln!("preload learns ...");
        bench.preload = Some(Preload::learn(bench, parameters, &learned)?);
    }
    if slots.iter().any(|slots| slots.has(Scenario::Detected)) {
        bench.detector = Some(Detector::start(bench, &learned)?);
        for (one, slots) in learned.iter().zip(&slots) {
            if slots.has(Scenario::Detected) {
                eprintln!("== {}: the service learns ==", one.program.name);
                detected::learn(bench, parameters, one, writer)?;
            }
        }
    }
    let pages: Vec<u64> = learned.iter().map(|one| one.pages.pages()).collect();
    for (index, slots) in slots.into_iter().enumerate() {
        let other = nearest(&pages, index).map(|other| &learned[other]);
        measure_program(bench, parameters, &learned[index], other, slots, writer)?;
    }
    let mut helped = Vec::new();
    for one in learned {
        if !bench.prepage.leaves_alone(&one.program.name)? {
            helped.push(one);
        }
    }
    simultaneous::measure_all(bench, parameters, &helped, left.at_once, writer)
}

/// Installs `vmtouch` where it is needed and that is asked for, and leaves out the scenarios of other people's tools that are
/// not there. preload is a daemon, which would go on running: whoever wants it installs it.
fn provide_tools(parameters: &mut Parameters, installs: bool) -> Result<()> {
    let has_vmtouch = || packages::locate("vmtouch").is_some();
    if installs && parameters.scenarios.contains(&Scenario::Vmtouch) && !has_vmtouch() {
        packages::install(&["vmtouch"])?;
    }
    let tools = [
        (Scenario::Vmtouch, has_vmtouch()),
        (Scenario::Preload, preload::is_installed()),
    ];
    for (scenario, is_installed) in tools {
        if !is_installed && parameters.scenarios.contains(&scenario) {
            let word = scenario.word();
            eprintln!("the scenario {word} is left out, not installed: apt-get install {word}");
            parameters.scenarios.retain(|&s| s != scenario);
        }
    }
    Ok(())
}

fn first_line(bench: &Bench, parameters: &Parameters, programs: Vec<ProgramFacts>) -> Run {
    let mut versions = circumstances::versions(Some(bench.prepage.version()));
    versions.extend(packages::versions(&["preload", "vmtouch"]));
    Run {
        format: FORMAT,
        time_unix_s: circumstances::time_unix_s(),
        parameters: parameters.clone(),
        programs,
        machine: bench.ground.machine(),
        versions,
    }
}

/// Measures these slots of a program.
fn measure_program(
    bench: &mut Bench,
    parameters: &Parameters,
    learned: &Learned,
    other: Option<&Learned>,
    slots: Slots,
    writer: &mut Writer,
) -> Result<()> {
    eprintln!("== {} ==", learned.program.name);
    if !slots.timed.is_empty() && parameters.scenarios.contains(&Scenario::PrefetchOnly) {
        for _ in 0..RECORDED_LAUNCHES {
            let accesses = sample::record_accesses(bench, parameters, learned)?;
            if let Some(accesses) = accesses {
                writer.write(&Line::FirstAccesses(Box::new(accesses)))?;
            }
        }
    }
    let timed = slots.timed.into_iter().map(|slot| (slot, false));
    let over_time = slots.over_time.into_iter().map(|slot| (slot, true));
    for (slot, is_over_time) in timed.chain(over_time) {
        // Of a program that is left alone nothing is known to prefetch. What was decided may change with any launch.
        let is_left_alone = bench.prepage.leaves_alone(&learned.program.name)?;
        if is_left_alone && slot.scenario.needs_sequence() {
            let word = slot.scenario.word();
            eprintln!("{word:>16}  left out: prepage leaves the program alone");
            continue;
        }
        let subject = Subject {
            learned,
            other: other.filter(|_| slot.scenario == Scenario::OtherProgram),
            is_left_alone,
            is_over_time,
        };
        measure_slot(bench, parameters, &subject, slot, writer)?;
    }
    Ok(())
}

/// Measures one slot, again if the launch has to be discarded.
fn measure_slot(
    bench: &mut Bench,
    parameters: &Parameters,
    subject: &Subject<'_>,
    mut slot: Slot,
    writer: &mut Writer,
) -> Result<()> {
    let mut attempts = Attempts::default();
    while let Some(attempt) = attempts.next() {
        slot.attempt = attempt;
        match sample::measure(bench, parameters, subject, &slot)? {
            Ok(launch) => {
                show(&launch, false);
                let line = match subject.is_over_time {
                    true => Line::LaunchActivity(launch),
                    false => Line::Launch(launch),
                };
                return writer.write(&line);
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

/// Says how a launch went.
pub fn show(launch: &Launch, is_learning: bool) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_which_a_launch_is_missing_is_measured_again_but_for_what_is_left_alone() {
        let slot = |block, scenario| Slot {
            program: "git".into(),
            block,
            order: 0,
            scenario,
            attempt: 0,
        };
        let blocks = |number| {
            let scenarios = [Scenario::Cold, Scenario::Fast, Scenario::Sorted];
            (0..number).flat_map(move |block| scenarios.map(|scenario| slot(block, scenario)))
        };
        let all: Vec<Slot> = blocks(3).collect();
        let left = |held: &[Slot]| left_of_blocks(all.clone(), |slot| held.contains(slot));
        assert_eq!(left(&[]), all);
        assert_eq!(left(&all), []);
        assert_eq!(left(&all[..4]), all[3..], "the second is begun");
        assert_eq!(left(&all[..6]), all[6..]);
        let unhelped = |slot: &&Slot| slot.scenario != Scenario::Sorted;
        let alone: Vec<Slot> = all.iter().filter(unhelped).cloned().collect();
        assert_eq!(left(&alone), [], "nothing more can be measured");
        assert_eq!(left(&alone[..5]), all[6..]);
    }

    #[test]
    fn a_run_takes_what_its_settings_make_it_take() {
        let window = expected_ms(&[(10, Ends::Picture)], 0);
        let exits = expected_ms(&[(10, Ends::Exit)], 0);
        assert_eq!((window, exits), (5_000 + 14 * 6_000, 1_000 + 20 * 500));
        let both = [(10, Ends::Picture), (10, Ends::Exit)];
        assert_eq!(expected_ms(&both, 6), window + exits + 6 * 1_000);
        assert_eq!(expected_ms(&[], 0), 0);
    }
}
