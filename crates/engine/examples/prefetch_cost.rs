//! What launch help costs and brings on a real command, as root, on a machine that does nothing else:
//! `prefetch_cost RUNS PATH_THREADS DEPTH_KIB COMMAND...`. After two launches to learn from, each run is a cold, a prefetched
//! and a warm launch, each unrecorded and recorded. Medians, in milliseconds.

use prepage_core::launch::manager::{Decision, LaunchFacts, LaunchState, begin, end};
use prepage_core::launch::plan::{LaunchPlan, PlanLimits};
use prepage_core::params::launch::LaunchParams;
use prepage_engine::{EngineParams, Launch, LaunchResult, Launches, Rights};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::page::page_size;
use prepage_kernel::sched::capacities;
use prepage_kernel::testing::held::HeldCommand;
use std::sync::Arc;
use std::time::Duration;

const KINDS: [&str; 6] = [
    "cold",
    "prefetched",
    "warm",
    "cold, recorded",
    "prefetched, recorded",
    "warm, recorded",
];

struct Bench {
    launches: Launches,
    command: Vec<String>,
    params: LaunchParams,
    state: LaunchState,
    next_id: u64,
}

impl Bench {
    /// Launches the command. Returns what came of it, and how long its beginning took, in microseconds.
    fn launch(&mut self, decision: Decision, traces_paths: bool) -> (LaunchResult, u64) {
        let words: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let held = HeldCommand::new(&words);
        self.next_id += 1;
        let launch = Launch {
            id: self.next_id,
            root_pid: held.pid(),
            rights: Rights {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            },
            began: 0,
            began_wall_ns: 0,
            decision,
            coldness: None,
            sequence: Arc::clone(&self.state.sequence),
            traces_paths,
            rings_wait_max: Duration::from_secs(1),
        };
        let began = monotonic_ns();
        self.launches.begin(Launch { began, ..launch });
        let begin_us = (monotonic_ns() - began) / 1_000;
        held.run();
        loop {
            if let Some(result) = self.launches.results().pop() {
                return (result, begin_us);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn decide(&mut self) -> Decision {
        let limits = PlanLimits {
            page_bytes: page_size(),
            call_bytes_max: 1 << 20,
        };
        let facts = LaunchFacts {
            changed_files: &[],
            is_rotational: false,
            limits,
        };
        begin(&mut self.state, &facts, &self.params)
    }

    fn learn(&mut self) {
        let decision = self.decide();
        let (result, _) = self.launch(decision, true);
        let recording = result.recording.expect("recorded");
        println!(
            "learned: {:?} us, {} pages of {} files ({} without a name), {} calls (all: {}), {} lost",
            result.measured.launch_us,
            recording.pages(),
            recording.files.len(),
            result.unresolved_pages,
            recording.calls.len(),
            recording.is_path_profile,
            recording.events_lost,
        );
        let measured = &result.measured;
        end(&mut self.state, Some(&recording), measured, &self.params);
    }

    fn measure(&mut self, runs: usize, plan: &Arc<LaunchPlan>) {
        let mut times_ms = vec![Vec::new(); KINDS.len()];
        let (mut begins_us, mut last) = (Vec::new(), None);
        for _ in 0..runs {
            for (kind, times_ms) in KINDS.iter().zip(&mut times_ms) {
                if !kind.starts_with("warm") {
                    drop_caches();
                }
                let is_prefetched = kind.starts_with("prefetched");
                let decision = Decision {
                    records: kind.ends_with("recorded"),
                    prefetch: is_prefetched.then(|| Arc::clone(plan)),
                    ..Decision::default()
                };
                let (result, begin_us) = self.launch(decision, false);
                let launch_us = result.measured.launch_us.expect("it has ended");
                times_ms.push(launch_us as f64 / 1e3);
                if is_prefetched {
                    begins_us.push(begin_us as f64);
                    last = Some(result);
                }
            }
        }
        for (kind, times_ms) in KINDS.iter().zip(times_ms) {
            println!("{kind}: {:.1} ms", median(times_ms));
        }
        println!("beginning a prefetched launch: {} us", median(begins_us));
        println!("{:?}", last.and_then(|last| last.prefetch));
    }
}

fn drop_caches() {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("this needs root");
    std::thread::sleep(Duration::from_millis(50));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    const USAGE: &str = "prefetch_cost RUNS PATH_THREADS DEPTH_KIB COMMAND...";
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect(USAGE);
    let (runs, path_threads, depth_kib): (usize, usize, usize) = (number(), number(), number());
    let mut engine = EngineParams::default();
    engine.fetch.path_threads = path_threads;
    engine.fetch.launch_depth_bytes = depth_kib as u64 * 1024;
    let params = LaunchParams {
        holdout_every: 0,
        launch_us_min: 0,
        pages_min: 0,
        ..LaunchParams::default()
    };
    let capacities = capacities().expect("cores");
    let launches = Launches::start(&engine, &params, &capacities).expect("start");
    assert!(launches.can_record(), "{:?}", launches.warnings());
    let mut bench = Bench {
        launches,
        command: arguments.collect(),
        params,
        state: LaunchState::default(),
        next_id: 0,
    };
    bench.learn();
    bench.learn();
    let plan = bench.decide().prefetch.expect("learned");
    println!(
        "plan: {} pages in {} reads, {} paths",
        plan.pages(),
        plan.reads.len(),
        plan.paths.len()
    );
    bench.measure(runs, &plan);
}
