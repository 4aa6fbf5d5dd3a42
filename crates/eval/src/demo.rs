//! `demo`: switches to Chromium in both settings, launches of Chromium and two small programs, then the studies and one
//! report, in about ten minutes.

use crate::error::{Context, Result};
use crate::launch::record::Parameters as LaunchParameters;
use crate::launch::scenario::Scenario;
use crate::launch::{self, LaunchOptions};
use crate::output::print_line;
use crate::record::{Mode, Parameters, Setting};
use crate::run::{self, Options};
use crate::{report, study};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What the demo is asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoOptions {
    /// The directory that records and report go to.
    #[arg(short, long, value_name = "DIR", default_value = "demo")]
    pub out: PathBuf,
    /// Samples of each mode; in the setting pressure two fifths of them.
    #[arg(long, default_value_t = 15)]
    pub samples: u32,
    /// The seed of every order and choice.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The directory of prepage and prepaged; by default that of this program.
    #[arg(long, value_name = "DIR")]
    pub prepage_bin: Option<PathBuf>,
}

/// Runs the demo and prints the studies.
pub fn demo(options: &DemoOptions) -> Result<()> {
    std::fs::create_dir_all(&options.out).context("make", options.out.display())?;
    let all_modes = vec![
        Mode::Resident,
        Mode::Off,
        Mode::Anon,
        Mode::File,
        Mode::Full,
    ];
    let some_modes = vec![Mode::Resident, Mode::Off, Mode::Full];
    let runs = [
        (Setting::Reclaimed, all_modes, options.samples, 10),
        (
            Setting::Pressure,
            some_modes,
            options.samples.div_ceil(5) * 2,
            5,
        ),
    ];
    let mut records = Vec::new();
    for (setting, modes, samples, warmup) in runs {
        let out = options
            .out
            .join(format!("{}.jsonl", format!("{setting:?}").to_lowercase()));
        let parameters = Parameters {
            modes,
            samples,
            warmup,
            // Both would take half as long again, and ten minutes are what a person waits.
            keeps_learning: false,
            stall_blocks: 0,
            seed: options.seed,
            ..Parameters::of(setting)
        };
        eprintln!("== {} ==", study::text::setting_words(&parameters));
        begin_anew(&out)?;
        run::run(&Options {
            prepage_bin: options.prepage_bin.clone(),
            ..Options::of(parameters, out.clone())
        })?;
        records.push(out);
    }
    let launches = measure_launches(options)?;
    let page = options.out.join("report.html");
    let all: Vec<PathBuf> = records.iter().chain([&launches]).cloned().collect();
    report::report(&all, &page, None)?;
    for record in &records {
        print_line(study::text::show(&study::study(record)?))?;
    }
    let study = launch::study::study(&launches)?;
    print_line(launch::text::show(&study))?;
    print_line(format_args!(
        "records and report: {}",
        options.out.display()
    ))
}

/// A program that shows a window and two that do their work and exit, cold, helped and warm.
fn measure_launches(options: &DemoOptions) -> Result<PathBuf> {
    const RUNS: u32 = 6;
    // Not all that could be learned: in the time that the demo has.
    const LEARNING_MAX: u32 = 14;
    eprintln!("== launches ==");
    let out = options.out.join("launches.jsonl");
    begin_anew(&out)?;
    let scenarios = vec![Scenario::Cold, Scenario::Warm, Scenario::Fast];
    launch::run(&LaunchOptions {
        parameters: LaunchParameters {
            learning_max: LEARNING_MAX,
            ..LaunchParameters::of(scenarios, RUNS, options.seed)
        },
        programs: ["chromium", "python3", "git"].map(String::from).into(),
        installs: false,
        prepage_bin: options.prepage_bin.clone(),
        out: out.clone(),
        resume: None,
    })?;
    Ok(out)
}

/// Moves the record of the demo before aside, in the place of the one before that.
fn begin_anew(record: &Path) -> Result<()> {
    match std::fs::rename(record, record.with_extension("jsonl.old")) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).context("move aside", record.display())
        }
        _ => Ok(()),
    }
}
