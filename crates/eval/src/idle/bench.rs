//! Everything that a run stands on, each thing registered to be undone before it is done.

use super::client::{self, Client};
use super::record::{Parameters, ServiceFacts};
use super::redis;
use super::services::{Filling, ServiceKind, Site};
use super::zipf::Zipf;
use crate::clock::{now_ns, sleep_ms};
use crate::display::session::{command_in, log_file};
use crate::error::{Context, Error, Result};
use crate::ground::Ground;
use crate::group::{self, Group};
use crate::log::{log_path, with_last_words};
use crate::processes::{Counters, Reading, Roles};
use crate::reclaim;
use crate::restore::Restorer;
use crate::service::{self, Service};
use crate::swap::Swap;
use prepage_kernel::cgroup::{Cgroup, FreezerState, Version};
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};

/// The bench of one run.
#[derive(Debug)]
pub struct Bench {
    /// The ground.
    pub ground: Ground,
    /// prepage, where a mode needs it.
    pub prepage: Option<Service>,
}

/// One service that runs and holds its data.
#[derive(Debug)]
pub struct Running {
    /// Which one.
    pub kind: ServiceKind,
    /// Its group.
    pub group: Group,
    /// What freezes and thaws it; `None` without control groups of version 2.
    freezer: Option<Cgroup>,
    /// Its processes' counters.
    pub roles: Roles,
    /// The client.
    pub client: Client,
    /// Which keys the client asks for.
    pub zipf: Zipf,
    /// How often.
    pub rate_hz: u32,
    /// The id that prepage tracks it by; empty without prepage.
    pub tracked_as: String,
    process: Child,
}

impl Bench {
    /// Makes directories and groups, sets swap and disk up, and starts prepage where a mode needs it.
    pub fn set_up(
        parameters: &Parameters,
        prepage_bin: Option<&Path>,
        restorer: &mut Restorer,
    ) -> Result<Self> {
        let ground = Ground::lay(Some(&Swap::only(parameters.swap)), restorer)?;
        let mut bench = Self {
            ground,
            prepage: None,
        };
        if parameters.modes.iter().any(|mode| mode.is_helped()) {
            bench.start_prepage(parameters, prepage_bin)?;
        }
        Ok(bench)
    }

    fn start_prepage(&mut self, parameters: &Parameters, prepage_bin: Option<&Path>) -> Result<()> {
        let directory = match prepage_bin {
            Some(given) => given.to_path_buf(),
            None => service::default_directory()?,
        };
        let group = self.ground.group("prepage")?;
        let config = parameters.prepage_config.as_deref().unwrap_or_default();
        self.prepage = Some(Service::start_alone(
            &directory,
            &self.ground.places,
            group,
            config,
        )?);
        Ok(())
    }

    /// Starts a service in a group of its own, with its data, and has prepage follow it.
    pub fn start(
        &self,
        kind: ServiceKind,
        parameters: &Parameters,
    ) -> Result<(Running, ServiceFacts)> {
        let directory = self.ground.places.disk.join(kind.name);
        fs::create_dir_all(&directory).context("make", directory.display())?;
        let (keys, port) = (kind.keys(parameters.size_mib), free_port()?);
        let command = kind.prepare(&Site {
            directory: &directory,
            port,
            keys,
            size_mib: kind.size_mib(parameters.size_mib),
            seed: parameters.seed,
        })?;
        // Whatever is cached already is charged to somebody else and would not go when the service is reclaimed.
        reclaim::drop_page_cache()?;
        let group = self.ground.group(kind.name)?;
        let mut process = self.spawn(&kind, &group, &command)?;
        let is_alive = || process.try_wait().is_ok_and(|ended| ended.is_none());
        client::wait_until_ready(port, kind.protocol, is_alive).map_err(|error| {
            let log = log_path(&self.ground.places.disk, kind.name);
            Error::new("start", kind.name, with_last_words(error, &log))
        })?;
        if kind.filling == Filling::Client {
            redis::fill(port, keys, parameters.seed)?;
        }
        let tracked = self.prepage.as_ref().map(|prepage| prepage.track(&group));
        let running = Running {
            kind,
            freezer: self.freezer(&kind),
            roles: Roles::default(),
            client: Client::connect(port, kind.protocol)?,
            zipf: Zipf::new(keys, parameters.zipf_exponent, parameters.seed),
            rate_hz: kind.rate_hz(parameters.rate_hz),
            tracked_as: tracked.transpose()?.unwrap_or_default(),
            process,
            group,
        };
        let facts = facts(&running, &command, keys);
        Ok((running, facts))
    }

    fn spawn(&self, kind: &ServiceKind, group: &Group, command: &[OsString]) -> Result<Child> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        command_in(group, &program.to_string_lossy())?
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(log_file(&self.ground.places.disk, kind.name)?)
            .spawn()
            .context("start", kind.name)
    }

    fn freezer(&self, kind: &ServiceKind) -> Option<Cgroup> {
        let hierarchies = &self.ground.hierarchies;
        let mount = match hierarchies.memory_v1 {
            true => hierarchies.unified.as_ref()?,
            false => &hierarchies.memory,
        };
        Some(Cgroup {
            version: Version::V2,
            directory: mount.join(&self.ground.name).join(kind.name),
        })
    }
}

/// A port that nobody listens on. Somebody else may take it before the service does: then the service says so and ends.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find", "a free port")?;
    let address = listener.local_addr().context("find", "a free port")?;
    Ok(address.port())
}

fn facts(running: &Running, command: &[OsString], keys: u32) -> ServiceFacts {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    ServiceFacts {
        service: running.kind.name.to_owned(),
        command: command.iter().map(text).collect(),
        packages: running.kind.versions(),
        keys,
        rate_hz: running.rate_hz,
        anon_bytes: running.group.residency().anon_bytes,
    }
}

impl Running {
    /// Freezes it and waits until it is.
    pub fn freeze(&self) -> Result<()> {
        const LIMIT_NS: u64 = 5_000_000_000;
        let freezer = self.freezer()?;
        freezer.set_frozen(true).context("freeze", self.kind.name)?;
        let start = now_ns();
        loop {
            let state = freezer
                .freezer_state()
                .context("see frozen", self.kind.name)?;
            if state == FreezerState::Frozen {
                return Ok(());
            }
            if now_ns() - start > LIMIT_NS {
                return Err(Error::new("freeze", self.kind.name, "it is not frozen yet"));
            }
            sleep_ms(1);
        }
    }

    /// What freezes and thaws it.
    pub fn freezer(&self) -> Result<&Cgroup> {
        let cause =
            "it needs control groups of version 2; leave off_thaw and full_thaw out of --modes";
        let freezer = self.freezer.as_ref();
        freezer.ok_or_else(|| Error::new("freeze", self.kind.name, cause))
    }

    /// The difference of two readings, over all of its processes.
    pub fn counters_since(&self, before: &Reading, after: &Reading) -> Counters {
        let by_role = self.roles.difference(before, after);
        by_role
            .values()
            .fold(Counters::default(), |sum, of| Counters {
                processes: sum.processes + of.processes,
                majflt: sum.majflt + of.majflt,
                minflt: sum.minflt + of.minflt,
                cpu_ticks: sum.cpu_ticks + of.cpu_ticks,
            })
    }

    /// Ends it and waits until it has.
    pub fn end(mut self) {
        group::end_processes(std::slice::from_ref(&self.group.memory));
        let _ = self.process.wait();
    }
}
