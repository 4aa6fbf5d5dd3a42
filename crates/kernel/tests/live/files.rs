//! Files: the page cache, opening below a root, another user's rights, fanotify, block devices.

use prepage_kernel::block::BlockDevice;
use prepage_kernel::open::{FileKind, fstat, open_in_root, process_root, read_directory_in_root};
use prepage_kernel::open::{cached_stat_in_root, look_up_in_root, lstat_in_root, stat_in_root};
use prepage_kernel::readahead;
use prepage_kernel::testing::hanging::HangingMount;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::{cached_of, drop_cache};
use prepage_kernel::testing::sleeping::Sleeping;
use prepage_kernel::{cachestat, credentials, fanotify, fds, mincore, mountinfo, page, process};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

#[test]
fn cachestat_and_mincore_agree() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let file = File::open(directory.file("f", 256)).expect("open");
    let bytes = 256 * page::page_size();
    let both = || {
        let cached = cachestat::cachestat(file.as_fd(), 0, bytes)
            .expect("this test needs cachestat (6.5)")
            .cached;
        let resident = mincore::resident(file.as_fd(), 0, bytes).expect("mincore");
        assert_eq!(resident.len(), 256);
        assert_eq!(
            resident.iter().filter(|&&resident| resident).count() as u64,
            cached
        );
        cached
    };
    assert_eq!(both(), 256);
    readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
    assert_eq!(both(), 0);
    readahead::readahead(file.as_fd(), 16 * page::page_size(), 8 * page::page_size())
        .expect("readahead");
    // In the cache from submission on, up to date once read.
    eventually("the readahead is done", || {
        let resident =
            mincore::resident(file.as_fd(), 16 * page::page_size(), 8 * page::page_size());
        resident.expect("mincore").iter().all(|&resident| resident)
    });
    assert_eq!(both(), 8);
    readahead::fadvise_dontneed(file.as_fd(), 0, 0).expect("drop");
    assert_eq!(mincore::resident(file.as_fd(), 5, 0).expect("nothing"), []);
    let unaligned = mincore::resident(file.as_fd(), page::page_size() - 1, 2).expect("two pages");
    assert_eq!(unaligned.len(), 2);
}

#[test]
fn the_readahead_cap_is_what_the_settings_say() {
    /// More than devices take at once.
    const ASKED_BYTES: u64 = 32 << 20;
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file("large", ASKED_BYTES / page::page_size());
    let device = BlockDevice::of_path(&path).expect("/var/tmp lies on a block device");
    let file = File::open(&path).expect("open");
    drop_cache(&path);
    readahead::readahead(file.as_fd(), 0, ASKED_BYTES).expect("readahead");
    let claimed = device.readahead_cap_kib().expect("settings") * 1024;
    let cap_pages = claimed.min(ASKED_BYTES) / page::page_size();
    assert!(cap_pages > 0);
    eventually("as much is read as the settings say", || {
        cached_of(&file, 0, ASKED_BYTES / page::page_size()) >= cap_pages
    });
    assert_eq!(
        cached_of(&file, 0, ASKED_BYTES / page::page_size()),
        cap_pages,
        "of {}",
        device.name()
    );
}

#[test]
fn the_queue_settings_of_a_disk_are_read() {
    let device = BlockDevice::of_path(Path::new("/")).expect("/ lies on a block device");
    let read_ahead = device.read_ahead_kib().expect("read");
    assert!(device.readahead_cap_kib().expect("read") >= read_ahead);
    assert!(device.max_sectors_kib().expect("read") > 0);
    device.rotational().expect("read");
    assert!(
        BlockDevice::of_path(Path::new("/proc"))
            .expect_err("no device")
            .is_not_found()
    );
}

/// The source of any other may be what a user likes, as the path of a server that does not answer.
#[test]
fn a_device_is_looked_up_by_what_root_alone_mounts() {
    let device = BlockDevice::of_path(Path::new("/")).expect("/ lies on a block device");
    let of_mount = |fs_type: &str, number: &str| {
        let name = device.name();
        let line = format!("1 0 {number} / / rw - {fs_type} /dev/{name} rw");
        let mounts = mountinfo::parse(line.as_bytes()).expect("well formed");
        BlockDevice::of_mount(&mounts[0]).ok()
    };
    assert_eq!(of_mount("btrfs", "0:1").as_ref(), Some(&device));
    assert_eq!(of_mount("bcachefs", "0:1").as_ref(), Some(&device));
    for fs_type in ["fuse.btrfs", "fuse", "tmpfs", "overlay"] {
        assert_eq!(of_mount(fs_type, "0:1"), None, "{fs_type}");
    }
    let dev = std::fs::metadata(format!("/dev/{}", device.name()));
    let dev = dev.expect("this test needs /dev").rdev();
    let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    assert_eq!(of_mount("ext4", &number).as_ref(), Some(&device));
}

#[test]
fn only_regular_files_below_the_root_are_opened() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let inside = directory.file("file", 2);
    std::fs::create_dir(directory.path("sub")).expect("mkdir");
    symlink("/file", directory.path("absolute")).expect("symlink");
    symlink("../../../../etc/passwd", directory.path("escape")).expect("symlink");
    let fifo = directory.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).expect("mkfifo");
    let device = directory.path("device");
    mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::RUSR,
        rustix::fs::makedev(5, 0),
    )
    .expect("mknod");
    let root = directory_fd(&directory.0);

    for path in ["file", "/file", "absolute", "/sub/../../file"] {
        let (fd, stat) = open_in_root(root.as_fd(), Path::new(path)).expect(path);
        assert_eq!(stat.inode, std::fs::metadata(&inside).expect("stat").ino());
        assert_eq!(
            (stat.size_bytes, stat.kind),
            (2 * page::page_size(), FileKind::Regular)
        );
        assert_eq!(fstat(fd.as_fd()).expect("fstat"), stat);
    }
    for path in ["fifo", "device", "sub"] {
        let error = open_in_root(root.as_fd(), Path::new(path)).expect_err(path);
        assert_eq!(error.errno(), None, "{error}");
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
    assert!(
        open_in_root(root.as_fd(), Path::new("escape"))
            .expect_err("outside")
            .is_not_found()
    );
    assert!(
        open_in_root(root.as_fd(), Path::new("missing"))
            .expect_err("missing")
            .is_not_found()
    );
    let magic = format!(
        "/proc/self/fd/{}",
        File::open(&inside).expect("open").as_raw_fd()
    );
    let error = open_in_root(
        process_root(process::own_pid()).expect("/").as_fd(),
        Path::new(&magic),
    )
    .expect_err("magic link");
    assert!(error.errno().is_some(), "{error}");

    assert_eq!(
        stat_in_root(root.as_fd(), Path::new("fifo"))
            .expect("stat")
            .kind,
        FileKind::Special
    );
    assert_eq!(
        stat_in_root(root.as_fd(), Path::new("absolute"))
            .expect("stat")
            .kind,
        FileKind::Regular
    );
    assert!(look_up_in_root(root.as_fd(), Path::new("absolute")));
    assert!(!look_up_in_root(root.as_fd(), Path::new("absent")));
    assert_eq!(
        lstat_in_root(root.as_fd(), Path::new("absolute"))
            .expect("lstat")
            .kind,
        FileKind::Symlink
    );
    assert_eq!(
        read_directory_in_root(root.as_fd(), Path::new("/"), 100).expect("readdir"),
        6 + 2
    );
    assert_eq!(
        read_directory_in_root(root.as_fd(), Path::new("/"), 3).expect("readdir"),
        3
    );
    assert!(read_directory_in_root(root.as_fd(), Path::new("file"), 3).is_err());
    let own = process_root(process::own_pid()).expect("own root");
    assert!(stat_in_root(own.as_fd(), &inside).is_ok());
}

#[test]
fn what_the_caches_hold_of_a_path_is_told_without_waiting() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file("file", 3);
    symlink(&path, directory.path("link")).expect("symlink");
    let root = process_root(process::own_pid()).expect("/");
    let ask = |path: &Path| cached_stat_in_root(root.as_fd(), path);
    let stat = stat_in_root(root.as_fd(), &path).expect("stat");
    assert_eq!(ask(&path).expect("it was just looked up"), stat);
    let inside = directory_fd(&directory.0);
    assert_eq!(
        cached_stat_in_root(inside.as_fd(), Path::new("/file")).expect("stat"),
        stat
    );
    let point = directory.path("hanging");
    std::fs::create_dir(&point).expect("mkdir");
    let hanging = HangingMount::at(&point);
    let again = Some(rustix::io::Errno::AGAIN.raw_os_error());
    let error = ask(&hanging.0.join("x")).expect_err("nobody answers");
    assert_eq!(error.errno(), again);
    symlink(hanging.0.join("x"), directory.path("leads there")).expect("symlink");
    for name in ["leads there", "missing"] {
        assert!(ask(&directory.path(name)).is_err(), "{name}");
    }
}

fn directory_fd(path: &Path) -> OwnedFd {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).expect("open a directory")
}

#[test]
fn another_users_rights_hold_for_this_thread_only_and_end() {
    const NOBODY: u32 = 65_534;
    let _machine = Machine::lock();
    let directory = Directory::new();
    std::fs::set_permissions(&directory.0, Permissions::from_mode(0o755)).expect("chmod");
    let secret = directory.file("secret", 1);
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("chmod");
    let public = directory.file("public", 1);
    std::fs::set_permissions(&public, Permissions::from_mode(0o644)).expect("chmod");
    let group = directory.file("group", 1);
    std::fs::set_permissions(&group, Permissions::from_mode(0o640)).expect("chmod");
    std::os::unix::fs::chown(&group, None, Some(4321)).expect("chown");
    let root = process_root(process::own_pid()).expect("/");
    let open = |path: &Path| open_in_root(root.as_fd(), path).map(|_| ());
    let enter = |groups: &[u32]| {
        let user = credentials::FsUser::enter(NOBODY, NOBODY, Some(groups));
        user.expect("switch to nobody")
    };
    let own = process::own_pid();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let before = process::status(thread).expect("status");

    {
        let _user = enter(&[4321]);
        assert!(open(&secret).expect_err("not for nobody").is_denied());
        open(&public).expect("for everyone, and reopened through /proc/self/fd");
        open(&group).expect("by the supplementary group");
        let now = process::status(thread).expect("status");
        assert_eq!((now.uid.file_system, now.gid.file_system), (NOBODY, NOBODY));
        assert_eq!((now.uid.effective, now.groups), (0, vec![4321]));
        std::thread::scope(|scope| {
            // A thread inherits the rights of the one that makes it, so ask of the main thread.
            scope.spawn(|| assert_eq!(process::status(own).expect("status").uid.file_system, 0));
        });
    }
    {
        let _user = enter(&[]);
        assert!(open(&group).expect_err("not in the group").is_denied());
    }

    let after = process::status(thread).expect("status");
    assert_eq!(
        (after.uid, after.gid, after.groups),
        (before.uid, before.gid, before.groups)
    );
    open(&secret).expect("root again, with its capabilities");
    let panicked = std::panic::catch_unwind(|| {
        let _user = credentials::FsUser::enter(NOBODY, NOBODY, None).expect("switch to nobody");
        panic!("while another user");
    });
    assert!(panicked.is_err());
    open(&secret).expect("root again after a panic");
    assert!(credentials::FsUser::enter(u32::MAX, 0, None).is_err());
    assert_ne!(credentials::effective_capabilities().expect("capget"), 0);
}

#[test]
fn ones_own_rights_are_taken_without_privileges() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let _machine = Machine::lock();
    let own = process::status(process::own_pid()).expect("status");
    let (uid, gid) = (own.uid.file_system, own.gid.file_system);
    std::thread::spawn(move || {
        let mut sets = capabilities(None).expect("capget");
        sets.effective -= CapabilitySet::SETUID | CapabilitySet::SETGID;
        set_capabilities(None, sets).expect("capset");
        let enter = |uid, groups: &[u32]| credentials::FsUser::enter(uid, gid, Some(groups));
        drop(enter(uid, &own.groups).expect("one's own"));
        assert!(enter(uid, &[4321]).is_err() && enter(65_534, &own.groups).is_err());
    })
    .join()
    .expect("no panic");
}

#[test]
fn fanotify_names_what_is_opened() {
    let _machine = Machine::lock();
    let directory = Directory::new();
    let path = directory.file("opened by name", 1);
    let mut group = fanotify::Fanotify::new().expect("these tests need fanotify");
    group.mark_filesystem(&directory.0).expect("mark");
    let file = File::open(&path).expect("open");
    let mut opened = Vec::new();
    let drained = group.drain(4096, |event| opened.push(event));
    assert_eq!((drained.overflows, drained.opened), (0, opened.len()));
    let own = opened
        .iter()
        .find(|event| event.path == path)
        .expect("the file was opened");
    assert_eq!(own.pid, process::own_pid());
    assert_eq!(own.stat, fstat(file.as_fd()).expect("fstat"));
    let files = fds::open_files(process::own_pid()).expect("open files");
    assert!(files.iter().any(|open| open.fd == file.as_raw_fd()
        && open.path == path
        && open.inode == own.stat.inode));
}

#[test]
fn the_paths_of_open_files_are_read_up_to_a_bound() {
    const OPEN: &str = r#"for _ in $(seq "$1"); do exec {fd}<"$0"; done; shift; exec "$@""#;
    const FILES: usize = 4_500;
    const BYTES_MAX: usize = 16 << 20;
    let directory = Directory::new();
    let path = directory.file_of_long_path();
    let (text, count) = (path.to_str().expect("text"), FILES.to_string());
    let process = Sleeping::spawn_through(&["bash", "-c", OPEN, text, &count]);
    let files = fds::open_files(process.pid()).expect("open files");
    let found = files.iter().filter(|file| file.path == path).count();
    // Something else may be open too.
    let bound = BYTES_MAX / path.as_os_str().len();
    assert!(
        found < FILES && (bound - 1..=bound).contains(&found),
        "{found}"
    );
}

#[test]
fn what_cannot_be_opened_for_fanotify_ends_no_drain() {
    /// The thread's descriptors, all of which it uses up.
    const DESCRIPTORS: u64 = 4_096;
    let _machine = Machine::lock();
    let directory = Directory::new();
    let paths = ["a", "b", "c", "d"].map(|name| directory.file(name, 1));
    let limit = getrlimit(Resource::Nofile);
    let current = limit
        .current
        .map_or(DESCRIPTORS, |all| all.min(DESCRIPTORS));
    let lower = Rlimit {
        current: Some(current),
        ..limit
    };
    setrlimit(Resource::Nofile, lower).expect("lower the limit");
    let drains = std::thread::spawn(move || {
        // SAFETY: this thread alone uses what it opens from here on, and closes nothing that others have open in its table.
        unsafe { unshare_unsafe(UnshareFlags::FILES) }.expect("a table of its own");
        let mut group = fanotify::Fanotify::new().expect("these tests need fanotify");
        group.mark_filesystem(&directory.0).expect("mark");
        let open = |path| drop(File::open(path).expect("open"));
        paths[..3].iter().for_each(open);
        let null = File::open("/dev/null").expect("open");
        let copies: Vec<File> = std::iter::from_fn(|| null.try_clone().ok()).collect();
        let full = group.drain(4096, |_| {});
        drop(copies);
        open(&paths[3]);
        let mut opened = Vec::new();
        group.drain(4096, |event| opened.push(event.path));
        (full, opened.contains(&paths[3]))
    });
    let drained = drains.join();
    setrlimit(Resource::Nofile, limit).expect("put the limit back");
    let (full, is_seen) = drained.expect("no panic");
    assert_eq!((full.opened, full.overflows), (0, 0));
    assert!(full.unresolved >= 3, "{full:?}");
    assert!(is_seen, "the next file was opened");
}
