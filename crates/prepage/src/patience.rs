//! Questions that a process can leave unanswered: to read its arguments or environment waits for the lock of its address space, which it
//! may hold for as long as it likes, as in munmap(2) of a file whose server does not answer. Who asks for all users waits for none of
//! them: another thread asks, and is left behind where it takes too long.

use prepage_kernel::process;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an answer is waited for. It takes some microseconds, a read of the swap device where it is swapped out, and its turn where
/// all cores are busy.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// Most processes that leave a question unanswered at once, and most of one user's; beyond that, none of theirs is asked.
const UNANSWERED_MAX: usize = 32;
const UNANSWERED_OF_USER_MAX: usize = 4;

type Question = Box<dyn FnOnce() + Send>;

/// The processes that have not answered yet, with their users.
type Unanswered = Arc<Mutex<BTreeMap<i32, Option<u32>>>>;

/// A process that is among them until it has answered, or will not be asked.
struct Asked(i32, Unanswered);

impl Asked {
    fn of(pid: i32, unanswered: &Unanswered) -> Self {
        locked(unanswered).insert(pid, None);
        Self(pid, Arc::clone(unanswered))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        locked(&self.1).remove(&self.0);
    }
}

/// Who asks.
#[derive(Debug)]
struct Asker {
    /// How long an answer is waited for.
    answer_max: Duration,
    /// To the thread that asks; none before the first question, and after one that is not answered.
    line: Option<Sender<Question>>,
    unanswered: Unanswered,
}

impl Asker {
    fn new(answer_max: Duration) -> Self {
        Self {
            answer_max,
            line: None,
            unanswered: Unanswered::default(),
        }
    }

    fn ask<T: Send + 'static>(
        &mut self,
        pid: i32,
        owner: impl Fn(i32) -> Option<u32>,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !self.may_ask(pid, &owner) {
            return None;
        }
        let (answered, answer) = sync_channel(1);
        let asked = Asked::of(pid, &self.unanswered);
        let question = move || {
            // Where it panics, the last is dropped first: whoever waits learns of it when it may be asked again.
            let (answered, asked) = (answered, asked);
            let said = question();
            drop(asked);
            // Nobody may wait for it any more.
            let _ = answered.send(said);
        };
        let line = match self.line.take() {
            Some(line) => line,
            None => start()?,
        };
        line.send(Box::new(question)).ok()?;
        let said = answer.recv_timeout(self.answer_max).ok();
        match said {
            Some(_) => self.line = Some(line),
            None => {
                let owner = owner(pid);
                if let Some(of) = locked(&self.unanswered).get_mut(&pid) {
                    *of = owner;
                }
            }
        }
        said
    }

    fn may_ask(&self, pid: i32, owner: &impl Fn(i32) -> Option<u32>) -> bool {
        let unanswered = locked(&self.unanswered);
        if unanswered.is_empty() {
            return true;
        }
        let owner = owner(pid);
        let of_user = unanswered.values().filter(|of| **of == owner).count();
        !unanswered.contains_key(&pid)
            && unanswered.len() < UNANSWERED_MAX
            && of_user < UNANSWERED_OF_USER_MAX
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

/// What comes of a question about a process, asked by another thread; `None` where it does not answer in time, or has not answered an
/// earlier one yet.
pub fn ask<T: Send + 'static>(
    pid: i32,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    static ASKER: Mutex<Option<Asker>> = Mutex::new(None);
    let owner = |pid| process::status(pid).ok().map(|status| status.uid.real);
    let mut asker = locked(&ASKER);
    let asker = asker.get_or_insert_with(|| Asker::new(ANSWER_MAX));
    asker.ask(pid, owner, question)
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
        let unanswered = Arc::clone(&asker.unanswered);
        assert_eq!(locked(&unanswered).len(), UNANSWERED_OF_USER_MAX);
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
        while !locked(&unanswered).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(asker.ask(100, owner, || 7), Some(7));
    }
}
