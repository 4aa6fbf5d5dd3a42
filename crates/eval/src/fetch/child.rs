//! The application of the fetch benchmark: this program, run again, with a region of memory that it touches when told.

use crate::direct;
use crate::display::session::command_in;
use crate::error::{Context, Error, Result};
use crate::group::Group;
use prepage_kernel::Process;
use prepage_kernel::page::page_size;
use prepage_kernel::pagemap::PageEntry;
use prepage_kernel::process_madvise::{self, Advice};
use prepage_kernel::sched;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the application waited for, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Longest mmap and munmap of a region.
    pub map_max_us: f64,
    /// The 99th percentile of it.
    pub map_p99_us: f64,
    /// Longest fault.
    pub fault_max_us: f64,
    /// The 99th percentile of it.
    pub fault_p99_us: f64,
}

/// What may be in the swap cache of other pages: its stack and heap, which it goes on using.
const OTHERS_BYTES_MAX: u64 = 256 << 10;

/// The application, as the benchmark sees it.
pub struct Application {
    inner: std::process::Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    process: Process,
    group: Group,
    first_page: u64,
    pages: u64,
}

impl Application {
    /// Starts one with so many pages of memory, all written with content that compresses about three to one, alone in a
    /// control group.
    pub fn start(pages: u64, group: &Group) -> Result<Self> {
        let own = std::env::current_exe().context("find", "own executable")?;
        let mut inner = command_in(group, &own.to_string_lossy())?
            .args(["fetch-application", &pages.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start", "the benchmark's application")?;
        let (Some(stdin), Some(stdout)) = (inner.stdin.take(), inner.stdout.take()) else {
            return Err(Error::new(
                "start",
                "the benchmark's application",
                "no pipes",
            ));
        };
        let process = Process::open(inner.id() as i32).context("open", "the application")?;
        let mut application = Self {
            inner,
            stdin,
            stdout: BufReader::new(stdout),
            process,
            group: group.clone(),
            first_page: 0,
            pages,
        };
        let answer = application.answer()?;
        application.first_page = answer[0] as u64;
        Ok(application)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Has it touch all its pages; the time it took, in microseconds.
    pub fn touch(&mut self) -> Result<f64> {
        Ok(self.ask("touch")?[0])
    }

    /// Has it touch all its pages, each far from the one before.
    pub fn touch_scattered(&mut self) -> Result<f64> {
        Ok(self.ask("scatter")?[0])
    }

    /// Has it read a file; the time it took, in microseconds.
    pub fn read(&mut self, path: &std::path::Path) -> Result<f64> {
        Ok(self.ask(&format!("read {}", path.display()))?[0])
    }

    /// Begins: it keeps all cores busy, faults on its pages and maps and unmaps a region, for so long.
    pub fn begin_stalls(&mut self, ms: u64, cores: usize) -> Result<()> {
        writeln!(self.stdin, "stall {ms} {cores}").context("tell", "the application")
    }

    /// What it waited for meanwhile.
    pub fn end_stalls(&mut self) -> Result<Stalls> {
        let answer = self.answer()?;
        let [map_max_us, map_p99_us, fault_max_us, fault_p99_us] = answer[..] else {
            return Err(Error::new(
                "read",
                "the application's answer",
                "not four numbers",
            ));
        };
        Ok(Stalls {
            map_max_us,
            map_p99_us,
            fault_max_us,
            fault_p99_us,
        })
    }

    /// Number of its pages that are mapped.
    pub fn present(&self) -> Result<u64> {
        let entries = self.entries()?;
        Ok(entries.iter().filter(|entry| entry.present()).count() as u64)
    }

    /// Where its swapped-out pages are in their swap area, in their own order, in pages.
    pub fn slots(&self) -> Result<Vec<u64>> {
        let offsets = self
            .entries()?
            .into_iter()
            .filter_map(PageEntry::swap_offset);
        let slots: Vec<u64> = offsets.collect();
        match slots.is_empty() {
            true => Err(Error::new(
                "find",
                "the application's pages",
                "none is swapped out",
            )),
            false => Ok(slots),
        }
    }

    fn entries(&self) -> Result<Vec<PageEntry>> {
        let mut entries = vec![PageEntry::default(); self.pages as usize];
        let pagemap = self.process.pagemap().context("open", "pagemap")?;
        pagemap
            .read(self.first_page, &mut entries)
            .context("read", "pagemap")?;
        Ok(entries)
    }

    /// Swaps all its pages out, and out of the swap cache: to a disk they are written, and stay there until memory is
    /// wanted.
    pub fn swap_out(&mut self) -> Result<()> {
        let region = self.first_page..self.first_page + self.pages;
        for _ in 0..200 {
            process_madvise::advise_all(
                self.process.pidfd(),
                Advice::PageOut,
                std::slice::from_ref(&region),
            )
            .context("page out", "the application")?;
            let is_out = self.present()? == 0;
            if is_out && self.group.residency().swap_cache_bytes <= OTHERS_BYTES_MAX {
                return Ok(());
            }
            if is_out {
                self.group.reclaim_all();
                // What is being written cannot be reclaimed.
                sched::sleep_us(10_000);
                continue;
            }
            // Pages that are in some core's batch stay behind. Dropping caches empties all batches first.
            std::fs::write("/proc/sys/vm/drop_caches", "1").context("drop", "caches")?;
        }
        let cause = format!(
            "{} pages stay, and {} KiB in the swap cache: is there swap?",
            self.present()?,
            self.group.residency().swap_cache_bytes >> 10
        );
        Err(Error::new("page out", "the application", cause))
    }

    fn ask(&mut self, what: &str) -> Result<Vec<f64>> {
        writeln!(self.stdin, "{what}").context("tell", "the application")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Vec<f64>> {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .context("hear", "the application")?;
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|w| w.parse().ok()).collect();
        numbers
            .filter(|numbers| !numbers.is_empty())
            .ok_or_else(|| Error::new("hear", "the application", "it ended"))
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

/// Runs the application until its input ends.
pub fn play(pages: u64) -> Result<()> {
    let size = page_size() as usize;
    // One page more, so that whole pages lie inside.
    let mut memory = vec![0u8; (pages as usize + 1) * size];
    let mut state = 1u64;
    for chunk in memory.chunks_mut(24) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let len = chunk.len().min(8);
        chunk[..len].copy_from_slice(&state.to_le_bytes()[..len]);
    }
    let first_page = (memory.as_ptr() as usize).div_ceil(size);
    let offset = first_page * size - memory.as_ptr() as usize;
    let region = &memory[offset..offset + pages as usize * size];
    println!("{first_page}");
    for line in std::io::stdin().lines() {
        let line = line.context("read", "input")?;
        let words: Vec<&str> = line.splitn(2, ' ').collect();
        let rest = words.get(1).copied().unwrap_or_default();
        match words[0] {
            "touch" => println!("{}", timed(|| touch(region)).1),
            "scatter" => println!("{}", timed(|| scattered(region).for_each(fault)).1),
            "read" => println!("{}", timed(|| read(rest)).1),
            "stall" => {
                let numbers: Vec<u64> = rest.split(' ').filter_map(|w| w.parse().ok()).collect();
                let stalls = stall(region, numbers[0], numbers[1] as usize);
                let Stalls {
                    map_max_us,
                    map_p99_us,
                    fault_max_us,
                    fault_p99_us,
                } = stalls;
                println!("{map_max_us} {map_p99_us} {fault_max_us} {fault_p99_us}");
            }
            other => return Err(Error::new("obey", other, "not a known word")),
        }
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1e6)
}

fn touch(region: &[u8]) {
    for page in region.chunks(page_size() as usize) {
        black_box(page[0]);
    }
}

fn read(path: &str) {
    let mut buffer = vec![0u8; 1 << 16];
    if let Ok(mut file) = std::fs::File::open(path) {
        while file.read(&mut buffer).is_ok_and(|read| read > 0) {}
    }
}

/// Keeps all cores busy, and notes how long mapping and faulting take.
fn stall(region: &[u8], ms: u64, cores: usize) -> Stalls {
    let end = Instant::now() + Duration::from_millis(ms);
    let over = AtomicBool::new(false);
    let (maps, faults) = std::thread::scope(|scope| {
        for _ in 1..cores.max(1) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    black_box(0);
                }
            });
        }
        let faults = scope.spawn(|| fault_all(region, end));
        let maps = map_until(end);
        let faults = faults.join().unwrap_or_default();
        over.store(true, Ordering::Relaxed);
        (maps, faults)
    });
    Stalls {
        map_max_us: quantile(&maps, 1.0),
        map_p99_us: quantile(&maps, 0.99),
        fault_max_us: quantile(&faults, 1.0),
        fault_p99_us: quantile(&faults, 0.99),
    }
}

/// All pages, each far from the one before.
fn scattered(region: &[u8]) -> impl Iterator<Item = &u8> {
    const STRIDE: usize = 1031;
    let size = page_size() as usize;
    let pages = region.len() / size;
    (0..pages).map(move |index| &region[index * STRIDE % pages * size])
}

fn fault(page: &u8) {
    black_box(*page);
}

/// Touches them until then.
fn fault_all(region: &[u8], end: Instant) -> Vec<f64> {
    let touches = scattered(region).take_while(|_| Instant::now() < end);
    touches.map(|page| timed(|| fault(page)).1).collect()
}

/// Maps and unmaps a region large enough that the allocator asks the kernel for it.
fn map_until(end: Instant) -> Vec<f64> {
    let mut times = Vec::new();
    while Instant::now() < end {
        times.push(timed(|| drop(black_box(Vec::<u8>::with_capacity(64 << 20)))).1);
        std::thread::sleep(Duration::from_micros(200));
    }
    times
}

fn quantile(values: &[f64], q: f64) -> f64 {
    crate::statistics::quantile(values, q).unwrap_or(0.0)
}

/// Reads a file past the page cache, a megabyte at a time: what the device gives. In microseconds.
pub fn read_raw(path: &std::path::Path) -> Result<f64> {
    const CALL_BYTES: usize = 1 << 20;
    let file = direct::open(path).context("open", path.display())?;
    let mut buffer = direct::Buffer::new(CALL_BYTES);
    let start = Instant::now();
    let mut offset = 0;
    loop {
        let read = file
            .read_at(&mut buffer, offset)
            .context("read", path.display())?;
        if read == 0 {
            return Ok(start.elapsed().as_secs_f64() * 1e6);
        }
        offset += read as u64;
    }
}
