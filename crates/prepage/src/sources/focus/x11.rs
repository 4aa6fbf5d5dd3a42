//! Window focus under X11: the window manager writes the active window to a property of the root window.

use super::process;
use crate::error::{Error, Result};
use std::collections::HashMap;
use x11rb::connection::Connection;
use x11rb::errors::{ConnectError, ConnectionError, ReplyError};
use x11rb::protocol::Event;
use x11rb::protocol::res::{ClientIdMask, ClientIdSpec, ConnectionExt as _};
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ChangeWindowAttributesAux, ConnectionExt as _, EventMask, Window,
};
use x11rb::rust_connection::RustConnection;

/// Most windows whose process is remembered.
const WINDOWS_MAX: usize = 1024;

/// Most windows of the window manager's list looked at.
const CLIENTS_MAX: u32 = 1024;

/// The properties that are read.
#[derive(Clone, Copy, Debug)]
struct Atoms {
    active_window: Atom,
    client_list: Atom,
    window_pid: Atom,
}

/// A connection to the X server.
#[derive(Debug)]
pub struct FocusWatch {
    connection: RustConnection,
    root: Window,
    atoms: Atoms,
    has_client_ids: bool,
    /// The processes of windows, asked for when a window appears, so that its focus needs one answer only.
    pids: HashMap<Window, i32>,
    active: Window,
}

/// Connects, and watches the properties of the root window, which is returned too.
///
/// # Errors
/// Where there is no X server, or it refuses.
pub fn connect(display: Option<&str>) -> Result<(RustConnection, Window)> {
    let (connection, screen) = x11rb::connect(display)?;
    let root = connection.setup().roots[screen].root;
    let events = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
    connection
        .change_window_attributes(root, &events)?
        .check()?;
    Ok((connection, root))
}

/// The atoms of these names.
///
/// # Errors
/// Where the X server refuses.
pub fn atoms<const N: usize>(connection: &RustConnection, names: [&str; N]) -> Result<[Atom; N]> {
    let asked = names.map(|name| connection.intern_atom(false, name.as_bytes()));
    let mut atoms = [x11rb::NONE; N];
    for (atom, asked) in atoms.iter_mut().zip(asked) {
        *atom = asked?.reply()?.atom;
    }
    Ok(atoms)
}

/// The numbers in a window's property, so many at most, where it has that property.
///
/// # Errors
/// As the X server answers.
pub fn numbers(
    connection: &RustConnection,
    window: Window,
    property: Atom,
    kind: AtomEnum,
    max: u32,
) -> std::result::Result<Option<Vec<u32>>, ReplyError> {
    let property = connection.get_property(false, window, property, kind, 0, max)?;
    Ok(property.reply()?.value32().map(Iterator::collect))
}

impl FocusWatch {
    /// Watches by this connection, as [`connect`] makes it.
    ///
    /// # Errors
    /// Where the X server refuses.
    pub fn open(connection: RustConnection, root: Window) -> Result<Self> {
        let names = ["_NET_ACTIVE_WINDOW", "_NET_CLIENT_LIST", "_NET_WM_PID"];
        let [active_window, client_list, window_pid] = atoms(&connection, names)?;
        let atoms = Atoms {
            active_window,
            client_list,
            window_pid,
        };
        // Version 1.2 knows the processes of clients.
        let version = connection.res_query_version(1, 2)?.reply();
        let has_client_ids = version.is_ok_and(|v| (v.server_major, v.server_minor) >= (1, 2));
        let mut watch = Self {
            connection,
            root,
            atoms,
            has_client_ids,
            pids: HashMap::new(),
            active: x11rb::NONE,
        };
        watch.active = watch.window_in(atoms.active_window)?;
        watch.learn_windows()?;
        Ok(watch)
    }

    /// Waits for a window to get the focus, and returns its process.
    ///
    /// # Errors
    /// Where the X server ended or refuses.
    pub fn next_focus(&mut self) -> Result<i32> {
        loop {
            let event = self.connection.wait_for_event()?;
            match event {
                Event::PropertyNotify(e) if e.atom == self.atoms.active_window => {
                    let window = self.window_in(self.atoms.active_window)?;
                    let changed = std::mem::replace(&mut self.active, window) != window;
                    if changed && let Some(pid) = self.pid_of(window)? {
                        return Ok(pid);
                    }
                }
                Event::PropertyNotify(e) if e.atom == self.atoms.client_list => {
                    self.learn_windows()?
                }
                Event::DestroyNotify(e) => drop(self.pids.remove(&e.window)),
                _ => {}
            }
        }
    }

    fn window_in(&self, property: Atom) -> Result<Window> {
        let windows = numbers(&self.connection, self.root, property, AtomEnum::WINDOW, 1)?;
        let window = windows.as_deref().and_then(<[Window]>::first);
        Ok(window.copied().unwrap_or(x11rb::NONE))
    }

    /// Asks for the processes of all windows that the window manager lists and that are not known yet.
    fn learn_windows(&mut self) -> Result<()> {
        let (list, kind) = (self.atoms.client_list, AtomEnum::WINDOW);
        let windows: Vec<Window> =
            match numbers(&self.connection, self.root, list, kind, CLIENTS_MAX) {
                Ok(windows) => windows.unwrap_or_default(),
                Err(error) => return unless_gone(error).map(|_: Option<()>| ()),
            };
        self.pids.retain(|window, _| windows.contains(window));
        for window in windows {
            self.pid_of(window)?;
        }
        Ok(())
    }

    /// The process of a window; `None` for no window, one that is gone, and one of another machine.
    fn pid_of(&mut self, window: Window) -> Result<Option<i32>> {
        if window == x11rb::NONE {
            return Ok(None);
        }
        if let Some(&pid) = self.pids.get(&window) {
            return Ok(Some(pid));
        }
        let pid = match self.client_pid(window)? {
            Some(pid) => Some(pid),
            None => self.claimed_pid(window)?,
        };
        if let Some(pid) = pid {
            if self.pids.len() >= WINDOWS_MAX {
                self.pids.clear();
            }
            // Its end is told by the window itself: numbers of windows are used again.
            let events = ChangeWindowAttributesAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
            self.connection
                .change_window_attributes(window, &events)?
                .ignore_error();
            self.connection.flush()?;
            self.pids.insert(window, pid);
        }
        Ok(pid)
    }

    /// As the X server knows it from the kernel.
    fn client_pid(&self, window: Window) -> Result<Option<i32>> {
        if !self.has_client_ids {
            return Ok(None);
        }
        let asked = [ClientIdSpec {
            client: window,
            mask: ClientIdMask::LOCAL_CLIENT_PID,
        }];
        let ids = match self.connection.res_query_client_ids(&asked)?.reply() {
            Ok(reply) => reply.ids,
            Err(error) => return unless_gone(error),
        };
        let local = ids
            .iter()
            .find(|id| id.spec.mask == ClientIdMask::LOCAL_CLIENT_PID);
        let pid = local.and_then(|id| id.value.first());
        Ok(pid.copied().and_then(process))
    }

    /// As the client says.
    fn claimed_pid(&self, window: Window) -> Result<Option<i32>> {
        let (property, kind) = (self.atoms.window_pid, AtomEnum::CARDINAL);
        match numbers(&self.connection, window, property, kind, 1) {
            Ok(pids) => Ok(pids.and_then(|pids| process(*pids.first()?))),
            Err(error) => unless_gone(error),
        }
    }
}

/// An error of the X server is about a window that is gone meanwhile; one of the connection is an error.
fn unless_gone<T>(error: ReplyError) -> Result<Option<T>> {
    match error {
        ReplyError::X11Error(_) => Ok(None),
        error => Err(error.into()),
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::NoDisplay(format!("the X server: {error}"))
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::IoError(error) => {
                Self::DisplayEnded(format!("the X server ended: {error}"))
            }
            error => Self::Display(format!("the X server: {error}")),
        }
    }
}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::ConnectionError(error) => error.into(),
            error => Self::Display(format!("the X server: {error}")),
        }
    }
}
