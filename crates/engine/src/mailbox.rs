//! A thread that sleeps in poll(2) among other descriptors, what it is told, and what it answers.

use crate::error::{Error, Result};
use crate::thread;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// The owner's end. Dropping it ends the thread, once that looks into its [`Inbox`].
#[derive(Debug)]
pub struct Mailbox<C, R> {
    commands: Sender<C>,
    bell: Arc<Bell>,
    results: Receiver<R>,
    outbox: Outbox<R>,
}

/// The thread's end.
#[derive(Debug)]
pub struct Inbox<C, R> {
    commands: Receiver<C>,
    bell: Arc<Bell>,
    outbox: Outbox<R>,
}

/// Where answers go: of the thread, and of others.
#[derive(Debug)]
pub struct Outbox<R> {
    results: Sender<R>,
    done: Arc<Bell>,
}

/// No more is told: the owner is gone.
#[derive(Debug)]
pub struct Closed;

impl<C: Send + 'static, R: Send + 'static> Mailbox<C, R> {
    /// Creates the thread.
    ///
    /// # Errors
    /// [`Error::Thread`] where it cannot be created.
    pub fn start(name: &str, work: impl FnOnce(Inbox<C, R>) + Send + 'static) -> Result<Self> {
        let failed = |source| Error::Thread {
            name: name.into(),
            source,
        };
        let bell = Arc::new(Bell::new().map_err(failed)?);
        let done = Arc::new(Bell::new().map_err(failed)?);
        let (commands, commands_out) = channel();
        let (results_in, results) = channel();
        let outbox = Outbox {
            results: results_in,
            done,
        };
        let inbox = Inbox {
            commands: commands_out,
            bell: Arc::clone(&bell),
            outbox: outbox.clone(),
        };
        thread::spawn(name, move || work(inbox))?;
        Ok(Self {
            commands,
            bell,
            results,
            outbox,
        })
    }
}

impl<C, R> Mailbox<C, R> {
    /// Tells the thread something and wakes it.
    pub fn tell(&self, command: C) {
        // The thread ends only when this end is dropped.
        let _ = self.commands.send(command);
        self.bell.ring();
    }

    /// Readable when there are answers.
    pub fn done_fd(&self) -> BorrowedFd<'_> {
        self.outbox.done.fd()
    }

    /// Makes [`Mailbox::done_fd`] readable.
    pub fn ring_done(&self) {
        self.outbox.done.ring();
    }

    /// Where others than the thread answer.
    pub fn outbox(&self) -> &Outbox<R> {
        &self.outbox
    }

    /// The answers since the last call.
    pub fn results(&self) -> Vec<R> {
        self.outbox.done.silence();
        self.results.try_iter().collect()
    }
}

impl<C, R> Drop for Mailbox<C, R> {
    fn drop(&mut self) {
        // The thread wakes, and finds its queue closed.
        let (closed, _) = channel();
        self.commands = closed;
        self.bell.ring();
    }
}

impl<C, R> Inbox<C, R> {
    /// Readable when the thread was told something, until [`Inbox::silence`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    /// Makes [`Inbox::fd`] unreadable; to be called before [`Inbox::take`].
    pub fn silence(&self) {
        self.bell.silence();
    }

    /// The next command, if there is one.
    ///
    /// # Errors
    /// [`Closed`] when nobody is left to tell the thread anything.
    pub fn take(&self) -> std::result::Result<Option<C>, Closed> {
        match self.commands.try_recv() {
            Ok(command) => Ok(Some(command)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Closed),
        }
    }

    /// Where answers go.
    pub fn outbox(&self) -> &Outbox<R> {
        &self.outbox
    }
}

impl<R> Outbox<R> {
    /// Answers.
    pub fn send(&self, result: R) {
        // The owner is gone where this fails, and nobody wants the answer.
        let _ = self.results.send(result);
        self.done.ring();
    }
}

impl<R> Clone for Outbox<R> {
    fn clone(&self) -> Self {
        Self {
            results: self.results.clone(),
            done: Arc::clone(&self.done),
        }
    }
}

/// What wakes a thread that polls: an eventfd, readable from its first ring until it is silenced.
#[derive(Debug)]
struct Bell(OwnedFd);

impl Bell {
    fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn ring(&self) {
        // It can only fail where 2^64 wakeups are pending.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn silence(&self) {
        // Not rung: nothing to silence.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}
