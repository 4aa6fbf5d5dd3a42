//! `study` of services that sat idle: every number is a pure function of the record.

use super::histogram::Histogram;
use super::mode::IdleMode;
use super::record::{Discarded, Line, Run, ServiceFacts, Wakeup};
use crate::error::Result;
use crate::record::read;
use crate::source::Source;
use crate::statistics::{Estimate, median, median_estimate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The goal for the first response and for p99: so much of the time without help.
pub const RATIO_GOAL: f64 = 0.5;

/// Everything that one record says.
#[derive(Clone, Debug, Serialize)]
pub struct IdleStudy {
    /// Which record.
    pub source: Source,
    /// The circumstances.
    pub run: Run,
    /// One row a service, in the order of measuring.
    pub services: Vec<ServiceRow>,
    /// Discarded wakeups by service and reason.
    pub discarded: BTreeMap<String, usize>,
}

impl IdleStudy {
    /// Whether it is of a record without wake-ups, but those that were learned from.
    pub fn is_empty(&self) -> bool {
        self.discarded.is_empty() && self.services.iter().all(|service| service.modes.is_empty())
    }
}

/// One service.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceRow {
    /// What it is.
    pub facts: ServiceFacts,
    /// One row a mode, in the order of [`IdleMode`].
    pub modes: Vec<ModeRow>,
}

/// One mode of one service.
#[derive(Clone, Debug, Serialize)]
pub struct ModeRow {
    /// The mode.
    pub mode: IdleMode,
    /// How many samples.
    pub samples: usize,
    /// How long before the first request was due prepage was called, where it is waited for.
    pub ahead_ms: Measured,
    /// Until the first response.
    pub first_ms: Measured,
    /// The median of a wakeup's latencies.
    pub p50_ms: Measured,
    /// Their 99th percentile.
    pub p99_ms: Measured,
    /// The same of the first second alone.
    pub first_second_p99_ms: Measured,
    /// The longest.
    pub max_ms: Measured,
    /// Major faults of the service.
    pub majflt: Measured,
    /// CPU time of prepage's service.
    pub prepage_cpu_ms: Measured,
    /// Wakeups of which prepage recorded a switch, or that it was called for ahead: in the others it left the service alone.
    pub acted: usize,
    /// What prepage records of the first switch of a wakeup; nothing of fewer than two.
    pub switch: BTreeMap<&'static str, OfSwitches>,
}

impl ModeRow {
    /// Whether the mode is one with help, and prepage left the service alone in most wakeups: its times are then none of help.
    pub fn is_left_alone(&self) -> bool {
        self.mode.is_helped() && 2 * self.acted < self.samples
    }
}

/// One number of prepage's records of switches. It has no interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfSwitches {
    /// The median.
    pub median: f64,
    /// Wakeups.
    pub n: usize,
}

/// One number of all wakeups of a mode. What has no confidence interval is not there.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Of every wakeup, in the order of measuring.
    #[serde(skip)]
    pub values: Vec<f64>,
    /// The median.
    pub median: Option<Estimate>,
    /// Over that of the mode's control: median of the blocks' ratios.
    pub ratio_to_control: Option<Estimate>,
}

/// Whether the goal is met, as far as the interval tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The whole interval is within it.
    Reached,
    /// The whole interval is outside.
    Missed,
    /// Neither.
    Open,
}

impl Goal {
    /// Of a ratio.
    pub fn of(ratio: Estimate) -> Self {
        if ratio.high <= RATIO_GOAL {
            Self::Reached
        } else if ratio.low > RATIO_GOAL {
            Self::Missed
        } else {
            Self::Open
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "missed",
            Self::Open => "open",
        }
    }
}

/// Studies one record.
pub fn study(path: &Path) -> Result<IdleStudy> {
    let study = study_lines(read(path)?);
    Ok(IdleStudy {
        source: Source::of(path, study.run.time_unix_s),
        ..study
    })
}

/// Studies the lines of one record, whose first is its circumstances.
pub fn study_lines(lines: Vec<Line>) -> IdleStudy {
    let (mut facts, mut wakeups, mut discarded) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    let is_known = |facts: &[ServiceFacts], one: &ServiceFacts| {
        facts.iter().any(|known| known.service == one.service)
    };
    for line in lines {
        match line {
            Line::Idle(run) => first = first.or(Some(run)),
            // A service that was started again to go on with the run is the same one.
            Line::Service(one) if is_known(&facts, &one) => {}
            Line::Service(one) => facts.push(*one),
            Line::LearningWakeup(_) => {}
            Line::Wakeup(wakeup) => wakeups.push(*wakeup),
            Line::DiscardedWakeup(one) => discarded.push(*one),
        }
    }
    let service = |facts: ServiceFacts| {
        let own = wakeups.iter();
        let own: Vec<&Wakeup> = own.filter(|w| w.slot.service == facts.service).collect();
        let mut modes: Vec<IdleMode> = own.iter().map(|w| w.slot.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        ServiceRow {
            modes: modes.iter().map(|&mode| mode_row(&own, mode)).collect(),
            facts,
        }
    };
    IdleStudy {
        source: Source::default(),
        run: *first.expect("a record begins with its circumstances"),
        services: facts.into_iter().map(service).collect(),
        discarded: reasons(&discarded),
    }
}

fn reasons(discarded: &[Discarded]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for one in discarded {
        let reason = format!("{} {}", one.slot.service, one.reason);
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

fn latency_ms(wakeup: &Wakeup, share: f64) -> f64 {
    Histogram::merged(&wakeup.latencies_by_second).quantile_ms(share)
}

fn first_second_p99_ms(wakeup: &Wakeup) -> f64 {
    let first = wakeup.latencies_by_second.first();
    first.map_or(0.0, |latencies| latencies.quantile_ms(0.99))
}

fn mode_row(wakeups: &[&Wakeup], mode: IdleMode) -> ModeRow {
    let own: Vec<&Wakeup> = of_mode(wakeups, mode).collect();
    let measured = |value: fn(&Wakeup) -> f64| measure(wakeups, mode, value);
    ModeRow {
        mode,
        samples: own.len(),
        ahead_ms: measured(|w| w.restore_us.unwrap_or(0) as f64 / 1e3),
        first_ms: measured(|w| f64::from(w.first_us) / 1e3),
        p50_ms: measured(|w| latency_ms(w, 0.5)),
        p99_ms: measured(|w| latency_ms(w, 0.99)),
        first_second_p99_ms: measured(first_second_p99_ms),
        max_ms: measured(|w| latency_ms(w, 1.0)),
        majflt: measured(|w| w.counters.majflt as f64),
        prepage_cpu_ms: measured(|w| w.prepage_cpu_us as f64 / 1e3),
        acted: own.iter().filter(|w| acted(w)).count(),
        switch: switch_medians(&own),
    }
}

fn acted(wakeup: &Wakeup) -> bool {
    wakeup.restore_us.is_some() || !wakeup.prepage.is_empty()
}

fn of_mode<'a>(wakeups: &'a [&'a Wakeup], mode: IdleMode) -> impl Iterator<Item = &'a Wakeup> {
    let own = wakeups.iter().filter(move |w| w.slot.mode == mode);
    own.copied()
}

fn measure(wakeups: &[&Wakeup], mode: IdleMode, value: fn(&Wakeup) -> f64) -> Measured {
    let values: Vec<f64> = of_mode(wakeups, mode).map(value).collect();
    let ratio_to_control = mode.control().and_then(|control| {
        let by_block = |mode| -> BTreeMap<u32, f64> {
            let of = of_mode(wakeups, mode);
            of.map(|w| (w.slot.block, value(w))).collect()
        };
        let (own, of_control) = (by_block(mode), by_block(control));
        let ratio = |(block, value): (&u32, &f64)| {
            let control = of_control.get(block).filter(|control| **control > 0.0)?;
            Some(value / control)
        };
        let ratios: Vec<f64> = own.iter().filter_map(ratio).collect();
        median_estimate(&ratios)
    });
    Measured {
        median: median_estimate(&values),
        values,
        ratio_to_control,
    }
}

/// Name, and path in prepage's record of a switch.
const OF_SWITCH: [(&str, &str); 8] = [
    ("planned anonymous pages", "/anon/planned"),
    ("fetched anonymous pages", "/anon/fetched"),
    ("missed anonymous pages", "/anon/missed"),
    ("overtaken anonymous pages", "/anon/overtaken"),
    ("planned file pages", "/file/planned"),
    ("fetched file pages", "/file/fetched"),
    ("fetch, us", "/timing/fetch_us"),
    ("fetch CPU, us", "/timing/fetch_cpu_us"),
];

fn switch_medians(wakeups: &[&Wakeup]) -> BTreeMap<&'static str, OfSwitches> {
    let of = |(name, path): (&'static str, &str)| {
        let first = wakeups.iter().filter_map(|w| w.prepage.first());
        let values: Vec<f64> = first
            .filter_map(|switch| switch.pointer(path)?.as_f64())
            .collect();
        let (median, n) = (median(&values)?, values.len());
        (n > 1).then_some((name, OfSwitches { median, n }))
    };
    OF_SWITCH.into_iter().filter_map(of).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::record::tests::{run, wakeup};
    use super::*;

    /// Six blocks of three modes, every other one twice as slow in all of them.
    pub fn lines() -> Vec<Line> {
        let modes = [
            (IdleMode::Resident, 0.2, 0.3),
            (IdleMode::Off, 10.0, 4.0),
            (IdleMode::FullBegin, 8.0, 1.0),
        ];
        let mut lines = vec![
            Line::Idle(Box::new(run(&modes.map(|(mode, ..)| mode)))),
            Line::Service(Box::new(ServiceFacts {
                service: "redis".into(),
                command: vec!["redis-server".into()],
                packages: BTreeMap::new(),
                keys: 1_000,
                rate_hz: 500,
                anon_bytes: 1 << 30,
            })),
        ];
        for block in 0..6 {
            let slow = 1.0 + f64::from(block % 2);
            for (mode, first_ms, slow_ms) in modes {
                let one = wakeup(block, mode, first_ms * slow, slow_ms * slow);
                lines.push(Line::Wakeup(Box::new(one)));
            }
        }
        lines
    }

    fn row(study: &IdleStudy, mode: IdleMode) -> &ModeRow {
        let mut rows = study.services[0].modes.iter();
        rows.find(|row| row.mode == mode).unwrap()
    }

    #[test]
    fn pairs_are_free_of_what_slows_a_whole_block_and_are_held_against_the_goal() {
        let study = study_lines(lines());
        let begin = row(&study, IdleMode::FullBegin);
        let (first, p99) = (
            begin.first_ms.ratio_to_control.unwrap(),
            begin.p99_ms.ratio_to_control.unwrap(),
        );
        assert_eq!((first.value, Goal::of(first)), (0.8, Goal::Missed));
        assert_eq!((p99.value, Goal::of(p99)), (0.25, Goal::Reached));
        let resident = row(&study, IdleMode::Resident);
        assert_eq!(resident.first_ms.ratio_to_control.unwrap().value, 0.02);
        let off = row(&study, IdleMode::Off);
        assert!(off.first_ms.ratio_to_control.is_none());
        assert_eq!(off.first_ms.median.unwrap().value, 15.0);
        assert_eq!(off.p50_ms.median.unwrap().value, 0.1);
        assert_eq!(off.majflt.median.unwrap().value, 1_000.0);
    }

    #[test]
    fn few_samples_make_no_claim_and_discarded_ones_are_counted() {
        let mut lines = lines();
        lines.retain(|line| !matches!(line, Line::Wakeup(wakeup) if wakeup.slot.block > 2));
        for _ in 0..2 {
            let one = wakeup(0, IdleMode::Off, 1.0, 1.0);
            lines.push(Line::DiscardedWakeup(Box::new(Discarded {
                slot: one.slot,
                reason: "file pages cached".into(),
                state: one.state,
            })));
        }
        let study = study_lines(lines);
        let begin = row(&study, IdleMode::FullBegin);
        assert_eq!(begin.samples, 3);
        assert!(begin.first_ms.median.is_none() && begin.first_ms.ratio_to_control.is_none());
        assert_eq!(study.discarded["redis file pages cached"], 2);
    }

    #[test]
    fn what_prepage_left_alone_is_told_from_what_it_helped() {
        let mut lines = lines();
        let fetched = serde_json::json!({"anon": {"fetched": 700}});
        let mut give = |blocks: u32| {
            for line in &mut lines {
                if let Line::Wakeup(wakeup) = line
                    && wakeup.slot.mode == IdleMode::FullBegin
                    && wakeup.slot.block < blocks
                {
                    wakeup.prepage = vec![fetched.clone()];
                }
            }
            let study = study_lines(lines.clone());
            let row = row(&study, IdleMode::FullBegin);
            (row.acted, row.is_left_alone(), row.switch.clone())
        };
        let (acted, is_left_alone, switch) = give(1);
        assert_eq!((acted, is_left_alone), (1, true));
        assert!(switch.is_empty(), "one says nothing");
        let (acted, is_left_alone, switch) = give(4);
        assert_eq!((acted, is_left_alone), (4, false));
        let (median, n) = (700.0, 4);
        assert_eq!(switch["fetched anonymous pages"], OfSwitches { median, n });
    }

    #[test]
    fn a_goal_between_the_ends_of_an_interval_is_open() {
        let ratio = |low, high| Estimate {
            value: 0.5,
            low,
            high,
            n: 8,
        };
        assert_eq!(Goal::of(ratio(0.4, 0.6)), Goal::Open);
        assert_eq!(Goal::of(ratio(0.4, 0.5)), Goal::Reached);
        assert_eq!(Goal::of(ratio(0.51, 0.6)), Goal::Missed);
    }
}
