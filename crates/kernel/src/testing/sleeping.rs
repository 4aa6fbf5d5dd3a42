//! A process that does nothing.

use std::process::{Child, Command};

/// `sleep 600`, until it is dropped.
pub struct Sleeping(Child);

impl Sleeping {
    pub fn spawn() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep"))
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}
