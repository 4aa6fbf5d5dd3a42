//! What the tests need of the machine: the lock, root, swap, temporary directories.

use crate::{credentials, swaps};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The machine, for one test at a time.
pub struct Machine {
    zram: Option<String>,
    _lock: File,
}

impl Machine {
    /// Waits for the machine.
    pub fn lock() -> Machine {
        assert_eq!(credentials::effective_uid(), 0, "these tests need root");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open("/run/lock/prepage-test.lock")
            .expect("open /run/lock/prepage-test.lock");
        flock(&lock, FlockOperation::LockExclusive).expect("lock the machine");
        Machine {
            zram: None,
            _lock: lock,
        }
    }

    /// The machine with swap: zram is set up for the time of the test where there is none.
    pub fn with_swap() -> Machine {
        let mut machine = Machine::lock();
        if swaps::areas().expect("read /proc/swaps").is_empty() {
            let name = "zram0";
            let directory = Path::new("/sys/block").join(name);
            assert!(directory.exists(), "these tests need swap or /dev/{name}");
            std::fs::write(directory.join("disksize"), "256M").expect("size zram");
            run("mkswap", &["/dev/zram0"]);
            run("swapon", &["-p", "100", "/dev/zram0"]);
            machine.zram = Some(name.to_owned());
        }
        machine
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(name) = &self.zram {
            run("swapoff", &[&format!("/dev/{name}")]);
            let _ = std::fs::write(format!("/sys/block/{name}/reset"), "1");
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "{program} {arguments:?}: {status:?}"
    );
}

/// A directory on a disk (not tmpfs), removed at the end.
pub struct Directory(pub PathBuf);

impl Directory {
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "prepage-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = Path::new("/var/tmp").join(name);
        std::fs::create_dir(&path).expect("create a directory in /var/tmp");
        Directory(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file of so many pages, on the disk and clean.
    pub fn file(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.path(name);
        let contents = vec![b'x'; (pages * crate::page::page_size()) as usize];
        std::fs::write(&path, contents).expect("write a file");
        File::open(&path)
            .and_then(|file| file.sync_all())
            .expect("sync a file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tries for up to two seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        crate::sched::sleep_us(10_000);
    }
    panic!("not within two seconds: {what}");
}

/// A generator of reproducible numbers.
pub struct Lcg(pub u64);

impl Lcg {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}
