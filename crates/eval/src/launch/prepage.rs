//! prepage as a launcher: its command line, its report and what it keeps. The only place of launches that knows them.

use super::scenario::Scenario;
use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Error, Result};
use crate::service;
use prepage_core::launch::manager::{Phase, is_refining, is_unclear};
use prepage_core::launch::sequence::LaunchSequence;
use prepage_core::params::launch::LaunchParams;
use prepage_engine::store::Store;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command `prepage`, with a configuration for measurements.
#[derive(Clone, Debug)]
pub struct Prepage {
    command: PathBuf,
    directory: PathBuf,
}

/// As by default, so that what is measured is what a user gets. But a program that is left alone stays so while it is
/// measured, and a launch is over for prepage sooner than by the paper's T_idle, 2 s, and T_timeout, 30 s, so that the next
/// sample need not wait for it.
const CONFIGURATION: &str =
    "[launch]\nretry_launches = 1024\nt_idle_ms = 1000\nt_timeout_ms = 8000\n";

/// prepage's report of a launch comes at the latest when T_timeout is over, and a margin.
const REPORT_LIMIT_MS: u64 = 13_000;
/// Where no program runs, the report is there when the command returns.
const REPORT_WITHOUT_PROGRAM_LIMIT_MS: u64 = 200;

/// What prepage has made of a program's launches so far.
#[derive(Clone, Debug)]
pub enum Progress {
    /// It has no launch sequence yet.
    Learning,
    /// It helps from now on.
    Helps {
        /// The launch sequence.
        sequence: LaunchSequence,
        /// Whether neither the sequence is being refined nor help is on trial any more.
        is_final: bool,
    },
    /// It leaves the program alone.
    LeavesAlone,
}

/// Opens a store that the process of the last launch may not have left yet.
fn open_store(directory: &Path) -> Result<Store> {
    const TRIES: u32 = 100;
    const STEP_MS: u64 = 20;
    for _ in 1..TRIES {
        if let Ok((store, _)) = Store::open(directory) {
            return Ok(store);
        }
        sleep_ms(STEP_MS);
    }
    let (store, _) = Store::open(directory).context("open", directory.display())?;
    Ok(store)
}

impl Prepage {
    /// Uses the binary of `bin` where it lies, on disk: it has to be read by a cold launch as everything else. What it
    /// learns goes below `directory`.
    pub fn of(bin: Option<&Path>, directory: PathBuf) -> Result<Self> {
        let bin = bin
            .map(Path::to_path_buf)
            .map_or_else(service::default_directory, Ok)?;
        let bin = fs::canonicalize(&bin).context("find", bin.display())?;
        let command = bin.join("prepage");
        if !command.is_file() {
            let hint = "not built; build it with `cargo build --release` or name its directory with --prepage-bin";
            return Err(Error::new("find", command.display(), hint));
        }
        fs::create_dir_all(&directory).context("make", directory.display())?;
        let prepage = Self { command, directory };
        let configuration = prepage.configuration();
        fs::write(&configuration, CONFIGURATION).context("write", configuration.display())?;
        Ok(prepage)
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join("prepage.toml")
    }

    /// Each program has a store of its own: what is kept of it can be weighed.
    fn store(&self, program: &str) -> PathBuf {
        self.directory.join(format!("store-{program}"))
    }

    /// The file to which prepage reports a program's launches.
    pub fn report_file(&self, program: &str) -> PathBuf {
        self.directory.join(format!("report-{program}.jsonl"))
    }

    /// The command line that launches `command` with prepage; a report that was there is removed.
    pub fn command_line(
        &self,
        program: &str,
        arguments: &[&str],
        command: &[OsString],
    ) -> Vec<OsString> {
        let report = self.report_file(program);
        let _ = fs::remove_file(&report);
        let mut given: Vec<OsString> = vec!["--report".into(), report.into()];
        given.extend(arguments.iter().map(OsString::from));
        self.line(program, given, command)
    }

    /// The command line that launches a program which prepage leaves alone. A report would cost it what it is left alone
    /// for.
    pub fn unreported(&self, program: &str, command: &[OsString]) -> Vec<OsString> {
        self.line(program, Vec::new(), command)
    }

    fn line(&self, program: &str, given: Vec<OsString>, command: &[OsString]) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![self.command.clone().into()];
        line.extend(["run".into(), "--config".into(), self.configuration().into()]);
        line.extend(["--store".into(), self.store(program).into()]);
        line.extend(given);
        line.push("--".into());
        line.extend(command.iter().cloned());
        line
    }

    /// The command line of a scenario.
    pub fn scenario(
        &self,
        program: &str,
        scenario: Scenario,
        command: &[OsString],
    ) -> Vec<OsString> {
        match scenario.prepage_arguments() {
            Some(arguments) => self.command_line(program, arguments, command),
            None => command.to_vec(),
        }
    }

    /// prepage's report of the launch that was just measured; it comes when prepage thinks the launch over. `None` if
    /// it does not come.
    pub fn wait_for_report(&self, program: &str, scenario: Scenario) -> Option<serde_json::Value> {
        const STEP_MS: u64 = 10;
        let limit_ms = if scenario.runs_program() {
            REPORT_LIMIT_MS
        } else {
            REPORT_WITHOUT_PROGRAM_LIMIT_MS
        };
        let until = now_ns() + limit_ms * 1_000_000;
        while now_ns() < until {
            let text = fs::read_to_string(self.report_file(program)).unwrap_or_default();
            if let Some((line, _)) = text.split_once('\n') {
                return serde_json::from_str(line).ok();
            }
            sleep_ms(STEP_MS);
        }
        None
    }

    /// What is kept of a program, in bytes.
    pub fn store_bytes(&self, program: &str) -> u64 {
        let Ok(entries) = fs::read_dir(self.store(program)) else {
            return 0;
        };
        let sizes = entries.flatten().filter_map(|e| e.metadata().ok());
        sizes.map(|metadata| metadata.len()).sum()
    }

    /// What prepage has made of a program's launches so far.
    pub fn progress(&self, program: &str) -> Result<Progress> {
        let store = open_store(&self.store(program))?;
        let parameters = LaunchParams::default();
        for kept in store.list() {
            let Some(stored) = store.load(&kept.app) else {
                continue;
            };
            let launch = &stored.launch;
            match launch.phase {
                Phase::Prefetch => {
                    let sequence = launch.sequence.clone();
                    let is_open =
                        is_refining(launch, &parameters) || is_unclear(launch, &parameters);
                    let is_final = !is_open;
                    return Ok(Progress::Helps { sequence, is_final });
                }
                Phase::Off(_) => return Ok(Progress::LeavesAlone),
                Phase::Profiling | Phase::Generation => {}
            }
        }
        Ok(Progress::Learning)
    }

    /// Whether prepage leaves a program alone.
    pub fn leaves_alone(&self, program: &str) -> Result<bool> {
        Ok(matches!(self.progress(program)?, Progress::LeavesAlone))
    }

    /// The phase in which prepage is with a program, in its own words.
    pub fn phase(&self, program: &str) -> String {
        let Ok(store) = open_store(&self.store(program)) else {
            return "unknown".into();
        };
        let phases = store.list().into_iter().filter_map(|kept| {
            let phase = store.load(&kept.app)?.launch.phase;
            Some(format!("{} {phase:?}", kept.app))
        });
        phases.collect::<Vec<_>>().join(", ")
    }

    /// The version.
    pub fn version(&self) -> String {
        let output = Command::new(&self.command).arg("--version").output();
        output.map_or_else(
            |_| String::new(),
            |o| String::from_utf8_lossy(&o.stdout).trim().to_owned(),
        )
    }
}
