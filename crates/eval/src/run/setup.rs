//! Puts the bench of a run together, each thing registered to be undone before it is done.

use super::Options;
use super::bench::{Bench, Desk, Running, launch};
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
use std::collections::BTreeMap;
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
    shared: Group,
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
        // The applications, their competitors and the service share one limit; display and instruments do not.
        let shared = Group::create(&hierarchies, &format!("{name}/shared"))?;
        if let Some(limit) = options.parameters.limit_bytes {
            shared.set_limit_bytes(limit)?;
        }
        Ok(Self {
            name,
            places,
            hierarchies,
            session,
            shared,
        })
    }

    fn sharing_group(&self, part: &str) -> Result<Group> {
        Group::create(&self.hierarchies, &format!("{}/shared/{part}", self.name))
    }
}

/// Starts the session and these applications, and says under which circumstances; `all` are those of the whole run.
pub fn set_up(
    options: &Options,
    all: &[App],
    apps: &[App],
    restorer: &mut Restorer,
) -> Result<(Bench, Vec<Running>, Run)> {
    let ground = Ground::lay(options, restorer)?;
    let names: Vec<&str> = apps.iter().map(|app| app.name).collect();
    eprintln!("starting the session and {} ...", names.join(", "));
    let mut versions = versions(all, &ground.places.home());
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
    // Whatever is cached already is charged to somebody else and would not go when an application is reclaimed.
    reclaim::drop_page_cache()?;
    let mut running = apps
        .iter()
        .map(|app| start_app(options, app, &ground, &desk))
        .collect::<Result<Vec<_>>>()?;
    let others = start_others(options, apps, &ground, &desk)?;
    let service = start_service(options, &ground, &session, &mut running)?;
    if let Some(service) = &service {
        versions.insert("prepage".into(), service.version());
    }
    let run = circumstances_of(options, &ground, versions);
    let bench = Bench {
        shared_group: ground.shared,
        session_group: ground.session,
        display,
        keyboard,
        screen,
        other,
        session_roles: Roles::default(),
        service,
        cores: run.machine.cores,
        others,
        _held: session.processes,
    };
    for app in &running {
        bench.focus_content(app)?;
    }
    Ok((bench, running, run))
}

fn circumstances_of(options: &Options, ground: &Ground, versions: BTreeMap<String, String>) -> Run {
    let time_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    Run {
        format: FORMAT,
        time_unix_s,
        parameters: options.parameters.clone(),
        machine: circumstances::machine(&ground.hierarchies, &ground.places.disk),
        versions,
    }
}

fn start_app(options: &Options, app: &App, ground: &Ground, desk: &Desk<'_>) -> Result<Running> {
    let group = ground.sharing_group(app.name)?;
    let (process, window) = launch(app, "measured", options.parameters.seed, desk, &group)?;
    Ok(Running {
        app: *app,
        group,
        window,
        roles: Roles::default(),
        tracked_as: String::new(),
        left: None,
        _process: process,
    })
}

/// In the pressure setting, the others; only one application is measured there at a time.
fn start_others(
    options: &Options,
    apps: &[App],
    ground: &Ground,
    desk: &Desk<'_>,
) -> Result<Option<Others>> {
    if options.parameters.setting != Setting::Pressure {
        return Ok(None);
    }
    let group = ground.sharing_group("others")?;
    let hog_mib = options.parameters.hog_mib.unwrap_or(0);
    Others::start(&apps[0], options.parameters.seed, hog_mib, desk, group).map(Some)
}

fn start_service(
    options: &Options,
    ground: &Ground,
    session: &Session,
    apps: &mut [Running],
) -> Result<Option<Service>> {
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
    for app in apps {
        app.tracked_as = service.track(&app.group)?;
    }
    Ok(Some(service))
}
