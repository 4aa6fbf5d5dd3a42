//! Control groups of a test.

use crate::cgroup::{self, Cgroup, Hierarchy, Version};
use crate::process::own_pid;
use crate::sched;
use std::sync::atomic::{AtomicU32, Ordering};

/// A cgroup for a test, removed at the end.
pub struct Group(pub Cgroup);

impl Group {
    pub fn create(hierarchy: &Hierarchy) -> Group {
        Group::below(&top(hierarchy))
    }

    pub fn below(above: &Cgroup) -> Group {
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

    pub fn read_number(&self, file: &str) -> u64 {
        crate::text::read_number(self.0.directory.join(file)).expect("a number")
    }

    pub fn usage_bytes(&self) -> u64 {
        self.0.memory_usage_bytes().expect("usage")
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

fn hierarchy(wanted: impl Fn(&Hierarchy) -> bool, what: &str) -> Hierarchy {
    let all = cgroup::hierarchies().expect("hierarchies");
    all.into_iter()
        .find(wanted)
        .unwrap_or_else(|| panic!("this test needs {what}"))
}

/// The hierarchy of this controller in version 1.
pub fn v1(controller: &str) -> Hierarchy {
    let has = |one: &Hierarchy| {
        one.version == Version::V1 && one.controllers.iter().any(|name| name == controller)
    };
    hierarchy(has, &format!("the v1 controller {controller}"))
}

/// The hierarchy of version 2.
pub fn v2() -> Hierarchy {
    hierarchy(|one| one.version == Version::V2, "a mounted cgroup v2")
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
