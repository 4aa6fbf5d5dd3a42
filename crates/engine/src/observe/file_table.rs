//! What processes did to files since each of the switches under way began, within bounds.
//!
//! The kernel reports the accesses of all processes, and only at the end is it looked up who belongs to the application
//! then. Where there is no room, it is looked up earlier, and what strangers did is forgotten: only what an application
//! itself does can be too much.

use crate::observe::files::{FileEvents, InodeKey};
use crate::observe::waits::Access;
use prepage_core::machine::Nanos;
use prepage_kernel::filemap::FilemapKind;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Accesses kept in their order, over all processes: 56 bytes each.
const IN_ORDER_MAX: usize = 1 << 15;

/// The table.
#[derive(Debug)]
pub struct FileTable {
    files_max: usize,
    /// In the order in which they began. There is one at least.
    epochs: Vec<Epoch>,
    owners: Owners,
}

/// From one switch's beginning to the next one's.
#[derive(Debug, Default)]
struct Epoch {
    began: Nanos,
    events: HashMap<(i32, InodeKey), FileEvents>,
    /// What waits are told from.
    in_order: Vec<Access>,
    /// Events that there was no room for.
    lost: u64,
}

/// Whose the processes of the table are, as far as it was looked up: no more than there are process ids.
#[derive(Debug, Default)]
struct Owners {
    own: HashSet<i32>,
    strangers: HashSet<i32>,
    unknown: HashSet<i32>,
}

impl Epoch {
    /// Takes out what happened at this time or later.
    fn split_off(&mut self, at: Nanos) -> Self {
        let of_each = self.events.iter_mut();
        let later = of_each.map(|(&key, events)| (key, events.split_off(at)));
        let later = later.filter(|(_, events)| !events.is_empty()).collect();
        self.events.retain(|_, events| !events.is_empty());
        Self {
            began: at,
            events: later,
            in_order: self.in_order.extract_if(.., |a| a.at >= at).collect(),
            lost: 0,
        }
    }
}

impl FileTable {
    /// An empty one, of so many (process, file) pairs.
    pub fn new(files_max: usize) -> Self {
        Self {
            files_max,
            epochs: vec![Epoch::default()],
            owners: Owners::default(),
        }
    }

    /// Sets how many (process, file) pairs are kept from now on.
    pub fn set_files_max(&mut self, files: usize) {
        self.files_max = files;
    }

    /// A switch began, one of several under way or the only one: `oldest` is when the first of them began, and what happened
    /// before that is forgotten. What happened since it began, until it is said here, is its own.
    pub fn begin(&mut self, began: Nanos, oldest: Nanos) {
        let epoch = self.epochs.last_mut().map(|last| last.split_off(began));
        self.epochs.retain(|epoch| epoch.began >= oldest);
        self.epochs.push(Epoch {
            began,
            ..epoch.unwrap_or_default()
        });
        self.forget_owners();
    }

    /// Other applications are observed from now on: who is a stranger has to be looked up again.
    pub fn forget_owners(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        self.owners.unknown = owners.own;
        self.owners.unknown.extend(owners.unknown);
    }

    /// Events were lost before they came here.
    pub fn lose(&mut self, events: u64) {
        if let Some(epoch) = self.epochs.last_mut() {
            epoch.lost += events;
        }
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
        // The rings of several cores are read one after the other.
        let of_event = self.epochs.iter().rposition(|e| e.began <= event.at);
        let of_event = of_event.unwrap_or(0);
        if !self.has_room(of_event, &event) && self.owners.look_up(event.pid, members) {
            let strangers = &self.owners.strangers;
            for epoch in &mut self.epochs {
                epoch.events.retain(|(pid, _), _| !strangers.contains(pid));
                epoch.in_order.retain(|a| !strangers.contains(&a.pid));
            }
            if strangers.contains(&event.pid) {
                return;
            }
        }
        let (files, kept) = (self.files(), self.kept_in_order());
        let Some(epoch) = self.epochs.get_mut(of_event) else {
            return;
        };
        let key = (event.pid, event.key);
        if !epoch.events.contains_key(&key) {
            if files >= self.files_max {
                epoch.lost += 1;
                return;
            }
            self.owners.note(event.pid);
        }
        let is_kept = epoch.events.entry(key).or_default().add(&event, page);
        epoch.lost += u64::from(!is_kept);
        if event.kind != FilemapKind::Added && kept < IN_ORDER_MAX {
            epoch.in_order.push(event);
        }
    }

    fn files(&self) -> usize {
        self.epochs.iter().map(|epoch| epoch.events.len()).sum()
    }

    fn kept_in_order(&self) -> usize {
        self.epochs.iter().map(|epoch| epoch.in_order.len()).sum()
    }

    fn has_room(&self, epoch: usize, event: &Access) -> bool {
        let held = self.epochs.get(epoch);
        let held = held.and_then(|epoch| epoch.events.get(&(event.pid, event.key)));
        let has_room = match held {
            Some(file) => file.has_room(),
            None => self.files() < self.files_max,
        };
        has_room && self.kept_in_order() < IN_ORDER_MAX
    }

    fn since(&self, began: Nanos) -> impl Iterator<Item = &Epoch> {
        self.epochs.iter().filter(move |epoch| epoch.began >= began)
    }

    /// What these processes did to files since a switch began, by inode.
    pub fn of(&self, pids: &BTreeSet<i32>, began: Nanos) -> HashMap<InodeKey, FileEvents> {
        let mut files: HashMap<InodeKey, FileEvents> = HashMap::new();
        for ((pid, key), events) in self.since(began).flat_map(|epoch| &epoch.events) {
            if pids.contains(pid) {
                files.entry(*key).or_default().extend(events);
            }
        }
        files
    }

    /// The accesses of these processes since then, in the order in which they were taken; `None` where not all were kept.
    pub fn in_order(&self, pids: &BTreeSet<i32>, began: Nanos) -> Option<Vec<Access>> {
        let all = self.since(began).flat_map(|epoch| &epoch.in_order);
        let theirs = all.filter(|a| pids.contains(&a.pid));
        (self.kept_in_order() < IN_ORDER_MAX).then(|| theirs.copied().collect())
    }

    /// Events since then that were lost, or that there was no room for.
    pub fn lost(&self, began: Nanos) -> u64 {
        self.since(began).map(|epoch| epoch.lost).sum()
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
            self.table.of(&self.members, 0).len()
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
        assert_eq!((rig.own_files(), rig.table.lost(0)), (FILES_MAX, 0));
        assert_eq!(rig.asked, 1, "it is looked up once whose a process is");
    }

    #[test]
    fn the_accesses_of_strangers_take_no_room() {
        let mut rig = Rig::new();
        for n in 0..IN_ORDER_MAX as u64 + 10 {
            rig.add(read(STRANGER, 0, n));
        }
        rig.add(read(OWN, 0, 0));
        assert_eq!(rig.table.lost(0), 0);
        let in_order = rig.table.in_order(&rig.members, 0);
        assert_eq!(in_order, Some(vec![read(OWN, 0, 0)]));
    }

    #[test]
    fn what_the_application_itself_does_may_be_too_much() {
        let mut rig = Rig::new();
        for n in 0..20 {
            rig.add(read(OWN, n, 0));
        }
        assert_eq!(
            (rig.own_files(), rig.table.lost(0)),
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
        assert!(rig.table.of(&BTreeSet::from([STRANGER]), 0).is_empty());
        rig.members = BTreeSet::from([STRANGER]);
        rig.table.forget_owners();
        rig.add(read(STRANGER, 7, 0));
        assert_eq!(rig.own_files(), 1);
    }

    /// Who reads a page does so at the time that is its number.
    #[test]
    fn each_switch_sees_what_happened_since_it_began() {
        let mut rig = Rig::new();
        rig.members = BTreeSet::from([1, 2]);
        // The first began at 10, and the second while it was under way.
        rig.table.begin(10, 10);
        rig.add(read(1, 0, 11));
        rig.add(read(2, 0, 12));
        // The table is told of the second when it has seen something of it.
        rig.add(read(2, 0, 20));
        rig.table.begin(20, 10);
        // What another core's ring held comes late.
        rig.add(read(2, 0, 13));
        rig.add(read(2, 0, 21));
        rig.add(read(2, 0, 22));
        rig.add(read(1, 0, 23));
        let seen = |rig: &Rig, pid: i32, began: Nanos| {
            let files = rig.table.of(&BTreeSet::from([pid]), began);
            let pages = files.get(&((254, 0), 0)).map(FileEvents::accessed);
            pages.unwrap_or_default().iter_pages().collect::<Vec<_>>()
        };
        assert_eq!(seen(&rig, 1, 10), [22, 46]);
        assert_eq!(seen(&rig, 2, 10), [24, 26, 40, 42, 44]);
        assert_eq!(seen(&rig, 2, 20), [40, 42, 44]);
        rig.table.lose(3);
        assert_eq!((rig.table.lost(10), rig.table.lost(20)), (3, 3));
        // The first is over.
        rig.table.begin(30, 20);
        assert_eq!(rig.table.lost(30), 0, "what was lost before is not its own");
        rig.add(read(1, 0, 31));
        assert_eq!(seen(&rig, 1, 0), [46, 62]);
        assert_eq!(seen(&rig, 1, 30), [62]);
        let in_order = rig.table.in_order(&rig.members, 30);
        assert_eq!(in_order, Some(vec![read(1, 0, 31)]));
        // All are over.
        rig.table.begin(40, 40);
        assert!(rig.table.of(&rig.members, 0).is_empty());
    }
}
