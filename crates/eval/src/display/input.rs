//! Keys and clicks as a person's devices make them (XTEST).

use crate::error::{Context, Error, Result};
use std::collections::HashMap;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{self, ConnectionExt as _};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

/// Which key makes which symbol on this display.
#[derive(Debug)]
pub struct Keyboard {
    codes: HashMap<u32, u8>,
    root: xproto::Window,
}

/// Symbols of keys that no character stands for.
const RETURN: u32 = 0xff0d;
const ESCAPE: u32 = 0xff1b;

impl Keyboard {
    /// Asks the server for its keyboard.
    pub fn of(connection: &RustConnection, root: xproto::Window) -> Result<Self> {
        let setup = connection.setup();
        let first = setup.min_keycode;
        let count = setup.max_keycode - first + 1;
        let mapping = connection
            .get_keyboard_mapping(first, count)
            .context("ask for", "keyboard")?
            .reply()
            .context("ask for", "keyboard")?;
        let per_code = usize::from(mapping.keysyms_per_keycode).max(1);
        let mut codes = HashMap::new();
        for (i, symbols) in mapping.keysyms.chunks(per_code).enumerate() {
            // Only what a key makes by itself, without Shift.
            codes.entry(symbols[0]).or_insert(first + i as u8);
        }
        Ok(Self { codes, root })
    }

    /// The code of a key named as in an application's description: one character, `Return` or `Escape`.
    pub fn code(&self, key: &str) -> Result<u8> {
        let symbol = match key {
            "Return" => RETURN,
            "Escape" => ESCAPE,
            _ => key.chars().next().map_or(0, u32::from),
        };
        self.codes
            .get(&symbol)
            .copied()
            .ok_or_else(|| Error::new("find", format!("key {key}"), "not on this keyboard"))
    }

    /// Presses and releases a key, without waiting for the server.
    pub fn press(&self, connection: &RustConnection, code: u8) -> Result<()> {
        for kind in [xproto::KEY_PRESS_EVENT, xproto::KEY_RELEASE_EVENT] {
            connection
                .xtest_fake_input(kind, code, x11rb::CURRENT_TIME, self.root, 0, 0, 0)
                .context("press", "key")?;
        }
        connection.flush().context("press", "key")
    }

    /// Moves the pointer and presses its first button.
    pub fn click(&self, connection: &RustConnection, x: i16, y: i16) -> Result<()> {
        self.point(connection, x, y)?;
        for kind in [xproto::BUTTON_PRESS_EVENT, xproto::BUTTON_RELEASE_EVENT] {
            connection
                .xtest_fake_input(kind, 1, x11rb::CURRENT_TIME, self.root, 0, 0, 0)
                .context("click", "pointer")?;
        }
        connection.flush().context("click", "pointer")
    }

    /// Moves the pointer.
    pub fn point(&self, connection: &RustConnection, x: i16, y: i16) -> Result<()> {
        let motion = xproto::MOTION_NOTIFY_EVENT;
        connection
            .xtest_fake_input(motion, 0, x11rb::CURRENT_TIME, self.root, x, y, 0)
            .context("move", "pointer")?;
        connection.flush().context("move", "pointer")
    }
}
