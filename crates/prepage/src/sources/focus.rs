//! Window focus: the process of the window that a person turns to. Runs in the unprivileged agent, never in the service.

mod sway;
mod x11;

use crate::error::Result;

/// A connection to what knows the focus of a session.
#[derive(Debug)]
pub enum FocusWatch {
    /// An X server. XWayland's too: of what runs by it.
    X11(Box<x11::FocusWatch>),
    /// sway.
    Sway(sway::FocusWatch),
}

impl FocusWatch {
    /// Connects to this X display; without one, to sway where the session is one of its (`SWAYSOCK`), and else to `DISPLAY`.
    ///
    /// # Errors
    /// Where nobody is there, or refuses.
    pub fn open(display: Option<&str>) -> Result<Self> {
        let x11 = || x11::FocusWatch::open(display).map(|watch| Self::X11(watch.into()));
        let socket = std::env::var_os("SWAYSOCK").filter(|_| display.is_none());
        match socket.map(|path| sway::FocusWatch::open(path.as_ref())) {
            None => x11(),
            Some(Ok(watch)) => Ok(Self::Sway(watch)),
            // It may be of a session that has ended.
            Some(Err(error)) => x11().map_err(|_| error),
        }
    }

    /// Waits for a window to get the focus, and returns its process.
    ///
    /// # Errors
    /// [`crate::error::Error::DisplayEnded`] with the session; others where what is said cannot be understood.
    pub fn next_focus(&mut self) -> Result<i32> {
        match self {
            Self::X11(watch) => watch.next_focus(),
            Self::Sway(watch) => watch.next_focus(),
        }
    }
}

/// The process of a number that a window has for it; 0 is none.
fn process(number: impl TryInto<i32>) -> Option<i32> {
    number.try_into().ok().filter(|&pid| pid > 0)
}
