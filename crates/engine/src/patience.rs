//! Questions that a process can leave unanswered: to read its arguments, mappings or page table waits for the lock of its
//! address space, which it may hold for as long as it likes, as in munmap(2) of a file whose server does not answer. Who asks
//! for all users waits for none of them: another thread asks, and is left behind where it takes too long.

use prepage_kernel::process;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long an answer is waited for. It takes some microseconds, a read of the swap device where it is swapped out, and its
/// turn where all cores are busy.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// Most processes that leave a question unanswered at once, and most of one user's; beyond that, none of theirs is asked.
const UNANSWERED_MAX: usize = 32;
const UNANSWERED_OF_USER_MAX: usize = 4;

type Question = Box<dyn FnOnce() + Send>;

/// A question that was waited for in vain.
#[derive(Debug)]
struct Unanswered {
    pid: i32,
    owner: Option<u32>,
    /// The thread that asks has it until it is answered, or will not be asked.
    pending: Weak<()>,
}

/// Who asks.
#[derive(Debug)]
struct Asker {
    /// How long an answer is waited for.
    answer_max: Duration,
    /// To a thread that asks and is free; none before the first question, after one that is not answered, and while another
    /// waits for an answer.
    line: Mutex<Option<Sender<Question>>>,
    unanswered: Mutex<Vec<Unanswered>>,
}

impl Asker {
    const fn new(answer_max: Duration) -> Self {
        Self {
            answer_max,
            line: Mutex::new(None),
            unanswered: Mutex::new(Vec::new()),
        }
    }

    /// Nothing is locked while an answer is waited for.
    fn ask<T: Send + 'static>(
        &self,
        pid: i32,
        owner: impl Fn(i32) -> Option<u32>,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !self.may_ask(pid, &owner) {
            return None;
        }
        let (answered, answer) = sync_channel(1);
        let asked = Arc::new(());
        let pending = Arc::downgrade(&asked);
        let question = move || {
            let said = question();
            drop(asked);
            // Nobody may wait for it any more.
            let _ = answered.send(said);
        };
        let free = locked(&self.line).take();
        let line = free.or_else(start)?;
        line.send(Box::new(question)).ok()?;
        let said = answer.recv_timeout(self.answer_max).ok();
        match said {
            Some(_) => *locked(&self.line) = Some(line),
            None => locked(&self.unanswered).push(Unanswered {
                pid,
                owner: owner(pid),
                pending,
            }),
        }
        said
    }

    fn may_ask(&self, pid: i32, owner: &impl Fn(i32) -> Option<u32>) -> bool {
        let mut unanswered = locked(&self.unanswered);
        unanswered.retain(|left| left.pending.strong_count() > 0);
        if unanswered.is_empty() {
            return true;
        }
        let owner = owner(pid);
        let of_user = unanswered.iter().filter(|left| left.owner == owner);
        unanswered.iter().all(|left| left.pid != pid)
            && unanswered.len() < UNANSWERED_MAX
            && of_user.count() < UNANSWERED_OF_USER_MAX
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that asks until nobody has a question for it any more.
fn start() -> Option<Sender<Question>> {
    let (line, questions): (_, Receiver<Question>) = channel();
    let run = move || questions.into_iter().for_each(|question| question());
    let thread = std::thread::Builder::new().name("prepage-ask".into());
    thread.spawn(run).ok()?;
    Some(line)
}

/// What comes of a question about a process, asked by another thread; `None` where it does not answer in time, or has not
/// answered an earlier one yet.
pub fn ask<T: Send + 'static>(
    pid: i32,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    static ASKER: Asker = Asker::new(ANSWER_MAX);
    let owner = |pid| process::status(pid).ok().map(|status| status.uid.real);
    ASKER.ask(pid, owner, question)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_waited_for_once_and_others_not_at_all() {
        let mut asker = Asker::new(Duration::from_millis(1));
        let owner = |pid: i32| Some(pid.cast_unsigned() / 100);
        let mut held = Vec::new();
        // Of one user, until no more of theirs are asked.
        for pid in 100..100 + 2 * UNANSWERED_OF_USER_MAX as i32 {
            let (release, wait) = channel::<()>();
            let answer = asker.ask(pid, owner, move || wait.recv().is_err());
            assert_eq!(answer, None);
            held.push(release);
        }
        // Whoever answers is waited for, however busy the machine is.
        asker.answer_max = Duration::from_secs(10);
        assert_eq!(locked(&asker.unanswered).len(), UNANSWERED_OF_USER_MAX);
        assert_eq!(asker.ask(100, owner, || 7), None, "it is not asked again");
        assert_eq!(asker.ask(150, owner, || 7), None, "nor is its user");
        for number in 0..9 {
            assert_eq!(asker.ask(200, owner, move || number), Some(number));
        }
        // A panic of which nothing is told.
        let failed = asker.ask(300, owner, || -> u8 {
            std::panic::resume_unwind(Box::new(()))
        });
        assert_eq!(failed, None);
        assert_eq!(asker.ask(300, owner, || 7), Some(7));
        drop(held);
        let is_pending = |left: &Unanswered| left.pending.strong_count() > 0;
        while locked(&asker.unanswered).iter().any(is_pending) {
            std::thread::yield_now();
        }
        assert_eq!(asker.ask(100, owner, || 7), Some(7));
    }

    #[test]
    fn who_waits_for_an_answer_holds_up_no_other_who_asks() {
        let asker = Asker::new(Duration::from_secs(10));
        let owner = |_| Some(1);
        let (asking, asked) = channel::<()>();
        let (answer, said) = channel::<u8>();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                asker.ask(1, owner, move || {
                    asking.send(()).expect("somebody listens");
                    said.recv().expect("an answer")
                })
            });
            asked.recv().expect("it is asked");
            assert_eq!(asker.ask(1, owner, || 7), Some(7));
            answer.send(9).expect("it waits");
            assert_eq!(slow.join().expect("no panic"), Some(9));
        });
    }
}
