//! "The other application": a plain window over the whole screen that the person uses between switches.

use super::windows::Display;
use super::{SCREEN_HEIGHT, SCREEN_WIDTH};
use crate::error::{Context, Result};
use crate::random::Random;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeGCAux, ConnectionExt as _, CreateGCAux, CreateWindowAux, EventMask, Gcontext,
    PropMode, Rectangle, Window, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

/// The window and what it is drawn with.
#[derive(Debug)]
pub struct OtherWindow {
    /// The window.
    pub window: Window,
    gc: Gcontext,
}

impl OtherWindow {
    /// Makes and shows the window.
    pub fn open(display: &Display) -> Result<Self> {
        let connection = &display.connection;
        let window = connection.generate_id().context("make", "window")?;
        let aux = CreateWindowAux::new()
            .background_pixel(0x0020_2428)
            .event_mask(EventMask::EXPOSURE);
        connection
            .create_window(
                x11rb::COPY_FROM_PARENT as u8,
                window,
                display.root,
                0,
                0,
                SCREEN_WIDTH,
                SCREEN_HEIGHT,
                0,
                WindowClass::INPUT_OUTPUT,
                0,
                &aux,
            )
            .context("make", "window")?;
        let class: &[u8] = b"other\0PrepageEvalOther\0";
        connection
            .change_property8(
                PropMode::REPLACE,
                window,
                AtomEnum::WM_CLASS,
                AtomEnum::STRING,
                class,
            )
            .and_then(|_| {
                connection.change_property8(
                    PropMode::REPLACE,
                    window,
                    display.atoms._NET_WM_NAME,
                    display.atoms.UTF8_STRING,
                    b"other application",
                )
            })
            .context("name", "window")?;
        let gc = connection.generate_id().context("make", "gc")?;
        connection
            .create_gc(gc, window, &CreateGCAux::new())
            .context("make", "gc")?;
        connection.map_window(window).context("show", "window")?;
        connection.flush().context("show", "window")?;
        Ok(Self { window, gc })
    }

    /// "Uses" the window: draws something new in it.
    pub fn draw(&self, display: &Display, random: &mut Random) -> Result<()> {
        const BARS: usize = 40;
        let connection = &display.connection;
        for i in 0..BARS {
            let colour = random.below(1 << 24) as u32;
            let bar = Rectangle {
                x: (i * usize::from(SCREEN_WIDTH) / BARS) as i16,
                y: random.below(usize::from(SCREEN_HEIGHT) / 2) as i16,
                width: SCREEN_WIDTH / BARS as u16 - 4,
                height: SCREEN_HEIGHT / 2,
            };
            connection
                .change_gc(self.gc, &ChangeGCAux::new().foreground(colour))
                .context("draw", "bar")?;
            connection
                .poly_fill_rectangle(self.window, self.gc, &[bar])
                .context("draw", "bar")?;
        }
        connection.flush().context("draw", "bars")
    }

    /// Makes it as plain as it was at first.
    pub fn clear(&self, display: &Display) -> Result<()> {
        let connection = &display.connection;
        connection
            .clear_area(false, self.window, 0, 0, 0, 0)
            .context("clear", "window")?;
        connection.flush().context("clear", "window")
    }
}
