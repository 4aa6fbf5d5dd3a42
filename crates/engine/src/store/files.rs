//! The files of a store: what they are called, who holds them, how they are read, replaced and set aside.

use super::format::{self, decode};
use super::{PROFILE_BYTES_MAX, StoredProfile};
use crate::error::{Error, Result};
use prepage_core::identity::AppId;
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a lock that is held is left alone between tries.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Most characters of an application's id in the name of its file.
const NAME_CHARACTERS_MAX: usize = 120;

/// The file of an application's profile. Its owner is in the name whatever that is cut to, so that nobody can choose a name of which
/// the checksum is that of another user's.
pub(super) fn profile_path(dir: &Path, app: &AppId) -> PathBuf {
    let text = app.to_string();
    let readable: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-.@".contains(c) {
                c
            } else {
                '_'
            }
        })
        .take(NAME_CHARACTERS_MAX)
        .collect();
    let owner = match text.chars().count() > NAME_CHARACTERS_MAX {
        true => format!("@{}", app.owner),
        false => String::new(),
    };
    let checksum = crc32fast::hash(text.as_bytes());
    dir.join(format!("{readable}{owner}-{checksum:08x}.profile"))
}

/// Takes the store's lock, which is held while the file is open.
pub(super) fn lock(dir: &Path, wait_max: Duration) -> Result<File> {
    let path = dir.join("lock");
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(|e| failed("opening", &path, e))?;
    let until = Instant::now() + wait_max;
    loop {
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        match rustix::fs::flock(&lock, operation) {
            Ok(()) => return Ok(lock),
            Err(_) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            Err(_) => return Err(Error::StoreLocked { path: dir.into() }),
        }
    }
}

/// Replaces a file so that at every moment either the old or the new one is whole, also after a power failure.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()
    });
    if let Err(error) = written {
        // What a full disk took of it.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    fs::rename(&new, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Whether a later version of prepage has left a profile there: its first bytes say so.
pub(super) fn is_newer_at(path: &Path) -> bool {
    let mut magic = Vec::new();
    let read =
        open_profile(path).and_then(|file| file.take(format::MAGIC_BYTES).read_to_end(&mut magic));
    read.is_ok() && format::is_newer(&magic)
}

/// A profile, and how long its file is, in bytes.
pub(super) fn read_one(path: &Path) -> std::result::Result<(StoredProfile, usize), String> {
    let bytes = read_bytes(path).map_err(|e| e.to_string())?;
    Ok((decode(&bytes)?, bytes.len()))
}

/// Opens a profile. Whatever lies there, that does not wait: a FIFO has nobody at its other end.
fn open_profile(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("no regular file")),
    }
}

/// The bytes of a profile; one more than it may have, where it is too large.
pub(super) fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = open_profile(path)?;
    let metadata = file.metadata()?;
    // One call, and so one request, where the file is not in memory.
    let bytes_max = PROFILE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::with_capacity(metadata.len().saturating_add(1).min(bytes_max) as usize);
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn set_aside(path: &Path, reason: &str) -> String {
    let aside = path.with_extension("damaged");
    let outcome = match fs::rename(path, &aside) {
        Ok(()) => format!("set aside as {}", aside.display()),
        Err(error) => format!("left in place, since renaming it failed: {error}"),
    };
    format!(
        "profile {}: {reason}; {outcome}; learning begins anew",
        path.display()
    )
}

pub(super) fn failed(operation: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Store {
        operation,
        path: path.into(),
        source,
    }
}
