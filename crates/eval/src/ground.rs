//! What every measurement stands on: directories, swap, the setting of the disk and control groups, each registered to
//! be undone before it is done.

use crate::circumstances;
use crate::display::session::Places;
use crate::error::{Context, Error, Result};
use crate::group::{Group, Hierarchies};
use crate::processes;
use crate::record::Machine;
use crate::restore::{Restorer, Undo};
use crate::swap::{self, Swap};
use crate::throttle::{self, Pace, Throttle};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

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
    held_back: Option<HeldBack>,
}

/// A group that reads the disk no faster than another disk would let it.
#[derive(Debug)]
struct HeldBack {
    /// Its name below the run's.
    part: &'static str,
    /// What its processes, and those of the groups below it, also enter.
    procs: Option<PathBuf>,
    /// What holds it back.
    _pace: Pace,
}

impl Ground {
    /// Lays it, with this swap; none where nothing is swapped out.
    ///
    /// # Errors
    /// Where the machine does not have what it needs, or does not let it be changed.
    pub fn lay(swap: Option<&Swap>, restorer: &mut Restorer) -> Result<Self> {
        let hierarchies = Hierarchies::find()?;
        if swap.is_some() {
            hierarchies.ensure_reclaim()?;
        }
        let name = format!("prepage-eval-{}", std::process::id());
        let places = Places {
            disk: PathBuf::from("/var/tmp").join(&name),
            memory: PathBuf::from("/dev/shm").join(&name),
            user: None,
        };
        for directory in [&places.disk, &places.memory] {
            restorer.register(&Undo::Directory(directory.clone()))?;
        }
        places.make()?;
        // Before the groups, so that it is undone after them: what their processes have swapped out is gone by then.
        if let Some(swap) = swap {
            swap::ensure(swap, &places.disk, restorer)?;
        }
        if let Some(queue) = circumstances::disk_queue(&places.disk) {
            restorer.change_value(queue.join("read_ahead_kb"), READ_AHEAD_KB)?;
        }
        let undo = hierarchies.undo(&name);
        undo.iter().try_for_each(|undo| restorer.register(undo))?;
        Ok(Self {
            name,
            places,
            hierarchies,
            held_back: None,
        })
    }

    /// Holds the disk to these limits for a group of this run and those below it, all together: for what is started in
    /// groups that are made from now on.
    ///
    /// # Errors
    /// Where the machine cannot do so.
    pub fn hold_disk(
        &mut self,
        part: &'static str,
        throttle: Throttle,
        restorer: &mut Restorer,
    ) -> Result<()> {
        let group = format!("{}/{part}", self.name);
        let (_pace, procs) = throttle::hold(restorer, &group, &self.places.disk, throttle)?;
        self.held_back = Some(HeldBack { part, procs, _pace });
        Ok(())
    }

    /// Makes a group of this run.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn group(&self, relative: &str) -> Result<Group> {
        let group = Group::create(&self.hierarchies, &format!("{}/{relative}", self.name))?;
        let is_below = |held: &&HeldBack| Path::new(relative).starts_with(held.part);
        let beside = self.held_back.as_ref().filter(is_below);
        Ok(group.with(beside.and_then(|held| held.procs.clone())))
    }

    /// The machine's circumstances, as this ground has set them.
    pub fn machine(&self) -> Machine {
        circumstances::machine(&self.hierarchies, &self.places.disk)
    }
}

/// Waits for the end of other runs on this machine: two at once would take each other's pages and time.
///
/// # Errors
/// Where the lock cannot be made, and where a prepaged runs that is of none: it would help what is measured without help.
pub fn only_run() -> Result<File> {
    let path = "/run/prepage-eval.lock";
    let file = File::create(path).context("open", path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("another run is under way; waiting for its end ...");
        flock(&file, FlockOperation::LockExclusive).context("lock", path)?;
    }
    match processes::are_running("prepaged") {
        true => Err(Error::new(
            "start",
            "the run",
            "prepaged runs already, and would help what is measured without: `systemctl stop prepaged`, or end it",
        )),
        false => Ok(file),
    }
}
