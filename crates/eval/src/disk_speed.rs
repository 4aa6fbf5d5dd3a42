//! What a disk can deliver: the measure of how much of it a switch uses (ASAP section 6.4 takes fio's sequential reads).

use crate::clock::now_ns;
use crate::direct;
use std::fs::{self, File};
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::path::Path;

/// Size of the file that is read.
const FILE_BYTES: usize = 128 << 20;
/// One read: so much as the kernel splits into several requests, which the device works on at once.
const READ_BYTES: usize = 8 << 20;

/// The most bytes a second of several passes over a file in this directory, read past the page cache. `None` where the file
/// system does not offer that.
pub fn sequential_bytes_per_s(directory: &Path) -> Option<u64> {
    let path = directory.join("disk-speed");
    let speed = write(&path).and_then(|()| fastest_pass(&path));
    // Left behind by nobody: the directory goes with the run.
    let _ = fs::remove_file(&path);
    speed.ok()
}

/// Fills the file with what no device compresses or leaves out.
fn write(path: &Path) -> Result<()> {
    let mut random = crate::random::Random::new(1);
    let block: Vec<u8> = (0..READ_BYTES / 8)
        .flat_map(|_| random.next_u64().to_ne_bytes())
        .collect();
    let mut file = File::create(path)?;
    for _ in 0..FILE_BYTES / READ_BYTES {
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn fastest_pass(path: &Path) -> Result<u64> {
    const PASSES: usize = 3;
    let mut file = direct::open(path)?;
    let mut buffer = direct::Buffer::new(READ_BYTES);
    let mut fastest_ns = u64::MAX;
    for _ in 0..PASSES {
        file.seek(SeekFrom::Start(0))?;
        let start_ns = now_ns();
        for _ in 0..FILE_BYTES / READ_BYTES {
            file.read_exact(&mut buffer)?;
        }
        fastest_ns = fastest_ns.min(now_ns() - start_ns);
    }
    Ok((FILE_BYTES as u128 * 1_000_000_000 / u128::from(fastest_ns.max(1))) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_reads_at_some_speed_and_nothing_is_left() {
        let directory = Path::new("/var/tmp").join(format!("prepage-disk-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let speed = sequential_bytes_per_s(&directory);
        assert!(speed.is_none_or(|speed| speed > 1 << 20), "{speed:?}");
        fs::remove_dir(&directory).expect("nothing is left in it");
    }
}
