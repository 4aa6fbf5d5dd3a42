//! The format of a profile file, all numbers little-endian: 8 bytes magic; 4 bytes, the launches that the application is
//! still left alone for, and their complement; 4 bytes CRC-32 of the profile; 4 bytes length of what is ready and 4 bytes CRC-32
//! of it; what is ready; the profile. What is ready is a postcard-encoded [`ReadyLaunch`], or nothing; the profile a
//! postcard-encoded [`StoredProfile`].
//!
//! That number is counted down in place: a launch that nothing is done for reads 28 bytes and writes 8. One that is ready reads
//! no more than what is ready.

use super::{PROFILE_BYTES_MAX, StoredProfile};
use crate::launch::ReadyLaunch;
use prepage_core::launch::manager::{LaunchState, Phase};
use prepage_kernel::readahead::readahead;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// First bytes of every profile: the name and the version of the format.
const MAGIC: &[u8; 8] = b"PREPAGE\x0b";

/// Its length.
pub(super) const MAGIC_BYTES: u64 = MAGIC.len() as u64;

/// Where the number of launches is, in bytes.
const LEFT_ALONE_AT: usize = 8;

/// Where the checksum of the profile is, in bytes.
const CRC_AT: usize = 16;

/// Where the length of what is ready is, and its checksum, in bytes.
const READY_BYTES_AT: usize = 20;
const READY_CRC_AT: usize = 24;

/// What is read ahead of a profile when its header is read, in bytes: a common read_ahead_kb, and most profiles whole.
const READAHEAD_BYTES: u64 = 128 << 10;

/// Where what is ready begins, in bytes.
const READY_AT: usize = 28;

/// The launches that an application is still left alone for; 0 where it is not.
pub(super) fn left_alone(launch: &LaunchState) -> u32 {
    match launch.phase {
        Phase::Off(_) => launch.retry_left,
        _ => 0,
    }
}

/// A profile file. What is ready is left out where there is no room for it.
pub(super) fn encode(stored: &StoredProfile, ready: Option<&ReadyLaunch>) -> Vec<u8> {
    // Encoding into memory fails only for types without a known length, which none of them has.
    let payload = postcard::to_stdvec(stored).unwrap_or_default();
    let ready = ready.and_then(|ready| postcard::to_stdvec(ready).ok());
    let room = PROFILE_BYTES_MAX.saturating_sub(READY_AT + payload.len());
    let ready = ready.filter(|r| r.len() <= room).unwrap_or_default();
    let mut bytes = Vec::with_capacity(READY_AT + ready.len() + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&left_alone_bytes(left_alone(&stored.launch)));
    bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    bytes.extend_from_slice(&(ready.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&ready).to_le_bytes());
    bytes.extend_from_slice(&ready);
    bytes.extend_from_slice(&payload);
    bytes
}

fn left_alone_bytes(left: u32) -> [u8; 8] {
    (u64::from(left) | u64::from(!left) << 32).to_le_bytes()
}

fn read_left_alone(bytes: [u8; 8]) -> Option<u32> {
    let number = u64::from_le_bytes(bytes);
    let (left, complement) = (number as u32, (number >> 32) as u32);
    (left == !complement).then_some(left)
}

/// Sets the number in an encoded profile.
pub(super) fn set_left_alone(bytes: &mut [u8], left: u32) {
    if let Some(place) = bytes.get_mut(LEFT_ALONE_AT..CRC_AT) {
        place.copy_from_slice(&left_alone_bytes(left));
    }
}

/// Sets the number in a profile file to a smaller one. It is written over: a file that is replaced at the same time keeps its own, and
/// so does one of another version.
pub(super) fn write_left_alone(path: &Path, left: u32) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    match Head::read(&file)?.is_some_and(|head| head.left_alone > left) {
        true => file.write_all_at(&left_alone_bytes(left), LEFT_ALONE_AT as u64),
        false => Err(std::io::Error::other(
            "what is there is not what was learned last, and stays",
        )),
    }
}

/// What a profile file says of the next launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The application is left alone.
    LeftAlone,
    /// It was decided ahead what is done for it.
    Ready(Box<ReadyLaunch>),
    /// It is to be decided by the whole profile.
    Undecided,
}

/// What a profile file says of the next launch. That it is left alone is counted, in the file, and where it may not be, it is
/// undecided; so it is where the file cannot say anything.
pub(super) fn take_next(path: &Path, may_be_left_alone: bool) -> Next {
    let taken = || -> std::io::Result<Option<Next>> {
        let file: File = OpenOptions::new().read(true).write(true).open(path)?;
        // Whoever is not left alone reads the rest next. A hint: without it that takes longer.
        let _ = readahead(file.as_fd(), 0, READAHEAD_BYTES);
        let Some(head) = Head::read(&file)? else {
            return Ok(None);
        };
        if head.left_alone > 1 && may_be_left_alone {
            file.write_all_at(&left_alone_bytes(head.left_alone - 1), LEFT_ALONE_AT as u64)?;
            return Ok(Some(Next::LeftAlone));
        }
        if head.left_alone > 0 || !(1..=PROFILE_BYTES_MAX).contains(&head.ready_bytes) {
            return Ok(None);
        }
        let mut ready = vec![0; head.ready_bytes];
        file.read_exact_at(&mut ready, READY_AT as u64)?;
        if crc32fast::hash(&ready) != head.ready_crc {
            return Ok(None);
        }
        let ready = postcard::from_bytes(&ready).ok();
        Ok(ready
            .filter(ReadyLaunch::is_valid)
            .map(|ready| Next::Ready(Box::new(ready))))
    };
    taken().ok().flatten().unwrap_or(Next::Undecided)
}

/// What the first bytes say, behind the magic.
struct Head {
    left_alone: u32,
    profile_crc: u32,
    ready_bytes: usize,
    ready_crc: u32,
}

impl Head {
    /// That of a profile file; `None` where it is no profile of this version, or the number of launches is damaged.
    fn read(file: &File) -> std::io::Result<Option<Self>> {
        let mut bytes = [0; READY_AT];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self::of(&bytes).filter(|_| bytes.starts_with(MAGIC)))
    }

    /// `None` where there are too few, or the number of launches is damaged.
    fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            left_alone: read_left_alone(*bytes.get(LEFT_ALONE_AT..)?.first_chunk()?)?,
            profile_crc: number(CRC_AT)?,
            ready_bytes: number(READY_BYTES_AT)? as usize,
            ready_crc: number(READY_CRC_AT)?,
        })
    }
}

/// Whether it is a profile of a later version of the format than this.
pub(super) fn is_newer(bytes: &[u8]) -> bool {
    let version = bytes
        .strip_prefix(&MAGIC[..7])
        .and_then(|rest| rest.first());
    version.is_some_and(|version| *version > MAGIC[7])
}

/// Decodes a profile file; the error says what is wrong with it.
///
/// # Errors
/// Where it is too large, of another format, damaged, or holds values out of their range.
pub fn decode(bytes: &[u8]) -> Result<StoredProfile, String> {
    if bytes.len() > PROFILE_BYTES_MAX {
        return Err(format!("larger than {PROFILE_BYTES_MAX} bytes"));
    }
    let Some(magic) = bytes.first_chunk::<8>() else {
        return Err("shorter than its header".into());
    };
    if magic[..7] != MAGIC[..7] {
        return Err("not a profile of prepage".into());
    }
    if magic != MAGIC {
        return Err(format!(
            "of format {}, this is a prepage for format {}",
            magic[7], MAGIC[7]
        ));
    }
    if bytes.len() < READY_AT {
        return Err("shorter than its header".into());
    }
    let whole = Head::of(bytes).and_then(|head| {
        let (ready, payload) = bytes[READY_AT..].split_at_checked(head.ready_bytes)?;
        let is_whole = crc32fast::hash(payload) == head.profile_crc
            && crc32fast::hash(ready) == head.ready_crc;
        is_whole.then_some((payload, head.left_alone))
    });
    let Some((payload, left)) = whole else {
        return Err("damaged: its checksum does not match".into());
    };
    let mut stored: StoredProfile = postcard::from_bytes(payload).map_err(|e| e.to_string())?;
    let is_valid = stored.profile.is_valid() && stored.launch.is_valid();
    let counted = left_alone(&stored.launch).checked_sub(left);
    let Some(counted) = counted.filter(|_| is_valid) else {
        return Err("holds values out of their range".into());
    };
    stored.launch.launches = stored.launch.launches.saturating_add(counted.into());
    stored.launch.retry_left -= counted;
    Ok(stored)
}
