//! Which keys are asked for: few of them often, most of them rarely, as clients of a cache or a database do. Pure.

use crate::random::Random;

/// Zipf's distribution over keys: that of rank r is chosen with a probability in proportion to 1 / r^exponent. Which key
/// has which rank is shuffled, so that what is popular lies scattered over the service's memory.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Of rank r and all before it: the sum of the weights.
    cumulative: Vec<f64>,
    keys: Vec<u32>,
}

impl Zipf {
    /// Over the keys from 0 to `keys`, which must be at least one.
    pub fn new(keys: u32, exponent: f64, seed: u64) -> Self {
        assert!(keys > 0, "a distribution over nothing");
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| f64::from(rank).powf(-exponent));
        let cumulative = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        let mut shuffled: Vec<u32> = (0..keys).collect();
        Random::stream(seed, "ranks").shuffle(&mut shuffled);
        Self {
            cumulative,
            keys: shuffled,
        }
    }

    /// A key.
    pub fn draw(&self, random: &mut Random) -> u32 {
        const STEPS: f64 = (1u64 << 53) as f64;
        let share = (random.next_u64() >> 11) as f64 / STEPS;
        let total = self.cumulative[self.cumulative.len() - 1];
        let rank = self.cumulative.partition_point(|&sum| sum <= share * total);
        self.keys[rank.min(self.keys.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_zipf_says() {
        const DRAWS: u32 = 100_000;
        let zipf = Zipf::new(1_000, 1.0, 3);
        let mut random = Random::new(4);
        let mut counts = vec![0u32; 1_000];
        for _ in 0..DRAWS {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        // The thousandth harmonic number.
        let expected = |rank: f64| f64::from(DRAWS) / rank / 7.4855;
        for (rank, &key) in zipf.keys.iter().enumerate().take(10) {
            let ratio = f64::from(counts[key as usize]) / expected(rank as f64 + 1.0);
            assert!((0.9..1.1).contains(&ratio), "rank {rank}: {ratio}");
        }
        assert_ne!(&zipf.keys[..10], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn one_key_is_always_drawn() {
        assert_eq!(Zipf::new(1, 0.99, 1).draw(&mut Random::new(1)), 0);
    }
}
