//! In which order pages are first needed in a switch: so they are fetched.

use crate::extent::{Extent, ExtentSet, by_key};
use crate::run_map::{RunMap, Value};

/// What has a place in the order.
pub trait Ranked: Value {
    /// Its place: 0 first.
    fn rank(self) -> u8;

    /// The same at another place.
    #[must_use]
    fn with_rank(self, rank: u8) -> Self;
}

/// Moves each known page's rank to where it was seen: at once where it was needed earlier than known, a quarter of the
/// way where later. A thread that waits for one early page gets no further, so that a page that is fetched too late
/// costs more than many that are fetched too early. Of a page that `order` holds twice, the first place counts.
pub fn learn_order<V: Ranked>(map: &mut RunMap<V>, order: &[(Extent, u8)]) {
    let by_rank = by_key(order.iter().map(|&(extent, rank)| (rank, extent)));
    let mut ranked = ExtentSet::new();
    for (seen, pages) in by_rank {
        let fresh = pages.difference(&ranked);
        map.update(&fresh, |state, _| {
            let state = state?;
            let rank = match state.rank() {
                known if seen <= known => seen,
                known => known + (seen - known) / 4,
            };
            Some(state.with_rank(rank))
        });
        ranked = ranked.union(&fresh);
    }
}
