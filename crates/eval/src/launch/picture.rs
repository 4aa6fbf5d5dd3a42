//! Watches the window of a program that is being launched, to the first picture that stays.

use super::programs::Window;
use crate::clock::now_ns;
use crate::display::screen::Screen;
use crate::display::windows::{Change, Display};
use crate::error::Result;
use crate::group::Group;
use crate::processes::major_faults;
use crate::run::watch::push;
use crate::settle::{Frame, FrameRecord, Still, is_answer, settle};
use crate::tiles::Tiles;

/// The display on which windows are watched.
#[derive(Debug)]
pub struct Desk {
    /// The connection.
    pub display: Display,
    /// The picture.
    pub screen: Screen,
}

/// How long a launch is watched.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A picture that stays for so long is final.
    pub quiet_ms: u64,
    /// No launch is watched for longer.
    pub cap_ms: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The first frame that the program drew.
    pub t_first_frame_ns: Option<u64>,
    /// The first frame of the picture that stays; when watching ended if there was none.
    pub t_end_ns: u64,
    /// Every picture.
    pub frames: Vec<FrameRecord>,
    /// Why there is no picture that stays, if so: at the cap, or where the program is over.
    pub why_capped: Option<String>,
    /// No process of it was left before its window was there.
    pub is_over: bool,
}

impl Seen {
    /// Why there is nothing to measure: the program was over before its window was there.
    pub fn why_over(&self) -> Option<&str> {
        self.why_capped.as_deref().filter(|_| self.is_over)
    }
}

/// The window is looked for so often while it is not there.
const LOOK_MS: u64 = 50;

impl Desk {
    /// The picture before a launch; what was drawn until now is forgotten.
    pub fn before(&mut self) -> Result<Tiles> {
        self.display.forget_changes()?;
        self.screen.tiles()
    }

    /// Watches the launch that was let go at `t0_ns` over the picture `before`, until the window's content is there and
    /// the picture stays, or the cap is reached.
    pub fn watch(
        &mut self,
        window: Window,
        t0_ns: u64,
        before: &Tiles,
        group: &Group,
        limits: Limits,
    ) -> Result<Seen> {
        let cap_ns = t0_ns + limits.cap_ms * 1_000_000;
        let cpu_before_us = group.cpu_us();
        let mut still = Still {
            picture: before.clone(),
            since_ns: t0_ns,
        };
        let mut frames: Vec<Frame> = Vec::new();
        let mut is_ready = false;
        let mut is_over = false;
        loop {
            let quiet_end = if is_ready {
                still.since_ns + limits.quiet_ms * 1_000_000
            } else {
                now_ns() + LOOK_MS * 1_000_000
            };
            match self.display.next_change(quiet_end.min(cap_ns))? {
                Some(Change::Drawn) => {
                    let at_ns = now_ns();
                    // Asked for again before the picture is read: what is drawn meanwhile makes another frame.
                    self.display.watch_again()?;
                    let tiles = self.screen.tiles()?;
                    still.see(&tiles, at_ns);
                    push(&mut frames, tiles, |tiles| Frame {
                        t_ns: at_ns - t0_ns,
                        tiles,
                        cpu_us: group.cpu_us() - cpu_before_us,
                        majflt: major_faults(group.pids()),
                    });
                }
                Some(Change::Active) => {}
                None if now_ns() >= cap_ns || is_ready => break,
                None if group.pids().is_empty() => {
                    is_over = true;
                    break;
                }
                None => {}
            }
            // The title says that the content is there; the picture must then be more than the empty screen.
            is_ready = is_ready || is_answer(&still.picture, before) && self.is_there(window)?;
        }
        let t_watched_ns = now_ns() - t0_ns;
        let is_capped = is_over || t0_ns + t_watched_ns >= cap_ns;
        let lacks = is_capped.then(|| {
            let within = match is_over {
                true => "before it was over".to_owned(),
                false => format!("within {} s", limits.cap_ms / 1_000),
            };
            self.what_lacks(window, is_ready, &within)
        });
        let settled = settle(before, &frames);
        Ok(Seen {
            t_first_frame_ns: settled.t_first_frame_ns,
            t_end_ns: settled
                .t_settled_ns
                .filter(|_| !is_capped)
                .unwrap_or(t_watched_ns),
            frames: settled.frames,
            why_capped: lacks.transpose()?,
            is_over,
        })
    }

    /// What a launch lacks that was watched `within` this.
    fn what_lacks(&self, wanted: Window, is_ready: bool, within: &str) -> Result<String> {
        if is_ready {
            return Ok(format!("its picture did not come to rest {within}"));
        }
        let windows = self.display.windows()?.into_iter();
        let titles: Result<Vec<String>> =
            windows.map(|window| self.display.title(window)).collect();
        Ok(match titles? {
            titles if titles.is_empty() => format!("no window was shown {within}"),
            titles => {
                let part = wanted.ready_title;
                format!("no window's title contained {part:?} {within} (there were {titles:?})")
            }
        })
    }

    fn is_there(&self, wanted: Window) -> Result<bool> {
        for window in self.display.windows()? {
            if self.display.class(window)?.contains(wanted.class)
                && self.display.title(window)?.contains(wanted.ready_title)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_pictures_the_last_is_kept() {
        const DRAWN: u64 = 2_000;
        let mut frames = Vec::new();
        for t_ns in 1..=DRAWN {
            // Two pixels, in every picture others.
            let tiles = Tiles::of(&t_ns.to_le_bytes(), 2, 1, 8);
            push(&mut frames, tiles, |tiles| Frame {
                t_ns,
                tiles,
                cpu_us: 0,
                majflt: 0,
            });
        }
        assert!((frames.len() as u64) < DRAWN);
        assert_eq!(frames.last().map(|frame| frame.t_ns), Some(DRAWN));
    }
}
