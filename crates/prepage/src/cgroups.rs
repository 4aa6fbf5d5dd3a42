//! Control groups: which hierarchies are mounted where, and in which group of each a process is. Versions 1 and 2.

use std::path::{Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its controllers or its name (`name=systemd`); none for version 2.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The group that the mount shows as its root.
    pub root: String,
}

/// The group of one hierarchy that a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// As in [`Hierarchy::controllers`].
    pub controllers: Vec<String>,
    /// The group, from the hierarchy's root: `/`, `/system.slice/x.service`.
    pub path: String,
}

impl Membership {
    /// Whether its hierarchy is version 2, or has this controller or name.
    pub fn is_of(&self, controller: Option<&str>) -> bool {
        match controller {
            None => self.controllers.is_empty(),
            Some(name) => self.controllers.iter().any(|c| c == name),
        }
    }

    /// Whether it is the group `other`, of the same hierarchy, or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.controllers == other.controllers && is_below(&self.path, &other.path)
    }

    /// The group of the same hierarchy at `path`.
    pub fn at(&self, path: &str) -> Self {
        Self {
            controllers: self.controllers.clone(),
            path: path.into(),
        }
    }
}

/// Whether the group `path` is `above` or below it.
fn is_below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads what /proc/PID/cgroup holds. Lines of another form are left out.
pub fn parse_memberships(text: &str) -> Vec<Membership> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let controllers = controllers
            .split(',')
            .filter(|c| !c.is_empty())
            .map(str::to_owned);
        Some(Membership {
            controllers: controllers.collect(),
            path: path.strip_suffix(" (deleted)").unwrap_or(path).into(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// The groups that a process is in; empty where it is gone.
pub fn memberships(pid: i32) -> Vec<Membership> {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .map(|text| parse_memberships(&text))
        .unwrap_or_default()
}

/// All mounted hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies(Vec<Hierarchy>);

impl Hierarchies {
    /// Those that are mounted here; none where /proc cannot be read.
    pub fn mounted() -> Self {
        std::fs::read_to_string("/proc/self/mountinfo")
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// Reads what /proc/PID/mountinfo holds.
    pub fn parse(mountinfo: &str) -> Self {
        Self(mountinfo.lines().filter_map(parse_mount).collect())
    }

    /// The directory of a group; `None` where its hierarchy is not mounted, or not that part of it.
    pub fn directory(&self, group: &Membership) -> Option<PathBuf> {
        let mounts = self.0.iter().filter(|h| h.controllers == group.controllers);
        let inside = |h: &Hierarchy| {
            let below = is_below(&group.path, &h.root) && !group.path.contains("/..");
            let rest = below.then(|| &group.path[h.root.trim_end_matches('/').len()..])?;
            Some(h.mount.join(rest.trim_start_matches('/')))
        };
        mounts.filter_map(inside).next()
    }

    /// The group that a directory is of.
    pub fn group_at(&self, directory: &Path) -> Option<Membership> {
        let mounts = self.0.iter().filter(|h| directory.starts_with(&h.mount));
        let hierarchy = mounts.max_by_key(|h| h.mount.as_os_str().len())?;
        let rest = directory.strip_prefix(&hierarchy.mount).ok()?.to_str()?;
        let root = hierarchy.root.trim_end_matches('/');
        let path = match rest {
            "" => root.to_owned(),
            rest => format!("{root}/{rest}"),
        };
        Some(Membership {
            controllers: hierarchy.controllers.clone(),
            path: if path.is_empty() { "/".into() } else { path },
        })
    }
}

/// `33 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory`
fn parse_mount(line: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, mount) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let controllers = match kind {
        "cgroup2" => Vec::new(),
        // The other options are the super block's; only these name the hierarchy.
        "cgroup" => {
            let own = |o: &&str| !["rw", "ro", "xattr", "clone_children", "noprefix"].contains(o);
            let own = |o: &&str| own(o) && !o.starts_with("release_agent=");
            options.split(',').filter(own).map(str::to_owned).collect()
        }
        _ => return None,
    };
    Some(Hierarchy {
        controllers,
        mount: PathBuf::from(mount.replace("\\040", " ")),
        root: root.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
36 31 0:33 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
garbage
";

    #[test]
    fn groups_and_directories_go_both_ways() {
        let hierarchies = Hierarchies::parse(MOUNTS);
        assert_eq!(hierarchies.0.len(), 4);
        for (line, directory) in [
            ("4:memory:/x/y", "/sys/fs/cgroup/memory/x/y"),
            ("0::/x", "/sys/fs/cgroup/unified/x"),
            ("1:name=systemd:/", "/sys/fs/cgroup/systemd"),
            ("2:cpu,cpuacct:/a/b", "/sys/fs/cgroup/cpu/b"),
        ] {
            let group = &parse_memberships(line)[0];
            let directory = Path::new(directory);
            assert_eq!(
                hierarchies.directory(group).as_deref(),
                Some(directory),
                "{line}"
            );
            assert_eq!(
                hierarchies.group_at(directory).as_ref(),
                Some(group),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_not_mounted_has_no_directory() {
        let hierarchies = Hierarchies::parse(MOUNTS);
        for line in ["3:pids:/x", "2:cpu,cpuacct:/ab", "0::/../x"] {
            assert_eq!(
                hierarchies.directory(&parse_memberships(line)[0]),
                None,
                "{line}"
            );
        }
        assert_eq!(hierarchies.group_at(Path::new("/tmp")), None);
    }

    #[test]
    fn within_goes_by_whole_components() {
        let group = |path: &str| parse_memberships(&format!("0::{path}")).remove(0);
        assert!(group("/a/b").is_within(&group("/a")));
        assert!(group("/a").is_within(&group("/a")));
        assert!(group("/a").is_within(&group("/")));
        assert!(!group("/ab").is_within(&group("/a")));
        assert!(!group("/a").is_within(&group("/a/b")));
    }
}
