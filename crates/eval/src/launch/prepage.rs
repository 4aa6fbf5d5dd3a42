//! prepage as a launcher: its command line, its report and what it keeps. The only place of launches that knows them.

use super::scenario::Scenario;
use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Error, Result};
use crate::service;
use prepage_core::identity::AppId;
use prepage_core::launch::manager::LaunchState;
use prepage_engine::store::{Store, single};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The command `prepage`, with a configuration for measurements.
#[derive(Clone, Debug)]
pub struct Prepage {
    command: PathBuf,
    directory: PathBuf,
    /// The text of its configuration.
    configuration: String,
}

/// As by default, so that what is measured is what a user gets. But a program that is left alone stays so while it is
/// measured, and a launch is over for prepage sooner than by the paper's T_idle, 2 s, and T_timeout, 30 s, so that the next
/// sample need not wait for it.
const CONFIGURATION: &str =
    "[launch]\nretry_launches = 1024\nt_idle_ms = 1000\nt_timeout_ms = 8000\n";

/// Which launches prepage helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helps {
    /// As by default.
    AsByDefault,
    /// As by default, and none is held out: of several at once nearly always one would be, and the end of the last one is
    /// what is measured.
    NoneHeldOut,
    /// Nothing is too small to be helped, and nothing is found out not to gain: where what help costs is to be measured, as
    /// the paper does with `uname`.
    All,
}

impl Helps {
    /// What the configuration says of it.
    fn configuration(self) -> &'static str {
        match self {
            Self::AsByDefault => "",
            Self::NoneHeldOut => "holdout_every = 0\n",
            Self::All => "pages_min = 0\nlaunch_us_min = 0\nholdout_every = 0\n",
        }
    }
}

/// prepage's report of a launch, or its service's record, comes at the latest when T_timeout is over, and a margin.
pub const REPORT_LIMIT_MS: u64 = 13_000;
/// Where no program runs, the report is there when the command returns.
const REPORT_WITHOUT_PROGRAM_LIMIT_MS: u64 = 200;

/// How long the process of the last launch may keep a store's lock.
const LOCK_MAX: Duration = Duration::from_secs(2);

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
    pub fn of(bin: Option<&Path>, directory: PathBuf, helps: Helps) -> Result<Self> {
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
        let prepage = Self {
            command,
            directory,
            configuration: CONFIGURATION.to_owned() + helps.configuration(),
        };
        let file = prepage.configuration_file();
        fs::write(&file, &prepage.configuration).context("write", file.display())?;
        Ok(prepage)
    }

    /// The directory of the binaries.
    pub fn binaries(&self) -> &Path {
        self.command.parent().unwrap_or(Path::new("/"))
    }

    /// The configuration of a service that helps these applications where it is not told to do nothing, as `prepage run`
    /// helps them here.
    pub fn configuration_of_service(&self, apps: impl Iterator<Item = AppId>) -> String {
        let apps: Vec<String> = apps.map(|app| app.to_string()).collect();
        // A list of strings is the same in JSON and in TOML.
        let apps = serde_json::json!(apps);
        let configuration = &self.configuration;
        format!("[service]\nmode = \"off\"\napplications = {apps}\n{configuration}")
    }

    fn configuration_file(&self) -> PathBuf {
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

    /// The command line from which prepage learns.
    pub fn learning(&self, program: &str, command: &[OsString]) -> Vec<OsString> {
        self.run(program, &self.store(program), true, &[], command)
    }

    /// The command line of a scenario.
    pub fn scenario(
        &self,
        program: &str,
        scenario: Scenario,
        command: &[OsString],
    ) -> Vec<OsString> {
        let Some(arguments) = scenario.prepage_arguments() else {
            return command.to_vec();
        };
        let store = match scenario.has_made_profile() {
            true => self.made_store(program),
            false => self.store(program),
        };
        self.run(program, &store, scenario.is_reported(), arguments, command)
    }

    /// The command line that launches a program which prepage leaves alone. A report would cost it what it is left alone
    /// for.
    pub fn unreported(&self, program: &str, command: &[OsString]) -> Vec<OsString> {
        self.run(program, &self.store(program), false, &[], command)
    }

    fn run(
        &self,
        program: &str,
        store: &Path,
        is_reported: bool,
        arguments: &[&str],
        command: &[OsString],
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![self.command.clone().into()];
        line.extend([
            "run".into(),
            "--config".into(),
            self.configuration_file().into(),
        ]);
        line.extend(["--store".into(), store.into()]);
        if is_reported {
            line.extend(["--report".into(), self.new_report(program).into()]);
        }
        line.extend(arguments.iter().map(OsString::from));
        line.push("--".into());
        line.extend(command.iter().cloned());
        line
    }

    /// The file of a report that is to come.
    fn new_report(&self, program: &str) -> PathBuf {
        let report = self.report_file(program);
        let _ = fs::remove_file(&report);
        report
    }

    /// The store of profiles that were made for one launch.
    fn made_store(&self, program: &str) -> PathBuf {
        self.directory.join(format!("made-{program}"))
    }

    /// Has prepage know this of a program at its next launch, in a store of its own.
    pub fn make_known(&self, program: &str, app: &AppId, state: &LaunchState) -> Result<()> {
        let directory = self.made_store(program);
        let made = single::change_launch(&directory, app, LOCK_MAX, |kept| {
            *kept = state.clone();
            None
        });
        made.context("write", directory.display()).map(|_| ())
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

    /// What prepage keeps of a program's launches; `None` before the first.
    pub fn kept(&self, program: &str) -> Result<Option<(AppId, LaunchState)>> {
        let store = open_store(&self.store(program))?;
        let kept = store.list().into_iter().next();
        Ok(kept.and_then(|kept| {
            let launch = store.load(&kept.app)?.launch.clone();
            Some((kept.app, launch))
        }))
    }

    /// Whether prepage leaves a program alone.
    pub fn leaves_alone(&self, program: &str) -> Result<bool> {
        let kept = self.kept(program)?;
        Ok(kept.is_some_and(|(_, launch)| launch.is_left_alone()))
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
