//! From whom what lacks is reclaimed.

use super::lack::{LACK_BYTES_MIN, Lack};
use prepage_core::ahead::shares;
use prepage_kernel::cgroup::Cgroup;
use prepage_kernel::reclaim::Domain;

/// Has what lacks reclaimed: from the groups below that hold most, and what they do not give from all of them, as the kernel
/// chooses. Returns the bytes. Where the kernel refuses, applications demand as they did before: the service's `doctor` says what
/// is missing.
pub fn give(lack: &Lack, spared: &[Cgroup], goes_on: &mut dyn FnMut() -> bool) -> u64 {
    let groups = match &lack.domain {
        Domain::Cgroup(above) => givers(above, spared),
        Domain::Machine { .. } => Vec::new(),
    };
    let held: Vec<u64> = groups.iter().map(|(_, bytes)| *bytes).collect();
    let mut given = 0;
    for ((group, _), share) in groups.into_iter().zip(shares(&held, lack.bytes)) {
        if share >= LACK_BYTES_MIN && goes_on() {
            given += Domain::Cgroup(group).reclaim(share, goes_on).unwrap_or(0);
        }
    }
    let rest = lack.bytes.saturating_sub(given);
    if rest >= LACK_BYTES_MIN && goes_on() {
        given += lack.domain.reclaim(rest, goes_on).unwrap_or(0);
    }
    given
}

/// The groups below that may give, with the bytes that they hold: none of those spared.
fn givers(above: &Cgroup, spared: &[Cgroup]) -> Vec<(Cgroup, u64)> {
    let is_spared = |group: &Cgroup| {
        spared.iter().any(|spared| {
            group.directory.starts_with(&spared.directory)
                || spared.directory.starts_with(&group.directory)
        })
    };
    let leaves = above.reclaimable_leaves().unwrap_or_default();
    leaves
        .into_iter()
        .filter(|(group, _)| !is_spared(group))
        .collect()
}
