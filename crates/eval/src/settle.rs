//! From the pictures seen after an activation to the two times that are measured. Pure.

use crate::tiles::Tiles;
use serde::{Deserialize, Serialize};

/// The picture at one moment.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Nanoseconds since the activation.
    pub t_ns: u64,
    /// Its tiles.
    pub tiles: Tiles,
    /// CPU time of the application until then.
    pub cpu_us: u64,
    /// Its major faults until then.
    pub majflt: u64,
}

/// One frame as the record keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameRecord {
    /// Nanoseconds since the activation.
    pub t_ns: u64,
    /// Tiles that differ from the picture before the activation.
    pub changed: usize,
    /// Tiles that differ from the final picture.
    pub from_final: usize,
    /// Tiles of one colour.
    pub uniform: usize,
    /// CPU time of the application since the activation.
    pub cpu_us: u64,
    /// Its major faults since the activation.
    pub majflt: u64,
}

/// What a series of frames says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The frames, in the form that is recorded.
    pub frames: Vec<FrameRecord>,
    /// First frame that the application drew.
    pub t_first_frame_ns: Option<u64>,
    /// First frame from which on the picture stays as it finally is.
    pub t_settled_ns: Option<u64>,
}

/// A picture counts as the final one when at most this many hundredths of its tiles differ.
pub const SETTLED_PERCENT: usize = 2;
/// A window that was raised and not yet drawn is blank, or shows what was there before: a frame counts as drawn when this
/// many hundredths are not, and as many have changed.
pub const DRAWN_PERCENT: usize = 2;

/// Reduces the frames to records and times. `before` is the picture that the other application showed.
pub fn settle(before: &Tiles, frames: &[Frame]) -> Settled {
    let Some(last) = frames.last() else {
        return Settled {
            frames: Vec::new(),
            t_first_frame_ns: None,
            t_settled_ns: None,
        };
    };
    let records: Vec<FrameRecord> = frames
        .iter()
        .map(|frame| FrameRecord {
            t_ns: frame.t_ns,
            changed: frame.tiles.differing(before),
            from_final: frame.tiles.differing(&last.tiles),
            uniform: frame.tiles.uniform(),
            cpu_us: frame.cpu_us,
            majflt: frame.majflt,
        })
        .collect();
    let (t_first_frame_ns, t_settled_ns) = times(&records, before.count());
    Settled {
        frames: records,
        t_first_frame_ns,
        t_settled_ns,
    }
}

/// A picture that stays: what is drawn since may differ from it a little (a caret blinks, a wheel turns), and no more.
#[derive(Clone, Debug)]
pub struct Still {
    /// The picture.
    pub picture: Tiles,
    /// Since when it stays.
    pub since_ns: u64,
}

/// Whether a picture differs from one that was there by more than [`SETTLED_PERCENT`].
pub fn is_another(picture: &Tiles, before: &Tiles) -> bool {
    !is_settled(picture.count(), picture.differing(before))
}

fn is_settled(tiles: usize, differing: usize) -> bool {
    differing * 100 <= tiles * SETTLED_PERCENT
}

impl Still {
    /// Takes the picture of a moment: one that differs by more than [`SETTLED_PERCENT`] begins to stay then. Small steps add
    /// up, since what they are compared with is not replaced.
    pub fn see(&mut self, picture: &Tiles, now_ns: u64) {
        if is_another(picture, &self.picture) {
            *self = Self {
                picture: picture.clone(),
                since_ns: now_ns,
            };
        }
    }
}

/// An answer changes at least so many hundredths of the application's picture.
pub const ANSWER_PERCENT: usize = 5;

/// Whether a picture is drawn, and not the one that the application had when it was left.
pub fn is_answer(picture: &Tiles, left: &Tiles) -> bool {
    answers(picture.count(), picture.uniform(), picture.differing(left))
}

/// The same of a picture of so many tiles, of which some have one colour and some differ from the one that was left.
pub fn answers(tiles: usize, uniform: usize, differing: usize) -> bool {
    is_drawn(tiles, uniform) && differing * 100 >= tiles * ANSWER_PERCENT
}

/// Whether a picture is drawn, and the one that the application had when it was left.
pub fn is_redrawn(picture: &Tiles, left: &Tiles) -> bool {
    redraws(picture.count(), picture.uniform(), picture.differing(left))
}

/// The same of a picture of so many tiles, of which some have one colour and some differ from the one that was left.
pub fn redraws(tiles: usize, uniform: usize, differing: usize) -> bool {
    is_drawn(tiles, uniform) && is_settled(tiles, differing)
}

fn is_drawn(tiles: usize, uniform: usize) -> bool {
    tiles.saturating_sub(uniform) * 100 >= tiles * DRAWN_PERCENT
}

/// The times of the first frame and of the settled picture.
fn times(frames: &[FrameRecord], tiles: usize) -> (Option<u64>, Option<u64>) {
    let drawn =
        |f: &&FrameRecord| is_drawn(tiles, f.uniform) && f.changed * 100 >= tiles * DRAWN_PERCENT;
    let first = frames.iter().find(drawn).map(|f| f.t_ns);
    let is_final = |f: &&FrameRecord| is_settled(tiles, f.from_final);
    let stays = frames
        .iter()
        .rev()
        .take_while(is_final)
        .last()
        .map(|f| f.t_ns);
    (first, stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::{PIXEL_BYTES, TILE_PIXELS};

    fn frame(t_ns: u64, changed: usize, from_final: usize, uniform: usize) -> FrameRecord {
        FrameRecord {
            t_ns,
            changed,
            from_final,
            uniform,
            cpu_us: 0,
            majflt: 0,
        }
    }

    #[test]
    fn an_answer_is_another_picture_and_what_is_redrawn_the_same() {
        let judged = |uniform, differing| {
            (
                answers(1000, uniform, differing),
                redraws(1000, uniform, differing),
            )
        };
        assert_eq!(judged(500, 0), (false, true));
        assert_eq!(judged(500, 20), (false, true), "a caret");
        assert_eq!(judged(500, 21), (false, false));
        assert_eq!(judged(500, 50), (true, false));
        assert_eq!(judged(990, 0), (false, false), "exposed, and not drawn yet");
        assert_eq!(
            judged(990, 900),
            (false, false),
            "exposed, and not drawn yet"
        );
    }

    #[test]
    fn blank_exposure_is_no_first_frame() {
        let frames = [
            frame(1, 1000, 900, 1000),
            frame(5, 1000, 700, 300),
            frame(9, 1000, 0, 100),
        ];
        assert_eq!(times(&frames, 1000), (Some(5), Some(9)));
    }

    #[test]
    fn a_wheel_that_turns_is_no_first_frame() {
        let frames = [frame(1, 3, 1000, 400), frame(5, 1000, 0, 400)];
        assert_eq!(times(&frames, 1000), (Some(5), Some(5)));
    }

    #[test]
    fn settled_is_where_it_stays_not_where_it_first_was() {
        let frames = [
            frame(1, 20, 0, 0),
            frame(2, 20, 500, 0),
            frame(3, 20, 20, 0),
            frame(4, 20, 0, 0),
        ];
        assert_eq!(times(&frames, 1000), (Some(1), Some(3)));
    }

    #[test]
    fn two_percent_is_the_limit() {
        assert_eq!(
            times(&[frame(3, 10, 20, 0), frame(4, 10, 0, 0)], 1000).1,
            Some(3)
        );
        assert_eq!(
            times(&[frame(3, 10, 21, 0), frame(4, 10, 0, 0)], 1000).1,
            Some(4)
        );
        assert_eq!(times(&[], 1000), (None, None));
    }

    /// A row of 100 tiles of which the first so many are painted.
    fn tiles(painted: usize) -> Tiles {
        let width = 100 * TILE_PIXELS;
        let stride = width * PIXEL_BYTES;
        let mut picture = vec![0; stride];
        picture[..painted * TILE_PIXELS * PIXEL_BYTES].fill(9);
        Tiles::of(&picture, width, 1, stride)
    }

    #[test]
    fn a_blinking_caret_is_still_and_a_creeping_change_is_not() {
        let mut still = Still {
            picture: tiles(0),
            since_ns: 1,
        };
        for (now_ns, painted) in [(2, 1), (3, 0), (4, 2)] {
            still.see(&tiles(painted), now_ns);
        }
        assert_eq!(still.since_ns, 1);
        // Small steps add up, since the picture that they are compared with stays.
        still.see(&tiles(3), 5);
        assert_eq!(still.since_ns, 5);
    }
}
