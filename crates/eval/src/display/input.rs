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

/// Symbols of keys that no character stands for (X11's keysymdef.h).
const NAMED: &[(&str, u32)] = &[
    ("Tab", 0xff09),
    ("Return", 0xff0d),
    ("Escape", 0xff1b),
    ("Home", 0xff50),
    ("Left", 0xff51),
    ("Up", 0xff52),
    ("Right", 0xff53),
    ("Down", 0xff54),
    ("Prior", 0xff55),
    ("Next", 0xff56),
    ("End", 0xff57),
    ("Insert", 0xff63),
    ("Delete", 0xffff),
    ("BackSpace", 0xff08),
    ("F1", 0xffbe),
    ("F2", 0xffbf),
    ("F3", 0xffc0),
    ("F4", 0xffc1),
    ("F5", 0xffc2),
    ("F6", 0xffc3),
    ("F7", 0xffc4),
    ("F8", 0xffc5),
    ("F9", 0xffc6),
    ("F10", 0xffc7),
    ("F11", 0xffc8),
    ("F12", 0xffc9),
    ("space", 0x20),
    ("equal", 0x3d),
    ("shift", 0xffe1),
    ("ctrl", 0xffe3),
    ("alt", 0xffe9),
];

/// The symbol of a key: its name, or for other keys the one character that it makes.
fn symbol(key: &str) -> Option<u32> {
    if let Some((_, symbol)) = NAMED.iter().find(|(name, _)| *name == key) {
        return Some(*symbol);
    }
    let mut characters = key.chars();
    let only = characters.next().map(u32::from);
    only.filter(|_| characters.next().is_none())
}

/// The keys that are pressed together, in order, with their symbols, as an application's description has them: `a`,
/// `Return`, `ctrl+shift+Home`.
///
/// # Errors
/// Where one has none.
pub fn symbols(keys: &str) -> Result<Vec<(&str, u32)>> {
    let known = |key| {
        let symbol = symbol(key).ok_or_else(|| {
            let named: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            let cause = format!(
                "known are single characters and {}, and some of these joined by + (a plus is shift+equal)",
                named.join(", ")
            );
            Error::new("find", format!("key {keys}"), cause)
        })?;
        Ok((key, symbol))
    };
    keys.split('+').map(known).collect()
}

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

    /// The codes of keys that are pressed together, in order, as [`symbols`] reads them.
    ///
    /// # Errors
    /// Where there is no such key, or not on this keyboard.
    pub fn chord(&self, keys: &str) -> Result<Vec<u8>> {
        let code = |(key, symbol)| {
            let code = self.codes.get(&symbol).copied();
            let cause = "no key makes it by itself on this keyboard: name the one that does with shift (shift+equal)";
            code.ok_or_else(|| Error::new("find", format!("key {key}"), cause))
        };
        symbols(keys)?.into_iter().map(code).collect()
    }

    /// Presses keys one after the other and releases them the other way round, without waiting for the server.
    pub fn press(&self, connection: &RustConnection, chord: &[u8]) -> Result<()> {
        let presses = chord.iter().map(|code| (xproto::KEY_PRESS_EVENT, code));
        let releases = chord.iter().map(|code| (xproto::KEY_RELEASE_EVENT, code));
        for (kind, &code) in presses.chain(releases.rev()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::APPS;

    #[test]
    fn every_key_of_every_application_has_a_symbol() {
        for app in APPS {
            let contexts = app.contexts.iter().flat_map(|context| context.keys);
            for chord in contexts.chain([&app.answer_key]) {
                let symbols = symbols(chord);
                assert!(symbols.is_ok(), "{}: {symbols:?}", app.name);
            }
        }
        assert_eq!(symbol("a"), Some(0x61));
        assert_eq!(symbol("Nxt"), None);
        for wrong in ["+", "ctrl+", "ctrl+Nxt"] {
            let said = symbols(wrong).expect_err("no such key").to_string();
            assert!(said.contains(&format!("key {wrong}")), "{said}");
        }
    }
}
