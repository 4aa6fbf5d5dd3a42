//! The order of a run: blocks that hold every mode once, each in a seeded random order. Pure.

use crate::random::Random;
use crate::record::{Line, Mode, Parameters, Slot};
use std::collections::HashSet;

/// Every slot of a run, in order.
pub fn slots(parameters: &Parameters) -> Vec<Slot> {
    let mut all = Vec::new();
    for block in 0..parameters.samples {
        let mut modes = parameters.modes.clone();
        Random::stream(parameters.seed, &format!("block {block}")).shuffle(&mut modes);
        let slot = |(order, mode)| Slot {
            block,
            order: order as u32,
            mode,
            attempt: 0,
        };
        all.extend(modes.into_iter().enumerate().map(slot));
    }
    all
}

/// The slots that a record already holds a sample of.
pub fn done(lines: &[Line]) -> HashSet<(u32, Mode)> {
    lines
        .iter()
        .filter_map(|line| match line {
            Line::Sample(switch) => Some((switch.slot.block, switch.slot.mode)),
            _ => None,
        })
        .collect()
}

/// The choices of one slot: the same for every mode of a block, so that a pair differs in nothing but the mode. Every
/// attempt makes its own.
pub fn choices(seed: u64, slot: &Slot, purpose: &str) -> Random {
    Random::stream(seed, &format!("{purpose} {} {}", slot.block, slot.attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};

    #[test]
    fn every_block_holds_every_mode_once_and_orders_differ() {
        let modes = [Mode::Resident, Mode::Off, Mode::Anon, Mode::Full];
        let parameters = Parameters {
            samples: 20,
            ..run(&modes).parameters
        };
        let all = slots(&parameters);
        assert_eq!(all, slots(&parameters));
        assert_eq!(all.len(), 80);
        let mut orders = HashSet::new();
        for block in all.chunks(4) {
            let mut order: Vec<Mode> = block.iter().map(|s| s.mode).collect();
            orders.insert(order.clone());
            order.sort_unstable();
            assert_eq!(order, modes);
        }
        assert!(orders.len() > 5);
    }

    #[test]
    fn only_samples_count_as_done() {
        let lines = [
            Line::Run(Box::new(run(&[Mode::Off]))),
            Line::Warmup(Box::new(switch(0, Mode::Full, 1.0))),
            Line::Sample(Box::new(switch(1, Mode::Off, 1.0))),
        ];
        assert_eq!(done(&lines), HashSet::from([(1, Mode::Off)]));
    }
}
