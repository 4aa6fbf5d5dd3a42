//! prepage as a person runs it: the service, the session's agent, and the command line. The only place that knows them.

mod launches;

use crate::clock::{now_ns, sleep_ms};
use crate::display::session::{Places, Session, command_in, log_file};
use crate::error::{Context, Error, Result};
use crate::group::Group;
use crate::log::{log_path, with_last_words};
use crate::record::Mode;
use crate::simulate::recording;
use prepage_core::replay::RecordedSwitch;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The running service.
#[derive(Debug)]
pub struct Service {
    socket: PathBuf,
    /// Where it keeps its profiles.
    state: PathBuf,
    command: PathBuf,
    group: Group,
    daemon: Child,
    /// Where the service has a session.
    agent: Option<Agent>,
    /// By which file pages are fetched where a mode says nothing else.
    own_core_policy: String,
    core_policy: String,
    /// The number of the last switch that was read, by application.
    last_switches: BTreeMap<String, u64>,
    /// Where it records what it observes in mode observe.
    recording: PathBuf,
    /// How much of that was read.
    recorded_bytes: u64,
}

/// The session's agent, which tells the service of the focus. It can be started again.
#[derive(Debug)]
struct Agent {
    command: Command,
    process: Option<Child>,
}

impl Agent {
    /// Has it run, or not.
    fn set_running(&mut self, is_to_run: bool) -> Result<()> {
        match (is_to_run, &mut self.process) {
            (true, None) => {
                self.process = Some(self.command.spawn().context("start", "prepage agent")?);
            }
            (false, Some(running)) => {
                running.kill().context("stop", "prepage agent")?;
                running.wait().context("stop", "prepage agent")?;
                self.process = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
        Ok(())
    }
}

/// How long prepage's record of a switch is waited for, in milliseconds.
pub const RECORD_MS: u64 = 4_000;

/// What a service is run from.
const BINARIES: [&str; 4] = ["prepage", "prepage-launch", "prepage-control", "prepaged"];

/// What a run says when prepage's binaries are not there.
fn absent(directory: &Path) -> Error {
    let hint = "not built; build them with `cargo build --release` or name their directory with --prepage-bin";
    Error::new(
        "find",
        format!("prepage and prepaged in {}", directory.display()),
        hint,
    )
}

/// Where the binaries are if nothing else is said: beside this one.
pub fn default_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find", "own executable")?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_path_buf())
}

/// An error where a directory does not hold the binaries.
pub fn check_binaries(directory: &Path) -> Result<()> {
    let is_there = |name: &&str| directory.join(name).is_file();
    match BINARIES.iter().all(is_there) {
        true => Ok(()),
        false => Err(absent(directory)),
    }
}

/// The text of a configuration that prepaged finds right. Its drop-ins are checked, too, but are no part of it.
///
/// # Errors
/// Where it cannot be read, or prepaged refuses it: with file and line.
pub fn read_config(prepage_bin: Option<&Path>, file: &Path) -> Result<String> {
    let directory = prepage_bin.map_or_else(default_directory, |given| Ok(given.into()))?;
    let text = fs::read_to_string(file).context("read", file.display())?;
    let check = Command::new(directory.join("prepaged"))
        .args(["--check", "--config"])
        .arg(file)
        .output()
        .map_err(|_| absent(&directory))?;
    match check.status.success() {
        true => Ok(text),
        false => {
            let said = String::from_utf8_lossy(&check.stderr).trim().to_owned();
            Err(Error::new("use", file.display(), said))
        }
    }
}

/// Switches are numbered from 1 in the life of an application's profile.
fn number(switch: &serde_json::Value) -> u64 {
    switch["number"].as_u64().unwrap_or(0)
}

fn app(switch: &serde_json::Value) -> &str {
    switch["app"].as_str().unwrap_or_default()
}

impl Service {
    /// Starts the service in its group, with this configuration, and its agent, unless no mode of the run is told of the focus.
    pub fn start(
        directory: &Path,
        places: &Places,
        session: &Session,
        group: Group,
        config: &str,
        is_told: bool,
    ) -> Result<Self> {
        let mut service = Self::start_alone(directory, places, group, config)?;
        if !is_told {
            return Ok(service);
        }
        let mut command = command_in(&service.group, &service.command.to_string_lossy())?;
        command
            .arg("--socket")
            .arg(&service.socket)
            .arg("agent")
            .envs(session.environment(places))
            // Of the session that this one runs in.
            .env_remove("SWAYSOCK")
            .stdout(Stdio::null())
            .stderr(log_file(&places.disk, "agent")?);
        let mut agent = Agent {
            command,
            process: None,
        };
        agent.set_running(true)?;
        service.agent = Some(agent);
        Ok(service)
    }

    /// Starts the service without an agent, as on a server. The binaries run from copies in memory: reclaiming the file
    /// pages that the service has read, which its group is charged for, must not take its own code away.
    pub fn start_alone(
        directory: &Path,
        places: &Places,
        group: Group,
        config: &str,
    ) -> Result<Self> {
        let own = places.memory.join("prepage");
        let state = own.join("state");
        fs::create_dir_all(&state).context("make", state.display())?;
        for name in BINARIES {
            fs::copy(directory.join(name), own.join(name)).map_err(|_| absent(directory))?;
        }
        let configuration = own.join("prepage.toml");
        fs::write(&configuration, config).context("write", configuration.display())?;
        let (socket, recording) = (own.join("socket"), own.join("recording.jsonl"));
        group.never_swap();
        let daemon = command_in(&group, &own.join("prepaged").to_string_lossy())?
            .arg("--config")
            .arg(&configuration)
            .arg("--state")
            .arg(&state)
            .arg("--socket")
            .arg(&socket)
            .arg("--record")
            .arg(&recording)
            .stdout(Stdio::null())
            .stderr(log_file(&places.disk, "prepaged")?)
            .spawn()
            .context("start", "prepaged")?;
        let mut service = Self {
            socket,
            state,
            command: own.join("prepage"),
            group,
            daemon,
            agent: None,
            own_core_policy: String::new(),
            core_policy: String::new(),
            last_switches: BTreeMap::new(),
            recording,
            recorded_bytes: 0,
        };
        service.wait_until_ready(places)?;
        service.own_core_policy = service.call(&["policy"])?.trim().to_owned();
        service.core_policy.clone_from(&service.own_core_policy);
        Ok(service)
    }

    fn wait_until_ready(&mut self, places: &Places) -> Result<()> {
        const LIMIT_NS: u64 = 10_000_000_000;
        let start = now_ns();
        while self.call(&["status", "--json"]).is_err() {
            let ended = self.daemon.try_wait().ok().flatten();
            if ended.is_some() || now_ns() - start > LIMIT_NS {
                let log = log_path(&places.disk, "prepaged");
                let cause = with_last_words("it does not answer", &log);
                return Err(Error::new("start", "prepaged", cause));
            }
            sleep_ms(20);
        }
        Ok(())
    }

    /// The group of the service.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Tracks the application in this group. Returns its id.
    pub fn track(&self, app: &Group) -> Result<String> {
        let directory = app.memory.to_string_lossy().into_owned();
        let text = self.call(&["track", "--cgroup", &directory, "--json"])?;
        let reply: serde_json::Value =
            serde_json::from_str(&text).context("read", "prepage track")?;
        Ok(reply["app"].as_str().unwrap_or_default().to_owned())
    }

    /// Makes ready to announce a switch to the application in this group, as a program with a connection to the service
    /// does: what is left to do is one call.
    pub fn begin_call(&self, app: &Group) -> Result<BeginCall> {
        let parameters = serde_json::json!({"cgroup": app.memory.to_string_lossy()});
        Ok(BeginCall {
            connection: self.connect()?,
            message: message("SwitchBegin", &parameters),
        })
    }

    /// `prepage restore`: has all of the application brought back. Returns how long the command took, in microseconds.
    pub fn restore(&self, app: &Group) -> Result<u64> {
        let began = now_ns();
        self.call(&["restore", "--cgroup", &app.memory.to_string_lossy()])?;
        Ok((now_ns() - began) / 1_000)
    }

    fn connect(&self) -> Result<BufReader<UnixStream>> {
        let connection = UnixStream::connect(&self.socket).context("connect to", "prepaged")?;
        Ok(BufReader::new(connection))
    }

    /// Sets the mode, and with it the core policy and whether the agent runs; resident is demand paging with nothing to page.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        if let Some(agent) = &mut self.agent {
            agent.set_running(mode.is_told_of_focus())?;
        }
        let own = || self.own_core_policy.clone();
        let core_policy = mode
            .core_policy()
            .map_or_else(own, |policy| policy.word().to_owned());
        // New threads are made only where they differ.
        if mode.needs_prepage() && core_policy != self.core_policy {
            self.call(&["policy", &core_policy])?;
            self.core_policy = core_policy;
        }
        self.call(&["mode", mode.word_of_prepage()]).map(|_| ())
    }

    /// prepage's records of the switches to the application of this id since the last call, oldest first. Waits for the
    /// record of the switch that was just measured, for as long as `limit_ms`: prepage ends a switch only after some quiet. In mode
    /// off there is none.
    pub fn new_switches(
        &mut self,
        mode: Mode,
        of: &str,
        limit_ms: u64,
    ) -> Result<Vec<serde_json::Value>> {
        let limit_ns = limit_ms * 1_000_000;
        let start = now_ns();
        loop {
            let mut new = self.read_switches()?;
            new.retain(|switch| app(switch) == of);
            if !new.is_empty() || !mode.needs_prepage() || now_ns() - start > limit_ns {
                return Ok(new);
            }
            sleep_ms(50);
        }
    }

    /// The switches that were recorded in mode observe since the last call, of all applications.
    pub fn new_recorded(&mut self) -> Result<Vec<RecordedSwitch>> {
        let place = || self.recording.display();
        let mut file = File::open(&self.recording).context("open", place())?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.recorded_bytes))
            .and_then(|_| file.read_to_string(&mut text))
            .context("read", place())?;
        // A line that is being written is read the next time.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        let switches = recording::parse(text.as_bytes(), &self.recording)?;
        self.recorded_bytes += text.len() as u64;
        Ok(switches)
    }

    /// Bytes of prepage's tables for the application of this id; nothing if it is not tracked.
    pub fn table_bytes(&self, app: &str) -> Result<Option<u64>> {
        let text = self.call(&["status", "--json"])?;
        let status: serde_json::Value =
            serde_json::from_str(&text).context("read", "prepage status")?;
        let mut apps = status["apps"].as_array().into_iter().flatten();
        let found = apps.find(|known| known["app"] == app);
        Ok(found.and_then(|known| known["table_bytes"].as_u64()))
    }

    /// Passes over the switches until now: those that prepage saw while the application was being used or reclaimed.
    pub fn forget_switches(&mut self) -> Result<()> {
        self.read_switches().map(|_| ())
    }

    fn read_switches(&mut self) -> Result<Vec<serde_json::Value>> {
        let text = self.call(&["stats", "--json"])?;
        let stats: serde_json::Value =
            serde_json::from_str(&text).context("read", "prepage stats")?;
        let all = stats["switches"].as_array().cloned().unwrap_or_default();
        let new: Vec<serde_json::Value> = all
            .into_iter()
            .filter(|s| number(s) > self.last_switches.get(app(s)).copied().unwrap_or(0))
            .collect();
        for switch in &new {
            self.last_switches
                .insert(app(switch).to_owned(), number(switch));
        }
        Ok(new)
    }

    /// The version.
    pub fn version(&self) -> String {
        self.call(&["--version"])
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    }

    fn call(&self, arguments: &[&str]) -> Result<String> {
        let operation = format!("prepage {}", arguments.join(" "));
        let output = Command::new(&self.command)
            .arg("--socket")
            .arg(&self.socket)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("call", &operation)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::new(
            "call",
            operation,
            format!("{}: {said}", output.status),
        ))
    }
}

/// A call of a method of prepage's interface, as Varlink has it.
fn message(method: &str, parameters: &serde_json::Value) -> Vec<u8> {
    let call = serde_json::json!({
        "method": format!("org.prepage.Prepage1.{method}"),
        "parameters": parameters,
    });
    let mut message = call.to_string().into_bytes();
    // Varlink ends a message by a zero byte.
    message.push(0);
    message
}

/// Sends a call and waits for the reply, which may be an error.
fn exchange(
    connection: &mut BufReader<UnixStream>,
    method: &str,
    message: &[u8],
) -> Result<serde_json::Value> {
    let sent = connection.get_mut().write_all(message);
    sent.context("call", method)?;
    let mut reply = Vec::new();
    connection
        .read_until(0, &mut reply)
        .context("call", method)?;
    let reply = reply.strip_suffix(&[0]).unwrap_or(&reply);
    serde_json::from_slice(reply).context("call", method)
}

/// A call that announces a switch.
#[derive(Debug)]
pub struct BeginCall {
    connection: BufReader<UnixStream>,
    message: Vec<u8>,
}

impl BeginCall {
    /// Makes it and waits for the reply.
    pub fn make(mut self) -> Result<()> {
        let operation = "SwitchBegin";
        let reply = exchange(&mut self.connection, operation, &self.message)?;
        // What prepage leaves alone does not begin.
        match reply["parameters"]["tracked"] == true {
            true => Ok(()),
            false => Err(Error::new(
                "call",
                operation,
                format!("it is not tracked: {reply}"),
            )),
        }
    }
}
