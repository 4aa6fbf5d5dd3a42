//! The replay simulator: the state machine over recorded and synthetic switches.

use prepage_core::replay::synthetic::{Recurrence, Synthetic, recurrence};

#[test]
fn the_synthetic_workload_recurs_as_the_papers_figures() {
    let (mut anon, mut file) = ([0; 10], [0; 10]);
    for seed in 0..20 {
        let workload = Synthetic {
            seed,
            switches: 10,
            ..Synthetic::default()
        };
        let bars = recurrence::<10>(workload.switches());
        for n in 0..10 {
            anon[n] += bars.0[n];
            file[n] += bars.1[n];
        }
    }
    let share = |bars: &[u64; 10], of: std::ops::Range<usize>| {
        bars[of].iter().sum::<u64>() as f64 / bars.iter().sum::<u64>() as f64
    };
    println!(
        "{anon:?} {file:?} {} {} {}",
        share(&anon, 8..10),
        share(&file, 8..10),
        share(&file, 0..4)
    );
    let _ = Recurrence::ANON;
}
