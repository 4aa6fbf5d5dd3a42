//! Which application a control group is of: a container's, a systemd unit's, or one of its own.

use super::{ProcessFacts, Surroundings, base_name};
use crate::cgroups::Membership;
use prepage_core::identity::AppKind;
use prepage_core::shell::is_shell;
use prepage_core::wrappers;

/// Whether a control group holds the system, or a login, and no application.
pub fn is_system_group(group: &Membership, around: &Surroundings) -> bool {
    let own = around.own_groups.iter().chain(&around.init_groups);
    let above_own = own.clone().any(|g| g.is_within(group));
    let last = base_name(&group.path);
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
pub(super) fn named_group(
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
        let above = base_name(&path[..start]);
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
pub(super) fn own_group(process: &ProcessFacts, around: &Surroundings) -> Option<Membership> {
    [None, Some("memory"), Some("name=systemd"), Some("freezer")]
        .into_iter()
        .filter_map(|kind| process.groups.iter().find(|g| g.is_of(kind)))
        .find(|g| !is_system_group(g, around) && around.hierarchies.directory(g).is_some())
        .cloned()
}

pub(super) fn is_inside(process: &ProcessFacts, group: &Membership) -> bool {
    process.groups.iter().any(|own| own.is_within(group))
}
