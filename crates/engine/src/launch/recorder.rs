//! The thread that follows launches: it sleeps until one begins or ends, a ring is half full, or a deadline passes.

use crate::error::{Error, Result};
use crate::launch::finish::{Ended, finish, unfinished};
use crate::launch::path_profile::PathProfile;
use crate::launch::place::Place;
use crate::launch::prefetch::Prefetch;
use crate::launch::rings::{Batch, Gate, Rings};
use crate::launch::track::{Recorded, Seen, Track};
use crate::launch::{Launch, LaunchResult};
use crate::mailbox::{Closed, Inbox, Mailbox};
use crate::observe::opens::Opening;
use crate::params::{EngineParams, ObserveParams};
use prepage_core::launch::recording::{LaunchEnd, deadline};
use prepage_core::machine::Nanos;
use prepage_core::params::launch::LaunchParams;
use prepage_kernel::Process;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::sched::{self, Policy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// What the thread is told.
#[derive(Debug)]
pub enum Command {
    /// The rings are to be opened.
    Open,
    /// These hold from now on; rings that are open stay as they are.
    SetParams(Box<(ObserveParams, LaunchParams)>),
    /// A launch begins; the rings are on if it is recorded.
    Begin(Box<Begun>),
    /// A launch is over, as the caller knows.
    Settled {
        /// Which.
        id: u64,
        /// When.
        at: Nanos,
    },
}

/// A launch that begins.
#[derive(Debug)]
pub struct Begun {
    /// What the caller said of it.
    pub launch: Launch,
    /// Where its paths hold.
    pub place: Option<Arc<Place>>,
    /// What is fetched for it.
    pub prefetch: Option<Arc<Prefetch>>,
    /// How it is recorded.
    pub recorded: Recorded,
    /// Its path calls, if they are traced.
    pub profile: Option<PathProfile>,
}

/// The rings, as they were opened.
#[derive(Debug, Default)]
pub struct Opened {
    /// Turns them on; `None` where there are none.
    pub gate: Option<Arc<Gate>>,
    /// What this kernel refused, and what that costs.
    pub warnings: Vec<String>,
}

/// Creates the thread. Told to, it has the rings opened: that takes one or two milliseconds, or a tenth of a second, and
/// neither who prefetches nor who is to see launches end waits for it. `opened` gets what came of it. Without rings,
/// launches are not recorded.
///
/// # Errors
/// [`crate::Error::Thread`] where it cannot be created.
pub fn start(
    cpus: Vec<usize>,
    params: &EngineParams,
    launch: &LaunchParams,
    opened: SyncSender<Opened>,
) -> Result<Mailbox<Command, LaunchResult>> {
    let (observe, params) = (params.observe.clone(), launch.clone());
    Mailbox::start("prepage-record", move |inbox| {
        let thread = Thread {
            rings: None,
            cpus,
            opening: None,
            opened,
            opening_ns: 0,
            tracks: BTreeMap::new(),
            settled: Vec::new(),
            params,
            observe,
            inbox,
        };
        thread.run();
    })
}

fn open(cpus: &[usize], params: &ObserveParams) -> Result<(Rings, Arc<Gate>)> {
    let rings = Rings::open(cpus, params)?;
    let gate = Arc::new(Gate::of(&rings)?);
    Ok((rings, gate))
}

/// What came of opening the rings, and the CPU time that it took, in nanoseconds.
type Answer = (Result<(Rings, Arc<Gate>)>, u64);

struct Thread {
    rings: Option<(Rings, Arc<Gate>)>,
    cpus: Vec<usize>,
    /// The thread that opens them, until it answers.
    opening: Option<Mailbox<(), Answer>>,
    opened: SyncSender<Opened>,
    /// CPU time of opening the rings that no launch was charged for yet.
    opening_ns: u64,
    tracks: BTreeMap<u64, (Track, Option<Arc<Prefetch>>)>,
    /// Launches that are over, as the caller knows, and since when.
    settled: Vec<(u64, Nanos)>,
    params: LaunchParams,
    observe: ObserveParams,
    inbox: Inbox<Command, LaunchResult>,
}

impl Thread {
    fn run(mut self) {
        // A full ring loses events: a short slice has the scheduler run this thread soon. What the kernel refuses is
        // done without.
        let _ = sched::set_current_thread_policy(Policy::Other {
            nice: 0,
            slice_us: Some(100),
        });
        while self.obey() {
            if self.settled.is_empty() {
                self.wait();
            }
            self.inbox.silence();
            if !self.turn() {
                return;
            }
        }
    }

    /// Takes in what has happened, and ends the launches that are over. Returns whether to go on.
    ///
    /// What is over is told before the rings are emptied: then they held all of it. And who began is told after:
    /// nothing in them is of a launch that is not known.
    fn turn(&mut self) -> bool {
        if !self.obey() {
            return false;
        }
        self.take_rings();
        let settled = std::mem::take(&mut self.settled);
        let now = monotonic_ns();
        let ended = |(&id, (track, _)): (&u64, &(Track, _))| track.is_left().then_some(id);
        let ended: Vec<u64> = self.tracks.iter().filter_map(ended).collect();
        let batch = self.drain();
        let goes_on = self.obey();
        if let Some((batch, openings)) = batch {
            let tracks = self.tracks.values_mut();
            let recorded = tracks.filter_map(|(track, _)| track.seen.as_mut());
            recorded.for_each(|seen| seen.take(&batch, &openings));
        }
        for (id, at) in settled {
            self.end(id, LaunchEnd::Settled, at);
        }
        for id in ended {
            self.end_if_left(id, now);
        }
        self.end_if_idle(now);
        goes_on
    }

    fn is_recording(&self) -> bool {
        self.tracks.values().any(|(track, _)| track.seen.is_some())
    }

    fn wait(&self) {
        let input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![input(self.inbox.fd())];
        fds.extend(self.opening.iter().map(|opening| input(opening.done_fd())));
        let awaited = self.tracks.values().filter_map(|(t, _)| t.awaited.as_ref());
        fds.extend(awaited.map(|process| input(process.pidfd())));
        if let (Some((rings, _)), true) = (&self.rings, self.is_recording()) {
            fds.extend(rings.fds().map(input));
        }
        let look_at = self.tracks.values().map(|(track, _)| track.look_at()).min();
        let timeout = look_at.map(|at| {
            let left_ns = at.saturating_sub(monotonic_ns());
            Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            }
        });
        // EINTR is a wakeup like any other.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// What the kernel has reported, if anybody wants it.
    fn drain(&mut self) -> Option<(Batch, Vec<Opening>)> {
        let is_recording = self.is_recording();
        let (rings, gate) = self.rings.as_mut().filter(|_| is_recording)?;
        let (openings, openings_lost) = gate.openings();
        let batch = Batch {
            openings_lost,
            ..rings.drain()
        };
        Some((batch, openings))
    }

    /// Does what it was told. Returns false when nobody is left to tell it anything.
    fn obey(&mut self) -> bool {
        loop {
            match self.inbox.take() {
                Ok(Some(Command::Open)) => self.open(),
                Ok(Some(Command::SetParams(params))) => (self.observe, self.params) = *params,
                Ok(Some(Command::Begin(begun))) => self.begin(*begun),
                Ok(Some(Command::Settled { id, at })) => self.settled.push((id, at)),
                Ok(None) => return true,
                Err(Closed) => return false,
            }
        }
    }

    /// Has the rings opened. Not by this thread: while others are closed, that takes a tenth of a second, in which launches
    /// end.
    fn open(&mut self) {
        let (cpus, observe) = (self.cpus.clone(), self.observe.clone());
        let opening = Mailbox::start("prepage-rings", move |inbox: Inbox<(), Answer>| {
            let opened = open(&cpus, &observe);
            inbox.outbox().send((opened, sched::thread_cpu_time_ns()));
        });
        match opening {
            Ok(opening) => self.opening = Some(opening),
            Err(error) => self.announce(None, Some(error)),
        }
    }

    /// Takes the rings, once they are open, and records what has waited for them.
    fn take_rings(&mut self) {
        let answer = self.opening.as_ref().map(Mailbox::results);
        let Some((opened, cpu_ns)) = answer.into_iter().flatten().next() else {
            return;
        };
        self.opening = None;
        self.opening_ns = cpu_ns;
        let (rings, gate) = match opened {
            Ok((rings, gate)) => (rings, gate),
            Err(error) => return self.announce(None, Some(error)),
        };
        self.rings = Some((rings, Arc::clone(&gate)));
        self.record_late();
        self.announce(Some(gate), None);
    }

    /// Records the launches that wait for the rings, where these are open.
    fn record_late(&mut self) {
        let Some((rings, gate)) = &self.rings else {
            return;
        };
        let tracks = self.tracks.values_mut().map(|(track, _)| track);
        for track in tracks.filter(|track| track.awaits_rings()) {
            gate.enter();
            track.seen = Some(Seen::new(&track.launch, rings.source(), None));
            track.look_us = deadline(0, &self.params).0;
        }
    }

    /// Says what came of opening the rings.
    fn announce(&self, gate: Option<Arc<Gate>>, error: Option<Error>) {
        let cost = "launches are not learned; what is known of them is fetched";
        let warning = error.map(|error| format!("{error}; {cost}"));
        // Nobody may want to know any more.
        let _ = self.opened.send(Opened {
            gate,
            warnings: warning.into_iter().collect(),
        });
    }

    fn begin(&mut self, begun: Begun) {
        let launch = begun.launch;
        let rings = self.rings.as_ref().map(|(rings, _)| rings);
        let seen = rings
            .filter(|_| begun.recorded == Recorded::Whole)
            .map(|rings| Seen::new(&launch, rings.source(), begun.profile));
        let idle_us = deadline(0, &self.params).0;
        let track = Track {
            awaited: Process::open(launch.root_pid).ok(),
            place: begun.place,
            look_us: match seen {
                Some(_) => idle_us,
                // Nobody sees when it is idle.
                None => self.params.t_timeout_ms * 1_000,
            },
            recorded: begun.recorded,
            seen,
            cpu_ns: sched::thread_cpu_time_ns(),
            launch,
        };
        self.tracks.insert(track.launch.id, (track, begun.prefetch));
        self.record_late();
    }

    /// Ends a launch whose awaited process has ended, unless another of its tree lives.
    fn end_if_left(&mut self, id: u64, now: Nanos) {
        if let Some((track, _)) = self.tracks.get_mut(&id) {
            track.awaited = track.seen.as_ref().and_then(Seen::living);
            if track.awaited.is_none() {
                self.end(id, LaunchEnd::Exit, now);
            }
        }
    }

    /// Ends the launches that have been idle, or under way, for as long as a launch may be.
    fn end_if_idle(&mut self, now: Nanos) {
        let mut over = Vec::new();
        for (&id, (track, _)) in &mut self.tracks {
            if track.look_at() > now {
                continue;
            }
            let last_us = match &track.seen {
                Some(seen) => seen.last_need_us(&track.launch),
                None => u64::MAX,
            };
            let (due_us, end) = deadline(last_us, &self.params);
            track.look_us = due_us;
            if track.look_at() <= now {
                over.push((id, end, track.at(last_us.min(due_us))));
            }
        }
        for (id, end, at) in over {
            self.end(id, end, at);
        }
    }

    /// Ends a launch that was over at a time, if it is still under way.
    fn end(&mut self, id: u64, end: LaunchEnd, at: Nanos) {
        let Some((track, prefetch)) = self.tracks.remove(&id) else {
            return;
        };
        let launch_us = at.saturating_sub(track.launch.began) / 1_000;
        if let Some(prefetch) = &prefetch {
            prefetch.cancel();
        }
        if let (Some((_, gate)), true) = (&self.rings, track.seen.is_some()) {
            gate.leave();
        }
        let mut recording_ns = 0;
        if track.seen.is_some() {
            let since_begin_ns = sched::thread_cpu_time_ns().saturating_sub(track.cpu_ns);
            recording_ns = since_begin_ns + std::mem::take(&mut self.opening_ns);
        }
        let ended = Ended {
            track,
            prefetch,
            end,
            launch_us,
            recording_us: recording_ns / 1_000,
            settle_max: Duration::from_millis(self.observe.settle_ms),
            name_max: Duration::from_millis(self.params.t_timeout_ms),
        };
        self.finish(ended);
    }

    /// In a thread of its own: a file system that does not answer holds up this launch's result only.
    fn finish(&self, ended: Ended) {
        let outbox = self.inbox.outbox().clone();
        let unfinished = unfinished(&ended);
        let work = move || {
            let _ = sched::set_current_thread_policy(Policy::Other {
                nice: FINISH_NICE,
                slice_us: None,
            });
            outbox.send(finish(ended));
        };
        let thread = std::thread::Builder::new().name("prepage-finish".into());
        if thread.spawn(work).is_err() {
            self.inbox.outbox().send(unfinished);
        }
    }
}

/// Nice value of what comes after a launch. Not SCHED_IDLE, which would hold locks of directories for long.
const FINISH_NICE: i32 = 19;

impl Track {
    /// So many microseconds after it began.
    fn at(&self, us: u64) -> Nanos {
        self.launch.began.saturating_add(us.saturating_mul(1_000))
    }

    fn look_at(&self) -> Nanos {
        self.at(self.look_us)
    }

    /// Whether it is recorded as soon as the rings are open.
    fn awaits_rings(&self) -> bool {
        self.recorded == Recorded::Late && self.seen.is_none()
    }

    /// Whether the process whose end is waited for has ended.
    fn is_left(&self) -> bool {
        !self.awaited.as_ref().is_some_and(Process::is_alive)
    }
}
