//! A child process with a region of memory, which does as it is told: the test binary, run again.
//!
//! A test binary that uses it has a test named `child_role`:
//! `assert!(!prepage_kernel::testing::child::play_role(), "nobody asked")`.

use crate::page::page_size;
use crate::pagemap::PageEntry;
use crate::process_madvise::{self, Advice};
use crate::{Process, sched};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "PREPAGE_TEST_CHILD_PAGES";

/// A child with `pages` pages of private anonymous memory, all written.
pub struct Child {
    inner: std::process::Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub process: Process,
    pub pages: Range<u64>,
}

impl Child {
    pub fn spawn(pages: u64) -> Child {
        let binary = std::env::current_exe().expect("own path");
        let mut inner = Command::new(binary)
            .args(["child_role", "--exact", "--nocapture"])
            .env(ROLE, pages.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run the test binary again");
        let stdin = inner.stdin.take().expect("piped");
        let stdout = BufReader::new(inner.stdout.take().expect("piped"));
        let process = Process::open(inner.id() as i32).expect("open the child");
        let mut child = Child {
            inner,
            stdin,
            stdout,
            process,
            pages: 0..0,
        };
        let first: u64 = child.answer("READY").parse().expect("a page number");
        child.pages = first..first + pages;
        child
    }

    fn answer(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.stdout
                    .read_line(&mut line)
                    .expect("read from the child"),
                0,
                "the child ended"
            );
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Has the child do one thing, with the page of this index.
    pub fn tell(&mut self, action: &str, index: u64) {
        self.tell_all(action, &index.to_string());
    }

    /// Has the child do one thing with several pages, by index.
    pub fn tell_pages(&mut self, action: &str, indices: impl IntoIterator<Item = u64>) {
        let indices: Vec<String> = indices.into_iter().map(|index| index.to_string()).collect();
        self.tell_all(action, &indices.join(" "));
    }

    /// Has the child read pages of a file by read(2) (`readfile`) or through a mapping that it keeps (`mapfile`).
    pub fn tell_file(&mut self, action: &str, path: &std::path::Path, first: u64, count: u64) {
        self.tell_all(action, &format!("{first} {count} {}", path.display()));
    }

    fn tell_all(&mut self, action: &str, object: &str) {
        writeln!(self.stdin, "{action} {object}").expect("write to the child");
        let word = if action == "exec" { "READY" } else { "DONE" };
        let answer = self.answer(word);
        if action == "exec" {
            let first: u64 = answer.parse().expect("a page number");
            self.pages = first..first + self.pages.end - self.pages.start;
        }
    }

    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    pub fn page(&self, index: u64) -> u64 {
        self.pages.start + index
    }

    pub fn entries(&self) -> Vec<PageEntry> {
        let mut entries = vec![PageEntry::default(); (self.pages.end - self.pages.start) as usize];
        let pagemap = self.process.pagemap().expect("open pagemap");
        assert_eq!(
            pagemap
                .read(self.pages.start, &mut entries)
                .expect("read pagemap"),
            entries.len()
        );
        entries
    }

    pub fn entry(&self, index: u64) -> PageEntry {
        self.entries()[index as usize]
    }

    /// Swaps the whole region out, whatever it takes.
    pub fn swap_out(&mut self) {
        for _ in 0..100 {
            let ranges = [self.pages.clone()];
            process_madvise::advise_all(self.process.pidfd(), Advice::PageOut, &ranges)
                .expect("page out");
            if !self.entries().iter().any(|entry| entry.present()) {
                return;
            }
            // Pages that are still in some CPU's batch (the fetching thread's) cannot be isolated: have all emptied.
            self.tell("flush", 0);
            sched::sleep_us(5_000);
        }
        panic!("the child's pages do not go to swap");
    }

    /// Binds all its threads to one CPU.
    pub fn pin(&self, cpu: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        for thread in crate::process::threads(self.pid()).expect("threads") {
            let thread = rustix::thread::Pid::from_raw(thread);
            rustix::thread::sched_setaffinity(thread, &set).expect("pin the child");
        }
    }

    pub fn kill(&mut self) {
        self.inner.kill().expect("kill the child");
        self.inner.wait().expect("reap the child");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

fn map(bytes: usize, flags: i32) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            flags | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(
        base,
        libc::MAP_FAILED,
        "mmap: {}",
        std::io::Error::last_os_error()
    );
    base.cast()
}

fn act(action: &str, address: *mut u8) {
    let size = page_size() as usize;
    // SAFETY: pages of the region that this child mapped for these actions, and to which it holds no references.
    let result = unsafe {
        match action {
            "read" => {
                std::ptr::read_volatile(address);
                0
            }
            "write" => {
                std::ptr::write_volatile(address, 7);
                0
            }
            "none" => libc::mprotect(address.cast(), size, libc::PROT_NONE),
            "unmap" => libc::munmap(address.cast(), size),
            "discard" => libc::madvise(address.cast(), size, libc::MADV_DONTNEED),
            "lock" => libc::mlock(address.cast(), size),
            // MADV_GUARD_INSTALL, 6.13+.
            "guard" => libc::madvise(address.cast(), size, 102),
            other => panic!("unknown action {other}"),
        }
    };
    assert_eq!(result, 0, "{action}: {}", std::io::Error::last_os_error());
}

fn special(action: &str, object: &str) {
    match action {
        "readfile" | "mapfile" => {
            let mut words = object.splitn(3, ' ');
            let mut number = || words.next().and_then(|w| w.parse().ok()).expect("a number");
            let (first, count): (u64, u64) = (number(), number());
            let file = std::fs::File::open(words.next().expect("a path")).expect("open the file");
            read_file(
                &file,
                action == "mapfile",
                first * page_size(),
                count * page_size(),
            );
        }
        "flush" => {
            let bytes = 1024 * page_size() as usize;
            let base = map(bytes, libc::MAP_PRIVATE);
            // SAFETY: the mapping just made, unmapped again; nothing refers to it.
            unsafe {
                base.write_bytes(1, bytes);
                // MADV_COLLAPSE (6.1+) empties the batches of all CPUs, whether or not there is anything to collapse.
                libc::madvise(base.cast(), bytes, 25);
                libc::munmap(base.cast(), bytes);
            }
        }
        "exec" => {
            use std::os::unix::process::CommandExt;
            let mut arguments = std::env::args_os();
            let binary = arguments.next().expect("own path");
            panic!("exec: {}", Command::new(binary).args(arguments).exec());
        }
        other => panic!("unknown action {other}"),
    }
}

fn read_file(file: &std::fs::File, mapped: bool, offset: u64, len: u64) {
    use std::os::unix::fs::FileExt;
    if !mapped {
        let mut buffer = vec![0; len as usize];
        file.read_exact_at(&mut buffer, offset)
            .expect("read the file");
        return;
    }
    use std::os::fd::AsRawFd;
    let (len, offset) = (len as usize, offset as libc::off_t);
    // SAFETY: a new read-only mapping of an open file, at an address of the kernel's choice; it is never unmapped.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset,
        )
    };
    assert_ne!(
        base,
        libc::MAP_FAILED,
        "mmap: {}",
        std::io::Error::last_os_error()
    );
    for index in (0..len).step_by(page_size() as usize) {
        // SAFETY: within the mapping; nobody truncates the file meanwhile.
        unsafe { std::ptr::read_volatile(base.cast::<u8>().add(index)) };
    }
}

/// Plays the child where this process was started as one, and ends it with its input. Returns false otherwise.
pub fn play_role() -> bool {
    let Ok(pages) = std::env::var(ROLE) else {
        return false;
    };
    let pages: usize = pages.parse().expect("a number of pages");
    let size = page_size() as usize;
    let base = map(pages * size, libc::MAP_PRIVATE);
    // SAFETY: the mapping just made.
    unsafe {
        libc::madvise(base.cast(), pages * size, libc::MADV_NOHUGEPAGE);
        for index in 0..pages {
            // Not all the same: swap keeps pages of one value apart.
            base.add(index * size).write_bytes(1, 100);
            base.add(index * size + 8)
                .cast::<u64>()
                .write(index as u64 * 0x9e37_79b9);
        }
    }
    special("flush", "0");
    println!("\nREADY {}", base as u64 / page_size());
    for line in std::io::stdin().lines() {
        let line = line.expect("read a command");
        let (action, rest) = line.split_once(' ').expect("a command and its object");
        if matches!(action, "flush" | "exec" | "readfile" | "mapfile") {
            special(action, rest);
        } else {
            for index in rest
                .split(' ')
                .map(|index| index.parse::<usize>().expect("an index"))
            {
                assert!(index < pages);
                act(action, base.wrapping_add(index * size));
            }
        }
        println!("\nDONE");
    }
    std::process::exit(0);
}
