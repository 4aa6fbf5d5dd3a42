//! Puts together what a switch showed, when it is over.

use crate::fetch::job::{Fetched, Job};
use crate::members::Member;
use crate::observe::anon_pages::{self, Question};
use crate::observe::faults::FaultBuffer;
use crate::observe::file_pages;
use crate::observe::files::{FileEvents, FilesSeen, InodeKey};
use crate::observe::opens::Opening;
use crate::observe::resolve::{Paths, View};
use crate::observe::shared;
use crate::observe::waits::late;
use crate::params::ObserveParams;
use crate::roots::{self, Roots};
use prepage_core::anon::{AnonTargets, RANKS, rank_after};
use prepage_core::app::{Known, Observation};
use prepage_core::extent::{Extent, ExtentSet};
use prepage_core::identity::{AppId, FileId};
use prepage_core::machine::Nanos;
use prepage_core::outcome::Void;
use prepage_core::plan::Plan;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// A switch that is over.
#[derive(Debug)]
pub struct Task {
    /// The application.
    pub app: AppId,
    /// Number of the switch.
    pub switch: u64,
    /// What was planned.
    pub plan: Arc<Plan>,
    /// The pages of its tables.
    pub known: Known,
    /// Its processes.
    pub members: Vec<Arc<Member>>,
    /// Whether its file accesses were recorded.
    pub files: bool,
    /// What fetched for it, if anything did.
    pub job: Option<Arc<Job>>,
    /// Its demand faults.
    pub faults: FaultBuffer,
    /// When it began.
    pub began: Nanos,
    /// How long the switch's path was held up for, in microseconds.
    pub switch_path_us: u64,
}

impl Task {
    /// Its processes.
    pub fn pids(&self) -> BTreeSet<i32> {
        self.members.iter().map(|m| m.instance.pid).collect()
    }
}

/// Observes the switch. `files` is what its file accesses were, where they were recorded.
pub fn collect(
    task: &mut Task,
    files: Option<&FilesSeen>,
    opens: &[Opening],
    paths: &mut Paths,
    params: &ObserveParams,
) -> Observation {
    let limit = Duration::from_millis(params.settle_ms);
    let fetched = task.job.as_ref().map(|job| job.take_fetched(limit));
    let fetched = fetched.unwrap_or_default();
    let mut seen = Observation::default();
    collect_anon(task, &fetched, params, &mut seen);
    if let Some(files) = files {
        collect_files(task, files, opens, paths, &mut seen);
    }
    seen.stale_files.extend(fetched.stale_files);
    seen.timing.fetch_cpu_us = fetched.cpu_ns / 1_000;
    seen.timing.switch_path_us = task.switch_path_us;
    if let Some(job) = &task.job {
        (seen.timing.signal_to_fetch_us, seen.timing.fetch_us) = job.times_us();
    }
    seen
}

fn collect_anon(
    task: &mut Task,
    fetched: &Fetched,
    params: &ObserveParams,
    seen: &mut Observation,
) {
    let (nothing, no_targets) = (ExtentSet::new(), AnonTargets::default());
    let planned: BTreeMap<_, _> = task.plan.anon.iter().map(|(i, t)| (*i, t)).collect();
    let (mut were_present, mut reclaimed, mut faults) = (0, 0, 0);
    shared::take_over(&task.members, &mut task.faults);
    for member in &task.members {
        let instance = member.instance;
        let faulted = task.faults.pages.remove(&instance.pid).unwrap_or_default();
        faults += faulted.len() as u64;
        let question = Question {
            member,
            known: task.known.anon.get(&instance).unwrap_or(&nothing),
            planned: planned.get(&instance).copied().unwrap_or(&no_targets),
            fetched: fetched.anon.get(&instance).unwrap_or(&nothing),
            empty: fetched.empty.get(&instance).unwrap_or(&nothing),
            waited_on: fetched.waited_on.get(&instance).unwrap_or(&nothing),
            faulted: ExtentSet::from_pages(faulted.iter().map(|&(page, _)| page).collect()),
        };
        let mut answer = anon_pages::observe(question);
        reclaimed += answer.reclaimed;
        were_present += answer.were_present;
        answer.observation.order = order(&faulted, task.began);
        seen.anon.insert(instance, answer.observation);
    }
    seen.events_lost += task.faults.lost.max(task.faults.overflowed.into());
    let reclaimed_max = f64::from(params.reclaimed_share_max) * were_present as f64;
    if reclaimed as f64 > reclaimed_max.max(UNDER_WAY_PAGES_MAX as f64) {
        seen.void = Some(Void::Reclaimed);
    } else if task.faults.overflowed || task.faults.lost * LOST_SHARE > faults {
        seen.void = Some(Void::EventsLost);
    }
}

/// The pages faulted on with their ranks. Faults before the signal are of the first.
fn order(faulted: &[(u64, Nanos)], began: Nanos) -> Vec<(Extent, u8)> {
    let mut by_rank: [Vec<u64>; RANKS as usize] = Default::default();
    for &(page, at) in faulted {
        let rank = rank_after(at.saturating_sub(began) / 1_000);
        by_rank[usize::from(rank)].push(page);
    }
    let of_rank = |(rank, pages)| {
        let extents = Vec::from(ExtentSet::from_pages(pages));
        extents.into_iter().map(move |extent| (extent, rank))
    };
    (0..).zip(by_rank).flat_map(of_rank).collect()
}

/// Faults that may be under way when a switch is observed, one a thread: their pages are still swapped out.
const UNDER_WAY_PAGES_MAX: u64 = 8;

/// An observation is void where more than one in so many faults was lost.
const LOST_SHARE: u64 = 100;

fn collect_files(
    task: &Task,
    recorded: &FilesSeen,
    opens: &[Opening],
    paths: &mut Paths,
    seen: &mut Observation,
) {
    let processes = roots::processes(&task.members);
    let Some(oldest) = processes.first() else {
        return;
    };
    // Nobody learns of files that the application's owner could not find.
    let roots = Roots::of(&processes).seen_by(&oldest.rights);
    if roots.pids().next().is_none() {
        // The application has ended: its files cannot be named any more.
        return;
    }
    let FilesSeen {
        theirs,
        ours,
        waits,
        reports_access,
        lost,
    } = recorded;
    let asked = asked_pages(task);
    paths.make_room();
    for file in asked.keys() {
        paths.remember(file);
    }
    find_unknown(task, &roots, theirs, *reports_access, opens, paths);
    let mut files: BTreeMap<FileId, InodeKey> = asked
        .keys()
        .map(|file| (file.clone(), (file.device, file.inode)))
        .collect();
    for (key, events) in theirs {
        let present = |path| roots.present_version(*key, path);
        match paths.get(key).and_then(present) {
            Some(file) => drop(files.insert(file, *key)),
            None => {
                paths.give_up(*key);
                let read = match reports_access {
                    true => events.added().intersection(&events.accessed()),
                    false => events.added(),
                };
                seen.unresolved += read.pages();
            }
        }
    }
    let wanted: HashSet<InodeKey> = files.values().copied().collect();
    let mapped = match reports_access {
        true => HashMap::new(),
        false => file_pages::mapped(&task.members, &wanted, &View::of(roots.pids())),
    };
    let events = theirs.iter().map(|(key, events)| (*key, events));
    let mut ranks = file_pages::ranks(events, *reports_access);
    let (none, no_pages) = (FileEvents::default(), ExtentSet::new());
    let not_mapped = file_pages::Mapped::default();
    for (file, key) in files {
        let asked = asked.get(&file).unwrap_or(&no_pages);
        let theirs = theirs.get(&key).unwrap_or(&none);
        let ours = ours.get(&key).unwrap_or(&none);
        let mut observation = match reports_access {
            true => file_pages::from_reports(&roots, &file, asked, theirs, ours),
            false => {
                let mapped = mapped.get(&key).unwrap_or(&not_mapped);
                file_pages::from_mappings(&roots, &file, asked, mapped, theirs, ours)
            }
        };
        observation.order = ranks.remove(&key).unwrap_or_default();
        seen.files.insert(file, observation);
    }
    let waits = waits.as_deref();
    seen.late = waits.map(|waits| late(waits, &task.plan, theirs, ours));
    seen.files_observed = *lost == 0;
    seen.events_lost += lost;
}

/// The pages of the tables and of the plan, by file.
fn asked_pages(task: &Task) -> BTreeMap<FileId, ExtentSet> {
    let mut asked = task.known.files.clone();
    for targets in &task.plan.files {
        let pages = asked.entry(targets.file.clone()).or_default();
        *pages = pages.union(&targets.read);
    }
    asked
}

/// Looks for paths only where an inode has none yet, and among mappings only where it was accessed through one, as far as
/// the kernel reports that: reading every process's mappings takes milliseconds.
fn find_unknown(
    task: &Task,
    roots: &Roots,
    theirs: &HashMap<InodeKey, FileEvents>,
    reports_access: bool,
    opens: &[Opening],
    paths: &mut Paths,
) {
    let nameless = theirs.keys().any(|key| paths.get(key).is_none());
    let unknown = |paths: &Paths| theirs.keys().any(|key| paths.is_new(key));
    let pids = task.pids();
    // What was given up is found where it is opened again.
    let may_be_found = unknown(paths) || opens.iter().any(|opening| pids.contains(&opening.pid));
    if !(nameless && may_be_found) {
        return;
    }
    let view = View::of(roots.pids());
    paths.learn(opens, &pids, &view);
    if unknown(paths) {
        paths.find_opened(&task.members, &view);
    }
    let may_be_mapped = |(key, events): (&_, &FileEvents)| {
        paths.is_new(key) && (!reports_access || events.is_mapped())
    };
    if theirs.iter().any(may_be_mapped) {
        paths.find_mapped(&task.members, &view);
    }
    // Neither: read and closed before we looked. Not to be looked for again, until it is opened again.
    for key in theirs.keys() {
        if paths.is_new(key) {
            paths.give_up(*key);
        }
    }
}
