//! What lies below the kernel's swap-in: pages read from their places in a swap area, as any block device is read. Of zram that
//! is its decompressor, and what its driver does around it; of a disk, the device.

use crate::direct;
use crate::error::{Context, Error, Result};
use prepage_kernel::page::page_size;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Most pages that one read asks for, where they lie side by side.
const RUN_PAGES_MAX: usize = 16;

/// Reads these places (in pages from the area's beginning) past the page cache, so many reads at a time. How long it took, in
/// microseconds.
pub fn read_slots(area: &Path, slots: &[u64], at_once: usize) -> Result<f64> {
    let runs = runs(slots);
    let next = AtomicUsize::new(0);
    let file = direct::open(area).context("open", area.display())?;
    let work = || read_some(&file, &runs, &next).context("read", area.display());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| {
            let panicked = |_| Err(Error::new("read", area.display(), "a thread panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        ended.collect::<Result<()>>()
    })?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Runs of places side by side: the first, and how many.
fn runs(slots: &[u64]) -> Vec<(u64, usize)> {
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for &slot in slots {
        match runs.last_mut() {
            Some((first, len)) if *first + *len as u64 == slot && *len < RUN_PAGES_MAX => *len += 1,
            _ => runs.push((slot, 1)),
        }
    }
    runs
}

/// Reads runs until none is left.
fn read_some(file: &File, runs: &[(u64, usize)], next: &AtomicUsize) -> std::io::Result<()> {
    let page = page_size() as usize;
    let mut buffer = direct::Buffer::new(RUN_PAGES_MAX * page);
    while let Some(&(first, len)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
        file.read_exact_at(&mut buffer[..len * page], first * page as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_side_by_side_is_one_read_up_to_a_bound() {
        assert_eq!(runs(&[]), []);
        assert_eq!(
            runs(&[7, 8, 9, 3, 11, 10]),
            [(7, 3), (3, 1), (11, 1), (10, 1)]
        );
        let many: Vec<u64> = (100..120).collect();
        assert_eq!(runs(&many), [(100, 16), (116, 4)]);
    }

    #[test]
    fn all_of_them_are_read_and_what_is_not_there_is_an_error() {
        // tmpfs takes O_DIRECT only from 6.6 on.
        let path = Path::new("/var/tmp").join(format!("prepage-slots-{}", std::process::id()));
        std::fs::write(&path, vec![1; 8 * page_size() as usize]).expect("written");
        let read = |slots: &[u64]| read_slots(&path, slots, 2);
        let (whole, beyond) = (read(&[0, 1, 2, 7]), read(&[8]));
        std::fs::remove_file(&path).expect("removed");
        assert!(whole.is_ok_and(|us| us > 0.0) && beyond.is_err());
    }
}
