//! The profile store: one checksummed, versioned file for each application, replaced by rename.
//!
//! Killed at any moment, it opens again with the last complete state. A damaged file is set aside and learning
//! begins anew. Profiles are written by a thread of their own, so that the caller never waits for the disk.
//!
//! Launches without a service read and write one profile of a store that nobody has open: [`single`].

mod files;
mod format;
pub mod single;
mod writer;

pub use format::{Next, decode};

use crate::accounts::accountable;
use crate::error::{Error, Result};
use files::{failed, is_newer_at, lock, profile_path, read_one, set_aside};
use format::{encode, left_alone};
use prepage_core::app::Profile;
use prepage_core::identity::{AppId, owner_of_most};
use prepage_core::launch::manager::{LaunchState, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use writer::{Task, Writer};

/// Largest profile that is read or written, in bytes.
pub const PROFILE_BYTES_MAX: usize = 4 << 20;

/// Most applications kept. Beyond that who has most that are not tracked loses the one that was switched to least, of several the
/// one launched longest ago.
pub const APPS_MAX: usize = 1024;

/// Most bytes kept of one user's applications, but root's, as their files are long: a service holds all of them in memory, and is
/// not swapped out. Beyond that those that are not tracked are lost in the same order, but never the one that was just changed.
pub const OWNER_BYTES_MAX: usize = 64 << 20;

/// Most bytes kept of all users' applications. Beyond that who has most that are not tracked loses them in the same order, but never
/// the one that was just changed.
const BYTES_MAX: usize = 512 << 20;

/// How long a service waits for the store: launches without a service hold it while they write one profile.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(1);

/// What the store keeps of an application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredProfile {
    /// The application.
    pub app: AppId,
    /// Whether it is tracked, and by which control group where it is not found by its name.
    pub tracked: Option<TrackedBy>,
    /// What was learned of its switches.
    pub profile: Profile,
    /// What was learned of its launches. Apart from the profile, since others write it: a launch ends while switches
    /// are going on.
    pub launch: LaunchState,
}

impl StoredProfile {
    /// Of an application of which nothing is known.
    fn new(app: &AppId) -> Self {
        Self {
            app: app.clone(),
            tracked: None,
            profile: Profile::default(),
            launch: LaunchState::default(),
        }
    }
}

/// How a tracked application is found again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrackedBy {
    /// By the identity of its processes.
    Name,
    /// By its control group: an absolute directory.
    Cgroup(PathBuf),
}

/// A line of [`Store::list`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredApp {
    /// The application.
    pub app: AppId,
    /// Size of its file, in bytes.
    pub bytes: u64,
    /// Switches seen.
    pub switches: u64,
    /// Launches seen.
    pub launches: u64,
    /// What is done for its launches.
    pub launch_phase: Phase,
    /// Whether it is tracked.
    pub tracked: bool,
}

/// An open store; no other process can open it meanwhile, unless it is only to be looked at.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    apps: BTreeMap<AppId, StoredProfile>,
    /// How long each one's file is, in bytes.
    sizes: BTreeMap<AppId, usize>,
    /// [`BYTES_MAX`], but in tests.
    bytes_max: usize,
    /// Nothing is written, and no damaged file set aside, without it.
    writer: Option<Writer>,
    _lock: Option<File>,
}

impl Store {
    /// Opens the store in `dir`, which is created where it is missing. Returns it with a warning for each file that
    /// was damaged and set aside.
    ///
    /// # Errors
    /// [`Error::StoreLocked`] while another process has it open; [`Error::Store`] where the directory cannot be
    /// used.
    pub fn open(dir: &Path) -> Result<(Self, Vec<String>)> {
        single::make_directory(dir)?;
        let lock = lock(dir, OPEN_WAIT_MAX)?;
        Self::read(dir, Some(Writer::start()?), Some(lock))
    }

    /// The store in `dir` as it is now, to be looked at: whoever has it open is not disturbed, since profiles are replaced
    /// whole, and nothing is written. Returns it with a warning for each file that cannot be read.
    ///
    /// # Errors
    /// [`Error::Store`] where there is no such directory, or it cannot be read.
    pub fn look_at(dir: &Path) -> Result<(Self, Vec<String>)> {
        Self::read(dir, None, None)
    }

    fn read(dir: &Path, writer: Option<Writer>, lock: Option<File>) -> Result<(Self, Vec<String>)> {
        let mut store = Self {
            dir: dir.into(),
            apps: BTreeMap::new(),
            sizes: BTreeMap::new(),
            bytes_max: BYTES_MAX,
            writer,
            _lock: lock,
        };
        let warnings = store.read_all()?;
        Ok((store, warnings))
    }

    /// Has `warn` told of what could not be kept, by the thread that writes: once, until something could be again. Without
    /// it, standard error is.
    pub fn warn_by(&self, warn: fn(&str)) {
        if let Some(writer) = &self.writer {
            writer.warn_by(warn);
        }
    }

    /// What is kept of an application.
    pub fn load(&self, app: &AppId) -> Option<&StoredProfile> {
        self.apps.get(app)
    }

    /// Keeps what was learned of an application's switches. Returns at once; the file is written behind.
    pub fn save(&mut self, app: &AppId, profile: &Profile) {
        let profile = profile.clone();
        let stored = self.stored(app);
        self.put(StoredProfile { profile, ..stored });
    }

    /// Keeps what was learned of an application's launches. Returns at once; the file is written behind.
    pub fn save_launch(&mut self, app: &AppId, launch: &LaunchState) {
        let launch = launch.clone();
        let stored = self.stored(app);
        self.put(StoredProfile { launch, ..stored });
    }

    /// Whether an application is left alone for this launch too; counts the launch then, at the cost of writing a
    /// number.
    pub fn pass_launch(&mut self, app: &AppId) -> bool {
        let Some(stored) = self.apps.get_mut(app) else {
            return false;
        };
        let left = left_alone(&stored.launch);
        if left <= 1 {
            return false;
        }
        stored.launch.retry_left = left - 1;
        stored.launch.launches = stored.launch.launches.saturating_add(1);
        self.queue(app, Task::LeftAlone(left - 1));
        true
    }

    /// Keeps whether, and how, an application is tracked.
    pub fn set_tracked(&mut self, app: &AppId, tracked: Option<TrackedBy>) {
        if self.load(app).is_some_and(|known| known.tracked == tracked) {
            return;
        }
        let stored = self.stored(app);
        self.put(StoredProfile { tracked, ..stored });
    }

    /// What is kept of an application, to be changed; empty where it is not known.
    fn stored(&mut self, app: &AppId) -> StoredProfile {
        self.apps
            .remove(app)
            .unwrap_or_else(|| StoredProfile::new(app))
    }

    /// The applications kept, by name.
    pub fn list(&self) -> Vec<StoredApp> {
        let line = |stored: &StoredProfile| StoredApp {
            app: stored.app.clone(),
            bytes: self.sizes.get(&stored.app).map_or(0, |&bytes| bytes as u64),
            switches: stored.profile.switches,
            launches: stored.launch.launches,
            launch_phase: stored.launch.phase,
            tracked: stored.tracked.is_some(),
        };
        self.apps.values().map(line).collect()
    }

    /// The applications that are tracked, and how.
    pub fn tracked(&self) -> impl Iterator<Item = (&AppId, &TrackedBy)> {
        self.apps
            .iter()
            .filter_map(|(app, stored)| Some((app, stored.tracked.as_ref()?)))
    }

    /// Forgets an application. Returns whether it was known.
    pub fn forget(&mut self, app: &AppId) -> bool {
        self.sizes.remove(app);
        let known = self.apps.remove(app).is_some();
        if known {
            self.queue(app, Task::Remove);
        }
        known
    }

    /// A profile to be shipped: without what lies in home, temporary and runtime directories, and without device
    /// numbers.
    pub fn export(&self, app: &AppId) -> Option<Vec<u8>> {
        let mut stored = self.apps.get(app)?.clone();
        stored.tracked = None;
        stored.profile.files.retain(|file| is_shippable(&file.path));
        let sequence = Arc::make_mut(&mut stored.launch.sequence);
        sequence.retain_paths(is_shippable);
        // Of this machine's devices.
        sequence.metadata.clear();
        Some(encode(&stored, None))
    }

    /// Takes over a profile that was exported. An application that is known keeps how it is tracked.
    ///
    /// # Errors
    /// [`Error::Profile`] where it is damaged, of another version or invalid; nothing is changed then.
    pub fn import(&mut self, bytes: &[u8]) -> Result<AppId> {
        let mut stored = decode(bytes).map_err(|reason| Error::Profile {
            origin: "given".into(),
            reason,
        })?;
        stored.tracked = self.apps.get(&stored.app).and_then(|s| s.tracked.clone());
        // Blocks of devices are not read because somebody says so.
        Arc::make_mut(&mut stored.launch.sequence).metadata.clear();
        let app = stored.app.clone();
        self.put(stored);
        Ok(app)
    }

    /// Waits until everything is on disk.
    ///
    /// # Errors
    /// [`Error::Store`] of a file that could not be written: it is as it was.
    pub fn flush(&self) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), Writer::flush)
    }

    fn put(&mut self, stored: StoredProfile) {
        let bytes = encode(&stored, None);
        let app = stored.app.clone();
        self.sizes.insert(app.clone(), bytes.len());
        self.queue(&app, Task::Write(bytes));
        self.apps.insert(app.clone(), stored);
        if self.apps.len() > APPS_MAX {
            let untracked = self.apps.values().filter(|s| s.tracked.is_none());
            let owner = owner_of_most(untracked.map(|s| accountable(s.app.owner)));
            if let Some(least) = self.least_used(|app| Some(accountable(app.owner)) == owner) {
                self.forget(&least);
            }
        }
        let account = accountable(app.owner);
        while account != 0 && self.bytes_of(account) > OWNER_BYTES_MAX {
            let is_others = |other: &AppId| accountable(other.owner) == account && *other != app;
            let least = self.least_used(is_others);
            let Some(least) = least else {
                break;
            };
            self.forget(&least);
        }
        while self.sizes.values().sum::<usize>() > self.bytes_max {
            let most = self.has_most_to_lose(&app);
            let is_theirs = |other: &AppId| Some(accountable(other.owner)) == most && *other != app;
            let Some(least) = self.least_used(is_theirs) else {
                break;
            };
            self.forget(&least);
        }
    }

    /// The user of whose applications that are not tracked, but this one, most bytes are kept.
    fn has_most_to_lose(&self, but: &AppId) -> Option<u32> {
        let mut bytes: BTreeMap<u32, usize> = BTreeMap::new();
        let others = self.apps.iter().filter(|(app, _)| *app != but);
        for (app, _) in others.filter(|(_, stored)| stored.tracked.is_none()) {
            let size = self.sizes.get(app).copied().unwrap_or_default();
            *bytes.entry(accountable(app.owner)).or_default() += size;
        }
        let most = bytes
            .into_iter()
            .max_by_key(|&(owner, bytes)| (bytes, owner));
        most.map(|(owner, _)| owner)
    }

    /// Of those applications that are not tracked the one that was switched to least, of several the one launched longest ago.
    fn least_used(&self, is_one: impl Fn(&AppId) -> bool) -> Option<AppId> {
        let untracked = self.apps.values().filter(|s| s.tracked.is_none());
        let least = untracked
            .filter(|s| is_one(&s.app))
            .min_by_key(|s| (s.profile.switches, s.launch.began_ns))?;
        Some(least.app.clone())
    }

    /// What is kept of the applications that count for a user, in bytes.
    fn bytes_of(&self, account: u32) -> usize {
        let sizes = self.sizes.iter();
        let own = sizes.filter(|(app, _)| accountable(app.owner) == account);
        own.map(|(_, bytes)| *bytes).sum()
    }

    /// Reads what is there. Returns a warning for each file that cannot be read.
    fn read_all(&mut self) -> Result<Vec<String>> {
        let (dir, mut warnings) = (self.dir.as_path(), Vec::new());
        let repairs = self.writer.is_some();
        for entry in fs::read_dir(dir).map_err(|e| failed("listing", dir, e))? {
            let path = entry.map_err(|e| failed("listing", dir, e))?.path();
            match path.extension().and_then(|e| e.to_str()) {
                // A write that was cut off before its rename.
                Some("new") if repairs => drop(fs::remove_file(&path)),
                Some("profile") => match read_one(&path) {
                    Ok((stored, bytes)) => {
                        self.sizes.insert(stored.app.clone(), bytes);
                        self.apps.insert(stored.app.clone(), stored);
                    }
                    Err(reason) if !repairs => {
                        warnings.push(format!("profile {}: {reason}", path.display()));
                    }
                    Err(reason) if is_newer_at(&path) => warnings.push(format!(
                        "profile {}: {reason}; it stays, and what is learned of its application is not kept",
                        path.display()
                    )),
                    Err(reason) => warnings.push(set_aside(&path, &reason)),
                },
                _ => {}
            }
        }
        Ok(warnings)
    }

    fn queue(&self, app: &AppId, task: Task) {
        if let Some(writer) = &self.writer {
            writer.queue(self.path_of(app), task);
        }
    }

    fn path_of(&self, app: &AppId) -> PathBuf {
        profile_path(&self.dir, app)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.stop();
        }
    }
}

/// Directories whose files belong to one user or one boot and say nothing on another machine.
const PRIVATE_DIRECTORIES: [&str; 9] = [
    "/home/",
    "/root/",
    "/tmp/",
    "/var/tmp/",
    "/run/",
    "/dev/",
    "/proc/",
    "/sys/",
    "/media/",
];

fn is_shippable(path: &str) -> bool {
    !PRIVATE_DIRECTORIES.iter().any(|dir| path.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locked::locked;
    use prepage_core::identity::AppKind;
    use prepage_kernel::testing::machine::{Directory, eventually};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn where_too_much_is_kept_who_has_most_loses_what_is_used_least() {
        let app = |owner, number: u32| AppId {
            kind: AppKind::Executable,
            name: format!("/usr/bin/{number}").into(),
            owner,
        };
        let directory = Directory::new();
        let (mut store, _) = Store::open(&directory.0).expect("open");
        store.set_tracked(&app(1003, 1), Some(TrackedBy::Name));
        store.save_launch(&app(1001, 1), &LaunchState::default());
        let launched = |began_ns| LaunchState {
            began_ns,
            ..LaunchState::default()
        };
        for number in 1..=5 {
            store.save_launch(&app(1002, number), &launched(i64::from(number)));
        }
        let bytes: usize = store.sizes.values().sum();
        store.bytes_max = bytes;
        store.save_launch(&app(1001, 2), &LaunchState::default());
        let is_kept = |store: &Store, owner, number| store.load(&app(owner, number)).is_some();
        assert!(!is_kept(&store, 1002, 1) && is_kept(&store, 1002, 2));
        // The tracked ones stay, and so does what was just changed.
        store.bytes_max = 0;
        store.save_launch(&app(1001, 1), &LaunchState::default());
        assert_eq!(store.list().len(), 2);
        assert!(is_kept(&store, 1003, 1) && is_kept(&store, 1001, 1));
    }

    #[test]
    fn of_what_waits_for_the_disk_the_last_version_is_held_alone() {
        let directory = Directory::new();
        let (mut store, _) = Store::open(&directory.0).expect("open");
        let app = AppId {
            kind: AppKind::Executable,
            name: "/usr/bin/a".into(),
            owner: 1000,
        };
        let profile = |switches| Profile {
            switches,
            ..Profile::default()
        };
        // Who writes there waits for a reader.
        let slow = store.path_of(&app).with_extension("new");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &slow, FileType::Fifo, mode, 0).expect("a FIFO");
        let due = store.writer.as_ref().expect("it writes").due();
        store.save(&app, &profile(0));
        eventually("the first is being written", || locked(&due).is_empty());
        store.set_tracked(&app, None);
        assert!(locked(&due).is_empty(), "nothing has changed");
        for switches in 1..=1_000 {
            store.save(&app, &profile(switches));
            store.set_tracked(&app, Some(TrackedBy::Name));
        }
        assert_eq!(locked(&due).len(), 1);
        drop(File::open(&slow).expect("a reader"));
        store.flush().expect("it is kept");
        let (kept, _) = Store::look_at(&directory.0).expect("look");
        let kept = kept.load(&app).expect("it was kept");
        assert_eq!(kept.profile.switches, 1_000);
        assert_eq!(kept.tracked, Some(TrackedBy::Name));
    }
}
