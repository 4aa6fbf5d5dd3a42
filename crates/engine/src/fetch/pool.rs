//! Threads created once, asleep until they are handed a job.

use crate::error::Result;
use crate::fetch::cores::{Cores, FileThread, file_threads};
use crate::fetch::heart::Heart;
use crate::fetch::job::{Job, Part};
use crate::fetch::{anon, file};
use crate::params::{FetchParams, ThreadPolicy};
use crate::thread;
use prepage_core::machine::Nanos;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::sched::{self, Policy};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The default timer slack, 50 us, would more than triple the pause between batches.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

/// Most threads that hang in what is users', root's apart: beyond that, nothing is fetched for any of them.
const HANGING_MAX: usize = 256;

/// The fetching threads.
#[derive(Debug)]
pub struct Pool {
    params: Arc<FetchParams>,
    workers: Vec<Worker>,
    /// Threads that hung in a call and were replaced.
    given_up: usize,
    /// Those of them that hang still.
    hanging: Vec<Hanging>,
}

/// A thread that was given up.
#[derive(Debug)]
struct Hanging {
    /// Whose job it was at.
    owner: u32,
    /// The thread has it until it ends.
    heart: Weak<Heart>,
}

#[derive(Debug)]
struct Worker {
    role: Role,
    /// Dropping it ends the thread, once it is idle.
    jobs: Sender<Arc<Job>>,
    first: Arc<GoesFirst>,
    heart: Arc<Heart>,
    /// Whose job the thread is at, or was last.
    owner: Arc<AtomicU32>,
}

/// Jobs that a thread was handed and that go before the one that it is at.
#[derive(Debug, Default)]
pub struct GoesFirst(AtomicUsize);

impl GoesFirst {
    /// Whether there is one.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

#[derive(Clone, Debug)]
enum Role {
    /// Fetches anonymous pages on one core.
    Anon { core: usize, number: usize },
    /// Fetches file pages.
    File(FileThread),
}

impl Role {
    fn has_work(&self, job: &Job) -> bool {
        match self {
            Self::Anon { .. } => job.has_anon(),
            Self::File(_) => !job.files.is_empty(),
        }
    }
}

impl Pool {
    /// Creates the threads.
    ///
    /// # Errors
    /// [`crate::Error::Thread`] where one cannot be created.
    pub fn start(params: &FetchParams, cores: &Cores) -> Result<Self> {
        let params = Arc::new(params.clone());
        let count = match params.anon_threads {
            0 => cores.all.len(),
            wanted => wanted,
        };
        let anon = cores.all.iter().cycle().take(count).enumerate();
        let anon = anon.map(|(number, &core)| Role::Anon { core, number });
        let files = file_threads(params.core_policy, cores)
            .into_iter()
            .map(Role::File);
        let workers = anon
            .chain(files)
            .map(|role| Worker::start(role, &params))
            .collect::<Result<_>>()?;
        Ok(Self {
            params,
            workers,
            given_up: 0,
            hanging: Vec::new(),
        })
    }

    /// Threads that were given up because they hung in a call.
    pub fn given_up(&self) -> usize {
        self.given_up
    }

    /// Threads that fetch anonymous pages.
    pub fn anon_threads(&self) -> usize {
        let is_anon = |worker: &&Worker| matches!(worker.role, Role::Anon { .. });
        self.workers.iter().filter(is_anon).count()
    }

    /// Hands a job to the threads that have work in it and wakes them, all of them before any of them takes the core that
    /// this thread runs on: the others would begin only once it had that core back, a millisecond later. Returns when they were
    /// woken. Nothing is done where too much hangs in what is the same user's.
    pub fn run(&mut self, job: &Arc<Job>) -> Nanos {
        self.replace_stopped();
        let may_run = self.may_run(job.owner);
        let workers = self.workers.iter();
        let wanted: Vec<&Worker> = workers
            .filter(|worker| may_run && worker.role.has_work(job))
            .collect();
        job.expect_workers(wanted.len());
        // Real-time only where it is known what to go back to.
        let own = sched::current_thread_policy()
            .and_then(|own| sched::set_current_thread_policy(Policy::RealTime).map(|()| own));
        for worker in wanted {
            if job.is_announced {
                worker.first.0.fetch_add(1, Ordering::Relaxed);
            }
            // A thread ends only when its queue is dropped.
            let _ = worker.jobs.send(Arc::clone(job));
        }
        let woken = monotonic_ns();
        let _ = own.and_then(sched::set_current_thread_policy);
        woken
    }

    /// The watchdog: a thread that hangs in one call is replaced. It ends by itself when the call does.
    fn replace_stopped(&mut self) {
        let limit = Duration::from_millis(self.params.watchdog_ms);
        for index in (0..self.workers.len()).rev() {
            if !self.workers[index].heart.has_stopped(limit) {
                continue;
            }
            self.given_up += 1;
            let worker = &self.workers[index];
            self.hanging.push(Hanging {
                owner: worker.owner.load(Ordering::Relaxed),
                heart: Arc::downgrade(&worker.heart),
            });
            match Worker::start(worker.role.clone(), &self.params) {
                Ok(worker) => self.workers[index] = worker,
                Err(_) => drop(self.workers.remove(index)),
            }
        }
    }

    /// Whether no more hangs in what is this user's, and in what is any user's, than may.
    fn may_run(&mut self, owner: u32) -> bool {
        self.hanging.retain(|left| left.heart.strong_count() > 0);
        let of_users = self.hanging.iter().filter(|left| left.owner != 0);
        let own = self.hanging.iter().filter(|left| left.owner == owner);
        own.count() <= self.params.replacements_max
            && (owner == 0 || of_users.count() < HANGING_MAX)
    }
}

impl Worker {
    fn start(role: Role, params: &Arc<FetchParams>) -> Result<Self> {
        let (jobs, queue) = channel();
        let (heart, first) = (Arc::new(Heart::default()), Arc::new(GoesFirst::default()));
        let owner = Arc::new(AtomicU32::new(0));
        let name = match &role {
            Role::Anon { core, .. } => format!("prepage-anon{core}"),
            Role::File(_) => "prepage-file".to_owned(),
        };
        let worker = Thread {
            role: role.clone(),
            params: Arc::clone(params),
            heart: Arc::clone(&heart),
            first: Arc::clone(&first),
            owner: Arc::clone(&owner),
        };
        thread::spawn(name, move || worker.run(&queue))?;
        Ok(Self {
            role,
            jobs,
            first,
            heart,
            owner,
        })
    }
}

struct Thread {
    role: Role,
    params: Arc<FetchParams>,
    heart: Arc<Heart>,
    first: Arc<GoesFirst>,
    owner: Arc<AtomicU32>,
}

impl Thread {
    fn run(&self, queue: &Receiver<Arc<Job>>) {
        self.heart.belong_here();
        settle(&self.role, &self.params);
        // With whether it was set aside.
        let mut jobs: VecDeque<(Arc<Job>, bool)> = VecDeque::new();
        loop {
            while let Some(job) = next(queue, jobs.is_empty()) {
                match job.is_announced {
                    true => {
                        self.first.0.fetch_sub(1, Ordering::Relaxed);
                        jobs.push_front((job, false));
                    }
                    false => jobs.push_back((job, false)),
                }
            }
            let Some((job, was_set_aside)) = jobs.pop_front() else {
                return;
            };
            self.owner.store(job.owner, Ordering::Relaxed);
            if was_set_aside {
                job.resume();
            }
            let before = sched::thread_cpu_time_ns();
            let mut part = Part::default();
            // To look at a process's root directory may hang as well.
            self.heart.beat();
            let is_done = self.fetch(&job, &mut part);
            self.heart.rest();
            part.cpu_ns = sched::thread_cpu_time_ns().saturating_sub(before);
            match is_done {
                true => job.finish(part),
                false => {
                    job.put(part);
                    jobs.push_front((job, true));
                }
            }
        }
    }

    /// Returns whether all is taken: else another job goes first.
    fn fetch(&self, job: &Job, part: &mut Part) -> bool {
        let Self {
            params,
            heart,
            first,
            ..
        } = self;
        match &self.role {
            Role::Anon { number, .. } => anon::fetch(job, *number, params, heart, first, part),
            Role::File(thread) => file::fetch(job, thread, params, heart, first, part),
        }
    }
}

/// The next job that the thread is handed, waited for or not.
fn next(queue: &Receiver<Arc<Job>>, waits: bool) -> Option<Arc<Job>> {
    match waits {
        true => queue.recv().ok(),
        false => queue.try_recv().ok(),
    }
}

/// Takes the core and the scheduling that the role asks for. What the kernel refuses (a core that went offline, a
/// slice before 6.12) is done without.
fn settle(role: &Role, params: &FetchParams) {
    let other = Policy::Other {
        nice: params.anon_nice,
        slice_us: (params.anon_slice_us > 0).then_some(params.anon_slice_us),
    };
    let (cores, policy) = match role {
        Role::Anon { core, .. } => {
            let policy = match params.anon_policy {
                ThreadPolicy::Other => other,
                ThreadPolicy::Idle => Policy::Idle,
                ThreadPolicy::RealTime => Policy::RealTime,
            };
            (vec![*core], policy)
        }
        Role::File(thread) if thread.idle => (thread.cores.clone(), Policy::Idle),
        Role::File(thread) => (thread.cores.clone(), other),
    };
    let _ = sched::pin_current_thread(&cores);
    if sched::set_current_thread_policy(policy).is_err() {
        let _ = sched::set_current_thread_policy(other);
    }
    let _ = sched::set_timer_slack_ns(TIMER_SLACK_NS);
}
