//! Medians with bootstrap confidence intervals. Pure, and deterministic: the resampling is seeded.

use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A number with its 95 % confidence interval and the size of its sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Samples, or pairs.
    pub n: usize,
}

impl Estimate {
    /// The same in another unit: `f` rises with what it is of.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self {
            value: f(self.value),
            low: f(self.low),
            high: f(self.high),
            n: self.n,
        }
    }
}

/// Resamplings of a bootstrap.
pub const RESAMPLES: usize = 4000;
/// With fewer samples there is no interval worth the name, and so no estimate. With so few, an interval that is called one of
/// 95 % covers the truth less often: [`COVERAGE`].
pub const SAMPLES_MIN: usize = 4;

/// What every report says of its intervals. The numbers are those of a simulation, by the tests here, of medians of exponentially
/// distributed values: times of switches are skewed likewise.
pub const COVERAGE: &str = "\
    Intervals are percentile bootstraps, named after the 95 % that they reach of many samples. Of a median of few skewed samples \
    they cover the truth less often: about 87 % of the time of 4 samples, 93 % of 5, 91 % of 8, 94 % of 15. Of fewer than 4 there \
    is none. Many are shown: of twenty, one at least is expected to miss.";
/// Draws of [`RESAMPLES`] in which a statistic may be undefined, as a share of a gap is where there is none: 2.5 %, what an
/// interval leaves out on one side. With more, that of the others would be named after 95 % and be of fewer.
const UNDEFINED_MAX: usize = RESAMPLES / 40;
/// The seed of all resampling: the same record gives the same study.
const SEED: u64 = 0x9e37_79b9;

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// A quantile, interpolated between neighbours; `None` of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64))
}

/// Any statistic of `n` exchangeable units (samples or blocks), with its percentile bootstrap interval. `None` where
/// there are too few units, or the statistic is not defined, of them all or of more than 2.5 % of the draws.
pub fn bootstrap(n: usize, statistic: impl Fn(&[usize]) -> Option<f64>) -> Option<Estimate> {
    let estimate = bootstrap_mean(&[n], |_, drawn| statistic(drawn))?;
    Some(Estimate { n, ..estimate })
}

/// The mean over several groups (applications) of a statistic of each, with its percentile bootstrap interval: units are
/// drawn within each group, so that the interval is for these groups and says nothing of others. `sizes` are the groups'
/// units, `statistic` is asked with the group and the units drawn of it. `None` as of [`bootstrap`], of any group.
pub fn bootstrap_mean(
    sizes: &[usize],
    statistic: impl Fn(usize, &[usize]) -> Option<f64>,
) -> Option<Estimate> {
    let apart = |random: &mut Random, drawn: &mut [Vec<usize>]| {
        for (units, &n) in drawn.iter_mut().zip(sizes) {
            units.fill_with(|| random.below(n));
        }
    };
    mean_over_draws(sizes, apart, statistic)
}

/// The same of groups whose units were measured side by side: those of the same number share what was otherwise going on, and
/// are drawn together. `numbers` are those of the groups' units, rising; a group may lack some.
pub fn bootstrap_mean_jointly(
    numbers: &[Vec<u32>],
    statistic: impl Fn(usize, &[usize]) -> Option<f64>,
) -> Option<Estimate> {
    let sizes: Vec<usize> = numbers.iter().map(Vec::len).collect();
    let all: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
    let all: Vec<u32> = all.into_iter().collect();
    let jointly = |random: &mut Random, drawn: &mut [Vec<usize>]| {
        let picked: Vec<u32> = all.iter().map(|_| all[random.below(all.len())]).collect();
        for (units, numbers) in drawn.iter_mut().zip(numbers) {
            units.clear();
            units.extend(picked.iter().filter_map(|n| numbers.binary_search(n).ok()));
        }
    };
    mean_over_draws(&sizes, jointly, statistic)
}

/// The mean over the groups of a statistic of each, and its interval by what `draw` draws anew of their units.
fn mean_over_draws(
    sizes: &[usize],
    draw: impl Fn(&mut Random, &mut [Vec<usize>]),
    statistic: impl Fn(usize, &[usize]) -> Option<f64>,
) -> Option<Estimate> {
    if sizes.is_empty() || sizes.iter().any(|&n| n < SAMPLES_MIN) {
        return None;
    }
    let mean = |drawn: &[Vec<usize>]| {
        let values = drawn.iter().enumerate().map(|(i, d)| statistic(i, d));
        let sum: Option<f64> = values.sum();
        Some(sum? / sizes.len() as f64)
    };
    let mut drawn: Vec<Vec<usize>> = sizes.iter().map(|&n| (0..n).collect()).collect();
    let value = mean(&drawn)?;
    let mut random = Random::new(SEED);
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        draw(&mut random, &mut drawn);
        values.extend(mean(&drawn));
    }
    if values.len() < RESAMPLES - UNDEFINED_MAX {
        return None;
    }
    Some(Estimate {
        value,
        low: quantile(&values, 0.025)?,
        high: quantile(&values, 0.975)?,
        n: sizes.len(),
    })
}

/// Whether there is a gap for help to close: the time at best over that without help, of the medians that the gap is made
/// of, is below 1 with its whole interval. Not the median of the pairs' ratios, which may be clear where the medians are
/// not.
pub fn is_clear_gap(least_over_without: Estimate) -> bool {
    least_over_without.high < 1.0
}

/// What help closes of the gap between the time without it and the least; nothing where there is no gap.
pub fn share_of_gap(without: f64, with: f64, least: f64) -> Option<f64> {
    (without > least).then(|| (without - with) / (without - least))
}

/// The median of some values, with its interval.
pub fn median_estimate(values: &[f64]) -> Option<Estimate> {
    bootstrap(values.len(), |drawn| median_of(values, drawn))
}

/// The median of the drawn values; `None` of nothing.
pub fn median_of(values: &[f64], drawn: &[usize]) -> Option<f64> {
    let picked: Vec<f64> = drawn.iter().map(|&i| values[i]).collect();
    median(&picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
    }

    #[test]
    fn an_interval_holds_its_estimate_and_narrows() {
        let values = |n: usize| {
            (0..n)
                .map(|i| 100.0 + (i * 7919 % 101) as f64)
                .collect::<Vec<_>>()
        };
        let few = median_estimate(&values(10)).unwrap();
        let many = median_estimate(&values(200)).unwrap();
        for e in [few, many] {
            assert!(e.low <= e.value && e.value <= e.high);
        }
        assert!(many.high - many.low < few.high - few.low);
        assert_eq!(few, median_estimate(&values(10)).unwrap());
    }

    #[test]
    fn too_few_samples_give_no_estimate() {
        assert_eq!(median_estimate(&[1.0, 2.0, 3.0]), None);
        assert_eq!(bootstrap(10, |_| None), None);
    }

    #[test]
    fn a_statistic_that_many_draws_leave_undefined_has_no_interval() {
        // Defined unless the last unit is drawn as often: by the binomial distribution in all but some thousandths of the
        // draws, and in all but a quarter.
        let unless = |times: usize| {
            bootstrap(10, |drawn| {
                let drawn_last = drawn.iter().filter(|&&unit| unit == 9).count();
                (drawn_last < times).then_some(1.0)
            })
        };
        assert!(unless(5).is_some());
        assert_eq!(unless(2), None);
    }

    #[test]
    fn the_mean_over_groups_draws_within_each_and_needs_all() {
        let groups = [[1.0, 1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 3.0, 5.0, 3.0]];
        let of = |i: usize, drawn: &[usize]| {
            let picked: Vec<f64> = drawn.iter().map(|&unit| groups[i][unit]).collect();
            median(&picked)
        };
        let e = bootstrap_mean(&[5, 5], of).unwrap();
        assert_eq!((e.value, e.low, e.n), (2.0, 2.0, 2));
        assert!((2.0..=3.0).contains(&e.high));
        assert_eq!(bootstrap_mean(&[5, 3], of), None);
        assert_eq!(bootstrap_mean(&[], of), None);
    }

    #[test]
    fn what_was_measured_side_by_side_is_drawn_together() {
        // What slows a round slows it for all.
        let rounds: Vec<f64> = (0..12).map(|i| f64::from(i * 7 % 12)).collect();
        let of = |_: usize, drawn: &[usize]| median_of(&rounds, drawn);
        let numbers = vec![(0..12).collect::<Vec<u32>>(); 6];
        let jointly = bootstrap_mean_jointly(&numbers, of).unwrap();
        let apart = bootstrap_mean(&[12; 6], of).unwrap();
        let alone = median_estimate(&rounds).unwrap();
        assert_eq!((jointly.value, jointly.n), (apart.value, 6));
        let width = |e: Estimate| e.high - e.low;
        assert!(width(jointly) > 2.0 * width(apart), "{jointly:?} {apart:?}");
        assert_eq!((jointly.low, jointly.high), (alone.low, alone.high));
    }

    #[test]
    fn a_group_that_lacks_units_is_drawn_from_those_it_has() {
        let values = [vec![1.0; 8], vec![9.0; 4]];
        let of = |i: usize, drawn: &[usize]| median_of(&values[i], drawn);
        let numbers = [(0..8).collect(), vec![1, 3, 5, 7]];
        let e = bootstrap_mean_jointly(&numbers, of).expect("of nearly all draws it has one");
        assert_eq!((e.value, e.low, e.high, e.n), (5.0, 5.0, 5.0, 2));
        assert_eq!(bootstrap_mean_jointly(&[vec![0, 1, 2]], of), None);
    }

    /// How often, in hundredths, the interval of the median of so many exponentially distributed values covers the true one.
    fn coverage_percent(n: usize) -> f64 {
        const TRIALS: usize = 250;
        const STEPS: usize = 1 << 20;
        let mut random = Random::new(11);
        let mut covered = 0;
        for _ in 0..TRIALS {
            let uniform = |random: &mut Random| (random.below(STEPS) + 1) as f64 / STEPS as f64;
            let values: Vec<f64> = (0..n).map(|_| -uniform(&mut random).ln()).collect();
            let e = median_estimate(&values).unwrap();
            covered += usize::from((e.low..=e.high).contains(&std::f64::consts::LN_2));
        }
        100.0 * covered as f64 / TRIALS as f64
    }

    #[test]
    fn few_samples_are_covered_as_often_as_reports_say() {
        // Three standard deviations of so many trials.
        const NEAR: f64 = 6.4;
        for (n, percent) in [(4, 87.0), (5, 93.0), (8, 91.0), (15, 94.0)] {
            let said = format!("{percent} % of ");
            assert!(COVERAGE.contains(&said) && COVERAGE.contains(&n.to_string()));
            let found = coverage_percent(n);
            assert!(
                (found - percent).abs() < NEAR,
                "{n}: {found} %, said {percent}"
            );
        }
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = Random::new(5);
        let mut covered = 0;
        const TRIALS: usize = 60;
        for _ in 0..TRIALS {
            let values: Vec<f64> = (0..25).map(|_| random.below(1001) as f64).collect();
            let e = median_estimate(&values).unwrap();
            covered += usize::from(e.low <= 500.0 && 500.0 <= e.high);
        }
        assert!(covered * 100 >= TRIALS * 85, "{covered} of {TRIALS}");
    }
}
