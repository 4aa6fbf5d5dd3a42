//! Control groups of tracked applications: thawed, and made anew.
//!
//! Version 2 says so in `cgroup.events`, for a group that is frozen through one above it too. Version 1 says it to
//! nobody but whoever watches writes to `freezer.state`, of the group or of one above it.

use crate::cgroups::Membership;
use crate::identity::{Surroundings, is_system_group};
use prepage_core::identity::AppId;
use prepage_kernel::inotify::{FileEvent, Inotify, Watch};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Most events taken at once.
const EVENTS_MAX: usize = 256;

/// Most groups above a frozen one that are watched.
const ABOVE_MAX: usize = 16;

/// What is watched for one copy of an application.
#[derive(Debug, Default)]
struct Watched {
    /// Its main process.
    main: i32,
    /// Files that say whether it is frozen.
    files: Vec<PathBuf>,
    watches: BTreeSet<Watch>,
    frozen: bool,
}

/// The groups of the tracked applications.
#[derive(Debug)]
pub struct Groups {
    inotify: Inotify,
    apps: BTreeMap<AppId, Vec<Watched>>,
}

impl Groups {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// Where the kernel refuses an inotify instance.
    pub fn new() -> prepage_kernel::Result<Self> {
        Ok(Self {
            inotify: Inotify::new()?,
            apps: BTreeMap::new(),
        })
    }

    /// Watches the freezers of one more copy of an application, whose process `main` is in `groups`. Files that cannot
    /// be watched are left out: they may be gone.
    pub fn watch(&mut self, app: &AppId, main: i32, groups: &[Membership], around: &Surroundings) {
        let files = freezer_files(groups, around);
        let watches = files.iter().filter_map(|f| self.inotify.watch(f).ok());
        let watched = Watched {
            main,
            watches: watches.collect(),
            frozen: is_frozen(&files),
            files,
        };
        if !watched.watches.is_empty() {
            self.apps.entry(app.clone()).or_default().push(watched);
        }
    }

    /// Watches them no longer.
    pub fn remove(&mut self, app: &AppId) {
        let Some(gone) = self.apps.remove(app) else {
            return;
        };
        for watch in gone.into_iter().flat_map(|copy| copy.watches) {
            let mut others = self.apps.values().flatten();
            let shared = others.any(|w| w.watches.contains(&watch));
            if !shared {
                // A watch that is gone already, as with its file, needs no removal.
                let _ = self.inotify.unwatch(watch);
            }
        }
    }

    /// The applications that were thawed since the last call, with the main process where it was one copy of them.
    ///
    /// # Errors
    /// Where the kernel refuses to say.
    pub fn thawed(&mut self) -> prepage_kernel::Result<Vec<(AppId, Option<i32>)>> {
        let mut changed = BTreeSet::new();
        let mut all = false;
        self.inotify.drain(EVENTS_MAX, |event| match event {
            FileEvent::Modified(watch) => drop(changed.insert(watch)),
            FileEvent::Overflow => all = true,
            _ => {}
        })?;
        let mut thawed = Vec::new();
        for (app, copies) in &mut self.apps {
            let mut mains = Vec::new();
            for watched in copies {
                if !all && watched.watches.is_disjoint(&changed) {
                    continue;
                }
                let before = std::mem::replace(&mut watched.frozen, is_frozen(&watched.files));
                if before && !watched.frozen {
                    mains.push(watched.main);
                }
            }
            match mains[..] {
                [] => {}
                [main] => thawed.push((app.clone(), Some(main))),
                _ => thawed.push((app.clone(), None)),
            }
        }
        Ok(thawed)
    }
}

impl AsFd for Groups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.fd()
    }
}

fn freezer_files(groups: &[Membership], around: &Surroundings) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let own = |kind| groups.iter().find(|g| g.is_of(kind));
    if let Some(group) = own(None).filter(|g| !is_system_group(g, around)) {
        let directory = around.hierarchies.directory(group);
        files.extend(directory.map(|d| d.join("cgroup.events")));
    }
    let mut group = own(Some("freezer")).cloned();
    while let Some(at) = group.filter(|g| g.path != "/" && files.len() < ABOVE_MAX) {
        let directory = around.hierarchies.directory(&at);
        files.extend(directory.map(|d| d.join("freezer.state")));
        let above = at.path.rfind('/').map_or("", |end| &at.path[..end]);
        group = Some(at.at(if above.is_empty() { "/" } else { above }));
    }
    files
}

/// Whether any of the files says so. One that is gone says no.
fn is_frozen(files: &[PathBuf]) -> bool {
    files.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // v1 holds FROZEN, FREEZING or THAWED; v2 has lines such as "frozen 1".
        text.starts_with("FR") || text.lines().any(|line| line == "frozen 1")
    })
}
