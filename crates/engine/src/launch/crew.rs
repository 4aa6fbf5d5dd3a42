//! Threads for prefetches: some are ready, and there are more while more is to do.
//!
//! A task may hang in a call for as long as it likes (a disk that does not answer): it keeps its thread, and others take
//! the next tasks.

use crate::error::{Error, Result};
use crate::launch::prefetch::OPENERS;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most threads, hanging ones included.
pub const THREADS_MAX: usize = 64;
/// Most tasks that wait for a thread.
const TASKS_MAX: usize = 1_024;
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
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} threads idle", self.idle, self.threads)
    }
}

impl Crew {
    /// Creates the threads for one prefetch with so many threads for paths.
    ///
    /// # Errors
    /// [`Error::Thread`] where one cannot be created.
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

    /// Hands over tasks and wakes threads. Returns how many were taken: fewer only when too many wait.
    pub fn run(&self, tasks: impl IntoIterator<Item = Task>) -> usize {
        let mut state = self.0.lock();
        let before = state.tasks.len();
        let room = TASKS_MAX - before;
        state.tasks.extend(tasks.into_iter().take(room));
        let taken = state.tasks.len() - before;
        while state.tasks.len() > state.idle && state.threads < THREADS_MAX {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a thread, which counts as idle from now on.
    fn spawn(self: &Arc<Self>, state: &mut State) -> Result<()> {
        let name = "prepage-launch";
        let shared = Arc::clone(self);
        std::thread::Builder::new()
            .name(name.into())
            .stack_size(256 << 10)
            .spawn(move || shared.work())
            .map_err(|source| Error::Thread {
                name: name.into(),
                source,
            })?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                state.idle -= 1;
                drop(state);
                task();
                state = self.lock();
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
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn hanging_tasks_do_not_hold_up_others() {
        let crew = Crew::start(1).expect("threads");
        let (release, hang) = channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        let hanging: Vec<Task> = (0..20)
            .map(|_| {
                let hang = Arc::clone(&hang);
                Box::new(move || _ = hang.lock().expect("lock").recv()) as Task
            })
            .collect();
        assert_eq!(crew.run(hanging), 20);
        let (done, is_done) = channel();
        crew.run([Box::new(move || done.send(()).expect("wanted")) as Task]);
        is_done
            .recv_timeout(Duration::from_secs(5))
            .expect("a thread for it");
        drop(release);
    }

    #[test]
    fn no_more_tasks_wait_than_are_bounded() {
        let crew = Crew::start(0).expect("threads");
        let (release, hang) = channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        let task = |_| {
            let hang = Arc::clone(&hang);
            Box::new(move || _ = hang.lock().expect("lock").recv()) as Task
        };
        crew.run((0..THREADS_MAX).map(task));
        let taken = crew.run((0..2 * TASKS_MAX).map(task));
        assert!(
            (TASKS_MAX - THREADS_MAX..=TASKS_MAX).contains(&taken),
            "{taken}"
        );
        drop(release);
    }
}
