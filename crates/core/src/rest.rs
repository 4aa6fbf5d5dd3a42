//! Applications that help cannot help, and that are left alone.
//!
//! Who switches to an application waits until its demand for pages ends, and help brings that forward. A service that is
//! asked again after a while answers requests that keep coming: its demand does not end, each request waits for pages of
//! its own, many of which nobody foresees, and while the cores or the disk fetch, it waits for the fetch as well. At such a
//! service's full load even to observe it lengthens its queue.

use crate::params::SwitchParams;

/// Switches for which one application is left alone: neither observed nor helped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    left: u32,
    last: u32,
    /// Helped switches whose demand went on, since one whose demand ended.
    endless: u32,
}

/// So many switches whose demand went on have an application left alone: one may be of somebody in haste.
const ENDLESS_MIN: u32 = 2;

impl Rest {
    /// Switches left.
    pub fn left(self) -> u32 {
        self.left
    }

    /// A switch begins. Returns whether it is one to be left alone.
    pub fn takes_one(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// A switch ended since demand had.
    pub fn demand_ended(&mut self) {
        *self = Self::default();
    }

    /// Demand went on in a helped switch long after all was fetched that was planned for it.
    pub fn demand_went_on(&mut self, params: &SwitchParams) {
        self.endless = self.endless.saturating_add(1);
        if self.endless < ENDLESS_MIN {
            return;
        }
        let doubled = self.last.saturating_mul(2);
        self.last = doubled.clamp(params.retry_switches, params.retry_switches_max);
        self.left = self.last;
    }
}
