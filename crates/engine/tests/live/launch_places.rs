//! Launches whose files lie elsewhere than on ext4 below our root directory: tracepoints, stat and we name them differently in
//! another root directory, on overlays and on subvolumes; on tmpfs there is nothing to read.

use crate::disks::Overlay;
use crate::launch_rig::{LaunchRig, WAIT_MAX, accesses, cached, pages, plan, prefetched, recorded};
use crate::rig::needs_access_reports;
use crate::sandbox::{FILE_PAGES, STAYS, Sandbox};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::identity::FileId;
use prepage_core::launch::manager::Decision;
use prepage_core::launch::plan::{LaunchPlan, PlannedRead};
use prepage_core::launch::recording::Recording;
use prepage_engine::LaunchResult;
use prepage_kernel::page::page_size;
use prepage_kernel::process;
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::held::HeldCommand;
use prepage_kernel::testing::machine::{
    Directory, Disk, Machine, eventually, run, unmount, write_clean,
};
use prepage_kernel::testing::page_cache::drop_cache;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file of this path in a recording, and the pages of it that were accessed for certain.
fn of_file(recording: &Recording, path: &Path) -> (FileId, ExtentSet) {
    let is_it = |file: &FileId| Path::new(&*file.path) == path;
    let at = recording.files.iter().position(is_it);
    let at = at.unwrap_or_else(|| panic!("{} in {:?}", path.display(), recording.files));
    let of_file = recording.accesses.iter();
    let certain = of_file.filter(|access| access.file as usize == at && access.is_certain);
    let accessed = certain.map(|access| access.extent).collect();
    (recording.files[at].clone(), accessed)
}

/// What the child does to a file that it knows by `path` is recorded, and fetched: `backing` is where we find its pages.
fn is_recorded_and_fetched(child: &mut Child, path: &Path, backing: &Path) {
    let rig = LaunchRig::new();
    drop_cache(backing);
    let record = |child: &mut Child, action: &str, first: u64| {
        rig.begin(1, child.pid(), recorded());
        child.tell_file(action, path, first, 4);
        rig.launches.settled(1);
        let result = rig.result();
        of_file(&result.recording.expect("recorded"), path)
    };
    let (file, accessed) = record(child, "readfile", 8);
    assert_eq!(accessed, pages(&[(8, 4)]));
    let plan = LaunchPlan {
        files: vec![file.clone()],
        reads: vec![PlannedRead {
            file: 0,
            extent: Extent::new(8, 4),
        }],
        ..LaunchPlan::default()
    };
    drop_cache(backing);
    for fetched in [4, 0] {
        rig.begin(2, child.pid(), prefetched(plan.clone()));
        assert!(rig.launches.wait_prefetched(2, WAIT_MAX));
        rig.launches.settled(2);
        let result = rig.result();
        assert_eq!(cached(backing), pages(&[(8, 4)]));
        assert_eq!(result.prefetch.expect("prefetched").pages, fetched);
        assert!(result.measured.stale_files.is_empty());
    }
    // A file that is mapped is named as one that is read.
    let (mapped, accessed) = record(child, "mapfile", 64);
    assert_eq!(mapped, file);
    assert!(accessed.contains(64), "{accessed:?}");
}

#[test]
fn on_an_overlay() {
    let _machine = Machine::lock();
    let overlay = Overlay::new();
    let (path, lower) = (overlay.file_in("mount"), overlay.file_in("lower"));
    is_recorded_and_fetched(&mut Child::spawn(1), &path, &lower);
}

#[test]
fn on_a_subvolume() {
    let _machine = Machine::lock();
    needs_access_reports();
    let disk = Disk::new(&["mkfs.btrfs", "-q"], 128 << 20);
    let path = disk.path("file");
    write_clean(&path, 256);
    is_recorded_and_fetched(&mut Child::spawn(1), &path, &path);
}

#[test]
fn in_a_root_directory_that_is_no_mount_point() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let root = directory.path("root");
    std::fs::create_dir(&root).expect("mkdir");
    let file = directory.file("root/file", 256);
    let mut child = Child::spawn(1);
    child.chroot(&root);
    is_recorded_and_fetched(&mut child, Path::new("/file"), &file);
}

/// What a launch's process means by a path in the sandbox that the launch made is another file outside.
#[test]
fn in_a_sandbox_that_the_launch_makes() {
    let (_machine, sandbox) = (Machine::lock(), Sandbox::new());
    let (theirs, ours) = (&sandbox.theirs, &sandbox.ours);
    let mut child = Child::spawn_through(&[&STAYS[..], &sandbox.words()].concat(), 1);
    let root_pid = process::stat(child.pid()).expect("alive").ppid;
    let rig = LaunchRig::new();
    for (action, first) in [("readfile", 8), ("mapfile", 64)] {
        drop_cache(theirs);
        rig.begin(1, root_pid, recorded());
        child.tell_file(action, ours, first, 4);
        rig.launches.settled(1);
        let recording = rig.result().recording.expect("recorded");
        let (_, accessed) = of_file(&recording, theirs);
        assert!(accessed.contains(first), "{action}: {accessed:?}");
        let is_ours = |file: &FileId| Path::new(&*file.path) == ours.as_path();
        assert!(!recording.files.iter().any(is_ours), "{action}");
    }
}

/// The same of a sandbox that is made while the launch is recorded, and of a process in it that has ended.
#[test]
fn in_a_sandbox_that_is_made_meanwhile() {
    const READS_AND_STAYS: &str = r#"cat "$1" > /dev/null; exec sleep 60"#;
    let (_machine, sandbox) = (Machine::lock(), Sandbox::new());
    let theirs = &sandbox.theirs;
    let reads = [
        "sh",
        "-c",
        READS_AND_STAYS,
        "sh",
        sandbox.ours.to_str().expect("text"),
    ];
    let stays = ["sh", "-c", r#""$@" & echo $!; wait"#, "sh"];
    let held = HeldCommand::new(&[&stays[..], &sandbox.words(), &reads].concat());
    drop_cache(theirs);
    let rig = LaunchRig::new();
    rig.begin(1, held.pid(), recorded());
    let mut running = held.release();
    let pid: i32 = running.line().parse().expect("a pid");
    eventually("it stays", || {
        process::exe(pid).is_ok_and(|exe| exe.ends_with("sleep"))
    });
    rig.launches.settled(1);
    let recording = rig.result().recording.expect("recorded");
    let (_, accessed) = of_file(&recording, theirs);
    assert_eq!(accessed, pages(&[(0, FILE_PAGES)]));
    run("kill", &[&pid.to_string()]);
    running.finish();
}

#[test]
fn paths_of_a_traced_launch_are_those_outside_of_its_sandbox() {
    let (_machine, sandbox) = (Machine::lock(), Sandbox::new());
    let (theirs, ours) = (&sandbox.theirs, &sandbox.ours);
    let missing = ours.with_file_name("missing");
    let reads = [
        "cat",
        ours.to_str().expect("text"),
        missing.to_str().expect("text"),
    ];
    let held = HeldCommand::new(&[&sandbox.words()[..], &reads].concat());
    let rig = LaunchRig::new();
    rig.begin_traced(1, held.pid());
    let (output, _) = held.run();
    assert_eq!(output.len() as u64, FILE_PAGES * page_size());
    let recording = rig.result().recording.expect("recorded");
    let is_called = |path: &Path| {
        let mut calls = recording.calls.iter();
        calls.any(|call| Path::new(&*call.path) == path)
    };
    assert!(is_called(theirs), "{:?}", recording.calls);
    assert!(is_called(&theirs.with_file_name("missing")));
    assert!(!is_called(ours) && !is_called(&missing));
    assert!(recording.is_path_profile);
}

const DATA_PAGES: u64 = 64;

/// A program and its data in this directory.
fn program_in(directory: &Path) -> [PathBuf; 2] {
    let [program, data] = ["program", "data"].map(|name| directory.join(name));
    std::fs::copy("/bin/cat", &program).expect("copy");
    write_clean(&data, DATA_PAGES);
    [program, data]
}

/// Has it launched, which reads its data and prints it.
fn launched(rig: &LaunchRig, program: &[PathBuf; 2], id: u64, decision: Decision) -> LaunchResult {
    let words = program.each_ref().map(|path| path.to_str().expect("text"));
    let held = HeldCommand::new(&words);
    rig.begin(id, held.pid(), decision);
    assert!(rig.launches.wait_prefetched(id, WAIT_MAX));
    let (output, status) = held.run();
    let bytes = DATA_PAGES * page_size();
    assert_eq!((output.len() as u64, status), (bytes, 0));
    assert!(output.bytes().all(|byte| byte == b'x'));
    rig.result()
}

/// Pages that it has for sure.
const PROGRAM_PAGES: u64 = 4;

/// A plan of both.
fn plan_of([program, data]: &[PathBuf; 2]) -> LaunchPlan {
    let reads = [(&**program, 0, PROGRAM_PAGES), (&**data, 0, DATA_PAGES)];
    plan(&reads, Vec::new())
}

#[test]
fn on_xfs() {
    let _machine = Machine::lock();
    needs_access_reports();
    let disk = Disk::new(&["mkfs.xfs", "-q"], 300 << 20);
    let path = disk.path("file");
    write_clean(&path, 256);
    is_recorded_and_fetched(&mut Child::spawn(1), &path, &path);

    let program = program_in(&disk.path(""));
    let rig = LaunchRig::new();
    disk.remount();
    let recording = launched(&rig, &program, 1, recorded()).recording;
    let recording = recording.expect("recorded");
    let (_, accessed) = of_file(&recording, &program[1]);
    assert_eq!(accessed, pages(&[(0, DATA_PAGES)]));
    assert!(of_file(&recording, &program[0]).1.contains(0));
    let plan = plan_of(&program);
    disk.remount();
    let helped = launched(&rig, &program, 2, prefetched(plan));
    let fetched = helped.prefetch.expect("prefetched").pages;
    assert_eq!(fetched, PROGRAM_PAGES + DATA_PAGES);
    assert!(helped.measured.stale_files.is_empty());
}

/// What is there is in memory, or was swapped out.
#[test]
fn on_tmpfs_a_program_runs_and_nothing_of_it_is_recorded_or_fetched() {
    let (_machine, directory) = (Machine::lock(), Directory::new());
    needs_access_reports();
    let directory = Tmpfs::at(directory);
    let program = program_in(&directory.0.0);
    let rig = LaunchRig::new();
    let recording = launched(&rig, &program, 1, recorded()).recording;
    let recording = recording.expect("recorded");
    assert_eq!(accesses(&recording, &directory.0.0), []);
    assert!(!recording.accesses.is_empty(), "of libraries");
    let helped = launched(&rig, &program, 2, prefetched(plan_of(&program)));
    assert_eq!(helped.prefetch.expect("prefetched").pages, 0);
    assert!(helped.measured.stale_files.is_empty());
}

/// A file system in memory, taken down at the end.
struct Tmpfs(Directory);

impl Tmpfs {
    fn at(directory: Directory) -> Tmpfs {
        let point = directory.0.to_str().expect("text");
        run("mount", &["-t", "tmpfs", "tmpfs", point]);
        Tmpfs(directory)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(&self.0.0);
    }
}

/// It was opened before the launch, so that only the process itself tells its path.
#[test]
fn a_file_that_is_open_on_a_subvolume_has_its_name() {
    let _machine = Machine::lock();
    needs_access_reports();
    let disk = Disk::new(&["mkfs.btrfs", "-q"], 128 << 20);
    let path = disk.path("file");
    write_clean(&path, 256);
    let script = r#"exec 3<"$1"; echo; read -r go; cat <&3 >/dev/null; echo; read -r end"#;
    let mut shell = Command::new("sh")
        .args(["-c", script, "sh", path.to_str().expect("text")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run a shell");
    let mut stdout = BufReader::new(shell.stdout.take().expect("piped"));
    let mut answers = || stdout.read_line(&mut String::new()).expect("read");
    answers();
    let rig = LaunchRig::new();
    rig.begin(1, shell.id().cast_signed(), recorded());
    let mut stdin = shell.stdin.take().expect("piped");
    stdin.write_all(b"go\n").expect("write");
    answers();
    rig.launches.settled(1);
    let recording = rig.result().recording.expect("recorded");
    let (_, accessed) = of_file(&recording, &path);
    assert_eq!(accessed, pages(&[(0, 256)]));
    drop(stdin);
    shell.wait().expect("wait");
}

/// A root directory with our programs, taken down at the end.
struct Root(Directory);

impl Root {
    fn new() -> Root {
        let root = Root(Directory::new());
        for name in ["bin", "lib", "lib64"] {
            let link = PathBuf::from("usr").join(name);
            std::os::unix::fs::symlink(link, root.0.path(name)).expect("symlink");
        }
        let usr = root.0.path("usr");
        std::fs::create_dir(&usr).expect("mkdir");
        run("mount", &["--bind", "/usr", usr.to_str().expect("text")]);
        root
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        unmount(&self.0.path("usr"));
    }
}

#[test]
fn paths_of_a_traced_launch_are_those_below_its_root_directory() {
    let (_machine, root) = (Machine::lock(), Root::new());
    needs_access_reports();
    std::fs::create_dir(root.0.path("directory")).expect("mkdir");
    root.0.file("directory/file", 8);
    // The traced process is not our child: we would take the status of its end away from whoever traces it.
    const SHELL: &str = r#"exec 3<&0; chroot "$1" sh -c "$2" <&3 & echo $!; exec 3<&-; wait $!"#;
    let script = "cd directory; echo ready; read -r go; exec cat file";
    let mut shell = Command::new("sh")
        .args(["-c", SHELL, "sh", root.0.0.to_str().expect("text"), script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run a shell");
    let stdout = shell.stdout.take().expect("piped");
    let mut stdout = BufReader::new(stdout);
    let mut line = || {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("read");
        line.trim().to_owned()
    };
    // In whichever order they come.
    let mut lines = [line(), line()];
    lines.sort();
    let pid = lines[0].parse().expect("a pid");
    let rig = LaunchRig::new();
    rig.begin_traced(1, pid);
    let mut stdin = shell.stdin.take().expect("piped");
    stdin.write_all(b"go\n").expect("write");
    std::io::copy(&mut stdout, &mut std::io::sink()).expect("read");
    shell.wait().expect("wait");
    let recording = rig.result().recording.expect("recorded");
    let (_, accessed) = of_file(&recording, Path::new("/directory/file"));
    assert_eq!(accessed, pages(&[(0, 8)]));
    let cat = recording
        .files
        .iter()
        .any(|file| file.path.ends_with("/cat"));
    assert!(cat, "{:?}", recording.files);
    let mut called = recording.calls.iter().map(|call| &*call.path);
    assert!(
        called.any(|path| path == "/directory/file"),
        "{:?}",
        recording.calls
    );
    assert!(recording.is_path_profile);
}
