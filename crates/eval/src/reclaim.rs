//! Takes an application out of memory or brings it back, and says what is left of it.

use crate::circumstances::swap_devices;
use crate::clock::now_ns;
use crate::display::session::command_in;
use crate::error::{Context, Result};
use crate::group::{Group, GroupResidency};
use crate::pages::{self, PageCounts};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;

/// What was verified before a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Pages by their page tables.
    pub pages: PageCounts,
    /// Pages in the page cache of files that only the application maps, whoever is charged for them.
    pub cached_file_pages: u64,
    /// The application's group.
    pub group: GroupResidency,
    /// The prepaging service's group: file pages it read are charged there.
    pub service: GroupResidency,
    /// How often reclaim was asked for.
    pub rounds: u64,
    /// How long that took.
    pub reclaim_ns: u64,
    /// How long looking took.
    pub verify_ns: u64,
}

/// Pages that may still be present: timers of the application run while it is being reclaimed.
pub const PRESENT_TOLERANCE_PAGES: u64 = 256;
/// Pages that may still be in the group's swap cache.
pub const SWAP_CACHE_TOLERANCE_PAGES: u64 = 256;
/// File pages that may still be charged to the application or to the service: an application that polls (Blender does,
/// every 5 ms) has the few pages of its loop back at once, and what is read around them, in every mode alike.
pub const FILE_TOLERANCE_PAGES: u64 = 1024;
/// Pages of files that only the application maps that may still be cached, whoever is charged for them. A stranger's
/// program that reads a library before the application does is charged for its pages, and then nothing takes them out
/// as long as the application maps them; they stay for all modes alike, so a few percent do no harm to pairs.
pub const CACHED_TOLERANCE_PAGES: u64 = 4096;
/// Pages that may be out of memory before a resident sample.
pub const RESIDENT_TOLERANCE_PAGES: u64 = 256;
/// Rounds of reclaim before a sample is given up.
pub const ROUNDS_MAX: u64 = 8;

/// Looks at the state without changing it.
pub fn look(app: &Group, service: Option<&Group>) -> Result<State> {
    let start = now_ns();
    let pids = app.pids();
    let mut outside = pids.clone();
    // The service maps nothing of the application; what its own binary shares is as shared as any other's.
    outside.extend(service.map(Group::pids).unwrap_or_default());
    let shared = pages::files_mapped_by_others(&outside)?;
    let pages = pages::count_pages(&pids, &shared)?;
    let cached_file_pages = pages::cached_pages(&pids, &shared)?;
    Ok(State {
        pages,
        cached_file_pages,
        group: app.residency(),
        service: service.map(Group::residency).unwrap_or_default(),
        verify_ns: now_ns() - start,
        ..State::default()
    })
}

/// Why the state is not "everything out", or `None` if it is.
pub fn why_not_out(state: &State) -> Option<&'static str> {
    let page_bytes = rustix::param::page_size() as u64;
    // Shared memory that the group is not charged for is the display server's, which keeps it (pictures, by MIT-SHM).
    // Other anonymous pages that it is not charged for are the kernel's zero page: it takes the place of what is all
    // zeros in a large folio that reclaim splits (6.12 and later).
    let own_shmem = state.group.shmem_bytes / page_bytes;
    let own_anon = state.group.anon_bytes / page_bytes;
    let present_shmem = state.pages.present_shmem.min(own_shmem);
    let present_anon = state.pages.present_anon.min(own_anon);
    if present_anon + present_shmem > PRESENT_TOLERANCE_PAGES {
        Some("swappable pages present")
    } else if state.group.swap_cache_bytes > SWAP_CACHE_TOLERANCE_PAGES * page_bytes {
        Some("pages in the swap cache")
    } else {
        why_cached(state)
    }
}

/// Why file pages are not out, or `None` if they are.
pub fn why_cached(state: &State) -> Option<&'static str> {
    let page_bytes = rustix::param::page_size() as u64;
    let charged_bytes = state.group.file_bytes + state.service.file_bytes;
    let is_cached = state.cached_file_pages > CACHED_TOLERANCE_PAGES
        || charged_bytes > FILE_TOLERANCE_PAGES * page_bytes;
    is_cached.then_some("file pages cached")
}

/// Reclaims everything, in rounds, until the state is verified or the rounds are over.
pub fn reclaim_all(app: &Group, service: Option<&Group>) -> Result<State> {
    let mut reclaim_ns = 0;
    let mut rounds = 0;
    let mut swap_cache_bytes = u64::MAX;
    loop {
        let start = now_ns();
        pages::page_out(&app.pids())?;
        app.reclaim_all();
        if let Some(service) = service {
            service.reclaim_all();
        }
        drop_page_cache()?;
        reclaim_ns += now_ns() - start;
        rounds += 1;
        let mut state = look(app, service)?;
        if why_not_out(&state).is_none() || rounds == ROUNDS_MAX {
            state.rounds = rounds;
            state.reclaim_ns = reclaim_ns;
            return Ok(state);
        }
        if is_swap_cache_stuck(swap_cache_bytes, &state) {
            pages::bring_back(&app.pids())?;
        }
        swap_cache_bytes = state.group.swap_cache_bytes;
    }
}

/// Whether a round took nothing out of the swap cache, which held so much before it. A page that zswap brought there is
/// dirty, since zswap gives its copy up (`zswap_load`); and until it has been mapped it is not marked anonymous, and reclaim
/// writes no dirty page that is neither anonymous nor of shared memory (`pageout`, seen with 6.18). Mapped and paged out
/// once more, it goes. What is being written to a disk goes by itself in the next round.
fn is_swap_cache_stuck(before_bytes: u64, after: &State) -> bool {
    let page_bytes = rustix::param::page_size() as u64;
    let left_bytes = after.group.swap_cache_bytes;
    left_bytes > SWAP_CACHE_TOLERANCE_PAGES * page_bytes && left_bytes >= before_bytes
}

/// What of an application is in memory when a sample begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All of it, as it was brought back.
    Resident,
    /// Its anonymous pages; file pages are dropped.
    FilesDropped,
    /// Nothing.
    Out,
}

/// Brings an application into the state in which a sample begins. Says why it is not, if so.
pub fn make_state(
    app: &Group,
    service: Option<&Group>,
    memory: Memory,
) -> Result<(State, Option<&'static str>)> {
    if memory == Memory::Resident {
        let state = look(app, service)?;
        let unfit = why_swapped_out(&state);
        return Ok((state, unfit));
    }
    let state = reclaim_all(app, service)?;
    if memory == Memory::FilesDropped && why_not_out(&state).is_none() {
        return bring_back_anonymous(app, service, state);
    }
    let unfit = why_not_out(&state);
    match unfit.is_some() && swap_devices().is_empty() {
        true => Ok((state, Some("swap was switched off"))),
        false => Ok((state, unfit)),
    }
}

/// Why anonymous pages are not resident, or `None` if they are.
fn why_swapped_out(state: &State) -> Option<&'static str> {
    let is_out = state.pages.swapped_private > RESIDENT_TOLERANCE_PAGES;
    is_out.then_some("pages swapped out before a resident sample")
}

/// From everything out, brings the anonymous pages back alone. Timers of the application run meanwhile and read some of its
/// files, which are taken out again, in rounds.
fn bring_back_anonymous(
    app: &Group,
    service: Option<&Group>,
    out: State,
) -> Result<(State, Option<&'static str>)> {
    let mut rounds = out.rounds;
    pages::bring_back(&app.pids())?;
    loop {
        app.reclaim_files()?;
        drop_page_cache()?;
        rounds += 1;
        let state = State {
            rounds,
            reclaim_ns: out.reclaim_ns,
            ..look(app, service)?
        };
        match why_swapped_out(&state).or_else(|| why_cached(&state)) {
            Some(_) if rounds < ROUNDS_MAX => {}
            unfit => return Ok((state, unfit)),
        }
    }
}

/// Brings all of an application back. A process inside its group reads the files: the group is charged for their pages, as
/// for those that the application reads itself, and so loses them when it is reclaimed.
pub fn bring_back(app: &Group) -> Result<()> {
    let pids = app.pids();
    pages::bring_back(&pids)?;
    let own = std::env::current_exe().context("find", "own executable")?;
    let files = pages::mapped_files(&pids, &HashSet::new())?;
    command_in(app, &own.to_string_lossy())?
        .arg("read-files")
        .args(files)
        .status()
        .context("read files of", app.memory.display())?;
    Ok(())
}

/// Drops every clean page of the page cache that nobody maps.
pub fn drop_page_cache() -> Result<()> {
    // 1: the page cache only, not the caches of names and inodes.
    fs::write("/proc/sys/vm/drop_caches", "1").context("drop", "page cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named() {
        let out = State::default();
        assert_eq!(why_not_out(&out), None);
        let mut present = out.clone();
        let page_bytes = rustix::param::page_size() as u64;
        present.pages.present_anon = PRESENT_TOLERANCE_PAGES + 1;
        assert_eq!(why_not_out(&present), None, "the zero page");
        present.group.anon_bytes = PRESENT_TOLERANCE_PAGES * page_bytes;
        assert_eq!(why_not_out(&present), None);
        present.pages.present_shmem = 1;
        assert_eq!(why_not_out(&present), None, "the display server's");
        present.group.shmem_bytes = page_bytes;
        assert_eq!(why_not_out(&present), Some("swappable pages present"));
        let mut cached = out.clone();
        cached.group.swap_cache_bytes = 8 << 20;
        assert_eq!(why_not_out(&cached), Some("pages in the swap cache"));
        // Nothing is known before the first round; what shrinks is being written.
        assert!(!is_swap_cache_stuck(u64::MAX, &cached));
        assert!(!is_swap_cache_stuck(9 << 20, &cached));
        assert!(is_swap_cache_stuck(8 << 20, &cached));
        assert!(!is_swap_cache_stuck(0, &out), "nothing is left");
        let mut files = out;
        files.service.file_bytes = 8 << 20;
        assert_eq!(why_not_out(&files), Some("file pages cached"));
        assert_eq!(why_swapped_out(&files), None);
        files.pages.swapped_private = RESIDENT_TOLERANCE_PAGES + 1;
        assert!(why_swapped_out(&files).is_some());
    }
}
