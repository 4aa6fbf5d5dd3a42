//! Puts the bench of a run together, each thing registered to be undone before it is done.

use super::Options;
use super::bench::{Bench, Desk, Running, launch};
use super::pressure::Others;
use crate::apps::{App, versions::versions};
use crate::circumstances;
use crate::disk_speed::sequential_bytes_per_s;
use crate::display::input::Keyboard;
use crate::display::other_window::OtherWindow;
use crate::display::screen::Screen;
use crate::display::session::Session;
use crate::display::windows::Display;
use crate::error::Result;
use crate::ground::Ground;
use crate::group::Group;
use crate::mthp;
use crate::processes::Roles;
use crate::reclaim;
use crate::record::{FORMAT, Machine, Run, Setting};
use crate::restore::Restorer;
use crate::service::{self, Service};
use crate::swap::Swap;

/// The group of the applications, their competitors and the service: they share one limit and one disk.
const SHARED: &str = "shared";

/// Starts the session and these applications, and says under which circumstances; `all` are those of the whole run. The
/// disk's speed takes a while to measure: only where it `is_first` of the run, whose circumstances are recorded.
pub fn set_up(
    options: &Options,
    all: &[App],
    apps: &[App],
    is_first: bool,
    restorer: &mut Restorer,
) -> Result<(Bench, Vec<Running>, Run)> {
    let ground = lay_ground(options, restorer)?;
    // Before anything runs that reads.
    let speed = || sequential_bytes_per_s(&ground.places.disk);
    let disk_read_bytes_per_s = is_first.then(speed).flatten();
    let session_group = ground.group("session")?;
    // The applications, their competitors and the service share one limit; display and instruments do not.
    let shared_group = ground.group(SHARED)?;
    if let Some(limit) = options.parameters.limit_bytes {
        shared_group.set_limit_bytes(limit)?;
    }
    let names: Vec<&str> = apps.iter().map(|app| app.name).collect();
    eprintln!("starting the session and {} ...", names.join(", "));
    let applications = versions(all, &ground.places.home());
    let session = Session::start(&ground.places, &session_group)?;
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
    let mut versions = circumstances::versions(service.as_ref().map(Service::version));
    versions.extend(applications);
    let run = Run {
        format: FORMAT,
        time_unix_s: circumstances::time_unix_s(),
        parameters: options.parameters.clone(),
        machine: Machine {
            disk_read_bytes_per_s,
            ..ground.machine()
        },
        versions,
    };
    let bench = Bench {
        shared_group,
        session_group,
        display,
        keyboard,
        screen,
        other,
        session_roles: Roles::default(),
        service,
        cores: run.machine.cores,
        disk_stat: circumstances::disk_directory(&ground.places.disk).map(|disk| disk.join("stat")),
        others,
        _held: session.processes,
    };
    for app in &running {
        bench.focus_content(app)?;
    }
    Ok((bench, running, run))
}

/// The ground with the factors of the run.
fn lay_ground(options: &Options, restorer: &mut Restorer) -> Result<Ground> {
    let factors = &options.parameters.factors;
    let swap = Swap {
        kind: factors.swap,
        compressor: factors.compressor.clone(),
        bytes: options.swap_bytes,
    };
    mthp::set(factors.mthp, restorer)?;
    let mut ground = Ground::lay(Some(&swap), restorer)?;
    if let Some(throttle) = factors.throttle {
        ground.hold_disk(SHARED, throttle, restorer)?;
    }
    Ok(ground)
}

fn sharing_group(ground: &Ground, part: &str) -> Result<Group> {
    ground.group(&format!("{SHARED}/{part}"))
}

fn start_app(options: &Options, app: &App, ground: &Ground, desk: &Desk<'_>) -> Result<Running> {
    let group = sharing_group(ground, app.name)?;
    let (process, window) = launch(app, "measured", options.parameters.seed, desk, &group)?;
    Ok(Running {
        app: *app,
        group,
        window,
        roles: Roles::default(),
        tracked_as: String::new(),
        observed: Vec::new(),
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
    let group = sharing_group(ground, "others")?;
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
    let group = sharing_group(ground, "service")?;
    let config = options.parameters.prepage_config.as_deref();
    let config = config.unwrap_or_default();
    let service = Service::start(&directory, &ground.places, session, group, config)?;
    for app in apps {
        app.tracked_as = service.track(&app.group)?;
    }
    Ok(Some(service))
}
