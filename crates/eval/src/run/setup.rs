//! Puts the bench of a run together, each thing registered to be undone before it is done.

use super::Options;
use super::bench::{Bench, Desk, launch};
use super::pressure::Others;
use super::swap;
use crate::apps::{App, versions::versions};
use crate::circumstances;
use crate::display::input::Keyboard;
use crate::display::other_window::OtherWindow;
use crate::display::screen::Screen;
use crate::display::session::{Places, Session};
use crate::display::windows::Display;
use crate::error::Result;
use crate::group::{Group, Hierarchies};
use crate::processes::Roles;
use crate::reclaim;
use crate::record::{FORMAT, Run, Setting};
use crate::restore::{Restorer, Undo};
use crate::service::{self, Service};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The kernel's default, which a person's machine has.
pub const READ_AHEAD_KB: &str = "128";

/// What everything stands on: directories, swap and control groups.
struct Ground {
    name: String,
    places: Places,
    hierarchies: Hierarchies,
    session: Group,
    app: Group,
}

impl Ground {
    fn lay(options: &Options, restorer: &mut Restorer) -> Result<Self> {
        let name = format!("prepage-eval-{}", std::process::id());
        let places = Places {
            disk: PathBuf::from("/var/tmp").join(&name),
            memory: PathBuf::from("/dev/shm").join(&name),
        };
        for directory in [&places.disk, &places.memory] {
            restorer.register(&Undo::Directory(directory.clone()))?;
        }
        places.make()?;
        swap::ensure(restorer, &options.compressor, options.zram_bytes)?;
        if let Some(queue) = circumstances::disk_queue(&places.disk) {
            restorer.change_value(queue.join("read_ahead_kb"), READ_AHEAD_KB)?;
        }
        let hierarchies = Hierarchies::find()?;
        restorer.register(&Undo::Groups(hierarchies.to_remove(&name)))?;
        let session = Group::create(&hierarchies, &format!("{name}/session"))?;
        // The application, its competitors and the service share one limit; display and instruments do not.
        let shared = Group::create(&hierarchies, &format!("{name}/shared"))?;
        let app = Group::create(&hierarchies, &format!("{name}/shared/app"))?;
        if let Some(limit) = options.parameters.limit_bytes {
            shared.set_limit_bytes(limit)?;
        }
        Ok(Self {
            name,
            places,
            hierarchies,
            session,
            app,
        })
    }

    fn sharing_group(&self, part: &str) -> Result<Group> {
        Group::create(&self.hierarchies, &format!("{}/shared/{part}", self.name))
    }
}

/// Starts everything and says under which circumstances.
pub fn set_up(options: &Options, app: &App, restorer: &mut Restorer) -> Result<(Bench, Run)> {
    let ground = Ground::lay(options, restorer)?;
    eprintln!("starting the session and {} ...", app.name);
    let mut versions = versions(app);
    let session = Session::start(&ground.places, &ground.session)?;
    let display = Display::connect(&session.display)?;
    let desk = Desk {
        places: &ground.places,
        session: &session,
        display: &display,
    };
    let keyboard = Keyboard::of(&display.connection, display.root)?;
    let screen = Screen::open(&ground.places.framebuffer())?;
    let other = OtherWindow::open(&display)?;
    // Whatever is cached already is charged to somebody else and would not go when the application is reclaimed.
    reclaim::drop_page_cache()?;
    let (process, window) = launch(app, "measured", options.parameters.seed, &desk, &ground.app)?;
    let others = start_others(options, app, &ground, &desk)?;
    let service = start_service(options, &ground, &session)?;
    if let Some(service) = &service {
        versions.insert("prepage".into(), service.version());
    }
    let machine = circumstances::machine(&ground.hierarchies, &ground.places.disk);
    let time_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let parameters = options.parameters.clone();
    let run = Run {
        format: FORMAT,
        time_unix_s,
        parameters,
        machine,
        versions,
    };
    let mut held = session.processes;
    held.push(process);
    let bench = Bench {
        app: *app,
        app_group: ground.app,
        session_group: ground.session,
        display,
        keyboard,
        screen,
        other,
        window,
        roles: Roles::default(),
        session_roles: Roles::default(),
        service,
        cores: run.machine.cores,
        others,
        _held: held,
    };
    bench.focus_content()?;
    Ok((bench, run))
}

fn start_others(
    options: &Options,
    app: &App,
    ground: &Ground,
    desk: &Desk<'_>,
) -> Result<Option<Others>> {
    if options.parameters.setting == Setting::Reclaimed {
        return Ok(None);
    }
    let group = ground.sharing_group("others")?;
    let hog_mib = options.parameters.hog_mib.unwrap_or(0);
    Others::start(app, options.parameters.seed, hog_mib, desk, group).map(Some)
}

fn start_service(options: &Options, ground: &Ground, session: &Session) -> Result<Option<Service>> {
    if !options
        .parameters
        .modes
        .iter()
        .any(|mode| mode.needs_prepage())
    {
        return Ok(None);
    }
    let directory = options
        .prepage_bin
        .clone()
        .map_or_else(service::default_directory, Ok)?;
    let group = ground.sharing_group("service")?;
    let config = options.parameters.prepage_config.as_deref();
    let config = config.unwrap_or_default();
    let service = Service::start(&directory, &ground.places, session, group, config)?;
    service.track(&ground.app)?;
    Ok(Some(service))
}
