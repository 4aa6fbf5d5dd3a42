//! Threads for prefetches: some are ready, and there are more while more is to do.
//!
//! A task may hang in a call for as long as it likes (a disk that does not answer): it keeps its thread, and others take
//! the next tasks. What hangs of one user's leaves threads for the others'.

use crate::accounts::accountable;
use crate::error::Result;
use crate::launch::prefetch::OPENERS;
use crate::locked::locked;
use crate::thread;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most threads, hanging ones included.
pub const THREADS_MAX: usize = 64;
/// Most threads that are at one user's tasks, root's apart: three launches at once, and as many again for others.
const THREADS_OF_USER_MAX: usize = THREADS_MAX / 2;
/// Most tasks that wait for a thread, and most of one user's, root's apart.
const TASKS_MAX: usize = 1_024;
const TASKS_OF_USER_MAX: usize = TASKS_MAX / 4;
/// One for the data, those that open files, and one for metadata.
const READERS: usize = 2 + OPENERS;

/// What a thread is to do.
pub type Task = Box<dyn FnOnce() + Send>;

/// The threads.
#[derive(Debug)]
pub struct Crew(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Threads that stay when there is nothing to do.
    ready: usize,
}

#[derive(Default)]
struct State {
    /// Those that wait, the oldest first, and whose they are.
    tasks: VecDeque<(u32, Task)>,
    /// How many are under way, by whose they are.
    under_way: BTreeMap<u32, usize>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} threads idle", self.idle, self.threads)
    }
}

impl State {
    /// Adds a user's tasks, as far as there is room. Returns how many were taken.
    fn add(&mut self, owner: u32, tasks: impl IntoIterator<Item = Task>) -> usize {
        let before = self.tasks.len();
        let own = self.tasks.iter().filter(|(of, _)| *of == owner).count();
        let room_of_owner = match owner {
            0 => TASKS_MAX,
            _ => TASKS_OF_USER_MAX - own,
        };
        let room = room_of_owner.min(TASKS_MAX - before);
        let tasks = tasks.into_iter().take(room);
        self.tasks.extend(tasks.map(|task| (owner, task)));
        self.tasks.len() - before
    }

    /// How many of those that wait may be begun now.
    fn due(&self) -> usize {
        let mut under_way = self.under_way.clone();
        let is_due = |(owner, _): &&(u32, Task)| begin(&mut under_way, *owner);
        self.tasks.iter().filter(is_due).count()
    }

    /// The first that may be begun, and whose it is.
    fn take(&mut self) -> Option<(u32, Task)> {
        let (tasks, under_way) = (&mut self.tasks, &mut self.under_way);
        let first = tasks
            .iter()
            .position(|(owner, _)| begin(under_way, *owner))?;
        tasks.remove(first)
    }

    /// One of a user's is done.
    fn end(&mut self, owner: u32) {
        if let Some(count) = self.under_way.get_mut(&owner) {
            *count -= 1;
        }
        self.under_way.retain(|_, count| *count > 0);
    }
}

/// Counts one more of a user's tasks under way. Returns whether it may be.
fn begin(under_way: &mut BTreeMap<u32, usize>, owner: u32) -> bool {
    let count = under_way.entry(owner).or_default();
    let is_due = owner == 0 || *count < THREADS_OF_USER_MAX;
    *count += usize::from(is_due);
    is_due
}

impl Crew {
    /// Creates the threads for one prefetch with so many threads for paths.
    ///
    /// # Errors
    /// [`crate::Error::Thread`] where one cannot be created.
    pub fn start(path_threads: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            ready: (path_threads + READERS).min(THREADS_MAX),
        });
        let crew = Self(shared);
        let mut state = crew.0.lock();
        for _ in 0..crew.0.ready {
            crew.0.spawn(&mut state)?;
        }
        drop(state);
        Ok(crew)
    }

    /// Hands over a user's tasks and wakes threads. Returns how many were taken: fewer only when too many wait.
    pub fn run(&self, owner: u32, tasks: impl IntoIterator<Item = Task>) -> usize {
        let mut state = self.0.lock();
        let taken = state.add(accountable(owner), tasks);
        let due = state.due();
        while due > state.idle && state.threads < THREADS_MAX {
            if self.0.spawn(&mut state).is_err() {
                // Those that are there take one after the other.
                break;
            }
        }
        drop(state);
        self.0.work.notify_all();
        taken
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No task runs while the lock is held.
        locked(&self.state)
    }

    /// Creates a thread, which counts as idle from now on.
    fn spawn(self: &Arc<Self>, state: &mut State) -> Result<()> {
        let shared = Arc::clone(self);
        thread::spawn("prepage-launch", move || shared.work())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some((owner, task)) = state.take() {
                state.idle -= 1;
                drop(state);
                task();
                state = self.lock();
                state.end(owner);
                state.idle += 1;
            } else if state.is_closed || state.idle > self.ready {
                state.idle -= 1;
                state.threads -= 1;
                return;
            } else {
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Tasks that hang until the sender is dropped.
    fn hanging(count: usize) -> (Vec<Task>, Sender<()>) {
        let (release, hang) = channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        let task = |_| {
            let hang: Arc<Mutex<Receiver<()>>> = Arc::clone(&hang);
            Box::new(move || _ = hang.lock().expect("lock").recv()) as Task
        };
        ((0..count).map(task).collect(), release)
    }

    /// Waits until a task of this user's is done.
    fn wait_for_one(crew: &Crew, owner: u32) {
        let (done, is_done) = channel();
        crew.run(
            owner,
            [Box::new(move || done.send(()).expect("wanted")) as Task],
        );
        is_done
            .recv_timeout(Duration::from_secs(30))
            .expect("a thread for it");
    }

    #[test]
    fn hanging_tasks_do_not_hold_up_others() {
        let crew = Crew::start(1).expect("threads");
        let (tasks, release) = hanging(20);
        assert_eq!(crew.run(1_000, tasks), 20);
        wait_for_one(&crew, 1_000);
        drop(release);
    }

    #[test]
    fn what_hangs_of_one_user_leaves_threads_and_room_for_the_others() {
        let crew = Crew::start(1).expect("threads");
        let (tasks, release) = hanging(2 * TASKS_MAX);
        let taken = crew.run(1_000, tasks);
        assert_eq!(taken, TASKS_OF_USER_MAX);
        assert!(crew.0.lock().threads < THREADS_MAX, "none without a task");
        for owner in [1_001, 0] {
            wait_for_one(&crew, owner);
        }
        // What waits is gone on with.
        drop(release);
        wait_for_one(&crew, 1_000);
    }

    #[test]
    fn no_more_tasks_wait_than_are_bounded() {
        let crew = Crew::start(0).expect("threads");
        let (tasks, release) = hanging(THREADS_MAX);
        crew.run(0, tasks);
        let (tasks, release_others) = hanging(2 * TASKS_MAX);
        let taken = crew.run(0, tasks);
        assert!(
            (TASKS_MAX - THREADS_MAX..=TASKS_MAX).contains(&taken),
            "{taken}"
        );
        drop((release, release_others));
    }
}
