//! What the tests need of the machine: the lock, root, swap, temporary directories.

use crate::meminfo::Meminfo;
use crate::swaps::{self, SwapArea};
use crate::{credentials, text};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::time::Timespec;
use std::fs::{File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The machine, for one test at a time.
pub struct Machine {
    /// Set up as swap for this test.
    zram: Option<ZramSwap>,
    /// The machine's own areas, turned off for this test.
    turned_off: Vec<SwapArea>,
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
            turned_off: Vec::new(),
            _lock: lock,
        }
    }

    /// The machine with zram of the test's own, ahead of whatever swap there is: what goes to a disk stays in the swap cache
    /// at first, and faults on it are minor ones.
    pub fn with_swap() -> Machine {
        let mut machine = Machine::lock();
        machine.zram = Some(ZramSwap::set_up(ZramSwap::FIRST));
        machine
    }

    /// The machine with zram, and a swap file of so many pages that is filled before.
    pub fn with_file_before_zram(pages: u64) -> (Machine, SwapFile) {
        let mut machine = Machine::lock();
        machine.turn_swap_off();
        machine.zram = Some(ZramSwap::set_up("100"));
        let file = SwapFile::with_options(pages * crate::page::page_size(), &["-p", "200"]);
        (machine, file)
    }

    /// Turns all swap off until the end of the test: what is in it comes back to memory.
    pub fn turn_swap_off(&mut self) {
        let areas = swaps::areas().expect("read /proc/swaps");
        let used_kib: u64 = areas.iter().map(|area| area.used_kib).sum();
        let available_kib = Meminfo::read().expect("memory").available_bytes >> 10;
        assert!(
            used_kib < available_kib / 2,
            "this test turns swap off, and {used_kib} KiB in it do not fit in half of the {available_kib} KiB available"
        );
        for area in areas {
            turn_off(&area.path);
            self.turned_off.push(area);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for area in &self.turned_off {
            if let Some(own) = self.zram.take_if(|own| own.path() == area.path) {
                // Off already: only the device is left to take down.
                own.reset();
                continue;
            }
            let path = area.path.to_string_lossy();
            let priority = area.priority.to_string();
            match area.priority {
                0.. => run("swapon", &["-p", &priority, &path]),
                // The kernel chose it, and will again.
                _ => run("swapon", &[&path]),
            };
        }
        if let Some(own) = self.zram.take() {
            turn_off(&own.path());
            own.reset();
        }
    }
}

/// A zram device that is swap, of a test's own.
struct ZramSwap {
    /// `zram0`.
    name: String,
    /// Taken away in the end: the test added it.
    added: bool,
}

impl ZramSwap {
    const CONTROL: &str = "/sys/class/zram-control";
    /// The priority that no other area exceeds.
    const FIRST: &str = "32767";

    /// On a device that nothing has set up, or on one more.
    fn set_up(priority: &str) -> ZramSwap {
        let zram = Self::unused().unwrap_or_else(Self::add);
        std::fs::write(zram.attribute("disksize"), "256M").expect("size zram");
        let path = zram.path();
        let path = path.to_str().expect("text");
        run("mkswap", &[path]);
        run("swapon", &["-p", priority, path]);
        zram
    }

    fn unused() -> Option<ZramSwap> {
        (0..16)
            .map(|i| ZramSwap {
                name: format!("zram{i}"),
                added: false,
            })
            .find(|zram| text::read_number::<u64>(zram.attribute("disksize")).is_ok_and(|n| n == 0))
    }

    fn add() -> ZramSwap {
        let number: u32 = text::read_number(format!("{}/hot_add", Self::CONTROL))
            .expect("these tests need swap or a kernel with zram");
        let zram = ZramSwap {
            name: format!("zram{number}"),
            added: true,
        };
        eventually("the kernel makes the device's file", || {
            zram.path().exists()
        });
        zram
    }

    fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    fn attribute(&self, name: &str) -> PathBuf {
        Path::new("/sys/block").join(&self.name).join(name)
    }

    /// As it was before. Busy while anything has the device open, such as what looks at each device that changes.
    fn reset(self) {
        eventually("the zram device can be reset", || {
            std::fs::write(self.attribute("reset"), "1").is_ok()
        });
        if self.added {
            let number = self.name.trim_start_matches("zram");
            eventually("the zram device can be removed", || {
                std::fs::write(format!("{}/hot_remove", Self::CONTROL), number).is_ok()
            });
        }
    }
}

/// A swap file of its own, turned off at the end.
pub struct SwapFile {
    _directory: Directory,
    path: PathBuf,
}

impl SwapFile {
    pub fn new(bytes: u64) -> SwapFile {
        SwapFile::with_options(bytes, &[])
    }

    fn with_options(bytes: u64, options: &[&str]) -> SwapFile {
        use std::os::unix::fs::PermissionsExt;
        let directory = Directory::new();
        let path = directory.file("swap", bytes / crate::page::page_size());
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("chmod");
        let text = path.to_str().expect("a path that is text");
        run("mkswap", &[text]);
        run("swapon", &[options, &[text]].concat());
        SwapFile {
            _directory: directory,
            path,
        }
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        turn_off(&self.path);
    }
}

/// A setting of the kernel's, as it was again at the end.
pub struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
    const LRU_GENERATIONS: &str = "/sys/kernel/mm/lru_gen/enabled";

    fn change(path: &'static str, value: &str) -> Setting {
        let before = text::read_line(path)
            .unwrap_or_else(|error| panic!("this test needs a kernel that has {path}: {error}"));
        std::fs::write(path, value).unwrap_or_else(|error| panic!("write {path}: {error}"));
        Setting { path, before }
    }

    /// Active and inactive lists of pages, in place of the generations of MGLRU, which calls what is new active until it has aged
    /// it. `None` where there are no generations, as before 6.1.
    pub fn lru_lists() -> Option<Setting> {
        let has_generations = Path::new(Self::LRU_GENERATIONS).exists();
        has_generations.then(|| Setting::change(Self::LRU_GENERATIONS, "n"))
    }

    /// A swap-in reads no pages around the one that is asked for. Before 6.14 shared memory is read so from zram as well, where
    /// private memory is not.
    pub fn no_swap_readahead() -> Setting {
        Setting::change("/proc/sys/vm/page-cluster", "0")
    }

    /// zswap: what goes to a swap file or a disk from now on is compressed in front of it.
    pub fn zswap() -> Setting {
        Setting::change("/sys/module/zswap/parameters/enabled", "Y")
    }

    /// So many huge pages (hugetlbfs) beyond those that the machine has.
    pub fn huge_pages(count: u64) -> Setting {
        let before: u64 = text::read_number(Self::HUGE_PAGES).expect("this test needs hugetlbfs");
        let reserved = Setting::change(Self::HUGE_PAGES, &(before + count).to_string());
        let there: u64 = text::read_number(Self::HUGE_PAGES).expect("read");
        assert_eq!(there, before + count, "no memory for huge pages");
        reserved
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::write(self.path, &self.before);
    }
}

/// Pages that have gone into zswap and come out of it since the machine began.
pub fn zswap_counters() -> [u64; 2] {
    ["zswpout ", "zswpin "].map(|name| {
        let count = text::read_field("/proc/vmstat", name);
        count.expect("this test needs a kernel that counts zswap's pages (5.16)")
    })
}

/// Turns off what has to be swap.
fn turn_off(path: &Path) {
    let was_swap = swaps::turn_off(path).expect("turn swap off");
    assert!(was_swap, "{} is not swap", path.display());
}

/// Runs a program that has to succeed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("these tests need {program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
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
        write_clean(&path, pages);
        path
    }

    /// A file whose path is nearly as long as one may be.
    pub fn file_of_long_path(&self) -> PathBuf {
        const PATH_BYTES: usize = 4_000;
        let mut directory = self.0.clone();
        while directory.as_os_str().len() < PATH_BYTES - 200 {
            directory.push("d".repeat(199));
        }
        std::fs::create_dir_all(&directory).expect("make directories");
        let file = directory.join("f");
        write_clean(&file, 1);
        file
    }

    /// So many copies of bash, on the disk and clean, and a shell's command line that runs one after the other.
    pub fn programs(&self, count: usize) -> (Vec<PathBuf>, String) {
        let paths: Vec<PathBuf> = (0..count)
            .map(|n| self.path(&format!("bash-{n}")))
            .collect();
        for path in &paths {
            std::fs::copy("/bin/bash", path).expect("copy");
            File::open(path).expect("open").sync_all().expect("sync");
        }
        let runs: Vec<String> = paths
            .iter()
            .map(|p| format!("{} -c :", p.display()))
            .collect();
        (paths, runs.join("; "))
    }
}

/// Makes a file of so many pages, on the disk and clean.
pub fn write_clean(path: &Path, pages: u64) {
    let contents = vec![b'x'; (pages * crate::page::page_size()) as usize];
    std::fs::write(path, contents).expect("write a file");
    File::open(path)
        .and_then(|file| file.sync_all())
        .expect("sync a file");
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file system of its own on a loop device, taken down at the end.
pub struct Disk {
    directory: Directory,
    /// The loop device.
    pub device: PathBuf,
}

impl Disk {
    /// Makes one of so many bytes (which take no room until they are written), with this mkfs command.
    pub fn new(mkfs: &[&str], bytes: u64) -> Disk {
        let directory = Directory::new();
        let image = directory.path("image");
        let file = File::create(&image).and_then(|file| file.set_len(bytes));
        file.expect("make an image");
        let image = image.to_str().expect("a path that is text");
        let device = run("losetup", &["--find", "--show", image]);
        let disk = Disk {
            directory,
            device: device.trim_end().into(),
        };
        let device = disk.device.to_str().expect("text");
        run(mkfs[0], &[&mkfs[1..], &[device]].concat());
        std::fs::create_dir(disk.path("")).expect("mkdir");
        disk.mount();
        disk
    }

    fn mount(&self) {
        let (device, directory) = (self.device.to_str(), self.path(""));
        run(
            "mount",
            &[device.expect("text"), directory.to_str().expect("text")],
        );
    }

    /// Takes it down and up again: nothing of it is in memory then.
    pub fn remount(&self) {
        run("umount", &[self.path("").to_str().expect("text")]);
        self.mount();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path("mount").join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path(""));
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.device)
            .status();
    }
}

/// Takes a file system down, as soon as threads that end have closed their files there.
pub fn unmount(directory: &Path) {
    for _ in 0..200 {
        match rustix::mount::unmount(directory, rustix::mount::UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) => crate::sched::sleep_us(10_000),
            _ => return,
        }
    }
}

/// Tries for up to half a minute: machines are busy with other things, too, and some threads yield to these.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    within_half_minutes(1, what, holds);
}

/// The same for so many half minutes: for what is done behind all else, and has much to do.
pub fn within_half_minutes(half_minutes: u32, what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..half_minutes * 3_000 {
        if holds() {
            return;
        }
        crate::sched::sleep_us(10_000);
    }
    panic!("not within {half_minutes} half minutes: {what}");
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

/// Whether one of them is readable now.
pub fn is_readable<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    let mut fds: Vec<PollFd<'_>> = fds
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).expect("poll") > 0
}
