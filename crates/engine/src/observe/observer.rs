//! The thread that observes: it sleeps until a switch begins or ends, or a ring is half full.

use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::members::Member;
use crate::observe::collect::{Task, collect};
use crate::observe::files::FileTrace;
use crate::observe::opens::Opens;
use crate::observe::resolve::Paths;
use crate::params::ObserveParams;
use prepage_core::extent::ExtentSet;
use prepage_core::identity::AppId;
use prepage_core::machine::Event;
use prepage_kernel::{process_madvise, sched};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// What the observer is told.
#[derive(Debug)]
pub enum Command {
    /// A switch begins; recording is on.
    Begin,
    /// A switch is over; recording is off unless another is under way.
    Collect(Box<Task>),
    /// Pages are to be made cold.
    Cool {
        /// The process.
        member: Arc<Member>,
        /// Its virtual pages.
        pages: ExtentSet,
    },
    /// An application is no longer followed.
    Forget(AppId),
    /// Other parameters hold from now on.
    SetParams(Box<ObserveParams>),
}

/// The thread's other end.
#[derive(Debug)]
pub struct Observer {
    commands: Sender<Command>,
    bell: Arc<Bell>,
    results: Receiver<Event>,
    done: Arc<Bell>,
}

impl Observer {
    /// Creates the thread. Without a trace, file accesses are not observed.
    ///
    /// # Errors
    /// [`Error::Thread`] where it cannot be created.
    pub fn start(trace: Option<FileTrace>, params: &ObserveParams) -> Result<Self> {
        let name = "prepage-observer";
        let failed = |source| Error::Thread {
            name: name.into(),
            source,
        };
        let bell = Arc::new(Bell::new().map_err(failed)?);
        let done = Arc::new(Bell::new().map_err(failed)?);
        let (commands, queue) = channel();
        let (results_in, results) = channel();
        let thread = Thread {
            trace,
            opens: None,
            params: params.clone(),
            queue,
            bell: Arc::clone(&bell),
            results: results_in,
            done: Arc::clone(&done),
            paths: HashMap::new(),
            switches: 0,
        };
        std::thread::Builder::new()
            .name(name.into())
            .stack_size(512 << 10)
            .spawn(move || thread.run())
            .map_err(failed)?;
        Ok(Self {
            commands,
            bell,
            results,
            done,
        })
    }

    /// Readable when there are results.
    pub fn done_fd(&self) -> BorrowedFd<'_> {
        self.done.fd()
    }

    /// Tells the thread something and wakes it.
    pub fn tell(&self, command: Command) {
        // The thread ends only when this end is dropped.
        let _ = self.commands.send(command);
        self.bell.ring();
    }

    /// Makes [`Observer::done_fd`] readable.
    pub fn ring_done(&self) {
        self.done.ring();
    }

    /// What the thread has found since the last call.
    pub fn results(&self) -> Vec<Event> {
        self.done.silence();
        self.results.try_iter().collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // The thread wakes, and finds its queue closed.
        let (closed, _) = channel();
        self.commands = closed;
        self.bell.ring();
    }
}

struct Thread {
    trace: Option<FileTrace>,
    /// While a switch is under way.
    opens: Option<Opens>,
    params: ObserveParams,
    queue: Receiver<Command>,
    bell: Arc<Bell>,
    results: Sender<Event>,
    done: Arc<Bell>,
    paths: HashMap<AppId, Paths>,
    /// Switches under way.
    switches: usize,
}

impl Thread {
    fn run(mut self) {
        loop {
            self.wait();
            self.bell.silence();
            if let Some(trace) = self.trace.as_mut().filter(|_| self.switches > 0) {
                trace.drain();
            }
            loop {
                match self.queue.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.bell.fd(), PollFlags::IN)];
        let rings = self.trace.as_ref().map(FileTrace::fds).unwrap_or_default();
        if self.switches > 0 {
            fds.extend(
                rings
                    .into_iter()
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
        }
        // EINTR is a wakeup like any other.
        let _ = poll(&mut fds, None);
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Begin => {
                self.switches += 1;
                if let (1, Some(trace)) = (self.switches, &mut self.trace) {
                    trace.clear();
                    self.opens = Opens::start();
                }
            }
            Command::Collect(task) => self.collect(*task),
            Command::Cool { member, pages } => {
                let ranges: Vec<_> = pages.extents().iter().map(|e| e.start..e.end()).collect();
                // A process that ended has no pages to make cold.
                let pidfd = member.process.pidfd();
                let _ = process_madvise::advise_all(pidfd, process_madvise::Advice::Cold, &ranges);
            }
            Command::Forget(app) => drop(self.paths.remove(&app)),
            Command::SetParams(params) => {
                if let Some(trace) = &mut self.trace {
                    trace.set_files_max(params.file_buffer_files);
                }
                self.params = *params;
            }
        }
    }

    fn collect(&mut self, mut task: Task) {
        let before = sched::thread_cpu_time_ns();
        self.switches = self.switches.saturating_sub(1);
        if let Some(trace) = &mut self.trace {
            trace.drain();
        }
        let paths = self.paths.entry(task.app.clone()).or_default();
        let opens = self.opens.as_mut().map(Opens::seen).unwrap_or_default();
        let mut observation = collect(&mut task, self.trace.as_ref(), opens, paths, &self.params);
        if self.switches == 0 {
            self.opens = None;
        }
        let cpu_ns = sched::thread_cpu_time_ns().saturating_sub(before);
        observation.timing.management_cpu_us = cpu_ns / 1_000;
        // The engine is gone where this fails, and nobody wants the result.
        let _ = self.results.send(Event::Observed {
            app: task.app,
            switch: task.switch,
            observation: Box::new(observation),
        });
        self.done.ring();
    }
}
