//! Everything that a measurement stands on: the session, the application in its group, the service, the instruments.

use super::pressure::Others;
use crate::apps::given::current_dir;
use crate::apps::{App, Content, READY_LIMIT_MS};
use crate::clock::{now_ns, sleep_ms};
use crate::display::input::Keyboard;
use crate::display::other_window::OtherWindow;
use crate::display::screen::Screen;
use crate::display::session::{Places, Session, command_in, log_file};
use crate::display::windows::Display;
use crate::display::{SCREEN_HEIGHT, SCREEN_WIDTH};
use crate::error::{Context, Error, Result};
use crate::ground::Ground;
use crate::group::Group;
use crate::log::{log_path, with_last_words_of_application};
use crate::processes::Roles;
use crate::record::Writer;
use crate::service::Service;
use crate::site::Site;
use crate::tiles::Tiles;
use prepage_core::replay::RecordedSwitch;
use prepage_kernel::process;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use x11rb::protocol::xproto::Window;

/// How long an application may go on computing after it was launched or clicked at, in milliseconds.
pub const IDLE_LIMIT_MS: u64 = 20_000;

/// The bench of one run.
#[derive(Debug)]
pub struct Bench {
    /// The group above those of the applications, their competitors and the service.
    pub shared_group: Group,
    /// The group of display server and window manager.
    pub session_group: Group,
    /// The connection to the display.
    pub display: Display,
    /// The keyboard.
    pub keyboard: Keyboard,
    /// The picture.
    pub screen: Screen,
    /// The other application.
    pub other: OtherWindow,
    /// Roles of the session's processes.
    pub session_roles: Roles,
    /// prepage, where a mode needs it.
    pub service: Option<Service>,
    /// Where what prepage recorded of the switches of mode observe is kept, if it is.
    pub switches: Option<Writer>,
    /// The counters of the disk under the applications' files.
    pub disk_stat: Option<PathBuf>,
    /// The others, in the pressure setting.
    pub others: Option<Others>,
    /// Held: the processes of the session.
    pub _held: Vec<Child>,
    /// What everything stands on; it holds the disk back as long as it is there.
    pub ground: Ground,
}

/// One measured application that runs.
#[derive(Debug)]
pub struct Running {
    /// The application.
    pub app: App,
    /// Its group.
    pub group: Group,
    /// Its window.
    pub window: Window,
    /// Roles of its processes.
    pub roles: Roles,
    /// What prepage calls it, where prepage takes part.
    pub tracked_as: String,
    /// The switches that prepage observed in mode observe, at most [`super::footprint::SWITCHES_MAX`].
    pub observed: Vec<RecordedSwitch>,
    /// How it was left, in the setting together.
    pub left: Option<Left>,
    /// Held: its first process.
    pub _process: Child,
}

impl Running {
    /// Whether none of its processes is left but such as wait to be reaped.
    pub fn has_ended(&self) -> bool {
        let lives = |pid: &i32| process::stat(*pid).is_ok_and(|stat| stat.state != 'Z');
        !self.group.pids().iter().any(lives)
    }

    /// Says that it has ended, with its last words.
    pub fn how_it_ended(&self, places: &Places) -> String {
        let log = log_path(&places.disk, &log_name(&self.app, MEASURED));
        with_last_words_of_application("it has ended", &log)
    }
}

/// How an application was left.
#[derive(Debug)]
pub struct Left {
    /// Its picture.
    pub picture: Tiles,
    /// What had been done in it.
    pub context: Vec<String>,
}

/// What the instance of an application is called that is switched to.
pub const MEASURED: &str = "measured";

/// Where applications are started.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    /// The directories.
    pub places: &'a Places,
    /// The session.
    pub session: &'a Session,
    /// Its display.
    pub display: &'a Display,
}

/// An instance of an application, ready to be started.
#[derive(Debug)]
pub struct Instance {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// What it has for itself: its content is there.
    pub own: PathBuf,
    /// Its user's home directory.
    pub home: PathBuf,
    /// Its current directory.
    pub directory: PathBuf,
}

impl Instance {
    /// Makes its content. Somebody's own command runs where it was given, and nothing but its home keeps two instances of it
    /// apart.
    pub fn make(app: &App, name: &str, seed: u64, places: &Places) -> Result<Self> {
        let own = places.disk.join(format!("{}-{name}", app.name));
        std::fs::create_dir_all(&own).context("make", own.display())?;
        let site = Site {
            directory: &own,
            seed,
        };
        let command = app.content.prepare(&site)?;
        let (home, directory) = match app.content {
            Content::Made(_) => (places.home(), places.home()),
            Content::Given(_) => {
                places.make_home(&own)?;
                (own.clone(), current_dir()?)
            }
        };
        Ok(Self {
            command,
            own,
            home,
            directory,
        })
    }
}

/// What the messages of an instance of an application are kept under.
fn log_name(app: &App, instance: &str) -> String {
    format!("{}-{instance}", app.name)
}

/// Starts an application in a group and waits until its window can be used.
pub fn launch(
    app: &App,
    instance: &str,
    seed: u64,
    desk: &Desk<'_>,
    group: &Group,
) -> Result<(Child, Window)> {
    let &Desk {
        places,
        session,
        display,
    } = desk;
    let made = Instance::make(app, instance, seed, places)?;
    let (program, arguments) = made.command.split_first().expect("a command has a program");
    let log = log_name(app, instance);
    let before = display.windows()?;
    let mut process = command_in(group, &program.to_string_lossy())?
        .args(arguments)
        .env_clear()
        .envs(session.environment(places))
        .envs(app.environment.iter().copied())
        .env("HOME", &made.home)
        .current_dir(&made.directory)
        .stdout(Stdio::null())
        .stderr(log_file(&places.disk, &log)?)
        .spawn()
        .context("start", app.name)?;
    let is_its = |display: &Display, window| {
        Ok(!before.contains(&window)
            && display.class(window)?.contains(app.window_class)
            && display.title(window)?.contains(app.ready_title))
    };
    // What it has launched may go on.
    let mut may_come = || !matches!(process.try_wait(), Ok(Some(_))) || !group.pids().is_empty();
    let mut wait = |display: &Display| {
        let first = display.wait_for_window(READY_LIMIT_MS, &mut may_come, is_its)?;
        if !app.ready_title.is_empty() {
            return Ok(first);
        }
        // No title says that it stays: it may be a splash screen or a question, which another one follows.
        group_becomes_idle(group, IDLE_LIMIT_MS);
        let active = display.active()?;
        match display.windows()?.contains(&active) && is_its(display, active)? {
            true => Ok(active),
            false => display.wait_for_window(READY_LIMIT_MS, &mut may_come, is_its),
        }
    };
    let window = wait(display).map_err(|e: Error| {
        let log = log_path(&places.disk, &log);
        Error::new("launch", app.name, with_last_words_of_application(e, &log))
    })?;
    Ok((process, window))
}

impl Bench {
    /// Presses keys one after the other, as a person does.
    pub fn type_keys(&self, keys: &[&str]) -> Result<()> {
        const BETWEEN_MS: u64 = 60;
        for key in keys {
            self.keyboard
                .press(&self.display.connection, &self.keyboard.chord(key)?)?;
            sleep_ms(BETWEEN_MS);
        }
        Ok(())
    }

    /// Puts the keyboard focus into an application's content and the pointer where it touches nothing.
    pub fn focus_content(&self, running: &Running) -> Result<()> {
        self.activate(running)?;
        if running.app.click_first {
            let middle = (SCREEN_WIDTH as i16 / 2, SCREEN_HEIGHT as i16 / 2);
            self.keyboard
                .click(&self.display.connection, middle.0, middle.1)?;
        }
        self.keyboard.point(
            &self.display.connection,
            SCREEN_WIDTH as i16 - 1,
            SCREEN_HEIGHT as i16 - 1,
        )?;
        group_becomes_idle(&running.group, IDLE_LIMIT_MS);
        Ok(())
    }

    /// Goes to an application's window.
    ///
    /// # Errors
    /// Where it does not become the active one; it may be gone.
    pub fn activate(&self, running: &Running) -> Result<()> {
        let activated = self.display.activate_and_wait(running.window);
        activated.or_else(|e| self.check_window(running).and(Err(e)))
    }

    /// Checks that an application's window is still there.
    ///
    /// # Errors
    /// Where it is gone: nothing more can be measured.
    pub fn check_window(&self, running: &Running) -> Result<()> {
        if self.display.windows()?.contains(&running.window) {
            return Ok(());
        }
        let name = running.app.name;
        let cause = if running.has_ended() {
            running.how_it_ended(&self.ground.places)
        } else {
            "its window is gone: it shows another one (name what stays by --window-title)".into()
        };
        Err(Error::new("switch to", name, cause))
    }

    /// The service's group, if there is one.
    pub fn service_group(&self) -> Option<&Group> {
        self.service.as_ref().map(Service::group)
    }
}

/// Waits until a group uses next to no CPU time.
pub fn group_becomes_idle(group: &Group, limit_ms: u64) -> bool {
    const WINDOW_MS: u64 = 50;
    const IDLE_US: u64 = 3_000;
    const WINDOWS: u32 = 2;
    let until = now_ns() + limit_ms * 1_000_000;
    let mut quiet = 0;
    let mut before = group.cpu_us();
    while now_ns() < until {
        sleep_ms(WINDOW_MS);
        let now = group.cpu_us();
        quiet = if now.saturating_sub(before) <= IDLE_US {
            quiet + 1
        } else {
            0
        };
        if quiet == WINDOWS {
            return true;
        }
        before = now;
    }
    false
}
