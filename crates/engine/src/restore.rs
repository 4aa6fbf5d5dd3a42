//! Brings an application back ahead of need: all of it that is swapped out, and the file pages that are planned for it.
//!
//! For those who know that it will be needed, and when: a service that is to take requests again, an application after the
//! machine woke up. No estimate is asked, nothing is observed and nothing learned.

use crate::accounts::accountable;
use crate::error::{Error, Result};
use crate::fetch::cores::Cores;
use crate::fetch::job::Job;
use crate::fetch::pool::Pool;
use crate::fetch::shared::swapped_out_of;
use crate::fetch::swap_layout::SwapLayout;
use crate::locked::locked;
use crate::members::Member;
use crate::params::FetchParams;
use crate::thread;
use prepage_core::anon::{AnonTargets, RANKS};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::identity::AppId;
use prepage_core::machine::Nanos;
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_kernel::cgroup::Cgroup;
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::maps::{self, Mapping, SharedObject};
use prepage_kernel::meminfo::Meminfo;
use prepage_kernel::page::page_size;
use prepage_kernel::pagemap::Categories;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Most that are under way at once, the last of them root's only.
const UNDER_WAY_MAX: usize = 4;

/// Most of one user's among them, root's apart, and among those that are over and whose threads hang.
const UNDER_WAY_OF_USER_MAX: usize = 2;

/// Those that are over are remembered as long as there are no more than this.
const REMEMBERED_MAX: usize = 64;

/// A device that takes longer has stopped, and a process that is looked at for longer does not answer.
const LIMIT: Duration = Duration::from_secs(600);

/// Of the memory that the machine has available, one byte in so many is left.
const LEFT: u64 = 8;

/// Extents of what an application has out that are planned: where there are more, its memory is out page by page, and a list of
/// all would take a hundredth of that.
const EXTENTS_MAX: usize = 1 << 19;

/// Of each of its processes no fewer, however many it has.
const EXTENTS_OF_PROCESS_MIN: usize = 1 << 10;

/// Pages of a mapping that are looked at together.
const SCAN_PAGES: u64 = 1 << 19;

/// What is to be brought back.
#[derive(Debug)]
pub struct Task {
    /// The application.
    pub app: AppId,
    /// Its processes.
    pub members: Vec<Arc<Member>>,
    /// The memory control groups that they are in: no more is brought back than their limits leave.
    pub groups: Vec<Cgroup>,
    /// What a switch to it needs: that comes first, and its file pages are fetched too.
    pub plan: Arc<Plan>,
    /// Which kinds of pages are brought back.
    pub mode: Mode,
}

/// How far one has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The application.
    pub app: AppId,
    /// Anonymous pages that were swapped out at the beginning; 0 while these are looked for.
    pub out_pages: u64,
    /// Of these, pages brought back. While it is under way, pages taken up.
    pub back_pages: u64,
    /// How long it took, in microseconds; `None` while it is under way.
    pub took_us: Option<u64>,
}

#[derive(Debug)]
struct Restore {
    app: AppId,
    /// Until when it may be looked what is out.
    look_until: Nanos,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    /// It is looked what is out.
    Looking,
    /// The work, which holds files open, and the anonymous pages that are out.
    UnderWay(Arc<Job>, u64),
    /// What is told of it then, and the work, which threads have that hang.
    Over(Restored, Weak<Job>),
}

/// Those under way, and the last ones.
#[derive(Debug, Default)]
pub struct Restores {
    all: Arc<Mutex<All>>,
    next: u64,
}

/// By number.
type All = BTreeMap<u64, Arc<Restore>>;

impl Restores {
    /// Begins one, on threads of its own, which no switch waits for. Returns its number.
    ///
    /// # Errors
    /// Where no thread can be created, or four are under way (three, but for root's applications), or two of the user's whose
    /// application it is; those of that user's whose threads hang count as such.
    pub fn begin(&mut self, task: Task, params: &FetchParams, cores: Cores) -> Result<u64> {
        let mut all = locked(&self.all);
        has_place(&all, task.app.owner)?;
        let restore = Arc::new(Restore {
            app: task.app.clone(),
            look_until: monotonic_ns() + LIMIT.as_nanos() as u64,
            stage: Mutex::new(Stage::Looking),
        });
        let (own, others, params) = (Arc::clone(&restore), Arc::clone(&self.all), params.clone());
        let run = move || own.run(&task, &params, &cores, &others);
        thread::spawn("prepage-restore", run)?;
        self.next += 1;
        all.insert(self.next, restore);
        while all.len() > REMEMBERED_MAX {
            let over = all.iter().find(|(_, restore)| !restore.has_threads());
            let Some((&over, _)) = over else { break };
            all.remove(&over);
        }
        Ok(self.next)
    }

    /// How far this one has come; `None` where there was none of this number, or it is forgotten.
    pub fn restored(&self, number: u64) -> Option<Restored> {
        locked(&self.all)
            .get(&number)
            .map(|restore| restore.state())
    }
}

impl Restore {
    fn run(&self, task: &Task, params: &FetchParams, cores: &Cores, all: &Mutex<All>) {
        let began = monotonic_ns();
        let back_pages = self.bring_back(task, params, cores, all).unwrap_or(0);
        let over = Restored {
            back_pages,
            took_us: Some(monotonic_ns().saturating_sub(began) / 1_000),
            ..self.state()
        };
        let mut stage = locked(&self.stage);
        let job = match &*stage {
            Stage::UnderWay(job, _) => Arc::downgrade(job),
            Stage::Looking | Stage::Over(..) => Weak::new(),
        };
        *stage = Stage::Over(over, job);
    }

    /// Returns the pages brought back.
    fn bring_back(
        &self,
        task: &Task,
        params: &FetchParams,
        cores: &Cores,
        all: &Mutex<All>,
    ) -> Result<u64> {
        let (plan, out_pages) = whole(task);
        if self.is_over() {
            return Ok(0);
        }
        let mut pool = Pool::start(params, cores)?;
        let swap = SwapLayout::look();
        let (owner, now) = (task.app.owner, monotonic_ns());
        let mut job = Job::new(owner, &plan, task.mode, &task.members, swap, now);
        job.divide(
            pool.anon_threads(),
            params.disk_span_pages,
            params.disk_span_reads,
        );
        job.keep_within(task.groups.clone());
        let job = self.set_under_way(job, out_pages, &locked(all));
        pool.run(&job);
        let fetched = job.take_fetched(LIMIT);
        job.cancel();
        Ok(fetched.anon.values().map(ExtentSet::pages).sum())
    }

    /// Has no more brought back than the machine has available beside what others still bring back.
    fn set_under_way(&self, mut job: Job, out_pages: u64, all: &All) -> Arc<Job> {
        if let Ok(meminfo) = Meminfo::read() {
            let available = meminfo.available_bytes / page_size();
            job.keep_below((available - available / LEFT).saturating_sub(pages_to_come(all)));
        }
        let job = Arc::new(job);
        *locked(&self.stage) = Stage::UnderWay(Arc::clone(&job), out_pages);
        job
    }

    /// Pages that it has not taken up yet and may.
    fn pages_to_come(&self) -> u64 {
        match &*locked(&self.stage) {
            Stage::UnderWay(job, _) => job.left_pages(),
            Stage::Looking | Stage::Over(..) => 0,
        }
    }

    fn state(&self) -> Restored {
        let (out_pages, back_pages, is_over) = match &*locked(&self.stage) {
            Stage::Looking => (0, 0, self.has_looked_long()),
            Stage::UnderWay(job, out_pages) => {
                (*out_pages, job.taken_pages().min(*out_pages), false)
            }
            Stage::Over(restored, _) => return restored.clone(),
        };
        Restored {
            app: self.app.clone(),
            out_pages,
            back_pages,
            took_us: is_over.then_some(LIMIT.as_micros() as u64),
        }
    }

    fn has_looked_long(&self) -> bool {
        monotonic_ns() > self.look_until
    }

    /// Also where it is still looked what is out, and was for too long.
    fn is_over(&self) -> bool {
        match *locked(&self.stage) {
            Stage::Looking => self.has_looked_long(),
            Stage::UnderWay(..) => false,
            Stage::Over(..) => true,
        }
    }

    /// Whether it has threads, which may hang where it is over.
    fn has_threads(&self) -> bool {
        match &*locked(&self.stage) {
            Stage::Looking | Stage::UnderWay(..) => true,
            Stage::Over(_, job) => job.strong_count() > 0,
        }
    }
}

/// Whether one more of this user's may begin.
fn has_place(all: &All, owner: u32) -> Result<()> {
    let under_way = all.values().filter(|restore| !restore.is_over()).count();
    let account = accountable(owner);
    let own = |restore: &&Arc<Restore>| {
        accountable(restore.app.owner) == account && restore.has_threads()
    };
    let own = all.values().filter(own).count();
    let (most, most_own) = match owner {
        0 => (UNDER_WAY_MAX, UNDER_WAY_MAX),
        _ => (UNDER_WAY_MAX - 1, UNDER_WAY_OF_USER_MAX),
    };
    match under_way < most && own < most_own {
        true => Ok(()),
        false => Err(Error::ManyRestores {
            under_way: under_way.max(own),
        }),
    }
}

fn pages_to_come(all: &All) -> u64 {
    all.values().map(|restore| restore.pages_to_come()).sum()
}

/// A plan of all that is swapped out, what is planned first, and the number of its anonymous pages that are.
fn whole(task: &Task) -> (Plan, u64) {
    let mut asked = Asked::new();
    let (mut left, mut gap_pages) = (EXTENTS_MAX, 0);
    let of_member = |member: &Arc<Member>| {
        let planned = task.plan.anon.iter();
        let planned = planned.filter(|(instance, _)| *instance == member.instance);
        let planned: Vec<ExtentSet> = planned.map(|(_, targets)| targets.all()).collect();
        let (out, gaps) = swapped_out(member, &mut asked, left.max(EXTENTS_OF_PROCESS_MIN));
        left = left.saturating_sub(out.extents().len());
        gap_pages += gaps;
        (member.instance, targets(&out, planned.first()))
    };
    let anon: Vec<_> = task.members.iter().map(of_member).collect();
    let plan = Plan {
        anon,
        ..(*task.plan).clone()
    };
    let out_pages = plan.anon_pages().saturating_sub(gap_pages);
    (plan, out_pages)
}

/// The pages of shared objects that a process was asked about, which brings back what is out of them.
type Asked = HashMap<SharedObject, ExtentSet>;

/// What a process has out and, of what it shares, none before it was asked about, in no more than `most` extents, and the number of
/// pages between those that were joined. Empty where its page table is not to be read any more.
fn swapped_out(member: &Member, asked: &mut Asked, most: usize) -> (ExtentSet, u64) {
    let (swapped, none) = (Categories::SWAPPED, Categories::NONE);
    let mut regions = Vec::new();
    let (mut out, mut gap_pages) = (Vec::new(), 0);
    let mut join = |out: Vec<Extent>| {
        let (joined, gaps) = joined(ExtentSet::from(out), most);
        gap_pages += gaps;
        joined
    };
    let mappings = maps::read(member.instance.pid).unwrap_or_default();
    // What may not be read cannot be brought back, and may be an address space that is only reserved: of V8's TiB, kernels
    // without PAGEMAP_SCAN have 2 GiB of entries read.
    for mapping in mappings.into_iter().filter(|mapping| mapping.readable) {
        let pages = mapping.pages();
        for part in Extent::between(pages.start, pages.end).pieces(SCAN_PAGES) {
            // Of one that is no memory, as the vsyscall page, nothing is told.
            let pages = part.start..part.end();
            let _ = member.pagemap.scan(pages, swapped, none, &mut regions);
            let found = regions.drain(..).map(|region| region.pages);
            out.extend(found.map(|pages| Extent::between(pages.start, pages.end)));
            if out.len() > 2 * most {
                out = join(out).into();
            }
        }
        if let Some(object) = mapping.shared_object() {
            let asked = asked.entry(object).or_default();
            out.extend(swapped_out_shared(member, &mapping, asked));
        }
    }
    (join(out), gap_pages)
}

/// Joins those that are nearest to each other until there are no more than `most`. Returns the pages between these as well: whoever
/// fetches finds them in.
fn joined(mut extents: ExtentSet, most: usize) -> (ExtentSet, u64) {
    let (mut apart, mut gap_pages) = (2, 0);
    while extents.extents().len() > most {
        let (fewer, gaps) = extents.merged(apart, &ExtentSet::new());
        extents = fewer;
        gap_pages += gaps;
        apart *= 2;
    }
    (extents, gap_pages)
}

/// What is out of a shared object that a process maps here, but for the pages asked about before.
fn swapped_out_shared(member: &Member, mapping: &Mapping, asked: &mut ExtentSet) -> Vec<Extent> {
    let held = mapping.pages_of_file();
    let held = ExtentSet::from(vec![Extent::between(held.start, held.end)]);
    let new = held.difference(asked);
    if new.is_empty() {
        return Vec::new();
    }
    let new = new.extents().iter();
    let new = new.map(|pages| Extent::new(mapping.page_at(pages.start), pages.len));
    // Where this process is gone, the next one is asked.
    let Some(out) = swapped_out_of(member, mapping, new) else {
        return Vec::new();
    };
    *asked = asked.union(&held);
    out.into()
}

fn targets(out: &ExtentSet, planned: Option<&ExtentSet>) -> AnonTargets {
    let none = ExtentSet::default();
    let planned = planned.unwrap_or(&none);
    let of_rank = |pages: ExtentSet, rank| {
        let extents = pages.extents().to_vec().into_iter();
        extents.map(move |extent| (extent, rank, false))
    };
    let first = of_rank(out.intersection(planned), 0);
    let mut pages: Vec<_> = first
        .chain(of_rank(out.difference(planned), RANKS - 1))
        .collect();
    pages.sort_unstable_by_key(|(extent, ..)| extent.start);
    AnonTargets::new(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Members;
    use crate::members::Roster;
    use prepage_core::identity::AppKind;
    use prepage_kernel::testing::machine::Lcg;
    use prepage_kernel::testing::sleeping::Sleeping;

    fn app() -> AppId {
        AppId {
            kind: AppKind::Named,
            name: "sleep".into(),
            owner: 0,
        }
    }

    fn restore() -> Arc<Restore> {
        restore_of(0)
    }

    fn restore_of(owner: u32) -> Arc<Restore> {
        Arc::new(Restore {
            app: AppId { owner, ..app() },
            look_until: Nanos::MAX,
            stage: Mutex::new(Stage::Looking),
        })
    }

    /// Those of these users' under way.
    fn all_of(owners: &[u32]) -> All {
        (0..)
            .zip(owners.iter().map(|&owner| restore_of(owner)))
            .collect()
    }

    #[test]
    fn those_of_users_leave_a_place_for_roots() {
        let has_place = |owners: &[u32], owner| has_place(&all_of(owners), owner).is_ok();
        assert!(has_place(&[1_000], 1_000) && !has_place(&[1_000; 2], 1_000));
        assert!(has_place(&[1_000; 2], 1_001));
        let users = [1_000, 1_000, 1_001];
        assert!(!has_place(&users, 1_002) && has_place(&users, 0));
        assert!(has_place(&[0; 3], 0) && !has_place(&[0; 4], 0));
    }

    #[test]
    fn what_hangs_of_a_user_counts_as_under_way_for_that_user_only() {
        let process = Sleeping::spawn();
        let all = all_of(&[1_000; 2]);
        let jobs: Vec<Arc<Job>> = (0..2).map(|_| Arc::new(job(&process, 1))).collect();
        for (restore, job) in all.values().zip(&jobs) {
            let over = restore.state();
            *locked(&restore.stage) = Stage::Over(over, Arc::downgrade(job));
        }
        assert!(has_place(&all, 1_000).is_err());
        assert!(has_place(&all, 1_001).is_ok());
        drop(jobs);
        assert!(has_place(&all, 1_000).is_ok());
    }

    #[test]
    fn what_is_out_page_by_page_is_planned_in_fewer_extents_that_hold_it_all() {
        let mut random = Lcg(1);
        for most in [1, 2, 7, 100] {
            let pages = (0..random.below(400)).map(|_| random.below(4_000));
            let out = ExtentSet::from_pages(pages.collect());
            let (planned, gap_pages) = joined(out.clone(), most);
            assert!(planned.extents().len() <= most);
            assert!(out.difference(&planned).is_empty());
            assert_eq!(planned.pages(), out.pages() + gap_pages);
            let is_few = out.extents().len() <= most;
            assert_eq!(is_few, planned == out, "{most}");
        }
    }

    #[test]
    fn what_is_looked_at_for_too_long_is_over_and_brings_nothing_back() {
        let process = Sleeping::spawn();
        let late = |owner| {
            let restore = Arc::into_inner(restore_of(owner)).expect("it is nobody else's");
            Arc::new(Restore {
                look_until: 0,
                ..restore
            })
        };
        let all: All = (0..).zip([1_000, 1_000, 1_001].map(late)).collect();
        assert!(all[&0].state().took_us.is_some());
        assert!(has_place(&all, 1_000).is_err(), "its threads hang");
        assert!(has_place(&all, 1_002).is_ok());
        let task = Task {
            app: app(),
            members: members(&process),
            groups: Vec::new(),
            plan: Arc::default(),
            mode: Mode::Full,
        };
        let (restore, cores) = (&all[&0], Cores::default());
        restore.run(&task, &FetchParams::default(), &cores, &Mutex::default());
        assert!(!restore.has_threads());
        let restored = restore.state();
        assert_eq!((restored.out_pages, restored.back_pages), (0, 0));
    }

    fn members(process: &Sleeping) -> Vec<Arc<Member>> {
        let app = app();
        let mut roster = Roster::new();
        roster.follow(&app, &[Members::Tree(process.pid())]);
        roster.refresh(&app);
        roster.members(&app, None)
    }

    /// Work on so many pages of a process, whatever they are.
    fn job(process: &Sleeping, pages: u64) -> Job {
        let members = members(process);
        let [member] = &members[..] else {
            panic!("these tests need root");
        };
        let targets = AnonTargets::new([(Extent::new(16, pages), 0, false)]);
        let plan = Plan {
            anon: vec![(member.instance, targets)],
            ..Plan::default()
        };
        let swap = SwapLayout::default();
        let mut job = Job::new(0, &plan, Mode::Full, &members, swap, 0);
        job.divide(1, 1, 1);
        job
    }

    #[test]
    fn what_others_still_bring_back_is_left_to_them() {
        let process = Sleeping::spawn();
        let all = All::from([(1, restore()), (2, restore()), (3, restore())]);
        let begin = |all: &All, number, pages| {
            let restore: &Arc<Restore> = &all[&number];
            restore.set_under_way(job(&process, pages), pages, all)
        };
        let first = begin(&all, 1, 1_000);
        assert_eq!((first.left_pages(), pages_to_come(&all)), (1_000, 1_000));
        assert!(!first.take_to_map(0, 300).is_empty());
        assert_eq!(pages_to_come(&all), 700);
        // Two that would each take all that the machine has.
        let meminfo = Meminfo::read().expect("meminfo");
        let available = meminfo.available_bytes / page_size();
        let total = meminfo.total_bytes / page_size();
        let second = begin(&all, 2, total);
        assert!(second.left_pages() > available / 2 && second.left_pages() < available);
        let third = begin(&all, 3, total);
        assert!(third.left_pages() < available / LEFT);
        // Of one that is over nothing more comes.
        let over = all[&2].state();
        *locked(&all[&2].stage) = Stage::Over(over, Arc::downgrade(&second));
        assert_eq!(pages_to_come(&all), 700 + third.left_pages());
    }
}
