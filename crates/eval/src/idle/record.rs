//! The record of services that sat idle: one JSON value a line, described in FORMAT.md. Read and written by
//! [`crate::record`].

use super::histogram::Histogram;
use super::mode::IdleMode;
use crate::processes::Counters;
use crate::reclaim::State;
use crate::record::{Circumstances, Machine, Resumable};
use crate::swap::SwapKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The circumstances; the first line, and again where a run was resumed.
    Idle(Box<Run>),
    /// A service that was loaded: what it holds.
    Service(Box<ServiceFacts>),
    /// A wakeup that prepage learned from, before the samples.
    LearningWakeup(Box<Wakeup>),
    /// A measured wakeup.
    Wakeup(Box<Wakeup>),
    /// A wakeup that is not to be used.
    DiscardedWakeup(Box<Discarded>),
}

/// What was measured where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`crate::record::FORMAT`].
    pub format: u32,
    /// Seconds since 1970.
    pub time_unix_s: u64,
    /// The parameters.
    pub parameters: Parameters,
    /// The machine.
    pub machine: Machine,
    /// Versions of this program and of prepage.
    pub versions: BTreeMap<String, String>,
}

/// What the run was asked for; with the seed it determines every order, all content and all requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The modes that alternate.
    pub modes: Vec<IdleMode>,
    /// Blocks, each of which holds every mode once.
    pub samples: u32,
    /// The seed.
    pub seed: u64,
    /// What the services are swapped out to.
    pub swap: SwapKind,
    /// Wakeups before the samples, in mode `full_begin`: prepage learns.
    pub warmup: u32,
    /// How long a wakeup is measured.
    pub window_ms: u64,
    /// How long a service is used between two wakeups.
    pub use_ms: u64,
    /// Data of a service, where it is not the service's own default.
    pub size_mib: Option<u64>,
    /// Requests a second, where it is not the service's own default.
    pub rate_hz: Option<u32>,
    /// Exponent of the distribution by which keys are chosen.
    pub zipf_exponent: f64,
    /// A sample is discarded if strangers use more than so many hundredths of the machine's CPU time.
    pub strangers_percent_max: f64,
    /// The text of prepage's configuration; nothing where it has its defaults.
    pub prepage_config: Option<String>,
}

/// One service as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceFacts {
    /// Its name.
    pub service: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its packages with their versions.
    pub packages: BTreeMap<String, String>,
    /// Keys that it holds.
    pub keys: u32,
    /// Requests a second; each is for [`super::protocol::KEYS_PER_REQUEST`] keys.
    pub rate_hz: u32,
    /// Anonymous memory once it was loaded.
    pub anon_bytes: u64,
}

/// Which wakeup of the run this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// The service's name.
    pub service: String,
    /// The block; each holds every mode once. Learning wakeups count from 0.
    pub block: u32,
    /// The place in the block.
    pub order: u32,
    /// The mode.
    pub mode: IdleMode,
    /// Counts from 0; one more for each discarded wakeup of this slot.
    pub attempt: u32,
}

/// One wakeup and everything read around it. Times count from t0, when the service was about to be needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wakeup {
    /// Which one it is.
    #[serde(flatten)]
    pub slot: Slot,
    /// `CLOCK_MONOTONIC` at t0: before the thaw or the call that announces the switch, if there is one. The first
    /// request is due then, so that a client pays for both.
    pub t0_monotonic_ns: u64,
    /// When the thaw or the call was done.
    pub t_announced_ns: u64,
    /// How long `prepage restore` took before t0, of a mode that calls it.
    #[serde(default)]
    pub restore_us: Option<u64>,
    /// The first request's latency: from when it was due, at t0, until its response was there.
    pub first_us: u32,
    /// The latencies of all requests, by the second since t0 in which they were due.
    pub latencies_by_second: Vec<Histogram>,
    /// The state that was verified before.
    pub state: State,
    /// Major faults of the service in each second since t0.
    pub majflt_by_second: Vec<u64>,
    /// Faults and CPU time of the service.
    pub counters: Counters,
    /// CPU time of prepage's service.
    pub prepage_cpu_us: u64,
    /// Differences of machine-wide counters, and the load before.
    pub system: BTreeMap<String, f64>,
    /// prepage's own records of the switches that it took for one, verbatim.
    pub prepage: Vec<serde_json::Value>,
}

/// A wakeup that is not to be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discarded {
    /// Which one it was.
    #[serde(flatten)]
    pub slot: Slot,
    /// Why.
    pub reason: String,
    /// The state.
    pub state: State,
}

/// What identifies a sample: service, block and mode.
pub type Key = (String, u32, IdleMode);

impl Slot {
    /// Its key.
    pub fn key(&self) -> Key {
        (self.service.clone(), self.block, self.mode)
    }
}

impl Resumable for Line {
    type Parameters = Parameters;
    type Key = Key;
    /// Service and block.
    type Block = (String, u32);

    fn format(&self) -> Option<u32> {
        let Self::Idle(run) = self else { return None };
        Some(run.format)
    }

    fn admits(&self, parameters: &Parameters) -> bool {
        let Self::Idle(run) = self else { return false };
        let samples = parameters.samples;
        let earlier = run.parameters.clone();
        Parameters { samples, ..earlier } == *parameters
    }

    fn circumstances(&self) -> Option<Circumstances> {
        let Self::Idle(run) = self else { return None };
        Some(Circumstances::recorded(&run.machine, &run.versions))
    }

    fn key(&self) -> Option<Key> {
        match self {
            Self::Wakeup(wakeup) => Some(wakeup.slot.key()),
            _ => None,
        }
    }

    fn block(&self) -> Option<Self::Block> {
        self.key().map(|(service, block, _)| (service, block))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run's first line, for tests.
    pub fn run(modes: &[IdleMode]) -> Run {
        Run {
            format: crate::record::FORMAT,
            time_unix_s: 1,
            parameters: Parameters {
                seed: 7,
                ..Parameters::of(modes.to_vec())
            },
            machine: Machine::default(),
            versions: BTreeMap::new(),
        }
    }

    /// A wakeup of 200 requests in two seconds, for tests: the first, the slowest four, and the others.
    pub fn wakeup(block: u32, mode: IdleMode, first_ms: f64, slow_ms: f64) -> Wakeup {
        let us = |ms: f64| (ms * 1e3) as u32;
        let mut latencies_us = vec![us(first_ms)];
        latencies_us.extend([us(slow_ms); 4]);
        latencies_us.resize(100, 100);
        Wakeup {
            slot: Slot {
                service: "redis".into(),
                block,
                order: 0,
                mode,
                attempt: 0,
            },
            t0_monotonic_ns: 1,
            t_announced_ns: 0,
            restore_us: None,
            first_us: us(first_ms),
            latencies_by_second: vec![Histogram::of(&latencies_us), Histogram::of(&[100; 100])],
            state: State::default(),
            majflt_by_second: vec![900, 100],
            counters: Counters {
                majflt: 1_000,
                ..Counters::default()
            },
            prepage_cpu_us: 0,
            system: BTreeMap::new(),
            prepage: Vec::new(),
        }
    }

    #[test]
    fn a_record_goes_on_with_the_same_parameters_and_only_wakeups_are_done() {
        let first = run(&[IdleMode::Off]);
        let asked = Parameters {
            samples: first.parameters.samples + 1,
            ..first.parameters.clone()
        };
        let line = Line::Idle(Box::new(first));
        assert!(line.admits(&asked) && line.key().is_none());
        assert!(!line.admits(&Parameters { warmup: 0, ..asked }));
        let one = wakeup(3, IdleMode::Off, 5.0, 2.0);
        let key = one.slot.key();
        assert_eq!(Line::Wakeup(Box::new(one.clone())).key(), Some(key));
        assert_eq!(Line::LearningWakeup(Box::new(one)).key(), None);
    }

    #[test]
    fn lines_round_trip_and_the_kind_is_named() {
        let line = Line::Wakeup(Box::new(wakeup(3, IdleMode::FullBegin, 5.0, 2.0)));
        let text = serde_json::to_string(&line).unwrap();
        assert!(
            text.starts_with(r#"{"kind":"wakeup","service":"redis","block":3,"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }
}
