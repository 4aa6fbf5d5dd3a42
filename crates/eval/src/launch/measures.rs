//! The numbers of a program's launches, each a pure function of the samples.

use super::record::Launch;
use super::scenario::Scenario;
use crate::statistics::{Estimate, bootstrap, is_clear_gap, median, share_of_gap};
use std::collections::BTreeMap;

/// How long a launch took: of the prefetch alone, until its last page was there, by prepage's clock; the command returns
/// later.
pub fn time_ms(launch: &Launch) -> f64 {
    let completed_us = (launch.slot.scenario == Scenario::PrefetchOnly)
        .then(|| launch.reported("prefetch.completed_us"))
        .flatten();
    completed_us.map_or(launch.t_end_ns as f64 / 1e6, |us| us / 1e3)
}

/// The times of one block by scenario.
pub type Block = BTreeMap<Scenario, f64>;

/// The blocks that hold all of these scenarios.
pub fn blocks(launches: &[Launch], scenarios: &[Scenario]) -> Vec<Block> {
    let mut blocks: BTreeMap<u32, Block> = BTreeMap::new();
    for launch in launches {
        let block = blocks.entry(launch.slot.block).or_default();
        block.insert(launch.slot.scenario, time_ms(launch));
    }
    blocks
        .into_values()
        .filter(|block| scenarios.iter().all(|s| block.contains_key(s)))
        .collect()
}

pub fn median_of(blocks: &[Block], drawn: &[usize], scenario: Scenario) -> Option<f64> {
    let times: Vec<f64> = drawn.iter().map(|&i| blocks[i][&scenario]).collect();
    median(&times)
}

/// What `compare` makes of each block's times, of the scenario and of cold.
pub fn compared(launches: &[Launch], scenario: Scenario, compare: fn(f64, f64) -> f64) -> Vec<f64> {
    let blocks = blocks(launches, &[Scenario::Cold, scenario]);
    let of_each = blocks
        .iter()
        .map(|block| compare(block[&scenario], block[&Scenario::Cold]));
    of_each.collect()
}

/// Whether a program is clearly faster warm than cold. Nothing where too few launches tell.
pub fn has_gap(launches: &[Launch]) -> Option<bool> {
    let blocks = blocks(launches, &[Scenario::Cold, Scenario::Warm]);
    let warm_over_cold = bootstrap(blocks.len(), |drawn| {
        let of = |scenario| median_of(&blocks, drawn, scenario);
        Some(of(Scenario::Warm)? / of(Scenario::Cold)?)
    });
    warm_over_cold.map(is_clear_gap)
}

/// The scenarios by which one is placed between cold and warm.
pub fn gap_of(scenario: Scenario) -> [Scenario; 3] {
    [Scenario::Cold, Scenario::Warm, scenario]
}

/// (cold - scenario) / (cold - warm), of medians over the drawn blocks.
pub fn gap_share(blocks: &[Block], drawn: &[usize], scenario: Scenario) -> Option<f64> {
    let of = |scenario| median_of(blocks, drawn, scenario);
    share_of_gap(of(Scenario::Cold)?, of(scenario)?, of(Scenario::Warm)?)
}

/// (cold - scenario) / (cold - warm), of medians over the same blocks. Blocks are drawn whole: what made a block slow made all
/// of its scenarios slow.
pub fn gap_closed(launches: &[Launch], scenario: Scenario) -> Option<Estimate> {
    let blocks = blocks(launches, &gap_of(scenario));
    bootstrap(blocks.len(), |drawn| gap_share(&blocks, drawn, scenario))
}

/// t_bound = max(t_ssd, t_warm) of the drawn blocks.
fn bound_of(blocks: &[Block], drawn: &[usize]) -> Option<f64> {
    let of = |scenario| median_of(blocks, drawn, scenario);
    Some(of(Scenario::Warm)?.max(of(Scenario::PrefetchOnly)?))
}

/// The bound.
pub fn bound(launches: &[Launch]) -> Option<Estimate> {
    let blocks = blocks(launches, &[Scenario::Warm, Scenario::PrefetchOnly]);
    bootstrap(blocks.len(), |drawn| bound_of(&blocks, drawn))
}

/// The scenarios by which one is held against the bound.
pub fn beside_bound(scenario: Scenario) -> [Scenario; 3] {
    [Scenario::Warm, Scenario::PrefetchOnly, scenario]
}

/// Time over the bound, of medians over the drawn blocks.
pub fn over_bound(blocks: &[Block], drawn: &[usize], scenario: Scenario) -> Option<f64> {
    Some(median_of(blocks, drawn, scenario)? / bound_of(blocks, drawn)?)
}

/// Time over the bound, of medians over the same blocks.
pub fn ratio_to_bound(launches: &[Launch], scenario: Scenario) -> Option<Estimate> {
    let blocks = blocks(launches, &beside_bound(scenario));
    bootstrap(blocks.len(), |drawn| over_bound(&blocks, drawn, scenario))
}
