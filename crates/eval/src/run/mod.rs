//! `run`: touches the machine and writes raw records; puts the machine back whatever happens.

pub mod bench;
pub mod blocks;
pub mod cycle;
pub mod footprint;
pub mod measure;
pub mod observe;
pub mod pressure;
pub mod setup;
pub mod timeline;
pub mod together;
pub mod watch;

use crate::apps::{self, App};
use crate::error::{Error, Result};
use crate::ground::only_run;
use crate::record::{Earlier, Line, Mode, Parameters, Setting};
use crate::restore::Restorer;
use crate::swap::Swap;
use blocks::{Round, Turn};
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
    /// Size of the swap that the run sets up.
    pub swap_bytes: u64,
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
            swap_bytes: Swap::BYTES,
            screenshots: None,
            installs: false,
        }
    }
}

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
    let earlier = Earlier::<Line>::read(&options.out, options.resume, parameters)?;
    let mut writer = None;
    let at_once = match parameters.setting {
        Setting::Together => apps.len(),
        Setting::Reclaimed | Setting::Pressure => 1,
    };
    let is_missing = |(_, slot): &Turn| !earlier.has(&blocks::key(slot));
    let left = apps.chunks(at_once).map(|some| {
        let mut left = blocks::rounds(parameters, &names(some));
        left.retain(|round| round.iter().any(is_missing));
        (some, left)
    });
    let left: Vec<(&[App], Vec<Round>)> = left.filter(|(_, left)| !left.is_empty()).collect();
    say_how_long(parameters, &left);
    for (some, left) in left {
        let mut restorer = Restorer::start()?;
        let (mut bench, mut running, first_line) =
            setup::set_up(options, &apps, some, writer.is_none(), &mut restorer)?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let writer = none.insert(earlier.writer(&options.out)?);
                writer.write(&Line::Run(Box::new(first_line)))?;
                writer
            }
        };
        measure::measure_all(&mut bench, &mut running, options, &left, &earlier, writer)?;
    }
    Ok(())
}

fn names(apps: &[App]) -> Vec<&'static str> {
    apps.iter().map(|app| app.name).collect()
}

/// Says about how long a run takes of which so much is left.
fn say_how_long(parameters: &Parameters, left: &[(&[App], Vec<Round>)]) {
    // As on two cores with zram: to start an application, and a cycle of use, reclaim and switch.
    const START_S: u64 = 15;
    let switch_s = match parameters.setting {
        Setting::Together => 2,
        Setting::Reclaimed | Setting::Pressure => 3,
    };
    let apps: u64 = left.iter().map(|(apps, _)| apps.len() as u64).sum();
    let samples: u64 = left
        .iter()
        .flat_map(|(_, rounds)| rounds)
        .map(|round| round.len() as u64)
        .sum();
    let switches = apps * u64::from(parameters.warmup) + samples;
    let minutes = (apps * START_S + switches * switch_s).div_ceil(60);
    eprintln!("{switches} switches: about {minutes} minutes, more where the machine is not quiet");
}

/// What no run can be asked for.
fn check(parameters: &Parameters) -> Result<()> {
    let drops_files = parameters.modes.contains(&Mode::FilesDropped);
    if parameters.setting == Setting::Pressure && drops_files {
        let cause = "its limit leaves no room for all anonymous pages: measure files_dropped with --setting reclaimed";
        return Err(Error::new("run", "the mode files_dropped", cause));
    }
    if parameters.setting != Setting::Together {
        return Ok(());
    }
    let cause = if parameters.apps.len() < 2 {
        "applications that push each other out are two at least: name them with --apps"
    } else if parameters.modes.iter().any(|mode| !mode.is_taken_out()) {
        "nothing stays resident in the setting together: leave resident and files_dropped out"
    } else {
        return Ok(());
    };
    Err(Error::new("run", "the applications together", cause))
}
