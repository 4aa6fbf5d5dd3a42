//! What one launch showed (FAST section 4.1: the disk I/O profiler's and the system-call profiler's findings).

use super::metadata::{METADATA_MAX, MetadataRead};
use super::page_map::PageMap;
use super::paths::PATHS_MAX;
use crate::extent::Extent;
use crate::identity::FileId;
use crate::params::launch::LaunchParams;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most files in a recording or a launch sequence: as many as paths in one ([`super::paths::PATHS_MAX`]).
pub const FILES_MAX: usize = PATHS_MAX;
/// Most extents in a recording or a launch sequence.
pub const ACCESSES_MAX: usize = 32_768;
/// Most pages in a recording or a launch sequence: 1 GiB with pages of 4 KiB.
pub const PAGES_MAX: u64 = 1 << 18;
/// Most path calls in a recording.
pub const CALLS_MAX: usize = 32_768;
/// Most block requests in a recording.
pub const REQUESTS_MAX: usize = 65_536;

/// Where a recording's accesses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The kernel's reports of accesses to file pages (6.12 and later). Complete on a cold and on a warm launch.
    #[default]
    Accesses,
    /// Insertions into the page cache. Partial: what was in memory already is missing.
    Insertions,
}

/// The first access to pages of a file.
///
/// A fault maps the pages around it as well, those that are in memory (fault-around, 64 KiB by default), and no later
/// access to them is seen. Whether they are used is not known then; a launch during which they are *not* in memory at
/// that time tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Index in [`Recording::files`].
    pub file: u32,
    /// Pages of the file.
    pub extent: Extent,
    /// Time since the launch began, in microseconds.
    pub at_us: u64,
    /// Whether the launch had to have them read from the device: nobody had fetched them.
    pub is_demanded: bool,
    /// Whether their use is certain. Otherwise they were in memory and mapped along with a page nearby.
    pub is_certain: bool,
}

/// A system call that takes a path (FAST section 4.2; Table 1 says how it is replayed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// open(2), creat(2) and the like.
    Open,
    /// stat(2), access(2), statfs(2) and the like.
    Stat,
    /// getdents(2) on an open directory.
    ReadDir,
    /// readlink(2).
    ReadLink,
    /// execve(2).
    Exec,
}

/// One such call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCall {
    /// What it does.
    pub kind: CallKind,
    /// The absolute path, in the application's root directory.
    pub path: Arc<str>,
    /// Whether there was such a file. Most paths that a launch tries do not exist.
    pub is_found: bool,
}

/// Who issued a block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Issuer {
    /// A process of the launch.
    Launch,
    /// The prefetch.
    Prefetcher,
    /// Anybody else.
    Other,
}

/// A request to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// First byte on the device: the LBA, in bytes.
    pub start_bytes: u64,
    /// Length, in bytes.
    pub len_bytes: u64,
    /// Whether it writes.
    pub is_write: bool,
    /// Who issued it.
    pub issuer: Issuer,
    /// When the device completed it, in microseconds since the launch began; `None` where that was not seen.
    pub completed_us: Option<u64>,
}

/// Why a launch was taken to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchEnd {
    /// The process ended.
    Exit,
    /// The first picture that stayed.
    Settled,
    /// Nothing was read on demand for `launch.t_idle_ms`.
    Idle,
    /// `launch.t_timeout_ms` had passed.
    Timeout,
}

impl LaunchEnd {
    /// Whether the time from a launch's beginning to this end is how long it took, by what shows the end. A launch that was
    /// taken to be idle was over with the last page that it needed. Insertions show only what it had to read itself, and
    /// not its use of what was fetched for it or was in memory: the better it was helped, the sooner it seems to be over.
    pub const fn is_of_length(self, source: Source) -> bool {
        !matches!((self, source), (Self::Idle, Source::Insertions))
    }
}

/// What one launch showed, over all its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Where the accesses come from.
    pub source: Source,
    /// The files that were accessed.
    pub files: Vec<FileId>,
    /// First accesses to their pages, in order: no page twice. See [`first_accesses`].
    pub accesses: Vec<Access>,
    /// Path calls, in order.
    pub calls: Vec<PathCall>,
    /// Whether `calls` holds every path call of the launch, those that found nothing included.
    pub is_path_profile: bool,
    /// Where the inodes and directories are that its look-ups, and those known before, need, in the order of first use; nothing
    /// where the file system keeps them otherwise, or its device cannot be read.
    pub metadata: Vec<MetadataRead>,
    /// Block requests during the launch, anybody's, in order of issue.
    pub requests: Vec<BlockRequest>,
    /// Events lost to full rings, or with openings that files lack for a name. Such a recording teaches nothing.
    pub events_lost: u64,
    /// Files accessed beyond [`FILES_MAX`], which the recording is without.
    pub files_left_out: u64,
    /// Why the launch was taken to be over.
    pub end: LaunchEnd,
}

impl Recording {
    /// Whether it can be learned from.
    pub fn is_usable(&self) -> bool {
        self.events_lost == 0
    }

    /// Pages accessed.
    pub fn pages(&self) -> u64 {
        self.accesses.iter().map(|a| a.extent.len).sum()
    }

    /// Its accesses with their files.
    pub(super) fn file_accesses(&self) -> impl Iterator<Item = (&FileId, &Access)> {
        let accesses = self.accesses.iter();
        accesses.filter_map(|a| Some((self.files.get(a.file as usize)?, a)))
    }

    /// Cuts every list to its bound, later entries first, and drops accesses to files that are not in `files`.
    pub fn bound(&mut self) {
        self.files.truncate(FILES_MAX);
        let files = self.files.len();
        self.accesses.retain(|a| (a.file as usize) < files);
        self.accesses.truncate(ACCESSES_MAX);
        self.calls.truncate(CALLS_MAX);
        self.metadata.truncate(METADATA_MAX);
        self.requests.truncate(REQUESTS_MAX);
    }

    /// When the device had completed the last block that was read for the launch, by its processes or ahead of them, in
    /// microseconds since it began: the paper's measure of launch time (section 5.1). `None` where none was.
    pub fn last_block_us(&self) -> Option<u64> {
        let reads = self.requests.iter().filter(|r| !r.is_write);
        let own = reads.filter(|r| r.issuer != Issuer::Other);
        own.filter_map(|r| r.completed_us).max()
    }
}

/// First accesses, from all accesses in any order: sorted by time, without the pages accessed before, neighbours
/// joined; at most [`ACCESSES_MAX`] of them and [`PAGES_MAX`] pages, those first whose use is certain. A page that was mapped
/// along first may have been used from then on, and so has that time: who fetches it later lets a launch wait for it.
pub fn first_accesses(mut accesses: Vec<Access>) -> Vec<Access> {
    accesses.sort_by_key(|a| a.at_us);
    let mut times = PageMap::default();
    for (place, access) in accesses.iter().enumerate() {
        times.add(access.file, access.extent, place);
    }
    let (certain, uncertain): (Vec<&Access>, Vec<&Access>) =
        accesses.iter().partition(|a| a.is_certain);
    let mut seen = PageMap::default();
    let mut first: Vec<Access> = Vec::new();
    let mut pages_left = PAGES_MAX;
    for access in certain.into_iter().chain(uncertain) {
        let wanted = Extent::new(access.extent.start, access.extent.len.min(pages_left));
        for new in seen.add(access.file, wanted, 0) {
            pages_left -= new.len;
            first.extend(
                times
                    .pieces(access.file, new)
                    .map(|(extent, place)| Access {
                        extent,
                        at_us: accesses[place].at_us,
                        ..*access
                    }),
            );
        }
    }
    first.sort_by_key(|a| a.at_us);
    first.dedup_by(|next, last| {
        let continues = last.file == next.file
            && last.extent.end() == next.extent.start
            && (last.is_demanded, last.is_certain) == (next.is_demanded, next.is_certain);
        last.extent.len += if continues { next.extent.len } else { 0 };
        continues
    });
    first.truncate(ACCESSES_MAX);
    first
}

/// The accesses without the pages that cannot have been mapped along with others, since they came into memory only
/// later: `inserted` says when, likewise in any order.
pub fn without_absent(accesses: Vec<Access>, mut inserted: Vec<Access>) -> Vec<Access> {
    inserted.sort_by_key(|a| a.at_us);
    let mut arrivals = PageMap::default();
    for (place, insertion) in inserted.iter().enumerate() {
        arrivals.add(insertion.file, insertion.extent, place);
    }
    let mut mapped = Vec::with_capacity(accesses.len());
    for access in accesses {
        if access.is_certain {
            mapped.push(access);
            continue;
        }
        let mut page = access.extent.start;
        for known in arrivals.pieces(access.file, access.extent) {
            let (extent, place) = known;
            let is_absent = inserted.get(place).is_some_and(|i| i.at_us > access.at_us);
            if is_absent {
                let before = Extent::between(page, extent.start);
                mapped.push(Access {
                    extent: before,
                    ..access
                });
                page = extent.end();
            }
        }
        let rest = Extent::between(page, access.extent.end());
        mapped.push(Access {
            extent: rest,
            ..access
        });
    }
    mapped.retain(|a| !a.extent.is_empty());
    mapped
}

/// When a launch is over if nothing more is read on demand, and why (FAST Table 2): T_idle after the last demand read,
/// T_timeout after its beginning. Times in microseconds since the launch began.
pub fn deadline(last_demand_us: u64, params: &LaunchParams) -> (u64, LaunchEnd) {
    let idle_us = last_demand_us.saturating_add(params.t_idle_ms * 1_000);
    let timeout_us = params.t_timeout_ms * 1_000;
    match idle_us < timeout_us {
        true => (idle_us, LaunchEnd::Idle),
        false => (timeout_us, LaunchEnd::Timeout),
    }
}
