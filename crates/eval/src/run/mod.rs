//! `run`: touches the machine and writes raw records; puts the machine back whatever happens.

pub mod answer;
pub mod bench;
pub mod blocks;
pub mod cycle;
pub mod footprint;
pub mod launches;
pub mod longest;
pub mod measure;
pub mod observe;
pub mod pressure;
pub mod setup;
pub mod timeline;
pub mod together;
pub mod watch;

use crate::apps::{self, App};
use crate::duration::{self, counted};
use crate::error::{Error, Result};
use crate::ground::only_run;
use crate::record::{
    Earlier, Line, Mode, Parameters, Resume, Setting, Slot, check_out, retain_incomplete,
};
use crate::restore::Restorer;
use crate::swap::Swap;
use blocks::Round;
use setup::SetUp;
use std::path::PathBuf;

/// What `run` is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What goes into the record.
    pub parameters: Parameters,
    /// The record.
    pub out: PathBuf,
    /// Continue that record.
    pub resume: Option<Resume>,
    /// Where to keep what prepage recorded of each switch of mode observe, for the simulator.
    pub switches: Option<PathBuf>,
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
            resume: None,
            switches: None,
            prepage_bin: None,
            swap_bytes: Swap::BYTES,
            screenshots: None,
            installs: false,
        }
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> Result<()> {
    let options = &possible(options);
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(
            "run",
            "the experiment",
            "it needs root: control groups, page maps, dropping caches",
        ));
    }
    let parameters = &options.parameters;
    check(parameters)?;
    if options.switches.is_some() && !parameters.modes.contains(&Mode::Observe) {
        let cause = "--switches keeps those of mode observe: name it in --modes";
        return Err(Error::new("run", "the experiment", cause));
    }
    for file in std::iter::once(&options.out).chain(&options.switches) {
        check_out(file, options.resume)?;
    }
    let apps = apps::chosen(&parameters.apps, parameters.given.as_ref())?;
    // Before anything is installed, which would disturb the run that is waited for, and before the record is read, which that one
    // may be writing.
    let _only = only_run()?;
    apps::require(&apps, options.installs)?;
    let earlier = Earlier::<Line>::read(&options.out, options.resume, parameters)?;
    let mut writer = None;
    let at_once = match parameters.setting {
        Setting::Together => apps.len(),
        Setting::Reclaimed | Setting::Pressure => 1,
    };
    let left = apps
        .chunks(at_once)
        .map(|some| Left::of(some, parameters, &earlier));
    let left: Vec<Left<'_>> = left.filter(|left| !left.is_empty()).collect();
    if !left.is_empty() {
        earlier.check_build()?;
    }
    say_how_long(parameters, &left);
    for left in left {
        let mut restorer = Restorer::start()?;
        let ground = setup::lay_ground(options, &mut restorer)?;
        let is_first = writer.is_none();
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(earlier.writer(&options.out)?),
        };
        let SetUp {
            mut bench,
            mut running,
            run: first_line,
            launched,
        } = setup::set_up(options, ground, &apps, &left, is_first)?;
        if is_first {
            writer.write(&Line::Run(Box::new(first_line)))?;
        }
        launched.iter().try_for_each(|line| writer.write(line))?;
        let rounds = &left.rounds;
        if !rounds.is_empty() {
            measure::measure_all(&mut bench, &mut running, options, rounds, writer)?;
        }
    }
    Ok(())
}

/// What can be measured here of what is asked for.
fn possible(options: &Options) -> Options {
    let mut options = options.clone();
    if options.parameters.stall_blocks > 0 && !longest::is_possible() {
        options.parameters.stall_blocks = 0;
    }
    options
}

/// What is to be measured of applications that run at once.
#[derive(Debug)]
pub struct Left<'a> {
    /// The applications.
    pub apps: &'a [App],
    /// Their launches.
    pub launches: Vec<Slot>,
    /// Their switches.
    pub rounds: Vec<Round>,
}

impl<'a> Left<'a> {
    fn of(apps: &'a [App], parameters: &Parameters, earlier: &Earlier<Line>) -> Self {
        let is_missing = |slot: &Slot| !earlier.has(&slot.key());
        let launches = apps
            .iter()
            .flat_map(|app| blocks::launches(parameters, app.name));
        let mut rounds = blocks::rounds(parameters, &names(apps));
        let lacks = |round: &Round| round.iter().any(|(_, slot)| is_missing(slot));
        retain_incomplete(&mut rounds, |round| round[0].1.block, lacks);
        Self {
            apps,
            launches: launches.filter(is_missing).collect(),
            rounds,
        }
    }

    fn is_empty(&self) -> bool {
        self.launches.is_empty() && self.rounds.is_empty()
    }
}

fn names(apps: &[App]) -> Vec<&'static str> {
    apps.iter().map(|app| app.name).collect()
}

/// Says about how long a run takes of which so much is left.
fn say_how_long(parameters: &Parameters, left: &[Left<'_>]) {
    // As on two cores with zram: to start an application, a launch, and a cycle of use, reclaim and switch.
    const START_S: u64 = 15;
    const LAUNCH_S: u64 = 6;
    let switch_s = match parameters.setting {
        // A person stays with each (`cycle::STAY_MS`).
        Setting::Together => 4,
        Setting::Reclaimed | Setting::Pressure => 3,
    };
    let sum = |count: fn(&Left<'_>) -> usize| left.iter().map(count).sum::<usize>() as u64;
    let apps = sum(|left| left.apps.len());
    let launches = sum(|left| left.launches.len());
    let switches = |left: &Left<'_>| -> u64 {
        let steps = blocks::steps(parameters, &names(left.apps), &left.rounds);
        steps.iter().map(|step| step.round.len() as u64).sum()
    };
    let switches: u64 = left.iter().map(switches).sum();
    let seconds = apps * START_S + launches * LAUNCH_S + switches * switch_s;
    let (switches, launches) = (counted(switches, "switch"), counted(launches, "launch"));
    duration::say(&format!("{switches}, {launches}"), seconds * 1_000);
}

/// What no run can be asked for.
fn check(parameters: &Parameters) -> Result<()> {
    let drops_files = parameters.modes.contains(&Mode::FilesDropped);
    if parameters.setting == Setting::Pressure && drops_files {
        let cause = "its limit leaves no room for all anonymous pages: measure files_dropped with --setting reclaimed";
        return Err(Error::new("run", "the mode files_dropped", cause));
    }
    if parameters.setting != Setting::Reclaimed && parameters.modes.contains(&Mode::Launch) {
        let cause =
            "it is one of the setting reclaimed alone: leave it out, or say --setting reclaimed";
        return Err(Error::new("run", "the mode launch", cause));
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
