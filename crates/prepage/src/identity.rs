//! Which application a process belongs to, what it is called and what makes it up: a pure function over a
//! description of the process, so that every rule is a line in a table of tests.
//!
//! In this order:
//! 1. **A container's** control group (docker, podman, cri-o, containerd, kubepods, lxc, nspawn): the container,
//!    named as the group names it; where that is by an id, [`crate::containers`] knows its name.
//! 2. **A systemd unit.** `app-[LAUNCHER-]ID-RANDOM.scope` and `app-[LAUNCHER-]ID@RANDOM.service` are desktop
//!    applications named ID, `snap.*` and `dbus-:CONNECTION-ID@N.service` likewise; other services are units. Sessions,
//!    user managers, slices and scopes with random names are not applications. What moves itself out of its group at
//!    startup, as Chromium does, and leaves there what it forked before, is named as if it had stayed, and made up by its
//!    process tree.
//! 3. **A control group of its own** in version 2, memory, systemd or freezer: any group that is not the root, not
//!    that of PID 1, and neither ours nor above ours. Named by the program at the top of its process tree.
//! 4. **The process tree**: up from the process while the parent runs the same executable, or belongs to the same
//!    session, but never to a shell, a session's leader, a window manager or another owner; nor beyond a program that is asked for
//!    by name, as the configuration lists it. Named by that program.
//!
//! What a user's application or service starts and leaves to itself stays in its control group, and is no part of it
//! ([`by_itself`]): it is looked for in the process tree.
//!
//! A program is named by its executable's path; an interpreter by the path of what it interprets
//! (`python3 x.py`: the script; `python3 -m x`; `java -jar x.jar`), also where a version manager's shim of that name
//! runs it (`~/.pyenv/shims/python x.py`). One that is many by the name it is called by, is named by both
//! (`rustup cargo`). What only runs another program ([`prepage_core::wrappers`]) is not that program: it is named by what it
//! runs; where that has another root directory, or only it finds that, by both (`flatpak run org.x.Y`, `snap run x`,
//! `uv run /home/u/x.py`).
//!
//! A shell that is given code by `-c`, or who hands it to one (`script -c`), is named by a digest of that,
//! `dash -c 85944171f73967e8`, so that different code is different applications. Where it is one simple command
//! ([`prepage_core::shell`]), a launch that is announced is named by what that runs ([`crate::launch::command`]); the
//! process soon becomes it, or has it for a child, which is seen by itself: the shell only runs others.
//!
//! None of this holds a pid, a time or a random part, so that the name is the same after a restart: of the directory
//! where an AppImage mounts itself, `/tmp/.mount_GimpXyZ123`, the random end is left out.

mod groups;
mod named;
mod program;
mod session;

pub use groups::{is_container_id, is_system_group, may_be_named_by_group};
pub use named::{COMMAND_DIRECTORIES, Named, matches};
pub use program::{base_name, is_told, may_be_named_by_words, program};
pub use session::{
    is_session_program, may_be_one, only_runs_others, runs_for_a_person, runs_in_other_root,
};

use crate::cgroups::{Hierarchies, Membership};
use groups::{is_inside, named_group, own_group};
use prepage_core::identity::{AppId, AppKind};
use prepage_engine::Members;
use std::collections::BTreeSet;
use std::path::Path;

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Process id.
    pub pid: i32,
    /// Its session's id.
    pub session: i32,
    /// The user whose it is.
    pub owner: u32,
    /// The executable's path; none for kernel threads.
    pub exe: Option<String>,
    /// Its arguments, which it can overwrite: a claim.
    pub arguments: Vec<String>,
    /// Its working directory, as far as it can be read.
    pub directory: Option<String>,
    /// Its control groups; where it has left them, those that it was in before.
    pub groups: Vec<Membership>,
    /// Whether it has left them, and others of its application have not.
    pub has_left_groups: bool,
}

impl ProcessFacts {
    /// Its executable's path; of one that was replaced since, as by an update, the kernel says that after it.
    fn executable(&self) -> Option<&str> {
        let exe = self.exe.as_deref()?;
        Some(exe.strip_suffix(" (deleted)").unwrap_or(exe))
    }

    /// The last part of that; empty for kernel threads.
    fn base_name(&self) -> &str {
        self.executable().map(base_name).unwrap_or_default()
    }
}

/// What does not belong to any application.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The mounted hierarchies.
    pub hierarchies: Hierarchies,
    /// Control groups of PID 1.
    pub init_groups: Vec<Membership>,
    /// Control groups of the service itself.
    pub own_groups: Vec<Membership>,
    /// What the configuration lists, or somebody asks for by name. Each is an application by itself, whatever launched it.
    pub listed: Vec<Named>,
    /// So are the tracked applications.
    pub tracked: BTreeSet<AppId>,
}

impl Surroundings {
    /// Whether an application is listed.
    pub fn lists(&self, app: &AppId) -> bool {
        self.listed.iter().any(|named| named.means(app))
    }

    /// Whether a process is of a listed or tracked application, and its parent is not of the same.
    fn begins_named(&self, process: &ProcessFacts, parent: &ProcessFacts) -> bool {
        if self.listed.is_empty() && self.tracked.is_empty() {
            return false;
        }
        let parent = program(parent);
        let Some(app) = program(process).filter(|app| parent.as_ref() != Some(app)) else {
            return false;
        };
        // One name may mean both.
        let begins = |named: &Named| {
            named.means(&app) && !parent.as_ref().is_some_and(|parent| named.means(parent))
        };
        self.tracked.contains(&app) || self.listed.iter().any(begins)
    }
}

/// A running copy of an application, as found from one of its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What it is called.
    pub app: AppId,
    /// What makes this copy up.
    pub members: Members,
    /// The process that names it: when it ends, the copy may have ended.
    pub main: i32,
}

/// The application of the process `chain[0]`, whose ancestors follow, nearest first, as far as [`may_be_one`] holds of each
/// and the next, and the one of which it does not. `None` for kernel threads and for what belongs to the system.
///
/// What a person runs by a terminal, a shell or a launcher is an application of its own, though it is in the control group of
/// that one.
pub fn identify(chain: &[ProcessFacts], around: &Surroundings) -> Option<Identity> {
    let process = chain.first().filter(|p| p.exe.is_some() && p.pid > 1)?;
    let (named, group) = match named_group(process, around) {
        Some((kind, name, group)) => (Some((kind, name)), Some(group)),
        None => (None, own_group(process, around)),
    };
    let inside = |p: &ProcessFacts| group.as_ref().is_none_or(|group| is_inside(p, group));
    let root = tree_root(chain, around, inside);
    let main = &chain[root];
    // Of a container's programs the paths mean nothing outside.
    let is_container = matches!(named, Some((AppKind::Container, _)));
    let runs_it = chain.get(root + 1).filter(|parent| inside(parent));
    let is_by_itself = !is_container && runs_it.is_some_and(runs_for_a_person);
    let (named, group) = match is_by_itself {
        true => (None, None),
        false => (named, group),
    };
    let is_whole = !chain[..=root].iter().any(|p| p.has_left_groups);
    let group = group.filter(|_| is_whole);
    let directory = group.and_then(|group| around.hierarchies.directory(&group));
    let of_group = |(kind, name): (AppKind, String)| AppId {
        kind,
        name: name.into(),
        owner: main.owner,
    };
    Some(Identity {
        app: named.map(of_group).or_else(|| program(main))?,
        members: directory.map_or(Members::Tree(main.pid), Members::Cgroup),
        main: main.pid,
    })
}

/// The same copy; or what `chain[0]` is of by itself, where that was begun in the control group of another program, as what it
/// starts and leaves to itself: what a file manager or a portal opens, `setsid -f app` in a terminal. `first` is the process that
/// has run longest in the group of a directory. What waits for an application's crashes is a part of that all the same: it lies
/// beside it.
pub fn by_itself(
    copy: Identity,
    chain: &[ProcessFacts],
    around: &Surroundings,
    first: impl FnOnce(&Path) -> Option<ProcessFacts>,
) -> Identity {
    let Some((main, group)) = begun_elsewhere(&copy, chain, around) else {
        return copy;
    };
    let Some(first) = around.hierarchies.directory(&group).and_then(|d| first(&d)) else {
        return copy;
    };
    let app = program(main).filter(|app| program(&first).as_ref() != Some(app));
    match app.filter(|_| first.pid != main.pid && !lies_beside(main, &first)) {
        Some(app) => Identity {
            app,
            members: Members::Tree(main.pid),
            main: main.pid,
        },
        None => copy,
    }
}

/// The process that names a copy, with its group, where that is in a unit of a user's, and none of the processes that run in there
/// has begun it.
fn begun_elsewhere<'a>(
    copy: &Identity,
    chain: &'a [ProcessFacts],
    around: &Surroundings,
) -> Option<(&'a ProcessFacts, Membership)> {
    let (_, _, group) = named_group(chain.first()?, around)?;
    let is_manager = |unit: &str| unit.starts_with("user@") && unit.ends_with(".service");
    let is_of_user = copy.app.kind.is_of_unit() && group.path.split('/').any(is_manager);
    let at = chain.iter().position(|process| process.pid == copy.main)?;
    // It is not in there any more, and was among the first that were.
    if chain[..=at].iter().any(|process| process.has_left_groups) {
        return None;
    }
    let parent = chain.get(at + 1).filter(|parent| is_inside(parent, &group));
    (is_of_user && parent.is_none()).then_some((&chain[at], group))
}

/// Whether two programs are in one directory that is not everybody's.
fn lies_beside(one: &ProcessFacts, other: &ProcessFacts) -> bool {
    let directory = |p: &ProcessFacts| Some(p.exe.as_deref()?.rsplit_once('/')?.0.to_owned());
    let own = directory(one).filter(|own| !COMMAND_DIRECTORIES.contains(&own.as_str()));
    own.is_some_and(|own| directory(other) == Some(own))
}

/// Whether nothing else of the unit that names `chain[0]` has run it: of what a unit's script runs, each is a program of its
/// own to who asks for the launch of that one. So it is where no unit names it.
pub fn is_first_of_unit(chain: &[ProcessFacts], around: &Surroundings) -> bool {
    let Some((kind, _, group)) = chain.first().and_then(|p| named_group(p, around)) else {
        return true;
    };
    let parent = chain.get(1).filter(|parent| is_inside(parent, &group));
    kind == AppKind::Container || parent.is_none()
}

/// Index in `chain` of the topmost ancestor that belongs to the same application.
fn tree_root(
    chain: &[ProcessFacts],
    around: &Surroundings,
    inside: impl Fn(&ProcessFacts) -> bool,
) -> usize {
    let is_part = |pair: &&[ProcessFacts]| {
        let (process, parent) = (&pair[0], &pair[1]);
        may_be_one(process, parent) && inside(parent) && !around.begins_named(process, parent)
    };
    chain.windows(2).take_while(is_part).count()
}
