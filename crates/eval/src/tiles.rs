//! A picture as hashes of its tiles: what "how much of the picture differs" means here. Pure.

/// Edge of a tile in pixels.
pub const TILE_PIXELS: usize = 32;
/// Bytes of a pixel; the session asks for 24-bit depth, which the server stores in 32 bits.
pub const PIXEL_BYTES: usize = 4;

/// The hashes of a picture's tiles, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles {
    hashes: Vec<u64>,
    uniform: usize,
}

impl Tiles {
    /// Hashes the tiles of a picture with rows of `stride` bytes; tiles at the right and lower edge may be smaller.
    pub fn of(picture: &[u8], width: usize, height: usize, stride: usize) -> Self {
        assert!(
            stride >= width * PIXEL_BYTES && picture.len() >= stride * height,
            "picture smaller than said"
        );
        let columns = width.div_ceil(TILE_PIXELS);
        let rows = height.div_ceil(TILE_PIXELS);
        let mut hashes = Vec::with_capacity(columns * rows);
        let mut uniform = 0;
        for row in 0..rows {
            let top = row * TILE_PIXELS;
            let bottom = (top + TILE_PIXELS).min(height);
            for column in 0..columns {
                let from = column * TILE_PIXELS * PIXEL_BYTES;
                let to = (from + TILE_PIXELS * PIXEL_BYTES).min(width * PIXEL_BYTES);
                let lines = (top..bottom).map(|y| &picture[y * stride + from..y * stride + to]);
                let (hash, is_uniform) = hash_tile(lines);
                hashes.push(hash);
                uniform += usize::from(is_uniform);
            }
        }
        Self { hashes, uniform }
    }

    /// How many tiles there are.
    pub fn count(&self) -> usize {
        self.hashes.len()
    }

    /// How many tiles have one colour only: an exposed window whose application has not drawn yet is all of them.
    pub fn uniform(&self) -> usize {
        self.uniform
    }

    /// How many tiles are not the same in the other picture.
    pub fn differing(&self, other: &Self) -> usize {
        assert_eq!(self.count(), other.count(), "pictures of different sizes");
        self.hashes
            .iter()
            .zip(&other.hashes)
            .filter(|(a, b)| a != b)
            .count()
    }
}

fn hash_tile<'a>(lines: impl Iterator<Item = &'a [u8]>) -> (u64, bool) {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0u64;
    let mut first = None;
    let mut uniform = true;
    for line in lines {
        // Two pixels at a time; the session's width is even.
        for pair in line.chunks_exact(2 * PIXEL_BYTES) {
            let word = u64::from_le_bytes(pair.try_into().expect("chunk of eight"));
            uniform &= *first.get_or_insert(word) == word;
            hash = (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
        }
    }
    (hash, uniform)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: usize, height: usize) -> Vec<u8> {
        (0..width * height * PIXEL_BYTES)
            .map(|i| (i % 251) as u8)
            .collect()
    }

    #[test]
    fn one_pixel_changes_one_tile() {
        let (width, height) = (100, 70);
        let stride = width * PIXEL_BYTES;
        let mut bytes = picture(width, height);
        let before = Tiles::of(&bytes, width, height, stride);
        assert_eq!(before.count(), 4 * 3);
        bytes[69 * stride + 98 * PIXEL_BYTES] ^= 1;
        let after = Tiles::of(&bytes, width, height, stride);
        assert_eq!(after.differing(&before), 1);
        assert_eq!(after.differing(&after), 0);
    }

    #[test]
    fn blank_tiles_are_counted() {
        let bytes = vec![7; 64 * 64 * PIXEL_BYTES];
        assert_eq!(Tiles::of(&bytes, 64, 64, 64 * PIXEL_BYTES).uniform(), 4);
        assert_eq!(
            Tiles::of(&picture(64, 64), 64, 64, 64 * PIXEL_BYTES).uniform(),
            0
        );
    }
}
