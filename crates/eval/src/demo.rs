//! `demo`: both settings with Chromium, then the study and the report, in five to seven minutes.

use crate::error::{Context, Result};
use crate::record::{Mode, Parameters, Setting};
use crate::run::{self, Options};
use crate::{report, study};
use std::path::PathBuf;

/// What the demo is asked for.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Where records and report go.
    pub out: PathBuf,
    /// Samples of each mode in the first setting; the second takes two thirds.
    pub samples: u32,
    /// The seed.
    pub seed: u64,
    /// Where prepage's binaries are.
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
            options.samples.div_ceil(3) * 2,
            5,
        ),
    ];
    let mut records = Vec::new();
    for (setting, modes, samples, warmup) in runs {
        let out = options
            .out
            .join(format!("{}.jsonl", format!("{setting:?}").to_lowercase()));
        eprintln!("== {} ==", study::text::setting_words(setting));
        let parameters = Parameters {
            modes,
            samples,
            warmup,
            seed: options.seed,
            ..Parameters::of(setting)
        };
        run::run(&Options {
            prepage_bin: options.prepage_bin.clone(),
            ..Options::of(parameters, out.clone())
        })?;
        records.push(out);
    }
    let page = options.out.join("report.html");
    report::report(&records, &page, None)?;
    for record in &records {
        println!("{}", study::text::show(&study::study(record)?));
    }
    println!("records and report: {}", options.out.display());
    Ok(())
}
