//! The configuration: one TOML file with drop-ins, later files over earlier ones, key by key.
//!
//! One table for each group of parameters, one key for each field; every field is documented where it is defined:
//! here, in [`prepage_core::params`] and in `prepage_engine`. So is what a number may be, by [`prepage_core::ranges!`].

use crate::client::SOCKET_DEFAULT;
use crate::error::{Error, Result};
use prepage_core::params::launch::LaunchParams;
use prepage_core::params::range::Range;
use prepage_core::params::{
    AnonParams, BudgetParams, FileParams, Mode, ParamError, Params, ReclaimParams, SwitchParams,
};
use prepage_core::ranges;
use prepage_engine::{EngineParams, FetchParams, ObserveParams};
use prepage_kernel::sched;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Where the configuration is unless it is given.
pub const FILE_DEFAULT: &str = "/etc/prepage/prepage.toml";

/// Directory of the profiles, where no other one is configured.
pub const STATE_DEFAULT: &str = "/var/lib/prepage";

/// Most drop-ins read.
const DROP_INS_MAX: usize = 256;

/// Most characters of a line that is quoted, for what is wrong in it.
const LINE_CHARS_MAX: usize = 80;

/// Most characters of what the parser says. The names of all keys of a table are the longest that is of use.
const MESSAGE_CHARS_MAX: usize = 600;

/// Which applications are tracked by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrackPolicy {
    /// Those in `applications`, and those that `prepage track` was called for.
    #[default]
    Listed,
    /// In addition every application whose window gets the focus.
    Focused,
}

/// Which launches are helped without anybody announcing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchPolicy {
    /// Those of tracked applications.
    #[default]
    Tracked,
    /// In addition those of every program that is launched in a graphical session and not from a terminal.
    Interactive,
    /// None: only `prepage run` announces launches.
    Off,
}

/// Settings of the service itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSettings {
    /// Mode after start. `prepage mode` changes it until the next start, or until another one is set here and the
    /// configuration is read again.
    pub mode: Mode,
    /// Which applications are tracked by themselves: `listed`, those in `applications` and those that `prepage track` was
    /// called for; `focused`, in addition every application whose window gets the focus. A user, but root, has 128 at most:
    /// beyond that `prepage untrack` makes room for others.
    pub track: TrackPolicy,
    /// Which launches are helped without `prepage run`: `tracked`, those of tracked applications; `interactive`, in
    /// addition those of every program launched in a graphical session and not from a terminal; `off`, none.
    pub launches: LaunchPolicy,
    /// Applications to track, by id (`desktop:org.gimp.GIMP@1000`), name or command (`gimp`): from their first launch on, and
    /// whenever they are found running. One that is taken out stays tracked until `prepage untrack`.
    pub applications: Vec<String>,
    /// The socket of the API; `prepage` and the agent are told another one by `--socket`. A change needs a restart.
    pub socket: PathBuf,
    /// The directory of the profiles. A change needs a restart, and under prepaged.service a drop-in with `ReadWritePaths=`,
    /// since the unit may write to /var/lib/prepage and /run/prepage alone. So it is with the socket's directory.
    pub state: PathBuf,
    /// Percent of two seconds in which some task must wait for memory until it counts as pressure. The kernel
    /// counts tasks whose control group is at its own limit, too.
    pub pressure_percent: u32,
}

ranges!(ServiceSettings in "service" {
    pressure_percent: 1 to 100,
});

impl ServiceSettings {
    fn check(&self) -> Result<(), ParamError> {
        self.check_ranges()?;
        for (name, path) in [
            ("service.socket", &self.socket),
            ("service.state", &self.state),
        ] {
            if path.as_os_str().is_empty() {
                return Err(ParamError::new(name, "a path", "empty"));
            }
        }
        if self.applications.iter().any(|name| name.trim().is_empty()) {
            let name = "service.applications";
            let found = format_args!("{:?}", self.applications);
            return Err(ParamError::new(
                name,
                "a list of names, none of them empty",
                found,
            ));
        }
        Ok(())
    }
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Full,
            track: TrackPolicy::Listed,
            launches: LaunchPolicy::Tracked,
            applications: Vec::new(),
            socket: SOCKET_DEFAULT.into(),
            state: STATE_DEFAULT.into(),
            pressure_percent: 10,
        }
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The service itself.
    pub service: ServiceSettings,
    /// Estimator for anonymous pages.
    pub anon: AnonParams,
    /// Estimator for file pages.
    pub file: FileParams,
    /// Begin and end of a switch.
    pub switch: SwitchParams,
    /// Plan and budget.
    pub budget: BudgetParams,
    /// Headroom ahead of a switch.
    pub reclaim: ReclaimParams,
    /// Launch help.
    pub launch: LaunchParams,
    /// How pages are fetched.
    pub fetch: FetchParams,
    /// How switches are observed.
    pub observe: ObserveParams,
}

impl Config {
    /// The parameters of the pure part.
    pub fn params(&self) -> Params {
        Params {
            anon: self.anon.clone(),
            file: self.file.clone(),
            switch: self.switch.clone(),
            budget: self.budget.clone(),
            reclaim: self.reclaim.clone(),
            launch: self.launch.clone(),
        }
    }

    /// The parameters of the engine.
    pub fn engine(&self) -> EngineParams {
        EngineParams {
            fetch: self.fetch.clone(),
            observe: self.observe.clone(),
        }
    }

    /// Takes the values that hold until the next start from the configuration that is `running`. Returns the names of
    /// those that were given another value.
    pub fn keep_until_restart(&mut self, running: &Self) -> Vec<&'static str> {
        fn keep<T: Clone + PartialEq>(given: &mut T, running: &T) -> bool {
            let differs = *given != *running;
            given.clone_from(running);
            differs
        }
        let (service, observe) = (&mut self.service, &mut self.observe);
        let (was, watched) = (&running.service, &running.observe);
        let kept = [
            ("service.socket", keep(&mut service.socket, &was.socket)),
            ("service.state", keep(&mut service.state, &was.state)),
            (
                "observe.fault_ring_pages",
                keep(&mut observe.fault_ring_pages, &watched.fault_ring_pages),
            ),
            (
                "observe.file_ring_pages",
                keep(&mut observe.file_ring_pages, &watched.file_ring_pages),
            ),
            (
                "observe.onset_wakeup_faults",
                keep(
                    &mut observe.onset_wakeup_faults,
                    &watched.onset_wakeup_faults,
                ),
            ),
            (
                "observe.access_events",
                keep(&mut observe.access_events, &watched.access_events),
            ),
        ];
        let differing = kept.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(name, _)| name).collect()
    }

    fn check(&self) -> Result<(), ParamError> {
        self.params().check()?;
        self.engine().check()?;
        self.service.check()
    }

    /// Checks that cores are this machine's; where that cannot be asked, they are taken to be.
    fn check_cores(&self) -> Result<(), ParamError> {
        let Ok(there) = sched::possible_cpus() else {
            return Ok(());
        };
        let lists = [
            ("fetch.big_cores", &self.fetch.big_cores),
            ("fetch.little_cores", &self.fetch.little_cores),
        ];
        let is_other =
            |(_, cores): &(_, &Vec<usize>)| cores.iter().any(|core| !there.contains(core));
        match lists.into_iter().find(is_other) {
            Some((name, cores)) => {
                let expected = format!("a list of cores that this machine may have ({there:?})");
                Err(ParamError::new(name, expected, format_args!("{cores:?}")))
            }
            None => Ok(()),
        }
    }

    /// What a parameter, `table.key`, may be, if it is a number.
    pub fn range(name: &str) -> Option<&'static Range> {
        let all = [
            ServiceSettings::RANGES,
            AnonParams::RANGES,
            FileParams::RANGES,
            SwitchParams::RANGES,
            BudgetParams::RANGES,
            ReclaimParams::RANGES,
            LaunchParams::RANGES,
            FetchParams::RANGES,
            ObserveParams::RANGES,
        ];
        all.into_iter().flatten().find(|range| range.name == name)
    }
}

/// Reads the configuration from `file` and `FILE.d/*.toml`. Without `file`: from [`FILE_DEFAULT`], where its absence
/// means the defaults.
///
/// # Errors
/// The first mistake, with its place.
pub fn load(file: Option<&Path>) -> Result<Config> {
    let path = file.unwrap_or(Path::new(FILE_DEFAULT));
    let mut texts = Vec::new();
    if file.is_some() || path.exists() {
        texts.push((path.to_path_buf(), read(path)?));
    }
    for drop_in in drop_ins(path)? {
        let text = read(&drop_in)?;
        texts.push((drop_in, text));
    }
    let config = merge(&texts)?;
    let checked = config.check_cores();
    checked.map_err(|error| out_of_range(&texts, &error))?;
    Ok(config)
}

/// The configuration that texts of configuration files make together.
///
/// # Errors
/// The first mistake, with its place.
pub fn merge(texts: &[(PathBuf, String)]) -> Result<Config> {
    // Each file by itself first, since only here a mistake still has its line.
    let alone = |(path, text): &(PathBuf, String)| {
        toml::from_str::<Config>(text).map_err(|e| mistake(path, text, &e))
    };
    let configs: Vec<Config> = texts.iter().map(alone).collect::<Result<_>>()?;
    let config = match <[Config; 1]>::try_from(configs) {
        Ok([config]) => config,
        Err(_) => merge_tables(texts)?,
    };
    config
        .check()
        .map_err(|error| out_of_range(texts, &error))?;
    Ok(config)
}

/// Merges texts that are right by themselves, key by key.
fn merge_tables(texts: &[(PathBuf, String)]) -> Result<Config> {
    let mut whole = toml::Table::new();
    for (path, text) in texts {
        let table: toml::Table = toml::from_str(text).map_err(|e| mistake(path, text, &e))?;
        for (name, keys) in table {
            match (whole.get_mut(&name), keys) {
                (Some(toml::Value::Table(known)), toml::Value::Table(keys)) => known.extend(keys),
                (_, keys) => drop(whole.insert(name, keys)),
            }
        }
    }
    Config::deserialize(whole).map_err(|e| Error::Configuration(e.to_string()))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|e| Error::Configuration(format!("configuration {}: {e}", path.display())))
}

fn drop_ins(path: &Path) -> Result<Vec<PathBuf>> {
    let mut directory = path.as_os_str().to_owned();
    directory.push(".d");
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            return Err(Error::Configuration(format!(
                "{}: {e}",
                Path::new(&directory).display()
            )));
        }
    };
    let paths = entries.flatten().map(|e| e.path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .take(DROP_INS_MAX)
        .collect();
    paths.sort();
    Ok(paths)
}

fn line_of(text: &str, offset: usize) -> (usize, String) {
    let before = text.get(..offset).unwrap_or(text);
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default().trim();
    (number + 1, quoted(line, LINE_CHARS_MAX))
}

fn mistake(path: &Path, text: &str, error: &toml::de::Error) -> Error {
    let at = error.span().map_or(0, |s| s.start);
    let (number, line) = line_of(text, at);
    // It quotes the value that was given.
    let mut message = quoted(error.message(), MESSAGE_CHARS_MAX);
    // What no number of its type can be is no value of the parameter either.
    if let Some(range) = key_at(text, at).and_then(|name| Config::range(&name)) {
        message += &format!("; {} must be {range}", range.name);
    }
    Error::Configuration(format!(
        "{}:{number}: {message}, in: {line}",
        path.display()
    ))
}

/// The name, `table.key`, of the parameter whose value is at this byte.
fn key_at(text: &str, at: usize) -> Option<String> {
    let parsed = DeTable::parse(text).ok()?;
    parsed.get_ref().iter().find_map(|(table, keys)| {
        let DeValue::Table(keys) = keys.get_ref() else {
            return None;
        };
        let (key, _) = keys.iter().find(|(_, value)| value.span().contains(&at))?;
        Some(format!("{}.{}", table.get_ref(), key.get_ref()))
    })
}

/// The beginning of a text, on one line.
fn quoted(text: &str, chars_max: usize) -> String {
    let on_one_line = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(chars_max).map(on_one_line).collect()
}

/// Says where the value that is out of its range was given last.
fn out_of_range(texts: &[(PathBuf, String)], error: &ParamError) -> Error {
    let (table, key) = error.name.split_once('.').unwrap_or((error.name, ""));
    let place = texts.iter().rev().find_map(|(path, text)| {
        let parsed = DeTable::parse(text).ok()?;
        let DeValue::Table(keys) = parsed.get_ref().get(table)?.get_ref() else {
            return None;
        };
        let (number, line) = line_of(text, keys.get(key)?.span().start);
        Some((
            format!("{}:{number}: ", path.display()),
            format!(", in: {line}"),
        ))
    });
    let (before, after) = place.unwrap_or_default();
    Error::Configuration(format!("{before}{error}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::machine::Lcg;

    fn parse(texts: &[&str]) -> Result<Config, String> {
        let numbered = texts.iter().enumerate();
        let texts: Vec<_> = numbered
            .map(|(n, text)| (PathBuf::from(format!("{n}.toml")), (*text).to_owned()))
            .collect();
        merge(&texts).map_err(|e| e.to_string())
    }

    #[test]
    fn later_files_win_key_by_key() {
        let config = parse(&[
            "[switch]\nquiet_ms = 100\ncap_ms = 2000\n[service]\nmode = \"observe\"",
            "[switch]\nquiet_ms = 50",
        ]);
        let config = config.expect("well formed");
        assert_eq!((config.switch.quiet_ms, config.switch.cap_ms), (50, 2000));
        assert_eq!(config.service.mode, Mode::Observe);
        assert_eq!(parse(&[]), Ok(Config::default()));
    }

    #[test]
    fn mistakes_name_file_line_key_and_what_is_allowed() {
        for (texts, parts) in [
            (
                vec!["", "\n[switch]\nquiet = 3"],
                vec!["1.toml:3", "`quiet`", "`quiet_ms`"],
            ),
            (
                vec!["[swich]\nx=1"],
                vec!["0.toml:1", "`swich`", "`switch`"],
            ),
            (
                vec!["[service]\nmode = \"fast\""],
                vec!["0.toml:2", "mode", "`observe`"],
            ),
            (
                vec!["[switch]\n\nquiet_ms = \"x\""],
                vec!["0.toml:3", "quiet_ms", "u64"],
            ),
            (
                vec!["[switch]\nquiet_ms = -1"],
                vec!["0.toml:2", "`-1`", "switch.quiet_ms must be 1 to 60000"],
            ),
            (
                vec!["[file]\n\ntimeout_switches = 300"],
                vec![
                    "0.toml:3",
                    "`300`",
                    "file.timeout_switches must be 1 to 127",
                ],
            ),
            (vec!["[switch"], vec!["0.toml:1"]),
            (
                vec!["", "[anon]\n#\ntimeout_switches = 0"],
                vec!["1.toml:3", "anon.timeout_switches", "1 to 127"],
            ),
            (
                vec!["[service]\npressure_percent=0"],
                vec!["0.toml:2", "1 to 100"],
            ),
            (
                vec!["[budget]\nfile_confidence = 2"],
                vec!["0.toml:2", "budget.file_confidence", "0 to 1"],
            ),
            (
                vec!["[fetch]\npace_pages=0"],
                vec!["0.toml:2", "1 to 1000000", "is 0"],
            ),
            (
                vec!["[fetch]\nanon_threads = 100000"],
                vec![
                    "0.toml:2",
                    "fetch.anon_threads must be 0 to 256, and is 100000",
                ],
            ),
            (
                vec!["[observe]\nfile_ring_pages = 100"],
                vec!["observe.file_ring_pages must be a power of two, 1 to 16384, and is 100"],
            ),
            (
                vec!["[service]\napplications = [\"gimp\", \"\"]"],
                vec![
                    "0.toml:2",
                    "service.applications must be",
                    "none of them empty",
                ],
            ),
            (
                vec!["[service]\nsocket = \"\""],
                vec!["0.toml:2", "service.socket must be a path, and is empty"],
            ),
            (
                vec!["[service]\nstate = \"\""],
                vec!["0.toml:2", "service.state must be a path, and is empty"],
            ),
            // Each alone is right, together they are not.
            (
                vec!["[switch]\nquiet_ms=900\n", "[switch]\ncap_ms=800"],
                vec!["1.toml:2", "switch.cap_ms"],
            ),
        ] {
            let error = parse(&texts).expect_err(texts[0]);
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in {error:?}");
            }
        }
    }

    /// Every number there is: of a wrong one its file, line, key, range and value are told.
    #[test]
    fn each_number_has_a_range_and_is_named_where_it_is_out_of_it() {
        let defaults = toml::Table::try_from(Config::default()).expect("TOML");
        let mut checked = 0;
        for (table, keys) in &defaults {
            let keys = keys.as_table().expect("a table").iter();
            for (key, value) in keys.filter(|(_, value)| value.is_float() || value.is_integer()) {
                let name = format!("{table}.{key}");
                let range = Config::range(&name).unwrap_or_else(|| panic!("{name} has no range"));
                for wrong in [range.min - 0.5, range.max + 0.5] {
                    let wrong = match value.is_float() {
                        true => format!("{wrong:?}"),
                        false => format!("{}", wrong.floor() + f64::from(wrong > range.max)),
                    };
                    let error = parse(&[&format!("[{table}]\n{key} = {wrong}")]).expect_err(key);
                    for part in ["0.toml:2: ", &format!("{name} must be {range}"), &wrong] {
                        assert!(error.contains(part), "{part:?} is not in {error}");
                    }
                    checked += 1;
                }
            }
        }
        assert!(checked > 120, "{checked}");
    }

    #[test]
    fn what_is_quoted_of_a_mistake_is_one_line_and_bounded() {
        let error = parse(&[&format!("[switch]\nquiet_ms = \"{}\"", "ü".repeat(100_000))]);
        let error = error.expect_err("no number");
        assert!(error.contains("0.toml:2") && error.chars().count() < 1_000);
        let error = parse(&["[anon]\nrule = \"\"\"\nx\ny\"\"\""]).expect_err("no rule");
        assert!(
            error.contains("x y") && error.lines().count() == 1,
            "{error}"
        );
    }

    #[test]
    fn any_text_is_an_error_or_a_configuration_never_a_panic() {
        let sample =
            "[switch]\nquiet_ms = 100\n[service]\nmode = \"full\"\napplications = [\"ü\"]\n";
        let mut random = Lcg(1);
        for _ in 0..2_000 {
            let mut bytes = sample.as_bytes().to_vec();
            for _ in 0..4 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            let _ = parse(&[&String::from_utf8_lossy(&bytes)]);
        }
    }
}
