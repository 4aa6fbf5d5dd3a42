//! Questions that a process can leave unanswered: to read its arguments, mappings or page table waits for the lock of its
//! address space, which it may hold for as long as it likes, as in munmap(2) of a file whose server does not answer. A file
//! system may leave them unanswered too. Who asks for all users waits for none of them: another thread asks, and is left
//! behind where it takes too long.

use crate::accounts::accountable;
use crate::locked::locked;
use prepage_kernel::process;
use prepage_kernel::readable::readable_within;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// How long a process's answer is waited for. It takes some microseconds, a read of the swap device where it is swapped out, and its
/// turn where all cores are busy.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// Most processes that leave a question unanswered at once, and most of one user's, root's apart; beyond that, none of
/// theirs is asked.
const UNANSWERED_MAX: usize = 32;
const UNANSWERED_OF_USER_MAX: usize = 4;

/// How long the processes of one user, root's apart, may have a second's questions wait in all, those that are answered among them.
/// Answers that come as fast as they should do not count: where all cores are busy, some take their turn.
const WAITED_MAX: Duration = Duration::from_millis(400);
const WAITED_IN: Duration = Duration::from_secs(1);
const FAST: Duration = Duration::from_millis(2);

/// Most launches whose files are looked up in vain at once, and most of one user's, root's apart.
const LOOK_UPS_MAX: usize = 16;
const LOOK_UPS_OF_USER_MAX: usize = 4;

type Question = Box<dyn FnOnce() + Send>;

/// A thread that asks.
#[derive(Debug)]
struct Line {
    questions: Sender<Question>,
    /// One byte for each question that is answered. Who is woken by a pipe runs where the answer was written, since the kernel takes
    /// it that who writes there sleeps next (WF_SYNC); by a condition variable, mostly where it ran before. Where an application
    /// just launched keeps that core busy, and the other one only asked, that was after the next tick, 4 ms.
    answered: PipeReader,
}

impl Line {
    /// Starts a thread that asks until nobody has a question for it any more. `None` where there can be none.
    fn start() -> Option<Self> {
        let (questions, posed) = channel::<Question>();
        let (answered, mut answers) = std::io::pipe().ok()?;
        let run = move || {
            for question in posed {
                question();
                // Nobody may wait for it any more.
                let _ = answers.write(&[0]);
            }
        };
        let thread = std::thread::Builder::new().name("prepage-ask".into());
        thread.spawn(run).ok()?;
        Some(Self {
            questions,
            answered,
        })
    }

    /// Whether the question is answered in time.
    fn pose(&mut self, question: Question, answer_max: Duration) -> bool {
        let is_ready = self.questions.send(question).is_ok()
            && readable_within(self.answered.as_fd(), answer_max).unwrap_or(false);
        // Nothing is to be read of a thread that has ended.
        is_ready && self.answered.read(&mut [0]).is_ok_and(|read| read == 1)
    }
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// A process, by its process id.
    Process(i32),
    /// The file systems that a launch of this user's has read from.
    LaunchFiles(u32),
    /// The file systems that are watched for openings.
    Openings,
}

/// A question that was waited for in vain.
#[derive(Debug)]
struct Unanswered {
    subject: Subject,
    /// The user whose process, or whose launch, it is.
    owner: Option<u32>,
    /// The thread that asks has it until it is answered, or will not be asked.
    pending: Weak<()>,
}

/// How long a user's processes had questions wait.
#[derive(Debug)]
struct Waited {
    owner: Option<u32>,
    since: Instant,
    waited: Duration,
}

impl Waited {
    fn is_of_now(&self) -> bool {
        self.since.elapsed() < WAITED_IN
    }

    fn is_too_long(&self) -> bool {
        self.waited >= WAITED_MAX && self.is_of_now()
    }
}

/// Who asks.
#[derive(Debug)]
struct Asker {
    /// To a thread that asks and is free; none before the first question, after one that is not answered, and while another
    /// waits for an answer. Who looks up the files of a launch has a thread of its own.
    line: Mutex<Option<Line>>,
    unanswered: Mutex<Vec<Unanswered>>,
    /// Of each user whose processes were slow to answer.
    waited: Mutex<Vec<Waited>>,
    /// Whose process it is.
    owner_of: fn(i32) -> Option<u32>,
}

impl Asker {
    const fn new(owner_of: fn(i32) -> Option<u32>) -> Self {
        Self {
            line: Mutex::new(None),
            unanswered: Mutex::new(Vec::new()),
            waited: Mutex::new(Vec::new()),
            owner_of,
        }
    }

    /// Nothing is locked while an answer is waited for.
    fn ask<T: Send + 'static>(
        &self,
        subject: Subject,
        answer_max: Duration,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !self.may_ask(subject) {
            return None;
        }
        let (answered, answer) = sync_channel(1);
        let asked = Arc::new(());
        let pending = Arc::downgrade(&asked);
        let question = move || {
            let said = question();
            drop(asked);
            let _ = answered.send(said);
        };
        // A thread keeps the priority of who made it: only what comes after a launch is asked at a low one.
        let is_shared = !matches!(subject, Subject::LaunchFiles(_));
        let free = is_shared.then(|| locked(&self.line).take()).flatten();
        let mut line = free.or_else(Line::start)?;
        let began = Instant::now();
        let is_answered = line.pose(Box::new(question), answer_max);
        self.charge(subject, began.elapsed());
        let said = answer.try_recv().ok().filter(|_| is_answered);
        match said {
            Some(_) if is_shared => *locked(&self.line) = Some(line),
            Some(_) => {}
            None => locked(&self.unanswered).push(Unanswered {
                subject,
                owner: self.owner_of(subject),
                pending,
            }),
        }
        said
    }

    fn owner_of(&self, subject: Subject) -> Option<u32> {
        match subject {
            Subject::Process(pid) => (self.owner_of)(pid),
            Subject::LaunchFiles(owner) => Some(owner),
            Subject::Openings => None,
        }
    }

    /// Counts what was waited for a process to its user.
    fn charge(&self, subject: Subject, waited: Duration) {
        if waited < FAST || !matches!(subject, Subject::Process(_)) {
            return;
        }
        let owner = self.owner_of(subject);
        let mut all = locked(&self.waited);
        all.retain(Waited::is_of_now);
        match all.iter_mut().find(|user| user.owner == owner) {
            Some(user) => user.waited += waited,
            None => all.push(Waited {
                owner,
                since: Instant::now(),
                waited,
            }),
        }
    }

    /// Whether no more than may be was waited for this one's user.
    fn has_time_for(&self, subject: Subject) -> bool {
        if !matches!(subject, Subject::Process(_)) {
            return true;
        }
        let waited = locked(&self.waited);
        if !waited.iter().any(Waited::is_too_long) {
            return true;
        }
        let owner = self.owner_of(subject);
        let is_theirs = |user: &&Waited| user.owner == owner;
        owner == Some(0) || !waited.iter().filter(is_theirs).any(Waited::is_too_long)
    }

    fn may_ask(&self, subject: Subject) -> bool {
        if !self.has_time_for(subject) {
            return false;
        }
        let mut unanswered = locked(&self.unanswered);
        unanswered.retain(|left| left.pending.strong_count() > 0);
        if unanswered.is_empty() {
            return true;
        }
        let of_it = unanswered.iter().filter(|left| left.subject == subject);
        match subject {
            Subject::Process(_) => {
                let owner = self.owner_of(subject);
                let is_process = |left: &&Unanswered| matches!(left.subject, Subject::Process(_));
                let processes = || unanswered.iter().filter(is_process);
                let of_user = processes().filter(|left| left.owner == owner);
                of_it.count() == 0
                    && processes().count() < UNANSWERED_MAX
                    && (owner == Some(0) || of_user.count() < UNANSWERED_OF_USER_MAX)
            }
            Subject::LaunchFiles(owner) => {
                let is_look_up =
                    |left: &&Unanswered| matches!(left.subject, Subject::LaunchFiles(_));
                unanswered.iter().filter(is_look_up).count() < LOOK_UPS_MAX
                    && (owner == 0 || of_it.count() < LOOK_UPS_OF_USER_MAX)
            }
            Subject::Openings => of_it.count() == 0,
        }
    }
}

fn owner_of(pid: i32) -> Option<u32> {
    let status = process::status(pid).ok()?;
    Some(accountable(status.uid.real))
}

static ASKER: Asker = Asker::new(owner_of);

/// What comes of a question about a process, asked by another thread; `None` where it does not answer in time, or has not
/// answered an earlier one yet, or where its user's processes have taken their time lately.
pub fn of_process<T: Send + 'static>(
    pid: i32,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    ASKER.ask(Subject::Process(pid), ANSWER_MAX, question)
}

/// What comes of looking up the files of a user's launch, likewise; it is waited for `answer_max`.
pub(crate) fn of_launch_files<T: Send + 'static>(
    owner: u32,
    answer_max: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let subject = Subject::LaunchFiles(accountable(owner));
    ASKER.ask(subject, answer_max, question)
}

/// What comes of watching for openings, or of taking them, likewise; nothing more is asked until the last question is
/// answered.
pub(crate) fn of_openings<T: Send + 'static>(
    answer_max: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    ASKER.ask(Subject::Openings, answer_max, question)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::sched::{self, Policy};

    const AT_ONCE: Duration = Duration::from_millis(1);
    /// Whoever answers is waited for, however busy the machine is.
    const PATIENTLY: Duration = Duration::from_secs(10);

    fn asker() -> Asker {
        Asker::new(|pid| Some(pid.cast_unsigned() / 100))
    }

    /// Asks what is not answered until what is returned is dropped.
    fn ask_in_vain(asker: &Asker, subject: Subject) -> Sender<()> {
        let (release, wait) = channel::<()>();
        let answer = asker.ask(subject, AT_ONCE, move || wait.recv().is_err());
        assert_eq!(answer, None);
        release
    }

    fn answer(asker: &Asker, subject: Subject) -> Option<u8> {
        asker.ask(subject, PATIENTLY, || 7)
    }

    #[test]
    fn who_does_not_answer_is_waited_for_once_and_others_not_at_all() {
        let asker = asker();
        // Of one user, until no more of theirs are asked.
        let pids = 100..100 + 2 * UNANSWERED_OF_USER_MAX as i32;
        let held: Vec<_> = pids
            .map(|pid| ask_in_vain(&asker, Subject::Process(pid)))
            .collect();
        assert_eq!(locked(&asker.unanswered).len(), UNANSWERED_OF_USER_MAX);
        let again = answer(&asker, Subject::Process(100));
        assert_eq!(again, None, "it is not asked again");
        let of_user = answer(&asker, Subject::Process(150));
        assert_eq!(of_user, None, "nor is its user");
        for _ in 0..9 {
            assert_eq!(answer(&asker, Subject::Process(200)), Some(7));
        }
        // A panic of which nothing is told.
        let failed = asker.ask(Subject::Process(300), PATIENTLY, || -> u8 {
            std::panic::resume_unwind(Box::new(()))
        });
        assert_eq!(failed, None);
        assert_eq!(answer(&asker, Subject::Process(300)), Some(7));
        drop(held);
        wait_for_all(&asker);
        assert_eq!(answer(&asker, Subject::Process(100)), Some(7));
    }

    #[test]
    fn who_does_not_answer_of_roots_leaves_the_others_of_roots() {
        let asker = asker();
        let pids = 1..=2 * UNANSWERED_OF_USER_MAX as i32;
        let ask = |pid| ask_in_vain(&asker, Subject::Process(pid));
        let held: Vec<_> = pids.map(ask).collect();
        assert_eq!(locked(&asker.unanswered).len(), held.len());
        assert_eq!(answer(&asker, Subject::Process(1)), None);
        assert_eq!(answer(&asker, Subject::Process(50)), Some(7));
        assert_eq!(answer(&asker, Subject::Process(100)), Some(7));
    }

    fn wait_for_all(asker: &Asker) {
        let is_pending = |left: &Unanswered| left.pending.strong_count() > 0;
        while locked(&asker.unanswered).iter().any(is_pending) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn file_systems_have_bounds_of_their_own() {
        let asker = asker();
        let mut held = vec![ask_in_vain(&asker, Subject::Openings)];
        assert_eq!(answer(&asker, Subject::Openings), None);
        // Of one user, until no more of theirs are looked up.
        for _ in 0..LOOK_UPS_OF_USER_MAX {
            assert_eq!(answer(&asker, Subject::LaunchFiles(1_000)), Some(7));
            held.push(ask_in_vain(&asker, Subject::LaunchFiles(1_000)));
        }
        assert_eq!(answer(&asker, Subject::LaunchFiles(1_000)), None);
        assert_eq!(answer(&asker, Subject::LaunchFiles(1_001)), Some(7));
        for _ in LOOK_UPS_OF_USER_MAX..LOOK_UPS_MAX {
            assert_eq!(answer(&asker, Subject::LaunchFiles(0)), Some(7));
            held.push(ask_in_vain(&asker, Subject::LaunchFiles(0)));
        }
        assert_eq!(answer(&asker, Subject::LaunchFiles(0)), None);
        assert_eq!(answer(&asker, Subject::LaunchFiles(1_001)), None);
        assert_eq!(answer(&asker, Subject::Process(1)), Some(7));
        drop(held);
        wait_for_all(&asker);
        assert_eq!(answer(&asker, Subject::Openings), Some(7));
        assert_eq!(answer(&asker, Subject::LaunchFiles(1_000)), Some(7));
    }

    #[test]
    fn whose_processes_answer_slowly_and_often_is_not_asked_for_a_while() {
        let asker = asker();
        let slowly = || std::thread::sleep(10 * FAST);
        let ask_slowly = |pid| asker.ask(Subject::Process(pid), PATIENTLY, slowly);
        // Each of another process: as many a second as there is time for.
        let mut pids = (100..200).cycle().take(10_000);
        assert!(pids.any(|pid| ask_slowly(pid).is_none()), "that ends");
        assert_eq!(answer(&asker, Subject::Process(200)), Some(7), "others are");
        let roots = (0..30).filter(|&pid| ask_slowly(pid).is_some());
        assert_eq!(roots.count(), 30, "root's are");
        let is_again = || answer(&asker, Subject::Process(150)).is_some();
        prepage_kernel::testing::machine::eventually("they are asked again", is_again);
    }

    #[test]
    fn files_of_a_launch_alone_are_looked_up_at_a_low_priority() {
        let asker = asker();
        let ask = |subject| asker.ask(subject, PATIENTLY, nice).expect("an answer");
        let low = Policy::Other {
            nice: 19,
            slice_us: None,
        };
        let look_up = || {
            sched::set_current_thread_policy(low).expect("a low priority");
            assert_eq!(ask(Subject::LaunchFiles(0)), 19);
        };
        let look_up_after = || std::thread::scope(|scope| scope.spawn(look_up).join());
        // Whichever of them has a thread made first.
        for _ in 0..2 {
            look_up_after().expect("no panic");
            assert_eq!(ask(Subject::Process(1)), nice());
        }
    }

    /// That of the calling thread.
    fn nice() -> i32 {
        match sched::current_thread_policy().expect("a policy") {
            Policy::Other { nice, .. } => nice,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_waits_for_an_answer_holds_up_no_other_who_asks() {
        let asker = asker();
        let (asking, asked) = channel::<()>();
        let (tell, told) = channel::<u8>();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                asker.ask(Subject::Process(1), PATIENTLY, move || {
                    asking.send(()).expect("somebody listens");
                    told.recv().expect("an answer")
                })
            });
            asked.recv().expect("it is asked");
            assert_eq!(answer(&asker, Subject::Process(1)), Some(7));
            tell.send(9).expect("it waits");
            assert_eq!(slow.join().expect("no panic"), Some(9));
        });
    }
}
