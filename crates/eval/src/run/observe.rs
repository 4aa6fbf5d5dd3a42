//! One observed switch: what was seen, and everything that is counted around it.

use super::bench::{Bench, Running};
use super::longest::Spans;
use super::timeline::{Instruments, PACE};
use super::watch::{Watched, watch};
use super::{blocks, footprint};
use crate::error::Result;
use crate::group::Group;
use crate::processes::{ByRole, Reading};
use crate::readings::Recorder;
use crate::reclaim::State;
use crate::record::{Discarded, LIMIT_LEFT, Parameters, Setting, Slot, Switch, Timeline};
use crate::service::RECORD_MS;
use crate::settle::{Settled, settle};
use crate::strangers::{Moment, why_disturbed};
use crate::tiles::Tiles;
use std::collections::BTreeMap;

/// What became of a slot.
pub type Outcome = std::result::Result<Box<Switch>, Box<Discarded>>;

/// An application that was used and left, and whose memory is as it is to be.
#[derive(Debug)]
pub struct Prepared {
    /// What was done in it.
    pub context: Vec<String>,
    /// Its picture when it was left.
    pub left: Tiles,
    /// The verified state.
    pub state: State,
}

/// A slot whose switch is not to be used.
pub fn discarded(slot: &Slot, reason: &str, state: State) -> Outcome {
    Err(Box::new(Discarded {
        slot: slot.clone(),
        reason: reason.to_owned(),
        state: Some(state),
    }))
}

/// A timeline is read in one block of so many: a reading takes up to half a millisecond, and longest where all cores are
/// busy, as they are in a helped switch. Of the twelve blocks of `make bench` that leaves four, the fewest with an interval.
const TIMELINE_EVERY: u32 = 3;

/// Switches to a prepared application and records everything.
pub fn observe(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    slot: &Slot,
    prepared: Prepared,
) -> Result<Outcome> {
    let Prepared {
        context,
        left,
        state,
    } = prepared;
    let before = bench.screen.tiles()?;
    let counted = Counted::read(bench, running);
    let for_stalls = blocks::is_for_stalls(slot);
    let is_timed = slot.block.is_multiple_of(TIMELINE_EVERY) && !for_stalls;
    let recorder = is_timed.then(|| {
        let instruments = instruments(bench, running, &counted.app);
        Recorder::start(PACE, move || instruments.read())
    });
    let spans = for_stalls.then(Spans::start).transpose()?;
    let seen = watch(
        bench,
        running,
        &left,
        &counted.app,
        parameters.quiet_ms,
        parameters.cap_ms,
    )?;
    let readings = recorder.map(Recorder::finish);
    let spans = spans.map(Spans::finish);
    let after = Counted::read(bench, running);
    let longest = spans.map(|seen_spans| {
        let processes = counted.app.keys().chain(after.app.keys());
        let pids = processes.map(|id| id.pid).collect();
        seen_spans.longest(&pids, seen.t0_ns, seen.t0_ns + seen.t_end_ns)
    });
    let difference = after.since(&counted, bench, running);
    let settled = settle(&before, &seen.frames);
    if let Some(reason) = why_unusable(&seen, &difference, parameters) {
        bench.check_window(running)?;
        return Ok(discarded(slot, reason, state));
    }
    let prepage = match &mut bench.service {
        Some(service) => {
            let limit_ms = match parameters.setting {
                // Who is left next does not rest longer in modes of which there is a record to wait for.
                Setting::Together => 50,
                Setting::Reclaimed | Setting::Pressure => RECORD_MS,
            };
            service.new_switches(slot.mode, &running.tracked_as, limit_ms)?
        }
        None => Vec::new(),
    };
    footprint::collect(bench, running, slot.mode)?;
    let answer_tiles = seen
        .frames
        .last()
        .map_or(0, |last| last.tiles.differing(&left));
    let (t_first_frame_ns, t_settled_ns) = reached(&seen, &settled);
    Ok(Ok(Box::new(Switch {
        slot: slot.clone(),
        t0_monotonic_ns: seen.t0_ns,
        t_active_ns: seen.t_active_ns.unwrap_or_default(),
        t_key_ns: seen.t_key_ns.unwrap_or_default(),
        t_first_frame_ns,
        t_settled_ns,
        t_end_ns: seen.t_end_ns,
        capped: seen.capped,
        tiles: before.count(),
        answer_tiles,
        timeline: readings.map(|readings| Timeline::of(&readings, seen.t0_ns, t_settled_ns)),
        longest,
        frames: settled.frames,
        context,
        state,
        processes: difference.processes,
        session: difference.session,
        app_cpu_us: difference.app_cpu_us,
        service_cpu_us: difference.service_cpu_us,
        stalled_us: difference.stalled_us,
        system: difference.system,
        group_after: running.group.residency(),
        prepage,
    })))
}

/// What is read of an application that has these processes.
fn instruments(bench: &Bench, running: &Running, processes: &Reading) -> Instruments {
    Instruments {
        app: running.group.clone(),
        service: bench.service_group().cloned(),
        session: bench.session_group.clone(),
        disk_stat: bench.disk_stat.clone(),
        pids: processes.keys().map(|id| id.pid).collect(),
    }
}

/// The times of the first frame and of the settled picture. What is not reached when the cap ends the watching took at
/// least so long.
fn reached(seen: &Watched, settled: &Settled) -> (u64, u64) {
    match (settled.t_first_frame_ns, settled.t_settled_ns) {
        (first, Some(stays)) if !seen.capped => (first.unwrap_or(stays), stays),
        (first, _) => (first.unwrap_or(seen.t_end_ns), seen.t_end_ns),
    }
}

/// Why a switch that was watched says nothing, if so. One that is merely slow is never discarded: that would favour
/// whatever made it slow.
fn why_unusable(
    seen: &Watched,
    difference: &Difference,
    parameters: &Parameters,
) -> Option<&'static str> {
    if seen.t_active_ns.is_none() {
        return Some("the window never became active");
    }
    why_disturbed(&difference.system, parameters.strangers_percent_max)
}

/// Everything that is counted before and after.
struct Counted {
    app: Reading,
    session: Reading,
    app_cpu_us: u64,
    service_cpu_us: u64,
    stalled_us: BTreeMap<String, u64>,
    moment: Moment,
    /// What the limit leaves, where there is one.
    limit_left_bytes: Option<u64>,
}

/// The difference of two readings.
struct Difference {
    processes: ByRole,
    session: ByRole,
    app_cpu_us: u64,
    service_cpu_us: u64,
    stalled_us: BTreeMap<String, u64>,
    system: BTreeMap<String, f64>,
}

impl Counted {
    fn read(bench: &mut Bench, running: &mut Running) -> Self {
        let stalled =
            |resource: &str| Some((resource.to_owned(), running.group.stalled_us(resource)?));
        Self {
            app: running.roles.read(&running.group.pids()),
            session: bench.session_roles.read(&bench.session_group.pids()),
            app_cpu_us: running.group.cpu_us(),
            service_cpu_us: bench.service_group().map_or(0, Group::cpu_us),
            stalled_us: ["cpu", "memory", "io"]
                .into_iter()
                .filter_map(stalled)
                .collect(),
            moment: Moment::read(bench.shared_group.cpu_us() + bench.session_group.cpu_us()),
            limit_left_bytes: bench.shared_group.limit_left_bytes(),
        }
    }

    fn since(&self, before: &Self, bench: &Bench, running: &Running) -> Difference {
        let mut system = self.moment.since(&before.moment);
        let left = before.limit_left_bytes.map(|bytes| bytes as f64);
        system.extend(left.map(|bytes| (LIMIT_LEFT.to_owned(), bytes)));
        let waited = |(name, now): (&String, &u64)| {
            let then = before.stalled_us.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        };
        Difference {
            processes: running.roles.difference(&before.app, &self.app),
            session: bench
                .session_roles
                .difference(&before.session, &self.session),
            app_cpu_us: self.app_cpu_us.saturating_sub(before.app_cpu_us),
            service_cpu_us: self.service_cpu_us.saturating_sub(before.service_cpu_us),
            stalled_us: self.stalled_us.iter().map(waited).collect(),
            system,
        }
    }
}
