//! What the limits of memory cgroups leave to be charged.

use super::{Cgroup, Version, directories_in};
use crate::error::Result;
use crate::text;
use std::collections::BTreeMap;
use std::path::Path;

/// Cgroups at and below a limited one that are asked what they keep from reclaim. Where there are more, no inactive page
/// counts as headroom.
const GROUPS_MAX: usize = 64;

/// How much more can be charged to a cgroup under all limits of it and of those above it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Until the kernel has to reclaim.
    pub free_bytes: u64,
    /// Until it has to take away what is in use: what is free, and what can be reclaimed for it.
    pub bytes: u64,
}

impl Headroom {
    /// What a limit leaves, the group using so many bytes, of which so many can be reclaimed.
    fn under(limit: u64, used: u64, reclaimable: u64) -> Self {
        Self {
            free_bytes: limit.saturating_sub(used),
            bytes: limit.saturating_sub(used.saturating_sub(reclaimable)),
        }
    }

    /// What both leave.
    pub fn and(self, other: Self) -> Self {
        Self {
            free_bytes: self.free_bytes.min(other.free_bytes),
            bytes: self.bytes.min(other.bytes),
        }
    }
}

/// A cgroup whose memory is limited, with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The cgroup.
    pub cgroup: Cgroup,
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// What can be charged until the kernel has to reclaim, in bytes.
    pub left_bytes: u64,
    /// What can be swapped out, in bytes: free swap, as far as memory.swap.max of v2 lets it be used.
    pub swap_left_bytes: u64,
}

impl Cgroup {
    /// The cgroups whose limits hold for this one, itself among them, nearest first: memory.limit_in_bytes of v1, memory.max and
    /// memory.high of v2.
    pub fn limits(&self) -> Result<Vec<Limited>> {
        let limits = self.upwards(Self::limit_here)?;
        Ok(limits.into_iter().flatten().collect())
    }

    /// What `of` says of this cgroup and of those above it, nearest first.
    fn upwards<T>(&self, of: impl Fn(&Cgroup) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for directory in self.directory.ancestors() {
            match of(&self.at(directory)) {
                // The root of version 2, or what lies above the hierarchy.
                Err(error) if error.is_not_found() => break,
                found => all.push(found?),
            }
        }
        Ok(all)
    }

    fn limit_here(&self) -> Result<Option<Limited>> {
        let Some(limit_bytes) = self.memory_limit()? else {
            return Ok(None);
        };
        Ok(Some(Limited {
            cgroup: self.clone(),
            limit_bytes,
            left_bytes: limit_bytes.saturating_sub(self.memory_usage_bytes()?),
            swap_left_bytes: self.swap_left(self.free_swap_bytes()),
        }))
    }

    /// The limit at which the kernel reclaims.
    fn memory_limit(&self) -> Result<Option<u64>> {
        let hard = self.memory_limit_bytes()?;
        Ok(match self.version {
            // The soft limit of version 1 does not hold while memory is charged.
            Version::V1 => hard,
            Version::V2 => hard
                .into_iter()
                .chain(self.limit_if_any("memory.high")?)
                .min(),
        })
    }

    /// How much more can be charged to this cgroup under a limit of it or of one above it. `None` where nothing is limited.
    ///
    /// The limits: memory.limit_in_bytes and memory.memsw.limit_in_bytes of v1, memory.max and memory.high of v2. Inactive
    /// pages count as headroom, unless memory.min protects them, anonymous ones as far as they may be swapped and swap is
    /// left. Active ones do not,
    /// although the kernel ages them: where many came back at once and all are active, it calls the OOM killer first (seen
    /// on 6.18; it decides by statistics of the group that may be two seconds old). Under MGLRU the two youngest generations
    /// count as active, and so all pages that are new or came back, until the kernel has aged them: less is headroom then.
    ///
    /// Reads two or three small files for each cgroup on the way up; for one that has a limit also its statistics, and
    /// looks at up to 64 cgroups below it.
    pub fn memory_headroom(&self) -> Result<Option<Headroom>> {
        self.headroom_with(self.free_swap_bytes())
    }

    /// The same, there being so much free swap on the machine.
    fn headroom_with(&self, free_swap: u64) -> Result<Option<Headroom>> {
        let levels = self.upwards(|level| level.headroom_here(free_swap))?;
        Ok(levels.into_iter().flatten().reduce(Headroom::and))
    }

    /// The same, under the limits of this one alone.
    fn headroom_here(&self, free_swap: u64) -> Result<Option<Headroom>> {
        let memory = self.memory_limit()?;
        let with_swap = match self.version {
            Version::V1 => self.limit_if_any("memory.memsw.limit_in_bytes")?,
            Version::V2 => None,
        };
        if memory.is_none() && with_swap.is_none() {
            return Ok(None);
        }
        let stat = self.memory_stat()?;
        let of_memory = |limit| -> Result<Headroom> {
            let reclaimable = self.reclaimable_bytes(&stat, free_swap);
            Ok(Headroom::under(
                limit,
                self.memory_usage_bytes()?,
                reclaimable,
            ))
        };
        // What goes to swap stays charged to memory and swap together.
        let of_both = |limit| -> Result<Headroom> {
            let used = text::read_number(self.directory.join("memory.memsw.usage_in_bytes"))?;
            Ok(Headroom::under(
                limit,
                used,
                self.reclaimable_bytes(&stat, 0),
            ))
        };
        let (memory, with_swap) = (memory.map(of_memory), with_swap.map(of_both));
        Ok(memory
            .transpose()?
            .into_iter()
            .chain(with_swap.transpose()?)
            .reduce(Headroom::and))
    }

    /// `None` also where the kernel is without this limit.
    fn limit_if_any(&self, file: &str) -> Result<Option<u64>> {
        match self.limit_bytes(file) {
            Err(error) if error.is_not_found() => Ok(None),
            limit => limit,
        }
    }

    /// A value of memory.stat for the whole subtree.
    fn of_subtree(&self, stat: &BTreeMap<String, u64>, key: &str) -> u64 {
        let value = match self.version {
            Version::V1 => stat.get(&format!("total_{key}")),
            Version::V2 => stat.get(key),
        };
        value.copied().unwrap_or(0)
    }

    /// Free swap of the machine; none where the kernel is told not to swap for a cgroup's sake.
    fn free_swap_bytes(&self) -> u64 {
        let swappiness = text::read_number("/proc/sys/vm/swappiness");
        // In v1 each cgroup has its own.
        if self.version == Version::V2 && swappiness.is_ok_and(|value: u32| value == 0) {
            return 0;
        }
        let info = rustix::system::sysinfo();
        info.freeswap.saturating_mul(info.mem_unit.into())
    }

    /// What of the inactive pages of the subtree, that `stat` tells, can be reclaimed.
    fn reclaimable_bytes(&self, stat: &BTreeMap<String, u64>, free_swap: u64) -> u64 {
        let Some(groups) = self.subtree() else {
            return 0;
        };
        let inactive = |key| self.of_subtree(stat, key);
        let (anon, file) = (inactive("inactive_anon"), inactive("inactive_file"));
        match self.version {
            Version::V1 => {
                // Each has its own swappiness; that of the one above does not matter. The kernel brings its statistics up to
                // date by and by: the whole and a part of it do not fit together, and what is not in the part may be nowhere.
                let (kept, swapped): (Vec<_>, Vec<_>) =
                    groups.iter().partition(|group| group.never_swaps());
                let anon = match kept.is_empty() {
                    true => anon,
                    false => swapped.iter().map(|group| group.own("inactive_anon")).sum(),
                };
                file.saturating_add(anon.min(free_swap))
            }
            Version::V2 => {
                let kept = self.kept_below(&groups);
                let anon = anon
                    .saturating_sub(kept.anon)
                    .min(self.swap_left(free_swap));
                file.saturating_sub(kept.file).saturating_add(anon)
            }
        }
    }

    /// A value of this cgroup's memory.stat, without those below in version 1. It may have vanished.
    fn own(&self, key: &str) -> u64 {
        let stat = self.memory_stat().unwrap_or_default();
        stat.get(key).copied().unwrap_or(0)
    }

    fn at(&self, directory: &Path) -> Cgroup {
        Cgroup {
            version: self.version,
            directory: directory.into(),
        }
    }

    /// This cgroup and those below it. `None` where there are more than [`GROUPS_MAX`].
    fn subtree(&self) -> Option<Vec<Cgroup>> {
        let mut groups = vec![self.at(&self.directory)];
        let mut looked_at = 0;
        while let Some(group) = groups.get(looked_at) {
            if looked_at == GROUPS_MAX {
                return None;
            }
            let below: Vec<_> = group.children().take(GROUPS_MAX).collect();
            groups.extend(below);
            looked_at += 1;
        }
        Some(groups)
    }

    /// Those right below it.
    fn children(&self) -> impl Iterator<Item = Cgroup> {
        directories_in(&self.directory).map(|directory| self.at(&directory))
    }

    /// The cgroups below this one that have none below them, with the bytes that reclaim can take from each: file pages,
    /// and anonymous ones where they may be swapped. Those that memory.min or memory.low (v2) protect give nothing. `None` where
    /// there are more than some dozens of cgroups.
    pub fn reclaimable_leaves(&self) -> Option<Vec<(Cgroup, u64)>> {
        let leaves = self.subtree()?.into_iter();
        let leaves = leaves.filter(|group| group != self && group.children().next().is_none());
        Some(
            leaves
                .map(|leaf| {
                    let bytes = leaf.on_lists_bytes();
                    (leaf, bytes)
                })
                .collect(),
        )
    }

    /// What its own LRU lists hold that reclaim can take, in bytes.
    fn on_lists_bytes(&self) -> u64 {
        if self.is_protected("memory.min") || self.is_protected("memory.low") {
            return 0;
        }
        let stat = self.memory_stat().unwrap_or_default();
        let sum = |keys: [&str; 2]| keys.iter().filter_map(|key| stat.get(*key)).sum::<u64>();
        let anon = sum(["inactive_anon", "active_anon"]);
        let anon = match self.version {
            Version::V1 if self.never_swaps() => 0,
            Version::V1 => anon,
            Version::V2 => anon.min(self.swap_left(anon)),
        };
        anon + sum(["inactive_file", "active_file"])
    }

    /// What the rules of those of `groups` that are below this cgroup (version 2) keep from reclaim. memory.min of its own does
    /// not protect it from its own limit.
    fn kept_below(&self, groups: &[Cgroup]) -> Kept {
        let is_child = |group: &&Cgroup| group.directory.parent() == Some(&self.directory);
        let children = groups.iter().filter(is_child);
        children.fold(Kept::default(), |sum, child| sum.and(child.kept(groups)))
    }

    /// What the rules of this cgroup and of those below it keep. Statistics of version 2 are those of the subtree: what is
    /// counted whole holds all that those below it keep.
    fn kept(&self, groups: &[Cgroup]) -> Kept {
        if self.is_protected("memory.min") {
            return Kept {
                anon: self.own("inactive_anon"),
                file: self.own("inactive_file"),
            };
        }
        let below = self.kept_below(groups);
        let beyond_swap = self
            .swap_left_bytes()
            .map_or(0, |left| self.own("inactive_anon").saturating_sub(left));
        Kept {
            anon: below.anon.max(beyond_swap),
            ..below
        }
    }

    /// Whether a file of v2 protects some of it from reclaim.
    fn is_protected(&self, file: &str) -> bool {
        let bytes = text::read_number(self.directory.join(file));
        bytes.map_or_else(|error| !error.is_not_found(), |bytes: u64| bytes > 0)
    }

    fn never_swaps(&self) -> bool {
        let swappiness = text::read_number(self.directory.join("memory.swappiness"));
        swappiness.is_ok_and(|value: u32| value == 0)
    }

    /// What of the free swap memory.swap.max (v2) of this cgroup and of those above leaves.
    fn swap_left(&self, free_swap: u64) -> u64 {
        let levels = self.directory.ancestors().map(|above| self.at(above));
        let left = levels.filter_map(|level| level.swap_left_bytes());
        left.fold(free_swap, u64::min)
    }

    /// What memory.swap.max (v2) of this cgroup leaves; `None` where it leaves all.
    fn swap_left_bytes(&self) -> Option<u64> {
        let limit = self.limit_bytes("memory.swap.max").ok()??;
        Some(limit.saturating_sub(self.swap_usage_bytes().ok()?))
    }
}

/// Inactive bytes that cannot be reclaimed.
#[derive(Debug, Default)]
struct Kept {
    anon: u64,
    file: u64,
}

impl Kept {
    fn and(self, other: Self) -> Self {
        Self {
            anon: self.anon.saturating_add(other.anon),
            file: self.file.saturating_add(other.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A tree of files like a hierarchy's, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        /// `files`: a path below the top, and what it holds.
        fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let top = std::env::temp_dir().join(format!("prepage-{name}-{}", std::process::id()));
            let tree = Tree(top);
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("below the top")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        }

        fn headroom(&self, version: Version, path: &str, free_swap: u64) -> Option<Headroom> {
            let directory = self.0.join(path);
            let group = Cgroup { version, directory };
            group.headroom_with(free_swap).expect("readable")
        }

        fn bytes(&self, version: Version, path: &str, free_swap: u64) -> Option<u64> {
            Some(self.headroom(version, path, free_swap)?.bytes)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn inactive_pages_count_as_far_as_swap_is_left_v2() {
        let tree = Tree::new(
            "headroom-v2",
            &[
                ("memory.swap.max", "max"),
                ("memory.max", "1000"),
                ("memory.high", "900"),
                ("memory.current", "880"),
                (
                    "memory.stat",
                    "anon 1\ninactive_anon 300\nactive_anon 400\ninactive_file 50\n",
                ),
                ("app/memory.max", "max"),
                ("app/memory.high", "max"),
                ("other/memory.stat", "inactive_anon 100\n"),
                ("other/memory.swap.current", "5"),
            ],
        );
        let headroom = |free_swap| tree.bytes(Version::V2, "app", free_swap);
        let free = |path| {
            tree.headroom(Version::V2, path, u64::MAX)
                .map(|h| h.free_bytes)
        };
        assert_eq!(free("app"), Some(20));
        assert_eq!(headroom(u64::MAX), Some(20 + 50 + 300));
        assert_eq!(headroom(7), Some(20 + 50 + 7));
        assert_eq!(headroom(0), Some(20 + 50));
        // A group that may not swap keeps what it has, one that may swap a little all but that.
        tree.write("other/memory.swap.max", "0");
        assert_eq!(headroom(u64::MAX), Some(20 + 50 + 200));
        tree.write("other/memory.swap.max", "35");
        assert_eq!(headroom(u64::MAX), Some(20 + 50 + 230));
        // A protected one keeps all, a limited one is not protected from its own limit.
        tree.write("memory.min", "500");
        tree.write("other/memory.min", "1");
        tree.write("other/memory.stat", "inactive_anon 100\ninactive_file 11\n");
        assert_eq!(headroom(u64::MAX), Some(20 + 39 + 200));
        tree.write("other/memory.min", "0");
        assert_eq!(headroom(u64::MAX), Some(20 + 50 + 230));
        // What holds for the limited group holds for all below.
        tree.write("memory.swap.max", "12");
        tree.write("memory.swap.current", "2");
        assert_eq!(headroom(u64::MAX), Some(20 + 50 + 10));
        // The tightest limit above counts.
        tree.write("app/memory.max", "100");
        tree.write("app/memory.current", "99");
        tree.write("app/memory.stat", "inactive_anon 4\n");
        assert_eq!(headroom(u64::MAX), Some(5));
        assert_eq!(free("app"), Some(1));
    }

    #[test]
    fn what_is_kept_on_two_levels_counts_once() {
        let tree = Tree::new(
            "headroom-nested",
            &[
                ("memory.max", "1000"),
                ("memory.current", "1000"),
                ("memory.stat", "inactive_anon 400\ninactive_file 60\n"),
                ("a/memory.stat", "inactive_anon 300\ninactive_file 50\n"),
                ("a/b/memory.stat", "inactive_anon 120\ninactive_file 40\n"),
                ("a/c/memory.stat", "inactive_anon 110\ninactive_file 5\n"),
                ("a/memory.swap.current", "0"),
                ("a/c/memory.swap.current", "0"),
            ],
        );
        let headroom = || tree.bytes(Version::V2, "", u64::MAX);
        assert_eq!(headroom(), Some(60 + 400));
        // The inner one alone.
        tree.write("a/b/memory.min", "1");
        assert_eq!(headroom(), Some(20 + 280));
        // The outer one's statistics hold the inner one's pages.
        tree.write("a/memory.min", "1");
        assert_eq!(headroom(), Some(10 + 100));
        // Where the outer one may swap little, this keeps the inner ones' pages as well, where they keep less.
        tree.write("a/memory.min", "0");
        tree.write("a/memory.swap.max", "70");
        assert_eq!(headroom(), Some(20 + 400 - 230));
        tree.write("a/memory.swap.max", "200");
        assert_eq!(headroom(), Some(20 + 400 - 120));
        tree.write("a/c/memory.swap.max", "0");
        assert_eq!(headroom(), Some(20 + 400 - 120 - 110));
    }

    #[test]
    fn inactive_pages_count_as_far_as_swap_is_left_v1() {
        const NONE: &str = "9223372036854771712";
        let tree = Tree::new(
            "headroom-v1",
            &[
                ("memory.limit_in_bytes", "1000"),
                ("memory.usage_in_bytes", "1000"),
                ("memory.swappiness", "60"),
                (
                    "memory.stat",
                    "inactive_anon 1\ntotal_inactive_anon 300\ntotal_inactive_file 50\n",
                ),
                ("app/memory.limit_in_bytes", NONE),
                ("app/memory.swappiness", "60"),
                ("app/memory.stat", "inactive_anon 179\n"),
                ("other/memory.swappiness", "0"),
                ("other/memory.stat", "inactive_anon 120\n"),
            ],
        );
        let headroom = |free_swap| tree.bytes(Version::V1, "app", free_swap);
        assert_eq!(headroom(u64::MAX), Some(50 + 180));
        // The whole still counts what has gone from a part.
        tree.write("other/memory.stat", "inactive_anon 0\n");
        assert_eq!(headroom(u64::MAX), Some(50 + 180));
        tree.write("other/memory.swappiness", "1");
        assert_eq!(headroom(u64::MAX), Some(50 + 300));
        assert_eq!(headroom(9), Some(50 + 9));
        // A limit of memory and swap together is not relieved by swapping.
        tree.write("memory.memsw.limit_in_bytes", "1200");
        tree.write("memory.memsw.usage_in_bytes", "1190");
        assert_eq!(headroom(u64::MAX), Some(50 + 10));
    }

    #[test]
    fn leaves_hold_what_reclaim_can_take() {
        let lists = "inactive_anon 100\nactive_anon 20\ninactive_file 3\nactive_file 4\n";
        let tree = Tree::new(
            "leaves",
            &[
                ("memory.max", "1000"),
                ("free/memory.stat", lists),
                ("inner/memory.stat", lists),
                ("inner/capped/memory.stat", lists),
                ("inner/capped/memory.swap.max", "50"),
                ("inner/capped/memory.swap.current", "10"),
                ("low/memory.stat", lists),
                ("low/memory.low", "1"),
                ("never/memory.stat", lists),
                ("never/memory.swappiness", "0"),
            ],
        );
        let leaves = |version| {
            let directory = tree.0.clone();
            let group = Cgroup { version, directory };
            let leaves = group.reclaimable_leaves().expect("few groups").into_iter();
            let name = |group: &Cgroup| group.directory.file_name().expect("a name").to_owned();
            let mut named: Vec<_> = leaves.map(|(group, bytes)| (name(&group), bytes)).collect();
            named.sort();
            named
        };
        let of = |all: [u64; 4]| {
            let names = ["capped", "free", "low", "never"].map(std::ffi::OsString::from);
            names.into_iter().zip(all).collect::<Vec<_>>()
        };
        assert_eq!(leaves(Version::V2), of([47, 127, 0, 127]));
        tree.write("low/memory.low", "0");
        assert_eq!(leaves(Version::V1), of([127, 127, 127, 7]));
    }

    #[test]
    fn of_too_many_groups_nothing_is_known() {
        let tree = Tree::new(
            "headroom-many",
            &[
                ("memory.max", "1000"),
                ("memory.current", "1000"),
                ("memory.stat", "inactive_anon 300\ninactive_file 50\n"),
            ],
        );
        let headroom = || tree.bytes(Version::V2, "", u64::MAX);
        (1..GROUPS_MAX).for_each(|n| tree.write(&format!("{n}/memory.stat"), ""));
        assert_eq!(headroom(), Some(350));
        tree.write("more/memory.stat", "");
        assert_eq!(headroom(), Some(0));
    }
}
