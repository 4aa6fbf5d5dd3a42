//! The order of a run of launches: for each program, blocks that hold every scenario once, each in a seeded random
//! order, the second of two in that of the first reversed. Pure.

use super::record::{Parameters, Slot};
use super::scenario::{OVER_TIME, Scenario};
use crate::random::Random;

/// Every slot of one program that is timed, in order.
pub fn slots(parameters: &Parameters, program: &str) -> Vec<Slot> {
    let scenarios = &parameters.scenarios;
    blocks(parameters, program, "launch", parameters.runs, scenarios)
}

/// Every slot of one program that is read over time, in order.
pub fn timelines(parameters: &Parameters, program: &str) -> Vec<Slot> {
    let purpose = "timeline";
    blocks(
        parameters,
        program,
        purpose,
        parameters.timelines,
        &OVER_TIME,
    )
}

fn blocks(
    parameters: &Parameters,
    program: &str,
    purpose: &str,
    count: u32,
    scenarios: &[Scenario],
) -> Vec<Slot> {
    let purpose = format!("{purpose} {program}");
    let mut all = Vec::new();
    for block in 0..count {
        let slot = |(order, scenario)| Slot {
            program: program.to_owned(),
            block,
            order: order as u32,
            scenario,
            attempt: 0,
        };
        let scenarios = Random::in_block(parameters.seed, &purpose, block, scenarios);
        all.extend(scenarios.into_iter().enumerate().map(slot));
    }
    all
}

/// The scenarios of one block of simultaneous launches, in order: those that the paper's Figure 8 compares.
pub fn simultaneous(seed: u64, count: usize, block: u32) -> Vec<Scenario> {
    let scenarios = [Scenario::Cold, Scenario::Fast, Scenario::Sorted];
    Random::in_block(seed, &format!("simultaneous {count}"), block, &scenarios)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::run;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_block_holds_every_scenario_once_and_orders_differ() {
        let scenarios = [
            Scenario::Cold,
            Scenario::Warm,
            Scenario::Sorted,
            Scenario::Fast,
        ];
        let parameters = run(&scenarios).parameters;
        let all = slots(&parameters, "git");
        assert_eq!(all, slots(&parameters, "git"));
        assert_eq!(all.len(), 40);
        let mut orders = HashSet::new();
        for block in all.chunks(4) {
            let mut order: Vec<Scenario> = block.iter().map(|s| s.scenario).collect();
            orders.insert(order.clone());
            order.sort_unstable();
            assert_eq!(order, scenarios);
        }
        assert!(orders.len() > 3);
        let order = |slots: Vec<Slot>| slots.iter().map(|s| s.scenario).collect::<Vec<_>>();
        assert_ne!(order(all), order(slots(&parameters, "gcc")));
        assert!(timelines(&parameters, "git").is_empty(), "nobody asked");
        let asked = Parameters {
            timelines: 2,
            ..parameters
        };
        assert_eq!(timelines(&asked, "git").len(), 2 * OVER_TIME.len());
    }
}
