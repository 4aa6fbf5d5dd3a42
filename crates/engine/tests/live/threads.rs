//! Which threads fetch, how the scheduler treats them and on which cores, and that each way brings in what is planned.

use crate::rig::{Rig, params, plan_of_file};
use prepage_core::plan::Plan;
use prepage_engine::{CorePolicy, EngineParams, FileOrder, ThreadPolicy};
use prepage_kernel::testing::child::Child;
use prepage_kernel::testing::machine::{Directory, Machine, eventually};
use prepage_kernel::testing::page_cache::{cached, drop_cache};
use prepage_kernel::{process, sched};
use std::collections::BTreeSet;

const PAGES: u64 = 1024;

/// SCHED_* of sched(7), as /proc shows them.
const SCHED_OTHER: u32 = 0;
const SCHED_FIFO: u32 = 1;
const SCHED_IDLE: u32 = 5;

/// Threads of this process that fetch anonymous pages, or pages of files.
pub fn fetching_threads(name: &str) -> Vec<i32> {
    let threads = process::threads(process::own_pid()).expect("own threads");
    let is_named = |tid: &i32| own_file(*tid, "comm").is_some_and(|comm| comm.starts_with(name));
    threads.into_iter().filter(is_named).collect()
}

/// A file below /proc of a thread of this process; `None` where it has ended.
fn own_file(tid: i32, file: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).ok()
}

/// Its field 41 of proc_pid_stat(5), the 39th after its name.
fn scheduling(tid: i32) -> Option<u32> {
    let stat = own_file(tid, "stat")?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(38)?.parse().ok()
}

fn cores(tid: i32) -> Vec<usize> {
    let tid = rustix::thread::Pid::from_raw(tid);
    let set = rustix::thread::sched_getaffinity(tid).expect("affinity");
    let possible = sched::possible_cpus().expect("cores").into_iter();
    possible.filter(|&core| set.is_set(core)).collect()
}

fn engines_of_others_ended() {
    eventually("engines of other tests ended", || {
        fetching_threads("prepage-anon").is_empty() && fetching_threads("prepage-file").is_empty()
    });
}

#[test]
fn under_each_scheduling_policy_all_pages_come_in() {
    let _machine = Machine::with_swap();
    let mut child = Child::spawn(PAGES);
    for (policy, expected) in [
        (ThreadPolicy::Other, SCHED_OTHER),
        (ThreadPolicy::Idle, SCHED_IDLE),
        (ThreadPolicy::RealTime, SCHED_FIFO),
    ] {
        engines_of_others_ended();
        child.swap_out();
        let mut engine = EngineParams::default();
        engine.fetch.anon_policy = policy;
        let mut rig = Rig::new(&child, &engine, params());
        let plan = rig.plan_of(&child, [child.pages.clone()]);
        rig.fetch(&plan);
        rig.wait_for_fetch();
        let absent = child.entries().iter().filter(|e| !e.present()).count();
        assert_eq!(absent, 0, "{policy:?}");
        let threads = fetching_threads("prepage-anon");
        let all = sched::online_cpus().expect("cores").len();
        assert_eq!(threads.len(), all, "{policy:?}: one for each core");
        for tid in threads {
            // One that has had no work may not have begun.
            eventually("it has its policy, which needs CAP_SYS_NICE", || {
                scheduling(tid) == Some(expected)
            });
        }
        let seen = rig.collect(&plan);
        assert_eq!(rig.seen(&child, &seen).fetched.pages(), PAGES, "{policy:?}");
        child.tell_pages("verify", 0..PAGES);
    }
}

#[test]
fn by_each_core_policy_all_files_come_in() {
    let (_machine, directory) = (Machine::with_swap(), Directory::new());
    let path = directory.file("planned", PAGES);
    let mut child = Child::spawn(64);
    let all = sched::online_cpus().expect("cores");
    let (big, little) = (all[0], all[all.len() - 1]);
    for policy in CorePolicy::ALL {
        for order in [FileOrder::Access, FileOrder::File] {
            engines_of_others_ended();
            child.swap_out();
            drop_cache(&path);
            let mut engine = EngineParams::default();
            engine.fetch.core_policy = policy;
            engine.fetch.file_order = order;
            engine.fetch.big_cores = vec![big];
            engine.fetch.little_cores = vec![little];
            let mut rig = Rig::new(&child, &engine, params());
            let plan = Plan {
                files: plan_of_file(&path, 0..PAGES).files,
                ..rig.plan_of(&child, [child.pages.clone()])
            };
            rig.fetch(&plan);
            rig.wait_for_fetch();
            eventually("the file is fetched", || cached(&path, 0, PAGES) == PAGES);
            let present = child.entries().iter().filter(|e| e.present()).count();
            let expected = match policy {
                CorePolicy::Iorap => 0,
                _ => 64,
            };
            assert_eq!(present, expected, "{policy:?} {order:?}");
            let on = |tid: &i32| (cores(*tid), scheduling(*tid));
            eventually("each thread has its cores", || {
                let threads = fetching_threads("prepage-file");
                let found: BTreeSet<_> = threads.iter().map(on).collect();
                found == threads_of(policy, big, little, &all)
            });
            rig.collect(&plan);
        }
    }
}

/// The cores and the scheduling of the threads that a policy has for files.
fn threads_of(
    policy: CorePolicy,
    big: usize,
    little: usize,
    all: &[usize],
) -> BTreeSet<(Vec<usize>, Option<u32>)> {
    let other = |cores: Vec<usize>| (cores, Some(SCHED_OTHER));
    let idle = |&core: &usize| (vec![core], Some(SCHED_IDLE));
    let rest = all.iter().filter(|&&core| core != big);
    match policy {
        CorePolicy::Asap => std::iter::once(other(vec![big]))
            .chain(rest.map(idle))
            .collect(),
        CorePolicy::Big1 | CorePolicy::BigAll => [other(vec![big])].into(),
        CorePolicy::Little1 | CorePolicy::LittleAll => [other(vec![little])].into(),
        CorePolicy::Iorap => [other(all.to_vec())].into(),
    }
}
