//! `run`: touches the machine and writes raw records; puts the machine back whatever happens.

pub mod bench;
pub mod blocks;
pub mod cycle;
pub mod observe;
pub mod pressure;
pub mod setup;
pub mod swap;
pub mod together;
pub mod watch;

use crate::apps::{self, App};
use crate::circumstances;
use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Error, Result};
use crate::record::{self, Line, Mode, Parameters, Setting, Slot, Switch, Writer};
use crate::restore::Restorer;
use bench::{Bench, Running};
use blocks::Turn;
use rustix::fs::{FlockOperation, flock};
use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;

/// What `run` is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What goes into the record.
    pub parameters: Parameters,
    /// The record.
    pub out: PathBuf,
    /// Continue that record.
    pub resume: bool,
    /// Where prepage's binaries are.
    pub prepage_bin: Option<PathBuf>,
    /// Compressor of the zram device that is set up if there is no swap.
    pub compressor: String,
    /// Its size.
    pub zram_bytes: u64,
    /// Where to save a picture of each application after its first switch, for a person to look at: a directory.
    pub screenshots: Option<PathBuf>,
    /// Whether applications that are missing are installed.
    pub installs: bool,
}

impl Options {
    /// What a run has if nothing else is said.
    pub fn of(parameters: Parameters, out: PathBuf) -> Self {
        Self {
            parameters,
            out,
            resume: false,
            prepage_bin: None,
            compressor: "lz4".into(),
            zram_bytes: 4 << 30,
            screenshots: None,
            installs: false,
        }
    }
}

/// Tries of one slot before the run goes on without it.
const ATTEMPTS_MAX: u32 = 4;
/// Tries in all: a stranger's load is nobody's fault and tried again more often.
const STRANGERS_ATTEMPTS_MAX: u32 = 20;

/// Runs the experiment.
pub fn run(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(
            "run",
            "the experiment",
            "it needs root: control groups, page maps, dropping caches",
        ));
    }
    let parameters = &options.parameters;
    check(parameters)?;
    let apps = apps::named(&parameters.apps)?;
    apps::require(&apps, options.installs)?;
    // Before the record is read: the run that is waited for may be writing it.
    let _only = only_run()?;
    let earlier = if options.resume && options.out.exists() {
        record::read(&options.out)?
    } else {
        Vec::new()
    };
    check_resumed(&earlier, parameters)?;
    let done = blocks::done(&earlier);
    say_how_long(parameters, &apps);
    let mut writer = None;
    let at_once = match parameters.setting {
        Setting::Together => apps.len(),
        Setting::Reclaimed | Setting::Pressure => 1,
    };
    for some in apps.chunks(at_once) {
        let mut left = blocks::turns(parameters, &names(some));
        left.retain(|(_, slot)| !done.contains(&blocks::key(slot)));
        if left.is_empty() {
            continue;
        }
        let mut restorer = Restorer::start()?;
        let (mut bench, mut running, first_line) =
            setup::set_up(options, &apps, some, &mut restorer)?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let writer = none.insert(Writer::open(&options.out, !earlier.is_empty())?);
                writer.write(&Line::Run(Box::new(first_line)))?;
                writer
            }
        };
        measure_all(&mut bench, &mut running, options, left, writer)?;
    }
    Ok(())
}

fn names(apps: &[App]) -> Vec<&'static str> {
    apps.iter().map(|app| app.name).collect()
}

/// Says about how long a run takes that is not continued.
fn say_how_long(parameters: &Parameters, apps: &[App]) {
    // As on two cores with zram; a cycle of use, reclaim and switch, and a session with an application.
    const SWITCH_S: u64 = 3;
    const START_S: u64 = 15;
    let of_each = match parameters.setting {
        Setting::Together => parameters.sequences * parameters.rounds,
        Setting::Reclaimed | Setting::Pressure => parameters.samples,
    };
    let of_app = u64::from(parameters.warmup) + u64::from(of_each) * parameters.modes.len() as u64;
    let minutes = (apps.len() as u64 * (of_app * SWITCH_S + START_S)).div_ceil(60);
    let switches = apps.len() as u64 * of_app;
    eprintln!("{switches} switches: about {minutes} minutes, more where the machine is not quiet");
}

/// What no run can be asked for.
fn check(parameters: &Parameters) -> Result<()> {
    if parameters.setting != Setting::Together {
        return Ok(());
    }
    let cause = if parameters.apps.len() < 2 {
        "applications that push each other out are two at least: name them with --apps"
    } else if parameters.modes.iter().any(|mode| mode.is_resident()) {
        "nothing stays resident in the setting together: leave the resident modes out"
    } else {
        return Ok(());
    };
    Err(Error::new("run", "the applications together", cause))
}

/// Waits for the end of other runs on this machine: two at once would take each other's pages and time.
pub fn only_run() -> Result<File> {
    let path = "/run/prepage-eval.lock";
    let file = File::create(path).context("open", path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("another run is under way; waiting for its end ...");
        flock(&file, FlockOperation::LockExclusive).context("lock", path)?;
    }
    Ok(file)
}

/// A record can be continued with the parameters that it has; only the number of samples may be another.
fn check_resumed(earlier: &[Line], parameters: &Parameters) -> Result<()> {
    match earlier.first() {
        Some(Line::Run(run)) => {
            let samples = parameters.samples;
            let same = Parameters {
                samples,
                ..run.parameters.clone()
            } == *parameters;
            let cause = "it was made with other parameters";
            if same {
                Ok(())
            } else {
                Err(Error::new("resume", "the record", cause))
            }
        }
        _ => Ok(()),
    }
}

fn measure_all(
    bench: &mut Bench,
    apps: &mut [Running],
    options: &Options,
    left: Vec<Turn>,
    writer: &mut Writer,
) -> Result<()> {
    let parameters = &options.parameters;
    let names: Vec<&str> = apps.iter().map(|running| running.app.name).collect();
    let mode = if bench.service.is_some() {
        Mode::Full
    } else {
        Mode::Off
    };
    for (index, slot) in blocks::warmups(parameters, &names, mode) {
        measure_slot(bench, &mut apps[index], parameters, slot, writer, true)?;
    }
    let mut pictured = HashSet::new();
    let (start, count) = (now_ns(), left.len());
    for (i, (index, slot)) in left.into_iter().enumerate() {
        let running = &mut apps[index];
        measure_slot(bench, running, parameters, slot, writer, false)?;
        if let Some(directory) = &options.screenshots
            && pictured.insert(index)
        {
            std::fs::create_dir_all(directory).context("make", directory.display())?;
            let picture = directory.join(format!("{}.ppm", running.app.name));
            bench.screen.save_ppm(&picture)?;
        }
        let per_sample_s = (now_ns() - start) as f64 / 1e9 / (i + 1) as f64;
        let left_s = per_sample_s * (count - i - 1) as f64;
        eprintln!(
            "      {}/{count}, {per_sample_s:.1} s each, {left_s:.0} s left",
            i + 1
        );
    }
    Ok(())
}

/// Measures one slot, again if the switch has to be discarded. Together, no switch can be made again: its round goes on.
fn measure_slot(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    mut slot: Slot,
    writer: &mut Writer,
    warmup: bool,
) -> Result<()> {
    let together = parameters.setting == Setting::Together;
    let mut tries = 0;
    while tries < ATTEMPTS_MAX && slot.attempt < STRANGERS_ATTEMPTS_MAX {
        let start = now_ns();
        let outcome = if together {
            together::measure(bench, running, parameters, &slot)
        } else {
            cycle::measure(bench, running, parameters, &slot)
        };
        let outcome = outcome.map_err(|error| {
            // Without swap a limit kills applications, and what fails then is only the consequence.
            match circumstances::swap_devices().is_empty() {
                true => Error::new(
                    "measure",
                    &slot.app,
                    format!("swap was switched off: {error}"),
                ),
                false => error,
            }
        })?;
        match outcome {
            Ok(switch) => {
                show(&switch, now_ns() - start, warmup);
                return writer.write(&if warmup {
                    Line::Warmup(switch)
                } else {
                    Line::Sample(switch)
                });
            }
            Err(discarded) => {
                let Slot { app, mode, .. } = &slot;
                let reason = &discarded.reason;
                eprintln!("{app:>12} {:>16}  discarded: {reason}", mode.word());
                if discarded.reason == observe::STRANGERS_LOAD {
                    wait_for_quiet_machine();
                } else {
                    tries += 1;
                }
                writer.write(&Line::Discarded(discarded))?;
                if together {
                    return Ok(());
                }
            }
        }
        slot.attempt += 1;
    }
    Ok(())
}

/// Waits, within bounds, until next to nobody uses the machine.
pub fn wait_for_quiet_machine() {
    const WINDOW_MS: u64 = 500;
    const BUSY_MS_MAX: f64 = 50.0;
    const WINDOWS_MAX: u32 = 120;
    let busy_ms = || circumstances::system_counters()["busy_ms"];
    for _ in 0..WINDOWS_MAX {
        let before = busy_ms();
        sleep_ms(WINDOW_MS);
        if busy_ms() - before <= BUSY_MS_MAX {
            return;
        }
    }
}

fn show(switch: &Switch, took_ns: u64, warmup: bool) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let majflt: u64 = switch.processes.values().map(|c| c.majflt).sum();
    eprintln!(
        "{:>12} {:>16}{} first {:6.1} ms  settled {:6.1} ms  faults {majflt:6}  frames {:3}  cpu {:4.0} ms  (cycle {:.2} s: {} rounds {:.0} ms, looking {:.0} ms)",
        switch.slot.app,
        switch.slot.mode.word(),
        if warmup { " (warm-up)" } else { "" },
        ms(switch.t_first_frame_ns),
        ms(switch.t_settled_ns),
        switch.frames.len(),
        switch.app_cpu_us as f64 / 1e3,
        ms(took_ns) / 1e3,
        switch.state.rounds,
        ms(switch.state.reclaim_ns),
        ms(switch.state.verify_ns),
    );
}
