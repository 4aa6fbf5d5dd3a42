//! Control groups of a test.

use crate::cgroup::{self, Cgroup, Hierarchy, Version};
use crate::process::own_pid;
use crate::sched;
use std::sync::atomic::{AtomicU32, Ordering};

/// A cgroup for a test, removed at the end.
pub struct Group(pub Cgroup);

impl Group {
    pub fn create(hierarchy: &Hierarchy) -> Group {
        Group::unnamed(&top(hierarchy))
    }

    /// One below another, which may not have processes of its own in version 2.
    pub fn below(above: &Group) -> Group {
        let controls = above.0.directory.join("cgroup.subtree_control");
        if above.0.version == Version::V2 && above.0.directory.join("memory.max").exists() {
            std::fs::write(controls, "+memory").expect("control the memory of what is below");
        }
        Group::unnamed(&above.0)
    }

    fn unnamed(above: &Cgroup) -> Group {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Group::make(above, &format!("prepage-test-{}-{number}", own_pid()))
    }

    /// One of this name, at the top of a hierarchy.
    pub fn named(hierarchy: &Hierarchy, name: &str) -> Group {
        Group::make(&top(hierarchy), name)
    }

    fn make(above: &Cgroup, name: &str) -> Group {
        let directory = above.directory.join(name);
        std::fs::create_dir(&directory).expect("create a cgroup");
        Group(Cgroup {
            version: above.version,
            directory,
        })
    }

    pub fn write(&self, file: &str, value: impl ToString) {
        let path = self.0.directory.join(file);
        let written = std::fs::write(&path, value.to_string());
        written.unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }

    pub fn usage_bytes(&self) -> u64 {
        self.0.memory_usage_bytes().expect("usage")
    }

    pub fn limit_memory(&self, bytes: u64) {
        match self.0.version {
            Version::V1 => self.write("memory.limit_in_bytes", bytes),
            Version::V2 => self.write("memory.max", bytes),
        }
    }

    pub fn limit_memory_no_longer(&self) {
        match self.0.version {
            Version::V1 => self.write("memory.limit_in_bytes", -1),
            Version::V2 => self.write("memory.max", "max"),
        }
    }

    /// From now on reclaim takes none of its anonymous pages.
    pub fn swap_no_longer(&self) {
        match self.0.version {
            Version::V1 => self.write("memory.swappiness", 0),
            Version::V2 => {
                let swapped = self.0.swap_usage_bytes().expect("swap usage");
                self.write("memory.swap.max", swapped);
            }
        }
    }

    /// How many times its limit was reached.
    pub fn limit_failures(&self) -> u64 {
        match self.0.version {
            Version::V1 => {
                let file = self.0.directory.join("memory.failcnt");
                crate::text::read_number(file).expect("a number")
            }
            Version::V2 => self.event("memory.events", "max"),
        }
    }

    /// How many of its processes the kernel killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        match self.0.version {
            Version::V1 => self.event("memory.oom_control", "oom_kill"),
            Version::V2 => self.event("memory.events", "oom_kill"),
        }
    }

    fn event(&self, file: &str, name: &str) -> u64 {
        let events = std::fs::read_to_string(self.0.directory.join(file)).expect("events");
        cgroup::parse_flat_keyed(&events)[name]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.set_frozen(false);
        // Its processes have ended, but the kernel may not have let go of them yet.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0.directory).is_ok() || !self.0.directory.exists() {
                return;
            }
            sched::sleep_us(10_000);
        }
    }
}

/// The group at the top of a hierarchy.
fn top(hierarchy: &Hierarchy) -> Cgroup {
    Cgroup {
        version: hierarchy.version,
        directory: hierarchy.mount_point.clone(),
    }
}

fn hierarchies() -> Vec<Hierarchy> {
    cgroup::hierarchies().expect("hierarchies")
}

/// The hierarchy that controls memory, of whichever version.
pub fn memory() -> Hierarchy {
    let controls = |one: &Hierarchy| match one.version {
        Version::V1 => one.has("memory"),
        // Whether it does so for what is below the root is another question.
        Version::V2 => {
            let enabled = std::fs::read_to_string(one.mount_point.join("cgroup.subtree_control"));
            enabled.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory"))
        }
    };
    hierarchies()
        .into_iter()
        .find(controls)
        .expect("this test needs control groups that control memory")
}

/// The hierarchy of version 2.
pub fn v2() -> Hierarchy {
    hierarchies()
        .into_iter()
        .find(|one| one.version == Version::V2)
        .expect("this test needs a mounted cgroup v2")
}

/// The hierarchies that can freeze: that of version 1 where it is mounted, and that of version 2.
pub fn freezers() -> Vec<Hierarchy> {
    let freezes = |one: &Hierarchy| one.version == Version::V2 || one.has("freezer");
    let found: Vec<_> = hierarchies().into_iter().filter(freezes).collect();
    assert!(!found.is_empty(), "this test needs a freezer");
    found
}

/// This process, in a cgroup: it goes back at the end.
pub struct Moved(Cgroup);

impl Moved {
    pub fn to(group: &Group, controller: cgroup::Controller) -> Moved {
        let own = own_pid();
        let all = cgroup::hierarchies().expect("hierarchies");
        let before = cgroup::of_process(&all, own, controller).expect("membership");
        group.0.add(own).expect("move this process");
        Moved(before.expect("mounted"))
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        let _ = self.0.add(own_pid());
    }
}
