//! The record of launches: one JSON value a line, described in FORMAT.md. Read and written by [`crate::record`].

use super::activity::Activity;
use super::scenario::Scenario;
use crate::record::{Circumstances, Machine, Resumable};
use crate::settle::FrameRecord;
use crate::throttle::Throttle;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The circumstances; the first line, and again where a run was resumed.
    Launches(Box<Run>),
    /// A launch that prepage learned from, before the samples; its service where the scenario is `detected`.
    LearningLaunch(Box<Launch>),
    /// When a warm launch needs its pages.
    FirstAccesses(Box<FirstAccesses>),
    /// A measured launch.
    Launch(Box<Launch>),
    /// A launch of its own, over time: it is not among the measured ones.
    LaunchActivity(Box<Launch>),
    /// Several programs launched at once.
    Simultaneous(Box<Simultaneous>),
    /// A launch that is not to be used.
    DiscardedLaunch(Box<Discarded>),
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
    /// The programs, as they were launched.
    pub programs: Vec<ProgramFacts>,
    /// The machine.
    pub machine: Machine,
    /// Versions of this program and of prepage.
    pub versions: BTreeMap<String, String>,
}

/// What the run was asked for; with the seed it determines every order and all content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The scenarios that alternate.
    pub scenarios: Vec<Scenario>,
    /// Blocks, each of which holds every scenario once.
    pub runs: u32,
    /// The seed.
    pub seed: u64,
    /// What the cache holds when prepage learns.
    pub learn: Learn,
    /// Launches from which prepage may learn a program, at most.
    #[serde(default = "learning_max")]
    pub learning_max: u32,
    /// What is launched instead of programs of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// The limits of the disk, where it was made slower.
    pub throttle: Option<Throttle>,
    /// How many programs are launched at once, one after the other.
    pub simultaneous: Vec<usize>,
    /// Launches of each program and scenario of FAST's Figure 7 that are read over time. Earlier records have none.
    #[serde(default)]
    pub timelines: u32,
    /// A sample is discarded if strangers use more than so many hundredths of the machine's CPU time.
    pub strangers_percent_max: f64,
    /// A picture that stays for so long is final.
    pub quiet_ms: u64,
    /// No launch is watched for longer.
    pub cap_ms: u64,
}

/// Somebody's own command, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Program and arguments.
    pub command: Vec<String>,
    /// What the title of its window contains once its content is there; none where it does its work and exits.
    pub window_title: Option<String>,
    /// Whom it runs as; root where there is nobody named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What is enough for all that prepage learns: N_rawseq of the paper is 2, those of a short program are its trial, up to 8 held
/// out and as many helped, and up to 16 cold ones after that refine the sequence.
pub fn learning_max() -> u32 {
    36
}

/// What the page cache holds when prepage learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Learn {
    /// Nothing.
    Cold,
    /// Everything.
    Warm,
}

/// One program as it was launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// Its name.
    pub name: String,
    /// When its launch is over.
    pub ends: Ends,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its packages with their versions.
    pub packages: BTreeMap<String, String>,
}

/// When a launch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// When the program has done its work and exits.
    Exit,
    /// With the first picture that stays.
    Picture,
}

/// Which launch of the run this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// The program's name.
    pub program: String,
    /// The block; each holds every scenario once. Learning launches count from 0.
    pub block: u32,
    /// The place in the block.
    pub order: u32,
    /// The scenario.
    pub scenario: Scenario,
    /// Counts from 0; one more for each discarded launch of this slot.
    pub attempt: u32,
}

/// One launch and everything read around it. Times count from the moment at which the command may begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Which one it is.
    #[serde(flatten)]
    pub slot: Slot,
    /// `CLOCK_MONOTONIC` when the command was let go.
    pub t0_monotonic_ns: u64,
    /// When the launch was over: exit, or the first frame of the picture that stays.
    pub t_end_ns: u64,
    /// When the program's window was first drawn.
    pub t_first_frame_ns: Option<u64>,
    /// Whether the cap ended the watching: the launch took at least so long.
    pub capped: bool,
    /// When `vmtouch` was done.
    pub t_vmtouch_ns: Option<u64>,
    /// Pages of the sequence that prepage knew after a launch that it learned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_pages: Option<u64>,
    /// What `preload` read before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preload: Option<Preloaded>,
    /// The program whose sequence prepage fetched, if another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_program: Option<String>,
    /// When processors and disk were busy, where that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Every picture of a windowed program.
    pub frames: Vec<FrameRecord>,
    /// What was cached before; nothing is known of it while prepage learns.
    pub state: Option<CacheState>,
    /// CPU time of the program and of what launched and helped it, in their group.
    pub cpu_us: u64,
    /// Differences of machine-wide counters, and the load before.
    pub system: BTreeMap<String, f64>,
    /// prepage's own report, or its service's record, verbatim; null where it took no part.
    pub report: Option<serde_json::Value>,
    /// Whether prepage was asked to launch it, or its service to help it, and left the program alone: there is no report
    /// then. Earlier records do not have it.
    #[serde(default)]
    pub left_alone: bool,
    /// Size of what prepage keeps of this program afterwards.
    pub store_bytes: u64,
}

/// What the daemon `preload` read before a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preloaded {
    /// Files.
    pub files: u64,
    /// What it counts of them, in KiB.
    pub kib: u64,
    /// From its beginning until it was done.
    pub t_end_ns: u64,
}

/// When so many pages of a launch sequence had been accessed: pages, and microseconds since the launch began.
pub type Demand = (u64, u64);

/// When a warm launch, recorded, first accessed which part of its launch sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstAccesses {
    /// The program's name.
    pub program: String,
    /// How long the launch took, in microseconds.
    pub t_end_us: u64,
    /// Pages of the launch sequence.
    pub sequence_pages: u64,
    /// Events that the recorder lost.
    pub events_lost: u64,
    /// Pages whose use is certain: read, or faulted on. Only those demands that can bind a prefetch: the upper hull.
    pub certain: Vec<Demand>,
    /// The same with the pages that such a fault mapped along. They are used then or later, and not all of them.
    pub mapped: Vec<Demand>,
}

/// What the page cache holds of a program's launch sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheState {
    /// Files of the sequence.
    pub files: u64,
    /// Pages of the sequence.
    pub pages: u64,
    /// Cached pages of it, in files that no process maps.
    pub cached_pages: u64,
    /// Cached pages of it in files that running processes map: dropping the cache leaves these.
    pub shared_pages: u64,
    /// How often the cache was dropped before it was so.
    pub rounds: u64,
}

/// Several programs launched at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simultaneous {
    /// How many.
    pub count: usize,
    /// Repetition, scenario and order, as of a single launch.
    pub block: u32,
    /// The place in the block.
    pub order: u32,
    /// The scenario.
    pub scenario: Scenario,
    /// `CLOCK_MONOTONIC` when the commands were let go.
    pub t0_monotonic_ns: u64,
    /// When each was over, by program.
    pub t_end_ns: BTreeMap<String, u64>,
    /// Whether the cap ended the watching.
    pub capped: bool,
    /// What was cached before, of all sequences together.
    pub state: CacheState,
    /// Programs for which prepage fetched something.
    pub helped: usize,
    /// Differences of machine-wide counters.
    pub system: BTreeMap<String, f64>,
}

/// A launch that is not to be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discarded {
    /// Which one it was.
    #[serde(flatten)]
    pub slot: Slot,
    /// Why.
    pub reason: String,
    /// The state, where that was the reason.
    pub state: Option<CacheState>,
}

impl Launch {
    /// A number of prepage's report, by its path such as `prefetch.pages`.
    pub fn reported(&self, path: &str) -> Option<f64> {
        path.split('.')
            .try_fold(self.report.as_ref()?, |value, name| value.get(name))?
            .as_f64()
    }

    /// Whether prepage fetched something for this launch.
    pub fn is_helped(&self) -> bool {
        has_fetched(self.report.as_ref())
    }
}

/// Whether a report says that something was fetched.
pub fn has_fetched(report: Option<&serde_json::Value>) -> bool {
    let of = |name| report?.get("prefetch")?.get(name)?.as_u64();
    of("pages").unwrap_or(0) + of("paths").unwrap_or(0) > 0
}

/// What identifies a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A launch: program, block and scenario.
    One(String, u32, Scenario),
    /// The same of a launch over time.
    OverTime(String, u32, Scenario),
    /// Launches at once: how many, block and scenario.
    AtOnce(usize, u32, Scenario),
}

impl Slot {
    /// Its key.
    pub fn key(&self) -> Key {
        Key::One(self.program.clone(), self.block, self.scenario)
    }

    /// Its key as a launch over time.
    pub fn key_over_time(&self) -> Key {
        Key::OverTime(self.program.clone(), self.block, self.scenario)
    }
}

impl Resumable for Line {
    type Parameters = Parameters;
    type Key = Key;
    /// Program, or how many at once, and block; whose launches are not compared by blocks are in none.
    type Block = (Discriminant<Key>, String, u32);

    fn format(&self) -> Option<u32> {
        let Self::Launches(run) = self else {
            return None;
        };
        Some(run.format)
    }

    fn admits(&self, parameters: &Parameters) -> bool {
        let Self::Launches(run) = self else {
            return false;
        };
        let asked = Parameters {
            runs: parameters.runs,
            timelines: parameters.timelines,
            ..run.parameters.clone()
        };
        asked == *parameters
    }

    fn circumstances(&self) -> Option<Circumstances> {
        let Self::Launches(run) = self else {
            return None;
        };
        Some(Circumstances::recorded(&run.machine, &run.versions))
    }

    fn block(&self) -> Option<Self::Block> {
        let key = self.key()?;
        let kind = discriminant(&key);
        match key {
            Key::One(program, block, _) => Some((kind, program, block)),
            Key::AtOnce(count, block, _) => Some((kind, count.to_string(), block)),
            Key::OverTime(..) => None,
        }
    }

    fn key(&self) -> Option<Key> {
        match self {
            Self::Launch(launch) => Some(launch.slot.key()),
            Self::LaunchActivity(launch) => Some(launch.slot.key_over_time()),
            Self::Simultaneous(several) => {
                Some(Key::AtOnce(several.count, several.block, several.scenario))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run's first line, for tests.
    pub fn run(scenarios: &[Scenario]) -> Run {
        Run {
            format: crate::record::FORMAT,
            time_unix_s: 1,
            parameters: Parameters {
                scenarios: scenarios.to_vec(),
                runs: 10,
                seed: 7,
                learn: Learn::Cold,
                given: None,
                learning_max: learning_max(),
                throttle: None,
                simultaneous: Vec::new(),
                timelines: 0,
                strangers_percent_max: 10.0,
                quiet_ms: 1_000,
                cap_ms: 30_000,
            },
            programs: Vec::new(),
            machine: Machine::default(),
            versions: BTreeMap::new(),
        }
    }

    /// A launch that took so long, for tests; reported where prepage takes part.
    pub fn launch(program: &str, block: u32, scenario: Scenario, ms: f64) -> Launch {
        let report = serde_json::json!({
            "prefetch": {"pages": 100, "paths": 10, "completed_us": ms * 1e3, "cpu_us": 500},
            "recording": {"cpu_us": 700, "pages": 120},
        });
        Launch {
            slot: Slot {
                program: program.into(),
                block,
                order: 0,
                scenario,
                attempt: 0,
            },
            t0_monotonic_ns: 1,
            t_end_ns: (ms * 1e6) as u64,
            t_first_frame_ns: None,
            capped: false,
            t_vmtouch_ns: None,
            known_pages: None,
            preload: None,
            other_program: None,
            activity: None,
            frames: Vec::new(),
            state: Some(CacheState::default()),
            cpu_us: 1_000,
            system: BTreeMap::new(),
            report: scenario.is_reported().then_some(report),
            left_alone: false,
            store_bytes: 4_096,
        }
    }

    /// A launch that the service saw by its exec, and helped, for tests.
    pub fn detected(program: &str, block: u32, ms: f64, noticed_us: u64) -> Launch {
        let record = serde_json::json!({
            "prefetch": {"pages": 90, "paths": 10},
            "decision": {"held_out": false},
            "noticed_us": noticed_us,
        });
        Launch {
            report: Some(record),
            ..launch(program, block, Scenario::Detected, ms)
        }
    }

    #[test]
    fn lines_round_trip_and_the_kind_is_named() {
        for (launch, expected) in [
            (
                launch("git", 3, Scenario::Fast, 5.0),
                r#"{"kind":"launch","program":"git","block":3,"order":0,"scenario":"fast","#,
            ),
            (
                detected("git", 3, 5.0, 400),
                r#"{"kind":"launch","program":"git","block":3,"order":0,"scenario":"detected","#,
            ),
        ] {
            let line = Line::Launch(Box::new(launch));
            let text = serde_json::to_string(&line).unwrap();
            assert!(text.starts_with(expected), "{text}");
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        }
    }

    #[test]
    fn help_is_what_was_fetched() {
        assert!(launch("git", 0, Scenario::Fast, 5.0).is_helped());
        assert!(!launch("git", 0, Scenario::Cold, 5.0).is_helped());
        let nothing = serde_json::json!({"prefetch": null, "decision": {"held_out": true}});
        assert!(!has_fetched(Some(&nothing)));
        let paths_only = serde_json::json!({"prefetch": {"pages": 0, "paths": 3}});
        assert!(has_fetched(Some(&paths_only)));
    }
}
