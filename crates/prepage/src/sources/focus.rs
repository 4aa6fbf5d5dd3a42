//! Window focus: the process of the window that a person turns to. Runs in the unprivileged agent, never in the service.

mod gamescope;
mod plasma;
mod sway;
mod x11;

use crate::error::{Error, Result};
use std::env::var_os;

/// A connection to what knows the focus of a session.
#[derive(Debug)]
pub enum FocusWatch {
    /// An X server. XWayland's too: of what runs by it.
    X11(Box<x11::FocusWatch>),
    /// gamescope, by the first of its X servers.
    Gamescope(Box<gamescope::FocusWatch>),
    /// sway.
    Sway(sway::FocusWatch),
    /// KWin.
    Plasma(Box<plasma::FocusWatch>),
}

impl FocusWatch {
    /// Connects to this X display; without one, to the session's compositor where that tells the focus, sway (`SWAYSOCK`) or KWin
    /// (`WAYLAND_DISPLAY`), and else to `DISPLAY`: then the error says why not to the compositor that the session seems to have.
    ///
    /// # Errors
    /// Where nobody is there, or refuses.
    pub fn open(display: Option<&str>) -> Result<(Self, Option<Error>)> {
        let mut refused = None;
        if display.is_none() {
            for of_session in [Self::sway_of_session, Self::plasma_of_session] {
                match of_session() {
                    None => {}
                    Some(Ok(watch)) => return Ok((watch, None)),
                    // It may be of a session that has ended.
                    Some(Err(error)) => drop(refused.get_or_insert(error)),
                }
            }
        }
        match Self::of_x_server(display) {
            Ok(watch) => Ok((watch, refused)),
            Err(error) => Err(refused.unwrap_or(error)),
        }
    }

    fn of_x_server(display: Option<&str>) -> Result<Self> {
        let (connection, root) = x11::connect(display)?;
        Ok(match gamescope::find(&connection, root)? {
            Some(atoms) => {
                Self::Gamescope(gamescope::FocusWatch::open(connection, root, atoms)?.into())
            }
            None => Self::X11(x11::FocusWatch::open(connection, root)?.into()),
        })
    }

    /// Whether a session is there to connect to, by the variables that it sets.
    pub fn is_in_session() -> bool {
        let variables = ["DISPLAY", "WAYLAND_DISPLAY", "SWAYSOCK"];
        variables.iter().any(|name| var_os(name).is_some())
    }

    fn sway_of_session() -> Option<Result<Self>> {
        let socket = var_os("SWAYSOCK")?;
        Some(sway::FocusWatch::open(socket.as_ref()).map(Self::Sway))
    }

    fn plasma_of_session() -> Option<Result<Self>> {
        var_os("WAYLAND_DISPLAY")?;
        Some(plasma::FocusWatch::open().map(|watch| Self::Plasma(watch.into())))
    }

    /// Who tells the focus.
    pub fn teller(&self) -> &'static str {
        match self {
            Self::X11(_) => "the X server",
            Self::Gamescope(_) => "gamescope",
            Self::Sway(_) => "sway",
            Self::Plasma(_) => "KWin",
        }
    }

    /// Waits for a window to get the focus, and returns its process.
    ///
    /// # Errors
    /// [`Error::DisplayEnded`] with the session; others where what is said cannot be understood.
    pub fn next_focus(&mut self) -> Result<i32> {
        match self {
            Self::X11(watch) => watch.next_focus(),
            Self::Gamescope(watch) => watch.next_focus(),
            Self::Sway(watch) => watch.next_focus(),
            Self::Plasma(watch) => watch.next_focus(),
        }
    }
}

/// The process of a number that a window has for it; 0 is none.
fn process(number: impl TryInto<i32>) -> Option<i32> {
    number.try_into().ok().filter(|&pid| pid > 0)
}
