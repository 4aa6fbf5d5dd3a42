//! What processes did to files since a switch began, within bounds.
//!
//! The kernel reports the accesses of all processes, and only at the end is it looked up who belongs to the application
//! then. Where there is no room, it is looked up earlier, and what strangers did is forgotten: only what an application
//! itself does can be too much.

use crate::observe::files::{FileEvents, InodeKey};
use crate::observe::waits::Access;
use prepage_kernel::filemap::FilemapKind;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Accesses kept in their order, over all processes: 56 bytes each.
const IN_ORDER_MAX: usize = 1 << 15;

/// The table.
#[derive(Debug)]
pub struct FileTable {
    files_max: usize,
    events: HashMap<(i32, InodeKey), FileEvents>,
    /// What waits are told from.
    in_order: Vec<Access>,
    owners: Owners,
    overflow: u64,
}

/// Whose the processes of the table are, as far as it was looked up: no more than there are process ids.
#[derive(Debug, Default)]
struct Owners {
    own: HashSet<i32>,
    strangers: HashSet<i32>,
    unknown: HashSet<i32>,
}

impl FileTable {
    /// An empty one, of so many (process, file) pairs.
    pub fn new(files_max: usize) -> Self {
        Self {
            files_max,
            events: HashMap::new(),
            in_order: Vec::new(),
            owners: Owners::default(),
            overflow: 0,
        }
    }

    /// Sets how many (process, file) pairs are kept from now on.
    pub fn set_files_max(&mut self, files: usize) {
        self.files_max = files;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.files_max);
    }

    /// Other applications are observed from now on: who is a stranger has to be looked up again.
    pub fn forget_owners(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        self.owners.unknown = owners.own;
        self.owners.unknown.extend(owners.unknown);
    }

    /// Takes an event. Of a fault that mapped pages, `page` is the one that it was for, if known. `members` looks up
    /// whose events are wanted.
    pub fn add(
        &mut self,
        event: Access,
        page: Option<u64>,
        members: impl FnOnce() -> BTreeSet<i32>,
    ) {
        if self.owners.strangers.contains(&event.pid) {
            return;
        }
        if !self.has_room(&event) && self.owners.look_up(event.pid, members) {
            let strangers = &self.owners.strangers;
            self.events.retain(|(pid, _), _| !strangers.contains(pid));
            self.in_order.retain(|a| !strangers.contains(&a.pid));
            if strangers.contains(&event.pid) {
                return;
            }
        }
        let key = (event.pid, event.key);
        if !self.events.contains_key(&key) {
            if self.events.len() >= self.files_max {
                self.overflow += 1;
                return;
            }
            self.owners.note(event.pid);
        }
        let is_kept = self.events.entry(key).or_default().add(&event, page);
        self.overflow += u64::from(!is_kept);
        if event.kind != FilemapKind::Added && self.in_order.len() < IN_ORDER_MAX {
            self.in_order.push(event);
        }
    }

    fn has_room(&self, event: &Access) -> bool {
        let has_room = match self.events.get(&(event.pid, event.key)) {
            Some(file) => file.has_room(),
            None => self.events.len() < self.files_max,
        };
        has_room && self.in_order.len() < IN_ORDER_MAX
    }

    /// What these processes did to files, by inode.
    pub fn of(&self, pids: &BTreeSet<i32>) -> HashMap<InodeKey, FileEvents> {
        let mut files: HashMap<InodeKey, FileEvents> = HashMap::new();
        for ((pid, key), events) in &self.events {
            if pids.contains(pid) {
                files.entry(*key).or_default().extend(events);
            }
        }
        files
    }

    /// The accesses of these processes, in the order in which they were taken; `None` where not all were kept.
    pub fn in_order(&self, pids: &BTreeSet<i32>) -> Option<Vec<Access>> {
        let theirs = self.in_order.iter().filter(|a| pids.contains(&a.pid));
        (self.in_order.len() < IN_ORDER_MAX).then(|| theirs.copied().collect())
    }

    /// Events that there was no room for.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }
}

impl Owners {
    /// A process is in the table.
    fn note(&mut self, pid: i32) {
        if !self.own.contains(&pid) {
            self.unknown.insert(pid);
        }
    }

    /// Looks up whose this process is, and those that it is not known of. Returns whether there was anything to look up.
    fn look_up(&mut self, pid: i32, members: impl FnOnce() -> BTreeSet<i32>) -> bool {
        self.note(pid);
        if self.unknown.is_empty() {
            return false;
        }
        let members = members();
        for pid in self.unknown.drain() {
            match members.contains(&pid) {
                true => self.own.insert(pid),
                false => self.strangers.insert(pid),
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::extent::Extent;

    const OWN: i32 = 1;
    const STRANGER: i32 = 2;
    const FILES_MAX: usize = 8;

    fn read(pid: i32, inode: u64, page: u64) -> Access {
        Access {
            at: page,
            pid,
            tid: pid,
            kind: FilemapKind::GetPages,
            key: ((254, 0), inode),
            // Not adjacent: each is kept by itself.
            extent: Extent::new(2 * page, 1),
        }
    }

    struct Rig {
        table: FileTable,
        members: BTreeSet<i32>,
        asked: usize,
    }

    impl Rig {
        fn new() -> Self {
            Self {
                table: FileTable::new(FILES_MAX),
                members: BTreeSet::from([OWN]),
                asked: 0,
            }
        }

        fn add(&mut self, event: Access) {
            let (members, asked) = (&self.members, &mut self.asked);
            self.table.add(event, None, || {
                *asked += 1;
                members.clone()
            });
        }

        fn own_files(&self) -> usize {
            self.table.of(&self.members).len()
        }
    }

    #[test]
    fn the_files_of_strangers_take_no_room() {
        let mut rig = Rig::new();
        for n in 0..100 {
            rig.add(read(STRANGER, n, 0));
            if n < FILES_MAX as u64 {
                rig.add(read(OWN, n, 0));
            }
        }
        assert_eq!((rig.own_files(), rig.table.overflow()), (FILES_MAX, 0));
        assert_eq!(rig.asked, 1, "it is looked up once whose a process is");
    }

    #[test]
    fn the_accesses_of_strangers_take_no_room() {
        let mut rig = Rig::new();
        for n in 0..IN_ORDER_MAX as u64 + 10 {
            rig.add(read(STRANGER, 0, n));
        }
        rig.add(read(OWN, 0, 0));
        assert_eq!(rig.table.overflow(), 0);
        let in_order = rig.table.in_order(&rig.members);
        assert_eq!(in_order, Some(vec![read(OWN, 0, 0)]));
    }

    #[test]
    fn what_the_application_itself_does_may_be_too_much() {
        let mut rig = Rig::new();
        for n in 0..20 {
            rig.add(read(OWN, n, 0));
        }
        assert_eq!(
            (rig.own_files(), rig.table.overflow()),
            (FILES_MAX, 20 - FILES_MAX as u64)
        );
        assert_eq!(rig.asked, 1);
    }

    #[test]
    fn who_was_a_stranger_may_be_observed_later() {
        let mut rig = Rig::new();
        for n in 0..20 {
            rig.add(read(STRANGER, n, 0));
        }
        assert!(rig.table.of(&BTreeSet::from([STRANGER])).is_empty());
        rig.members = BTreeSet::from([STRANGER]);
        rig.table.forget_owners();
        rig.add(read(STRANGER, 7, 0));
        assert_eq!(rig.own_files(), 1);
    }
}
