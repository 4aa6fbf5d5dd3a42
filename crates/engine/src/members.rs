//! The processes of the applications followed.

use crate::accounts::{self, accountable};
use crate::executor::{COPIES_MAX, Members};
use crate::patience;
use prepage_core::identity::{AppId, Instance};
use prepage_core::machine::Event;
use prepage_kernel::cgroup::{self, Cgroup, Controller, Hierarchy};
use prepage_kernel::credentials::FsUser;
use prepage_kernel::pagemap::{PageEntry, Pagemap};
use prepage_kernel::process::{self, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most processes followed for one application.
const MEMBERS_MAX: usize = prepage_core::app::INSTANCES_MAX;

/// Most processes followed for all applications of one user who is not root, those of several counted for each: every one takes two
/// descriptors, of which the service has 65,536 (`dist/prepaged.service`).
const OWNER_MEMBERS_MAX: usize = 4096;

/// One process instance, held by what does not come to mean another process where its pid is used again.
#[derive(Debug)]
pub struct Member {
    /// What the estimators know it by.
    pub instance: Instance,
    /// Held by pidfd.
    pub process: Process,
    /// Its page table's view. After an exec it shows the address space that is gone: nothing.
    pub pagemap: Pagemap,
    /// Whose file-system rights it has.
    pub rights: Rights,
    /// What tells its program from most others (see [`process::exec_generation`]).
    generation: u64,
}

impl Member {
    /// What its page table says of a page; `None` where it is not to be read.
    pub fn entry(&self, page: u64) -> Option<PageEntry> {
        let mut entry = [PageEntry::default()];
        let read = self.pagemap.read(page, &mut entry);
        read.is_ok_and(|read| read == 1).then_some(entry[0])
    }
}

/// The share (0 to 1) of these virtual pages that is out of memory; 0 of none. Pages of shared memory that are out have no
/// entry. Each process is asked by itself, so that one that does not answer is known by its pid: its pages are left
/// out.
pub fn share_out(sample: Vec<(Arc<Member>, Vec<u64>)>) -> f32 {
    let (mut asked, mut out) = (0u32, 0u32);
    for (member, pages) in sample {
        let pid = member.instance.pid;
        let counted = patience::of_process(pid, move || {
            let is_out = |&&page: &&u64| member.entry(page).is_some_and(|entry| !entry.present());
            (
                pages.len() as u32,
                pages.iter().filter(is_out).count() as u32,
            )
        });
        let (of_it, out_of_it) = counted.unwrap_or_default();
        asked += of_it;
        out += out_of_it;
    }
    match asked {
        0 => 0.0,
        _ => out as f32 / asked as f32,
    }
}

/// File-system rights: what file pages are read with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Rights {
    /// This process's own.
    pub fn own() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        }
    }

    /// Gives this thread these rights, while the guard lives.
    pub fn enter(&self) -> prepage_kernel::Result<FsUser> {
        FsUser::enter(self.uid, self.gid, Some(&self.groups))
    }
}

#[derive(Debug, Default)]
struct Followed {
    /// Each copy, and the processes that it had at the last refresh.
    copies: Vec<(Members, BTreeSet<i32>)>,
    members: BTreeMap<i32, Arc<Member>>,
    /// The memory control groups of its processes when they were last looked up.
    memory_groups: BTreeSet<Cgroup>,
}

impl Followed {
    fn copy_of(&self, pid: i32) -> Option<&Members> {
        let mut copies = self.copies.iter();
        let found = copies.find(|(_, pids)| pids.contains(&pid));
        found.map(|(copy, _)| copy)
    }
}

/// All applications followed, with their processes.
#[derive(Debug, Default)]
pub struct Roster {
    apps: BTreeMap<AppId, Followed>,
    by_pid: BTreeMap<i32, AppId>,
    /// How many instances there have been.
    instances: u64,
    /// The control group hierarchies that were mounted at the start.
    hierarchies: Vec<Hierarchy>,
    /// [`OWNER_MEMBERS_MAX`], but in tests.
    owner_members_max: usize,
}

impl Roster {
    /// A roster of nobody. Without control groups (`/proc` unreadable), nothing is known of limits.
    pub fn new() -> Self {
        Self {
            hierarchies: cgroup::hierarchies().unwrap_or_default(),
            owner_members_max: OWNER_MEMBERS_MAX,
            ..Self::default()
        }
    }

    /// The control group hierarchies that were mounted at the start.
    pub fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }

    /// Follows an application's copies, and no others any more; [`Roster::refresh`] finds their processes.
    pub fn follow(&mut self, app: &AppId, copies: &[Members]) {
        let followed = self.apps.entry(app.clone()).or_default();
        let nobody = |copy: &Members| (copy.clone(), BTreeSet::new());
        followed.copies = copies.iter().take(COPIES_MAX).map(nobody).collect();
    }

    /// Ends following it.
    pub fn unfollow(&mut self, app: &AppId) {
        self.apps.remove(app);
        self.by_pid.retain(|_, owner| owner != app);
    }

    /// The application that a process belongs to.
    pub fn app_of(&self, pid: i32) -> Option<&AppId> {
        self.by_pid.get(&pid)
    }

    /// The copies of an application.
    pub fn copies(&self, app: &AppId) -> Vec<Members> {
        let followed = self.apps.get(app).into_iter();
        let copies = followed.flat_map(|followed| &followed.copies);
        copies.map(|(copy, _)| copy.clone()).collect()
    }

    /// The copy of an application that a process belongs to; `None` where there is only one, or it is in none.
    pub fn copy_of(&self, app: &AppId, pid: i32) -> Option<&Members> {
        let several = self.apps.get(app).filter(|f| f.copies.len() > 1)?;
        several.copy_of(pid)
    }

    /// The processes of an application, or of one copy of it, that were there at the last refresh.
    pub fn members(&self, app: &AppId, copy: Option<&Members>) -> Vec<Arc<Member>> {
        let Some(followed) = self.apps.get(app) else {
            return Vec::new();
        };
        let wanted = |pid: i32| copy.is_none_or(|copy| followed.copy_of(pid) == Some(copy));
        let members = followed.members.iter().filter(|(pid, _)| wanted(**pid));
        members.map(|(_, member)| Arc::clone(member)).collect()
    }

    /// One of them.
    pub fn member(&self, app: &AppId, instance: &Instance) -> Option<&Arc<Member>> {
        let member = self.apps.get(app)?.members.get(&instance.pid)?;
        (member.instance == *instance).then_some(member)
    }

    /// Looks in which memory control groups its processes are. That reads a small file for each: do it ahead.
    pub fn find_memory_groups(&mut self, app: &AppId) {
        let Some(followed) = self.apps.get_mut(app) else {
            return;
        };
        let group = |pid: &i32| cgroup::of_process(&self.hierarchies, *pid, Controller::Memory);
        // A process that has ended is in no group.
        let found = followed.members.keys().filter_map(|pid| group(pid).ok()?);
        followed.memory_groups = found.collect();
    }

    /// What [`Roster::find_memory_groups`] found last.
    pub fn memory_groups(&self, app: &AppId) -> Vec<Cgroup> {
        let followed = self.apps.get(app);
        followed.map_or_else(Vec::new, |f| f.memory_groups.iter().cloned().collect())
    }

    /// How many processes of an application may be followed.
    fn members_max(&self, app: &AppId) -> usize {
        if app.owner == 0 {
            return MEMBERS_MAX;
        }
        let others = self.apps.iter();
        let account = accountable(app.owner);
        let others =
            others.filter(|(other, _)| accountable(other.owner) == account && *other != app);
        let of_others: usize = others.map(|(_, followed)| followed.members.len()).sum();
        MEMBERS_MAX.min(self.owner_members_max.saturating_sub(of_others))
    }

    /// The processes of other applications that are process trees: such a tree in an application's control group is none of it.
    fn trees_of_others(&self, app: &AppId) -> BTreeSet<i32> {
        let others = self.apps.iter().filter(|(other, _)| *other != app);
        let copies = others.flat_map(|(_, followed)| &followed.copies);
        let trees = copies.filter(|(copy, _)| matches!(copy, Members::Tree(_)));
        trees.flat_map(|(_, pids)| pids).copied().collect()
    }

    /// Looks which processes there are now. Returns an event for each instance that ended or began.
    pub fn refresh(&mut self, app: &AppId) -> Vec<Event> {
        let (members_max, trees) = (self.members_max(app), self.trees_of_others(app));
        let Some(followed) = self.apps.get_mut(app) else {
            return Vec::new();
        };
        for (copy, pids) in &mut followed.copies {
            *pids = pids_of(copy);
            if matches!(copy, Members::Cgroup(_)) {
                pids.retain(|pid| !trees.contains(pid));
            }
        }
        let present = followed.copies.iter().flat_map(|(_, pids)| pids);
        let present: BTreeSet<i32> = present.copied().collect();
        let mut events = Vec::new();
        let by_pid = &mut self.by_pid;
        followed.members.retain(|pid, member| {
            let stays = present.contains(pid) && is_same_instance(member);
            let owner = by_pid.get(pid);
            if stays && owner.is_none() {
                // It was another application's, too, and has left that.
                by_pid.insert(*pid, app.clone());
            } else if !stays && owner == Some(app) {
                by_pid.remove(pid);
            }
            if !stays {
                events.push(Event::InstanceEnded {
                    app: app.clone(),
                    instance: member.instance,
                });
            }
            stays
        });
        for pid in present {
            if followed.members.len() >= members_max {
                break;
            }
            if followed.members.contains_key(&pid) {
                continue;
            }
            // A process that vanished meanwhile, or that we may not look into, is none of ours; nor is one of another user, among
            // those of a user: who owns the application gets to know what its processes use.
            let member = open_member(pid, app.owner, self.instances);
            let Some(member) = member.ok().flatten() else {
                continue;
            };
            self.instances += 1;
            events.push(Event::InstanceStarted {
                app: app.clone(),
                instance: member.instance,
            });
            by_pid.insert(pid, app.clone());
            followed.members.insert(pid, Arc::new(member));
        }
        events
    }
}

/// By two signs, since addresses that are not randomized are the same after an exec of the same program, and an address space
/// that a parent shares (vfork) lives on.
fn is_same_instance(member: &Member) -> bool {
    member.process.is_alive()
        && member.pagemap.is_of_living()
        && process::exec_generation(member.instance.pid).ok() == Some(member.generation)
}

/// `exec` is a number that no instance has had: the generation may be that of the program before. `None` where it has rights that the
/// owner, root apart, does not have, as a set-user-id program, and where it does not answer: the next refresh asks it
/// again.
fn open_member(pid: i32, owner: u32, exec: u64) -> prepage_kernel::Result<Option<Member>> {
    // To open a page table waits for an exec under way, and that for the lock of the address space that it leaves: a
    // child of vfork(2) has its parent's (exec_update_lock, in exec_mmap()).
    let opened = patience::of_process(pid, move || -> prepage_kernel::Result<_> {
        let process = Process::open(pid)?;
        let pagemap = process.pagemap()?;
        Ok((process, pagemap))
    });
    let Some(opened) = opened else {
        return Ok(None);
    };
    // In this order: an exec meanwhile is told by the page table that is gone, or by its generation, and rights that it brought
    // are seen (the page table of what is executed cannot be opened before they hold: exec_update_lock).
    let (process, pagemap) = opened?;
    let generation = process::exec_generation(pid)?;
    let status = process::status(pid)?;
    let is_owners = || {
        let is_one = status.uid.is_one() && status.gid.is_one();
        is_one && accounts::owner_of(pid, status.uid.real) == owner
    };
    if owner != 0 && !is_owners() {
        return Ok(None);
    }
    Ok(Some(Member {
        instance: Instance {
            pid,
            start_ticks: process.id().start_ticks,
            exec,
        },
        process,
        pagemap,
        rights: Rights {
            uid: status.uid.file_system,
            gid: status.gid.file_system,
            groups: status.groups,
        },
        generation,
    }))
}

/// The processes that are there now.
pub fn pids_of(how: &Members) -> BTreeSet<i32> {
    match how {
        Members::Cgroup(dir) => prepage_kernel::cgroup::procs(dir)
            .unwrap_or_default()
            .into_iter()
            .collect(),
        Members::Tree(root) => process::tree(*root, MEMBERS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::identity::AppKind;
    use prepage_kernel::page::page_size;
    use prepage_kernel::testing::group::{Group, memory};
    use prepage_kernel::testing::machine::eventually;
    use prepage_kernel::testing::sleeping::Sleeping;
    use std::sync::mpsc::{Sender, channel};

    fn member(process: &Sleeping) -> Arc<Member> {
        let opened = open_member(process.pid(), 0, 0).expect("these tests need root");
        Arc::new(opened.expect("one of root's"))
    }

    /// A page that a process has in memory.
    fn page(process: &Sleeping) -> u64 {
        let stat = process::stat(process.pid()).expect("stat");
        stat.start_stack / page_size()
    }

    /// Leaves a question about a process unanswered until what is returned is dropped.
    fn hang(process: &Sleeping) -> Sender<()> {
        let (release, wait) = channel::<()>();
        let answer = patience::of_process(process.pid(), move || wait.recv().is_err());
        assert_eq!(answer, None);
        release
    }

    /// A page that no process has.
    const NO_PAGE: u64 = 1;

    #[test]
    fn pages_of_a_process_that_does_not_answer_are_left_out_and_others_are_not() {
        let [one, other] = [(); 2].map(|()| Sleeping::spawn());
        let (its, others) = (member(&one), member(&other));
        let share = || {
            share_out(vec![
                (Arc::clone(&its), vec![page(&one)]),
                (Arc::clone(&others), vec![NO_PAGE]),
            ])
        };
        assert_eq!(share(), 0.5);
        let release = hang(&one);
        for _ in 0..9 {
            assert_eq!(share(), 1.0);
        }
        drop(release);
        eventually("it is asked again", || share() == 0.5);
        assert_eq!(share_out(Vec::new()), 0.0);
    }

    fn app(name: &str, owner: u32) -> AppId {
        AppId {
            kind: AppKind::Named,
            name: name.into(),
            owner,
        }
    }

    #[test]
    fn a_process_that_does_not_answer_is_followed_as_soon_as_it_does() {
        let process = Sleeping::spawn();
        let app = app("sleep", 0);
        let mut roster = Roster::new();
        roster.follow(&app, &[Members::Tree(process.pid())]);
        let release = hang(&process);
        assert!(roster.refresh(&app).is_empty());
        drop(release);
        eventually("it is asked again", || roster.refresh(&app).len() == 1);
        assert_eq!(roster.app_of(process.pid()), Some(&app));
    }

    #[test]
    fn a_process_tree_in_the_group_of_another_application_is_none_of_that() {
        let group = Group::create(&memory());
        let processes = [(); 2].map(|()| Sleeping::spawn());
        let pids = processes.each_ref().map(Sleeping::pid);
        pids.iter().for_each(|pid| group.write("cgroup.procs", pid));
        let [files, opened] = ["files", "opened"].map(|name| app(name, 0));
        let mut roster = Roster::new();
        roster.follow(&files, &[Members::Cgroup(group.0.directory.clone())]);
        assert_eq!(roster.refresh(&files).len(), 2);
        roster.follow(&opened, &[Members::Tree(pids[1])]);
        assert_eq!(roster.refresh(&opened).len(), 1);
        assert_eq!(roster.refresh(&files).len(), 1, "one has left it");
        let owners = || pids.map(|pid| roster.app_of(pid).cloned());
        assert_eq!(owners(), [Some(files.clone()), Some(opened.clone())]);
        roster.unfollow(&opened);
        assert_eq!(roster.refresh(&files).len(), 1, "it is in there again");
    }

    #[test]
    fn nobodys_applications_take_all_descriptors() {
        const USER: u32 = 65_534;
        let processes = [(); 2].map(|()| Sleeping::spawn_as(USER));
        let all = processes.each_ref().map(|p| Members::Tree(p.pid()));
        let mut roster = Roster {
            owner_members_max: 3,
            ..Roster::new()
        };
        let follow = |roster: &mut Roster, app: &AppId| {
            roster.follow(app, &all);
            roster.refresh(app).len()
        };
        let [one, two, other] = ["one", "two", "other"].map(|name| app(name, USER));
        assert_eq!(follow(&mut roster, &one), 2);
        assert_eq!(follow(&mut roster, &two), 1);
        assert_eq!(follow(&mut roster, &other), 0);
        assert_eq!(follow(&mut roster, &app("sleep", 0)), 2, "root's");
        assert!(roster.refresh(&one).is_empty(), "they stay");
        roster.unfollow(&one);
        assert_eq!(roster.refresh(&other).len(), 2);
    }
}
