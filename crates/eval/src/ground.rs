//! What every measurement stands on: directories, swap, the setting of the disk and control groups, each registered to
//! be undone before it is done.

use crate::circumstances;
use crate::display::session::Places;
use crate::error::{Context, Result};
use crate::group::{Group, Hierarchies};
use crate::record::Machine;
use crate::restore::{Restorer, Undo};
use crate::swap::{self, Swap};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::PathBuf;

/// The kernel's default, which a person's machine has.
const READ_AHEAD_KB: &str = "128";

/// The ground of one run.
#[derive(Debug)]
pub struct Ground {
    /// The name of the run's directories and groups.
    pub name: String,
    /// The directories.
    pub places: Places,
    /// The mounts of control groups.
    pub hierarchies: Hierarchies,
}

impl Ground {
    /// Lays it.
    ///
    /// # Errors
    /// Where the machine does not have what it needs, or does not let it be changed.
    pub fn lay(swap: &Swap, restorer: &mut Restorer) -> Result<Self> {
        let name = format!("prepage-eval-{}", std::process::id());
        let places = Places {
            disk: PathBuf::from("/var/tmp").join(&name),
            memory: PathBuf::from("/dev/shm").join(&name),
        };
        for directory in [&places.disk, &places.memory] {
            restorer.register(&Undo::Directory(directory.clone()))?;
        }
        places.make()?;
        // Before the groups, so that it is undone after them: what their processes have swapped out is gone by then.
        swap::ensure(swap, &places.disk, restorer)?;
        if let Some(queue) = circumstances::disk_queue(&places.disk) {
            restorer.change_value(queue.join("read_ahead_kb"), READ_AHEAD_KB)?;
        }
        let hierarchies = Hierarchies::find()?;
        restorer.register(&Undo::Groups(hierarchies.to_remove(&name)))?;
        Ok(Self {
            name,
            places,
            hierarchies,
        })
    }

    /// Makes a group of this run.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn group(&self, relative: &str) -> Result<Group> {
        Group::create(&self.hierarchies, &format!("{}/{relative}", self.name))
    }

    /// The machine's circumstances, as this ground has set them.
    pub fn machine(&self) -> Machine {
        circumstances::machine(&self.hierarchies, &self.places.disk)
    }
}

/// Waits for the end of other runs on this machine: two at once would take each other's pages and time.
///
/// # Errors
/// Where the lock cannot be made.
pub fn only_run() -> Result<File> {
    let path = "/run/prepage-eval.lock";
    let file = File::create(path).context("open", path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("another run is under way; waiting for its end ...");
        flock(&file, FlockOperation::LockExclusive).context("lock", path)?;
    }
    Ok(file)
}
