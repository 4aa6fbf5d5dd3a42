//! Control groups: from the group of a process to its directory and back, over all mounted hierarchies.

use prepage_kernel::cgroup::{self, Hierarchy};
use prepage_kernel::mountinfo::{self, Mount};
use std::path::{Path, PathBuf};

pub use prepage_kernel::cgroup::Membership;

/// The groups that a process is in; empty where it is gone.
pub fn memberships(pid: i32) -> Vec<Membership> {
    cgroup::membership(pid).unwrap_or_default()
}

/// All mounted hierarchies. As in [`Membership`], version 2 has no controllers here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies(Vec<Hierarchy>);

impl Hierarchies {
    /// Those that are mounted here; none where /proc cannot be read.
    pub fn mounted() -> Self {
        Self::among(&mountinfo::read().unwrap_or_default())
    }

    /// Those among some mounts.
    pub fn among(mounts: &[Mount]) -> Self {
        Self(mounts.iter().filter_map(cgroup::hierarchy).collect())
    }

    /// The directory of a group; `None` where its hierarchy is not mounted, or not that part of it.
    pub fn directory(&self, group: &Membership) -> Option<PathBuf> {
        self.0.iter().find_map(|one| one.directory(group))
    }

    /// The group that a directory is of.
    pub fn group_at(&self, directory: &Path) -> Option<Membership> {
        let mounts = self
            .0
            .iter()
            .filter(|h| directory.starts_with(&h.mount_point));
        let hierarchy = mounts.max_by_key(|h| h.mount_point.as_os_str().len())?;
        let rest = directory
            .strip_prefix(&hierarchy.mount_point)
            .ok()?
            .to_str()?;
        let root = hierarchy.root.to_str()?.trim_end_matches('/');
        let path = match (root, rest) {
            ("", "") => "/".to_owned(),
            (root, "") => root.to_owned(),
            (root, rest) => format!("{root}/{rest}"),
        };
        Some(Membership {
            version: hierarchy.version,
            controllers: hierarchy.controllers.clone(),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
36 31 0:33 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    fn hierarchies() -> Hierarchies {
        Hierarchies::among(&mountinfo::parse(MOUNTS).expect("well formed"))
    }

    fn group(line: &str) -> Membership {
        let parsed = cgroup::parse_membership(line).expect("well formed");
        parsed.into_iter().next().expect("one group")
    }

    #[test]
    fn groups_and_directories_go_both_ways() {
        let hierarchies = hierarchies();
        assert_eq!(hierarchies.0.len(), 4);
        for (line, directory) in [
            ("4:memory:/x/y", "/sys/fs/cgroup/memory/x/y"),
            ("0::/x", "/sys/fs/cgroup/unified/x"),
            ("1:name=systemd:/", "/sys/fs/cgroup/systemd"),
            ("2:cpu,cpuacct:/a/b", "/sys/fs/cgroup/cpu/b"),
        ] {
            let (group, directory) = (group(line), Path::new(directory));
            let found = hierarchies.directory(&group);
            assert_eq!(found.as_deref(), Some(directory), "{line}");
            assert_eq!(hierarchies.group_at(directory), Some(group), "{line}");
        }
    }

    #[test]
    fn what_is_not_mounted_has_no_directory() {
        let hierarchies = hierarchies();
        for line in ["3:pids:/x", "2:cpu,cpuacct:/ab", "0::/../x"] {
            assert_eq!(hierarchies.directory(&group(line)), None, "{line}");
        }
        assert_eq!(hierarchies.group_at(Path::new("/tmp")), None);
    }
}
