//! Launches of commands and child processes, and what is looked at afterwards.

use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::identity::FileId;
use prepage_core::launch::manager::Decision;
use prepage_core::launch::paths::PathReplay;
use prepage_core::launch::plan::{LaunchPlan, PlannedRead};
use prepage_core::launch::recording::Recording;
use prepage_core::launch::sequence::LaunchSequence;
use prepage_core::params::launch::LaunchParams;
use prepage_engine::{Coldness, EngineParams, Launch, LaunchResult, Launches, Rights};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::open::fstat;
use prepage_kernel::page::page_size;
use prepage_kernel::sched::capacities;
use prepage_kernel::testing::machine::eventually;
use prepage_kernel::testing::page_cache;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Nothing here takes so long.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

pub struct LaunchRig {
    pub launches: Launches,
}

impl LaunchRig {
    pub fn new() -> LaunchRig {
        LaunchRig::with(&EngineParams::default(), &LaunchParams::default())
    }

    pub fn with(engine: &EngineParams, launch: &LaunchParams) -> LaunchRig {
        let capacities = capacities().expect("cores");
        let launches = Launches::start(engine, launch, &capacities).expect("start");
        let warnings = launches.warnings();
        assert!(
            launches.can_record(),
            "these tests need perf events and tracefs: {warnings:?}"
        );
        LaunchRig { launches }
    }

    pub fn begin(&self, id: u64, pid: i32, decision: Decision) {
        self.launches.begin(launch(id, pid, decision));
    }

    /// Records a launch, and traces its paths.
    pub fn begin_traced(&self, id: u64, pid: i32) {
        let profiled = Decision {
            profiles_paths: true,
            ..recorded()
        };
        let mut launch = launch(id, pid, profiled);
        launch.traces_paths = true;
        self.launches.begin(launch);
    }

    /// The result of the one launch under way.
    pub fn result(&self) -> LaunchResult {
        let mut results = self.results(1);
        results.pop().expect("one")
    }

    pub fn results(&self, count: usize) -> Vec<LaunchResult> {
        let mut results = Vec::new();
        eventually("the launches are over", || {
            results.extend(self.launches.results());
            results.len() >= count
        });
        assert_eq!(results.len(), count);
        results
    }
}

/// A user without any rights.
pub const NOBODY: u32 = 65_534;

/// With the rights of nobody.
pub fn as_nobody(launch: Launch) -> Launch {
    let rights = Rights {
        uid: NOBODY,
        gid: NOBODY,
        groups: Vec::new(),
    };
    Launch { rights, ..launch }
}

pub fn launch(id: u64, root_pid: i32, decision: Decision) -> Launch {
    Launch {
        id,
        root_pid,
        rights: Rights {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        began: monotonic_ns(),
        began_wall_ns: 0,
        coldness: Coldness::of(&decision, root_pid),
        decision,
        sequence: Arc::new(LaunchSequence::default()),
        traces_paths: false,
        rings_wait_max: WAIT_MAX,
    }
}

pub fn recorded() -> Decision {
    Decision {
        records: true,
        ..Decision::default()
    }
}

pub fn prefetched(plan: LaunchPlan) -> Decision {
    Decision {
        prefetch: Some(Arc::new(plan)),
        ..Decision::default()
    }
}

/// A plan that reads these pages in this order.
pub fn plan(reads: &[(&Path, u64, u64)], paths: Vec<PathReplay>) -> LaunchPlan {
    let mut plan = LaunchPlan {
        paths,
        ..LaunchPlan::default()
    };
    for &(path, first, count) in reads {
        let id = file_id(path);
        let known = plan.files.iter().position(|file| *file == id);
        let file = known.unwrap_or_else(|| {
            plan.files.push(id);
            plan.files.len() - 1
        });
        plan.reads.push(PlannedRead {
            file: file as u32,
            extent: Extent::new(first, count),
        });
    }
    plan
}

pub fn file_id(path: &Path) -> FileId {
    let file = File::open(path).expect("open");
    let stat = fstat(file.as_fd()).expect("stat");
    FileId {
        path: path.to_str().expect("text").into(),
        device: (rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev)),
        inode: stat.inode,
        size: stat.size_bytes,
        mtime_ns: i64::try_from(stat.mtime_ns).expect("this century"),
    }
}

/// First accesses to the files below a directory, by name, in order.
pub fn accesses(recording: &Recording, directory: &Path) -> Vec<(String, Extent, bool)> {
    let accesses = recording.accesses.iter().filter_map(|access| {
        let path = Path::new(&*recording.files[access.file as usize].path);
        let name = path.strip_prefix(directory).ok()?.to_str()?;
        Some((name.to_owned(), access.extent, access.is_demanded))
    });
    accesses.collect()
}

/// Its pages that are in the page cache.
pub fn cached(path: &Path) -> ExtentSet {
    cached_of(&File::open(path).expect("open"))
}

/// The same, of a file that may have lost its path.
pub fn cached_of(file: &File) -> ExtentSet {
    let pages = file.metadata().expect("stat").len().div_ceil(page_size());
    let is_cached = |&page: &u64| page_cache::cached_of(file, page, 1) > 0;
    ExtentSet::from_pages((0..pages).filter(is_cached).collect())
}

pub fn pages(extents: &[(u64, u64)]) -> ExtentSet {
    let extents = extents.iter().map(|&(start, len)| Extent::new(start, len));
    extents.collect()
}
