//! One profile of a store that no service has open: what a launch without a service reads, and writes when it is over.

use super::files::{failed, lock, profile_path, read_bytes, replace, set_aside};
use super::format::{Next, decode, encode, is_newer, take_next};
use super::{APPS_MAX, PROFILE_BYTES_MAX, StoredProfile};
use crate::error::{Error, Result};
use crate::launch::ReadyLaunch;
use prepage_core::identity::AppId;
use prepage_core::launch::manager::LaunchState;
use rustix::fs::{FlockOperation, flock, statvfs};
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most profiles looked at for one that may be dropped.
const DROPPED_TRIES_MAX: usize = 16;

/// What is known of an application's next launch without reading its profile; counts the launch where it is left alone, if it
/// may be. Takes no lock: of launches that count at the same time some may count as one.
pub fn next_launch(dir: &Path, app: &AppId, may_be_left_alone: bool) -> Next {
    take_next(&profile_path(dir, app), may_be_left_alone)
}

/// What is kept of an application's launches; empty where it is not known. Takes no lock: profiles are replaced whole.
///
/// # Errors
/// [`Error::Profile`] where it is damaged or of an older format, [`Error::NewerProfile`] where it is of a newer one,
/// [`Error::Store`] where it cannot be read.
pub fn read_launch(dir: &Path, app: &AppId) -> Result<LaunchState> {
    let path = profile_path(dir, app);
    let Some(bytes) = read(&path)? else {
        return Ok(LaunchState::default());
    };
    match decode(&bytes) {
        Ok(stored) => Ok(stored.launch),
        Err(reason) => Err(unreadable(&path, &bytes, reason)),
    }
}

/// Why these bytes are no profile.
fn unreadable(path: &Path, bytes: &[u8], reason: String) -> Error {
    let origin = path.display().to_string();
    match is_newer(bytes) {
        true => Error::NewerProfile { origin, reason },
        false => Error::Profile { origin, reason },
    }
}

/// Changes what is kept of an application's launches, under the store's lock, for which at most `wait_max` is waited. `change`
/// returns what is ready for the next launch. Returns with the new state on disk; with a warning where a damaged profile was set
/// aside.
///
/// # Errors
/// [`Error::StoreLocked`] while a service has the store; [`Error::NewerProfile`] where the profile is of a newer format, and
/// stays; [`Error::Profile`] where the new one is too large; [`Error::Store`] where it cannot be written.
pub fn change_launch(
    dir: &Path,
    app: &AppId,
    wait_max: Duration,
    change: impl FnOnce(&mut LaunchState) -> Option<ReadyLaunch>,
) -> Result<Option<String>> {
    make_directory(dir)?;
    let _lock = lock(dir, wait_max)?;
    let path = profile_path(dir, app);
    let (mut stored, mut warning) = (StoredProfile::new(app), None);
    match read(&path)? {
        Some(bytes) => match decode(&bytes) {
            Ok(kept) => stored = kept,
            Err(reason) if is_newer(&bytes) => return Err(unreadable(&path, &bytes, reason)),
            Err(reason) => warning = Some(set_aside(&path, &reason)),
        },
        None => make_room(dir),
    }
    let ready = change(&mut stored.launch);
    let bytes = encode(&stored, ready.as_ref());
    if bytes.len() > PROFILE_BYTES_MAX {
        let origin = path.display().to_string();
        let reason = format!("larger than {PROFILE_BYTES_MAX} bytes");
        return Err(Error::Profile { origin, reason });
    }
    replace(&path, &bytes).map_err(|e| failed("writing", &path, e))?;
    Ok(warning)
}

/// Most profiles are smaller: what a launch shows is recorded where so much is free.
const ROOM_BYTES: u64 = 256 << 10;

/// Takes one of so many places beside the store, and holds it while the file is open.
///
/// # Errors
/// [`Error::Store`] where all are taken, the directory cannot be used, or what is learned would not be kept, since its disk is
/// full.
pub fn take_place(dir: &Path, places: usize) -> Result<File> {
    make_directory(dir)?;
    let disk = statvfs(dir).map_err(|e| failed("asking for room", dir, e.into()))?;
    // A file system without blocks of its own (ramfs, tmpfs without a limit) does not say how much it takes.
    let is_bounded = disk.f_blocks > 0;
    if is_bounded && disk.f_bavail.saturating_mul(disk.f_frsize) < ROOM_BYTES {
        let source = std::io::Error::new(ErrorKind::StorageFull, "its disk is full");
        return Err(failed("taking a place", dir, source));
    }
    for number in 0..places {
        let path = dir.join(format!("recorder-{number}"));
        let file = File::create(&path).map_err(|e| failed("creating", &path, e))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(file);
        }
    }
    let reason = format!("{places} launches are being recorded");
    let source = std::io::Error::new(ErrorKind::WouldBlock, reason);
    Err(failed("taking a place", dir, source))
}

/// Profiles say which files their owners use: nobody else's business.
pub(super) fn make_directory(dir: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| failed("creating", dir, e))
}

/// The bytes of a profile, one more than it may have; none where there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match read_bytes(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("reading", path, error)),
    }
}

/// Drops the profile written longest ago of those that are not tracked, where there are as many as may be.
fn make_room(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let profiles = entries.map(|e| e.path());
    let profiles = profiles.filter(|p| p.extension().is_some_and(|e| e == "profile"));
    let age = |path: PathBuf| {
        let written = fs::metadata(&path).and_then(|m| m.modified());
        (written.unwrap_or(SystemTime::UNIX_EPOCH), path)
    };
    let mut profiles: Vec<_> = profiles.map(age).collect();
    if profiles.len() < APPS_MAX {
        return;
    }
    profiles.sort_unstable();
    for (_, path) in profiles.into_iter().take(DROPPED_TRIES_MAX) {
        let stored = read(&path).ok().flatten().map(|bytes| decode(&bytes));
        if !matches!(stored, Some(Ok(stored)) if stored.tracked.is_some()) {
            // One that stays is one too many, and tried again.
            let _ = fs::remove_file(&path);
            return;
        }
    }
}
