//! Which applications are tracked, where each is found, and what happens when it ends and comes back.

use super::Service;
use super::calls::may_act;
use super::poller::Token;
use crate::cgroups;
use crate::config::TrackPolicy;
use crate::discover;
use crate::identity::{Identity, matches};
use crate::sources::api::Caller;
use crate::{log_info, log_warning};
use prepage_core::identity::AppId;
use prepage_core::machine::{APPS_MAX, Event, Nanos};
use prepage_engine::Members;
use prepage_engine::store::TrackedBy;
use prepage_kernel::clock::monotonic_ns;
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, HashMap};

/// Most processes of which it is remembered that they belong to no tracked application.
const STRANGERS_MAX: usize = 4096;

/// How long that is remembered: meanwhile the process may have called exec, or its pid may mean another.
const STRANGER_NS: u64 = 5_000_000_000;

/// What the service follows.
#[derive(Debug, Default)]
pub struct Tracking {
    /// What makes each tracked application up; nothing while it is not running.
    apps: BTreeMap<AppId, Option<Members>>,
    /// Processes that demand faults were seen of and that the executor does not know (yet), with their applications.
    strangers: HashMap<i32, (Nanos, Option<AppId>)>,
}

impl Tracking {
    /// Whether an application is tracked.
    pub fn contains(&self, app: &AppId) -> bool {
        self.apps.contains_key(app)
    }

    /// The tracked applications.
    pub fn apps(&self) -> impl Iterator<Item = (&AppId, Option<&Members>)> {
        self.apps
            .iter()
            .map(|(app, members)| (app, members.as_ref()))
    }

    /// What makes an application up, as shown to people.
    pub fn members_text(&self, app: &AppId) -> String {
        match self.apps.get(app).and_then(Option::as_ref) {
            Some(Members::Cgroup(directory)) => directory.display().to_string(),
            Some(Members::Tree(pid)) => format!("process tree of {pid}"),
            None => "not running".into(),
        }
    }

    fn some_are_absent(&self) -> bool {
        self.apps.values().any(Option::is_none)
    }
}

impl Service {
    /// Tracks what the store and the configuration name, and finds it among the processes that run now.
    pub(super) fn track_what_is_known(&mut self) {
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
                let pids = discover::group_processes(&directory);
                let main = discover::main_process(&pids).map_or(0, |facts| facts.pid);
                self.follow(&app, Members::Cgroup(directory), main);
            }
        }
        let wanted = !self.config.service.applications.is_empty();
        if wanted || self.tracking.some_are_absent() {
            for identity in discover::running(&self.around).into_values() {
                self.meet(&identity);
            }
        }
    }

    /// An application was found running: follows it where it is tracked, or the configuration names it.
    fn meet(&mut self, identity: &Identity) {
        let app = &identity.app;
        match self.tracking.apps.get(app) {
            Some(Some(_)) => {}
            Some(None) => self.follow(app, identity.members.clone(), identity.main),
            None => {
                let listed = &self.config.service.applications;
                if listed.iter().any(|text| matches(app, text)) {
                    self.track(identity, TrackedBy::Name);
                }
            }
        }
    }

    /// Begins to track an application. Returns whether it was not tracked before.
    pub(super) fn track(&mut self, identity: &Identity, how: TrackedBy) -> bool {
        let app = &identity.app;
        let new = !self.tracking.contains(app);
        if new {
            self.admit(app);
        }
        self.store.set_tracked(app, Some(how));
        let members = Some(&identity.members);
        if self
            .tracking
            .apps
            .get(app)
            .is_some_and(|known| known.as_ref() != members)
        {
            self.follow(app, identity.members.clone(), identity.main);
        }
        new
    }

    /// Whether one more application can be tracked.
    pub(super) fn has_room(&self) -> bool {
        self.tracking.apps.len() < APPS_MAX
    }

    fn admit(&mut self, app: &AppId) {
        if !self.has_room() {
            return log_warning!("{app} is not tracked: {APPS_MAX} applications are");
        }
        let profile = self.store.load(app).map(|s| s.profile.clone());
        self.step_now(Event::Tracked {
            app: app.clone(),
            profile: Box::new(profile.unwrap_or_default()),
        });
        self.tracking.apps.insert(app.clone(), None);
        self.tracking.strangers.clear();
        log_info!("tracking {app}");
    }

    /// The store holds another profile of a tracked application: begins anew with that.
    pub(super) fn take_over_profile(&mut self, app: &AppId) {
        let Some(members) = self.tracking.apps.remove(app) else {
            return;
        };
        self.executor.unfollow(app);
        self.step_now(Event::Untracked { app: app.clone() });
        self.admit(app);
        if let Some(members) = members {
            let main = match &members {
                Members::Tree(root) => *root,
                Members::Cgroup(directory) => {
                    let pids = discover::group_processes(directory);
                    discover::main_process(&pids).map_or(0, |facts| facts.pid)
                }
            };
            self.follow(app, members, main);
        }
    }

    /// Ends tracking an application.
    pub(super) fn untrack(&mut self, app: &AppId) {
        self.executor.unfollow(app);
        self.step_now(Event::Untracked { app: app.clone() });
        self.store.set_tracked(app, None);
        self.tracking.apps.remove(app);
        self.tracking.strangers.clear();
        self.forget_sources(app);
        log_info!("tracking {app} no longer");
    }

    fn forget_sources(&mut self, app: &AppId) {
        self.exits.remove(app);
        self.onset.remove(app);
        if let Some(groups) = &mut self.groups {
            groups.remove(app);
        }
    }

    fn follow(&mut self, app: &AppId, members: Members, main: i32) {
        if !self.tracking.contains(app) {
            return;
        }
        self.forget_sources(app);
        self.executor.follow(app, members.clone());
        if let Some(groups) = &mut self.groups {
            let mut memberships = match &members {
                Members::Cgroup(directory) => self
                    .around
                    .hierarchies
                    .group_at(directory)
                    .into_iter()
                    .collect(),
                Members::Tree(_) => Vec::new(),
            };
            memberships.extend(cgroups::memberships(main));
            groups.watch(app, &memberships, &self.around);
        }
        self.tracking.apps.insert(app.clone(), Some(members));
        self.tracking.strangers.clear();
        self.watch_exit(app, main);
        self.see_new_members();
    }

    /// The executor tells of processes by its wake-up, or at once.
    fn see_new_members(&mut self) {
        for event in self.executor.events() {
            self.step_now(event);
        }
    }

    fn watch_exit(&mut self, app: &AppId, main: i32) {
        // A control group that is empty for now has no process whose end could be waited for.
        let Ok((number, process)) = self.exits.add(app, main) else {
            return;
        };
        let added = self
            .poller
            .add(process.pidfd(), Token::Exit(number), EventFlags::IN);
        if let Err(error) = added {
            log_warning!("the end of {app} will not be seen: {error}");
        }
    }

    /// The main process of an application ended.
    pub(super) fn see_exit(&mut self, number: u32) {
        let Some(app) = self.exits.take(number) else {
            return;
        };
        self.tracking.strangers.clear();
        let members = self.tracking.apps.get(&app).cloned().flatten();
        if let Some(Members::Cgroup(directory)) = members {
            let pids = discover::group_processes(&directory);
            if let Some(main) = discover::main_process(&pids) {
                return self.watch_exit(&app, main.pid);
            }
            let by_group = matches!(
                self.store.load(&app).and_then(|s| s.tracked.as_ref()),
                Some(TrackedBy::Cgroup(_))
            );
            if by_group {
                // The group stays the application's, whoever comes into it next.
                return self.end_instances(&app);
            }
        }
        self.executor.unfollow(&app);
        self.forget_sources(&app);
        self.tracking.apps.insert(app.clone(), None);
        self.end_instances(&app);
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
        let chain = discover::chain(pid).ok()?;
        let groups = &chain.first()?.groups;
        let directories: Vec<_> = groups
            .iter()
            .filter_map(|g| self.around.hierarchies.directory(g))
            .collect();
        let belongs = |members: &Members| match members {
            Members::Cgroup(directory) => directories.iter().any(|d| d.starts_with(directory)),
            Members::Tree(root) => chain.iter().any(|p| p.pid == *root),
        };
        let followed = self
            .tracking
            .apps()
            .find(|(_, members)| members.is_some_and(belongs));
        if let Some((app, _)) = followed {
            return Some(app.clone());
        }
        let identity = crate::identity::identify(&chain, &self.around)?;
        self.meet(&identity);
        self.tracking
            .contains(&identity.app)
            .then_some(identity.app)
    }

    /// The tracked application that got the focus. One that is not tracked is, where the configuration says so.
    pub(super) fn app_of_focus(&mut self, caller: Caller, pid: i32) -> Option<AppId> {
        if let Some(app) = self.find_tracked(pid) {
            return Some(app);
        }
        if self.config.service.track != TrackPolicy::Focused || !self.has_room() {
            return None;
        }
        let identity = discover::identify(pid, &self.around).ok().flatten()?;
        if !may_act(caller, &identity.app) {
            return None;
        }
        self.track(&identity, TrackedBy::Name);
        Some(identity.app)
    }
}
