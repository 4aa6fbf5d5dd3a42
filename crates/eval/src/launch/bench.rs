//! Everything that a run of launches stands on, each thing registered to be undone before it is done.

use super::activity::Instruments;
use super::cache::SequencePages;
use super::detected::Detector;
use super::held::{Circumstance, Held};
use super::picture::Desk;
use super::preload::Preload;
use super::prepage::{Helps, Prepage};
use super::profiles::Known;
use super::programs::Prepared;
use crate::circumstances;
use crate::display::screen::Screen;
use crate::display::session::Session;
use crate::display::windows::Display;
use crate::error::Result;
use crate::ground::Ground;
use crate::group::{self, Group};
use crate::log::log_path;
use crate::restore::Restorer;
use crate::throttle::Throttle;
use prepage_core::identity::AppId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The bench of one run.
#[derive(Debug)]
pub struct Bench {
    /// The ground.
    pub ground: Ground,
    /// The group in which everything that is measured runs, each program in one of its own below it, as a desktop starts
    /// it: for prepage's service it is an application, and its processes no part of ours.
    pub group: Group,
    /// The display, where a program shows a window.
    pub desk: Option<Desk>,
    /// prepage.
    pub prepage: Prepage,
    /// prepage's service, where it is measured too.
    pub detector: Option<Detector>,
    /// The daemon `preload`, where it is measured too.
    pub preload: Option<Preload>,
    session_group: Group,
    session: Option<Session>,
}

/// A program whose launch sequence is known.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The program.
    pub program: Prepared,
    /// What prepage calls it.
    pub app: AppId,
    /// What prepage has learned of it.
    pub known: Known,
    /// The pages of its sequence.
    pub pages: SequencePages,
}

/// The group of what is measured and of what helps it, which the disk is held back for.
const MEASURED: &str = "launch";

/// The group of the programs.
const PROGRAMS: &str = "launch/programs";

impl Bench {
    /// Makes directories and groups and sets the disk up.
    pub fn set_up(
        prepage_bin: Option<&Path>,
        throttle: Option<Throttle>,
        helps: Helps,
        restorer: &mut Restorer,
    ) -> Result<Self> {
        let mut ground = Ground::lay(None, restorer)?;
        if let Some(throttle) = throttle {
            ground.hold_disk(MEASURED, throttle, restorer)?;
        }
        let session_group = ground.group("session")?;
        let group = ground.group(PROGRAMS)?;
        Ok(Self {
            prepage: Prepage::of(prepage_bin, ground.places.disk.join("prepage"), helps)?,
            detector: None,
            preload: None,
            ground,
            group,
            desk: None,
            session_group,
            session: None,
        })
    }

    /// Starts the display.
    pub fn start_session(&mut self) -> Result<()> {
        let session = Session::start(&self.ground.places, &self.session_group)?;
        self.desk = Some(Desk {
            display: Display::connect(&session.display)?,
            screen: Screen::open(&self.ground.places.framebuffer())?,
        });
        self.session = Some(session);
        Ok(())
    }

    /// CPU time of display server and window manager, in microseconds.
    pub fn session_cpu_us(&self) -> u64 {
        self.session_group.cpu_us()
    }

    /// Makes the group of prepage's service.
    pub fn service_group(&self) -> Result<Group> {
        self.ground.group(&format!("{MEASURED}/prepage"))
    }

    /// CPU time of the programs, of what launched and of what helped them, in microseconds.
    pub fn measured_cpu_us(&self) -> u64 {
        let service = self.detector.as_ref().map(|d| d.group().cpu_us());
        self.group.cpu_us() + service.unwrap_or(0)
    }

    fn environment(&self, program: &Prepared) -> Vec<(String, OsString)> {
        let mut environment = match &self.session {
            Some(session) if program.window.is_some() => session.environment(&self.ground.places),
            _ => self.ground.places.environment(),
        };
        let own = program.environment.iter();
        environment.extend(own.map(|&(name, value)| (name.to_owned(), value.into())));
        environment
    }

    /// What tells when processors and disk are busy.
    pub fn instruments(&self) -> Instruments {
        let disk = circumstances::disk_directory(&self.ground.places.disk);
        Instruments {
            disk_inflight: disk.map(|disk| disk.join("inflight")),
        }
    }

    /// The file to which a program's messages go.
    pub fn log(&self, program: &Prepared) -> PathBuf {
        log_path(&self.ground.places.disk, &program.name)
    }

    /// Starts a command as `program` is started, up to its exec.
    pub fn hold(&self, program: &Prepared, command: &[OsString]) -> Result<Held> {
        let group = self.ground.group(&format!("{PROGRAMS}/{}", program.name))?;
        Held::start(
            command,
            Circumstance {
                procs: &group.procs_files(),
                environment: &self.environment(program),
                directory: &program.directory,
                log: &self.log(program),
            },
        )
    }

    /// Ends whatever the measured command left running.
    pub fn end_processes(&self) {
        group::end_processes(std::slice::from_ref(&self.group.memory));
    }
}
