//! What prepaging may charge to the application's memory control groups.

use prepage_kernel::cgroup::{self, Cgroup};
use prepage_kernel::page::page_size;

/// The part of the headroom that prepaging leaves to what the application allocates meanwhile: one in so many pages.
const LEFT: u64 = 8;

/// What prepaging may charge, until it is charged.
#[derive(Debug)]
pub struct Headroom {
    /// Pages left; without end where nothing limits them.
    pages: u64,
    /// When fewer are left, the kernel reclaims another page for each one.
    reclaims_below_pages: u64,
}

impl Headroom {
    /// What these groups leave. A group that is gone limits nobody.
    pub fn of(groups: &[Cgroup]) -> Self {
        let of_group = |group: &Cgroup| group.memory_headroom().ok()?;
        let least = groups
            .iter()
            .filter_map(of_group)
            .reduce(cgroup::Headroom::and);
        let endless = Self {
            pages: u64::MAX,
            reclaims_below_pages: 0,
        };
        least.map_or(endless, Self::within)
    }

    fn within(least: cgroup::Headroom) -> Self {
        let pages = |bytes: u64| {
            let pages = bytes / page_size();
            pages - pages / LEFT
        };
        Self {
            pages: pages(least.bytes),
            reclaims_below_pages: pages(least.bytes) - pages(least.free_bytes),
        }
    }

    /// Takes so many pages, if as many are left.
    pub fn take(&mut self, pages: u64) -> bool {
        let left = self.pages.checked_sub(pages);
        self.pages = left.unwrap_or(self.pages);
        left.is_some()
    }

    /// Whether nothing free is left: for each further page another one goes.
    pub fn is_used_up(&self) -> bool {
        self.pages < self.reclaims_below_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pages(free: u64, all: u64) -> Headroom {
        let (free_bytes, bytes) = (free * page_size(), all * page_size());
        Headroom::within(cgroup::Headroom { free_bytes, bytes })
    }

    #[test]
    fn what_is_free_is_taken_before_what_has_to_be_reclaimed() {
        let mut headroom = of_pages(800, 1_600);
        assert!(headroom.take(700) && !headroom.is_used_up());
        assert!(headroom.take(1) && headroom.is_used_up());
        assert!(!headroom.take(700) && headroom.take(699) && !headroom.take(1));
    }

    #[test]
    fn without_a_limit_there_is_no_end() {
        let mut headroom = Headroom::of(&[]);
        assert!(headroom.take(1 << 40) && !headroom.is_used_up());
    }
}
