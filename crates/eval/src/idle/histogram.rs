//! Latencies as counts of rounded values: small in a record, and a quantile of it is within a hundredth. Pure.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Leading bits that are kept of a value: what is cut off is less than 1/64 of it.
const KEPT_BITS: u32 = 7;

/// How many latencies there were of each value, ascending: (microseconds, count).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(Vec<(u32, u32)>);

impl Histogram {
    /// Of these latencies, in microseconds.
    pub fn of(latencies_us: &[u32]) -> Self {
        Self::count(latencies_us.iter().map(|&us| (rounded(us), 1)))
    }

    /// All of these together.
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let counts = all.into_iter().flat_map(|one| one.0.iter().copied());
        Self::count(counts)
    }

    fn count(values: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for (us, count) in values {
            *counts.entry(us).or_default() += count;
        }
        Self(counts.into_iter().collect())
    }

    /// The least value, in milliseconds, that at least this share of the latencies does not exceed; 0 of nothing.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let total: u64 = self.0.iter().map(|&(_, count)| u64::from(count)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = self.0.iter().find(|&&(_, count)| {
            seen += u64::from(count);
            seen >= wanted
        });
        reached.map_or(0.0, |&(us, _)| f64::from(us) / 1e3)
    }
}

/// The value in the middle of those that have the same leading bits.
fn rounded(us: u32) -> u32 {
    let cut = (u32::BITS - us.leading_zeros()).saturating_sub(KEPT_BITS);
    let middle = (1u32 << cut) >> 1;
    ((us >> cut) << cut) | middle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn quantiles_are_those_of_the_values_within_a_hundredth() {
        let mut random = Random::new(3);
        let mut values: Vec<u32> = (0..5_000)
            .map(|_| (random.below(1 << 15) * random.below(1 << 10)) as u32)
            .collect();
        let halves = values.split_at(2_000);
        let parts = [Histogram::of(halves.0), Histogram::of(halves.1)];
        let all = Histogram::merged(&parts);
        assert_eq!(all, Histogram::of(&values));
        values.sort_unstable();
        for share in [0.001, 0.5, 0.9, 0.99, 1.0] {
            let exact = values[(values.len() as f64 * share).ceil() as usize - 1];
            let ratio = all.quantile_ms(share) * 1e3 / f64::from(exact);
            assert!((0.99..1.01).contains(&ratio), "{share}: {ratio}");
        }
        assert!(all.0.len() < 1_500, "{}", all.0.len());
    }

    #[test]
    fn ends() {
        assert_eq!(Histogram::default().quantile_ms(0.5), 0.0);
        assert_eq!(Histogram::of(&[127, 0]).quantile_ms(1.0), 0.127);
        let longest = Histogram::of(&[u32::MAX]).quantile_ms(1.0);
        assert!((longest - f64::from(u32::MAX) / 1e3).abs() / longest < 0.01);
    }
}
