//! Threads that ask processes and file systems what a switch showed.
//!
//! Any of that may hang: to look a file up on a server that does not answer, or to read the page table of a process that
//! waits for one with its address space locked. A thread that hangs costs what it is at, and later observations of that
//! application until it is through; others take the rest. One thread is ready, and there are more while more is to do.

use crate::accounts::accountable;
use crate::error::Result;
use crate::fetch::heart::Heart;
use crate::thread;
use prepage_core::identity::AppId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Most threads, hanging ones included.
pub const THREADS_MAX: usize = 16;

/// Most threads that hang in what is one user's, root's apart: others' applications are observed all the same.
const HANGING_OF_USER_MAX: usize = 4;

/// What a thread is to do.
pub type Work = Box<dyn FnOnce() + Send>;

/// What work is about: there is no more of it while a thread hangs in such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One application.
    App(AppId),
    /// The mounts of the machine.
    Mounts,
}

impl Subject {
    /// The user who can have it hang; `None` where that is root.
    fn user(&self) -> Option<u32> {
        match self {
            Self::App(app) => Some(accountable(app.owner)).filter(|&owner| owner != 0),
            Self::Mounts => None,
        }
    }
}

/// The threads.
#[derive(Debug)]
pub struct Collectors {
    threads: Vec<Thread>,
    /// A thread that takes longer hangs.
    limit: Duration,
    given_up: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Thread {
    /// Dropping it ends the thread, once it is idle.
    work: Sender<Work>,
    heart: Arc<Heart>,
    subject: Subject,
    is_given_up: bool,
}

impl Collectors {
    /// Creates the first thread. Those that hang are counted in `given_up`.
    ///
    /// # Errors
    /// [`crate::Error::Thread`] where it cannot be created.
    pub fn start(limit: Duration, given_up: Arc<AtomicUsize>) -> Result<Self> {
        Ok(Self {
            threads: vec![Thread::start()?],
            limit,
            given_up,
        })
    }

    /// Sets how long a thread may take from now on.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Hands work to a thread that is idle, or to another one. Returns whether it is done: not where work about the same
    /// hangs, nor much else of its user's, nor where too many threads are at work.
    pub fn run(&mut self, subject: Subject, work: Work) -> bool {
        self.look_for_stopped();
        let hanging = self.threads.iter().filter(|thread| thread.is_given_up);
        let hanging: Vec<&Subject> = hanging.map(|thread| &thread.subject).collect();
        let user = subject.user();
        let of_user = hanging.iter().filter(|other| other.user() == user).count();
        if hanging.contains(&&subject) || user.is_some() && of_user >= HANGING_OF_USER_MAX {
            return false;
        }
        let Some(mut thread) = self.take_idle() else {
            return false;
        };
        thread.subject = subject;
        thread.heart.beat();
        // A thread ends only when its queue is dropped.
        let taken = thread.work.send(work).is_ok();
        self.threads.push(thread);
        taken
    }

    /// The watchdog: it looks when there is something to do.
    fn look_for_stopped(&mut self) {
        for thread in &mut self.threads {
            let stopped = thread.heart.has_stopped(self.limit);
            if stopped && !thread.is_given_up {
                self.given_up.fetch_add(1, Ordering::Relaxed);
            }
            thread.is_given_up = stopped;
        }
    }

    /// A thread that is idle. Others that are end.
    fn take_idle(&mut self) -> Option<Thread> {
        let idle = self.threads.extract_if(.., |thread| thread.heart.rests());
        match idle.last() {
            Some(thread) => Some(thread),
            None if self.threads.len() < THREADS_MAX => Thread::start().ok(),
            None => None,
        }
    }
}

impl Thread {
    fn start() -> Result<Self> {
        let (work, queue) = channel();
        let heart = Arc::new(Heart::default());
        let own_heart = Arc::clone(&heart);
        thread::spawn("prepage-collect", move || run(&queue, &own_heart))?;
        Ok(Self {
            work,
            heart,
            subject: Subject::Mounts,
            is_given_up: false,
        })
    }
}

fn run(queue: &Receiver<Work>, heart: &Heart) {
    heart.belong_here();
    while let Ok(work) = queue.recv() {
        work();
        heart.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::identity::AppKind;
    use std::sync::Mutex;

    const LONG: Duration = Duration::from_secs(5);

    struct Rig {
        collectors: Collectors,
        given_up: Arc<AtomicUsize>,
        /// Dropping it ends what hangs.
        release: Sender<()>,
        hang: Arc<Mutex<Receiver<()>>>,
    }

    impl Rig {
        /// Whatever is under way hangs.
        fn new() -> Self {
            let given_up = Arc::default();
            let (release, hang) = channel();
            Self {
                collectors: Collectors::start(Duration::ZERO, Arc::clone(&given_up))
                    .expect("a thread"),
                given_up,
                release,
                hang: Arc::new(Mutex::new(hang)),
            }
        }

        fn hang(&mut self, subject: Subject) -> bool {
            let hang = Arc::clone(&self.hang);
            let work = move || _ = hang.lock().expect("lock").recv();
            self.collectors.run(subject, Box::new(work))
        }

        fn answer(&mut self, subject: Subject) -> bool {
            let (done, is_done) = channel();
            let work = move || done.send(()).expect("wanted");
            self.collectors.run(subject, Box::new(work)) && is_done.recv_timeout(LONG).is_ok()
        }

        fn given_up(&self) -> usize {
            self.given_up.load(Ordering::Relaxed)
        }
    }

    fn app(number: usize) -> Subject {
        app_of(0, number)
    }

    fn app_of(owner: u32, number: usize) -> Subject {
        Subject::App(AppId {
            kind: AppKind::Named,
            name: number.to_string().into(),
            owner,
        })
    }

    #[test]
    fn what_hangs_of_one_user_leaves_threads_for_the_others() {
        let mut rig = Rig::new();
        let apps = 0..2 * THREADS_MAX;
        let taken = apps.filter(|&n| rig.hang(app_of(1_000, n))).count();
        assert_eq!(taken, HANGING_OF_USER_MAX);
        assert!(rig.answer(app_of(1_001, 0)) && rig.answer(app(0)));
        assert!(rig.answer(Subject::Mounts));
    }

    #[test]
    fn what_hangs_holds_up_nothing_but_its_own_application() {
        let mut rig = Rig::new();
        assert!(rig.hang(app(0)) && rig.hang(Subject::Mounts));
        assert!(!rig.answer(app(0)) && !rig.answer(Subject::Mounts));
        assert_eq!(rig.given_up(), 2, "each once");
        assert!(rig.answer(app(1)) && rig.answer(app(2)));
        rig.release = channel().0;
        while !rig.answer(app(0)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn work_that_takes_no_longer_than_it_may_holds_up_nothing() {
        let mut rig = Rig::new();
        rig.collectors.set_limit(LONG * 1_000);
        assert!(rig.hang(app(0)) && rig.hang(app(0)));
        assert!(rig.answer(app(0)));
        assert_eq!(rig.given_up(), 0);
    }

    #[test]
    fn no_more_threads_hang_than_are_bounded() {
        let mut rig = Rig::new();
        let taken = (0..2 * THREADS_MAX).filter(|&n| rig.hang(app(n))).count();
        assert_eq!(taken, THREADS_MAX);
        assert!(!rig.answer(app(2 * THREADS_MAX)));
        assert_eq!(rig.collectors.threads.len(), THREADS_MAX);
    }
}
