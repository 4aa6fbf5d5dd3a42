//! A tiny seeded generator (splitmix64): every order and choice of a run can be derived again from its seed.

/// The state of one splitmix64 stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream for this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for one purpose, so that more draws for one do not shift another.
    pub fn stream(seed: u64, purpose: &str) -> Self {
        let mut state = Self(seed);
        for byte in purpose.bytes() {
            state.0 = state.next_u64() ^ u64::from(byte);
        }
        state
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; the bias of the multiplication is below 2^-32 for the bounds used here.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0 && bound < 1 << 32, "bound out of range");
        (((self.next_u64() >> 32) * bound as u64) >> 32) as usize
    }

    /// What alternates, in the order that it has in a block. Blocks make mirrored pairs, the second in the order of the first
    /// reversed: so each comes before each other one as often as after it.
    pub fn in_block<T: Clone>(seed: u64, purpose: &str, block: u32, all: &[T]) -> Vec<T> {
        let mut order = all.to_vec();
        Self::stream(seed, &format!("{purpose} {}", block / 2)).shuffle(&mut order);
        if block % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// Fisher-Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // From the reference implementation with seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn blocks_make_mirrored_pairs_of_orders_of_their_own() {
        let all: Vec<u32> = (0..20).collect();
        let in_block = |block| Random::in_block(1, "modes", block, &all);
        for block in (0..10).step_by(2) {
            let mut reversed = in_block(block + 1);
            reversed.reverse();
            assert_eq!(in_block(block), reversed);
            assert_ne!(in_block(block), in_block(block + 2));
        }
        assert_ne!(in_block(0), Random::in_block(1, "others", 0, &all));
    }

    #[test]
    fn shuffle_keeps_every_item_and_purposes_differ() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::stream(1, "order").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        assert_ne!(
            Random::stream(1, "a").next_u64(),
            Random::stream(1, "b").next_u64()
        );
    }
}
