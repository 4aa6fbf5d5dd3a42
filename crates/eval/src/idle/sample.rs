//! One wakeup: use the service, leave it idle, take it out of memory, ask it again.

use super::bench::{Bench, Running};
use super::client::{Requests, Seen};
use super::histogram::Histogram;
use super::mode::IdleMode;
use super::record::{Discarded, Parameters, Slot, Wakeup};
use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Result};
use crate::processes::{Counters, Reading, major_faults};
use crate::random::Random;
use crate::reclaim::{self, Memory, State};
use crate::record::Mode;
use crate::run::bench::group_becomes_idle;
use crate::service::{BeginCall, RECORD_MS};
use crate::strangers::{Moment, why_disturbed};
use prepage_kernel::cgroup::Cgroup;
use std::collections::BTreeMap;

/// What became of a slot.
pub type Outcome = std::result::Result<Box<Wakeup>, Box<Discarded>>;

/// How long a wakeup lasts from which prepage learns: longer than a switch may.
pub const LEARNING_WINDOW_MS: u64 = 4_000;

/// Measures one wakeup, or has prepage learn from one.
pub fn measure(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    slot: &Slot,
    is_learning: bool,
) -> Result<Outcome> {
    let (purpose, window_ms) = match is_learning {
        true => ("learning", LEARNING_WINDOW_MS),
        false => ("wakeup", parameters.window_ms),
    };
    use_it(bench, running, parameters, slot)?;
    if slot.mode.is_frozen() {
        running.freeze()?;
    }
    let (state, unfit) = make_state(bench, running, slot.mode)?;
    let discard = |state: State, reason: &str| {
        let (slot, reason) = (slot.clone(), reason.to_owned());
        Ok(Err(Box::new(Discarded {
            slot,
            reason,
            state,
        })))
    };
    if let Some(reason) = unfit {
        if slot.mode.is_frozen() {
            let thawed = running.freezer()?.set_frozen(false);
            thawed.context("thaw", running.kind.name)?;
        }
        return discard(state, reason);
    }
    let requests = draw(running, parameters, slot, purpose, window_ms);
    let (seen, counted) = watch(bench, running, slot.mode, &requests)?;
    if let Some(why) = why_disturbed(&counted.system, parameters.strangers_percent_max) {
        return discard(state, why);
    }
    // What was brought back ahead may need no switch: none is waited for.
    let awaited = match slot.mode {
        IdleMode::FullRestore => Mode::Off,
        mode => prepage_mode(mode),
    };
    let prepage = match &mut bench.prepage {
        Some(prepage) => prepage.new_switches(awaited, &running.tracked_as, RECORD_MS)?,
        None => Vec::new(),
    };
    Ok(Ok(Box::new(Wakeup {
        slot: slot.clone(),
        t0_monotonic_ns: seen.t0_ns,
        t_announced_ns: seen.t_announced_ns,
        restore_us: counted.restore_us,
        first_us: seen.latencies_us.first().copied().unwrap_or_default(),
        latencies_by_second: seen
            .latencies_us
            .chunks(running.rate_hz as usize)
            .map(Histogram::of)
            .collect(),
        state,
        majflt_by_second: counted.majflt_by_second,
        counters: counted.counters,
        prepage_cpu_us: counted.prepage_cpu_us,
        system: counted.system,
        prepage,
    })))
}

/// prepage's mode for one of ours.
fn prepage_mode(mode: IdleMode) -> Mode {
    match mode.is_helped() {
        true => Mode::Full,
        false => Mode::Off,
    }
}

/// The requests of one slot: its own, of the same distribution. The same ones in every mode of a block would show prepage
/// in one mode what it is asked to know in the next.
fn draw(
    running: &Running,
    parameters: &Parameters,
    slot: &Slot,
    purpose: &str,
    length_ms: u64,
) -> Requests {
    let mode = slot.mode.word();
    let purpose = format!(
        "{purpose} {} {} {mode} {}",
        slot.service, slot.block, slot.attempt
    );
    let mut random = Random::stream(parameters.seed, &purpose);
    let protocol = running.kind.protocol;
    Requests::draw(
        &running.zipf,
        protocol,
        running.rate_hz,
        length_ms,
        &mut random,
    )
}

/// Uses the service as it is used all day, and leaves it. prepage rests meanwhile: no real machine takes everything out
/// in a second, and it would bring back what background activity asks for.
fn use_it(
    bench: &mut Bench,
    running: &mut Running,
    parameters: &Parameters,
    slot: &Slot,
) -> Result<()> {
    const IDLE_LIMIT_MS: u64 = 3_000;
    if let Some(prepage) = &mut bench.prepage {
        prepage.set_mode(Mode::Off)?;
    }
    if slot.mode.is_resident() {
        reclaim::bring_back(&running.group)?;
    }
    let requests = draw(running, parameters, slot, "use", parameters.use_ms);
    running.client.send(&requests, || Ok(()), |_| {})?;
    group_becomes_idle(&running.group, IDLE_LIMIT_MS);
    Ok(())
}

/// Brings the service's memory into the state that the mode asks for, and says why it is not, if so.
fn make_state(
    bench: &mut Bench,
    running: &mut Running,
    mode: IdleMode,
) -> Result<(State, Option<&'static str>)> {
    let prepage = bench.prepage.as_ref().map(|prepage| prepage.group());
    // What a process is called is read while that costs it nothing.
    running.roles.read(&running.group.pids());
    let memory = match mode.is_resident() {
        true => Memory::Resident,
        false => Memory::Out,
    };
    let (state, unfit) = reclaim::make_state(&running.group, prepage, memory)?;
    if let Some(prepage) = &mut bench.prepage {
        prepage.set_mode(prepage_mode(mode))?;
        prepage.forget_switches()?;
    }
    Ok((state, unfit))
}

/// What says that the service is needed again, made ready ahead of t0.
enum Announcement {
    /// Nothing but the first request.
    None,
    /// The group is thawed.
    Thaw(Cgroup),
    /// prepage is called.
    Call(BeginCall),
}

impl Announcement {
    fn prepare(bench: &Bench, running: &Running, mode: IdleMode) -> Result<Self> {
        Ok(match (mode, &bench.prepage) {
            (IdleMode::OffThaw | IdleMode::FullThaw, _) => Self::Thaw(running.freezer()?.clone()),
            (IdleMode::FullBegin, Some(prepage)) => Self::Call(prepage.begin_call(&running.group)?),
            _ => Self::None,
        })
    }

    fn make(self) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Thaw(group) => group
                .set_frozen(false)
                .context("thaw", group.directory.display()),
            Self::Call(call) => call.make(),
        }
    }
}

/// What was counted during a wakeup.
struct Counted {
    restore_us: Option<u64>,
    majflt_by_second: Vec<u64>,
    counters: Counters,
    prepage_cpu_us: u64,
    system: BTreeMap<String, f64>,
}

/// Announces as the mode does, sends the requests, and counts.
fn watch(
    bench: &Bench,
    running: &mut Running,
    mode: IdleMode,
    requests: &Requests,
) -> Result<(Seen, Counted)> {
    let announcement = Announcement::prepare(bench, running, mode)?;
    let pids = running.group.pids();
    let mut majflt_by_second = Vec::new();
    let before = Totals::read(bench, running, &pids);
    let restored = bench
        .prepage
        .as_ref()
        .filter(|_| mode == IdleMode::FullRestore);
    let restored = restored.map(|prepage| prepage.restore(&running.group));
    let restore_us = restored.transpose()?;
    let seen = running.client.send(
        requests,
        || announcement.make(),
        |t0_ns| majflt_by_second = count_by_second(&pids, t0_ns, requests.length_ns()),
    )?;
    let after = Totals::read(bench, running, &pids);
    let counted = Counted {
        restore_us,
        majflt_by_second,
        counters: running.counters_since(&before.processes, &after.processes),
        prepage_cpu_us: after.prepage_cpu_us.saturating_sub(before.prepage_cpu_us),
        system: after.moment.since(&before.moment),
    };
    Ok((seen, counted))
}

/// The major faults of these processes in each second since t0, until so long after it.
fn count_by_second(pids: &[i32], t0_ns: u64, length_ns: u64) -> Vec<u64> {
    const SECOND_NS: u64 = 1_000_000_000;
    let count = || major_faults(pids.iter().copied());
    let mut last = count();
    let mut by_second = Vec::new();
    for second in 1..=length_ns.div_ceil(SECOND_NS) {
        sleep_ms((t0_ns + second * SECOND_NS).saturating_sub(now_ns()) / 1_000_000);
        let now = count();
        by_second.push(now.saturating_sub(last));
        last = now;
    }
    by_second
}

/// Everything that is counted before and after.
struct Totals {
    processes: Reading,
    prepage_cpu_us: u64,
    moment: Moment,
}

impl Totals {
    fn read(bench: &Bench, running: &mut Running, pids: &[i32]) -> Self {
        let prepage = bench.prepage.as_ref();
        let prepage_cpu_us = prepage.map_or(0, |prepage| prepage.group().cpu_us());
        Self {
            processes: running.roles.read(pids),
            prepage_cpu_us,
            moment: Moment::read(prepage_cpu_us + running.group.cpu_us()),
        }
    }
}
