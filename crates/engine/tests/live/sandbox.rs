//! A sandbox: a mount namespace in which one directory is at another's place.

use prepage_kernel::testing::machine::Directory;
use std::path::{Path, PathBuf};

/// Size of the files of a sandbox.
pub const FILE_PAGES: u64 = 256;

/// Mounts one directory at another's place, and executes what follows.
const MOUNT: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;

/// Words that run what follows as the child of a process that stays outside of what that enters.
pub const STAYS: [&str; 4] = ["sh", "-c", r#""$@"; exit $?"#, "sh"];

/// Two files of one name, of which what runs in the sandbox finds the first by the path of the second.
pub struct Sandbox {
    pub theirs: PathBuf,
    pub ours: PathBuf,
    _directory: Directory,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        let directory = Directory::new();
        let [theirs, ours] = ["theirs", "ours"].map(|side| {
            std::fs::create_dir(directory.path(side)).expect("mkdir");
            directory.file(&format!("{side}/file"), FILE_PAGES)
        });
        Sandbox {
            theirs,
            ours,
            _directory: directory,
        }
    }

    /// Words that run in it what follows.
    pub fn words(&self) -> Vec<&str> {
        let places = [&self.theirs, &self.ours];
        let places = places.map(|file| file.parent().and_then(Path::to_str).expect("text"));
        let enters = ["unshare", "--mount", "sh", "-c", MOUNT, "sh"];
        [&enters[..], &places].concat()
    }
}
