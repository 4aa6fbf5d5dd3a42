//! Puts the bench of a run together, each thing registered to be undone before it is done.

use super::bench::{Bench, Desk, MEASURED, Running, launch};
use super::launches::{self, Site};
use super::pressure::Others;
use super::{Left, Options, names};
use crate::apps::{App, Content, versions::versions};
use crate::circumstances;
use crate::disk_speed::sequential_bytes_per_s;
use crate::display::input::Keyboard;
use crate::display::other_window::OtherWindow;
use crate::display::screen::Screen;
use crate::display::session::Session;
use crate::display::windows::Display;
use crate::error::{Error, Result};
use crate::ground::Ground;
use crate::group::Group;
use crate::launch::picture;
use crate::mthp;
use crate::processes::Roles;
use crate::reclaim;
use crate::record::{FORMAT, Line, Run, Setting, Slot, Writer};
use crate::restore::Restorer;
use crate::service::{self, Service};
use crate::swap::Swap;

/// The group of the applications, their competitors and the service: they share one limit and one disk.
const SHARED: &str = "shared";

/// A bench on which the applications run.
#[derive(Debug)]
pub struct SetUp {
    /// The bench.
    pub bench: Bench,
    /// The applications.
    pub running: Vec<Running>,
    /// Under which circumstances.
    pub run: Run,
    /// Their launches that were measured before they were started for good.
    pub launched: Vec<Line>,
}

/// Starts the session and the applications of which something is left to measure; `all` are those of the whole run. The
/// disk's speed takes a while to measure: only where it `is_first` of the run, whose circumstances are recorded.
pub fn set_up(
    options: &Options,
    ground: Ground,
    all: &[App],
    left: &Left<'_>,
    is_first: bool,
) -> Result<SetUp> {
    let apps = left.apps;
    // Before anything runs that reads.
    let speed = || sequential_bytes_per_s(&ground.places.disk);
    let disk_read_bytes_per_s = is_first.then(speed).flatten();
    let session_group = ground.group("session")?;
    let shared_group = shared_group(options, &ground)?;
    eprintln!("starting the session and {} ...", names(apps).join(", "));
    let applications = versions(all, &ground.places.home());
    let session = Session::start(&ground.places, &session_group)?;
    let display = Display::connect(&session.display)?;
    let keyboard = Keyboard::of(&display.connection, display.root)?;
    let screen = Screen::open(&ground.places.framebuffer())?;
    let other = OtherWindow::open(&display)?;
    let mut watched = picture::Desk { display, screen };
    let with_group = (&session, &session_group);
    let launched = measure_launches(options, left, &ground, with_group, &mut watched)?;
    let picture::Desk { display, screen } = watched;
    let desk = Desk {
        places: &ground.places,
        session: &session,
        display: &display,
    };
    // Whatever is cached already is charged to somebody else and would not go when an application is reclaimed.
    reclaim::drop_page_cache()?;
    let mut running = apps
        .iter()
        .map(|app| start_app(options, app, &ground, &desk))
        .collect::<Result<Vec<_>>>()?;
    let others = start_others(options, apps, &ground, &desk)?;
    let service = start_service(options, &ground, &session, &mut running)?;
    let mut run = first_line(options, &ground, service.as_ref());
    run.machine.disk_read_bytes_per_s = disk_read_bytes_per_s;
    run.versions.extend(applications);
    let mut bench = Bench {
        shared_group,
        session_group,
        display,
        keyboard,
        screen,
        other,
        session_roles: Roles::default(),
        service,
        // Those of the applications before are there already.
        switches: options
            .switches
            .as_deref()
            .map(|path| Writer::open(path, true))
            .transpose()?,
        disk_stat: circumstances::disk_directory(&ground.places.disk).map(|disk| disk.join("stat")),
        others,
        _held: session.processes,
        ground,
    };
    for app in &mut running {
        match app.app.content {
            Content::Made(_) => bench.focus_content(app)?,
            Content::Given(_) => {
                run.answer = Some(bench.find_answer(app, options.screenshots.as_deref())?);
            }
        }
    }
    Ok(SetUp {
        bench,
        running,
        run,
        launched,
    })
}

/// The applications, their competitors and the service share one limit; display and instruments do not.
fn shared_group(options: &Options, ground: &Ground) -> Result<Group> {
    let group = ground.group(SHARED)?;
    if let Some(limit) = options.parameters.limit_bytes {
        group.set_limit_bytes(limit)?;
    }
    Ok(group)
}

fn first_line(options: &Options, ground: &Ground, service: Option<&Service>) -> Run {
    Run {
        format: FORMAT,
        time_unix_s: circumstances::time_unix_s(),
        parameters: options.parameters.clone(),
        machine: ground.machine(),
        versions: circumstances::versions(service.map(Service::version)),
        answer: None,
    }
}

/// Each application launches in the group in which it then runs.
fn measure_launches(
    options: &Options,
    left: &Left<'_>,
    ground: &Ground,
    (session, session_group): (&Session, &Group),
    desk: &mut picture::Desk,
) -> Result<Vec<Line>> {
    let mut site = Site {
        places: &ground.places,
        session,
        session_group,
        desk,
    };
    let mut lines = Vec::new();
    for app in left.apps {
        let of_app = left.launches.iter().filter(|slot| slot.app == app.name);
        let slots: Vec<Slot> = of_app.cloned().collect();
        let group = sharing_group(ground, app.name)?;
        lines.extend(launches::measure(
            &mut site,
            &options.parameters,
            app,
            &group,
            &slots,
        )?);
    }
    Ok(lines)
}

/// Lays the ground, with the factors of the run.
///
/// # Errors
/// Where the machine cannot be made so.
pub fn lay_ground(options: &Options, restorer: &mut Restorer) -> Result<Ground> {
    let factors = &options.parameters.factors;
    let swap = Swap {
        kind: factors.swap,
        compressor: factors.compressor.clone(),
        bytes: options.swap_bytes,
    };
    mthp::set(factors.mthp, restorer)?;
    let mut ground = Ground::lay(Some(&swap), restorer)?;
    let given = options.parameters.given.as_ref();
    let user = given.and_then(|given| given.user.as_deref());
    ground.places.give_to(user)?;
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
    let (process, window) = launch(app, MEASURED, options.parameters.seed, desk, &group)?;
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
    let modes = options.parameters.modes.iter();
    let mut modes = modes.filter(|mode| mode.needs_prepage()).peekable();
    if modes.peek().is_none() {
        return Ok(None);
    }
    // Where no mode that it helps in is told of the focus, it is never told.
    let is_told = modes.any(|mode| mode.is_told_of_focus());
    let directory = options
        .prepage_bin
        .clone()
        .map_or_else(service::default_directory, Ok)?;
    let group = sharing_group(ground, "service")?;
    let config = options.parameters.prepage_config.as_deref();
    let config = config.unwrap_or_default();
    let service = Service::start(&directory, &ground.places, session, group, config, is_told)?;
    for app in apps {
        if app.has_ended() {
            let said = app.how_it_ended(&ground.places);
            return Err(Error::new("launch", app.app.name, said));
        }
        app.tracked_as = service.track(&app.group)?;
    }
    Ok(Some(service))
}
