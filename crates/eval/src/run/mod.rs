//! `run`: touches the machine and writes raw records; puts the machine back whatever happens.

pub mod bench;
pub mod blocks;
pub mod cycle;
pub mod pressure;
pub mod swap;
pub mod watch;

use crate::apps::{self, App, versions::versions};
use crate::circumstances;
use crate::clock::{now_ns, sleep_ms};
use crate::display::input::Keyboard;
use crate::display::other_window::OtherWindow;
use crate::display::screen::Screen;
use crate::display::session::{Places, Session};
use crate::display::windows::Display;
use crate::error::{Context, Error, Result};
use crate::group::{Group, Hierarchies};
use crate::processes::Roles;
use crate::reclaim;
use crate::record::{FORMAT, Line, Mode, Parameters, Run, Setting, Slot, Writer};
use crate::restore::{Restorer, Undo};
use crate::service::{self, Service};
use bench::Bench;
use pressure::Others;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

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
/// The kernel's default, which a person's machine has.
const READ_AHEAD_KB: &str = "128";

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
        crate::record::read(&options.out)?
    } else {
        Vec::new()
    };
    check_resumed(&earlier, parameters)?;
    let mut restorer = Restorer::start()?;
    let (mut bench, first_line) = set_up(options, &app, &mut restorer)?;
    let mut writer = Writer::open(&options.out, !earlier.is_empty())?;
    writer.write(&Line::Run(Box::new(first_line)))?;
    let result = measure_all(&mut bench, options, &blocks::done(&earlier), &mut writer);
    drop(restorer);
    result
}

/// Waits for the end of other runs on this machine: two at once would take each other's pages and time.
fn only_run() -> Result<File> {
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

fn set_up(options: &Options, app: &App, restorer: &mut Restorer) -> Result<(Bench, Run)> {
    let name = format!("prepage-eval-{}", std::process::id());
    let places = Places {
        disk: PathBuf::from("/var/tmp").join(&name),
        memory: PathBuf::from("/dev/shm").join(&name),
    };
    for directory in [&places.disk, &places.memory] {
        restorer.register(&Undo::Directory(directory.clone()))?;
    }
    places.make()?;
    swap::ensure(restorer, &options.compressor, options.zram_bytes)?;
    if let Some(queue) = circumstances::disk_queue(&places.disk) {
        restorer.change_value(queue.join("read_ahead_kb"), READ_AHEAD_KB)?;
    }
    let hierarchies = Hierarchies::find()?;
    restorer.register(&Undo::Groups(hierarchies.to_remove(&name)))?;
    let group = |part: &str| Group::create(&hierarchies, &format!("{name}/{part}"));
    let (session_group, shared, app_group) =
        (group("session")?, group("shared")?, group("shared/app")?);
    if let Some(limit) = options.parameters.limit_bytes {
        shared.set_limit_bytes(limit)?;
    }
    eprintln!("starting the session and {} ...", app.name);
    let session = Session::start(&places, &session_group)?;
    let display = Display::connect(&session.display)?;
    let keyboard = Keyboard::of(&display.connection, display.root)?;
    let screen = Screen::open(&places.framebuffer())?;
    let other = OtherWindow::open(&display)?;
    let seed = options.parameters.seed;
    let others = match options.parameters.setting {
        Setting::Reclaimed => None,
        Setting::Pressure => {
            let (group, hog_mib) = (
                group("shared/others")?,
                options.parameters.hog_mib.unwrap_or(0),
            );
            Some(Others::start(
                app, seed, hog_mib, &places, &session, &display, group,
            )?)
        }
    };
    let mut versions = versions(app);
    // Whatever is cached already is charged to somebody else and would not go when the application is reclaimed.
    reclaim::drop_page_cache()?;
    let (process, window) = bench::launch(
        app, "measured", seed, &places, &session, &display, &app_group,
    )?;
    let service = if options
        .parameters
        .modes
        .iter()
        .any(|mode| mode.needs_prepage())
    {
        let directory = options
            .prepage_bin
            .clone()
            .map_or_else(service::default_directory, Ok)?;
        let service = Service::start(&directory, &places, &session, group("shared/service")?)?;
        service.track(&app_group)?;
        versions.insert("prepage".into(), service.version());
        Some(service)
    } else {
        None
    };
    let first_line = Run {
        format: FORMAT,
        time_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs()),
        parameters: options.parameters.clone(),
        machine: circumstances::machine(&hierarchies, &places.disk),
        versions,
    };
    let mut held = session.processes;
    held.push(process);
    let bench = Bench {
        app: *app,
        app_group,
        session_group,
        display,
        keyboard,
        screen,
        other,
        window,
        roles: Roles::default(),
        session_roles: Roles::default(),
        service,
        cores: first_line.machine.cores,
        others,
        _held: held,
    };
    bench.focus_content()?;
    Ok((bench, first_line))
}

fn measure_all(
    bench: &mut Bench,
    options: &Options,
    done: &std::collections::HashSet<(u32, Mode)>,
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
fn wait_for_quiet_machine() {
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

fn show(switch: &crate::record::Switch, took_ns: u64, warmup: bool) {
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
