//! cgroups, v1 and v2: where a process is, memory and freezer.

mod headroom;
pub use headroom::{Headroom, Limited};

use crate::error::{Error, Result};
use crate::mountinfo::{self, Mount};
use crate::text;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The two interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The controllers that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// memory.
    Memory,
    /// freezer (v1); part of every cgroup in v2 (5.2+).
    Freezer,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Freezer => "freezer",
        }
    }
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// v1 or v2.
    pub version: Version,
    /// v1: its controllers, or `name=...`. v2: those that the root offers.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The cgroup that is mounted there, `/` except in containers.
    pub root: PathBuf,
}

impl Hierarchy {
    /// The directory of a group; `None` where it is of another hierarchy, or of no part that is mounted here. In a container
    /// only a part is, and a path may name what lies above it.
    pub fn directory(&self, group: &Membership) -> Option<PathBuf> {
        let path = Path::new(&group.path);
        let leads_up = path.components().any(|part| part == Component::ParentDir);
        let below = path.strip_prefix(&self.root).ok()?;
        let below = self.mount_point.join(below);
        (self.holds(group) && !leads_up).then(|| below.components().collect())
    }

    /// Whether the group is of this hierarchy. No controller is in two of version 1.
    fn holds(&self, group: &Membership) -> bool {
        let shares_one = || self.controllers.iter().any(|name| group.is_of(Some(name)));
        self.version == group.version && (self.version == Version::V2 || shares_one())
    }

    pub(crate) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|one| one == controller)
    }
}

/// A process's place in one hierarchy (a line of /proc/PID/cgroup).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// v1 or v2 (hierarchy 0).
    pub version: Version,
    /// v1: the controllers of the hierarchy; v2: none.
    pub controllers: Vec<String>,
    /// The path below the hierarchy's root as our cgroup namespace sees it: `/`, `/system.slice/x.service`.
    pub path: String,
}

impl Membership {
    /// Whether its hierarchy is v2, or the one of v1 with this controller or name (`name=systemd`).
    pub fn is_of(&self, controller: Option<&str>) -> bool {
        match controller {
            None => self.version == Version::V2,
            Some(name) => self.controllers.iter().any(|one| one == name),
        }
    }

    /// Whether it is the cgroup `other`, of the same hierarchy, or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let same = (self.version, &self.controllers) == (other.version, &other.controllers);
        same && is_below(&self.path, &other.path)
    }

    /// The cgroup of the same hierarchy at `path`.
    pub fn at(&self, path: &str) -> Self {
        Self {
            path: path.into(),
            ..self.clone()
        }
    }
}

/// Whether the cgroup `path` is `above` or below it.
pub fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A directory of cgroupfs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cgroup {
    /// Which interface its files are of.
    pub version: Version,
    /// The absolute path.
    pub directory: PathBuf,
}

/// The mounted hierarchies.
pub fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mut hierarchies: Vec<Hierarchy> = mountinfo::read()?.iter().filter_map(hierarchy).collect();
    for unified in hierarchies
        .iter_mut()
        .filter(|hierarchy| hierarchy.version == Version::V2)
    {
        let offered =
            text::read_line(unified.mount_point.join("cgroup.controllers")).unwrap_or_default();
        unified.controllers = offered
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect();
    }
    Ok(hierarchies)
}

/// The hierarchy of a mount, if it is one.
pub fn hierarchy(mount: &Mount) -> Option<Hierarchy> {
    const NOT_CONTROLLERS: [&str; 5] = ["rw", "ro", "xattr", "noprefix", "clone_children"];
    let (version, controllers) = match mount.fs_type.as_str() {
        "cgroup" => {
            let options = mount.super_options.split(',');
            let named = options.filter(|option| {
                !NOT_CONTROLLERS.contains(option) && !option.starts_with("release_agent=")
            });
            (Version::V1, named.map(str::to_owned).collect())
        }
        "cgroup2" => (Version::V2, Vec::new()),
        _ => return None,
    };
    Some(Hierarchy {
        version,
        controllers,
        mount_point: mount.mount_point.clone(),
        root: mount.root.clone(),
    })
}

/// Where a process is, in each hierarchy.
pub fn membership(pid: i32) -> Result<Vec<Membership>> {
    let path = format!("/proc/{pid}/cgroup");
    let contents = text::read_text(&path)?;
    parse_membership(&contents).ok_or_else(|| Error::malformed("parse", path, "malformed line"))
}

/// Parses the contents of /proc/PID/cgroup: lines of `hierarchy:controllers:path`.
pub fn parse_membership(contents: &str) -> Option<Vec<Membership>> {
    contents
        .lines()
        .filter(|line| !line.is_empty())
        .map(parse_membership_line)
        .collect()
}

fn parse_membership_line(line: &str) -> Option<Membership> {
    let mut fields = line.splitn(3, ':');
    let hierarchy: u32 = fields.next()?.parse().ok()?;
    let controllers = fields.next()?;
    let path = fields.next().filter(|path| path.starts_with('/'))?;
    Some(Membership {
        version: if hierarchy == 0 {
            Version::V2
        } else {
            Version::V1
        },
        controllers: controllers
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        // The cgroup was removed, and the process is still in it.
        path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
    })
}

/// The cgroup of process `pid` for a controller: v1 where that is mounted, else v2. `None` where neither is mounted.
///
/// For memory on v2 this is the nearest ancestor that has the controller enabled, the one that is charged.
pub fn of_process(
    hierarchies: &[Hierarchy],
    pid: i32,
    controller: Controller,
) -> Result<Option<Cgroup>> {
    let memberships = membership(pid)?;
    Ok(locate(hierarchies, &memberships, controller).map(|cgroup| {
        match (cgroup.version, controller) {
            (Version::V2, Controller::Memory) => {
                nearest_with(cgroup, hierarchies, "memory.current")
            }
            _ => cgroup,
        }
    }))
}

/// [`of_process`] without looking at cgroupfs.
pub fn locate(
    hierarchies: &[Hierarchy],
    memberships: &[Membership],
    controller: Controller,
) -> Option<Cgroup> {
    let name = controller.name();
    let is_v1 = |hierarchy: &Hierarchy| hierarchy.version == Version::V1;
    let has_v1 = hierarchies.iter().any(|one| is_v1(one) && one.has(name));
    // The v2 freezer belongs to every cgroup and is not listed among the controllers.
    let has_it = |one: &&Hierarchy| match has_v1 {
        true => is_v1(one) && one.has(name),
        false => !is_v1(one) && (controller == Controller::Freezer || one.has(name)),
    };
    // One that is mounted several times may be so with different parts.
    hierarchies.iter().filter(has_it).find_map(|hierarchy| {
        let mut groups = memberships.iter();
        Some(Cgroup {
            version: hierarchy.version,
            directory: groups.find_map(|group| hierarchy.directory(group))?,
        })
    })
}

fn nearest_with(cgroup: Cgroup, hierarchies: &[Hierarchy], file: &str) -> Cgroup {
    let is_mount_point =
        |directory: &Path| hierarchies.iter().any(|one| one.mount_point == directory);
    let mut directory = cgroup.directory.clone();
    while !directory.join(file).exists() {
        if is_mount_point(&directory) || !directory.pop() {
            return cgroup;
        }
    }
    Cgroup {
        directory,
        ..cgroup
    }
}

/// The processes of a cgroup and those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Process ids, in no order.
    pub pids: Vec<i32>,
    /// There were more than the bound.
    pub truncated: bool,
}

/// [`procs`] lists at most this many processes.
pub const PROCS_MAX: usize = 16_384;

/// Most cgroups whose processes are listed in one go: that takes some 25 us each, and whoever one is delegated to may make any
/// number below it.
const LISTED_MAX: usize = 1_024;

/// The processes of the cgroup at `directory` (v1 or v2) and of all below it, at most [`PROCS_MAX`].
pub fn procs(directory: &Path) -> Result<Vec<i32>> {
    Ok(members(directory, PROCS_MAX)?.pids)
}

/// The processes of the cgroup at `top` (v1 or v2) and of all below it, at most `pids_max` of them. Those outside of our pid
/// namespace are left out. A vanished cgroup has none.
pub fn members(top: &Path, pids_max: usize) -> Result<Members> {
    let mut members = Members::default();
    let mut directories = vec![top.to_owned()];
    let mut listed = 0;
    while let Some(directory) = directories.pop() {
        if listed == LISTED_MAX {
            members.truncated = true;
            break;
        }
        listed += 1;
        let list = match text::read_text(directory.join("cgroup.procs")) {
            Ok(list) => list,
            // Removed meanwhile (ENODEV once open), or a threaded cgroup, whose processes the parent lists.
            Err(error) if error.is_not_found() || error.errno() == Some(libc::ENODEV) => continue,
            Err(error) if error.is_unsupported() => continue,
            Err(error) => return Err(error),
        };
        // A process outside of our pid namespace is listed as 0.
        let pids = list.lines().filter_map(|line| line.parse::<i32>().ok());
        for pid in pids.filter(|&pid| pid > 0) {
            if members.pids.len() == pids_max {
                members.truncated = true;
                return Ok(members);
            }
            members.pids.push(pid);
        }
        directories.extend(directories_in(&directory));
    }
    Ok(members)
}

/// The cgroups right below one; none where it vanished.
fn directories_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

impl Cgroup {
    /// [`members`] of this cgroup.
    pub fn members(&self, pids_max: usize) -> Result<Members> {
        members(&self.directory, pids_max)
    }

    /// Moves a process into this cgroup.
    pub fn add(&self, pid: i32) -> Result<()> {
        text::write_text(self.directory.join("cgroup.procs"), &pid.to_string())
    }

    /// memory.stat: bytes and event counts by name. In v1, `total_...` are those of the whole subtree.
    pub fn memory_stat(&self) -> Result<BTreeMap<String, u64>> {
        let contents = text::read_text(self.directory.join("memory.stat"))?;
        Ok(parse_flat_keyed(&contents))
    }

    /// Memory charged to the subtree now, in bytes (memory.usage_in_bytes, memory.current).
    pub fn memory_usage_bytes(&self) -> Result<u64> {
        text::read_number(self.directory.join(match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        }))
    }

    /// The hard limit in bytes (memory.limit_in_bytes, memory.max); `None` where there is none.
    pub fn memory_limit_bytes(&self) -> Result<Option<u64>> {
        self.limit_bytes(match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        })
    }

    fn limit_bytes(&self, file: &str) -> Result<Option<u64>> {
        let path = self.directory.join(file);
        let line = text::read_line(&path)?;
        if line == "max" {
            return Ok(None);
        }
        let limit: u64 = line
            .parse()
            .map_err(|_| Error::malformed("parse", path.to_string_lossy(), line.as_str()))?;
        // v1 writes "none" as the largest page-aligned i64.
        Ok((limit < i64::MAX as u64 / 2).then_some(limit))
    }

    /// Swap charged to the cgroup now, in bytes (`swap` of v1's memory.stat, memory.swap.current).
    pub fn swap_usage_bytes(&self) -> Result<u64> {
        match self.version {
            Version::V1 => Ok(self.memory_stat()?.get("total_swap").copied().unwrap_or(0)),
            Version::V2 => text::read_number(self.directory.join("memory.swap.current")),
        }
    }

    /// Whether it is frozen.
    pub fn freezer_state(&self) -> Result<FreezerState> {
        match self.version {
            Version::V1 => {
                let path = self.directory.join("freezer.state");
                match text::read_line(&path)?.as_str() {
                    "THAWED" => Ok(FreezerState::Thawed),
                    "FREEZING" => Ok(FreezerState::Freezing),
                    "FROZEN" => Ok(FreezerState::Frozen),
                    other => Err(Error::malformed("parse", path.to_string_lossy(), other)),
                }
            }
            Version::V2 => {
                let events = text::read_text(self.directory.join("cgroup.events"))?;
                if parse_flat_keyed(&events).get("frozen") == Some(&1) {
                    return Ok(FreezerState::Frozen);
                }
                // The root has no cgroup.freeze, and cannot be frozen.
                let asked =
                    text::read_line(self.directory.join("cgroup.freeze")).unwrap_or_default();
                Ok(if asked == "1" {
                    FreezerState::Freezing
                } else {
                    FreezerState::Thawed
                })
            }
        }
    }

    /// Freezes or thaws it; freezing takes effect some time later.
    pub fn set_frozen(&self, frozen: bool) -> Result<()> {
        let (file, value) = match (self.version, frozen) {
            (Version::V1, true) => ("freezer.state", "FROZEN"),
            (Version::V1, false) => ("freezer.state", "THAWED"),
            (Version::V2, true) => ("cgroup.freeze", "1"),
            (Version::V2, false) => ("cgroup.freeze", "0"),
        };
        text::write_text(self.directory.join(file), value)
    }
}

/// The state of a freezer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezerState {
    /// Running.
    Thawed,
    /// Asked to freeze, and not all tasks have.
    Freezing,
    /// All tasks stand still.
    Frozen,
}

/// Parses lines of `key number`; others are left out.
pub fn parse_flat_keyed(contents: &str) -> BTreeMap<String, u64> {
    let pairs = contents.lines().filter_map(|line| line.split_once(' '));
    pairs
        .filter_map(|(key, value)| Some((key.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine::Directory;

    fn mounts() -> Vec<Hierarchy> {
        let text = b"35 1 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            37 1 0:33 /pod /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
            40 1 0:36 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 1 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        mountinfo::parse(text)
            .expect("well formed")
            .iter()
            .filter_map(hierarchy)
            .collect()
    }

    #[test]
    fn locates_v1_and_v2() {
        let hierarchies = mounts();
        assert_eq!(hierarchies[2].controllers, ["name=systemd"]);
        let memberships = parse_membership(
            "4:memory:/a/b\n6:freezer:/pod/c\n1:name=systemd:/x:y\n0::/u (deleted)\n",
        )
        .expect("well formed");
        assert_eq!(memberships[2].path, "/x:y");
        let memory = locate(&hierarchies, &memberships, Controller::Memory).expect("mounted");
        assert_eq!(
            (memory.version, memory.directory),
            (Version::V1, "/sys/fs/cgroup/memory/a/b".into())
        );
        let freezer = locate(&hierarchies, &memberships, Controller::Freezer).expect("mounted");
        assert_eq!(freezer.directory, Path::new("/sys/fs/cgroup/freezer/c"));
        let only_unified = &hierarchies[3..];
        assert_eq!(
            locate(only_unified, &memberships, Controller::Memory),
            None,
            "v2 without memory"
        );
        let freezer =
            locate(only_unified, &memberships, Controller::Freezer).expect("in every v2 cgroup");
        assert_eq!(freezer.directory, Path::new("/sys/fs/cgroup/unified/u"));
    }

    #[test]
    fn what_is_not_mounted_has_no_directory() {
        let hierarchies = mounts();
        let directory = |line: &str| {
            let group = parse_membership_line(line).expect("well formed");
            hierarchies.iter().find_map(|one| one.directory(&group))
        };
        let there = |path: &str| Some(PathBuf::from(path));
        assert_eq!(directory("6:freezer:/pod"), there("/sys/fs/cgroup/freezer"));
        assert_eq!(
            directory("6:freezer:/pod/..c"),
            there("/sys/fs/cgroup/freezer/..c")
        );
        assert_eq!(directory("0::/"), there("/sys/fs/cgroup/unified"));
        for line in ["6:freezer:/podium", "6:freezer:/c", "3:pids:/x", "0::/../x"] {
            assert_eq!(directory(line), None, "{line}");
        }
        // What holds for a process there is not known, and not another group's.
        let above = parse_membership("6:freezer:/c\n").expect("well formed");
        assert_eq!(locate(&hierarchies, &above, Controller::Freezer), None);
        // The same hierarchy may be mounted as another part as well.
        let whole = b"50 1 0:33 / /mnt rw - cgroup cgroup rw,freezer\n";
        let whole = mountinfo::parse(whole).expect("well formed");
        let both: Vec<_> = hierarchies
            .into_iter()
            .chain(whole.iter().filter_map(hierarchy))
            .collect();
        let found = locate(&both, &above, Controller::Freezer).expect("mounted");
        assert_eq!(found.directory, Path::new("/mnt/c"));
    }

    #[test]
    fn within_goes_by_whole_components_of_one_hierarchy() {
        let group = |path: &str| parse_membership_line(&format!("0::{path}")).expect("well formed");
        assert!(group("/a/b").is_within(&group("/a")));
        assert!(group("/a").is_within(&group("/a")));
        assert!(group("/a").is_within(&group("/")));
        assert!(!group("/ab").is_within(&group("/a")));
        assert!(!group("/a").is_within(&group("/a/b")));
        let legacy = parse_membership_line("4:memory,cpu:/a").expect("well formed");
        assert!(!legacy.is_within(&group("/a")));
        assert!(legacy.is_of(Some("cpu")) && !legacy.is_of(None) && group("/").is_of(None));
        assert_eq!(
            legacy.at("/"),
            parse_membership_line("4:memory,cpu:/").expect("well formed")
        );
    }

    #[test]
    fn members_are_found_however_deep_they_are_and_without_those_of_other_namespaces() {
        let directory = Directory::new();
        let chain = (0..100).scan(directory.0.join("deep"), |path, depth| {
            path.push("below");
            Some((path.clone(), format!("{}\n0\n", 1_000 + depth)))
        });
        let beside = (directory.0.join("beside"), "7\n".to_owned());
        for (path, procs) in chain.chain([beside]) {
            std::fs::create_dir_all(&path).expect("create");
            std::fs::write(path.join("cgroup.procs"), procs).expect("write");
        }
        for empty in [&directory.0, &directory.0.join("deep")] {
            std::fs::write(empty.join("cgroup.procs"), "").expect("write");
        }
        let mut pids = procs(&directory.0).expect("readable");
        pids.sort_unstable();
        let expected: Vec<i32> = std::iter::once(7).chain(1_000..1_100).collect();
        assert_eq!(pids, expected);
    }

    #[test]
    fn malformed_memberships_are_none() {
        assert_eq!(parse_membership("x:memory:/a"), None);
        assert_eq!(parse_membership("4:memory"), None);
        assert_eq!(parse_membership("4:memory:a"), None);
        assert_eq!(parse_membership(""), Some(vec![]));
    }

    #[test]
    fn flat_keyed() {
        let keyed = parse_flat_keyed("a 1\nbad\nb x\nc 3\n");
        assert_eq!(
            keyed.into_iter().collect::<Vec<_>>(),
            [("a".to_owned(), 1), ("c".to_owned(), 3)]
        );
    }
}
