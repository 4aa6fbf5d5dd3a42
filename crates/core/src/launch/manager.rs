//! The application launch manager (FAST section 4.4): for each launch of an application, whether to record it, to
//! prefetch for it, or neither.
//!
//! [`begin`] is called when a launch begins, [`end`] when it is over, [`generate`] between launches when the state asks
//! for it. Launches of one application may overlap. The manager does not flush caches as the paper's does: recordings
//! of accesses are complete without, and those of insertions add up.

mod state;
mod trial;

pub use state::{LaunchState, OffReason, Phase};
pub use trial::{Times, is_unclear};

use super::blocks::BlockMap;
use super::extract::{learn, learn_paths, refine, reorder};
use super::misses;
use super::plan::{LaunchPlan, PlanLimits, plan};
use super::recording::{LaunchEnd, Recording, Source};
use super::sequence::{LaunchSequence, SequenceFile, forget_changed};
use crate::identity::FileId;
use crate::params::launch::{LaunchOrder, LaunchParams};
use std::collections::BTreeSet;
use std::sync::Arc;
use trial::{compare, is_on_trial, is_short};

/// A launch was cold if the device read this part of the sequence's pages, a quarter. Of a small program most are libraries' that
/// others keep in memory, and of what faults may only have mapped along, a launch without help reads less.
pub const COLD_PART: u64 = 4;

/// Sequences in a row that may be deleted for their misses before the application is left alone.
const DELETIONS_MAX: u32 = 3;

/// A traced launch shows single pages, two in five of those that the windows around faults have (dash, git, gcc, node): the
/// smallest application is told by windows.
const TRACED_PART: u64 = 2;

/// Recordings in a row that lost events, after which paths are not traced any more: that slows the launch most.
const UNUSABLE_TRACED_MAX: u32 = 2;

/// Recordings in a row that lost events, after which an application that is not helped yet is left alone. One that is helped is
/// recorded only when it is checked, and checked as rarely as where recording costs time.
const UNUSABLE_MAX: u32 = 4;

/// So many recordings in a row that used too little of the first one's files to be launches of the same ([`is_handed_over`]) say
/// that the first was the odd one, as a `git clone` before many `git status`: it is learned anew, after a while.
const HANDED_OVER_MAX: u32 = 64;

/// What is known when a launch begins.
#[derive(Clone, Debug)]
pub struct LaunchFacts<'a> {
    /// Files of the sequence that are there in another version: in that one.
    pub changed_files: &'a [FileId],
    /// Whether the device is rotational.
    pub is_rotational: bool,
    /// What a plan has to keep to.
    pub limits: PlanLimits,
}

/// What to do for a launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Record it (the disk I/O profiler).
    pub records: bool,
    /// Record every path call as well, where that is possible (the system-call profiler).
    pub profiles_paths: bool,
    /// Prefetch this for it.
    pub prefetch: Option<Arc<LaunchPlan>>,
    /// It could be helped and is not, to be measured: recorded from when that can be, since nothing may hold it up.
    pub is_held_out: bool,
}

/// Whether a launch was helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// It was prefetched for.
    Helped,
    /// It was held out.
    HeldOut,
    /// Neither, or the prefetch failed.
    None,
}

/// What was measured of a launch.
#[derive(Clone, Debug)]
pub struct Measured {
    /// When it began, in nanoseconds since 1970.
    pub began_ns: i64,
    /// From its beginning to its end, in microseconds; without the idle time that showed the end. What help costs before the
    /// program begins belongs to it, as far as the caller knows: of a launch held out, what it waited for that does not. `None`
    /// where its end does not say how long it took ([`LaunchEnd::is_of_length`]).
    pub launch_us: Option<u64>,
    /// What help takes before the program begins, in microseconds; 0 where the caller does not know. It is part of a helped
    /// launch, and would be of one held out.
    pub help_us: u64,
    /// CPU time of recording it, in microseconds.
    pub recording_us: u64,
    /// Pages that the device read for it, whoever asked. It was cold where that is enough ([`COLD_PART`]).
    pub device_pages: u64,
    /// Why it was taken to be over.
    pub end: LaunchEnd,
    /// Whether it was helped.
    pub help: Help,
    /// Files of the plan that were found changed or gone.
    pub stale_files: Vec<FileId>,
}

/// What a launch changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Learned {
    /// Nothing.
    Nothing,
    /// It was recorded, in the profiling phase or to learn changed files anew.
    Recorded,
    /// So many files of the sequence had changed; they are being learned anew.
    Relearning(usize),
    /// There are N_rawseq recordings: [`generate`] is due.
    Generation,
    /// The sequence was deleted for its misses; the recording is the first for a new one.
    Deleted,
    /// The application is left alone from now on.
    Off(OffReason),
}

/// A launch begins.
pub fn begin(state: &mut LaunchState, facts: &LaunchFacts<'_>, params: &LaunchParams) -> Decision {
    state.launches = state.launches.saturating_add(1);
    if state.phase == Phase::Generation {
        // Nobody found the time: without addresses on the device, then.
        generate(state, None, facts.limits.page_bytes);
    }
    let pages_before = state.sequence.pages();
    let changed = forget_changed(&mut state.sequence, facts.changed_files, &[]);
    match state.phase {
        Phase::Off(_) => {
            let left = state.retry_left.saturating_sub(1);
            state.retry_left = left.min(params.retry_launches_max);
            if state.retry_left > 0 {
                return Decision::default();
            }
            start_over(state);
        }
        // Another executable: what was recorded of the old one is worth nothing.
        Phase::Profiling if !changed.is_empty() => start_over(state),
        Phase::Profiling | Phase::Generation => {}
        Phase::Prefetch => {
            note_changes(state, &changed, pages_before, params);
            return help(state, facts, params);
        }
    }
    Decision {
        records: true,
        profiles_paths: traces(state),
        ..Decision::default()
    }
}

/// The decision in the prefetch phase.
fn help(state: &mut LaunchState, facts: &LaunchFacts<'_>, params: &LaunchParams) -> Decision {
    let is_costly = is_costly(state, params);
    let n_chk = if is_costly || state.unusable >= UNUSABLE_MAX {
        params.n_chk_costly
    } else {
        params.n_chk
    };
    state.n_pref = state.n_pref.saturating_add(1);
    state.n_held_out = state.n_held_out.saturating_add(1);
    let is_due = is_on_trial(state, params) || state.n_held_out >= params.holdout_every;
    let is_held_out = params.holdout_every > 0 && is_due;
    if is_held_out {
        state.n_held_out = 0;
    }
    // A launch held out is to take as long as without prepage. It is recorded only where nothing else shows its end, perhaps
    // without its beginning: it checks and refines nothing.
    let checks = !is_held_out && state.n_pref >= n_chk;
    if checks {
        state.n_pref = 0;
    }
    let (order, start) = match facts.is_rotational {
        true => (params.rotational_order, params.rotational_start),
        false => (params.order, params.start),
    };
    let is_helped = !is_held_out && order != LaunchOrder::None;
    // What is tried is the whole of help.
    let is_whole = is_held_out || is_unclear(state, params);
    state.n_unrefined = state.n_unrefined.saturating_add(1);
    let refines =
        !is_whole && is_refining(state, params) && state.n_unrefined >= params.refine_every;
    if refines {
        state.n_unrefined = 0;
    }
    let planned = match refines {
        true => &state.sequence.for_turn(state.n_refined),
        false => &state.sequence,
    };
    let prefetch = is_helped.then(|| plan(planned, order, start, params, facts.limits));
    let learns = is_learning(state, params)
        && state.unusable < UNUSABLE_MAX
        && (!is_costly || has_much_to_learn(state, params));
    let records = match is_held_out {
        true => state.ends_idle,
        false => checks || refines || learns,
    };
    Decision {
        records,
        profiles_paths: records && !is_held_out && traces(state),
        prefetch: prefetch.filter(|plan| !plan.is_empty()).map(Arc::new),
        is_held_out,
    }
}

/// Whether the path calls of a launch that is recorded are wanted.
fn traces(state: &LaunchState) -> bool {
    !state.sequence.is_path_profile && state.unusable < UNUSABLE_TRACED_MAX
}

/// Whether recording costs a launch time.
fn is_costly(state: &LaunchState, params: &LaunchParams) -> bool {
    state.recording_share > params.recording_share_max
}

/// Whether changed files wait for recordings.
fn is_learning(state: &LaunchState, params: &LaunchParams) -> bool {
    let is_open = |file| !state.sequence.is_confirmed(file, params.n_rawseq);
    state.relearns || (0..state.sequence.files.len() as u32).any(is_open)
}

/// Whether so much of the sequence waits for recordings that it is worth one that costs the launch time: R_miss of its pages.
/// A browser writes some of its files at every launch.
fn has_much_to_learn(state: &LaunchState, params: &LaunchParams) -> bool {
    let sequence = &state.sequence;
    let confirmed: u64 = sequence
        .confirmed(params.n_rawseq)
        .map(|r| r.extent.len)
        .sum();
    let pages = sequence.pages();
    (pages - confirmed) as f32 > params.r_miss * pages as f32
}

/// Whether recorded launches are to tell which of the pages that were mapped along with others they use.
fn is_refining(state: &LaunchState, params: &LaunchParams) -> bool {
    state.n_refined < params.n_refine && state.sequence.has_uncertain()
}

/// The prefetcher generation phase (FAST section 4.4), once N_rawseq recordings are there. The extractor has run with
/// each of them; `map` adds where the pages are on the device, and can do so again later.
pub fn generate(state: &mut LaunchState, map: Option<&BlockMap>, page_bytes: u64) {
    if let Some(map) = map {
        Arc::make_mut(&mut state.sequence).locate(map, page_bytes);
    }
    if state.phase == Phase::Generation {
        state.phase = Phase::Prefetch;
        (state.n_init, state.n_pref) = (0, 0);
    }
}

/// A launch is over. `recording` is what was recorded of it, if anything.
pub fn end(
    state: &mut LaunchState,
    recording: Option<&Recording>,
    measured: &Measured,
    params: &LaunchParams,
) -> Learned {
    let since_ns = std::mem::replace(&mut state.began_ns, measured.began_ns);
    let usable = recording.filter(|r| r.is_usable());
    if let Some(recording) = recording {
        state.files_left_out = recording.files_left_out;
        state.unusable = match usable {
            Some(_) => 0,
            None => state.unusable.saturating_add(1),
        };
        if let Some(launch_us) = measured.launch_us {
            let share = measured.recording_us as f32 / launch_us.max(1) as f32;
            state.recording_share = share.min(1.0);
        }
    }
    match measured.end {
        LaunchEnd::Idle => state.ends_idle = true,
        LaunchEnd::Exit | LaunchEnd::Settled => state.ends_idle = false,
        LaunchEnd::Timeout => {}
    }
    // One that was learned while all of it was in memory may have no pages: insertions show none. Every launch read as much.
    let pages_if_cold = (state.sequence.pages() / COLD_PART).max(1);
    state.was_cold = measured.device_pages >= pages_if_cold;
    // A traced one is slowed.
    let is_traced = recording.is_some_and(|recording| recording.is_path_profile);
    let warm_us = measured.launch_us.filter(|_| !state.was_cold && !is_traced);
    if let Some(launch_us) = warm_us {
        let own_us = match measured.help {
            Help::Helped => launch_us.saturating_sub(measured.help_us),
            Help::HeldOut | Help::None => launch_us,
        };
        state.warm_us = Some(own_us.min(state.warm_us.unwrap_or(own_us)));
    }
    match state.phase {
        Phase::Profiling => match usable {
            Some(recording) => profile(state, recording, measured, params),
            None if state.unusable >= UNUSABLE_MAX => {
                switch_off(state, OffReason::Unsteady, params)
            }
            None => Learned::Nothing,
        },
        Phase::Prefetch => {
            let present = recording.map_or(&[][..], |r| &r.files);
            let pages_before = state.sequence.pages();
            let changed = forget_changed(&mut state.sequence, present, &measured.stale_files);
            let to_learn_anew = note_changes(state, &changed, pages_before, params);
            let mut learned = usable.map_or(Learned::Nothing, |recording| {
                check(state, recording, measured, since_ns, params)
            });
            if state.phase != Phase::Prefetch {
                return learned;
            }
            if to_learn_anew > 0 {
                learned = Learned::Relearning(to_learn_anew);
            }
            // Where nobody has to record a launch to see its end, those that it slowed do not count.
            let is_slowed =
                |r: &Recording| r.is_path_profile || (is_costly(state, params) && !state.ends_idle);
            let is_undisturbed = recording.is_none_or(|r| !is_slowed(r));
            let off = is_undisturbed.then(|| compare(state, measured, params));
            off.flatten().unwrap_or(learned)
        }
        Phase::Generation | Phase::Off(_) => Learned::Nothing,
    }
}

/// Learns from a recording in the profiling phase.
fn profile(
    state: &mut LaunchState,
    recording: &Recording,
    measured: &Measured,
    params: &LaunchParams,
) -> Learned {
    if is_handed_over(&state.sequence, recording, measured) {
        state.n_pref = state.n_pref.saturating_add(1);
        return match state.n_pref < HANDED_OVER_MAX {
            true => Learned::Nothing,
            false => switch_off(state, OffReason::Unsteady, params),
        };
    }
    state.n_pref = 0;
    let LaunchState {
        sequence,
        n_init,
        longest_us,
        ..
    } = state;
    let sequence = Arc::make_mut(sequence);
    learn(sequence, recording, params.n_rawseq, *n_init == 0);
    learn_paths(sequence, recording);
    *n_init = n_init.saturating_add(1);
    if let (false, Some(launch_us)) = (recording.is_path_profile, measured.launch_us) {
        *longest_us = launch_us.max(*longest_us);
    }
    if state.n_init < params.n_rawseq {
        return Learned::Recorded;
    }
    // Of an application whose launches were warm, the trial tells: the time of a warm launch says nothing of a cold one.
    let pages_if_cold = recording.pages().max(params.pages_min) / COLD_PART;
    let is_short =
        is_short(state.longest_us, params) && measured.device_pages >= pages_if_cold.max(1);
    let windows = |pages: u64, is_traced: bool| pages * if is_traced { TRACED_PART } else { 1 };
    let sequence = &state.sequence;
    let in_common = windows(sequence.pages(), sequence.is_path_profile);
    // Few insertions may mean that much was in memory.
    let has_few_pages = recording.source == Source::Accesses && in_common < params.pages_min;
    if is_short || has_few_pages {
        let recorded = windows(recording.pages(), recording.is_path_profile);
        let is_small = is_short || recorded < params.pages_min;
        let reason = if is_small {
            OffReason::TooSmall
        } else {
            OffReason::Unsteady
        };
        return switch_off(state, reason, params);
    }
    state.phase = Phase::Generation;
    Learned::Generation
}

/// Whether a launch found the application running and only told that what to open: it was not cold by itself, and used fewer than
/// half of the sequence's files. A sequence is of cold starts, for which the paper flushes the page cache, and has little in
/// common with such a launch. One that is cold is one of them, however little it uses.
///
/// Files are counted, by path: a traced launch shows as many as others do, and of their pages two in five to three in four.
fn is_handed_over(sequence: &LaunchSequence, recording: &Recording, measured: &Measured) -> bool {
    let used: BTreeSet<&str> = recording.files.iter().map(|f| &*f.path).collect();
    let known = sequence.files.iter();
    let shared = known.filter(|f| used.contains(&*f.file.path)).count();
    let is_cold = measured.device_pages >= (recording.pages() / COLD_PART).max(1);
    // Insertions show the less the more is in memory: they add up.
    recording.source == Source::Accesses && !is_cold && shared * 2 < sequence.files.len()
}

/// Checks the miss ratio of a recorded launch in the prefetch phase, and learns changed files anew.
fn check(
    state: &mut LaunchState,
    recording: &Recording,
    measured: &Measured,
    since_ns: i64,
    params: &LaunchParams,
) -> Learned {
    if is_handed_over(&state.sequence, recording, measured) {
        return Learned::Nothing;
    }
    let mut learned = Learned::Nothing;
    if is_learning(state, params) {
        let takes_new = std::mem::take(&mut state.relearns);
        let sequence = Arc::make_mut(&mut state.sequence);
        learn(sequence, recording, params.n_rawseq, takes_new);
        learned = Learned::Recorded;
    }
    learn_paths(Arc::make_mut(&mut state.sequence), recording);
    let counted = misses::from_accesses(recording, &state.sequence, since_ns);
    state.misses = Some(counted);
    if counted.update_ratio() <= f64::from(params.r_miss) {
        state.deletions = 0;
        if recording.source == Source::Accesses && is_alike(state, recording) {
            let sequence = Arc::make_mut(&mut state.sequence);
            // Only a launch that left some of it out shows what is used of what is in doubt, and takes its turn.
            let refines = sequence.has_uncertain() && state.was_cold && state.n_unrefined == 0;
            state.n_refined = state.n_refined.saturating_add(u32::from(refines));
            refine(sequence, recording, params.n_rawseq);
            reorder(sequence, recording);
        }
        return learned;
    }
    if recording.source == Source::Insertions {
        // Part of it was in memory when the sequence was learned.
        let sequence = Arc::make_mut(&mut state.sequence);
        learn(sequence, recording, params.n_rawseq, true);
        return Learned::Recorded;
    }
    state.deletions = state.deletions.saturating_add(1);
    if state.deletions >= DELETIONS_MAX {
        return switch_off(state, OffReason::Unsteady, params);
    }
    start_over(state);
    profile(state, recording, measured, params);
    Learned::Deleted
}

/// Whether a launch did what those did that the sequence is of: another tells nothing of these.
fn is_alike(state: &LaunchState, recording: &Recording) -> bool {
    recording.pages().saturating_mul(2) >= state.sequence.pages_for_turn(state.n_refined)
}

/// Notes which files of the sequence changed and were forgotten, when it held `pages_before` pages; returns the number of
/// those that are to be learned anew. Files that were not confirmed are not: some are written anew at every launch.
///
/// Paths are profiled anew, which slows the launch that shows them, only where as much is gone as makes another program:
/// R_miss of the pages. A browser writes some of its files at every launch.
fn note_changes(
    state: &mut LaunchState,
    changed: &[SequenceFile],
    pages_before: u64,
    params: &LaunchParams,
) -> usize {
    let is_confirmed = |f: &&SequenceFile| {
        state.sequence.source == Source::Insertions || f.recordings >= params.n_rawseq
    };
    let confirmed = changed.iter().filter(is_confirmed).count();
    if confirmed > 0 {
        state.relearns = true;
        let gone = pages_before.saturating_sub(state.sequence.pages());
        let is_most_left = gone as f32 <= params.r_miss * pages_before as f32;
        Arc::make_mut(&mut state.sequence).is_path_profile &= is_most_left;
        if !is_most_left {
            // The next launch is recorded, whatever that costs.
            state.n_pref = params.n_chk.max(params.n_chk_costly);
        }
    }
    confirmed
}

/// Leaves the application alone, each time for twice as many launches.
fn switch_off(state: &mut LaunchState, reason: OffReason, params: &LaunchParams) -> Learned {
    let doubled = state.retry_launches.saturating_mul(2);
    state.retry_launches = doubled.clamp(params.retry_launches, params.retry_launches_max);
    state.retry_left = state.retry_launches;
    state.phase = Phase::Off(reason);
    state.sequence = Arc::default();
    Learned::Off(reason)
}

/// Begins to learn anew: the sequence and what was measured with it is forgotten.
fn start_over(state: &mut LaunchState) {
    *state = LaunchState {
        launches: state.launches,
        deletions: state.deletions,
        misses: state.misses,
        recording_share: state.recording_share,
        began_ns: state.began_ns,
        retry_launches: state.retry_launches,
        ..LaunchState::default()
    };
}
