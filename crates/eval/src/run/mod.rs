//! `run`: touches the machine and writes raw records; puts the machine back whatever happens.

pub mod bench;
pub mod blocks;
pub mod cycle;
pub mod pressure;
pub mod setup;
pub mod swap;
pub mod watch;

use crate::apps;
use crate::circumstances;
use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Error, Result};
use crate::record::{self, Line, Mode, Parameters, Slot, Switch, Writer};
use crate::restore::Restorer;
use bench::Bench;
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
    /// Where to save the first final picture, for a person to look at.
    pub screenshot: Option<PathBuf>,
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
            screenshot: None,
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
    let app = apps::find(&parameters.app)?;
    // Before the record is read: the run that is waited for may be writing it.
    let _only = only_run()?;
    let earlier = if options.resume && options.out.exists() {
        record::read(&options.out)?
    } else {
        Vec::new()
    };
    check_resumed(&earlier, parameters)?;
    let mut restorer = Restorer::start()?;
    let (mut bench, first_line) = setup::set_up(options, &app, &mut restorer)?;
    let mut writer = Writer::open(&options.out, !earlier.is_empty())?;
    writer.write(&Line::Run(Box::new(first_line)))?;
    let result = measure_all(&mut bench, options, &blocks::done(&earlier), &mut writer);
    drop(restorer);
    result
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
    options: &Options,
    done: &HashSet<(u32, Mode)>,
    writer: &mut Writer,
) -> Result<()> {
    let parameters = &options.parameters;
    for block in 0..parameters.warmup {
        let mode = if bench.service.is_some() {
            Mode::Full
        } else {
            Mode::Off
        };
        measure_slot(
            bench,
            parameters,
            Slot {
                block,
                order: 0,
                mode,
                attempt: 0,
            },
            writer,
            true,
        )?;
    }
    let slots = blocks::slots(parameters);
    let left: Vec<Slot> = slots
        .into_iter()
        .filter(|slot| !done.contains(&(slot.block, slot.mode)))
        .collect();
    let (start, count) = (now_ns(), left.len());
    for (i, slot) in left.into_iter().enumerate() {
        measure_slot(bench, parameters, slot, writer, false)?;
        if i == 0
            && let Some(path) = &options.screenshot
        {
            bench.screen.save_ppm(path)?;
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

/// Measures one slot, again if the switch has to be discarded.
fn measure_slot(
    bench: &mut Bench,
    parameters: &Parameters,
    mut slot: Slot,
    writer: &mut Writer,
    warmup: bool,
) -> Result<()> {
    let mut tries = 0;
    while tries < ATTEMPTS_MAX && slot.attempt < STRANGERS_ATTEMPTS_MAX {
        let (outcome, took_ns) = cycle::timed(|| cycle::measure(bench, parameters, &slot));
        match outcome? {
            Ok(switch) => {
                show(&switch, took_ns, warmup);
                return writer.write(&if warmup {
                    Line::Warmup(switch)
                } else {
                    Line::Sample(switch)
                });
            }
            Err(discarded) => {
                eprintln!("{:>16}  discarded: {}", slot.mode.word(), discarded.reason);
                if discarded.reason == cycle::STRANGERS_LOAD {
                    wait_for_quiet_machine();
                } else {
                    tries += 1;
                }
                writer.write(&Line::Discarded(discarded))?;
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
        "{:>16}{} first {:6.1} ms  settled {:6.1} ms  faults {majflt:6}  frames {:3}  cpu {:4.0} ms  (cycle {:.2} s: {} rounds {:.0} ms, looking {:.0} ms)",
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
