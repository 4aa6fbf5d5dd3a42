//! From inodes, as tracepoints name files, to versions of files.

use crate::members::Member;
use crate::observe::files::InodeKey;
use crate::observe::opens::Opening;
use prepage_core::identity::FileId;
use prepage_kernel::fds::{self, OpenFile};
use prepage_kernel::maps;
use prepage_kernel::mountinfo::{self, Devices, Mount};
use prepage_kernel::open::{FileStat, process_root_path};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most paths remembered for one application.
const PATHS_MAX: usize = 4096;

/// Longest path remembered, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// How the files of an application are to be understood from outside of it.
#[derive(Debug)]
pub struct View {
    /// Its root directories, as paths of ours.
    roots: Vec<PathBuf>,
    /// The devices of what is mounted, here and there.
    devices: Devices,
}

impl View {
    /// That of the application of these processes, one for each root directory that it has. What cannot be read is taken
    /// to be as here.
    pub fn of(pids: impl IntoIterator<Item = i32>) -> Self {
        let (mut devices, mut roots) = (Devices::here(), Vec::new());
        for pid in pids {
            devices.add(&mountinfo::read_of(pid).unwrap_or_default());
            roots.push(process_root_path(pid).unwrap_or_else(|_| PathBuf::from("/")));
        }
        Self { roots, devices }
    }

    /// Takes in what is mounted elsewhere too.
    pub fn add(&mut self, mounts: &[Mount]) {
        self.devices.add(mounts);
    }

    /// The file that was opened, as tracepoints name it; `None` where its mount is none that the application has.
    pub fn key_of(&self, opening: &Opening) -> Option<InodeKey> {
        let device = self.devices.of_file(opening.mount_id, opening.dev)?;
        Some((device, opening.inode))
    }

    /// The file that a process holds open, likewise.
    pub fn key_of_open(&self, file: &OpenFile) -> Option<InodeKey> {
        let device = self.devices.of_file(file.mount_id, file.dev)?;
        Some((device, file.inode))
    }

    /// The file that is mapped, as tracepoints name it.
    pub fn key_of_mapped(&self, device: (u32, u32), inode: u64) -> InodeKey {
        (self.devices.of_mapping(device), inode)
    }

    /// A path of ours as the application means it; `None` where it has none for it, or one that is not text.
    pub fn in_root(&self, path: &Path) -> Option<String> {
        let mut roots = self.roots.iter();
        let below = roots.find_map(|root| path.strip_prefix(root).ok())?;
        Some(format!("/{}", below.to_str()?))
    }
}

/// The paths of the inodes that one application accessed. `None`: it was looked for and not found.
#[derive(Debug, Default)]
pub struct Paths {
    by_inode: HashMap<InodeKey, Option<Arc<str>>>,
}

impl Paths {
    /// Where there is no room for more, forgets what was not found, or all: of that, what the tables have is remembered again, and
    /// what is open or mapped is found again.
    pub fn make_room(&mut self) {
        if self.by_inode.len() < PATHS_MAX {
            return;
        }
        self.by_inode.retain(|_, path| path.is_some());
        if self.by_inode.len() > PATHS_MAX / 2 {
            self.by_inode.clear();
        }
    }

    /// Remembers the file that an inode was.
    pub fn remember(&mut self, file: &FileId) {
        self.insert((file.device, file.inode), &file.path);
    }

    /// The path that an inode was last known by.
    pub fn get(&self, key: &InodeKey) -> Option<&Arc<str>> {
        self.by_inode.get(key)?.as_ref()
    }

    /// Whether an inode was never looked for.
    pub fn is_new(&self, key: &InodeKey) -> bool {
        !self.by_inode.contains_key(key)
    }

    /// Remembers that the path of an inode is not to be found, or names another file now.
    pub fn give_up(&mut self, key: InodeKey) {
        self.keep(key, None);
    }

    /// Takes the paths that these processes opened.
    pub fn learn(&mut self, openings: &[Opening], pids: &BTreeSet<i32>, view: &View) {
        for opening in openings
            .iter()
            .filter(|opening| pids.contains(&opening.pid))
        {
            if let Some(key) = view.key_of(opening) {
                self.insert_path(key, view, &opening.path);
            }
        }
    }

    /// Looks for paths among what the processes hold open.
    pub fn find_opened(&mut self, members: &[Arc<Member>], view: &View) {
        for member in members {
            for file in fds::open_files(member.instance.pid).unwrap_or_default() {
                if let Some(key) = view.key_of_open(&file) {
                    self.insert_path(key, view, &file.path);
                }
            }
        }
    }

    /// Looks for paths among what the processes map.
    pub fn find_mapped(&mut self, members: &[Arc<Member>], view: &View) {
        for member in members {
            for mapping in maps::read(member.instance.pid).unwrap_or_default() {
                if let (Some(path), false) = (&mapping.path, mapping.deleted) {
                    let key = view.key_of_mapped(mapping.dev, mapping.inode);
                    self.insert_path(key, view, path);
                }
            }
        }
    }

    fn insert_path(&mut self, key: InodeKey, view: &View, path: &Path) {
        // A path that is not text cannot be shipped or shown; its pages stay with demand paging, as those of a file
        // that lies outside of the application's root directory.
        let path = view.in_root(path);
        if let (Some(path), None) = (path, self.get(&key)) {
            self.insert(key, &path);
        }
    }

    fn insert(&mut self, key: InodeKey, path: &str) {
        if path.len() <= PATH_BYTES_MAX {
            self.keep(key, Some(path.into()));
        }
    }

    fn keep(&mut self, key: InodeKey, path: Option<Arc<str>>) {
        if self.by_inode.len() < PATHS_MAX || self.by_inode.contains_key(&key) {
            self.by_inode.insert(key, path);
        }
    }
}

/// The version of a file that `stat` tells.
pub fn version_of(path: Arc<str>, device: (u32, u32), stat: &FileStat) -> FileId {
    FileId {
        path,
        device,
        inode: stat.inode,
        size: stat.size_bytes,
        mtime_ns: i64::try_from(stat.mtime_ns).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::hanging::HangingMount;
    use prepage_kernel::testing::machine::Directory;
    use prepage_kernel::testing::sleeping::Sleeping;

    #[test]
    fn an_application_that_runs_for_long_has_room_for_the_files_that_it_comes_to_use() {
        let file = |inode: u64| FileId {
            path: format!("/{inode}").into(),
            device: (8, 1),
            inode,
            size: 1,
            mtime_ns: 1,
        };
        let key = |inode: u64| ((8, 1), inode);
        let is_known = |paths: &Paths, inode: u64| paths.get(&key(inode)).is_some();
        let all = PATHS_MAX as u64;
        let mut paths = Paths::default();
        (0..all - 100).for_each(|inode| paths.give_up(key(inode)));
        (all - 100..all).for_each(|inode| paths.remember(&file(inode)));
        paths.remember(&file(all));
        assert!(!is_known(&paths, all), "no room");
        paths.remember(&file(0));
        paths.give_up(key(all - 1));
        assert!(is_known(&paths, 0), "it is there already");
        assert!(!is_known(&paths, all - 1), "that takes no room");
        paths.make_room();
        paths.remember(&file(all));
        let kept = (0..=all).filter(|&inode| is_known(&paths, inode)).count();
        assert_eq!(kept, 101, "those that were found");
        assert!(paths.is_new(&key(1)), "others are looked for again");
        // As long as there is room for one more, nothing goes.
        (0..all - 101).for_each(|inode| paths.remember(&file(inode)));
        paths.make_room();
        let kept = (0..=all).filter(|&inode| is_known(&paths, inode)).count() as u64;
        assert_eq!(kept, all - 1);
        (0..all).for_each(|inode| paths.remember(&file(inode)));
        paths.make_room();
        paths.remember(&file(2 * all));
        let kept = (0..=2 * all)
            .filter(|&inode| is_known(&paths, inode))
            .count();
        assert_eq!(kept, 1, "all were found");
    }

    /// Whoever has a mount namespace of their own says where that is, and may say that it is on a server that does not answer.
    #[test]
    fn the_layer_of_an_overlay_that_is_mounted_elsewhere_is_found_without_waiting() {
        const MOUNT: &str = r#"mount -t overlay -o "lowerdir=$1/layers/a:$1/layers/b" x "$1/mount" &&
            shift && exec "$@""#;
        let directory = Directory::new();
        for name in ["layers", "layers/a", "layers/b", "mount"] {
            std::fs::create_dir(directory.path(name)).expect("mkdir");
        }
        let path = directory.0.to_str().expect("text");
        let enters = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", path];
        let process = Sleeping::spawn_through(&enters);
        let mounts = mountinfo::read_of(process.pid()).expect("what it has mounted");
        let point = directory.path("mount");
        let overlay = mounts.iter().find(|mount| mount.mount_point == point);
        let device = overlay.expect("it has mounted it").dev;
        let key = || View::of([process.pid()]).key_of_mapped(device, 7);
        let below = mountinfo::mount_of(&mounts, &directory.0).expect("a mount");
        assert_eq!(key(), (below.dev, 7));
        let _hanging = HangingMount::at(&directory.path("layers"));
        assert_eq!(key(), (device, 7));
    }
}
