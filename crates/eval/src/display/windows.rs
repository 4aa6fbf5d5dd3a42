//! The windows as a pager sees them: which there are, which one is active, and how to ask for another.

use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use x11rb::connection::Connection;
use x11rb::errors::ConnectionError;
use x11rb::protocol::Event;
use x11rb::protocol::damage::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt as _, EventMask,
    Window,
};
use x11rb::rust_connection::RustConnection;

x11rb::atom_manager! {
    /// The names that this crate uses.
    pub Atoms: AtomsCookie {
        _NET_ACTIVE_WINDOW,
        _NET_CLIENT_LIST,
        _NET_SUPPORTING_WM_CHECK,
        _NET_WM_NAME,
        _NET_WM_STATE,
        _NET_WM_STATE_MAXIMIZED_HORZ,
        _NET_WM_STATE_MAXIMIZED_VERT,
        _NET_WM_WINDOW_TYPE,
        _NET_WM_WINDOW_TYPE_DIALOG,
        UTF8_STRING,
    }
}

/// A connection to the display with what is watched on it.
#[derive(Debug)]
pub struct Display {
    /// The connection.
    pub connection: RustConnection,
    /// The root window.
    pub root: Window,
    /// The interned names.
    pub atoms: Atoms,
    damage: damage::Damage,
}

/// Whom requests to the window manager come from, as it is told: somebody who acts for the user.
const SOURCE_PAGER: u32 = 2;

/// What the watched display said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something was drawn. Nothing more is said until [`Display::watch_again`].
    Drawn,
    /// The active window may be another one.
    Active,
}

impl Display {
    /// Connects, waits for the window manager, and watches the root window for drawing and activation.
    pub fn connect(name: &str) -> Result<Self> {
        let (connection, screen) = x11rb::connect(Some(name)).context("connect to", name)?;
        let root = connection.setup().roots[screen].root;
        let atoms = Atoms::new(&connection)
            .context("intern", "atoms")?
            .reply()
            .context("intern", "atoms")?;
        connection
            .damage_query_version(1, 1)
            .context("query", "DAMAGE")?
            .reply()
            .context("query", "DAMAGE")?;
        let damage = connection.generate_id().context("make", "damage")?;
        connection
            .damage_create(damage, root, damage::ReportLevel::NON_EMPTY)
            .context("watch", "root window")?;
        let mask = EventMask::PROPERTY_CHANGE;
        connection
            .change_window_attributes(root, &ChangeWindowAttributesAux::new().event_mask(mask))
            .context("watch", "root window")?;
        let display = Self {
            connection,
            root,
            atoms,
            damage,
        };
        display.wait_for_window_manager()?;
        Ok(display)
    }

    fn wait_for_window_manager(&self) -> Result<()> {
        const TRIES: u32 = 200;
        for _ in 0..TRIES {
            if self
                .window_property(self.root, self.atoms._NET_SUPPORTING_WM_CHECK)?
                .is_some()
            {
                return Ok(());
            }
            sleep_ms(25);
        }
        Err(Error::new(
            "wait for",
            "window manager",
            "none came (is openbox installed?)",
        ))
    }

    /// Reads a property that holds one number, such as a window.
    pub fn window_property(&self, window: Window, property: Atom) -> Result<Option<u32>> {
        Ok(self.window_list(window, property)?.first().copied())
    }

    fn window_list(&self, window: Window, property: Atom) -> Result<Vec<u32>> {
        let reply = self
            .connection
            .get_property(false, window, property, AtomEnum::ANY, 0, 1024)
            .context("read", "property")?
            .reply();
        // A window may vanish between being listed and being asked.
        Ok(reply
            .ok()
            .and_then(|r| r.value32().map(|v| v.collect()))
            .unwrap_or_default())
    }

    /// The windows that the window manager manages.
    pub fn windows(&self) -> Result<Vec<Window>> {
        self.window_list(self.root, self.atoms._NET_CLIENT_LIST)
    }

    /// The active window, or 0.
    pub fn active(&self) -> Result<Window> {
        Ok(self
            .window_property(self.root, self.atoms._NET_ACTIVE_WINDOW)?
            .unwrap_or(0))
    }

    /// The title.
    pub fn title(&self, window: Window) -> Result<String> {
        for (property, kind) in [
            (self.atoms._NET_WM_NAME, self.atoms.UTF8_STRING),
            (AtomEnum::WM_NAME.into(), AtomEnum::STRING.into()),
        ] {
            let cookie = self
                .connection
                .get_property(false, window, property, kind, 0, 1024);
            if let Ok(reply) = cookie.context("read", "title")?.reply()
                && !reply.value.is_empty()
            {
                return Ok(String::from_utf8_lossy(&reply.value).into_owned());
            }
        }
        Ok(String::new())
    }

    /// The class and instance, joined by a dot.
    pub fn class(&self, window: Window) -> Result<String> {
        let cookie = self.connection.get_property(
            false,
            window,
            AtomEnum::WM_CLASS,
            AtomEnum::STRING,
            0,
            256,
        );
        let value = cookie
            .context("read", "class")?
            .reply()
            .map(|r| r.value)
            .unwrap_or_default();
        Ok(String::from_utf8_lossy(&value)
            .trim_end_matches('\0')
            .replace('\0', "."))
    }

    /// Asks the window manager, as a pager does, to activate a window; returns when the request is on its way.
    pub fn activate(&self, window: Window) -> Result<()> {
        let data = [SOURCE_PAGER, x11rb::CURRENT_TIME, 0, 0, 0];
        self.ask_manager(window, self.atoms._NET_ACTIVE_WINDOW, data)
            .context("activate", "window")
    }

    /// Asks the window manager to make a window as large as the screen, where it may be.
    pub fn maximize(&self, window: Window) -> Result<()> {
        const ADD: u32 = 1;
        let (horizontal, vertical) = (
            self.atoms._NET_WM_STATE_MAXIMIZED_HORZ,
            self.atoms._NET_WM_STATE_MAXIMIZED_VERT,
        );
        let data = [ADD, horizontal, vertical, SOURCE_PAGER, 0];
        self.ask_manager(window, self.atoms._NET_WM_STATE, data)
            .context("maximize", "window")
    }

    fn ask_manager(
        &self,
        window: Window,
        what: Atom,
        data: [u32; 5],
    ) -> std::result::Result<(), ConnectionError> {
        let message = ClientMessageEvent::new(32, window, what, data);
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        self.connection
            .send_event(false, self.root, mask, message)?;
        self.connection.flush()
    }

    /// Whether a window asks or tells something beside the one that it belongs to. One that does not say what it is is a dialog
    /// where it belongs to another (Extended Window Manager Hints, `_NET_WM_WINDOW_TYPE`).
    pub fn is_dialog(&self, window: Window) -> Result<bool> {
        let kind = self.window_property(window, self.atoms._NET_WM_WINDOW_TYPE)?;
        match kind {
            Some(kind) => Ok(kind == self.atoms._NET_WM_WINDOW_TYPE_DIALOG),
            None => {
                let owner = self.window_property(window, AtomEnum::WM_TRANSIENT_FOR.into())?;
                Ok(owner.is_some())
            }
        }
    }

    /// Activates a window and waits until it is the active one.
    pub fn activate_and_wait(&self, window: Window) -> Result<()> {
        const LIMIT_NS: u64 = 3_000_000_000;
        self.activate(window)?;
        let start = now_ns();
        while self.active()? != window {
            if now_ns() - start > LIMIT_NS {
                return Err(Error::new(
                    "activate",
                    format!("window {window:#x}"),
                    "it never became the active one",
                ));
            }
            sleep_ms(2);
        }
        Ok(())
    }

    /// Forgets what was drawn, so that the next drawing is told.
    pub fn watch_again(&self) -> Result<()> {
        self.connection
            .damage_subtract(self.damage, x11rb::NONE, x11rb::NONE)
            .context("watch", "root window")?;
        self.connection.flush().context("watch", "root window")
    }

    /// Drops everything said until now.
    pub fn forget_changes(&self) -> Result<()> {
        self.watch_again()?;
        // A round trip: what was drawn before it has been told by now.
        self.connection
            .get_input_focus()
            .context("synchronize with", "display")?
            .reply()
            .context("read", "focus")?;
        while self
            .connection
            .poll_for_event()
            .context("read", "events")?
            .is_some()
        {}
        self.watch_again()
    }

    /// The next change, or `None` when the time is over.
    pub fn next_change(&self, until_ns: u64) -> Result<Option<Change>> {
        loop {
            while let Some(event) = self.connection.poll_for_event().context("read", "events")? {
                match event {
                    Event::DamageNotify(_) => return Ok(Some(Change::Drawn)),
                    Event::PropertyNotify(e) if e.atom == self.atoms._NET_ACTIVE_WINDOW => {
                        return Ok(Some(Change::Active));
                    }
                    _ => {}
                }
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return Ok(None);
            }
            let timeout = Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            };
            let mut fds = [PollFd::new(self.connection.stream(), PollFlags::IN)];
            poll(&mut fds, Some(&timeout)).context("wait for", "display")?;
        }
    }

    /// Waits for a managed window for which `wanted` holds, while `may_come` does.
    pub fn wait_for_window(
        &self,
        limit_ms: u64,
        mut may_come: impl FnMut() -> bool,
        wanted: impl Fn(&Self, Window) -> Result<bool>,
    ) -> Result<Window> {
        let until = now_ns() + limit_ms * 1_000_000;
        loop {
            for window in self.windows()? {
                if wanted(self, window)? {
                    return Ok(window);
                }
            }
            if !may_come() {
                let cause = "the program is over, and has shown none";
                return Err(Error::new("wait for", "window", cause));
            }
            if now_ns() > until {
                return Err(Error::new(
                    "wait for",
                    "window",
                    format!("none came in {limit_ms} ms"),
                ));
            }
            sleep_ms(50);
        }
    }
}
