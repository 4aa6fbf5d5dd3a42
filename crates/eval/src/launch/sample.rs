//! One launch: bring the cache into its state, hold the command, let it go, see its end, put everything to rest.

use super::accesses::{Recorder, first_accesses};
use super::activity::{self, Activity, Instruments};
use super::bench::{Bench, Learned};
use super::cache::{self, SequencePages};
use super::counted::{Counted, why_failed};
use super::held::{Held, Running};
use super::picture::{Limits, Seen};
use super::preload::Preload;
use super::profiles;
use super::programs::{Prepared, Window};
use super::record::{CacheState, Discarded, FirstAccesses, Launch, Parameters, Preloaded, Slot};
use super::scenario::Scenario;
use crate::clock::now_ns;
use crate::error::Result;
use crate::log::with_last_words_of_application;
use crate::readings;
use crate::strangers::why_disturbed;
use prepage_kernel::page::page_size;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitStatus;

/// What became of a slot.
pub type Outcome = std::result::Result<Box<Launch>, Box<Discarded>>;

/// prepage's report of a launch, `None` where it took no part; or why the launch is not to be used.
pub type Report = std::result::Result<Option<serde_json::Value>, String>;

/// Why a launch of which prepage says nothing, though it took part, is not to be used.
pub const NO_REPORT: &str = "prepage made no report";

/// What is launched.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The program, and what prepage has learned of it.
    pub learned: &'a Learned,
    /// The program whose sequence prepage is made to know instead.
    pub other: Option<&'a Learned>,
    /// Whether prepage leaves it alone: then it is asked as a user asks it.
    pub is_left_alone: bool,
    /// Whether it is read meanwhile when processors and disk are busy.
    pub is_over_time: bool,
}

/// Measures one launch.
pub fn measure(
    bench: &mut Bench,
    parameters: &Parameters,
    subject: &Subject<'_>,
    slot: &Slot,
) -> Result<Outcome> {
    let Subject { learned, other, .. } = *subject;
    let program = &learned.program;
    let is_warm = slot.scenario == Scenario::Warm;
    let is_left_alone = subject.is_left_alone && slot.scenario == Scenario::Fast;
    let sequence = other.map(|other| &other.known.state.sequence);
    if let Some(state) = profiles::made(slot.scenario, &learned.known, sequence, page_size()) {
        let name = &program.name;
        bench.prepage.make_known(name, &learned.app, &state)?;
    }
    let (state, unfit) = match is_warm {
        true => make_warm(bench, parameters, learned)?,
        false => make_cold(learned)?,
    };
    let discard = |reason: String| {
        Ok(Err(Box::new(Discarded {
            slot: slot.clone(),
            reason,
            state: Some(state),
        })))
    };
    if let Some(reason) = unfit {
        return discard(reason);
    }
    let name = &program.name;
    let command = match is_left_alone {
        true => bench.prepage.unreported(name, &program.command),
        false => bench
            .prepage
            .scenario(name, slot.scenario, &program.command),
    };
    let wanted = Wanted {
        program,
        command: &command,
        beside: (slot.scenario == Scenario::Vmtouch).then(|| vmtouch(&learned.pages)),
        is_preloaded: slot.scenario == Scenario::Preload,
        is_cold: !is_warm,
        window: program.window.filter(|_| slot.scenario.runs_program()),
        recorder: None,
        instruments: subject.is_over_time.then(|| bench.instruments()),
    };
    let is_reported = slot.scenario.is_reported() && !is_left_alone;
    let (seen, report) = watch_reported(bench, parameters, slot.scenario, wanted, is_reported)?;
    let unusable = why_unusable(parameters, &seen);
    let report = match unusable.map_or(report, Err) {
        Ok(report) => report,
        Err(reason) => {
            return discard(with_last_words_of_application(&reason, &bench.log(program)));
        }
    };
    if is_held_out(slot.scenario, report.as_ref()) {
        return discard("held out".into());
    }
    let is_passed = match &bench.detector {
        Some(detector) if slot.scenario == Scenario::Detected && report.is_none() => {
            detector.leaves_alone(&learned.app)?
        }
        _ => false,
    };
    let store_bytes = bench.prepage.store_bytes(name);
    Ok(Ok(Box::new(Launch {
        left_alone: is_left_alone || is_passed,
        other_program: other.map(|other| other.program.name.clone()),
        ..launch(slot, seen, Some(state), report, store_bytes)
    })))
}

/// Launches a command, sees its end and waits for what prepage reports of it; then nothing of it runs any more.
fn watch_reported(
    bench: &mut Bench,
    parameters: &Parameters,
    scenario: Scenario,
    wanted: Wanted<'_>,
    is_reported: bool,
) -> Result<(Watched, Report)> {
    let name = &wanted.program.name;
    let is_detected = scenario == Scenario::Detected;
    if let Some(detector) = bench.detector.as_mut().filter(|_| is_detected) {
        detector.begin()?;
    }
    let seen = watch(bench, parameters, wanted)?;
    let report = match &mut bench.detector {
        Some(detector) if is_detected => detector.end()?,
        _ if is_reported => {
            let report = bench.prepage.wait_for_report(name, scenario);
            report.map(Some).ok_or_else(|| NO_REPORT.into())
        }
        _ => Ok(None),
    };
    bench.end_processes();
    Ok((seen, report))
}

/// Nothing of the program's sequence is cached; why it is, if so.
fn make_cold(learned: &Learned) -> Result<(CacheState, Option<String>)> {
    let state = cache::make_cold(&[&learned.pages])?;
    Ok((state, cache::why_not_cold(&state)))
}

/// All that the program is known to use is cached; why it is not, if so.
fn make_warm(
    bench: &mut Bench,
    parameters: &Parameters,
    learned: &Learned,
) -> Result<(CacheState, Option<String>)> {
    warm_up(bench, parameters, &learned.program)?;
    let used = SequencePages::certain(&learned.known.state.sequence);
    let state = cache::look(&[&used])?;
    Ok((state, cache::why_not_warm(&state)))
}

/// A launch from which prepage learns: by itself, or its service where the slot is one of [`Scenario::Detected`]. Discarded
/// if the program fails or does not come to its end: then there is nothing to measure.
pub fn learn(
    bench: &mut Bench,
    parameters: &Parameters,
    program: &Prepared,
    slot: &Slot,
    is_cold: bool,
) -> Result<Outcome> {
    let line = match slot.scenario {
        Scenario::Detected => program.command.clone(),
        _ => bench.prepage.learning(&program.name, &program.command),
    };
    let wanted = Wanted {
        is_cold,
        ..Wanted::of(program, &line)
    };
    let (seen, report) = watch_reported(bench, parameters, slot.scenario, wanted, true)?;
    match why_endless(&seen, program).map_or(report, Err) {
        Ok(report) => {
            let store_bytes = bench.prepage.store_bytes(&program.name);
            Ok(Ok(Box::new(launch(slot, seen, None, report, store_bytes))))
        }
        Err(reason) => Ok(Err(Box::new(Discarded {
            slot: slot.clone(),
            reason: with_last_words_of_application(&reason, &bench.log(program)),
            state: None,
        }))),
    }
}

/// Launches the program once, in no sample. Returns how long that took, in nanoseconds.
pub fn warm_up(bench: &mut Bench, parameters: &Parameters, program: &Prepared) -> Result<u64> {
    let seen = watch(bench, parameters, Wanted::of(program, &program.command))?;
    bench.end_processes();
    Ok(seen.seen.t_end_ns)
}

/// Records one warm launch of a program that prepage has learned; nothing where this kernel reports no accesses.
pub fn record_accesses(
    bench: &mut Bench,
    parameters: &Parameters,
    learned: &Learned,
) -> Result<Option<FirstAccesses>> {
    let program = &learned.program;
    let Some(mut recorder) = Recorder::start()? else {
        return Ok(None);
    };
    warm_up(bench, parameters, program)?;
    let pages = learned.pages.unshared()?;
    let wanted = Wanted {
        recorder: Some(&mut recorder),
        ..Wanted::of(program, &program.command)
    };
    let seen = watch(bench, parameters, wanted)?;
    let recording = recorder.end(seen.t0_ns)?;
    bench.end_processes();
    let t_end_us = seen.seen.t_end_ns / 1_000;
    let name = &program.name;
    Ok(Some(first_accesses(name, &recording, &pages, t_end_us)))
}

fn launch(
    slot: &Slot,
    watched: Watched,
    state: Option<CacheState>,
    report: Option<serde_json::Value>,
    store_bytes: u64,
) -> Launch {
    Launch {
        slot: slot.clone(),
        t0_monotonic_ns: watched.t0_ns,
        t_end_ns: watched.seen.t_end_ns,
        t_first_frame_ns: watched.seen.t_first_frame_ns,
        capped: watched.seen.why_capped.is_some(),
        t_vmtouch_ns: watched.t_beside_ns,
        known_pages: None,
        preload: watched.preloaded,
        other_program: None,
        activity: watched.activity,
        frames: watched.seen.frames,
        state,
        cpu_us: watched.cpu_us,
        system: watched.system,
        report,
        left_alone: false,
        store_bytes,
    }
}

/// `vmtouch -t` of the sequence's files, whole.
fn vmtouch(pages: &SequencePages) -> Vec<OsString> {
    let mut command: Vec<OsString> = ["vmtouch", "-q", "-t"].map(OsString::from).into();
    command.extend(pages.paths().map(OsString::from));
    command
}

/// A launch from its beginning to its end.
struct Watched {
    t0_ns: u64,
    seen: Seen,
    t_beside_ns: Option<u64>,
    preloaded: Option<Preloaded>,
    activity: Option<Activity>,
    status: Option<ExitStatus>,
    cpu_us: u64,
    system: BTreeMap<String, f64>,
}

/// What is launched, and how.
struct Wanted<'a> {
    program: &'a Prepared,
    /// The program's command, or prepage with it.
    command: &'a [OsString],
    /// What is let go just before it.
    beside: Option<Vec<OsString>>,
    /// Whether the daemon `preload` reads before it what it predicts.
    is_preloaded: bool,
    /// Whether the cache is dropped when nothing but the exec is left: looking at the state, and starting the commands,
    /// brought some of it in.
    is_cold: bool,
    /// The window whose picture ends the launch; otherwise its exit does.
    window: Option<Window>,
    /// Who records it.
    recorder: Option<&'a mut Recorder>,
    /// What is read while it is under way.
    instruments: Option<Instruments>,
}

impl<'a> Wanted<'a> {
    fn of(program: &'a Prepared, command: &'a [OsString]) -> Self {
        Self {
            program,
            command,
            beside: None,
            is_preloaded: false,
            is_cold: false,
            window: program.window,
            recorder: None,
            instruments: None,
        }
    }
}

/// Launches a command and sees its end.
fn watch(bench: &mut Bench, parameters: &Parameters, wanted: Wanted<'_>) -> Result<Watched> {
    let program = wanted.program;
    let held = bench.hold(program, wanted.command)?;
    let held_beside: Option<Held> = wanted
        .beside
        .map(|command| bench.hold(program, &command))
        .transpose()?;
    let before = match (&mut bench.desk, wanted.window) {
        (Some(desk), Some(_)) => Some(desk.before()?),
        _ => None,
    };
    if wanted.is_cold {
        cache::drop_all()?;
    }
    let preload = bench.preload.as_ref().filter(|_| wanted.is_preloaded);
    let preloaded = preload.map(Preload::fetch).transpose()?;
    let counted = Counted::read(bench);
    if let Some(recorder) = wanted.recorder {
        recorder.begin(held.pid());
    }
    let reading = wanted
        .instruments
        .map(|instruments| readings::Recorder::start(activity::PACE, move || instruments.read()));
    let mut running_beside = held_beside.map(Held::release).transpose()?;
    let mut running = held.release()?;
    let t0_ns = running_beside.as_ref().map_or(running.t0_ns, |r| r.t0_ns);
    let limits = Limits {
        quiet_ms: parameters.quiet_ms,
        cap_ms: parameters.cap_ms,
    };
    let until_ns = t0_ns + limits.cap_ms * 1_000_000;
    let mut status = None;
    let seen = match (&mut bench.desk, wanted.window, before) {
        (Some(desk), Some(window), Some(before)) => {
            desk.watch(window, t0_ns, &before, &bench.group, limits)?
        }
        _ => {
            let exit = running.wait_until(until_ns)?;
            status = exit.map(|(_, status)| status);
            let too_long = || format!("it did not exit within {} s", limits.cap_ms / 1_000);
            Seen {
                t_end_ns: exit.map_or_else(now_ns, |(t_ns, _)| t_ns) - t0_ns,
                why_capped: exit.is_none().then(too_long),
                ..Seen::default()
            }
        }
    };
    let activity = reading.map(|recorder| Activity::of(&recorder.finish(), t0_ns, seen.t_end_ns));
    let t_beside_ns = match &mut running_beside {
        Some(beside) => beside.wait_until(until_ns)?.map(|(t_ns, _)| t_ns - t0_ns),
        None => None,
    };
    let watched = difference(&counted, &Counted::read(bench));
    leave_to_end(running, status);
    Ok(Watched {
        t0_ns,
        seen,
        t_beside_ns,
        preloaded,
        activity,
        status,
        ..watched
    })
}

/// A windowed program goes on running: its status is taken by a thread once it has been ended with its group.
fn leave_to_end(running: Running, status: Option<ExitStatus>) {
    if status.is_none() {
        std::thread::spawn(move || running.reap());
    }
}

fn difference(before: &Counted, after: &Counted) -> Watched {
    let (cpu_us, system) = after.since(before);
    Watched {
        t0_ns: 0,
        seen: Seen::default(),
        t_beside_ns: None,
        preloaded: None,
        activity: None,
        status: None,
        cpu_us,
        system,
    }
}

/// Whether prepage held the launch out, by its report or its service's record, as it does in the long run with one of
/// `launch.holdout_every`: then it is no sample of its help.
fn is_held_out(scenario: Scenario, report: Option<&serde_json::Value>) -> bool {
    let is_so = |report: &serde_json::Value| report["decision"]["held_out"] == true;
    matches!(scenario, Scenario::Fast | Scenario::Detected) && report.is_some_and(is_so)
}

/// Why a launch says nothing, if so. One that is merely slow is never discarded.
fn why_unusable(parameters: &Parameters, watched: &Watched) -> Option<String> {
    why_disturbed(&watched.system, parameters.strangers_percent_max)
        .map(String::from)
        .or_else(|| why_failed("the program", watched.status))
        .or_else(|| watched.seen.why_over().map(String::from))
}

/// Why a launch did not come to the end that was to be measured, if so.
fn why_endless(watched: &Watched, program: &Prepared) -> Option<String> {
    let why =
        why_failed("the program", watched.status).or_else(|| watched.seen.why_capped.clone())?;
    Some(match program.window {
        Some(_) => why,
        None => format!(
            "{why}; if it shows a window, give a part of its title by --window-title ('' for any)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_help_that_was_held_out_is_no_sample() {
        let report = |held_out: bool| serde_json::json!({"decision": {"held_out": held_out}});
        let (held_out, helped) = (report(true), report(false));
        for scenario in [Scenario::Fast, Scenario::Detected] {
            assert!(is_held_out(scenario, Some(&held_out)));
            assert!(!is_held_out(scenario, Some(&helped)));
            assert!(!is_held_out(scenario, None), "left alone");
        }
        assert!(!is_held_out(Scenario::Record, Some(&held_out)));
    }
}
