//! Control groups of tracked applications that are thawed.
//!
//! Version 2 says so in `cgroup.events`, for a group that is frozen through one above it too. Version 1 says it to
//! nobody but whoever watches writes to `freezer.state`, of the group or of one above it.
//!
//! It is a signal only where the application's own group was asked to freeze, or one above it that holds no login and no
//! system. systemd (256 and later) freezes `user.slice` before every kind of sleep and thaws it afterwards: nobody
//! switches to all of a user's applications then.

use crate::cgroups::Membership;
use crate::identity::{Surroundings, is_system_group};
use prepage_core::identity::AppId;
use prepage_kernel::inotify::{FileEvent, Inotify, Watch};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Most events taken at once.
const EVENTS_MAX: usize = 256;

/// Most groups that are looked at for one copy, one above the other.
const ABOVE_MAX: usize = 16;

/// What is watched for one copy of an application.
#[derive(Debug)]
struct Watched {
    /// Its main process.
    main: i32,
    files: FreezerFiles,
    watches: BTreeSet<Watch>,
    freeze: Freeze,
}

/// The files of a freezer, in both versions.
#[derive(Debug, Default)]
struct FreezerFiles {
    /// They say whether the copy is frozen, for whatever reason.
    state: Vec<PathBuf>,
    /// They say whether a group was asked to freeze by itself: the copy's own, and those above it that are an application's.
    asked: Vec<PathBuf>,
}

/// Whether a copy is frozen, and whether that was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freeze {
    No,
    /// With a slice, a login or the system.
    WithOthers,
    OfItsOwn,
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
        let files = FreezerFiles::of(groups, around);
        let watches = files.state.iter();
        let watches = watches.filter_map(|file| self.inotify.watch(file).ok());
        let watched = Watched {
            main,
            watches: watches.collect(),
            freeze: files.freeze(),
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
        })?;
        let mut thawed = Vec::new();
        for (app, copies) in &mut self.apps {
            let mut mains = Vec::new();
            for watched in copies {
                if !all && watched.watches.is_disjoint(&changed) {
                    continue;
                }
                if watched.was_thawed() {
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

impl Watched {
    /// Looks again. Returns whether a freeze of its own is over.
    fn was_thawed(&mut self) -> bool {
        let (before, now) = (self.freeze, self.files.freeze());
        self.freeze = match (before, now) {
            // It was thawed while a slice above still is not: its freeze ends with that one's.
            (Freeze::OfItsOwn, Freeze::WithOthers) => before,
            _ => now,
        };
        before == Freeze::OfItsOwn && now == Freeze::No
    }
}

impl FreezerFiles {
    fn of(groups: &[Membership], around: &Surroundings) -> Self {
        let mut files = Self::default();
        let own = |kind| groups.iter().find(|g| g.is_of(kind));
        let mut add = |group: &Membership, state: Option<&str>, asked: &str| {
            let Some(directory) = around.hierarchies.directory(group) else {
                return;
            };
            files.state.extend(state.map(|file| directory.join(file)));
            if !is_system_group(group, around) {
                files.asked.push(directory.join(asked));
            }
        };
        if let Some(group) = own(None).filter(|g| !is_system_group(g, around)) {
            for at in and_above(group) {
                let state = (at == *group).then_some("cgroup.events");
                add(&at, state, "cgroup.freeze");
            }
        }
        for at in own(Some("freezer")).into_iter().flat_map(and_above) {
            add(&at, Some("freezer.state"), "freezer.self_freezing");
        }
        files
    }

    fn freeze(&self) -> Freeze {
        // v1 holds FROZEN, FREEZING or THAWED; v2 has lines such as "frozen 1".
        let is_frozen =
            |text: &str| text.starts_with("FR") || text.lines().any(|line| line == "frozen 1");
        let is_asked = |text: &str| text.trim_end() == "1";
        match () {
            () if !any_says(&self.state, is_frozen) => Freeze::No,
            () if any_says(&self.asked, is_asked) => Freeze::OfItsOwn,
            () => Freeze::WithOthers,
        }
    }
}

/// A group and those above it, but for the root, which cannot be frozen.
fn and_above(group: &Membership) -> impl Iterator<Item = Membership> {
    let itself = Some(group.clone()).filter(|group| group.path != "/");
    let above = std::iter::successors(itself, |at| {
        let end = at.path.rfind('/').filter(|&end| end > 0)?;
        Some(at.at(&at.path[..end]))
    });
    above.take(ABOVE_MAX)
}

/// Whether any of the files does. One that is gone says nothing.
fn any_says(files: &[PathBuf], says: impl Fn(&str) -> bool) -> bool {
    files.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        says(&text)
    })
}
