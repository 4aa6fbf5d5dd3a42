//! `fetch`: the fetch path alone. What a page costs, by threads and batch, against demand paging and the raw device; and
//! what an application that faults meanwhile loses to it.

pub mod child;
mod slots;

use crate::error::{Context, Error, Result};
use crate::group::{Group, Hierarchies};
use crate::output::print_line;
use crate::restore::{Restorer, Undo};
use crate::statistics::{median_estimate, quantile};
use crate::swap::{self, Swap, SwapKind};
use child::{Application, Stalls};
use prepage_core::app::Profile;
use prepage_core::identity::{AppId, AppKind};
use prepage_core::machine::{Event, Machine};
use prepage_core::outcome::SwitchRecord;
use prepage_core::params::{Mode, Params};
use prepage_core::signal::Source;
use prepage_engine::{Engine, EngineParams, Executor, Members, ThreadPolicy};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::readahead::fadvise_dontneed;
use prepage_kernel::support::Support;
use prepage_kernel::{page_cache, sched};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What the benchmark is asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct FetchOptions {
    /// What the application is swapped out to; the only swap there is.
    #[arg(long, value_enum, default_value = "zram")]
    pub swap: SwapKind,
    /// What is measured.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "anon,stalls,files"
    )]
    pub tables: Vec<Table>,
    /// Pages of the application.
    #[arg(long, default_value_t = 16_384)]
    pub pages: u64,
    /// Runs of each variant.
    #[arg(long, default_value_t = 7)]
    pub runs: usize,
    /// Size of the file, in MiB.
    #[arg(long, default_value_t = 256)]
    pub file_mib: u64,
}

/// One part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Table {
    /// Anonymous pages, us per page.
    Anon,
    /// What an application with all cores busy waits for.
    Stalls,
    /// File extents, GB/s.
    Files,
}

/// Switches in mode observe until nearly all pages are mapped directly.
const LEARNING_SWITCHES: usize = 5;

/// Runs the benchmark and prints tables.
pub fn fetch(options: &FetchOptions) -> Result<()> {
    let mut restorer = Restorer::start()?;
    let (group, directory) = lay_ground(options.swap, &mut restorer)?;
    let support = Support::probe();
    let areas: Vec<String> = support
        .swap_areas
        .iter()
        .map(|a| format!("{:?} {}", a.kind, a.path.display()))
        .collect();
    let cores = support.cpu_capacities.len();
    print_line(format_args!(
        "kernel {}, {cores} cores, swap: {}, {}",
        support.kernel_release,
        areas.join(", "),
        swap::zswap_line()
    ))?;
    for table in &options.tables {
        match table {
            Table::Anon => anon_table(options, &support, &group)?,
            Table::Stalls => stall_table(options, &support, &group, cores)?,
            Table::Files => file_table(options, &support, &group, &directory.join("file"))?,
        }
    }
    Ok(())
}

/// Swap, a memory control group for the application (that way all that it leaves in the swap cache can be reclaimed), and a
/// directory of this run.
fn lay_ground(swap: SwapKind, restorer: &mut Restorer) -> Result<(Group, PathBuf)> {
    let hierarchies = Hierarchies::find()?;
    hierarchies.ensure_reclaim()?;
    let name = format!("prepage-eval-{}", std::process::id());
    let directory = Path::new("/var/tmp").join(&name);
    restorer.register(&Undo::Directory(directory.clone()))?;
    std::fs::create_dir(&directory).context("make", directory.display())?;
    swap::ensure(&Swap::only(swap), &directory, restorer)?;
    let undo = hierarchies.undo(&name);
    undo.iter().try_for_each(|undo| restorer.register(undo))?;
    Ok((Group::create(&hierarchies, &name)?, directory))
}

struct Rig {
    machine: Machine,
    engine: Engine,
    app: AppId,
}

impl Rig {
    fn start(application: &Application, engine: &EngineParams, support: &Support) -> Result<Self> {
        let mut params = Params::default();
        params.switch.repeat_ms = 0;
        params.anon.observe_interval_max = 128;
        let mut rig = Self {
            machine: Machine::new(params, Mode::Observe),
            engine: Engine::start(engine, support).context("start", "the engine")?,
            app: AppId {
                kind: AppKind::Named,
                name: "benchmark".into(),
                owner: 0,
            },
        };
        let (app, profile) = (rig.app.clone(), Box::<Profile>::default());
        rig.step(Event::Tracked { app, profile });
        let app = rig.app.clone();
        rig.engine.follow(&app, &[Members::Tree(application.pid())]);
        rig.take_events();
        Ok(rig)
    }

    fn step(&mut self, event: Event) {
        let now = monotonic_ns();
        for action in self.machine.step(now, event) {
            self.engine.perform(now, action);
        }
    }

    fn take_events(&mut self) {
        for event in self.engine.events() {
            self.step(event);
        }
    }

    fn begin(&mut self, mode: Mode) {
        self.step(Event::SetMode(mode));
        let (app, source) = (self.app.clone(), Source::Explicit);
        self.step(Event::Begin { app, source });
        self.take_events();
    }

    fn end(&mut self) -> Result<SwitchRecord> {
        let app = self.app.clone();
        let last = |machine: &Machine| machine.records(&app).last().map(|r| r.number);
        let before = last(&self.machine);
        self.step(Event::End { app: app.clone() });
        for _ in 0..1_000 {
            self.take_events();
            if last(&self.machine) != before {
                let record = self.machine.records(&app).last();
                return record
                    .cloned()
                    .ok_or_else(|| Error::new("end", "a switch", "no record"));
            }
            sched::sleep_us(5_000);
        }
        Err(Error::new(
            "end",
            "a switch",
            "it was not observed within five seconds",
        ))
    }

    fn learn(&mut self, application: &mut Application) -> Result<()> {
        for _ in 0..LEARNING_SWITCHES {
            application.swap_out()?;
            self.begin(Mode::Observe);
            application.touch()?;
            if let Some(void) = self.end()?.void {
                let cause =
                    format!("void ({void:?}): are --pages more than a ring of faults holds?");
                return Err(Error::new("learn", "a switch", cause));
            }
        }
        Ok(())
    }
}

/// Waits until `count` reaches `wanted` or stands still for 100 ms; how long it took, in microseconds.
fn wait_for(wanted: u64, mut count: impl FnMut() -> Result<u64>) -> Result<f64> {
    let start = monotonic_ns();
    let (mut last, mut changed_at) = (0, start);
    loop {
        let now = count()?;
        let at = monotonic_ns();
        if now != last {
            (last, changed_at) = (now, at);
        }
        if now >= wanted || at - changed_at > 100_000_000 {
            return Ok((changed_at - start) as f64 / 1e3);
        }
        sched::sleep_us(500);
    }
}

fn show(name: &str, unit: &str, values: &[f64]) -> Result<()> {
    let (Some(median), Some(low), Some(high)) = (
        median_estimate(values),
        quantile(values, 0.0),
        quantile(values, 1.0),
    ) else {
        return print_line(format_args!("{name:44} no value"));
    };
    print_line(format_args!(
        "{name:44} {:8.2} {unit:8} 95 % {:.2}..{:.2}, range {low:.2}..{high:.2}, {} runs",
        median.value,
        median.low,
        median.high,
        values.len()
    ))
}

fn anon_table(options: &FetchOptions, support: &Support, group: &Group) -> Result<()> {
    print_line(format_args!(
        "\nanonymous pages, us per page ({} pages)",
        options.pages
    ))?;
    let mut application = Application::start(options.pages, group)?;
    let (mut in_order, mut scattered) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        application.swap_out()?;
        in_order.push(application.touch()? / options.pages as f64);
        application.swap_out()?;
        scattered.push(application.touch_scattered()? / options.pages as f64);
    }
    show("demand paging, in order", "us", &in_order)?;
    show("demand paging, scattered", "us", &scattered)?;
    device_rows(options, support, &mut application)?;
    let default = EngineParams::default();
    let variants: [(&str, usize, u64, u64, ThreadPolicy); 7] = [
        ("1 thread, batch 16", 1, 16, 20, ThreadPolicy::Other),
        ("all cores, batch 16", 0, 16, 20, ThreadPolicy::Other),
        ("all cores, batch 64", 0, 64, 20, ThreadPolicy::Other),
        ("all cores, batch 256", 0, 256, 20, ThreadPolicy::Other),
        (
            "1 thread, batch 16, no pause",
            1,
            16,
            0,
            ThreadPolicy::Other,
        ),
        (
            "all cores, batch 16, no pause",
            0,
            16,
            0,
            ThreadPolicy::Other,
        ),
        (
            "all cores, batch 16, SCHED_IDLE (paper)",
            0,
            16,
            0,
            ThreadPolicy::Idle,
        ),
    ];
    for (name, threads, batch, pause, policy) in variants {
        let mut params = default.clone();
        params.fetch.anon_threads = threads;
        params.fetch.anon_batch_pages = batch;
        params.fetch.pace_us = pause;
        params.fetch.anon_policy = policy;
        let mut rig = Rig::start(&application, &params, support)?;
        rig.learn(&mut application)?;
        let (mut wall, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            application.swap_out()?;
            rig.begin(Mode::Anon);
            wait_for(options.pages, || application.present())?;
            // Pages that nobody used would not be fetched the next time.
            application.touch()?;
            let record = rig.end()?;
            let pages = record.anon.fetched.max(1) as f64;
            wall.push(record.timing.fetch_us as f64 / pages);
            cpu.push(record.timing.fetch_cpu_us as f64 / pages);
        }
        show(name, "us", &wall)?;
        show("    of it CPU, over all threads", "us", &cpu)?;
    }
    Ok(())
}

/// The swap device by itself, below the kernel's swap-in. What is in zswap's pool is not on the device.
fn device_rows(
    options: &FetchOptions,
    support: &Support,
    application: &mut Application,
) -> Result<()> {
    let (Some(area), false) = (support.swap_areas.first(), options.swap == SwapKind::Zswap) else {
        return Ok(());
    };
    let cores = support.cpu_capacities.len().max(1);
    // Of a disk, more in flight than cores.
    let at_once = match options.swap {
        SwapKind::Zram => vec![1, cores],
        SwapKind::Disk | SwapKind::Zswap => vec![1, cores, 32],
    };
    application.swap_out()?;
    let slots = application.slots()?;
    for at_once in at_once {
        let times: Result<Vec<f64>> = (0..options.runs)
            .map(|_| Ok(slots::read_slots(&area.path, &slots, at_once)? / slots.len() as f64))
            .collect();
        let name = format!("the swap device alone, {at_once} at a time");
        show(&name, "us", &times?)?;
    }
    Ok(())
}

fn stall_table(
    options: &FetchOptions,
    support: &Support,
    group: &Group,
    cores: usize,
) -> Result<()> {
    print_line(format_args!(
        "\nwhat an application with all cores busy waits for, us (off and prepage in turn)"
    ))?;
    let mut application = Application::start(options.pages, group)?;
    let mut variants: Vec<(&str, EngineParams)> = [
        "prepage",
        "bursts of 16 pages",
        "nice -10",
        "real time, bursts of 16, pauses 50 us",
        "real time, bursts of 64, pauses 100 us",
        "one thread",
        "one thread, real time",
        "no pauses",
        "SCHED_IDLE (paper)",
    ]
    .map(|name| (name, EngineParams::default()))
    .into();
    variants[1].1.fetch.pace_pages = 16;
    variants[2].1.fetch.anon_nice = -10;
    variants[5].1.fetch.anon_threads = 1;
    variants[6].1.fetch.anon_threads = 1;
    for (index, burst, pause) in [(3, 16, 50), (4, 64, 100), (6, 64, 20)] {
        let fetch = &mut variants[index].1.fetch;
        fetch.anon_policy = ThreadPolicy::RealTime;
        fetch.pace_pages = burst;
        fetch.pace_us = pause;
    }
    variants[7].1.fetch.pace_us = 0;
    variants[8].1.fetch.pace_us = 0;
    variants[8].1.fetch.anon_policy = ThreadPolicy::Idle;
    for (name, params) in variants {
        let mut rig = Rig::start(&application, &params, support)?;
        rig.learn(&mut application)?;
        let (mut off, mut on): (Vec<Stalls>, Vec<Stalls>) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            for (mode, stalls) in [(Mode::Observe, &mut off), (Mode::Anon, &mut on)] {
                application.swap_out()?;
                application.begin_stalls(300, cores)?;
                rig.begin(mode);
                stalls.push(application.end_stalls()?);
                rig.end()?;
            }
        }
        for (what, stalls) in [("off", &off), (name, &on)] {
            let of = |field: fn(&Stalls) -> f64| stalls.iter().map(field).collect::<Vec<_>>();
            show(
                &format!("{what}: longest mmap"),
                "us",
                &of(|s| s.map_max_us),
            )?;
            show("    p99", "us", &of(|s| s.map_p99_us))?;
            show(
                &format!("{what}: longest fault"),
                "us",
                &of(|s| s.fault_max_us),
            )?;
            show("    p99", "us", &of(|s| s.fault_p99_us))?;
        }
    }
    Ok(())
}

fn file_table(options: &FetchOptions, support: &Support, group: &Group, file: &Path) -> Result<()> {
    let bytes = options.file_mib << 20;
    print_line(format_args!(
        "\nfile extents, GB/s ({} MiB in one file)",
        options.file_mib
    ))?;
    let contents: Vec<u8> = (0..1u32 << 18)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    {
        use std::io::Write;
        let mut out = std::fs::File::create(file).context("make", file.display())?;
        for _ in 0..options.file_mib {
            out.write_all(&contents).context("write", file.display())?;
        }
        out.sync_all().context("write", file.display())?;
    }
    let rate = |us: f64| bytes as f64 / us / 1e3;
    let mut application = Application::start(16, group)?;
    let (mut raw, mut demand) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        raw.push(rate(child::read_raw(file)?));
        drop_pages(file, bytes)?;
        demand.push(rate(application.read(file)?));
    }
    show("raw device, 1 MiB a read", "GB/s", &raw)?;
    show("demand: read(2) by the application", "GB/s", &demand)?;
    let mut rig = Rig::start(&application, &EngineParams::default(), support)?;
    for _ in 0..2 {
        drop_pages(file, bytes)?;
        rig.begin(Mode::Observe);
        application.read(file)?;
        rig.end()?;
    }
    let mut fetched = Vec::new();
    for _ in 0..options.runs {
        drop_pages(file, bytes)?;
        rig.begin(Mode::File);
        let wanted = bytes / prepage_kernel::page::page_size();
        fetched.push(rate(wait_for(wanted, || cached(file, bytes))?));
        application.read(file)?;
        rig.end()?;
    }
    show("prepage", "GB/s", &fetched)?;
    Ok(())
}

fn cached(path: &Path, bytes: u64) -> Result<u64> {
    let file = std::fs::File::open(path).context("open", path.display())?;
    page_cache::cached(file.as_fd(), 0, bytes).context("ask the cache for", path.display())
}

fn drop_pages(path: &Path, bytes: u64) -> Result<()> {
    let file = std::fs::File::open(path).context("open", path.display())?;
    for _ in 0..100 {
        fadvise_dontneed(file.as_fd(), 0, 0).context("drop", path.display())?;
        if cached(path, bytes)? == 0 {
            return Ok(());
        }
        sched::sleep_us(5_000);
    }
    Err(Error::new("drop", path.display(), "its pages stay cached"))
}
