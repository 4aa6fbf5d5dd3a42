//! How much headroom lacks, and where.

use super::Task;
use crate::members::{Member, share_out};
use prepage_core::identity::Instance;
use prepage_core::machine::Need;
use prepage_kernel::cgroup::{Cgroup, Limited, PROCS_MAX};
use prepage_kernel::meminfo::Meminfo;
use prepage_kernel::page::page_size;
use prepage_kernel::reclaim::Domain;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Planned pages of one application that are looked at to see how many of them are out.
const SAMPLE_PAGES_MAX: u64 = 512;

/// Less than this is not worth to be reclaimed.
pub const LACK_BYTES_MIN: u64 = 1 << 20;

/// An application that may be switched to.
#[derive(Debug)]
pub struct Wanting {
    /// What a switch to it needs.
    pub need: Need,
    /// Its processes.
    pub members: Vec<Arc<Member>>,
    /// The memory control groups that they are in.
    pub groups: Vec<Cgroup>,
}

/// What lacks somewhere.
#[derive(Debug)]
pub struct Lack {
    /// Where it is to be reclaimed.
    pub domain: Domain,
    /// How much, in bytes.
    pub bytes: u64,
}

/// Memory under a limit, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    limit: u64,
    /// What can be charged before the kernel reclaims; of the machine also what it reclaims at little cost. Under a limit inactive
    /// file pages are not counted as left: the kernel takes others all the same.
    left: u64,
    /// What can be swapped out. Where there is no swap, what goes is files that are in use.
    swap_left: u64,
}

impl Memory {
    /// What lacks of so many bytes; no more than a share of the limit is kept free.
    fn lacking(&self, wanted: u64, share_max: f32) -> u64 {
        let most = (self.limit as f64 * f64::from(share_max)) as u64;
        let lacking = wanted.min(most).saturating_sub(self.left);
        lacking.min(self.swap_left)
    }

    fn of_group(limited: &Limited) -> Self {
        Self {
            limit: limited.limit_bytes,
            left: limited.left_bytes,
            swap_left: limited.swap_left_bytes,
        }
    }

    fn of_machine() -> Option<Self> {
        let meminfo = Meminfo::read().ok()?;
        Some(Self {
            limit: meminfo.total_bytes,
            left: meminfo.available_bytes,
            swap_left: meminfo.free_swap_bytes,
        })
    }
}

/// What lacks for those of the task that want most: limit by limit, those below first, and of the machine at last.
pub fn lacks(task: &Task, machine: Option<&Domain>) -> Vec<Lack> {
    // The most that one of those under a limit wants: they are not switched to all at once.
    let mut of_groups: BTreeMap<Cgroup, (Memory, u64)> = BTreeMap::new();
    let mut of_all = 0;
    for wanting in &task.wanting {
        let wanted = wanting.bytes(task);
        of_all = wanted.max(of_all);
        for limited in wanting.limits_that_leave_less_than(wanted) {
            let memory = Memory::of_group(&limited);
            let (_, most) = of_groups.entry(limited.cgroup).or_insert((memory, 0));
            *most = wanted.max(*most);
        }
    }
    let lack = |domain: Domain, memory: Memory, wanted| Lack {
        domain,
        bytes: memory.lacking(wanted, task.params.share_max),
    };
    // What lies below comes first: it is part of what lies above.
    let groups = of_groups.into_iter().rev();
    let groups =
        groups.map(|(group, (memory, wanted))| lack(Domain::Cgroup(group), memory, wanted));
    let machine = machine.cloned().zip(Memory::of_machine());
    let machine = machine.map(|(machine, memory)| lack(machine, memory, of_all));
    let lacks = groups.chain(machine);
    lacks.filter(|lack| lack.bytes >= LACK_BYTES_MIN).collect()
}

impl Wanting {
    /// Headroom wanted, in bytes.
    fn bytes(&self, task: &Task) -> u64 {
        let Need {
            plan, missed_pages, ..
        } = &self.need;
        let pages_out = plan.pages(task.mode) as f64 * self.share_out();
        let pages = pages_out * f64::from(task.params.plan_multiple);
        (pages as u64 + missed_pages) * page_size()
    }

    /// The share of its planned anonymous pages that is out, by a sample. Where they are, its file pages are taken to be as well.
    fn share_out(&self) -> f64 {
        let of_it = |(instance, pages): (Instance, Vec<u64>)| {
            let is_it = |member: &&Arc<Member>| member.instance == instance;
            Some((Arc::clone(self.members.iter().find(is_it)?), pages))
        };
        let sampled = self.need.plan.sample(SAMPLE_PAGES_MAX);
        f64::from(share_out(sampled.filter_map(of_it).collect()))
    }

    /// The limits that leave less than this and hold for somebody else's memory too: to reclaim one's own ahead of what one needs
    /// oneself is for nothing.
    fn limits_that_leave_less_than(&self, bytes: u64) -> impl Iterator<Item = Limited> {
        // A group that is gone limits nobody.
        let limits = self.groups.iter().filter_map(|group| group.limits().ok());
        limits.flatten().filter(move |limited| {
            let is_full = limited.left_bytes.saturating_add(LACK_BYTES_MIN) <= bytes;
            is_full && self.shares(&limited.cgroup)
        })
    }

    /// Whether somebody else is in the group.
    fn shares(&self, group: &Cgroup) -> bool {
        let is_own = |pid: &i32| {
            self.members
                .iter()
                .any(|member| member.instance.pid == *pid)
        };
        let all = group.members(PROCS_MAX);
        all.is_ok_and(|all| !all.pids.iter().all(is_own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_what_is_not_left_of_what_is_wanted_up_to_a_share() {
        let lacking = |wanted, left, share_max| {
            let memory = Memory {
                limit: 1_000,
                left,
                swap_left: 150,
            };
            memory.lacking(wanted, share_max)
        };
        assert_eq!(lacking(100, 30, 0.2), 70);
        assert_eq!(lacking(100, 100, 0.2), 0);
        assert_eq!(lacking(100, 500, 0.2), 0);
        assert_eq!(lacking(300, 70, 0.2), 130);
        assert_eq!(lacking(300, 30, 0.2), 150, "what can be swapped out");
        assert_eq!(lacking(300, 0, 0.0), 0);
    }
}
