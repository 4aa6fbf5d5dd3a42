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
/// A window that was raised and not yet drawn is blank: a frame counts as drawn when this many hundredths are not.
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

/// An answer changes at least so many hundredths of the application's picture.
pub const ANSWER_PERCENT: usize = 5;

/// Whether a picture is drawn, and not the one that the application had when it was left.
pub fn is_answer(picture: &Tiles, left: &Tiles) -> bool {
    let tiles = picture.count();
    let drawn = (tiles - picture.uniform()) * 100 >= tiles * DRAWN_PERCENT;
    drawn && picture.differing(left) * 100 >= tiles * ANSWER_PERCENT
}

/// The two times, from the recorded frames alone: `study` derives them again with this.
pub fn times(frames: &[FrameRecord], tiles: usize) -> (Option<u64>, Option<u64>) {
    let drawn = |f: &&FrameRecord| {
        f.changed > 0 && (tiles - f.uniform.min(tiles)) * 100 >= tiles * DRAWN_PERCENT
    };
    let first = frames.iter().find(drawn).map(|f| f.t_ns);
    let is_final = |f: &&FrameRecord| f.from_final * 100 <= tiles * SETTLED_PERCENT;
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
    fn blank_exposure_is_no_first_frame() {
        let frames = [
            frame(1, 1000, 900, 1000),
            frame(5, 1000, 700, 300),
            frame(9, 1000, 0, 100),
        ];
        assert_eq!(times(&frames, 1000), (Some(5), Some(9)));
    }

    #[test]
    fn settled_is_where_it_stays_not_where_it_first_was() {
        let frames = [
            frame(1, 10, 0, 0),
            frame(2, 10, 500, 0),
            frame(3, 10, 20, 0),
            frame(4, 10, 0, 0),
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
}
