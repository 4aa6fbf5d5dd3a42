//! Window focus under gamescope, the compositor of handhelds' gaming mode: applications run in X servers of their own, and on the root
//! window of the first of these it says which window of them all is shown (`GAMESCOPE_FOCUSED_WINDOW`) and of which application and process
//! each is (`GAMESCOPE_FOCUSABLE_WINDOWS`: window, application, process, one after the other). Windows of two servers do have the same
//! number, so Steam's and a game's: `GAMESCOPE_FOCUSED_APP` tells them apart. Of each server's active window, which the versions of
//! 2026 write as well, nothing follows where another server's is shown.

use super::process;
use super::x11::{atoms, numbers};
use crate::error::Result;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{Atom, AtomEnum, Window};
use x11rb::rust_connection::RustConnection;

/// Most numbers of a property that are read.
const NUMBERS_MAX: u32 = 3 * 1024;

/// Numbers of one window in the list.
const FIELDS: usize = 3;

/// The properties that are read.
#[derive(Clone, Copy, Debug)]
pub struct Atoms {
    focused_window: Atom,
    focused_app: Atom,
    windows: Atom,
}

/// The properties of the root window, where it is that of gamescope's first X server.
///
/// # Errors
/// Where the X server refuses.
pub fn find(connection: &RustConnection, root: Window) -> Result<Option<Atoms>> {
    let names = [
        "GAMESCOPE_FOCUSED_WINDOW",
        "GAMESCOPE_FOCUSED_APP",
        "GAMESCOPE_FOCUSABLE_WINDOWS",
    ];
    let [focused_window, focused_app, windows] = atoms(connection, names)?;
    // It is there from gamescope's beginning on, of no window at first.
    let is_there = cardinals(connection, root, windows)?.is_some();
    Ok(is_there.then_some(Atoms {
        focused_window,
        focused_app,
        windows,
    }))
}

/// A connection to gamescope's first X server.
#[derive(Debug)]
pub struct FocusWatch {
    connection: RustConnection,
    root: Window,
    atoms: Atoms,
    focused: Option<i32>,
}

impl FocusWatch {
    /// Watches by this connection, whose root window's properties are watched already, and are these.
    ///
    /// # Errors
    /// Where the X server refuses.
    pub fn open(connection: RustConnection, root: Window, atoms: Atoms) -> Result<Self> {
        let mut watch = Self {
            connection,
            root,
            atoms,
            focused: None,
        };
        watch.focused = watch.focused_pid()?;
        Ok(watch)
    }

    /// Waits for a window of another process to get the focus, and returns that process.
    ///
    /// # Errors
    /// Where the X server ended or refuses.
    pub fn next_focus(&mut self) -> Result<i32> {
        loop {
            // It is written after the others.
            match self.connection.wait_for_event()? {
                Event::PropertyNotify(e) if e.atom == self.atoms.focused_window => {}
                _ => continue,
            }
            let pid = self.focused_pid()?;
            let changed = std::mem::replace(&mut self.focused, pid) != pid;
            if let Some(pid) = pid.filter(|_| changed) {
                return Ok(pid);
            }
        }
    }

    fn focused_pid(&self) -> Result<Option<i32>> {
        let read = |property| cardinals(&self.connection, self.root, property);
        let window = read(self.atoms.focused_window)?.unwrap_or_default();
        let app = read(self.atoms.focused_app)?.unwrap_or_default();
        let windows = read(self.atoms.windows)?.unwrap_or_default();
        Ok(pid_of(&windows, window.first(), app.first()))
    }
}

/// The process of a window in the list, of those of this number the one of this application.
fn pid_of(list: &[u32], window: Option<&u32>, app: Option<&u32>) -> Option<i32> {
    let windows = list.chunks_exact(FIELDS);
    let same: Vec<&[u32]> = windows.filter(|w| Some(&w[0]) == window).collect();
    let of_app = same.iter().find(|w| Some(&w[1]) == app);
    process(of_app.or(same.first())?[2])
}

fn cardinals(
    connection: &RustConnection,
    root: Window,
    property: Atom,
) -> Result<Option<Vec<u32>>> {
    let kind = AtomEnum::CARDINAL;
    Ok(numbers(connection, root, property, kind, NUMBERS_MAX)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_of_the_process_that_the_list_has_for_it() {
        let list = [5, 769, 70, 6, 440, 71, 5, 570, 72, 7, 0, 0, 8, 440];
        for (window, app, pid) in [
            (Some(5), Some(769), Some(70)),
            (Some(5), Some(570), Some(72)),
            (Some(5), Some(1), Some(70)),
            (Some(5), None, Some(70)),
            (Some(6), None, Some(71)),
            // No process, none that is known, none told whole, no window.
            (Some(7), None, None),
            (Some(9), None, None),
            (Some(8), Some(440), None),
            (None, Some(440), None),
        ] {
            let found = pid_of(&list, window.as_ref(), app.as_ref());
            assert_eq!(found, pid, "{window:?} of {app:?}");
        }
        assert_eq!(pid_of(&[], Some(&5), None), None);
    }
}
