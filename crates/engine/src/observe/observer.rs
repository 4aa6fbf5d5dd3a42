//! The thread that observes: it sleeps until a switch begins or ends, or a ring is half full.

use crate::error::Result;
use crate::mailbox::{Closed, Inbox, Mailbox};
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
use std::sync::Arc;

/// What the observer is told.
#[derive(Debug)]
pub enum Command {
    /// A switch begins whose file accesses are recorded; recording is on.
    Begin,
    /// A switch is over; recording is off unless another such switch is under way.
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
    /// Other rings hold what is recorded from now on.
    Trace(Option<Box<FileTrace>>),
}

/// Creates the thread. Without a trace, file accesses are not observed.
///
/// # Errors
/// [`crate::Error::Thread`] where it cannot be created.
pub fn start(trace: Option<FileTrace>, params: &ObserveParams) -> Result<Mailbox<Command, Event>> {
    let params = params.clone();
    Mailbox::start("prepage-observer", move |inbox| {
        let thread = Thread {
            trace,
            opens: None,
            params,
            inbox,
            paths: HashMap::new(),
            switches: 0,
        };
        thread.run();
    })
}

struct Thread {
    trace: Option<FileTrace>,
    /// While file accesses are recorded.
    opens: Option<Opens>,
    params: ObserveParams,
    inbox: Inbox<Command, Event>,
    paths: HashMap<AppId, Paths>,
    /// Switches under way whose file accesses are recorded.
    switches: usize,
}

impl Thread {
    fn run(mut self) {
        loop {
            self.wait();
            self.inbox.silence();
            if let Some(trace) = self.trace.as_mut().filter(|_| self.switches > 0) {
                trace.drain();
            }
            loop {
                match self.inbox.take() {
                    Ok(Some(command)) => self.obey(command),
                    Ok(None) => break,
                    Err(Closed) => return,
                }
            }
        }
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.inbox.fd(), PollFlags::IN)];
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
            Command::Trace(trace) => self.trace = trace.map(|trace| *trace),
        }
    }

    fn collect(&mut self, mut task: Task) {
        let before = sched::thread_cpu_time_ns();
        self.switches -= usize::from(task.files);
        if let Some(trace) = self.trace.as_mut().filter(|_| task.files) {
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
        self.inbox.outbox().send(Event::Observed {
            app: task.app,
            switch: task.switch,
            observation: Box::new(observation),
        });
    }
}
