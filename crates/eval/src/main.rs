//! prepage-eval: measures how fast real applications come back and launch, without prepage and with it, and simulates
//! what the estimators would choose.
#![forbid(unsafe_code)]

/// As the standard library's, which would end the program where nobody reads its progress any more.
macro_rules! eprintln {
    ($($part:tt)*) => {
        _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($part)*)))
    };
}

mod apps;
mod attempts;
mod circumstances;
mod clock;
mod content;
mod demo;
mod direct;
mod disk_speed;
mod display;
mod duration;
mod error;
mod examples;
mod fetch;
mod ground;
mod group;
mod idle;
mod launch;
mod log;
mod mthp;
mod output;
mod packages;
mod pages;
mod processes;
mod random;
mod readings;
mod reclaim;
mod record;
mod report;
mod restore;
mod run;
mod service;
mod settle;
mod simulate;
mod site;
mod source;
mod statistics;
mod strangers;
mod studied;
mod study;
mod swap;
mod sysfs;
mod throttle;
mod tiles;
mod user;

use crate::apps::given::Given;
use clap::{Args, Parser, Subcommand};
use idle::IdleOptions;
use idle::mode::IdleMode;
use launch::LaunchOptions;
use launch::record::Learn;
use launch::scenario::{self, Scenario};
use mthp::Mthp;
use record::{Factors, Mode, Parameters, Resume, Setting};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use studied::{print_run, print_studies};
use swap::{Swap, SwapKind};
use throttle::Disk;

/// Measures prepage on real applications: switches (run), launches (launch), services (idle), the fetch path (fetch), all in
/// short (demo); draws what was measured (study, report); and replays recordings through the estimators (simulate).
#[derive(Debug, Parser)]
#[command(version = circumstances::VERSION, about, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Switch to an application again and again, record every switch and print the study. Needs root.
    #[command(after_long_help = examples::RUN)]
    Run(RunArguments),
    /// Launch programs again and again, cold, warm and helped, record every launch and print the study. Needs root.
    #[command(after_long_help = examples::LAUNCH)]
    Launch(LaunchArguments),
    /// Let services sit idle, swapped out whole, then ask them again: the first response and the first seconds. Needs root.
    #[command(after_long_help = examples::IDLE)]
    Idle(IdleArguments),
    /// Derive medians, intervals and paired ratios from records.
    #[command(after_long_help = examples::STUDY)]
    Study {
        /// The records.
        #[arg(required = true)]
        records: Vec<PathBuf>,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Draw one self-contained HTML page from records.
    #[command(after_long_help = examples::REPORT)]
    Report {
        /// The records.
        #[arg(required = true)]
        records: Vec<PathBuf>,
        /// The page.
        #[arg(short, long, value_name = "FILE", default_value = "report.html")]
        out: PathBuf,
        /// Also write the tables as Markdown.
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
    },
    /// Replay switches through the estimators: precision, recall, waste and memory by parameter. Needs no machine.
    #[command(after_long_help = examples::SIMULATE)]
    Simulate(simulate::SimulateArguments),
    /// Switches in both settings and launches, then the study and the report: about ten minutes. Needs root.
    #[command(after_long_help = examples::DEMO)]
    Demo(demo::DemoOptions),
    /// Measure the fetch path alone: us per page, GB/s, and what a faulting application loses to it. Needs root.
    #[command(after_long_help = examples::FETCH)]
    Fetch(fetch::FetchOptions),
    /// (internal) The application of `fetch`.
    #[command(hide = true)]
    FetchApplication {
        /// Pages of its memory.
        pages: u64,
    },
    /// (internal) Enter control groups, then become a program.
    #[command(hide = true)]
    LaunchIn {
        /// A cgroup.procs file.
        #[arg(long)]
        procs: Vec<PathBuf>,
        /// Say on standard input, a socket, when all is entered, and wait there to be let go.
        #[arg(long)]
        held: bool,
        /// The program and its arguments.
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// (internal) Read whole files into the page cache.
    #[command(hide = true)]
    ReadFiles {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// (internal) Hold memory and touch it when told to.
    #[command(hide = true)]
    Hog {
        /// How much.
        #[arg(long)]
        mib: u64,
        /// Of its contents.
        #[arg(long)]
        seed: u64,
    },
    /// (internal) Undo what standard input lists when it ends.
    #[command(hide = true)]
    Restore,
}

/// How a run goes on that was interrupted.
#[derive(Debug, Args)]
struct GoingOn {
    /// Continue the record: whole blocks that it holds are not measured again. It goes on only by the same build of prepage,
    /// on the same kernel and with the same swap, or =anyway.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "alike"
    )]
    resume: Option<Resume>,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// The applications, or all; one after the other, and at once in the setting together.
    #[arg(
        long,
        visible_alias = "app",
        value_delimiter = ',',
        default_value = "chromium"
    )]
    apps: Vec<String>,
    /// Install the applications that are missing (Debian's packages, by apt-get).
    #[arg(long)]
    install: bool,
    /// How the applications lose their memory.
    #[arg(long, value_enum, default_value = "reclaimed")]
    setting: Setting,
    /// The modes that alternate [default: resident,off,anon,file,full; together off,full].
    #[arg(long, value_enum, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Samples of each mode and application [default: 15].
    #[arg(long)]
    samples: Option<u32>,
    /// In the setting together: seeded orders in which the applications are gone through [default: 3].
    #[arg(long)]
    sequences: Option<u32>,
    /// In the setting together: rounds of each mode through each sequence [default: 10].
    #[arg(long)]
    rounds: Option<u32>,
    /// Further blocks of every mode, which are no samples: in these, the longest single fault and mapping call of the
    /// application are measured [default: 4].
    #[arg(long, value_name = "BLOCKS")]
    stall_blocks: Option<u32>,
    /// The seed of every order and choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Switches of each application before the samples, in mode full: prepage learns [default: 10, together 6].
    #[arg(long)]
    warmup: Option<u32>,
    /// The record: JSON lines.
    #[arg(long, value_name = "FILE", default_value = "records.jsonl")]
    out: PathBuf,
    #[command(flatten)]
    going_on: GoingOn,
    /// Keep what prepage recorded of each switch of mode observe in this file as well, for `simulate`.
    #[arg(long, value_name = "FILE")]
    switches: Option<PathBuf>,
    /// The directory of prepage and prepaged; by default that of this program.
    #[arg(long, value_name = "DIR")]
    prepage_bin: Option<PathBuf>,
    /// Run prepaged with this configuration (without its drop-ins) instead of the defaults. It goes into the record.
    #[arg(long, value_name = "FILE")]
    prepage_config: Option<PathBuf>,
    /// In the settings pressure and together: the limit that all applications share, in MiB [default: 700, together 1000].
    #[arg(long)]
    limit_mib: Option<u64>,
    /// In the setting pressure: the working set of a process that competes, in MiB [default: 650].
    #[arg(long)]
    hog_mib: Option<u64>,
    /// Discard samples during which other processes use more of the machine's CPU time than this, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    strangers_percent_max: f64,
    /// Save a picture of each application after its first sample in this directory (PPM), and of one that answers no key.
    #[arg(long, value_name = "DIR")]
    screenshots: Option<PathBuf>,
    #[command(flatten)]
    factors: FactorArguments,
    #[command(flatten)]
    given: GivenArguments,
}

/// An application of one's own.
#[derive(Debug, Args)]
#[command(next_help_heading = "An application of your own")]
struct GivenArguments {
    /// What its window's title contains once it can be used. Where this is empty, its window is that which is active once
    /// it has come to rest.
    #[arg(long, value_name = "TITLE", default_value = "", requires = "command")]
    window_title: String,
    /// The key that goes with each switch and is to be answered visibly, whatever was done before, such as ctrl+h. Where this
    /// is empty, the first of these that is: Next (page down), Next once the window's middle was clicked at, F11 (full
    /// screen), F9. Where none is, a switch ends when what the window showed is drawn again.
    #[arg(long, value_name = "KEY", default_value = "", requires = "command")]
    answer_key: String,
    /// Click into the middle of the window first: without that, keys do not reach the content of some applications.
    #[arg(long, requires = "command")]
    click: bool,
    /// Run the command as this user instead of root, whom some applications refuse; nobody will do.
    #[arg(long, value_name = "NAME", requires = "command")]
    user: Option<String>,
    /// Measure this command, which shows a window, instead of the applications above. It is used by page and arrow keys:
    /// let it show something of many pages.
    #[arg(last = true, conflicts_with = "apps")]
    command: Vec<String>,
}

impl GivenArguments {
    fn given(self) -> Option<Given> {
        (!self.command.is_empty()).then_some(Given {
            command: self.command,
            window_title: self.window_title,
            answer_key: self.answer_key,
            click_first: self.click,
            user: self.user,
        })
    }
}

/// What is varied of the machine, one at a time; all of it is put back when the run ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Factors")]
struct FactorArguments {
    /// What the applications are swapped out to; the only swap there is. By default whatever is active, else zram.
    #[arg(long, value_enum)]
    swap: Option<SwapKind>,
    /// Compressor of zram or zswap: one that the kernel has [default: lz4, where no swap is active].
    #[arg(long)]
    compressor: Option<String>,
    /// Size of the swap that is set up if none is active, in MiB.
    #[arg(long, default_value_t = Swap::BYTES >> 20)]
    swap_size_mib: u64,
    /// Hold the disk to the speed of a slower one, for the applications and for prepage together.
    #[arg(long, value_enum, default_value = "native")]
    throttle: Disk,
    /// Multi-size THP: anonymous memory in folios of up to 64 kB, which are swapped out, and in from zram, as a whole.
    #[arg(long, value_enum, default_value = "off")]
    mthp: Mthp,
}

impl FactorArguments {
    fn factors(self) -> Factors {
        Factors {
            swap: self.swap,
            compressor: self.compressor,
            throttle: self.throttle.throttle(),
            mthp: self.mthp,
        }
    }
}

impl RunArguments {
    /// What is counted in samples or in rounds, by the setting.
    fn check_counts(&self) -> error::Result<()> {
        let (given, cause) = match self.setting {
            Setting::Together => (
                self.samples.is_some(),
                "--samples is not of the setting together: say --sequences and --rounds",
            ),
            Setting::Reclaimed | Setting::Pressure => (
                self.sequences.is_some() || self.rounds.is_some(),
                "--sequences and --rounds are of the setting together: say --samples",
            ),
        };
        match given {
            true => Err(error::Error::new("run", "the experiment", cause)),
            false => Ok(()),
        }
    }

    fn options(self) -> error::Result<run::Options> {
        const MIB: u64 = 1 << 20;
        self.check_counts()?;
        let usual = Parameters::of(self.setting);
        let read = |file: &PathBuf| service::read_config(self.prepage_bin.as_deref(), file);
        let given = self.given.given();
        let apps = apps::chosen(&self.apps, given.as_ref())?;
        let swap_bytes = self.factors.swap_size_mib * MIB;
        let parameters = Parameters {
            apps: apps.iter().map(|app| app.name.to_owned()).collect(),
            given,
            modes: if self.modes.is_empty() {
                usual.modes
            } else {
                self.modes
            },
            samples: self.samples.unwrap_or(usual.samples),
            sequences: self.sequences.unwrap_or(usual.sequences),
            rounds: self.rounds.unwrap_or(usual.rounds),
            stall_blocks: self.stall_blocks.unwrap_or(usual.stall_blocks),
            seed: self.seed,
            warmup: self.warmup.unwrap_or(usual.warmup),
            // A limit or competitor where the setting has none stays none.
            limit_bytes: usual
                .limit_bytes
                .map(|bytes| self.limit_mib.map_or(bytes, |mib| mib * MIB)),
            hog_mib: usual.hog_mib.map(|mib| self.hog_mib.unwrap_or(mib)),
            strangers_percent_max: self.strangers_percent_max,
            prepage_config: self.prepage_config.as_ref().map(read).transpose()?,
            factors: self.factors.factors(),
            ..usual
        };
        Ok(run::Options {
            resume: self.going_on.resume,
            switches: self.switches,
            prepage_bin: self.prepage_bin,
            swap_bytes,
            screenshots: self.screenshots,
            installs: self.install,
            ..run::Options::of(parameters, self.out)
        })
    }
}

#[derive(Debug, Args)]
struct LaunchArguments {
    /// The programs, or all; by default the first ten of the list below, as far as they are installed.
    #[arg(long, value_delimiter = ',', conflicts_with = "command")]
    programs: Vec<String>,
    /// Install the programs that are missing, and vmtouch where it is measured (Debian's packages, by apt-get).
    #[arg(long)]
    install: bool,
    /// The scenarios that alternate.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = scenario::USUAL)]
    scenarios: Vec<Scenario>,
    /// Instead of these: what prepage's own work costs a launch, the seven cases of FAST's Table 4.
    #[arg(long, conflicts_with_all = ["scenarios", "mismatch"])]
    overheads: bool,
    /// Instead of these: what prepage fetches does not match, FAST's update experiments. Takes two programs.
    #[arg(long, conflicts_with_all = ["scenarios", "command"])]
    mismatch: bool,
    /// Samples of each scenario and program.
    #[arg(long, default_value_t = 10)]
    runs: u32,
    /// The seed of every order and all content.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is cached when prepage learns.
    #[arg(long, value_enum, default_value = "cold")]
    learn: Learn,
    /// Hold the disk to the speed of a slower one, for the programs and for prepage.
    #[arg(long, value_enum, default_value = "native")]
    throttle: Disk,
    /// Then launch so many programs at once, for instance 2,5,10,15.
    #[arg(long, value_name = "PROGRAMS", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(2..))]
    simultaneous: Vec<u8>,
    /// Then launch each program so often more, cold, warm and fast, and record when processors and disk are busy (FAST's
    /// Figure 7).
    #[arg(long, value_name = "LAUNCHES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    timelines: u32,
    /// Discard samples during which other processes use more of the machine's CPU time than this, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    strangers_percent_max: f64,
    /// The record: JSON lines.
    #[arg(long, value_name = "FILE", default_value = "launches.jsonl")]
    out: PathBuf,
    #[command(flatten)]
    going_on: GoingOn,
    /// The directory of prepage; by default that of this program.
    #[arg(long, value_name = "DIR")]
    prepage_bin: Option<PathBuf>,
    /// The command shows a window: its launch ends with the picture that stays once a window's title contains this (''
    /// for any window), and not with its exit.
    #[arg(long, value_name = "TITLE", requires = "command")]
    window_title: Option<String>,
    /// Run the command as this user instead of root, whom some applications refuse; nobody will do.
    #[arg(long, value_name = "NAME", requires = "command")]
    user: Option<String>,
    /// Launch this command, which does its work and exits unless --window-title is given, instead of the programs.
    #[arg(last = true)]
    command: Vec<String>,
}

impl LaunchArguments {
    fn options(self) -> LaunchOptions {
        let scenarios = match (self.overheads, self.mismatch) {
            (true, _) => scenario::OVERHEADS.to_vec(),
            (_, true) => scenario::MISMATCH.to_vec(),
            _ => self.scenarios,
        };
        let given = launch::record::Given {
            command: self.command,
            window_title: self.window_title,
            user: self.user,
        };
        let parameters = launch::record::Parameters {
            learn: self.learn,
            given: (!given.command.is_empty()).then_some(given),
            throttle: self.throttle.throttle(),
            simultaneous: self.simultaneous.into_iter().map(usize::from).collect(),
            timelines: self.timelines,
            strangers_percent_max: self.strangers_percent_max,
            ..launch::record::Parameters::of(scenarios, self.runs, self.seed)
        };
        LaunchOptions {
            parameters,
            programs: self.programs,
            installs: self.install,
            prepage_bin: self.prepage_bin,
            out: self.out,
            resume: self.going_on.resume,
        }
    }
}

#[derive(Debug, Args)]
struct IdleArguments {
    /// The services, of redis, node and jvm.
    #[arg(long, value_delimiter = ',', default_value = "redis,node")]
    services: Vec<String>,
    /// Install the services that are missing (Debian's packages, by apt-get).
    #[arg(long)]
    install: bool,
    /// What they are swapped out to; the only swap there is.
    #[arg(long, value_enum, default_value = "zram")]
    swap: SwapKind,
    /// The modes that alternate.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = idle::MODES)]
    modes: Vec<IdleMode>,
    /// Samples of each mode and service.
    #[arg(long, default_value_t = 8)]
    samples: u32,
    /// The seed of every order, all data and all requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Wakeups of each service before the samples: prepage learns.
    #[arg(long, default_value_t = 8)]
    warmup: u32,
    /// Data of each service, in MiB; by default 1024 in redis and 512 in the others.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    size_mib: Option<u64>,
    /// Requests a second, each for ten keys; by default 4000 of redis and 800 of the others.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate_hz: Option<u32>,
    /// How long a wakeup is measured, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    window_s: u64,
    /// Discard samples during which other processes use more of the machine's CPU time than this, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    strangers_percent_max: f64,
    /// The record: JSON lines.
    #[arg(long, value_name = "FILE", default_value = "idle.jsonl")]
    out: PathBuf,
    #[command(flatten)]
    going_on: GoingOn,
    /// The directory of prepage and prepaged; by default that of this program.
    #[arg(long, value_name = "DIR")]
    prepage_bin: Option<PathBuf>,
    /// Run prepaged with this configuration (without its drop-ins) instead of the defaults. It goes into the record.
    #[arg(long, value_name = "FILE")]
    prepage_config: Option<PathBuf>,
}

impl IdleArguments {
    fn options(self) -> error::Result<IdleOptions> {
        let read = |file: &PathBuf| service::read_config(self.prepage_bin.as_deref(), file);
        let parameters = idle::record::Parameters {
            samples: self.samples,
            seed: self.seed,
            swap: self.swap,
            warmup: self.warmup,
            window_ms: self.window_s * 1_000,
            size_mib: self.size_mib,
            rate_hz: self.rate_hz,
            strangers_percent_max: self.strangers_percent_max,
            prepage_config: self.prepage_config.as_ref().map(read).transpose()?,
            ..idle::record::Parameters::of(self.modes)
        };
        Ok(IdleOptions {
            parameters,
            services: self.services,
            installs: self.install,
            prepage_bin: self.prepage_bin,
            out: self.out,
            resume: self.going_on.resume,
        })
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(arguments) => arguments.options().and_then(|options| {
            run::run(&options)?;
            print_run(&options.out)
        }),
        Command::Launch(arguments) => {
            let options = arguments.options();
            launch::run(&options).and_then(|()| print_run(&options.out))
        }
        Command::Idle(arguments) => arguments.options().and_then(|options| {
            idle::run(&options)?;
            print_run(&options.out)
        }),
        Command::Study { records, json } => print_studies(&records, json),
        Command::Report {
            records,
            out,
            markdown,
        } => report::report(&records, &out, markdown.as_deref()),
        Command::Simulate(arguments) => simulate::simulate(&arguments),
        Command::Demo(options) => demo::demo(&options),
        Command::Fetch(options) => fetch::fetch(&options),
        Command::FetchApplication { pages } => fetch::child::play(pages),
        Command::LaunchIn {
            procs,
            held,
            command,
        } => Err(display::session::launch_in(&procs, held, &command)),
        Command::Hog { mib, seed } => {
            run::pressure::hog(mib, seed);
            Ok(())
        }
        Command::ReadFiles { files } => {
            files.iter().for_each(|file| pages::read_whole_file(file));
            Ok(())
        }
        Command::Restore => {
            restore::restore_at_end_of_input();
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_reader_gone() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prepage-eval: {error}");
            ExitCode::FAILURE
        }
    }
}
