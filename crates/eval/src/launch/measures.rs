//! The numbers of a program's launches, each a pure function of the samples.

use super::record::Launch;
use super::scenario::Scenario;
use crate::statistics::{Estimate, bootstrap, is_clear_gap, median, median_estimate, share_of_gap};
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

/// The median of what `compare` makes of each block's times, of the scenario and of cold.
pub fn against_cold(
    launches: &[Launch],
    scenario: Scenario,
    compare: fn(f64, f64) -> f64,
) -> Option<Estimate> {
    let blocks = blocks(launches, &[Scenario::Cold, scenario]);
    let compared: Vec<f64> = blocks
        .iter()
        .map(|block| compare(block[&scenario], block[&Scenario::Cold]))
        .collect();
    median_estimate(&compared)
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

/// (cold - scenario) / (cold - warm), of medians over the same blocks, where that gap is clear. Blocks are drawn whole: what made a block slow made
/// all of its scenarios slow.
pub fn gap_closed(launches: &[Launch], scenario: Scenario) -> Option<Estimate> {
    let blocks = blocks(launches, &[Scenario::Cold, Scenario::Warm, scenario]);
    let closed = bootstrap(blocks.len(), |drawn| {
        let of = |scenario| median_of(&blocks, drawn, scenario);
        share_of_gap(of(Scenario::Cold)?, of(scenario)?, of(Scenario::Warm)?)
    });
    closed.filter(|_| has_gap(launches) == Some(true))
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

/// Time over the bound, of medians over the same blocks.
pub fn ratio_to_bound(launches: &[Launch], scenario: Scenario) -> Option<Estimate> {
    let scenarios = [Scenario::Warm, Scenario::PrefetchOnly, scenario];
    let blocks = blocks(launches, &scenarios);
    bootstrap(blocks.len(), |drawn| {
        Some(median_of(&blocks, drawn, scenario)? / bound_of(&blocks, drawn)?)
    })
}
