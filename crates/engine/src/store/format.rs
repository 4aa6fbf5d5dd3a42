//! The format of a profile file, all numbers little-endian: 8 bytes magic; 4 bytes, the launches that the application is
//! still left alone for, and their complement; 4 bytes CRC-32 of what follows; a postcard-encoded [`StoredProfile`].
//!
//! That number is counted down in place: a launch that nothing is done for reads 16 bytes and writes 8.

use super::{PROFILE_BYTES_MAX, StoredProfile};
use prepage_core::launch::manager::{LaunchState, Phase};
use prepage_kernel::readahead::readahead;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// First bytes of every profile: the name and the version of the format.
const MAGIC: &[u8; 8] = b"PREPAGE\x08";

/// Its length.
pub(super) const MAGIC_BYTES: u64 = MAGIC.len() as u64;

/// Where the number of launches is, in bytes.
const LEFT_ALONE_AT: usize = 8;

/// Where the checksum is, in bytes.
const CRC_AT: usize = 16;

/// What is read ahead of a profile when its header is read, in bytes: a common read_ahead_kb, and most profiles whole.
const READAHEAD_BYTES: u64 = 128 << 10;

/// Where the payload begins, in bytes.
const PAYLOAD_AT: usize = 20;

/// The launches that an application is still left alone for; 0 where it is not.
pub(super) fn left_alone(launch: &LaunchState) -> u32 {
    match launch.phase {
        Phase::Off(_) => launch.retry_left,
        _ => 0,
    }
}

pub(super) fn encode(stored: &StoredProfile) -> Vec<u8> {
    // Encoding into memory fails only for types without a known length, which a profile does not have.
    let payload = postcard::to_stdvec(stored).unwrap_or_default();
    let mut bytes = Vec::with_capacity(PAYLOAD_AT + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&left_alone_bytes(left_alone(&stored.launch)));
    bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
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

/// Sets the number in a profile file. It is written over: a file that is replaced at the same time keeps its own.
pub(super) fn write_left_alone(path: &Path, left: u32) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&left_alone_bytes(left), LEFT_ALONE_AT as u64)
}

/// Counts the number in a profile file down. Returns whether the application is left alone for this launch too; `false`
/// where the file cannot say so.
pub(super) fn count_left_alone(path: &Path) -> bool {
    let counted = || -> std::io::Result<bool> {
        let file: File = OpenOptions::new().read(true).write(true).open(path)?;
        // Whoever is not left alone reads the rest next. A hint: without it that takes longer.
        let _ = readahead(file.as_fd(), 0, READAHEAD_BYTES);
        let mut head = [0; CRC_AT];
        file.read_exact_at(&mut head, 0)?;
        let number = head.split_last_chunk::<8>().map(|(_, number)| *number);
        let left = number.and_then(read_left_alone).unwrap_or(0);
        if head[..LEFT_ALONE_AT] != MAGIC[..] || left <= 1 {
            return Ok(false);
        }
        file.write_all_at(&left_alone_bytes(left - 1), LEFT_ALONE_AT as u64)?;
        Ok(true)
    };
    counted().unwrap_or(false)
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
    let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
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
    let split = rest.split_first_chunk::<8>();
    let split = split.and_then(|(left, rest)| Some((left, rest.split_first_chunk::<4>()?)));
    let Some((left, (crc, payload))) = split else {
        return Err("shorter than its header".into());
    };
    let left =
        read_left_alone(*left).filter(|_| crc32fast::hash(payload) == u32::from_le_bytes(*crc));
    let Some(left) = left else {
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
