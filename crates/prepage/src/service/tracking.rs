//! Which applications are tracked, where each is found, and what happens when it ends and comes back.

use super::Service;
use super::calls::may_act;
use super::poller::Token;
use crate::cgroups;
use crate::config::TrackPolicy;
use crate::discover;
use crate::identity::Identity;
use crate::sources::api::Caller;
use crate::{log_info, log_warning};
use prepage_core::identity::AppId;
use prepage_core::machine::{APPS_MAX, Event, Nanos};
use prepage_engine::accounts::accountable;
use prepage_engine::store::TrackedBy;
use prepage_engine::{COPIES_MAX, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::process;
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// Applications of one user, but root, that are tracked at once: nobody takes all places.
const OWNER_APPS_MAX: usize = APPS_MAX / 8;

/// Most processes of which it is remembered that they belong to no tracked application.
const STRANGERS_MAX: usize = 4096;

/// How long that is remembered: meanwhile the process may have called exec, or its pid may mean another.
const STRANGER_NS: u64 = 5_000_000_000;

/// How many processes of a copy are looked for, one after the other, that end meanwhile.
const MAINS_MAX: usize = 16;

/// Most users of whom it is remembered that the log says what they have no room for.
const FULL_MAX: usize = 1024;

/// A running copy of a tracked application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCopy {
    /// What makes it up.
    pub members: Members,
    /// The process at its top, whose end is waited for; 0 for a control group that is empty.
    pub main: i32,
}

impl RunningCopy {
    fn of_group(directory: PathBuf) -> Self {
        let pids = discover::group_processes(&directory);
        let main = match discover::main_process(&pids) {
            Ok(main) => main.map_or(0, |facts| facts.pid),
            // Which it is, is not known: it is looked for again when this one ends.
            Err(_) => pids.first().copied().unwrap_or(0),
        };
        Self {
            members: Members::Cgroup(directory),
            main,
        }
    }
}

impl From<Identity> for RunningCopy {
    fn from(identity: Identity) -> Self {
        Self {
            members: identity.members,
            main: identity.main,
        }
    }
}

/// What the service follows.
#[derive(Debug, Default)]
pub struct Tracking {
    /// The copies of each tracked application, at most [`COPIES_MAX`]; none while it is not running.
    apps: BTreeMap<AppId, Vec<RunningCopy>>,
    /// Processes that demand faults were seen of and that the executor does not know (yet), with their applications.
    strangers: HashMap<i32, (Nanos, Option<AppId>)>,
    /// Users of whom one more application could not be tracked, at most `FULL_MAX`, until one is tracked no longer.
    full: BTreeSet<u32>,
}

impl Tracking {
    /// Whether an application is tracked.
    pub fn contains(&self, app: &AppId) -> bool {
        self.apps.contains_key(app)
    }

    /// The tracked applications.
    pub fn apps(&self) -> impl Iterator<Item = &AppId> {
        self.apps.keys()
    }

    /// Whether a tracked application is running.
    pub fn is_running(&self, app: &AppId) -> bool {
        self.apps.get(app).is_some_and(|copies| !copies.is_empty())
    }

    /// The tracked application that these processes are followed as a copy of.
    pub fn app_of(&self, members: &Members) -> Option<&AppId> {
        self.find(|of_copy| of_copy == members)
    }

    fn find(&self, wanted: impl Fn(&Members) -> bool) -> Option<&AppId> {
        let has = |copies: &[RunningCopy]| copies.iter().any(|copy| wanted(&copy.members));
        let mut apps = self.apps.iter();
        apps.find(|(_, copies)| has(copies)).map(|(app, _)| app)
    }

    /// What makes an application up, as shown to people.
    pub fn members_text(&self, app: &AppId) -> String {
        let copy = |copy: &RunningCopy| match &copy.members {
            Members::Cgroup(directory) => directory.display().to_string(),
            Members::Tree(pid) => format!("process tree of {pid}"),
        };
        let copies = self.apps.get(app).map_or(&[][..], Vec::as_slice);
        match copies.is_empty() {
            true => "not running".into(),
            false => copies.iter().map(copy).collect::<Vec<_>>().join(", "),
        }
    }

    /// The running copies of an application.
    pub fn copies<'a>(&'a self, app: &'a AppId) -> impl Iterator<Item = Identity> + 'a {
        let copies = self.apps.get(app).into_iter().flatten();
        copies.map(|copy| Identity {
            app: app.clone(),
            members: copy.members.clone(),
            main: copy.main,
        })
    }

    fn some_are_absent(&self) -> bool {
        self.apps.values().any(Vec::is_empty)
    }
}

impl Service {
    /// Tracks what the store and the configuration name, and finds it among the processes that run now.
    pub(super) fn track_what_is_known(&mut self) {
        let listed = self.config.service.applications.iter();
        self.around.listed = listed.map(|text| discover::named(text)).collect();
        let known: Vec<_> = self
            .store
            .tracked()
            .map(|(a, h)| (a.clone(), h.clone()))
            .collect();
        for (app, how) in known {
            if self.tracking.contains(&app) {
                continue;
            }
            self.admit(&app);
            if let TrackedBy::Cgroup(directory) = how {
                self.add_copies(&app, vec![RunningCopy::of_group(directory)]);
            }
        }
        let wanted = !self.config.service.applications.is_empty();
        if wanted || self.tracking.some_are_absent() {
            for identity in discover::running(&self.around) {
                self.meet(identity);
            }
        }
    }

    /// A copy of an application was found running: follows it where the application is tracked, or the configuration
    /// names it.
    pub(super) fn meet(&mut self, identity: Identity) {
        // It may have another name: then that is it.
        if self.tracking.app_of(&identity.members).is_some() {
            return;
        }
        let app = identity.app.clone();
        if self.tracking.contains(&app) {
            self.add_copies(&app, vec![identity.into()]);
        } else if self.lists(&identity) && self.has_room_for(&app) {
            self.track(&app, vec![identity.into()], TrackedBy::Name);
        }
    }

    /// Whether the configuration lists a copy's application, or the program that it is.
    pub(super) fn lists(&self, copy: &Identity) -> bool {
        let is_listed = |app: AppId| self.around.lists(&app);
        let program = || discover::program_of(copy);
        !self.around.listed.is_empty()
            && (self.around.lists(&copy.app) || program().is_some_and(is_listed))
    }

    /// Begins to track an application, where there is room for it, and to follow these copies of it beside those that are. Returns
    /// whether it was not tracked before.
    pub(super) fn track(&mut self, app: &AppId, copies: Vec<RunningCopy>, how: TrackedBy) -> bool {
        let new = !self.tracking.contains(app);
        if new {
            self.admit(app);
        }
        if !self.tracking.contains(app) {
            return false;
        }
        self.store.set_tracked(app, Some(how));
        self.add_copies(app, copies);
        new
    }

    fn add_copies(&mut self, app: &AppId, copies: Vec<RunningCopy>) {
        let Some(known) = self.tracking.apps.get_mut(app) else {
            return;
        };
        let before = known.clone();
        for copy in copies {
            let is_same = |one: &RunningCopy| one.members == copy.members;
            // A control group is one copy, whichever of its processes it was found by.
            if known
                .iter()
                .any(|one| is_same(one) && (one.main != 0 || copy.main == 0))
            {
                continue;
            }
            // The same process at the top: its processes are to be found elsewhere now.
            known.retain(|one| !is_same(one) && (one.main != copy.main || one.main == 0));
            match known.len() < COPIES_MAX {
                true => known.push(copy),
                false => log_warning!("no more than {COPIES_MAX} copies of {app} are followed"),
            }
        }
        if *known != before {
            self.follow(app);
        }
    }

    /// A copy belongs to another application now. One without copies is tracked no longer.
    pub(super) fn give_up_copy(&mut self, app: &AppId, members: &Members) {
        let Some(copies) = self.tracking.apps.get_mut(app) else {
            return;
        };
        copies.retain(|copy| copy.members != *members);
        match copies.is_empty() {
            true => self.untrack(app),
            false => self.follow(app),
        }
    }

    /// Whether one more application of this user can be tracked.
    pub(super) fn has_room(&self, owner: u32) -> bool {
        let apps = &self.tracking.apps;
        let account = accountable(owner);
        let of_owner = || {
            let own = apps.keys().filter(|app| accountable(app.owner) == account);
            own.count()
        };
        apps.len() < APPS_MAX && (owner == 0 || of_owner() < OWNER_APPS_MAX)
    }

    /// Whether this application can be tracked beside the others. Of each user's the first that cannot is told to the log.
    fn has_room_for(&mut self, app: &AppId) -> bool {
        let has_room = self.has_room(app.owner);
        let full = &mut self.tracking.full;
        if !has_room && full.len() < FULL_MAX && full.insert(accountable(app.owner)) {
            log_warning!(
                "{app} is not tracked, nor are others from now on: at most {OWNER_APPS_MAX} applications of a user are, and \
                 {APPS_MAX} of all; `prepage untrack` makes room"
            );
        }
        has_room
    }

    fn admit(&mut self, app: &AppId) {
        if !self.has_room_for(app) {
            return;
        }
        let profile = self.store.load(app).map(|s| s.profile.clone());
        self.step_now(Event::Tracked {
            app: app.clone(),
            profile: Box::new(profile.unwrap_or_default()),
        });
        self.tracking.apps.insert(app.clone(), Vec::new());
        self.around.tracked.insert(app.clone());
        self.tracking.strangers.clear();
        self.watch_execs();
        log_info!("tracking {app}");
    }

    /// The store holds another profile of a tracked application: begins anew with that.
    pub(super) fn take_over_profile(&mut self, app: &AppId) {
        let Some(copies) = self.tracking.apps.remove(app) else {
            return;
        };
        self.executor.unfollow(app);
        self.step_now(Event::Untracked { app: app.clone() });
        self.admit(app);
        self.add_copies(app, copies);
    }

    /// Ends tracking an application.
    pub(super) fn untrack(&mut self, app: &AppId) {
        self.executor.unfollow(app);
        self.step_now(Event::Untracked { app: app.clone() });
        self.store.set_tracked(app, None);
        self.tracking.apps.remove(app);
        self.tracking.full.clear();
        self.around.tracked.remove(app);
        self.tracking.strangers.clear();
        self.forget_sources(app);
        self.watch_execs();
        log_info!("tracking {app} no longer");
    }

    fn forget_sources(&mut self, app: &AppId) {
        self.exits.remove(app);
        self.onset.remove(app);
        if let Some(groups) = &mut self.groups {
            groups.remove(app);
        }
    }

    /// Follows the copies of an application, and no others any more.
    fn follow(&mut self, app: &AppId) {
        self.forget_sources(app);
        self.tracking.strangers.clear();
        let mut copies = self.tracking.apps.get(app).cloned().unwrap_or_default();
        copies.retain_mut(|copy| self.watch_copy(app, copy));
        self.tracking.apps.insert(app.clone(), copies.clone());
        if copies.is_empty() {
            self.executor.unfollow(app);
            return self.end_instances(app);
        }
        for copy in &copies {
            self.watch_groups(app, copy);
        }
        let members: Vec<Members> = copies.into_iter().map(|copy| copy.members).collect();
        self.executor.follow(app, &members);
        // It tells of processes by its wake-up, or at once.
        self.see_executor();
    }

    fn watch_groups(&mut self, app: &AppId, copy: &RunningCopy) {
        let Some(groups) = &mut self.groups else {
            return;
        };
        let own = match &copy.members {
            Members::Cgroup(directory) => self.around.hierarchies.group_at(directory),
            Members::Tree(_) => None,
        };
        let mut memberships: Vec<_> = own.into_iter().collect();
        memberships.extend(cgroups::memberships(copy.main));
        groups.watch(app, copy.main, &memberships, &self.around);
    }

    /// Waits for the end of a copy's main process. Returns whether the copy is there: the group that was named stays the
    /// application's, whoever comes into it next.
    fn watch_copy(&mut self, app: &AppId, copy: &mut RunningCopy) -> bool {
        // Where an application ends, so may one of its processes after the other, each as it is looked for.
        for _ in 0..MAINS_MAX {
            if self.watch_exit(app, copy.main) {
                return true;
            }
            // A tree whose top has ended is none: its pid may come to mean another process.
            let Members::Cgroup(directory) = &copy.members else {
                return false;
            };
            if copy.main == 0 {
                let tracked = self.store.load(app).and_then(|s| s.tracked.as_ref());
                return matches!(tracked, Some(TrackedBy::Cgroup(named)) if named == directory);
            }
            *copy = RunningCopy::of_group(directory.clone());
        }
        true
    }

    /// Returns whether the process is there.
    fn watch_exit(&mut self, app: &AppId, main: i32) -> bool {
        // A control group that is empty for now has no process whose end could be waited for.
        let Ok((number, process)) = self.exits.add(app, main) else {
            return false;
        };
        let added = self
            .poller
            .add(process.pidfd(), Token::Exit(number), EventFlags::IN);
        if let Err(error) = added {
            log_warning!("the end of {app} will not be seen: {error}");
        }
        true
    }

    /// The main process of a copy of an application ended.
    pub(super) fn see_exit(&mut self, number: u32) {
        let Some((app, pid)) = self.exits.take(number) else {
            return;
        };
        let Some(copies) = self.tracking.apps.get_mut(&app) else {
            return;
        };
        copies.retain_mut(|copy| match &copy.members {
            _ if copy.main != pid => true,
            Members::Tree(_) => false,
            Members::Cgroup(directory) => {
                *copy = RunningCopy::of_group(directory.clone());
                true
            }
        });
        self.follow(&app);
    }

    fn end_instances(&mut self, app: &AppId) {
        let model = self.machine.app(app);
        let instances: Vec<_> = model
            .into_iter()
            .flat_map(|m| m.instances())
            .map(|(i, _)| *i)
            .collect();
        for instance in instances {
            let app = app.clone();
            self.step_now(Event::InstanceEnded { app, instance });
        }
    }

    /// The tracked application that a process with demand faults belongs to.
    pub(super) fn app_of_burst(&mut self, pid: i32) -> Option<AppId> {
        if let Some(app) = self.executor.app_of(pid) {
            return Some(app);
        }
        if self.tracking.apps.is_empty() && self.config.service.applications.is_empty() {
            return None;
        }
        let now = monotonic_ns();
        let known = self.tracking.strangers.get(&pid);
        if let Some((_, app)) = known.filter(|(since, _)| now < since + STRANGER_NS) {
            return app.clone();
        }
        let app = self.find_tracked(pid);
        if self.tracking.strangers.len() >= STRANGERS_MAX {
            self.tracking.strangers.clear();
        }
        self.tracking.strangers.insert(pid, (now, app.clone()));
        app
    }

    /// The tracked application that a process belongs to, looked up in /proc: it may be a new process of one that is
    /// followed, or the first of one that comes back.
    pub(super) fn find_tracked(&mut self, pid: i32) -> Option<AppId> {
        self.find_or_identify(pid).ok()
    }

    /// The same; where it is none, what the process is of, if that is known.
    fn find_or_identify(&mut self, pid: i32) -> Result<AppId, Option<Identity>> {
        // A process that does not answer may be in a group or below a process that is known.
        if process::stat(pid).is_err() {
            return Err(None);
        }
        let groups = cgroups::memberships(pid);
        let directories: Vec<_> = groups
            .iter()
            .filter_map(|g| self.around.hierarchies.directory(g))
            .collect();
        let ancestry: Vec<i32> = discover::ancestry(pid).collect();
        let is_below =
            |members: &Members| matches!(members, Members::Tree(root) if ancestry.contains(root));
        if let Some(app) = self.tracking.find(is_below) {
            return Ok(app.clone());
        }
        let is_inside = |members: &Members| matches!(members, Members::Cgroup(group) if directories.iter().any(|d| d.starts_with(group)));
        let of_group = self.tracking.find(is_inside).cloned();
        let is_plain = |app: &AppId| {
            !app.kind.is_of_unit() || self.tracking.copies(app).any(|copy| copy.main == pid)
        };
        if let Some(app) = of_group.as_ref().filter(|app| is_plain(app)) {
            return Ok(app.clone());
        }
        let identity = discover::identify(pid, &self.around).ok().flatten();
        // What is in a unit's group, and is by itself, is none of that unit.
        let is_other = |app: &AppId, own: &Identity| {
            matches!(own.members, Members::Tree(_)) && own.app != *app
        };
        let identity = match (of_group, identity) {
            (Some(app), Some(own)) if is_other(&app, &own) => own,
            (Some(app), _) => return Ok(app),
            (None, own) => own.ok_or(None)?,
        };
        self.meet(identity.clone());
        match self.tracking.contains(&identity.app) {
            true => Ok(identity.app),
            false => Err(Some(identity)),
        }
    }

    /// The tracked application that got the focus. One that is not tracked is, where the configuration says so.
    pub(super) fn app_of_focus(&mut self, caller: Caller, pid: i32) -> Option<AppId> {
        let identity = match self.find_or_identify(pid) {
            Ok(app) => return Some(app),
            Err(identity) => identity?,
        };
        if self.config.service.track != TrackPolicy::Focused {
            return None;
        }
        if !may_act(caller, &identity.app) || !self.has_room_for(&identity.app) {
            return None;
        }
        let app = identity.app.clone();
        self.track(&app, vec![identity.into()], TrackedBy::Name);
        Some(app)
    }
}
