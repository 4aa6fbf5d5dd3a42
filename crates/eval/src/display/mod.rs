//! The virtual display: its session, its picture, its windows and the input that drives them.

pub mod input;
pub mod other_window;
pub mod screen;
pub mod session;
pub mod windows;

/// Width of the virtual screen.
pub const SCREEN_WIDTH: u16 = 1280;
/// Height of the virtual screen.
pub const SCREEN_HEIGHT: u16 = 800;
