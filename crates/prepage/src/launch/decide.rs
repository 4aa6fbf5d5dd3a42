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
use prepage_core::params::launch::LaunchParams;
use prepage_engine::LaunchResult;
use prepage_kernel::block::BlockDevice;
use prepage_kernel::page::page_size;
use std::os::unix::fs::MetadataExt;

/// What a launch is decided by, besides the state.
#[derive(Clone, Debug, PartialEq)]
pub struct Circumstances {
    /// Its parameters.
    pub params: LaunchParams,
    /// Files that were looked at: the executable and what it interprets.
    pub present_files: Vec<FileId>,
    /// Whether their device is rotational.
    pub is_rotational: bool,
    /// What a plan has to keep to.
    pub limits: PlanLimits,
}

impl Circumstances {
    /// Those of a launch of the application `name`, which becomes `process`.
    pub fn find(name: &str, process: &ProcessFacts, params: LaunchParams) -> Self {
        let exe = process.exe.as_deref().unwrap_or_default();
        let script = (name != exe).then_some(name);
        // A device that cannot be asked is taken for one that does not rotate.
        let device = BlockDevice::of_path(exe.as_ref()).ok();
        let cap_kib = device.as_ref().and_then(|d| d.readahead_cap_kib().ok());
        Self {
            present_files: std::iter::once(exe)
                .chain(script)
                .filter_map(present)
                .collect(),
            is_rotational: device.is_some_and(|d| d.rotational().unwrap_or(false)),
            limits: PlanLimits {
                page_bytes: page_size(),
                call_bytes_max: cap_kib.map_or(params.call_bytes, |kib| kib << 10),
            },
            params,
        }
    }

    fn begin(&self, state: &mut LaunchState) -> Decision {
        let facts = LaunchFacts {
            present_files: &self.present_files,
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

    /// Applies a launch that is over to the state: its beginning, its end, the generation that may be due, and where the pages
    /// of its files are on the device.
    pub fn conclude(&self, state: &mut LaunchState, result: &LaunchResult) -> Learned {
        self.begin(state);
        let (recording, measured) = (result.recording.as_ref(), result.measured.as_measured());
        let learned = manager::end(state, recording, &measured, &self.params);
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

/// The present version of a file; none of what is no path, as `python -m x`.
fn present(path: &str) -> Option<FileId> {
    let metadata = std::fs::metadata(path).ok().filter(|m| m.is_file())?;
    let seconds_ns = metadata.mtime().checked_mul(1_000_000_000)?;
    Some(FileId {
        path: path.into(),
        device: (
            rustix::fs::major(metadata.dev()),
            rustix::fs::minor(metadata.dev()),
        ),
        inode: metadata.ino(),
        size: metadata.len(),
        mtime_ns: seconds_ns.checked_add(metadata.mtime_nsec())?,
    })
}
