//! Control groups for the measured sides: memory in v1 or v2, CPU time and pressure in v2 wherever it is mounted.

use crate::clock::sleep_ms;
use crate::error::{Context, Error, Result};
use crate::restore::Undo;
use crate::sysfs;
use prepage_kernel::cgroup::{self, Cgroup, Hierarchy, Version};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MEMORY: &str = "memory";

/// Where a group is asked to reclaim (version 2).
const RECLAIM: &str = "memory.reclaim";

/// The controllers that a group hands on to those below (version 2).
const HANDED_ON: &str = "cgroup.subtree_control";

/// Where this machine mounts what.
#[derive(Clone, Debug)]
pub struct Hierarchies {
    /// The mount that has the memory controller.
    pub memory: PathBuf,
    /// Whether that is the v1 controller (`memory.force_empty`) or v2 (`memory.reclaim`).
    pub memory_v1: bool,
    /// The v2 mount, if it is another one.
    pub unified: Option<PathBuf>,
}

impl Hierarchies {
    /// Reads the mount table.
    pub fn find() -> Result<Self> {
        let mounted = cgroup::hierarchies().context("list", "control group hierarchies")?;
        Self::choose(&mounted).ok_or_else(|| {
            Error::new(
                "find",
                "memory control group",
                "no hierarchy has the controller",
            )
        })
    }

    fn choose(mounted: &[Hierarchy]) -> Option<Self> {
        let has_memory = |h: &&Hierarchy| h.controllers.iter().any(|name| name == "memory");
        let of = |version| mounted.iter().filter(move |h| h.version == version);
        let unified = of(Version::V2).next().map(|h| h.mount_point.clone());
        match of(Version::V1).find(has_memory) {
            Some(v1) => Some(Self {
                memory: v1.mount_point.clone(),
                memory_v1: true,
                unified,
            }),
            None => {
                let v2 = of(Version::V2).find(has_memory)?;
                Some(Self {
                    memory: v2.mount_point.clone(),
                    memory_v1: false,
                    unified: None,
                })
            }
        }
    }

    /// Makes sure that groups can be asked to reclaim, which is how applications are taken out of memory.
    ///
    /// # Errors
    /// Under version 2 before 5.19.
    pub fn ensure_reclaim(&self) -> Result<()> {
        let file = self.memory.join(RECLAIM);
        if self.memory_v1 || file.exists() {
            return Ok(());
        }
        let cause = "taking applications out of memory under control groups of version 2 needs memory.reclaim (5.19)";
        Err(Error::new("find", file.display(), cause))
    }

    /// Every directory that the group of this relative name has.
    fn directories(&self, relative: &str) -> Vec<PathBuf> {
        let mut all = vec![self.memory.join(relative)];
        all.extend(self.unified.as_ref().map(|mount| mount.join(relative)));
        all
    }

    /// What the restorer must remove for a top group of this name.
    pub fn to_remove(&self, relative: &str) -> Vec<PathBuf> {
        self.directories(relative)
    }

    /// What undoes a top group of this name, to be registered in this order before it is made: so the group is removed
    /// before its controller is taken back.
    pub fn undo(&self, relative: &str) -> Vec<Undo> {
        let handed_on = (!self.memory_v1).then(|| undo_enabling(&self.memory, MEMORY));
        let groups = Undo::Groups(self.to_remove(relative));
        handed_on.flatten().into_iter().chain([groups]).collect()
    }
}

/// One control group, in every hierarchy that matters here.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its directory with the memory controller.
    pub memory: PathBuf,
    memory_v1: bool,
    unified: PathBuf,
    has_unified: bool,
    /// What its processes also enter: the `cgroup.procs` of a group in another hierarchy.
    beside: Option<PathBuf>,
}

impl Group {
    /// Makes the group and its parents.
    pub fn create(hierarchies: &Hierarchies, relative: &str) -> Result<Self> {
        let directories = hierarchies.directories(relative);
        for directory in &directories {
            fs::create_dir_all(directory).context("make", directory.display())?;
        }
        if !hierarchies.memory_v1 {
            enable_above(&hierarchies.memory, relative, MEMORY)?;
        }
        let has_unified = hierarchies.unified.is_some() || !hierarchies.memory_v1;
        Ok(Self {
            memory: directories[0].clone(),
            memory_v1: hierarchies.memory_v1,
            unified: directories.last().expect("at least one").clone(),
            has_unified,
            beside: None,
        })
    }

    /// Has processes that are started in this group enter another one too, by its `cgroup.procs`.
    pub fn with(self, beside: Option<PathBuf>) -> Self {
        Self { beside, ..self }
    }

    /// The `cgroup.procs` files that a process writes itself into to be in this group.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.memory.join("cgroup.procs")];
        if self.unified != self.memory {
            files.push(self.unified.join("cgroup.procs"));
        }
        files.extend(self.beside.clone());
        files
    }

    /// The processes in the group.
    pub fn pids(&self) -> Vec<i32> {
        cgroup::procs(&self.memory).unwrap_or_default()
    }

    /// `memory.stat`, in the kernel's own names and bytes.
    pub fn memory_stat(&self) -> BTreeMap<String, u64> {
        let text = sysfs::read(self.memory.join("memory.stat")).unwrap_or_default();
        sysfs::parse_pairs(&text)
            .filter(|(name, _)| !name.starts_with("hierarchical"))
            .map(|(n, v)| (n.to_owned(), v))
            .collect()
    }

    /// What is resident, file-backed, swapped out and in the swap cache: the same words for v1 and v2.
    pub fn residency(&self) -> GroupResidency {
        let stat = self.memory_stat();
        let get = |name: &str| stat.get(name).copied().unwrap_or(0);
        if self.memory_v1 {
            GroupResidency {
                anon_bytes: get("rss"),
                shmem_bytes: get("shmem"),
                file_bytes: get("cache").saturating_sub(get("shmem")),
                swap_bytes: get("swap"),
                swap_cache_bytes: get("swapcached"),
            }
        } else {
            GroupResidency {
                anon_bytes: get("anon"),
                shmem_bytes: get("shmem"),
                file_bytes: get("file").saturating_sub(get("shmem")),
                swap_bytes: sysfs::read_number(self.memory.join("memory.swap.current"))
                    .unwrap_or(0),
                swap_cache_bytes: get("swapcached"),
            }
        }
    }

    /// CPU time of everything that ever ran in the group, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        if !self.has_unified {
            return 0;
        }
        let text = sysfs::read(self.unified.join("cpu.stat")).unwrap_or_default();
        sysfs::parse_pairs(&text)
            .find(|(name, _)| *name == "usage_usec")
            .map_or(0, |(_, v)| v)
    }

    /// Total microseconds in which some task of the group waited for memory, CPU or I/O (PSI, "some").
    pub fn stalled_us(&self, resource: &str) -> Option<u64> {
        let text = sysfs::read(self.unified.join(format!("{resource}.pressure")))?;
        let line = text.lines().find(|line| line.starts_with("some"))?;
        line.split("total=").nth(1)?.trim().parse().ok()
    }

    /// Asks the kernel to reclaim all it can from the group. Running out of things to reclaim is not an error.
    pub fn reclaim_all(&self) {
        if self.memory_v1 {
            let _ = fs::write(self.memory.join("memory.force_empty"), "0");
        } else {
            let bytes = sysfs::read_number(self.memory.join("memory.current")).unwrap_or(0);
            let _ = fs::write(self.memory.join(RECLAIM), bytes.to_string());
        }
    }

    /// Asks the kernel to reclaim the group's file pages alone. Running out of things to reclaim is not an error.
    ///
    /// # Errors
    /// Where the kernel does not let its anonymous pages be kept meanwhile.
    pub fn reclaim_files(&self) -> Result<()> {
        if self.memory_v1 {
            return self.without_swapping(|| self.reclaim_all());
        }
        let (file, bytes) = (self.memory.join(RECLAIM), self.residency().file_bytes);
        match fs::write(&file, format!("{bytes} swappiness=0")) {
            // Before 6.9 it takes a number alone.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => self
                .without_swapping(|| {
                    let _ = fs::write(&file, bytes.to_string());
                }),
            _ => Ok(()),
        }
    }

    /// Does this while none of the group's anonymous pages is swapped out. What keeps them is put back in any case.
    fn without_swapping(&self, work: impl FnOnce()) -> Result<()> {
        let setting = self.swap_setting();
        let before = fs::read_to_string(&setting).context("read", setting.display())?;
        // Below what the group has in swap already, which stays there.
        sysfs::write(&setting, "0")?;
        work();
        sysfs::write(&setting, before.trim())
    }

    /// Sets the limit of this group and those below together.
    pub fn set_limit_bytes(&self, bytes: u64) -> Result<()> {
        let file = if self.memory_v1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        sysfs::write(self.memory.join(file), &bytes.to_string())
    }

    /// What the limit leaves until the kernel has to reclaim; `None` without a limit.
    pub fn limit_left_bytes(&self) -> Option<u64> {
        let version = match self.memory_v1 {
            true => Version::V1,
            false => Version::V2,
        };
        let directory = self.memory.clone();
        let limits = Cgroup { version, directory }.limits().ok()?;
        limits.iter().map(|limited| limited.left_bytes).min()
    }

    /// How many processes of the group the kernel has killed for want of memory, ever.
    pub fn oom_kills(&self) -> u64 {
        let file = if self.memory_v1 {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        let text = sysfs::read(self.memory.join(file)).unwrap_or_default();
        let mut counts = sysfs::parse_pairs(&text);
        counts
            .find(|(name, _)| *name == "oom_kill")
            .map_or(0, |(_, count)| count)
    }

    /// Keeps the group's anonymous pages from being swapped out, all but what prepaged's unit allows; file pages are still
    /// reclaimed.
    pub fn never_swap(&self) {
        let most = if self.memory_v1 { "0" } else { "64K" };
        let _ = fs::write(self.swap_setting(), most);
    }

    /// What keeps its anonymous pages where it is 0.
    fn swap_setting(&self) -> PathBuf {
        self.memory.join(match self.memory_v1 {
            true => "memory.swappiness",
            false => "memory.swap.max",
        })
    }
}

/// Bytes of a group, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupResidency {
    /// Mapped private anonymous memory.
    pub anon_bytes: u64,
    /// Shared memory, tmpfs and memfd.
    pub shmem_bytes: u64,
    /// Page cache of files.
    pub file_bytes: u64,
    /// Swapped out.
    pub swap_bytes: u64,
    /// In the swap cache: out of the page tables but not out of memory.
    pub swap_cache_bytes: u64,
}

/// Has every group above the one of this relative name, the root too, hand a controller on to those below (version 2).
///
/// # Errors
/// Where the kernel refuses it.
pub fn enable_above(mount: &Path, relative: &str, controller: &str) -> Result<()> {
    let mut directory = mount.to_path_buf();
    for part in Path::new(relative).components() {
        let control = directory.join(HANDED_ON);
        sysfs::write(control, &format!("+{controller}"))?;
        directory.push(part);
    }
    Ok(())
}

/// What takes a controller back that [`enable_above`] has the root hand on, once the groups that it is for are removed;
/// `None` where it is handed on already. Those groups' own hand it on no longer than they are there.
pub fn undo_enabling(mount: &Path, controller: &str) -> Option<Undo> {
    let path = mount.join(HANDED_ON);
    let handed_on = sysfs::read(&path)?;
    let is_there = handed_on.split_whitespace().any(|name| name == controller);
    let contents = format!("-{controller}");
    (!is_there).then_some(Undo::Value { path, contents })
}

/// The directory and those below it, deepest first.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(entries) = fs::read_dir(directory) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                found.extend(tree(&entry.path()));
            }
        }
    }
    found.push(directory.to_path_buf());
    found
}

/// Ends every process below these directories (first kindly, then not) and removes the directories.
pub fn end_and_remove(tops: &[PathBuf]) -> Result<()> {
    end_processes(tops);
    let mut last = Ok(());
    for top in tops {
        for directory in tree(top) {
            last = remove_group(&directory);
        }
    }
    last
}

/// Ends every process below these directories: first kindly, then not.
pub fn end_processes(tops: &[PathBuf]) {
    use rustix::process::Signal;
    const KIND_MS: u64 = 1_000;
    const STEP_MS: u64 = 20;
    let alive = || {
        tops.iter()
            .flat_map(|top| cgroup::procs(top).unwrap_or_default())
            .collect::<Vec<i32>>()
    };
    let mut waited_ms = 0;
    loop {
        let pids = alive();
        if pids.is_empty() {
            break;
        }
        if waited_ms == 0 || waited_ms >= KIND_MS {
            let signal = if waited_ms == 0 {
                Signal::TERM
            } else {
                Signal::KILL
            };
            for pid in pids {
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
        if waited_ms > 10 * KIND_MS {
            break;
        }
        sleep_ms(STEP_MS);
        waited_ms += STEP_MS;
    }
}

fn remove_group(directory: &Path) -> Result<()> {
    // A group stays busy for a moment after its last process was ended.
    for _ in 0..100 {
        match fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => sleep_ms(20),
        }
    }
    fs::remove_dir(directory).context("remove", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy(version: Version, controllers: &[&str], mount_point: &str) -> Hierarchy {
        Hierarchy {
            version,
            controllers: controllers.iter().map(|c| c.to_string()).collect(),
            mount_point: mount_point.into(),
            root: "/".into(),
        }
    }

    #[test]
    fn a_controller_is_taken_back_where_it_was_not_handed_on_after_the_groups() {
        let mount = std::env::temp_dir().join(format!("prepage-mount-{}", std::process::id()));
        fs::create_dir(&mount).unwrap();
        let hierarchies = Hierarchies {
            memory: mount.clone(),
            memory_v1: false,
            unified: None,
        };
        let groups = Undo::Groups(vec![mount.join("run")]);
        let path = mount.join(HANDED_ON);
        fs::write(&path, "cpu memory.other\n").unwrap();
        let contents = "-memory".to_owned();
        let value = Undo::Value { path, contents };
        // They are carried out backwards.
        assert_eq!(hierarchies.undo("run"), [value, groups.clone()]);
        fs::write(mount.join(HANDED_ON), "cpu memory\n").unwrap();
        let as_it_was = std::slice::from_ref(&groups);
        assert_eq!(hierarchies.undo("run"), as_it_was);
        let v1 = Hierarchies {
            memory_v1: true,
            ..hierarchies
        };
        assert_eq!(v1.undo("run"), [groups], "version 1 hands nothing on");
        fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn what_keeps_anonymous_pages_is_put_back() {
        let memory = std::env::temp_dir().join(format!("prepage-group-{}", std::process::id()));
        fs::create_dir(&memory).unwrap();
        for memory_v1 in [false, true] {
            let group = Group {
                memory: memory.clone(),
                memory_v1,
                unified: memory.clone(),
                has_unified: false,
                beside: None,
            };
            let setting = group.swap_setting();
            let set = || fs::read_to_string(&setting).unwrap();
            let refused = group.without_swapping(|| panic!("they are not kept"));
            assert!(refused.is_err(), "there is no such setting");
            fs::write(&setting, "max\n").unwrap();
            let mut meanwhile = String::new();
            group.without_swapping(|| meanwhile = set()).unwrap();
            assert_eq!((meanwhile.as_str(), set().as_str()), ("0", "max"));
        }
        fs::remove_dir_all(&memory).unwrap();
    }

    #[test]
    fn a_kernel_that_cannot_be_asked_to_reclaim_is_refused() {
        let memory = std::env::temp_dir().join(format!("prepage-reclaim-{}", std::process::id()));
        fs::create_dir(&memory).unwrap();
        let of = |memory_v1| Hierarchies {
            memory: memory.clone(),
            memory_v1,
            unified: None,
        };
        let refusal = of(false).ensure_reclaim().unwrap_err().to_string();
        assert!(refusal.contains("memory.reclaim (5.19)"), "{refusal}");
        assert!(of(true).ensure_reclaim().is_ok());
        fs::write(memory.join(RECLAIM), "").unwrap();
        assert!(of(false).ensure_reclaim().is_ok());
        fs::remove_dir_all(&memory).unwrap();
    }

    #[test]
    fn hierarchies_of_both_versions() {
        let (v1, v2) = (Version::V1, Version::V2);
        let mixed = [
            hierarchy(v1, &["cpu"], "/c"),
            hierarchy(v1, &["memory"], "/m"),
            hierarchy(v2, &[], "/u"),
        ];
        let found = Hierarchies::choose(&mixed).unwrap();
        assert!(found.memory_v1);
        assert_eq!(
            (found.memory, found.unified),
            (PathBuf::from("/m"), Some(PathBuf::from("/u")))
        );
        let found = Hierarchies::choose(&[hierarchy(v2, &["cpu", "memory"], "/u")]).unwrap();
        assert!(!found.memory_v1 && found.unified.is_none());
        assert!(Hierarchies::choose(&[hierarchy(v2, &["cpu"], "/u")]).is_none());
    }
}
