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

use crate::cgroups::{Hierarchies, Membership};
use crate::interpreters::{
    STEPS_MAX, called_as, code_of, is_interpreter, is_multi_call, run_by, run_by_runner, script_of,
};
use prepage_core::identity::{AppId, AppKind};
use prepage_core::shell::is_shell;
use prepage_core::wrappers;
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
    /// Effective user id.
    pub uid: u32,
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
        owner: main.uid,
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

/// Where commands are looked for that users name: everybody's directories, since whoever asks may not be who is asked.
pub const COMMAND_DIRECTORIES: [&str; 8] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/games",
    "/usr/games",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
];

/// Whether nothing else of the unit that names `chain[0]` has run it: of what a unit's script runs, each is a program of its
/// own to who asks for the launch of that one. So it is where no unit names it.
pub fn is_first_of_unit(chain: &[ProcessFacts], around: &Surroundings) -> bool {
    let Some((kind, _, group)) = chain.first().and_then(|p| named_group(p, around)) else {
        return true;
    };
    let parent = chain.get(1).filter(|parent| is_inside(parent, &group));
    kind == AppKind::Container || parent.is_none()
}

fn is_inside(process: &ProcessFacts, group: &Membership) -> bool {
    process.groups.iter().any(|own| own.is_within(group))
}

/// The application that a program is, by its executable.
pub fn program(process: &ProcessFacts) -> Option<AppId> {
    Some(AppId {
        kind: AppKind::Executable,
        name: program_name(process)?.into(),
        owner: process.uid,
    })
}

/// What a user typed for an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// As it was typed.
    pub text: String,
    /// The executable that a command of this name is: `gimp` may be a link to `gimp-2.10`.
    pub executable: Option<String>,
    /// Where that is a shell's script in a directory of the application's own: this directory. What the script runs lies there.
    pub directory: Option<String>,
}

impl Named {
    /// Whether it means this application.
    pub fn means(&self, app: &AppId) -> bool {
        let executable = self.executable.as_deref();
        let is_executable = app.kind == AppKind::Executable
            && (executable == Some(&*app.name)
                || executable.is_some_and(|file| self.calls(file, &app.name))
                || self.lies_there(&app.name));
        is_executable || matches(app, &self.text)
    }

    /// Whether it is what this file is called that is many by their names, `rustup cargo`.
    fn calls(&self, file: &str, name: &str) -> bool {
        let called = name
            .strip_prefix(base_name(file))
            .and_then(|n| n.strip_prefix(' '));
        is_multi_call(base_name(file)) && called == Some(base_name(&self.text))
    }

    /// Whether it is a program in that directory, but what waits there for crashes.
    fn lies_there(&self, path: &str) -> bool {
        let split = path.rsplit_once('/');
        let base = split.filter(|(directory, _)| self.directory.as_deref() == Some(directory));
        base.is_some_and(|(_, base)| !base.contains("crash"))
    }

    /// The last parts of the paths by which the executable that it means, if it means one, may be executed: what was typed, and
    /// where that leads.
    pub fn executable_names(&self) -> [&str; 2] {
        let id = || self.text.strip_prefix("executable:")?.rsplit_once('@');
        let typed = base_name(id().map_or(&*self.text, |(name, _owner)| name));
        [typed, self.executable.as_deref().map_or(typed, base_name)]
    }
}

/// Whether what a user typed means this application: its whole id, its name, the last part of the executable's
/// path, or the last part of a desktop id.
pub fn matches(app: &AppId, text: &str) -> bool {
    let name: &str = &app.name;
    if app.to_string() == text || name == text {
        return true;
    }
    match app.kind {
        AppKind::Executable => name.rsplit('/').next() == Some(text),
        AppKind::Desktop => name
            .rsplit('.')
            .next()
            .is_some_and(|l| l.eq_ignore_ascii_case(text)),
        AppKind::Unit => name.strip_suffix(".service") == Some(text),
        AppKind::Container | AppKind::Named => false,
    }
}

/// Whether a control group holds the system, or a login, and no application.
pub fn is_system_group(group: &Membership, around: &Surroundings) -> bool {
    let own = around.own_groups.iter().chain(&around.init_groups);
    let above_own = own.clone().any(|g| g.is_within(group));
    let last = group.path.rsplit('/').next().unwrap_or_default();
    group.path == "/" || above_own || is_login_group(last)
}

fn is_login_group(last: &str) -> bool {
    let unit = |prefix: &str, suffix: &str| last.starts_with(prefix) && last.ends_with(suffix);
    last == "init.scope"
        || last.ends_with(".slice")
        || unit("session-", ".scope")
        || unit("user@", ".service")
        || unit("vte-spawn-", ".scope")
        || unit("tmux-spawn-", ".scope")
        || unit("ptyxis-spawn-", ".scope")
        || unit("app-ghostty-surface-transient-", ".scope")
}

/// What a component of a group's path names, by itself and the one above it.
type NameOf = fn(&str, &str) -> Option<(AppKind, String)>;

/// In the order in which they are asked.
const NAMES_OF: [NameOf; 2] = [container_name, unit_name];

/// The container or unit that a control group's path names, the closest one, with that group.
fn named_group(
    process: &ProcessFacts,
    around: &Surroundings,
) -> Option<(AppKind, String, Membership)> {
    let preferred = |group: &&Membership| match () {
        () if group.is_of(None) => 0,
        () if group.is_of(Some("name=systemd")) => 1,
        () => 2,
    };
    let mut groups: Vec<&Membership> = process.groups.iter().collect();
    groups.sort_by_key(preferred);
    for name_of in NAMES_OF {
        for group in &groups {
            for (end, last, above) in components(&group.path) {
                let found = group.at(&group.path[..end]);
                if let Some((kind, name)) = name_of(last, above)
                    && !is_system_group(&found, around)
                    && around.hierarchies.directory(&found).is_some()
                {
                    return Some((kind, name, found));
                }
            }
        }
    }
    None
}

/// Whether a process in these control groups may be named by one of them: a container's or a unit's.
pub fn may_be_named_by_group(groups: &[Membership]) -> bool {
    let names = |(_, last, above): (usize, &str, &str)| {
        let mut names = NAMES_OF.iter();
        names.any(|name_of| name_of(last, above).is_some())
    };
    groups
        .iter()
        .any(|group| components(&group.path).any(names))
}

/// The components of a group's path, the last first: where each ends, itself, and the one above it.
fn components(path: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut end = path.len();
    std::iter::from_fn(move || {
        let start = path[..end].rfind('/')?;
        let above = path[..start].rsplit('/').next().unwrap_or_default();
        let item = (end, &path[start + 1..end], above);
        end = start;
        Some(item)
    })
}

/// Whether it is the id of a container, or the beginning of one.
pub fn is_container_id(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn container_name(last: &str, above: &str) -> Option<(AppKind, String)> {
    let found = |name: &str| Some((AppKind::Container, name.to_owned()));
    let scope = last.strip_suffix(".scope").unwrap_or(last);
    for prefix in ["docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-"] {
        if let Some(id) = scope.strip_prefix(prefix).filter(|id| is_container_id(id)) {
            return found(id);
        }
    }
    if is_container_id(last)
        && (matches!(above, "docker" | "libpod_parent") || above.contains("pod"))
    {
        return found(last);
    }
    if let Some(name) = last.strip_prefix("lxc.payload.") {
        return found(name);
    }
    if above == "lxc" {
        return found(last);
    }
    match last
        .strip_suffix(".scope")
        .and_then(|s| s.strip_prefix("machine-"))
    {
        Some(name) => found(without_count(&unescape_unit(name))),
        None => None,
    }
}

/// What libvirt calls a machine: how many it started before, as in `qemu-3-win10`, is no part of its name.
fn without_count(machine: &str) -> &str {
    let kinds = ["qemu-", "lxc-"];
    let counted = kinds.iter().find_map(|kind| machine.strip_prefix(kind));
    let name = counted.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let name = name.and_then(|rest| rest.strip_prefix('-'));
    name.filter(|name| !name.is_empty()).unwrap_or(machine)
}

/// Programs that launch others and put their own name into the scope's.
const LAUNCHERS: [&str; 17] = [
    "budgie", "cinnamon", "cosmic", "dde", "flatpak", "gnome", "hyprland", "kde", "labwc", "lxqt",
    "mate", "niri", "river", "sway", "uwsm", "wayfire", "xfce",
];

fn unit_name(last: &str, _above: &str) -> Option<(AppKind, String)> {
    let desktop = |id: &str| Some((AppKind::Desktop, unescape_unit(id)));
    if is_login_group(last) {
        return None;
    }
    if last.starts_with("snap.") {
        let snap = last
            .strip_suffix(".scope")
            .or_else(|| last.strip_suffix(".service"))?;
        return desktop(without_uuid(snap));
    }
    let of_app = last.strip_prefix("app-");
    let activated = of_app.unwrap_or(last).strip_prefix("dbus-:");
    if let Some(id) = activated.and_then(activated_id) {
        return desktop(id);
    }
    if let Some(id) = of_app.and_then(desktop_id) {
        return desktop(&id).filter(|(_, id)| !launches_any(id));
    }
    match last.strip_suffix(".service") {
        Some(name) if !is_random(name) => Some((AppKind::Unit, last.to_owned())),
        // Scopes are made by programs, most with random names: their processes name them better.
        _ => None,
    }
}

/// Whether a scope of this id may be any application's: some launchers name it by the command, whatever that runs.
fn launches_any(id: &str) -> bool {
    is_shell(id) || wrappers::is_wrapper(id) || matches!(id, "gtk-launch" | "xdg-terminal-exec")
}

/// `[LAUNCHER-]ID-RANDOM.scope` or `[LAUNCHER-]ID[@RANDOM].service`, as systemd's desktop convention has it. Some
/// launchers do not escape dashes in ID.
fn desktop_id(rest: &str) -> Option<String> {
    let id = match rest.strip_suffix(".scope") {
        Some(scope) => scope.rsplit_once('-')?.0,
        None => {
            let service = rest.strip_suffix(".service")?;
            service.split_once('@').map_or(service, |(id, _)| id)
        }
    };
    let id = match id.split_once('-') {
        Some((launcher, id)) if LAUNCHERS.contains(&launcher.to_ascii_lowercase().as_str()) => id,
        _ => id,
    };
    (!id.is_empty()).then(|| id.to_owned())
}

/// `CONNECTION-NAME@COUNT.service`, as dbus-broker names what it activates: who asked for that, and which in its order, changes
/// with each start.
fn activated_id(rest: &str) -> Option<&str> {
    let (_connection, name) = rest.strip_suffix(".service")?.split_once('-')?;
    name.rsplit_once('@').map(|(id, _count)| id)
}

/// `snap.PACKAGE.APP-UUID`, where both may hold dashes, or `snap.PACKAGE.APP.UUID` without the UUID.
fn without_uuid(snap: &str) -> &str {
    let split = snap.len().checked_sub(UUID_BYTES);
    match split.and_then(|at| snap.split_at_checked(at)) {
        Some((id, uuid)) if is_random(uuid) => id.trim_end_matches(['-', '.']),
        _ => snap,
    }
}

/// Bytes of a UUID's text.
const UUID_BYTES: usize = 36;

/// Whether a name was drawn at random, as `systemd-run` and UUIDs are.
fn is_random(name: &str) -> bool {
    // The last is `run-p419172-i424974`, by a pid and the number of its descriptor.
    let is_drawn = |part: &str| {
        let digits = part.strip_prefix('i').unwrap_or(part);
        digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let transient = ["run-r", "run-u", "run-p"].iter().any(|p| {
        let rest = name.strip_prefix(p);
        rest.is_some_and(|r| r.len() > 1 && r.split('-').all(is_drawn))
    });
    let uuid = name.len() == UUID_BYTES && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    transient || uuid
}

/// Undoes systemd's `\xNN`.
fn unescape_unit(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = rest
            .strip_prefix(b"\\x")
            .and_then(|r| r.split_at_checked(2));
        let value = escaped.and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let (byte, after) = value.unwrap_or((first, tail));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The closest control group that is an application's own, preferring the hierarchies that hold memory.
fn own_group(process: &ProcessFacts, around: &Surroundings) -> Option<Membership> {
    [None, Some("memory"), Some("name=systemd"), Some("freezer")]
        .into_iter()
        .filter_map(|kind| process.groups.iter().find(|g| g.is_of(kind)))
        .find(|g| !is_system_group(g, around) && around.hierarchies.directory(g).is_some())
        .cloned()
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

/// Whether a process may belong to the same application as its parent, wherever their control groups are.
pub fn may_be_one(child: &ProcessFacts, parent: &ProcessFacts) -> bool {
    let same_words = parent.arguments.first() == child.arguments.first();
    let same_program = parent.exe == child.exe && (same_words || parent.has_left_groups);
    let same_session = parent.session == child.session && parent.pid != parent.session;
    let same_owner = parent.uid == child.uid && parent.pid > 1;
    same_owner && (same_program || same_session) && !is_session_program(parent)
}

/// Programs that run others on behalf of a person: what they run is not part of them.
const SESSION_PROGRAMS: [&str; 83] = [
    "systemd",
    "init",
    "bash",
    "dash",
    "sh",
    "zsh",
    "fish",
    "ksh",
    "mksh",
    "tcsh",
    "csh",
    "nu",
    "busybox",
    "login",
    "su",
    "runuser",
    "sshd",
    "sshd-session",
    "tmux",
    "screen",
    "script",
    "make",
    "cargo",
    "xinit",
    "startx",
    "xterm",
    "konsole",
    "gnome-terminal-server",
    "xfce4-terminal",
    "alacritty",
    "kitty",
    "foot",
    "wezterm-gui",
    "dbus-daemon",
    "dbus-broker",
    "gnome-shell",
    "gnome-session-binary",
    "plasmashell",
    "kwin_x11",
    "kwin_wayland",
    "ksmserver",
    "krunner",
    "kded5",
    "kded6",
    "xfce4-session",
    "xfce4-panel",
    "xfdesktop",
    "xfwm4",
    "openbox",
    "i3",
    "sway",
    "awesome",
    "fluxbox",
    "dwm",
    "cinnamon",
    "mate-panel",
    "Hyprland",
    "labwc",
    "niri",
    "river",
    "wayfire",
    "weston",
    "cosmic-comp",
    "cosmic-panel",
    "cosmic-launcher",
    "budgie-panel",
    "lxqt-panel",
    "lxqt-runner",
    "lxqt-session",
    "bspwm",
    "herbstluftwm",
    "icewm",
    "marco",
    "sxhkd",
    "lxsession",
    "lxpanel",
    "dmenu",
    "rofi",
    ".xinitrc",
    "xinitrc",
    ".xsession",
    "Xsession",
    "sx",
];

/// Whether it is a program that a person uses to run others.
pub fn is_session_program(process: &ProcessFacts) -> bool {
    let base = process.exe.as_deref().map(base_name).unwrap_or_default();
    // A shell that runs a script is that script's program.
    let script = is_shell(base).then(|| script_of(process, base)).flatten();
    runs_others(script.as_deref().map_or(base, base_name))
}

/// Whether a person is at it, who runs other programs by it: what a script, a wrapper or su(1) runs is no more than a part of
/// that.
pub fn runs_for_a_person(process: &ProcessFacts) -> bool {
    const FOR_ANOTHER: [&str; 5] = ["systemd", "init", "su", "runuser", "script"];
    let base = process.exe.as_deref().map(base_name).unwrap_or_default();
    match is_shell(base) {
        true => name_by_words(process, base).is_none(),
        false => SESSION_PROGRAMS.contains(&base) && !FOR_ANOTHER.contains(&base),
    }
}

/// Whether it is a shell, or another program that only runs others.
pub fn only_runs_others(process: &ProcessFacts) -> bool {
    let base = process.exe.as_deref().map(base_name).unwrap_or_default();
    runs_others(base)
}

fn runs_others(base: &str) -> bool {
    SESSION_PROGRAMS.contains(&base) || wrappers::is_wrapper(base)
}

/// Whether it runs a program in another root directory, and both name the application: `flatpak run org.x.Y`.
pub fn runs_in_other_root(process: &ProcessFacts) -> bool {
    let base = process.exe.as_deref().map(base_name).unwrap_or_default();
    let words = &process.arguments;
    wrappers::packaged(base, words).is_some() || wrappers::in_other_root(base, words).is_some()
}

/// Whether these names may hold that of an executable's process by its words, as far as the executable and the words alone tell: by what
/// it interprets, or by whatever it runs in another root directory or where only it finds it. Words are read only where they matter.
pub fn may_be_named_by_words(
    exe: &str,
    words: impl FnOnce() -> Vec<String>,
    is_named: impl FnOnce(&str) -> bool,
) -> bool {
    let base = base_name(exe);
    let name = || {
        let process = ProcessFacts {
            arguments: words(),
            ..ProcessFacts::default()
        };
        own_name_by_words(&process, base)
    };
    let runs = |name: &str| wrappers::is_runner(base_name(name));
    wrappers::has_other_root(base)
        || runs(base)
        || (is_interpreter(base) || is_multi_call(base))
            && name().is_some_and(|name| runs(&name) || is_named(&name))
}

/// What names a process, whose executable has this name, by its words.
fn name_by_words(process: &ProcessFacts, base: &str) -> Option<String> {
    script_of(process, base).or_else(|| code_of(process, base))
}

/// The same, or by the name that one of many is called by.
fn own_name_by_words(process: &ProcessFacts, base: &str) -> Option<String> {
    name_by_words(process, base).or_else(|| called_as(process, base))
}

/// Whether what a process runs is told by its words, where these are only those before the first that is not known.
pub fn is_told(process: &ProcessFacts) -> bool {
    let base = process.exe.as_deref().map(base_name).unwrap_or_default();
    let is_whole =
        |name: &str| !wrappers::is_runner(name) || run_by_runner(process, name).is_some();
    match is_interpreter(base) {
        true => script_of(process, base).is_some_and(|script| is_whole(base_name(&script))),
        false => is_whole(base) && (!wrappers::is_wrapper(base) || runs_in_other_root(process)),
    }
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The executable's path, or what it interprets or runs.
fn program_name(process: &ProcessFacts) -> Option<String> {
    name_within(process, STEPS_MAX)
}

/// The same in so many steps; `None` where these do not lead to its end.
fn name_within(process: &ProcessFacts, steps: usize) -> Option<String> {
    let left = steps.checked_sub(1)?;
    let exe = process.exe.as_deref()?;
    // The kernel appends this once the file was replaced by an update.
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(exe);
    if let Some(name) = wrappers::packaged(base_name(exe), &process.arguments) {
        return Some(name);
    }
    if let Some((by, command)) = wrappers::in_other_root(base_name(exe), &process.arguments) {
        let run = name_within(&run_by(process, command), left)?;
        return Some(format!("{by} {run}"));
    }
    let name = own_name_by_words(process, base_name(exe)).unwrap_or_else(|| exe.to_owned());
    let run = run_by_runner(process, base_name(&name));
    Some(run.unwrap_or_else(|| without_mount_number(name)))
}

/// Random letters at the end of the name of an AppImage's mount.
const MOUNT_NUMBER_BYTES: usize = 6;

/// A path without the part by which the mounts of an AppImage's launches differ.
fn without_mount_number(path: String) -> String {
    let is_mount = |part: &&str| part.starts_with(".mount_");
    let mount = path.split('/').find(is_mount);
    let stable = mount.and_then(|mount| {
        let stable = mount.get(..mount.len().checked_sub(MOUNT_NUMBER_BYTES)?)?;
        stable.starts_with(".mount_").then_some((mount, stable))
    });
    match stable {
        Some((mount, stable)) => path.replacen(mount, stable, 1),
        None => path,
    }
}
