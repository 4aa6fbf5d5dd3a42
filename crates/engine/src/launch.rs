//! Launches: recorded by what the kernel reports of them, and prefetched for beside them (FAST sections 4.1 and 4.3).
//!
//! One thread follows all launches (`recorder`): with the rings that are open for it (`rings`) it sees which pages
//! the processes of each accessed, and when each is over. Threads that are ready fetch a launch's plan (`prefetch`,
//! `crew`). What a launch showed is named and looked up on the device after its end (`finish`).

mod block_map;
mod coldness;
mod crew;
mod ext4;
mod finish;
mod metadata;
mod path_profile;
mod place;
mod prefetch;
mod ready;
mod recorder;
mod rings;
mod sandboxes;
mod track;

pub use coldness::Coldness;
pub use path_profile::PathProfile;
pub use prefetch::PrefetchOutcome;
pub use ready::{Accompanied, ReadyLaunch};

use crate::error::Result;
use crate::fetch::cores::Cores;
use crate::launch::crew::Crew;
use crate::launch::place::Place;
use crate::launch::prefetch::Prefetch;
use crate::launch::recorder::{Begun, Command, Opened};
use crate::launch::track::Recorded;
use crate::locked::locked;
use crate::mailbox::Mailbox;
use crate::members::Rights;
use crate::params::EngineParams;
use prepage_core::launch::blocks::BlockMap;
use prepage_core::launch::manager::{Decision, Measured};
use prepage_core::launch::recording::Recording;
use prepage_core::launch::sequence::LaunchSequence;
use prepage_core::machine::Nanos;
use prepage_core::params::launch::LaunchParams;
use prepage_kernel::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Most launches under way. One more is neither recorded nor prefetched for.
pub const LAUNCHES_MAX: usize = 64;

/// How long the rings may take to open. Commonly 2 ms; while another process closes such rings, the kernel (6.18) has
/// whoever opens some wait for several grace periods of RCU: 70 to 140 ms.
const RINGS_WAIT_MAX: Duration = Duration::from_secs(1);

/// A launch begins.
#[derive(Debug)]
pub struct Launch {
    /// What the caller knows it by.
    pub id: u64,
    /// Its first process.
    pub root_pid: i32,
    /// Whose file-system rights files are read with.
    pub rights: Rights,
    /// When it began, on the monotonic clock.
    pub began: Nanos,
    /// The same in nanoseconds since 1970.
    pub began_wall_ns: i64,
    /// What to do for it.
    pub decision: Decision,
    /// What tells whether it was cold, where it is held out and not recorded ([`Coldness::of`]).
    pub coldness: Option<Coldness>,
    /// What was learned of the application: it says how long a launch goes on that is helped.
    pub sequence: Arc<LaunchSequence>,
    /// Whether its process may be traced: it waits for its exec, with one thread, and has permitted it.
    pub traces_paths: bool,
    /// How long the rings may be waited for where they are not open yet; after that it is not recorded, or, held out, only
    /// as far as to tell whether it was cold.
    pub rings_wait_max: Duration,
}

/// A launch is over.
#[derive(Debug)]
pub struct LaunchResult {
    /// What the caller knows it by.
    pub id: u64,
    /// What it showed, if it was recorded.
    pub recording: Option<Recording>,
    /// It was recorded, and its files could not be looked up in time: a file system does not answer.
    pub is_given_up: bool,
    /// Pages that it accessed in files without a name: removed ones, those that its user may not read, or those that an
    /// overlay copied up.
    pub unresolved_pages: u64,
    /// What was measured of it.
    pub measured: Measured,
    /// What was fetched for it.
    pub prefetch: Option<PrefetchOutcome>,
    /// How long it took to name the recording's files and look them up on their devices, in microseconds; 0 without one.
    pub named_us: u64,
    /// Where the recording's files are on their devices.
    pub block_map: Option<BlockMap>,
}

impl LaunchResult {
    /// Of a launch of which nothing is recorded, as far as it is not known what was fetched.
    pub fn unrecorded(id: u64, measured: Measured) -> Self {
        Self {
            id,
            recording: None,
            is_given_up: false,
            unresolved_pages: 0,
            measured,
            prefetch: None,
            named_us: 0,
            block_map: None,
        }
    }
}

/// The recorder's answer to the demand for rings.
#[derive(Debug)]
struct Opening {
    is_asked_for: bool,
    opened: Receiver<Opened>,
}

/// Records launches and prefetches for them.
#[derive(Debug)]
pub struct Launches {
    crew: Crew,
    recorder: Mailbox<Command, LaunchResult>,
    /// The rings, once they are open.
    opened: OnceLock<Opened>,
    /// Where that comes from.
    opening: Mutex<Opening>,
    /// What is known of each launch from its beginning until its result is taken.
    under_way: Mutex<BTreeMap<u64, Option<Arc<Prefetch>>>>,
    params: EngineParams,
}

impl Launches {
    /// Creates the threads. The rings are opened when somebody first wants to record, or to know if that can be. What this
    /// kernel refuses is done without: see [`Launches::warnings`]. `capacities` are those of the cores
    /// ([`prepage_kernel::sched::capacities`]).
    ///
    /// # Errors
    /// Where a thread cannot be created.
    pub fn start(
        params: &EngineParams,
        launch: &LaunchParams,
        capacities: &[(usize, u32)],
    ) -> Result<Self> {
        let cores = Cores::new(
            capacities,
            &params.fetch.big_cores,
            &params.fetch.little_cores,
        );
        let (opened, opening) = sync_channel(1);
        let opening = Opening {
            is_asked_for: false,
            opened: opening,
        };
        Ok(Self {
            crew: Crew::start(params.fetch.path_threads)?,
            recorder: recorder::start(cores.all, params, launch, opened)?,
            opened: OnceLock::new(),
            opening: Mutex::new(opening),
            under_way: Mutex::default(),
            params: params.clone(),
        })
    }

    /// Takes over parameters for launches that begin from now on; how many threads are ready and how large the rings are
    /// stays as it was.
    pub fn set_params(&mut self, params: &EngineParams, launch: &LaunchParams) {
        self.params = params.clone();
        let params = Box::new((params.observe.clone(), launch.clone()));
        self.recorder.tell(Command::SetParams(params));
    }

    /// Has the rings opened, without waiting for them: for a caller whose launches do not wait either
    /// ([`Launch::rings_wait_max`]).
    pub fn open_rings(&self) {
        self.opened(Duration::ZERO);
    }

    /// What this kernel refused, and what that costs, as far as it is known after a second.
    pub fn warnings(&self) -> &[String] {
        let opened = self.opened(RINGS_WAIT_MAX);
        opened.map_or(&[], |opened| &opened.warnings)
    }

    /// Whether launches can be recorded, as far as it is known after a second.
    pub fn can_record(&self) -> bool {
        let opened = self.opened(RINGS_WAIT_MAX);
        opened.is_some_and(|opened| opened.gate.is_some())
    }

    /// The rings; `None` where they are not open after `wait_max`.
    fn opened(&self, wait_max: Duration) -> Option<&Opened> {
        if self.opened.get().is_none() {
            let mut opening = locked(&self.opening);
            if !std::mem::replace(&mut opening.is_asked_for, true) {
                self.recorder.tell(Command::Open);
            }
            // Another may have waited for them meanwhile.
            if self.opened.get().is_none() {
                let opened = match opening.opened.recv_timeout(wait_max) {
                    Ok(opened) => opened,
                    Err(RecvTimeoutError::Disconnected) => Opened::default(),
                    Err(RecvTimeoutError::Timeout) => return None,
                };
                return Some(self.opened.get_or_init(|| opened));
            }
        }
        self.opened.get()
    }

    /// Begins a launch: wakes the threads that prefetch, and returns when everything that is to be recorded is. The
    /// prefetch does not wait for the rings: what it does before they are on, it counts itself. The launch's id must not
    /// be that of another whose result has not been taken. Returns whether it is recorded from its beginning.
    pub fn begin(&self, mut launch: Launch) -> bool {
        let mut under_way = self.under_way();
        let has_room = under_way.len() < LAUNCHES_MAX;
        // A process that is gone already has ended: nothing to fetch for, and nothing to see.
        let place = Place::of(launch.root_pid, launch.rights.clone())
            .ok()
            .map(Arc::new);
        let plan = launch.decision.prefetch.take().filter(|_| has_room);
        let prefetch = plan.zip(place.clone()).map(|(plan, place)| {
            let prefetch = Prefetch::new(plan, place, launch.began, &self.params.fetch);
            let prefetch = Arc::new(prefetch);
            let tasks = prefetch.tasks(self.params.fetch.path_threads);
            let count = tasks.len();
            prefetch.give_up(count - self.crew.run(launch.rights.uid, tasks));
            prefetch
        });
        under_way.insert(launch.id, prefetch.clone());
        drop(under_way);
        let records = launch.decision.records && has_room && place.is_some();
        let opened = records.then(|| self.opened(launch.rings_wait_max));
        let gate = opened.flatten().and_then(|opened| opened.gate.as_ref());
        let mut profile = None;
        if let Some(gate) = gate {
            gate.enter();
            // Without the right to trace, what is opened is seen all the same.
            let is_traced = launch.decision.profiles_paths && launch.traces_paths;
            profile = is_traced
                .then(|| PathProfile::start(launch.root_pid).ok())
                .flatten();
        }
        self.recorder.tell(Command::Begin(Box::new(Begun {
            place,
            prefetch,
            recorded: match gate {
                Some(_) => Recorded::Whole,
                None if records && launch.decision.is_held_out => Recorded::Late,
                None => Recorded::No,
            },
            profile,
            launch,
        })));
        gate.is_some()
    }

    /// The picture that stays is there, or the caller knows otherwise that the launch is over.
    pub fn settled(&self, id: u64) {
        let at = monotonic_ns();
        self.recorder.tell(Command::Settled { id, at });
    }

    /// Waits until everything planned for a launch is fetched (the reads are complete, not only submitted), at most for
    /// `limit`. Returns whether it is.
    pub fn wait_prefetched(&self, id: u64, limit: Duration) -> bool {
        let prefetch = self.under_way().get(&id).cloned().flatten();
        prefetch.is_none_or(|prefetch| prefetch.wait(limit))
    }

    /// Readable when [`Launches::results`] has something.
    pub fn done_fd(&self) -> BorrowedFd<'_> {
        self.recorder.done_fd()
    }

    /// The launches that are over, each once.
    pub fn results(&self) -> Vec<LaunchResult> {
        let results = self.recorder.results();
        let mut under_way = self.under_way();
        for result in &results {
            under_way.remove(&result.id);
        }
        results
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, Option<Arc<Prefetch>>>> {
        locked(&self.under_way)
    }
}
