//! A child process with a region of memory, which does as it is told: the test binary, run again.
//!
//! A test binary that uses it has a test named `child_role`:
//! `assert!(!prepage_kernel::testing::child::play_role(), "nobody asked")`.

mod role;
mod userfault;

pub use role::play_role;

use crate::cgroup::Cgroup;
use crate::maps::{self, Mapping};
use crate::pagemap::PageEntry;
use crate::process_madvise::{self, Advice};
use crate::{Process, sched};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

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
        Child::spawn_through(&[], pages)
    }

    /// In this memory cgroup. Pages are charged when they come to be: so only those of the new program are, all of them.
    pub fn spawn_in(group: &Cgroup, pages: u64) -> Child {
        let mut child = Child::spawn(pages);
        group.add(child.pid()).expect("move the child");
        child.exec();
        child
    }

    /// Runs it through a program that calls exec with its further arguments, as unshare(1) does.
    pub fn spawn_through(program: &[&str], pages: u64) -> Child {
        let binary = std::env::current_exe().expect("own path");
        let binary = binary.to_str().expect("a path that is text");
        let own = [binary, "child_role", "--exact", "--nocapture"];
        let mut words = program.iter().chain(&own);
        let mut inner = Command::new(words.next().expect("never empty"))
            .args(words)
            .env(role::ROLE, pages.to_string())
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

    /// The same, with this pid, which nobody has any more: whoever else begins a process meanwhile may get it first.
    pub fn spawn_as(pid: i32, program: &[&str], pages: u64) -> Child {
        const TRIES_MAX: usize = 1_000;
        let spawn = |_| {
            // The kernel gives the next that is free.
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())
                .expect("this test needs CONFIG_CHECKPOINT_RESTORE, to choose a pid");
            Child::spawn_through(program, pages)
        };
        let mut tries = (0..TRIES_MAX).map(spawn);
        tries
            .find(|child| child.pid() == pid)
            .unwrap_or_else(|| panic!("pid {pid} is another's all the time"))
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
        self.tell_pages(action, [index]);
    }

    /// Has the child do one thing with several pages, by index.
    pub fn tell_pages(&mut self, action: &str, indices: impl IntoIterator<Item = u64>) {
        let first = self.pages.start;
        self.tell_at(action, indices.into_iter().map(|index| first + index));
    }

    /// Has the child do one thing with several pages, by page number.
    pub fn tell_at(&mut self, action: &str, pages: impl IntoIterator<Item = u64>) {
        self.begin_at(action, pages);
        self.answer("DONE");
    }

    /// Has the child discard pages, by page number, as soon as page `watched` is brought in. Returns when it lies in
    /// wait.
    pub fn set_trap(&mut self, watched: u64, pages: impl IntoIterator<Item = u64>) {
        self.begin_at("trap", [watched].into_iter().chain(pages));
        self.answer("ARMED");
    }

    /// Waits until that is done.
    pub fn trap_sprung(&mut self) {
        self.answer("DONE");
    }

    fn begin_at(&mut self, action: &str, pages: impl IntoIterator<Item = u64>) {
        let pages: Vec<String> = pages.into_iter().map(|page| page.to_string()).collect();
        self.say(action, &pages.join(" "));
    }

    /// Has the child read pages of a file by read(2) (`readfile`) or through a mapping that it keeps (`mapfile`).
    /// Returns the page numbers of the mapping, none where there is none.
    pub fn tell_file(&mut self, action: &str, path: &Path, first: u64, count: u64) -> Range<u64> {
        self.say(action, &format!("{first} {count} {}", path.display()));
        match self.answer("DONE").parse().expect("a page number") {
            0 => 0..0,
            base => base..base + count,
        }
    }

    /// Has the child make this directory its root.
    pub fn chroot(&mut self, directory: &Path) {
        self.say("chroot", &directory.display().to_string());
        self.answer("DONE");
    }

    /// Has the child run its program anew, with a region of the same size.
    pub fn exec(&mut self) {
        self.say("exec", "");
        let first: u64 = self.answer("READY").parse().expect("a page number");
        self.pages = first..first + self.pages.end - self.pages.start;
    }

    /// Has the child map so many pages of this kind and write to them. Returns their page numbers.
    pub fn map(&mut self, kind: &str, pages: u64) -> Range<u64> {
        self.say("map", &format!("{kind} {pages}"));
        let first: u64 = self.answer("DONE").parse().expect("a page number");
        first..first + pages
    }

    /// The swap type that it finds to be filled next, with its own rights.
    pub fn swap_type_filled_next(&mut self) -> Option<u32> {
        self.say("swaptype", "");
        self.answer("DONE").parse().ok()
    }

    fn say(&mut self, action: &str, object: &str) {
        writeln!(self.stdin, "{action} {object}").expect("write to the child");
    }

    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    pub fn page(&self, index: u64) -> u64 {
        self.pages.start + index
    }

    pub fn entries(&self) -> Vec<PageEntry> {
        self.entries_at(&self.pages)
    }

    /// The entries of these pages, by page number.
    pub fn entries_at(&self, pages: &Range<u64>) -> Vec<PageEntry> {
        let mut entries = vec![PageEntry::default(); (pages.end - pages.start) as usize];
        let pagemap = self.process.pagemap().expect("open pagemap");
        assert_eq!(
            pagemap
                .read(pages.start, &mut entries)
                .expect("read pagemap"),
            entries.len()
        );
        entries
    }

    pub fn entry(&self, index: u64) -> PageEntry {
        self.entries()[index as usize]
    }

    /// Its mapping of exactly these pages.
    pub fn mapping_at(&self, pages: &Range<u64>) -> Option<Mapping> {
        let mappings = maps::read(self.pid()).expect("maps");
        mappings.into_iter().find(|m| m.pages() == *pages)
    }

    /// Where what it maps there can be opened.
    pub fn object_path_at(&self, pages: &Range<u64>) -> PathBuf {
        let mapping = self.mapping_at(pages).expect("a mapping of its own");
        mapping.object_path(self.pid())
    }

    /// Swaps the whole region out, whatever it takes.
    pub fn swap_out(&mut self) {
        self.swap_out_at(&self.pages.clone());
    }

    /// Swaps these pages out, by page number, private or shared.
    pub fn swap_out_at(&mut self, pages: &Range<u64>) {
        for _ in 0..100 {
            let ranges = [pages.clone()];
            process_madvise::advise_all(self.process.pidfd(), Advice::PageOut, &ranges)
                .expect("page out");
            if !self.entries_at(pages).iter().any(|entry| entry.present()) {
                return;
            }
            // Pages that are still in some CPU's batch (the fetching thread's) cannot be isolated: have all emptied.
            self.tell_pages("flush", []);
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
