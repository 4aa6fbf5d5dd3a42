//! What comes after a launch: its files are named and looked up on the device. A thread of its own does it, at low
//! priority. A file system that does not answer costs what that launch showed.
//!
//! A launch may show what its user may not see: what a set-uid program that it runs opens. Only what its user may read has
//! a name here.

use crate::launch::LaunchResult;
use crate::launch::block_map::block_map;
use crate::launch::ext4::Ext4Devices;
use crate::launch::metadata::metadata;
use crate::launch::place::Place;
use crate::launch::prefetch::Prefetch;
use crate::launch::track::{Recorded, Seen, Track};
use crate::observe::file_pages::cached;
use crate::observe::files::InodeKey;
use crate::observe::resolve::version_of;
use crate::patience;
use prepage_core::extent::{Extent, ExtentSet, by_key};
use prepage_core::identity::FileId;
use prepage_core::launch::blocks::BlockMap;
use prepage_core::launch::manager::{Help, Measured};
use prepage_core::launch::recording::{
    Access, FILES_MAX, LaunchEnd, PathCall, Recording, Source, first_accesses, without_absent,
};
use prepage_core::launch::sequence::LaunchSequence;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::open::lstat_in_root;
use prepage_kernel::page::page_size;
use prepage_kernel::{fds, maps};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Most processes that are asked for the paths of what they hold open.
const ASKED_MAX: usize = 64;

/// A launch that is over.
#[derive(Debug)]
pub struct Ended {
    /// What it showed.
    pub track: Track,
    /// What was fetched for it.
    pub prefetch: Option<Arc<Prefetch>>,
    /// Why it is over.
    pub end: LaunchEnd,
    /// From its beginning to its end, in microseconds, without the idle time that showed the end.
    pub launch_us: u64,
    /// CPU time of recording it, in microseconds.
    pub recording_us: u64,
    /// How long to wait for a prefetch that is being ended.
    pub settle_max: Duration,
    /// How long to name and look up what it showed.
    pub name_max: Duration,
}

/// What is known of the launch without looking anything up.
pub fn unfinished(ended: &Ended) -> LaunchResult {
    let Ended { track, end, .. } = ended;
    let seen = track.seen.as_ref();
    let is_of_length = seen.is_none_or(|seen| end.is_of_length(seen.source));
    let measured = Measured {
        began_ns: track.launch.began_wall_ns,
        launch_us: is_of_length.then_some(ended.launch_us),
        help_us: 0,
        end: *end,
        recording_us: ended.recording_us,
        device_pages: match (&track.seen, &track.launch.coldness) {
            (Some(seen), _) => seen.added.iter().map(|added| added.extent.len).sum(),
            (None, Some(coldness)) => coldness.device_pages(),
            (None, None) => 0,
        },
        help: help(track, ended.prefetch.is_some(), *end),
        stale_files: Vec::new(),
    };
    LaunchResult::unrecorded(track.launch.id, measured)
}

/// Puts together what the launch showed.
pub fn finish(mut ended: Ended) -> LaunchResult {
    let mut result = unfinished(&ended);
    if let Some(prefetch) = &ended.prefetch {
        // A thread that hangs in a call is not waited for: what it has done is unknown.
        prefetch.wait(ended.settle_max);
        let (outcome, stale_files) = prefetch.outcome();
        result.measured.device_pages += outcome.pages;
        result.prefetch = Some(outcome);
        result.measured.stale_files = stale_files;
    }
    let (track, end) = (&mut ended.track, ended.end);
    let known = Arc::clone(&track.launch.sequence);
    let seen = track.seen.take();
    let whole = seen.filter(|_| track.recorded == Recorded::Whole);
    let Some((seen, place)) = whole.zip(track.place.clone()) else {
        return result;
    };
    let began = monotonic_ns();
    let owner = track.launch.rights.uid;
    let looked_up = patience::of_launch_files(owner, ended.name_max, move || {
        let (mut recording, unresolved_pages) = recording(seen, &place, end);
        let mut devices = Ext4Devices::default();
        let paths = looked_up_paths(&known, &recording);
        recording.metadata = metadata(paths, &place, &mut devices);
        let map: BlockMap = block_map(&recording, &place, &mut devices);
        (recording, unresolved_pages, map)
    });
    result.is_given_up = looked_up.is_none();
    if let Some((recording, unresolved_pages, map)) = looked_up {
        result.block_map = Some(map);
        result.unresolved_pages = unresolved_pages;
        result.recording = Some(recording);
        result.named_us = (monotonic_ns() - began) / 1_000;
    }
    result
}

/// The paths that launches of an application look up, as far as they are known, in about their order.
fn looked_up_paths<'a>(
    known: &'a LaunchSequence,
    recording: &'a Recording,
) -> impl Iterator<Item = &'a str> {
    let known = known.paths.iter().map(|replay| &*replay.path);
    let calls = recording.calls.iter().map(|call| &*call.path);
    let files = recording.files.iter().map(|file| &*file.path);
    known.chain(calls).chain(files)
}

/// Whether the launch counts as helped. One of which nobody saw the end has no length to compare.
fn help(track: &Track, is_prefetched: bool, end: LaunchEnd) -> Help {
    match track.seen.is_none() && end == LaunchEnd::Timeout {
        true => Help::None,
        false if is_prefetched => Help::Helped,
        false if track.launch.decision.is_held_out => Help::HeldOut,
        false => Help::None,
    }
}

/// The recording, and the number of pages of files without a name.
fn recording(mut seen: Seen, place: &Place, end: LaunchEnd) -> (Recording, u64) {
    let (calls, is_path_profile) = match seen.profile.take() {
        Some(profile) => profile.finish(),
        None => (std::mem::take(&mut seen.opened), false),
    };
    find_unnamed(&mut seen);
    let files = name(&seen, place);
    let inserted = [&seen.added[..], &seen.fetched].concat();
    let accesses = match seen.source {
        Source::Accesses => {
            let accessed = std::mem::take(&mut seen.accessed);
            let accessed = without_absent(accessed, inserted.clone());
            with_demand(accessed, &seen.added)
        }
        Source::Insertions => seen.added,
    };
    let (mut named, mut unnamed) = (Vec::new(), Vec::new());
    for access in accesses {
        let Some((index, size_pages)) = files.indices[access.file as usize] else {
            unnamed.push(access);
            continue;
        };
        // A mapping's last window reaches beyond the file, as does a read with room for more: neither counts for a bound.
        let extent = Extent::between(access.extent.start, access.extent.end().min(size_pages));
        if !extent.is_empty() {
            named.push(Access {
                file: index,
                extent,
                ..access
            });
        }
    }
    let unnamed = first_accesses(unnamed).into_iter();
    let unresolved_pages: u64 = unnamed.map(|access| access.extent.len).sum();
    // Where every file has a name all the same, none is missed.
    let openings_lost = match unresolved_pages {
        0 => 0,
        _ => seen.openings_lost,
    };
    let accesses = without_missing(first_accesses(named), &files, &inserted, place);
    let mut recording = Recording {
        source: seen.source,
        files: files.list,
        accesses,
        calls: visible(calls, place),
        is_path_profile,
        metadata: Vec::new(),
        requests: seen.requests,
        events_lost: seen.lost + openings_lost,
        files_left_out: seen.left_out.len() as u64,
        end,
    };
    recording.bound();
    (recording, unresolved_pages)
}

/// Looks for the paths of files that were open before the launch was recorded, while some process lives.
fn find_unnamed(seen: &mut Seen) {
    if seen.keys.iter().all(|key| seen.paths.contains_key(key)) {
        return;
    }
    for pid in seen.pids.clone().into_iter().take(ASKED_MAX) {
        seen.look_at(pid);
        let view = &seen.view;
        let mut found: Vec<(InodeKey, PathBuf)> = Vec::new();
        for file in fds::open_files(pid).unwrap_or_default() {
            found.extend(view.key_of_open(&file).map(|key| (key, file.path)));
        }
        for mapping in maps::read(pid).unwrap_or_default() {
            if let (Some(path), false) = (mapping.path, mapping.deleted) {
                found.push((view.key_of_mapped(mapping.dev, mapping.inode), path));
            }
        }
        for (key, path) in found {
            if let (Some(path), true) = (seen.path_in_root(pid, &path), seen.has_accessed(&key)) {
                seen.paths.entry(key).or_insert_with(|| path.into());
            }
        }
    }
}

/// The files of a launch.
struct Named {
    /// Those that have a name.
    list: Vec<FileId>,
    /// By index of [`Seen::keys`]: index in `list`, and size in pages.
    indices: Vec<Option<(u32, u64)>>,
}

fn name(seen: &Seen, place: &Place) -> Named {
    let mut named = Named {
        list: Vec::new(),
        indices: vec![None; seen.keys.len()],
    };
    for (index, key) in seen.keys.iter().enumerate() {
        let path = seen.paths.get(key).filter(|path| place.is_local(path));
        let opened = path.and_then(|path| Some((path, place.open_file(path).ok()?.1)));
        let found = opened.filter(|(_, stat)| stat.inode == key.1);
        if let (Some((path, stat)), true) = (found, named.list.len() < FILES_MAX) {
            let file = version_of(Arc::clone(path), key.0, &stat);
            let size_pages = file.size.div_ceil(page_size());
            named.indices[index] = Some((named.list.len() as u32, size_pages));
            named.list.push(file);
        }
    }
    named
}

/// The calls whose paths the owner may look up, found or not.
fn visible(mut calls: Vec<PathCall>, place: &Place) -> Vec<PathCall> {
    let Ok(_owner) = place.as_owner() else {
        return Vec::new();
    };
    calls.retain(|call| {
        let is_denied = || {
            let stat = lstat_in_root(place.root(), Path::new(&*call.path));
            stat.is_err_and(|error| error.is_denied())
        };
        place.is_local(&call.path) && !is_denied()
    });
    calls
}

/// The accesses without the pages that cannot have been mapped along with others, since they are not in memory and have
/// not come there during the launch. `inserted` is what has; its files are indices of [`Seen::keys`].
fn without_missing(
    accesses: Vec<Access>,
    files: &Named,
    inserted: &[Access],
    place: &Place,
) -> Vec<Access> {
    let came = by_key(inserted.iter().filter_map(|access| {
        let (file, _) = files.indices[access.file as usize]?;
        Some((file, access.extent))
    }));
    let uncertain = accesses.iter().filter(|access| !access.is_certain);
    let mut mapped = by_key(uncertain.map(|access| (access.file, access.extent)));
    let nothing = ExtentSet::new();
    for (file, pages) in &mut mapped {
        if let Some(id) = files.list.get(*file as usize) {
            let present = match place.open_file(&id.path) {
                Ok((file, _)) => cached(file.as_fd(), pages),
                Err(_) => pages.clone(),
            };
            *pages = present.union(came.get(file).unwrap_or(&nothing));
        }
    }
    let mut left = Vec::with_capacity(accesses.len());
    for access in accesses {
        if access.is_certain {
            left.push(access);
            continue;
        }
        let pages = mapped.get(&access.file).unwrap_or(&nothing);
        let mapped = pages.intersection(&ExtentSet::from(vec![access.extent]));
        let parts = mapped.extents().iter();
        left.extend(parts.map(|&extent| Access { extent, ..access }));
    }
    left
}

/// The accesses, divided into what the launch had to read from the device and what it had not.
fn with_demand(accessed: Vec<Access>, demanded: &[Access]) -> Vec<Access> {
    let added = by_key(demanded.iter().map(|access| (access.file, access.extent)));
    let nothing = ExtentSet::new();
    let mut accesses = Vec::with_capacity(accessed.len());
    for access in accessed {
        let pages = ExtentSet::from(vec![access.extent]);
        let added = added.get(&access.file).unwrap_or(&nothing);
        let mut parts = Vec::new();
        for (set, is_demanded) in [
            (pages.intersection(added), true),
            (pages.difference(added), false),
        ] {
            parts.extend(set.extents().iter().map(|&extent| Access {
                extent,
                is_demanded,
                ..access
            }));
        }
        // All at one time: in the order of the file.
        parts.sort_by_key(|part| part.extent.start);
        accesses.extend(parts);
    }
    accesses
}
