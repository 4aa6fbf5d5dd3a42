//! Window focus under KDE Plasma, by KWin's protocol `org_kde_plasma_window_management`, which tells the process of each window, a Wayland
//! client's or an X client's. KWin offers it only to programs of which a desktop file says that they use it
//! (`dist/prepage-agent.desktop`).

use super::process;
use crate::error::{Error, Result};
use std::collections::HashMap;
use wayland_client::backend::ObjectId;
use wayland_client::globals::{GlobalListContents, registry_queue_init};
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::{Connection, Dispatch, DispatchError, EventQueue, Proxy, QueueHandle};
use wayland_protocols_plasma::plasma_window_management::client::{
    org_kde_plasma_window::{self, OrgKdePlasmaWindow},
    org_kde_plasma_window_management::{self, OrgKdePlasmaWindowManagement, State},
};

/// The version of the protocol that names windows by UUID: Plasma 5.23 and later have it.
const VERSION: u32 = 13;

/// A connection to KWin.
#[derive(Debug)]
pub struct FocusWatch {
    queue: EventQueue<Windows>,
    windows: Windows,
}

/// What KWin has told.
#[derive(Debug, Default)]
struct Windows {
    known: HashMap<ObjectId, Window>,
    /// The process of the window that got the focus last, until it is taken.
    focused: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    pid: Option<i32>,
    is_active: bool,
    /// That it is active.
    is_told: bool,
}

impl FocusWatch {
    /// Connects to the compositor of `WAYLAND_DISPLAY`, and asks for its windows.
    ///
    /// # Errors
    /// Where nobody is there, or it is not KWin, or KWin does not tell this program.
    pub fn open() -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::NoDisplay(format!("KWin of KDE Plasma: {error}"))
        };
        let connection = Connection::connect_to_env().map_err(|e| failed(&e))?;
        let (globals, mut queue) = registry_queue_init(&connection).map_err(|e| failed(&e))?;
        let handle = queue.handle();
        globals
            .bind::<OrgKdePlasmaWindowManagement, Windows, ()>(&handle, VERSION..=VERSION, ())
            .map_err(|e| {
                failed(&format_args!(
                    "it tells the program of an installed prepage-agent.desktop alone: {e}"
                ))
            })?;
        let mut windows = Windows::default();
        // The windows that are there, and what each of them is.
        for _ in 0..2 {
            queue.roundtrip(&mut windows).map_err(|e| failed(&e))?;
        }
        windows.focused = None;
        Ok(Self { queue, windows })
    }

    /// Waits for a window to get the focus, and returns its process.
    ///
    /// # Errors
    /// Where KWin ended, or cannot be understood.
    pub fn next_focus(&mut self) -> Result<i32> {
        loop {
            if let Some(pid) = self.windows.focused.take() {
                return Ok(pid);
            }
            self.queue
                .blocking_dispatch(&mut self.windows)
                .map_err(|error| match error {
                    DispatchError::Backend(error) => {
                        Error::DisplayEnded(format!("KWin ended: {error}"))
                    }
                    error => Error::Display(format!("KWin: {error}")),
                })?;
        }
    }
}

impl Windows {
    /// Changes what is known of a window. Which is active, and of which process it is, comes in any order.
    fn learn(&mut self, id: ObjectId, change: impl FnOnce(&mut Window)) {
        let window = self.known.entry(id).or_default();
        change(window);
        window.is_told &= window.is_active;
        if window.is_active && !window.is_told && window.pid.is_some() {
            window.is_told = true;
            self.focused = window.pid;
        }
    }
}

impl Dispatch<OrgKdePlasmaWindow, ()> for Windows {
    fn event(
        windows: &mut Self,
        window: &OrgKdePlasmaWindow,
        event: org_kde_plasma_window::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        use org_kde_plasma_window::Event;
        match event {
            Event::PidChanged { pid } => windows.learn(window.id(), |w| w.pid = process(pid)),
            Event::StateChanged { flags } => windows.learn(window.id(), |w| {
                w.is_active = flags & State::Active as u32 != 0;
            }),
            Event::Unmapped => {
                windows.known.remove(&window.id());
                window.destroy();
            }
            _ => {}
        }
    }
}

impl Dispatch<OrgKdePlasmaWindowManagement, ()> for Windows {
    fn event(
        _: &mut Self,
        manager: &OrgKdePlasmaWindowManagement,
        event: org_kde_plasma_window_management::Event,
        (): &(),
        _: &Connection,
        queue: &QueueHandle<Self>,
    ) {
        use org_kde_plasma_window_management::Event;
        if let Event::WindowWithUuid { uuid, .. } = event {
            manager.get_window_by_uuid(uuid, queue, ());
        }
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for Windows {
    fn event(
        _: &mut Self,
        _: &WlRegistry,
        _: wl_registry::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
    }
}
