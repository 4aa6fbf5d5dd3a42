//! What make does with the programs that cargo built, wherever that was.

mod common;

use common::TempDir;
use prepage::config::{Config, load};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `make ARGUMENTS` in the project, where cargo builds in `directory`, else where it usually does.
fn make(arguments: &[&str], directory: Option<&Path>) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut make = Command::new("make");
    make.arg("--directory").arg(root).args(arguments);
    make.env_remove("CARGO_TARGET_DIR");
    make.envs(directory.map(|path| ("CARGO_TARGET_DIR", path)));
    let output = make.output().expect("this test needs make");
    assert!(output.status.success(), "{output:?}");
    output
}

/// The lines that `make TARGET` would execute.
fn lines_of(target: &str, directory: Option<&Path>) -> String {
    String::from_utf8(make(&["--dry-run", target], directory).stdout).expect("text")
}

/// The files below a directory, by their paths in it.
fn files_below(directory: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in std::fs::read_dir(&next).expect("list") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.insert(path.strip_prefix(directory).expect("below").to_owned());
            }
        }
    }
    files
}

/// What `make install` sees as built, and where it puts that.
struct Stage {
    _directory: TempDir,
    built: PathBuf,
    destination: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let directory = TempDir::new();
        let built = directory.path().join("built");
        std::fs::create_dir_all(built.join("release")).expect("mkdir");
        for program in ["prepage", "prepage-launch", "prepage-control", "prepaged"] {
            std::fs::write(built.join("release").join(program), "").expect("write");
        }
        Self {
            built,
            destination: directory.path().join("installed"),
            _directory: directory,
        }
    }

    /// `make ARGUMENTS`, below the destination.
    fn make(&self, arguments: &[&str]) {
        let below = format!("DESTDIR={}", self.destination.display());
        make(&[arguments, &[&below]].concat(), Some(&self.built));
    }
}

#[test]
fn programs_are_taken_from_where_cargo_builds_them() {
    for target in [
        "install",
        "demo",
        "bench-fetch",
        "bench-zram",
        "bench-report",
    ] {
        let usual = lines_of(target, None);
        assert!(usual.contains(" target/release"), "{target}: {usual}");
        let elsewhere = lines_of(target, Some(Path::new("/else/where")));
        assert!(
            elsewhere.contains(" /else/where/release"),
            "{target}: {elsewhere}"
        );
        assert!(
            !elsewhere.contains(" target/release"),
            "{target}: {elsewhere}"
        );
    }
}

#[test]
fn what_is_installed_is_removed_again_but_for_settings() {
    let stage = Stage::new();
    let destination = &stage.destination;
    let somebodys = destination.join("usr/local/bin/other");
    std::fs::create_dir_all(somebodys.parent().expect("parent")).expect("mkdir");
    std::fs::write(&somebodys, "").expect("write");
    stage.make(&["install"]);
    let installed = files_below(destination);
    for path in [
        "usr/local/bin/prepage",
        "usr/local/sbin/prepaged",
        "usr/lib/systemd/system/prepaged.service",
        "usr/local/share/man/man1/prepage-run.1",
        "usr/local/share/man/man8/prepaged.8",
        "usr/local/share/gnome-shell/extensions/prepage@prepage.org/extension.js",
        "etc/prepage/prepage.toml",
    ] {
        assert!(installed.contains(Path::new(path)), "{path}: {installed:?}");
    }

    stage.make(&["uninstall"]);
    let left = ["etc/prepage/prepage.toml", "usr/local/bin/other"];
    assert_eq!(
        files_below(destination),
        left.map(PathBuf::from).into(),
        "somebody's own files stay, and nothing of ours but the configuration"
    );
}

#[test]
fn units_start_what_is_installed() {
    let stage = Stage::new();
    let destination = &stage.destination;
    for prefix in ["/usr/local", "/usr"] {
        let prefix_is = format!("PREFIX={prefix}");
        stage.make(&["install", &prefix_is]);
        for unit in ["system/prepaged.service", "user/prepage-agent.service"] {
            let path = destination.join("usr/lib/systemd").join(unit);
            let text = std::fs::read_to_string(path).expect("installed");
            let mut starts = text
                .lines()
                .filter_map(|line| line.strip_prefix("ExecStart="));
            let start = starts.next().expect("a command");
            let program = start.split(' ').next().unwrap_or_default();
            assert!(program.starts_with(prefix), "{unit}: {start}");
            let program = destination.join(program.trim_start_matches('/'));
            assert!(program.is_file(), "{unit}: {start}");
        }
    }
}

/// systemd answers openat2(2) with ENOSYS where set-user-id files are not to be made, since it cannot look at its flags; no file
/// was found below its application's root, and a launch was helped with none. For clocks it allows one character device, and with
/// that denied all block devices before 252: no inode was read by its device.
#[test]
fn the_unit_leaves_the_service_the_calls_that_it_needs() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/prepaged.service");
    let unit = std::fs::read_to_string(unit).expect("a unit");
    let sets = |name: &str| unit.lines().any(|line| line.starts_with(name));
    assert!(sets("ProtectSystem="), "it is read as it is written");
    for taken in [
        "RestrictSUIDSGID=",
        "SystemCallFilter=",
        "PrivateUsers=",
        "ProtectProc=",
        "ProtectClock=",
        "PrivateDevices=",
    ] {
        assert!(!sets(taken), "{taken}");
    }
}

/// What an installation set would stay, whatever the defaults of a later version are.
#[test]
fn the_configuration_that_is_installed_sets_nothing_and_is_not_replaced() {
    let stage = Stage::new();
    let destination = &stage.destination;
    let installed = destination.join("etc/prepage/prepage.toml");

    stage.make(&["install"]);
    let text = std::fs::read_to_string(&installed).expect("installed");
    let sets = |line: &&str| !(line.is_empty() || line.starts_with('#') || line.starts_with('['));
    let set: Vec<&str> = text.lines().filter(sets).collect();
    assert_eq!(set, [""; 0]);
    assert!(text.contains("\n# mode = \"full\"\n"), "{text}");
    assert!(load(Some(&installed)).expect("right") == Config::default());
    let mut check = Command::new(env!("CARGO_BIN_EXE_prepaged"));
    check.arg("--check").arg("--config").arg(&installed);
    let checked = check.output().expect("prepaged");
    assert!(checked.status.success(), "{checked:?}");

    std::fs::write(&installed, "[service]\nmode = \"observe\"\n").expect("written");
    stage.make(&["install"]);
    let text = std::fs::read_to_string(&installed).expect("installed");
    assert_eq!(text, "[service]\nmode = \"observe\"\n");
}

/// swapon and mkswap are in /usr/sbin, which is not in the PATH of an ordinary user of Debian.
#[test]
fn nothing_is_installed_for_a_build_where_all_is_there() {
    let directory = TempDir::new();
    // Instead of Debian's: nothing is installed here.
    let apt_get = directory.path().join("apt-get");
    std::fs::write(&apt_get, "#!/bin/sh\nexit 1\n").expect("written");
    std::fs::set_permissions(&apt_get, PermissionsExt::from_mode(0o755)).expect("set");
    let cargo = Path::new(env!("CARGO")).parent().expect("a directory");
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        directory.path().display(),
        cargo.display()
    );
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
    let mut command = Command::new(setup);
    let output = command.arg("build").env("PATH", path).output();
    let output = output.expect("executed");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{output:?}");
}
