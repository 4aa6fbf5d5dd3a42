//! The record of a run: one JSON value a line. FORMAT.md describes every field.

mod application;
mod factors;
mod file;
mod key;
mod longest;
mod mode;
mod resume;
mod timeline;

use crate::apps::given::Given;
use crate::processes::ByRole;
use crate::reclaim::State;
use crate::settle::{FrameRecord, answers, redraws};
use crate::statistics::SAMPLES_MIN;
pub use application::{Application, Footprint};
pub use factors::Factors;
pub use file::{Writer, first_kind, open, read};
pub use longest::Longest;
pub use mode::Mode;
pub use resume::{Circumstances, Earlier, Resumable, Resume, check_out, retain_incomplete};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
pub use timeline::{Reading, Timeline};

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The circumstances; the first line, and again where a run was resumed.
    Run(Box<Run>),
    /// One measured switch.
    Sample(Box<Switch>),
    /// One switch during which prepage learned, before the samples.
    Warmup(Box<Switch>),
    /// One switch that is no sample, in which the application's longest single waits were measured.
    Stalls(Box<Switch>),
    /// A switch that was not measured or must not be used, with the reason.
    Discarded(Box<Discarded>),
    /// What all observed switches to an application showed together, after its samples.
    Application(Box<Application>),
}

/// What was measured where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// Seconds since 1970.
    pub time_unix_s: u64,
    /// The parameters.
    pub parameters: Parameters,
    /// The machine.
    pub machine: Machine,
    /// Versions: of this program, of prepage, of the application.
    pub versions: BTreeMap<String, String>,
    /// What an application that is none of the table was found to answer visibly. Records from before that lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// What is done to an application for a visible answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The key that is pressed; empty where it answers by drawing again what it had drawn before.
    pub key: String,
    /// Whether its window's middle was clicked at before.
    pub click_first: bool,
}

/// What the run was asked for; with the seed it determines every order and choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The applications' names. Records of one application may have its name alone, as `app`.
    #[serde(alias = "app", deserialize_with = "one_or_more")]
    pub apps: Vec<String>,
    /// The one application, where it is none of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// How the applications lose their memory.
    pub setting: Setting,
    /// The modes that alternate.
    pub modes: Vec<Mode>,
    /// Samples of each mode and application, where everything is not together.
    pub samples: u32,
    /// Together: orders in which the applications are gone through.
    #[serde(default)]
    pub sequences: u32,
    /// Together: rounds of each mode through each sequence.
    #[serde(default)]
    pub rounds: u32,
    /// Further blocks, whose switches are no samples: in these, the application's longest single waits are measured. Records
    /// from before they were lack it.
    #[serde(default)]
    pub stall_blocks: u32,
    /// The seed.
    pub seed: u64,
    /// Switches of each application before the samples.
    pub warmup: u32,
    /// Whether a switch (together: a round) that prepage does not see is followed by one that it helps and that is no sample:
    /// what it knows then holds the switch before, in every mode, as it does where it always runs. ASAP's modes follow each
    /// other as runs of their own. Records from before that lack it.
    #[serde(default)]
    pub keeps_learning: bool,
    /// Together: whether each round follows one in its own mode and order, which is gone through unrecorded where need be, so
    /// that it finds memory as this mode leaves it. Records from before that lack it.
    #[serde(default)]
    pub settles: bool,
    /// The limit that all share, under pressure and together.
    pub limit_bytes: Option<u64>,
    /// Working set of the process that competes there, beside a second instance of the application.
    pub hog_mib: Option<u64>,
    /// A sample is discarded if strangers use more than so many hundredths of the machine's CPU time.
    pub strangers_percent_max: f64,
    /// Without drawing for so long, a picture is final.
    pub quiet_ms: u64,
    /// No switch is watched for longer.
    pub cap_ms: u64,
    /// The text of prepage's configuration; nothing where it has its defaults.
    pub prepage_config: Option<String>,
    /// What is varied of the machine. Records from before it could be lack it.
    #[serde(default)]
    pub factors: Factors,
}

fn one_or_more<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Names {
        One(String),
        More(Vec<String>),
    }
    Ok(match Names::deserialize(input)? {
        Names::One(name) => vec![name],
        Names::More(names) => names,
    })
}

impl Parameters {
    /// The mode of the switches that prepage learns from and that are no samples.
    pub fn learning_mode(&self) -> Mode {
        let is_told = |mode: &Mode| mode.is_helped() && mode.is_told_of_focus();
        match self.modes.contains(&Mode::FullOnset) && !self.modes.iter().any(is_told) {
            true => Mode::FullOnset,
            false => Mode::Full,
        }
    }

    /// What a run has if nothing else is said.
    pub fn of(setting: Setting) -> Self {
        use Mode::{Anon, File, Full, Off, Resident};
        const MIB: u64 = 1 << 20;
        let together = setting == Setting::Together;
        let modes: &[Mode] = if together {
            &[Off, Full]
        } else {
            &[Resident, Off, Anon, File, Full]
        };
        Self {
            apps: vec!["chromium".into()],
            given: None,
            setting,
            modes: modes.to_vec(),
            samples: if together { 0 } else { 15 },
            sequences: if together { 3 } else { 0 },
            rounds: if together { 10 } else { 0 },
            // The fewest with an interval.
            stall_blocks: SAMPLES_MIN as u32,
            seed: 1,
            warmup: if together { 6 } else { 10 },
            keeps_learning: true,
            settles: together,
            limit_bytes: match setting {
                Setting::Reclaimed => None,
                Setting::Pressure => Some(700 * MIB),
                // About half of what the eight applications hold.
                Setting::Together => Some(1000 * MIB),
            },
            hog_mib: (setting == Setting::Pressure).then_some(650),
            strangers_percent_max: 10.0,
            quiet_ms: 700,
            cap_ms: 6_000,
            prepage_config: None,
            factors: Factors::default(),
        }
    }
}

/// How the application loses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Everything is swapped out and dropped.
    Reclaimed,
    /// Other applications push it out under a shared limit.
    Pressure,
    /// All applications at once share a limit: each pushes the others out by being used. Each round that is measured follows
    /// one in the same mode and order.
    Together,
}

/// The machine's circumstances, as the kernel names them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release and build.
    pub kernel: String,
    /// The processor's name.
    pub cpu_model: String,
    /// Processors online.
    pub cores: u64,
    /// Main memory.
    pub memory_bytes: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// v1 or v2.
    pub memory_cgroup: String,
    /// The swap devices.
    pub swap: Vec<SwapDevice>,
    /// The disk under the applications.
    pub disk: BTreeMap<String, String>,
    /// The most that it reads sequentially, measured when the run began; nothing where it could not be, or was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_s: Option<u64>,
    /// Settings of virtual memory: page-cluster, swappiness, THP, mTHP, zswap.
    pub settings: BTreeMap<String, String>,
}

/// One swap device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwapDevice {
    /// Its path.
    pub path: String,
    /// What it lies on: zram, disk or file.
    pub on: String,
    /// Its size.
    pub bytes: u64,
    /// In use when the run began.
    pub used_bytes: u64,
    /// Its priority.
    pub priority: i64,
    /// The compressor, on zram.
    pub compressor: Option<String>,
}

/// Which switch of the run this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// The application's name. Records from before there were several lack it, and are read with that of the run.
    #[serde(default)]
    pub app: String,
    /// The block of an application; each holds every mode once. Warm-up has none and counts from 0.
    pub block: u32,
    /// The place of the mode in the block.
    pub order: u32,
    /// The mode.
    pub mode: Mode,
    /// Together, the place of the application in its round, from 0. Records from before they said it lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Counts from 0; one more for each discarded switch of this slot.
    pub attempt: u32,
}

/// One switch and everything read around it. Times count from the activation unless a name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Which one it is.
    #[serde(flatten)]
    pub slot: Slot,
    /// `CLOCK_MONOTONIC` when the activation was asked for: prepage's own records have the same clock.
    pub t0_monotonic_ns: u64,
    /// When the window manager said that the window is active.
    pub t_active_ns: u64,
    /// When the key was pressed; 0 where there is none.
    pub t_key_ns: u64,
    /// The first frame that the application drew.
    pub t_first_frame_ns: u64,
    /// From then on the picture stayed as it finally was.
    pub t_settled_ns: u64,
    /// When watching ended.
    pub t_end_ns: u64,
    /// Whether it ended by the cap and not by quiet.
    pub capped: bool,
    /// How many tiles the picture has.
    pub tiles: usize,
    /// Tiles that differ between the application's picture before it was left and its final one.
    pub answer_tiles: usize,
    /// Use of processors and disk over time, where the run recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The application's longest single waits, where the run measured them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Longest>,
    /// Every frame.
    pub frames: Vec<FrameRecord>,
    /// What the user did in the application before.
    pub context: Vec<String>,
    /// The state that was verified before.
    pub state: State,
    /// Faults and CPU time of the application's processes, by role.
    pub processes: ByRole,
    /// The same of the display server and window manager.
    pub session: ByRole,
    /// CPU time of the application's group, and of the service's.
    pub app_cpu_us: u64,
    /// The same for prepage's service, with its agent.
    pub service_cpu_us: u64,
    /// Time in which some task of the application waited, by resource (PSI).
    pub stalled_us: BTreeMap<String, u64>,
    /// Differences of machine-wide counters: pswpin, pgmajfault, steal and idle time; the load before; and [`LIMIT_LEFT`].
    pub system: BTreeMap<String, f64>,
    /// The application's group after the switch.
    pub group_after: crate::group::GroupResidency,
    /// prepage's own records of what it took for a switch since the last one, verbatim; the last is this one.
    pub prepage: Vec<serde_json::Value>,
}

impl Switch {
    /// Whether its last picture shows an answer to the key, or where none was pressed, what was drawn before.
    pub fn is_answered(&self) -> bool {
        let is_answer = match self.t_key_ns {
            0 => redraws,
            _ => answers,
        };
        let last = self.frames.last();
        last.is_some_and(|last| is_answer(self.tiles, last.uniform, self.answer_tiles))
    }
}

/// In [`Switch::system`], where memory was limited: the bytes that the limit left before.
pub const LIMIT_LEFT: &str = "limit_left_bytes";

/// A switch that is not to be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discarded {
    /// Which one it was.
    #[serde(flatten)]
    pub slot: Slot,
    /// Why.
    pub reason: String,
    /// The state, where that was the reason.
    pub state: Option<State>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run's first line, for tests.
    pub fn run(modes: &[Mode]) -> Run {
        Run {
            format: FORMAT,
            time_unix_s: 1,
            parameters: Parameters {
                modes: modes.to_vec(),
                samples: 2,
                stall_blocks: 0,
                seed: 7,
                warmup: 0,
                ..Parameters::of(Setting::Reclaimed)
            },
            machine: Machine {
                cores: 2,
                page_bytes: 4096,
                ..Machine::default()
            },
            versions: BTreeMap::new(),
            answer: None,
        }
    }

    /// A switch that took so long, for tests.
    pub fn switch(block: u32, mode: Mode, settled_ms: f64) -> Switch {
        let t_settled_ns = (settled_ms * 1e6) as u64;
        Switch {
            slot: Slot {
                app: "chromium".into(),
                block,
                order: 0,
                mode,
                position: None,
                attempt: 0,
            },
            t0_monotonic_ns: 1,
            t_active_ns: 1,
            t_key_ns: 2,
            t_first_frame_ns: t_settled_ns / 2,
            t_settled_ns,
            t_end_ns: t_settled_ns + 700_000_000,
            capped: false,
            tiles: 1000,
            answer_tiles: 500,
            timeline: None,
            longest: None,
            frames: vec![FrameRecord {
                t_ns: t_settled_ns,
                changed: 900,
                from_final: 0,
                uniform: 10,
                cpu_us: 100_000,
                majflt: 0,
            }],
            context: vec!["scroll".into()],
            state: State::default(),
            processes: ByRole::new(),
            session: ByRole::new(),
            app_cpu_us: 100_000,
            service_cpu_us: 0,
            stalled_us: BTreeMap::new(),
            system: BTreeMap::new(),
            group_after: Default::default(),
            prepage: Vec::new(),
        }
    }

    #[test]
    fn lines_round_trip_and_the_kind_is_named() {
        let line = Line::Sample(Box::new(switch(3, Mode::Off, 418.0)));
        let text = serde_json::to_string(&line).unwrap();
        assert!(
            text.starts_with(r#"{"kind":"sample","app":"chromium","block":3,"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }

    #[test]
    fn the_longest_waits_round_trip() {
        let mut stalled = switch(3, Mode::Off, 418.0);
        stalled.longest = Some(Longest {
            fault_ns: 7_300_000,
            faults: 27_000,
            call_ns: Some(900_000),
            call: Some("munmap".into()),
            calls: 40,
            lost: 0,
        });
        let line = Line::Stalls(Box::new(stalled));
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.starts_with(r#"{"kind":"stalls","#), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }

    #[test]
    fn a_record_from_before_prepages_configuration_was_recorded_is_read() {
        let first = Line::Run(Box::new(run(&[Mode::Off])));
        let mut old = serde_json::to_value(&first).unwrap();
        let parameters = old["parameters"].as_object_mut().unwrap();
        assert_eq!(
            parameters.remove("prepage_config"),
            Some(serde_json::Value::Null)
        );
        assert_eq!(serde_json::from_value::<Line>(old).unwrap(), first);
    }

    #[test]
    fn a_record_of_one_application_by_its_name_alone_is_read() {
        let first = Line::Run(Box::new(run(&[Mode::Off])));
        let mut old = serde_json::to_value(&first).unwrap();
        let parameters = old["parameters"].as_object_mut().unwrap();
        for name in ["apps", "sequences", "rounds", "stall_blocks", "factors"] {
            assert!(parameters.remove(name).is_some());
        }
        parameters.insert("app".into(), "chromium".into());
        assert_eq!(serde_json::from_value::<Line>(old).unwrap(), first);
    }
}
