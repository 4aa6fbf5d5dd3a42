//! `simulate`: recorded or synthetic switches through the estimators, with no machine needed: what parameters do to
//! precision, recall, waste and memory, beside simple predictors and one that knows the next switch.
//!
//! Applications are independent of each other in the state machine, so that each is replayed by itself, on all cores;
//! sums do not depend on the order. The same switches and parameters give the same result.

pub mod parameters;
pub mod progress;
pub mod recording;
pub mod row;
pub mod text;

use crate::error::{Context, Error, Result};
use crate::output::print_line;
use parameters::Point;
use prepage_core::params::{AnonRule, FileCandidates, Mode, Params};
use prepage_core::replay::baseline::{Baseline, replay_baselines};
use prepage_core::replay::synthetic::{Recurrence, Synthetic, recurrence};
use prepage_core::replay::{RecordedSwitch, replay};
use progress::Progress;
use row::Row;
use serde::Serialize;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What to simulate, as it is typed.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArguments {
    /// Recordings (prepaged --record). An application may be in several: they follow each other.
    #[arg(conflicts_with_all = ["synthetic", "switches", "seed", "workload"])]
    files: Vec<PathBuf>,
    /// Without recordings: so many applications are made up.
    #[arg(long, value_name = "APPS", default_value_t = 10)]
    synthetic: u32,
    /// Switches of each.
    #[arg(long, value_name = "N", default_value_t = 100)]
    switches: u32,
    /// The seed of all that is made up.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How their pages recur.
    #[arg(long, value_enum, default_value = "figures")]
    workload: Workload,
    /// Set a parameter, by the name that it has in the configuration: budget.confidence=0.7. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One row for each of these values. Repeatable: a row for each combination.
    #[arg(long, value_name = "KEY=V1,V2,...")]
    sweep: Vec<String>,
    /// The first switch of each application that counts: before it, estimators learn.
    #[arg(long, value_name = "N", default_value_t = 11)]
    from: u64,
    /// Also show each of the first N switches by itself: how fast it learns.
    #[arg(long, value_name = "N", default_value_t = 0)]
    learning: u64,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// How the pages of synthetic applications recur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// As the paper's figures 5 and 6 say.
    Figures,
    /// More of the anonymous pages recur in every switch.
    Stable,
    /// Anonymous pages move to other addresses, and what the application shows changes often.
    Drifting,
}

impl Workload {
    fn anon(self) -> Recurrence {
        match self {
            Self::Figures => Recurrence::ANON,
            Self::Stable => Recurrence {
                context_change: 0.1,
                occasional_pages: 300,
                noise_pages: 30,
                ..Recurrence::ANON
            },
            Self::Drifting => Recurrence {
                drift: 0.03,
                context_change: 0.6,
                noise_pages: 200,
                ..Recurrence::ANON
            },
        }
    }
}

/// Where the switches come from.
#[derive(Clone, Debug)]
enum Source {
    Recorded(Vec<Vec<RecordedSwitch>>),
    Synthetic(Box<Synthetic>),
}

impl Source {
    fn apps(&self) -> usize {
        match self {
            Self::Recorded(apps) => apps.len(),
            Self::Synthetic(what) => what.apps as usize,
        }
    }

    fn switches_of(&self, app: usize) -> Cow<'_, [RecordedSwitch]> {
        match self {
            Self::Recorded(apps) => Cow::Borrowed(&apps[app]),
            Self::Synthetic(what) => Cow::Owned(what.switches_of(app as u32).collect()),
        }
    }
}

/// The predictors that every simulation shows.
const BASELINES: [(&str, Baseline); 5] = [
    ("oracle: knows the next switch", Baseline::Oracle),
    ("last footprint", Baseline::LastFootprint),
    ("union of all footprints", Baseline::Union),
    ("in half of the footprints", Baseline::Frequency(0.5)),
    ("in 80 % of the footprints", Baseline::Frequency(0.8)),
];

/// What a simulation came to.
#[derive(Clone, Debug, Serialize)]
pub struct Simulation {
    /// Applications replayed.
    pub apps: usize,
    /// The first switch of each application that counts.
    pub from: u64,
    /// Anonymous pages accessed in exactly 1, 2, ... 10 of the first ten switches: the paper's figure 6.
    pub anon_recurrence: [u64; 10],
    /// File pages likewise: figure 5.
    pub file_recurrence: [u64; 10],
    /// The predictors, the paper's rules, and what was asked for.
    pub rows: Vec<Row>,
}

/// Simulates and prints.
///
/// # Errors
/// A recording or a parameter that is malformed; nothing to count.
pub fn simulate(arguments: &SimulateArguments) -> Result<()> {
    let base = parameters::set(&Params::default(), &arguments.set)?;
    let points = parameters::sweep(&base, &arguments.sweep)?;
    let rules = rules(points, &arguments.set.join(" "));
    let source = match arguments.files.is_empty() {
        true => Source::Synthetic(Box::new(Synthetic {
            seed: arguments.seed,
            apps: arguments.synthetic,
            switches: arguments.switches,
            anon: arguments.workload.anon(),
            ..Synthetic::default()
        })),
        false => Source::Recorded(recording::read(&arguments.files)?),
    };
    let simulation = run(&source, &rules, arguments.from, arguments.learning);
    if simulation.rows.iter().all(|row| row.switches == 0) {
        let cause = format!("no application has {} switches; see --from", arguments.from);
        return Err(Error::new("simulate", "these switches", cause));
    }
    let shown = match arguments.json {
        true => serde_json::to_string_pretty(&simulation).context("encode", "simulation")?,
        false => text::show(&simulation),
    };
    print_line(shown.trim_end())
}

/// The parameters of the estimators under their names: the paper's rules, and the points asked for.
fn rules(points: Vec<Point>, set: &str) -> Vec<(String, Params)> {
    let mut paper = Params::default();
    paper.anon.rule = AnonRule::Paper;
    paper.anon.observe_interval_max = 1;
    paper.file.file_candidates = FileCandidates::Offline;
    let mut rules = vec![("the paper's, all use seen".to_owned(), paper)];
    rules.extend(points.into_iter().map(|point| {
        let name = match format!("{set} {}", point.name).trim() {
            "" => "default".into(),
            name => name.into(),
        };
        (name, point.params)
    }));
    rules
}

/// What one application adds.
struct Part {
    recurrence: ([u64; 10], [u64; 10]),
    rows: Vec<Row>,
}

fn replay_app(
    source: &Source,
    app: usize,
    rules: &[(String, Params)],
    (from, learning): (u64, u64),
    progress: &Progress,
) -> Part {
    let switches = source.switches_of(app);
    let baselines = BASELINES.map(|(_, baseline)| baseline);
    let simple = replay_baselines(switches.iter(), baselines);
    progress.one_more();
    let estimated = rules.iter().map(|(_, params)| {
        let replayed = replay(switches.iter(), params, Mode::Full);
        progress.one_more();
        replayed
    });
    let replayed = simple.into_iter().chain(estimated);
    Part {
        recurrence: recurrence(switches.iter().take(10)),
        rows: replayed.map(|r| Row::of(&r, from, learning)).collect(),
    }
}

fn run(source: &Source, rules: &[(String, Params)], from: u64, learning: u64) -> Simulation {
    let named = |name: &str| Row {
        name: name.to_owned(),
        ..Row::default()
    };
    let simple = BASELINES.iter().map(|(name, _)| *name);
    let names = simple.chain(rules.iter().map(|(name, _)| name.as_str()));
    let simulation = Mutex::new(Simulation {
        apps: source.apps(),
        from,
        anon_recurrence: [0; 10],
        file_recurrence: [0; 10],
        rows: names.map(named).collect(),
    });
    let progress = Progress::of(source.apps() * (1 + rules.len()));
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let app = next.fetch_add(1, Ordering::Relaxed);
            if app >= source.apps() {
                return;
            }
            let part = replay_app(source, app, rules, (from, learning), &progress);
            // A thread that panicked ends the scope with its panic.
            let Ok(mut sum) = simulation.lock() else {
                return;
            };
            sum.add(&part);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(source.apps()) {
            scope.spawn(work);
        }
    });
    simulation
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Simulation {
    fn add(&mut self, part: &Part) {
        for (sum, row) in self.rows.iter_mut().zip(&part.rows) {
            sum.add(row);
        }
        let (anon, file) = &part.recurrence;
        for bar in 0..10 {
            self.anon_recurrence[bar] += anon[bar];
            self.file_recurrence[bar] += file[bar];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::outcome::Share;

    fn synthetic(apps: u32, seed: u64) -> Source {
        Source::Synthetic(Box::new(Synthetic {
            seed,
            apps,
            switches: 14,
            ..Synthetic::default()
        }))
    }

    fn point(params: Params) -> Vec<Point> {
        let name = String::new();
        vec![Point { name, params }]
    }

    #[test]
    fn one_machine_for_all_applications_comes_to_the_same() {
        let Source::Synthetic(what) = synthetic(3, 5) else {
            unreachable!("made so")
        };
        let whole = replay(what.switches(), &Params::default(), Mode::Full);
        let rules = rules(point(Params::default()), "");
        let simulation = run(&Source::Synthetic(what), &rules, 11, 3);
        let row = simulation.rows.last().expect("the default");
        assert_eq!((row.anon, row.file), whole.since(11));
        assert_eq!((row.name.as_str(), row.switches), ("default", 12));
        assert_eq!(row.bytes_max, whole.bytes_max);
        assert_eq!(row.learning.len(), 3);
        let second = whole.switches.iter().filter(|s| s.number == 2);
        let wasted: u64 = second.map(|s| s.anon.wasted()).sum();
        assert_eq!(row.learning[1].0.wasted(), wasted);
    }

    #[test]
    fn a_recording_is_replayed_as_what_it_was_made_from() {
        let Source::Synthetic(what) = synthetic(2, 9) else {
            unreachable!("made so")
        };
        let apps = (0..2).map(|app| what.switches_of(app).collect()).collect();
        let rules = rules(point(Params::default()), "");
        let recorded = run(&Source::Recorded(apps), &rules, 11, 0);
        let made_up = run(&Source::Synthetic(what), &rules, 11, 0);
        assert_eq!(recorded.rows, made_up.rows);
        assert_eq!(recorded.anon_recurrence, made_up.anon_recurrence);
    }

    #[test]
    fn the_seed_decides_and_the_oracle_is_the_bound() {
        let mut strict = Params::default();
        strict.budget.confidence = 0.9;
        let rules = rules(point(strict), "budget.confidence=0.9");
        let of_seed = |seed| run(&synthetic(4, seed), &rules, 11, 0).rows;
        let rows = of_seed(1);
        assert_eq!(rows, of_seed(1));
        assert_ne!(rows, of_seed(2));
        let ratio = |share: Share| share.ratio().expect("pages were counted");
        for row in &rows {
            assert_eq!(row.anon.demanded, rows[0].anon.demanded, "{}", row.name);
            assert!(row.anon.used <= rows[0].anon.used, "{}", row.name);
        }
        assert_eq!(ratio(rows[0].anon.precision()), 1.0);
        let encoded = serde_json::to_value(&rows[0]).expect("encodable");
        assert_eq!(encoded["file"]["recall"], 1.0);
        assert_eq!(encoded["file"]["wasted"], 0);
        assert_eq!(ratio(rows[0].file.recall()), 1.0);
        let (paper, ours) = (&rows[5], &rows[6]);
        assert_eq!(ours.name, "budget.confidence=0.9");
        assert!(ratio(ours.anon.precision()) > ratio(paper.anon.precision()));
        assert!(ratio(ours.anon.recall()) < ratio(paper.anon.recall()));
    }
}
