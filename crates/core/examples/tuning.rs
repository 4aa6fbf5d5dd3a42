//! What the parameters of the estimators reach on synthetic workloads, as a table.
//!
//! `cargo run --release -p prepage-core --example tuning`

use prepage_core::outcome::Share;
use prepage_core::params::{AnonRule, FileCandidates, Mode, Params};
use prepage_core::replay::baseline::{Baseline, replay_baseline};
use prepage_core::replay::synthetic::{Recurrence, Synthetic, recurrence};
use prepage_core::replay::{Replayed, Tally, replay};
use std::time::Instant;

/// The first switch that counts: the estimators have learned.
const FIRST: u64 = 11;

fn percent(share: Share) -> f64 {
    share.ratio().unwrap_or(f64::NAN) * 100.0
}

fn columns(tally: &Tally, switches: u64) -> String {
    let each = |pages: u64| pages as f64 / switches as f64;
    format!(
        "{:5.1} {:5.1} {:7.0} {:7.0}",
        percent(tally.precision()),
        percent(tally.recall()),
        each(tally.fetched + tally.gap),
        each(tally.wasted())
    )
}

const HEADER: &str = "anonymous pages: precision, recall, fetched, wasted; share whose use is seen, precision seen \
                      | file pages: precision, recall, fetched, wasted | bytes of tables";

fn line(name: &str, replayed: &Replayed) {
    let (anon, file) = replayed.since(FIRST);
    let (mut switches, mut seen) = (0, Share::default());
    for switch in replayed.switches.iter().filter(|s| s.number >= FIRST) {
        switches += 1;
        seen.hits += switch.anon_seen.hits;
        seen.of += switch.anon_seen.of;
    }
    let watched = Share {
        hits: seen.of,
        of: anon.fetched,
    };
    println!(
        "{name:27} | {} {:5.1} {:5.1} | {} | {:4} kB",
        columns(&anon, switches),
        percent(watched),
        percent(seen),
        columns(&file, switches),
        replayed.bytes_max / 1024
    );
}

fn workloads() -> Vec<(&'static str, Synthetic)> {
    let base = Synthetic {
        apps: 10,
        ..Synthetic::default()
    };
    let figure_6 = base.clone();
    let stable = Synthetic {
        anon: Recurrence {
            context_change: 0.1,
            occasional_pages: 300,
            noise_pages: 30,
            ..Recurrence::ANON
        },
        ..base.clone()
    };
    let drifting = Synthetic {
        anon: Recurrence {
            drift: 0.03,
            context_change: 0.6,
            noise_pages: 200,
            ..Recurrence::ANON
        },
        ..base
    };
    vec![
        ("figure 6", figure_6),
        ("stable", stable),
        ("drifting", drifting),
    ]
}

fn table() {
    for (name, workload) in workloads() {
        let ten = Synthetic {
            switches: 10,
            apps: 1,
            ..workload.clone()
        };
        let (anon, file) = recurrence::<10>(ten.switches());
        println!(
            "\n== {name}: pages accessed in 1..10 of 10 switches: anon {anon:?}, file {file:?}"
        );
        println!("{HEADER}");
        for baseline in [
            Baseline::LastFootprint,
            Baseline::Union,
            Baseline::Frequency(0.5),
            Baseline::Frequency(0.8),
            Baseline::Oracle,
        ] {
            let replayed = replay_baseline(workload.switches(), baseline);
            line(&format!("{baseline:?}"), &replayed);
        }
        for interval in [1, 16] {
            let mut params = Params::default();
            params.anon.rule = AnonRule::Paper;
            params.file.file_candidates = FileCandidates::Offline;
            params.anon.observe_interval_max = interval;
            let replayed = replay(workload.switches(), &params, Mode::Full);
            line(&format!("paper, interval {interval}"), &replayed);
        }
        for confidence in [0.3, 0.4, 0.5, 0.6, 0.7, 0.8] {
            for interval in [1, 2, 4, 8, 16, 32] {
                let mut params = Params::default();
                params.anon.observe_interval_max = interval;
                params.budget.confidence = confidence;
                let replayed = replay(workload.switches(), &params, Mode::Full);
                let name = format!("history {confidence}, interval {interval}");
                line(&name, &replayed);
            }
        }
    }
}

fn other_parameters() {
    for (name, workload) in workloads() {
        println!("\n== {name}");
        for keep in [0.5, 0.8, 0.9, 0.95] {
            for timeout in [3, 5, 8, 12] {
                let mut params = Params::default();
                params.budget.calibration_keep = keep;
                params.anon.timeout_switches = timeout;
                let replayed = replay(workload.switches(), &params, Mode::Full);
                line(&format!("keep {keep}, timeout {timeout}"), &replayed);
            }
        }
    }
}

fn first_switches() {
    let workload = Synthetic {
        apps: 20,
        switches: 12,
        ..Synthetic::default()
    };
    let mut paper = Params::default();
    paper.anon.rule = AnonRule::Paper;
    paper.anon.observe_interval_max = 1;
    paper.file.file_candidates = FileCandidates::Offline;
    for (name, params) in [("paper", paper), ("default", Params::default())] {
        println!("\n== {name}: switch, anonymous and file precision, recall, fetched, wasted");
        let replayed = replay(workload.switches(), &params, Mode::Full);
        for number in 2..=12 {
            let (mut anon, mut file) = (Tally::default(), Tally::default());
            for switch in replayed.switches.iter().filter(|s| s.number == number) {
                anon.add(&switch.anon);
                file.add(&switch.file);
            }
            println!(
                "{number:2} | {} | {}",
                columns(&anon, 20),
                columns(&file, 20)
            );
        }
    }
}

fn thousand_applications() {
    let workload = Synthetic {
        apps: 1_000,
        ..Synthetic::default()
    };
    let began = Instant::now();
    let replayed = replay(workload.switches(), &Params::default(), Mode::Full);
    let took = began.elapsed();
    println!("{} switches in {took:?}", replayed.switches.len());
}

fn main() {
    table();
    other_parameters();
    first_switches();
    thousand_applications();
}
