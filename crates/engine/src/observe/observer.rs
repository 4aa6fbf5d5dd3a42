//! The thread that observes: it sleeps until a switch begins or ends, or a ring is half full. It asks no file system
//! and no process for its memory, so that it never hangs: [`Collectors`] do.

use crate::error::Result;
use crate::executor::Members;
use crate::mailbox::{Closed, Inbox, Mailbox};
use crate::members::{self, Member};
use crate::observe::collect::{Task, collect};
use crate::observe::collectors::{Collectors, Subject};
use crate::observe::files::{FileTrace, FilesSeen};
use crate::observe::opens::Opens;
use crate::observe::resolve::Paths;
use crate::params::ObserveParams;
use prepage_core::app::Observation;
use prepage_core::extent::ExtentSet;
use prepage_core::identity::AppId;
use prepage_core::machine::{Event, Nanos};
use prepage_core::outcome::Void;
use prepage_kernel::process::own_pid;
use prepage_kernel::{process_madvise, sched};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the observer is told.
#[derive(Debug)]
pub enum Command {
    /// A switch to this application begins whose file accesses are recorded; recording is on.
    Begin {
        /// The application.
        app: AppId,
        /// Where its processes are.
        copies: Vec<Members>,
        /// When it began.
        began: Nanos,
    },
    /// A switch is over; recording is off unless another such switch is under way.
    Collect(Box<Task>),
    /// Pages are to be made cold.
    Cool {
        /// The application.
        app: AppId,
        /// Its process.
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

/// Creates the thread. Without a trace, file accesses are not observed. Threads that hang in an observation are counted in
/// `given_up`.
///
/// # Errors
/// [`crate::Error::Thread`] where it cannot be created.
pub fn start(
    trace: Option<FileTrace>,
    params: &ObserveParams,
    given_up: Arc<AtomicUsize>,
) -> Result<Mailbox<Command, Event>> {
    let collectors = Collectors::start(limit(params), given_up)?;
    let params = Arc::new(params.clone());
    Mailbox::start("prepage-observer", move |inbox| {
        let thread = Thread {
            trace,
            collectors,
            params,
            inbox,
            paths: HashMap::new(),
            recorded: HashMap::new(),
        };
        thread.run();
    })
}

fn limit(params: &ObserveParams) -> Duration {
    Duration::from_millis(params.watchdog_ms)
}

struct Thread {
    trace: Option<FileTrace>,
    collectors: Collectors,
    params: Arc<ObserveParams>,
    inbox: Inbox<Command, Event>,
    paths: HashMap<AppId, Arc<Mutex<Paths>>>,
    /// The switches under way whose file accesses are recorded.
    recorded: HashMap<AppId, Recorded>,
}

/// A switch whose file accesses are recorded.
#[derive(Debug, Default)]
struct Recorded {
    copies: Vec<Members>,
    began: Nanos,
    /// `None` until the watch has begun.
    opens: Arc<Mutex<Option<Opens>>>,
}

impl Thread {
    fn run(mut self) {
        loop {
            self.wait();
            self.inbox.silence();
            if !self.recorded.is_empty() {
                self.drain();
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
        if !self.recorded.is_empty() {
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
            Command::Begin { app, copies, began } => self.begin(app, copies, began),
            Command::Collect(task) => self.collect(task),
            Command::Cool { app, member, pages } => {
                let cool = move || {
                    let ranges: Vec<_> = pages.extents().iter().map(|e| e.start..e.end()).collect();
                    // A process that ended has no pages to make cold.
                    let pidfd = member.process.pidfd();
                    let advice = process_madvise::Advice::Cold;
                    let _ = process_madvise::advise_all(pidfd, advice, &ranges);
                };
                // What is not cooled looks used to the kernel for a while.
                self.collectors.run(Subject::App(app), Box::new(cool));
            }
            Command::Forget(app) => drop(self.paths.remove(&app)),
            Command::SetParams(params) => {
                if let Some(trace) = &mut self.trace {
                    trace.table().set_files_max(params.file_buffer_files);
                }
                self.collectors.set_limit(limit(&params));
                self.params = Arc::from(params);
            }
            Command::Trace(trace) => self.trace = trace.map(|trace| *trace),
        }
    }

    fn drain(&mut self) {
        let recorded = &self.recorded;
        if let Some(trace) = &mut self.trace {
            trace.drain(|| {
                let copies = recorded.values().flat_map(|switch| &switch.copies);
                let pids = copies.flat_map(members::pids_of);
                // What we read is ours.
                pids.chain([own_pid()]).collect()
            });
        }
    }

    fn begin(&mut self, app: AppId, copies: Vec<Members>, began: Nanos) {
        let switch = Recorded {
            copies,
            began,
            opens: Arc::default(),
        };
        let oldest = self.recorded.values().map(|switch| switch.began).min();
        if let Some(trace) = &mut self.trace {
            trace.table().begin(began, oldest.unwrap_or(began));
            let opens = Arc::clone(&switch.opens);
            let start = move || {
                if let Ok(mut opens) = opens.lock() {
                    *opens = Opens::start();
                }
            };
            self.collectors.run(Subject::Mounts, Box::new(start));
        }
        self.recorded.insert(app, switch);
    }

    fn collect(&mut self, mut task: Box<Task>) {
        let before = sched::thread_cpu_time_ns();
        let mut files = None;
        if task.files {
            self.drain();
        }
        let Recorded { opens, .. } = self.recorded.remove(&task.app).unwrap_or_default();
        if let Some(trace) = self.trace.as_mut().filter(|_| task.files) {
            files = Some(trace.seen(&task.pids(), task.began));
            trace.table().forget_owners();
        }
        // One that is followed no longer has no processes, and is forgotten already.
        let paths: Arc<Mutex<Paths>> = match task.members.is_empty() {
            true => Arc::default(),
            false => Arc::clone(self.paths.entry(task.app.clone()).or_default()),
        };
        let params = Arc::clone(&self.params);
        let (app, switch) = (task.app.clone(), task.switch);
        let outbox = self.inbox.outbox().clone();
        let own_ns = sched::thread_cpu_time_ns().saturating_sub(before);
        let collect = move || {
            let before = sched::thread_cpu_time_ns();
            let mut seen = collect_with(&mut task, files.as_ref(), &opens, &paths, &params);
            drop(opens);
            let cpu_ns = sched::thread_cpu_time_ns().saturating_sub(before);
            seen.timing.management_cpu_us = (own_ns + cpu_ns) / 1_000;
            outbox.send(Event::Observed {
                app: task.app,
                switch: task.switch,
                observation: Box::new(seen),
            });
        };
        let is_made = (self.collectors).run(Subject::App(app.clone()), Box::new(collect));
        if !is_made {
            let observation = Box::new(Observation {
                void: Some(Void::EventsLost),
                ..Observation::default()
            });
            self.inbox.outbox().send(Event::Observed {
                app,
                switch,
                observation,
            });
        }
    }
}

/// As [`collect`]. What hangs keeps what it has locked: the observation then goes without.
fn collect_with(
    task: &mut Task,
    files: Option<&FilesSeen>,
    opens: &Mutex<Option<Opens>>,
    paths: &Mutex<Paths>,
    params: &ObserveParams,
) -> Observation {
    let opened = match opens.try_lock() {
        Ok(mut opens) => opens.as_mut().map(Opens::seen).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    match paths.try_lock() {
        Ok(mut paths) => collect(task, files, &opened, &mut paths, params),
        Err(_) => collect(task, files, &opened, &mut Paths::default(), params),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::faults::FaultBuffer;
    use prepage_core::app::Known;
    use prepage_core::identity::AppKind;
    use std::sync::mpsc::channel;

    /// A switch to an application that was followed until a moment ago.
    fn task(app: &AppId) -> Task {
        Task {
            app: app.clone(),
            switch: 1,
            plan: Arc::default(),
            known: Known::default(),
            members: Vec::new(),
            files: true,
            job: None,
            faults: FaultBuffer::default(),
            began: 0,
            switch_path_us: 0,
        }
    }

    #[test]
    fn an_application_that_is_followed_no_longer_leaves_nothing() {
        let app = AppId {
            kind: AppKind::Named,
            name: "app".into(),
            owner: 0,
        };
        let (tell, told) = channel();
        let observed = Mailbox::start("test", move |inbox| {
            let params = Arc::new(ObserveParams::default());
            let collectors = Collectors::start(limit(&params), Arc::default());
            let mut thread = Thread {
                trace: None,
                collectors: collectors.expect("a thread"),
                params,
                inbox,
                paths: HashMap::from([(app.clone(), Arc::default())]),
                recorded: HashMap::new(),
            };
            thread.obey(Command::Begin {
                app: app.clone(),
                copies: Vec::new(),
                began: 0,
            });
            thread.obey(Command::Forget(app.clone()));
            thread.obey(Command::Collect(Box::new(task(&app))));
            let left = (thread.paths.len(), thread.recorded.len());
            tell.send(left).expect("somebody listens");
        });
        observed.expect("a thread");
        assert_eq!(told.recv(), Ok((0, 0)));
    }
}
