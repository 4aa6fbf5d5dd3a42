//! From what is kept of an application to what is done for its launch, and back: the manager, given what is present.
//!
//! A launch is decided on a copy of the state. When it is over, its beginning and its end are applied together, to the
//! state as it is then: launches of one application may overlap, and one that is killed in between leaves nothing
//! half-done.

use super::options::LaunchOptions;
use crate::identity::ProcessFacts;
use prepage_core::identity::FileId;
use prepage_core::launch::manager::{self, Decision, LaunchFacts, LaunchState, Learned, Phase};
use prepage_core::launch::plan::PlanLimits;
use prepage_core::launch::sequence::LaunchSequence;
use prepage_core::params::launch::LaunchParams;
use prepage_engine::{FetchParams, LaunchResult, ReadyLaunch, version_of};
use prepage_kernel::block::{BlockDevice, READAHEAD_CAP_KIB_DEFAULT};
use prepage_kernel::mountinfo::{self, mount_of};
use prepage_kernel::open::{FileKind, FileStat, cached_stat_in_root, process_root};
use prepage_kernel::page::page_size;
use prepage_kernel::process::{mount_namespace, own_pid};
use std::os::fd::AsFd;
use std::path::Path;

/// What a launch is decided by, besides the state.
#[derive(Clone, Debug, PartialEq)]
pub struct Circumstances {
    /// Its parameters.
    pub params: LaunchParams,
    /// Files of the sequence that are there in another version, of those that were looked at: the executable and what it
    /// interprets.
    pub changed_files: Vec<FileId>,
    /// Whether their device is rotational.
    pub is_rotational: bool,
    /// What a plan has to keep to.
    pub limits: PlanLimits,
}

impl Circumstances {
    /// Those of a launch of the application `name`, which becomes `process`. Its files are looked up in its root directory, and
    /// only among what the kernel has in its caches, as it has what is being executed: nothing is waited for, whatever
    /// whoever launches says that they are. Of what is not there nothing is known.
    pub fn find(
        name: &str,
        process: &ProcessFacts,
        params: LaunchParams,
        sequence: &LaunchSequence,
    ) -> Self {
        let exe = process.exe.as_deref().unwrap_or_default();
        let script = (name != exe).then_some(name);
        let root = process_root(process.pid).ok();
        let stat = |path: &str| cached_stat_in_root(root.as_ref()?.as_fd(), path.as_ref()).ok();
        let in_exe = stat(exe);
        let by_number = in_exe.and_then(|stat| BlockDevice::of_number(stat.dev).ok());
        let device = by_number.or_else(|| device_of_mount(process.pid, exe));
        let in_script = script.and_then(|script| Some((script, stat(script)?)));
        let present = in_exe.map(|stat| (exe, stat)).into_iter().chain(in_script);
        let present = present.filter_map(|(path, stat)| version(path, &stat));
        let changed = present.filter(|file| sequence.has_other_version(file));
        Self {
            changed_files: changed.collect(),
            ..Self::on(device, params)
        }
    }

    /// Those of the next launch of this executable, as far as they are known ahead of it: as if nothing had changed.
    pub fn ahead(exe: &str, params: LaunchParams) -> Self {
        Self::on(device_of_mount(own_pid(), exe), params)
    }

    /// A device that cannot be asked is taken for one that does not rotate, and whose calls the kernel cuts by default.
    fn on(device: Option<BlockDevice>, params: LaunchParams) -> Self {
        let cap_kib = device.as_ref().and_then(|d| d.readahead_cap_kib().ok());
        let cap_kib = cap_kib.unwrap_or(READAHEAD_CAP_KIB_DEFAULT);
        Self {
            changed_files: Vec::new(),
            is_rotational: device.is_some_and(|d| d.rotational().unwrap_or(false)),
            limits: PlanLimits {
                page_bytes: page_size(),
                call_bytes_max: cap_kib << 10,
            },
            params,
        }
    }

    fn begin(&self, state: &mut LaunchState) -> Decision {
        let facts = LaunchFacts {
            changed_files: &self.changed_files,
            is_rotational: self.is_rotational,
            limits: self.limits,
        };
        manager::begin(state, &facts, &self.params)
    }

    /// What to do for the launch.
    pub fn decide(&self, state: &LaunchState, options: &LaunchOptions) -> Decided {
        let mut begun = state.clone();
        let mut decision = self.begin(&mut begun);
        options.amend(&mut decision);
        Decided {
            decision,
            state: begun,
        }
    }

    /// What is ready for the next launch in this state, by these parameters: as if nothing had changed until then.
    pub fn ready(
        &self,
        state: &LaunchState,
        fetch: &FetchParams,
        params: &LaunchParams,
    ) -> Option<ReadyLaunch> {
        let next = Self {
            params: params.clone(),
            changed_files: Vec::new(),
            ..*self
        };
        let decided = next.decide(state, &LaunchOptions::default());
        ReadyLaunch::of(&decided.decision, fetch, params)
    }

    /// Applies a launch that is over to the state: its beginning, its end, the generation that may be due, and where the pages
    /// of its files are on the device.
    pub fn conclude(&self, state: &mut LaunchState, result: &LaunchResult) -> Learned {
        self.begin(state);
        let (recording, measured) = (result.recording.as_ref(), &result.measured);
        let learned = manager::end(state, recording, measured, &self.params);
        if state.phase == Phase::Generation || result.block_map.is_some() {
            manager::generate(state, result.block_map.as_ref(), self.limits.page_bytes);
        }
        learned
    }
}

/// A launch, as it was decided.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What is done for it.
    pub decision: Decision,
    /// The state after its beginning.
    pub state: LaunchState,
}

impl Decided {
    /// Whether anything is to be fetched or observed.
    pub fn does_something(&self) -> bool {
        let Decision {
            records,
            profiles_paths,
            prefetch,
            is_held_out,
        } = &self.decision;
        *records || *profiles_paths || prefetch.is_some() || *is_held_out
    }
}

/// The device below what is mounted where a process has this path; `None` where it has a mount namespace of its own, in which any
/// user may have made more mounts than are to be read at a launch.
fn device_of_mount(pid: i32, path: &str) -> Option<BlockDevice> {
    let there = mount_namespace(pid).ok()?;
    let is_there = |pid| mount_namespace(pid).is_ok_and(|here| here == there);
    // The service may have one, too.
    if !is_there(own_pid()) && !is_there(1) {
        return None;
    }
    let mounts = mountinfo::read_of(pid).ok()?;
    BlockDevice::of_mount(mount_of(&mounts, Path::new(path))?).ok()
}

/// The version of a file that `stat` tells; none of what is no regular file.
fn version(path: &str, stat: &FileStat) -> Option<FileId> {
    let device = (rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev));
    (stat.kind == FileKind::Regular).then(|| version_of(path.into(), device, stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::sleeping::Sleeping;

    #[test]
    fn what_is_mounted_is_looked_at_where_the_machine_mounts_it() {
        let shell = "/bin/sh";
        let device = device_of_mount(own_pid(), shell);
        assert!(device.is_some(), "this test needs / on a block device");
        let elsewhere = Sleeping::spawn_through(&["unshare", "--mount"]);
        assert_eq!(device_of_mount(elsewhere.pid(), shell), None);
    }

    #[test]
    fn calls_are_cut_where_the_device_is_not_known() {
        let found = Circumstances::on(None, LaunchParams::default());
        assert_eq!(found.limits.call_bytes_max, 128 << 10);
        assert!(!found.is_rotational);
    }
}
