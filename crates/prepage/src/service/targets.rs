//! Which application a caller means, by a process, a control group or a name.

use super::Service;
use super::calls::{may_act, not_found, require_own_process, require_owner, unknown_process};
use super::tracking::RunningCopy;
use crate::api::{ApiError, Target};
use crate::discover;
use crate::identity::{Identity, is_system_group, program};
use crate::sources::api::Caller;
use prepage_core::identity::AppId;
use prepage_engine::Members;
use prepage_engine::store::TrackedBy;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// An application that is to be tracked.
pub(super) struct Found {
    pub(super) app: AppId,
    pub(super) copies: Vec<RunningCopy>,
    pub(super) how: TrackedBy,
}

impl Found {
    fn only(identity: Identity, how: TrackedBy) -> Self {
        Self {
            app: identity.app.clone(),
            copies: vec![identity.into()],
            how,
        }
    }
}

impl Service {
    /// The application to be tracked and its running copies, by what the caller named.
    pub(super) fn find_new(&self, caller: Caller, target: &Target) -> Result<Found, ApiError> {
        match target {
            Target {
                pid: Some(_),
                cgroup: Some(_),
                ..
            } => Err(ApiError::InvalidParameter {
                parameter: "cgroup".into(),
                reason: "give either a pid or a cgroup".into(),
            }),
            Target {
                cgroup: Some(cgroup),
                ..
            } => {
                let directory = self.group_directory(cgroup)?;
                let identity = self.identify_group(caller, &directory)?;
                Ok(Found::only(identity, TrackedBy::Cgroup(directory)))
            }
            Target {
                pid: Some(pid),
                name,
                ..
            } => {
                require_own_process(caller, *pid)?;
                let identity = self.identify_process(*pid)?;
                match (&identity.members, name) {
                    // A given name does not find the application again, but its control group does.
                    (Members::Cgroup(directory), Some(_)) => {
                        let how = TrackedBy::Cgroup(directory.clone());
                        Ok(Found::only(identity, how))
                    }
                    (_, Some(_)) => Ok(Found::only(identity, TrackedBy::Name)),
                    (_, None) => {
                        let running = discover::running(&self.around);
                        Ok(self.with_other_copies(identity, running))
                    }
                }
            }
            Target {
                name: Some(name), ..
            } => {
                let named = discover::named(name);
                let is_meant =
                    |i: &Identity| may_act(caller, &i.app) && discover::is_meant(&named, i);
                // What a script launches is found by that, unless it is asked for.
                let mut asking = self.around.clone();
                asking.listed.push(named.clone());
                let [known, asked_for] = discover::running_in([&self.around, &asking]);
                let running = match known.iter().any(is_meant) {
                    true => known,
                    false => asked_for,
                };
                let mut found = running.clone();
                found.retain(is_meant);
                // One that was given no other name stands for the application.
                found.sort_by_key(|i| self.is_renamed(i));
                let mut seen = BTreeSet::new();
                found.retain(|i| seen.insert(i.app.clone()));
                let found = discover::only(found, name, |i| &i.app).map_err(not_found)?;
                Ok(self.with_other_copies(found, running))
            }
            _ => Err(nothing_named()),
        }
    }

    /// A copy of an application, and those others that run and were given no other name.
    fn with_other_copies(&self, identity: Identity, running: Vec<Identity>) -> Found {
        let mut others = running;
        others.retain(|other| other.app == identity.app && other.members != identity.members);
        others.retain(|other| !self.is_renamed(other));
        let mut found = Found::only(identity, TrackedBy::Name);
        found
            .copies
            .extend(others.into_iter().map(RunningCopy::from));
        found
    }

    /// Whether a copy is followed as another application than it was found to be.
    fn is_renamed(&self, identity: &Identity) -> bool {
        let app = self.tracking.app_of(&identity.members);
        app.is_some_and(|app| *app != identity.app)
    }

    fn identify_process(&self, pid: i32) -> Result<Identity, ApiError> {
        match discover::identify(pid, &self.around) {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err(not_found(format!(
                "process {pid} is a kernel thread or belongs to the system: it is no application"
            ))),
            Err(error) => Err(unknown_process(pid, &error)),
        }
    }

    /// The directory of a control group that a caller named: of a mounted hierarchy, and there. Nothing else is looked at,
    /// with rights that the caller may not have.
    fn group_directory(&self, given: &str) -> Result<PathBuf, ApiError> {
        let directory: PathBuf = Path::new(given).components().collect();
        let leads_away = directory
            .components()
            .any(|part| part == Component::ParentDir);
        let group = self.around.hierarchies.group_at(&directory);
        match group.filter(|_| !leads_away && directory.is_dir()) {
            Some(group) if !is_system_group(&group, &self.around) => Ok(directory),
            Some(_) => Err(not_found(format!(
                "{given} holds the system and no application"
            ))),
            None => Err(not_found(format!(
                "{given} is no control group: give its directory in full, as /sys/fs/cgroup/..."
            ))),
        }
    }

    fn identify_group(&self, caller: Caller, directory: &Path) -> Result<Identity, ApiError> {
        let pids = discover::group_processes(directory);
        let shown = directory.display();
        let main = discover::main_process(&pids)
            .map_err(|error| not_found(error.to_string()))?
            .ok_or_else(|| not_found(format!("no process is in {shown}")))?;
        let foreign = |pid: &&i32| {
            let owner = discover::owner(**pid);
            owner.is_ok_and(|owner| owner != caller.uid)
        };
        if caller.uid != 0
            && let Some(pid) = pids.iter().find(foreign)
        {
            let reason = format!("process {pid} in {shown} is not yours: try as root");
            return Err(ApiError::PermissionDenied { reason });
        }
        let members = Members::Cgroup(directory.into());
        let found = match discover::identify(main.pid, &self.around) {
            Err(error) if error.is_unanswered() => return Err(unknown_process(main.pid, &error)),
            found => found.ok().flatten(),
        };
        let app = match found.filter(|identity| identity.members == members) {
            Some(identity) => identity.app,
            None => {
                program(&main).ok_or_else(|| not_found(format!("no program runs in {shown}")))?
            }
        };
        Ok(Identity {
            app,
            members,
            main: main.pid,
        })
    }

    /// The tracked application that the caller named.
    pub(super) fn find_tracked_target(
        &mut self,
        caller: Caller,
        target: &Target,
    ) -> Result<AppId, ApiError> {
        let app = match target {
            Target { pid: Some(pid), .. } => {
                require_own_process(caller, *pid)?;
                let app = self
                    .executor
                    .app_of(*pid)
                    .or_else(|| self.find_tracked(*pid));
                match app {
                    Some(app) => app,
                    None => {
                        return Err(ApiError::NotTracked {
                            app: self.identify_process(*pid)?.app.to_string(),
                        });
                    }
                }
            }
            Target {
                cgroup: Some(cgroup),
                ..
            } => self.app_of_group(cgroup)?,
            Target {
                name: Some(name), ..
            } => {
                let found = self.tracking.apps();
                let named = discover::named(name);
                let means = |app: &AppId| {
                    let mut copies = self.tracking.copies(app);
                    named.means(app) || copies.any(|copy| discover::is_meant(&named, &copy))
                };
                let found = found.filter(|app| may_act(caller, app) && means(app));
                let found: Vec<AppId> = found.cloned().collect();
                if found.is_empty() {
                    return Err(ApiError::NotTracked { app: name.clone() });
                }
                discover::only(found, name, |app| app).map_err(not_found)?
            }
            _ => return Err(nothing_named()),
        };
        require_owner(caller, &app)?;
        Ok(app)
    }

    fn app_of_group(&self, cgroup: &str) -> Result<AppId, ApiError> {
        let named = |directory: &Path| self.tracking.app_of(&Members::Cgroup(directory.into()));
        // As it was given first: that asks no file system.
        if let Some(app) = named(Path::new(cgroup)) {
            return Ok(app.clone());
        }
        let directory = self.group_directory(cgroup)?;
        let app = named(&directory).cloned();
        app.ok_or_else(|| ApiError::NotTracked { app: cgroup.into() })
    }
}

pub(super) fn nothing_named() -> ApiError {
    ApiError::InvalidParameter {
        parameter: "pid".into(),
        reason: "give a pid, a cgroup or a name".into(),
    }
}
