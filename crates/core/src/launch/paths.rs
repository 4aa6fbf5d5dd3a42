//! Which paths are replayed, and how (FAST Table 1): each once, and none whose look-up is part of another's.

use super::recording::{CallKind, PathCall};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most paths in a launch sequence.
pub const PATHS_MAX: usize = 16_384;
/// Longest path, in bytes: the kernel's PATH_MAX.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Most bytes of all paths and file names of a launch sequence together.
pub const PATHS_BYTES_MAX: usize = 1 << 20;

/// How the metadata behind a path is read, weakest first: each reads what those before it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathRead {
    /// readlink(2): the path's own inode and a symbolic link's block.
    ReadLink,
    /// stat(2): in addition the inode that a link leads to. It stands for open(2) too, whose data is read by itself.
    Stat,
    /// open(2) and getdents(2): in addition the directory's blocks.
    ReadDir,
}

/// One path to replay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathReplay {
    /// The absolute path, in the application's root directory. It need not exist: that it does not is looked up too.
    pub path: Arc<str>,
    /// How.
    pub read: PathRead,
}

/// The paths to replay for a launch's calls, in the order of first use; within the bounds, the first ones. The look-up
/// of `/a/b/c` reads the inodes of `/a` and `/a/b`: only the listing of a directory is more than that.
pub fn replays(calls: &[PathCall]) -> Vec<PathReplay> {
    let mut reads: BTreeMap<&str, PathRead> = BTreeMap::new();
    for call in calls.iter().filter(|c| is_replayable(&c.path)) {
        let read = match call.kind {
            CallKind::ReadLink => PathRead::ReadLink,
            CallKind::Open | CallKind::Stat | CallKind::Exec => PathRead::Stat,
            CallKind::ReadDir => PathRead::ReadDir,
        };
        let known = reads.entry(&call.path).or_insert(read);
        *known = read.max(*known);
    }
    let (mut replays, mut taken, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
    for call in calls {
        let Some(&read) = reads.get(&*call.path) else {
            continue;
        };
        let is_implied = read < PathRead::ReadDir && has_path_below(&reads, &call.path);
        if is_implied || !taken.insert(&*call.path) {
            continue;
        }
        bytes += call.path.len();
        if replays.len() == PATHS_MAX || bytes > PATHS_BYTES_MAX {
            break;
        }
        let path = call.path.clone();
        replays.push(PathReplay { path, read });
    }
    replays
}

/// Whether a path can be replayed: absolute, and as long as the kernel takes them.
pub(super) fn is_replayable(path: &str) -> bool {
    path.starts_with('/') && path.len() < PATH_BYTES_MAX && !path.contains('\0')
}

fn has_path_below(paths: &BTreeMap<&str, PathRead>, path: &str) -> bool {
    let below = format!("{}/", path.trim_end_matches('/'));
    let mut after = paths.range(below.as_str()..).map(|(path, _)| *path);
    // The root directory is below its own prefix.
    after
        .find(|p| *p != path)
        .is_some_and(|p| p.starts_with(&below))
}

/// The paths, split for threads that replay them in parallel: each share keeps the order, and the first paths are at the
/// head of all shares.
pub fn split(paths: &[PathReplay], threads: usize) -> Vec<Vec<PathReplay>> {
    let threads = threads.clamp(1, paths.len().max(1));
    let share = |first| paths.iter().skip(first).step_by(threads).cloned();
    (0..threads).map(|first| share(first).collect()).collect()
}
