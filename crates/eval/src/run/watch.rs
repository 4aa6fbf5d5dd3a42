//! Watches one switch: from asking for the activation to the final picture.

use super::bench::{Bench, Running};
use crate::clock::now_ns;
use crate::display::windows::Change;
use crate::error::Result;
use crate::processes::{Reading, major_faults};
use crate::settle::{Frame, Still, is_answer, is_redrawn};
use crate::tiles::Tiles;

/// What was seen.
#[derive(Debug)]
pub struct Watched {
    /// When the activation was asked for.
    pub t0_ns: u64,
    /// When the window became active, from then.
    pub t_active_ns: Option<u64>,
    /// When the key was pressed, where there is one.
    pub t_key_ns: Option<u64>,
    /// The pictures.
    pub frames: Vec<Frame>,
    /// When watching ended.
    pub t_end_ns: u64,
    /// Whether the cap ended it.
    pub capped: bool,
}

/// At most so many pictures are kept of one switch.
const FRAMES_MAX: usize = 1000;

/// Activates the application's window, presses its key as soon as the window manager has made it active, and keeps a
/// picture of everything drawn, until the key is answered and the picture has stayed for `quiet_ms`, or `cap_ms` are over.
/// An application that has no key answers by drawing again what it had drawn before. `left` is the application's picture
/// when it was left.
pub fn watch(
    bench: &mut Bench,
    running: &Running,
    left: &Tiles,
    before: &Reading,
    quiet_ms: u64,
    cap_ms: u64,
) -> Result<Watched> {
    let key = running.app.answer_key;
    let chord = match key.is_empty() {
        true => Vec::new(),
        false => bench.keyboard.chord(key)?,
    };
    let (quiet_ns, cap_ns) = (quiet_ms * 1_000_000, cap_ms * 1_000_000);
    bench.display.forget_changes()?;
    let (cpu_before_us, majflt_before) = (running.group.cpu_us(), majflt(before));
    let t0_ns = now_ns();
    bench.display.activate(running.window)?;
    let mut seen = Watched {
        t0_ns,
        t_active_ns: None,
        t_key_ns: None,
        frames: Vec::new(),
        t_end_ns: 0,
        capped: false,
    };
    // Whether the last picture shows an answer to the key, or where there is none, what the application had drawn before.
    let mut is_answered = false;
    let mut still = Still {
        picture: left.clone(),
        since_ns: t0_ns,
    };
    loop {
        // Quiet means the end only after the answer: an application that is still waiting for its pages is quiet too.
        let quiet_end = if is_answered {
            still.since_ns + quiet_ns
        } else {
            t0_ns + cap_ns
        };
        match bench.display.next_change(quiet_end.min(t0_ns + cap_ns))? {
            Some(Change::Drawn) => {
                let at_ns = now_ns();
                // Asked for again before the picture is read: what is drawn meanwhile makes another frame.
                bench.display.watch_again()?;
                let tiles = bench.screen.tiles()?;
                still.see(&tiles, at_ns);
                is_answered = match seen.t_key_ns {
                    Some(_) => is_answer(&tiles, left),
                    None => chord.is_empty() && is_redrawn(&tiles, left),
                };
                push(&mut seen.frames, tiles, |tiles| Frame {
                    t_ns: at_ns - t0_ns,
                    tiles,
                    cpu_us: running.group.cpu_us().saturating_sub(cpu_before_us),
                    majflt: major_faults(before.keys().map(|id| id.pid))
                        .saturating_sub(majflt_before),
                });
            }
            Some(Change::Active)
                if seen.t_active_ns.is_none() && bench.display.active()? == running.window =>
            {
                seen.t_active_ns = Some(now_ns() - t0_ns);
                if !chord.is_empty() {
                    bench.keyboard.press(&bench.display.connection, &chord)?;
                    let at_ns = now_ns();
                    still.since_ns = at_ns;
                    seen.t_key_ns = Some(at_ns - t0_ns);
                }
            }
            Some(Change::Active) => {}
            None => break,
        }
    }
    seen.t_end_ns = now_ns() - t0_ns;
    seen.capped = seen.t_end_ns >= cap_ns;
    Ok(seen)
}

fn majflt(reading: &Reading) -> u64 {
    reading.values().map(|counters| counters.majflt).sum()
}

/// Keeps what is seen as a frame, unless it is the same as the one before; only then is `frame` asked for the rest of it.
pub fn push(frames: &mut Vec<Frame>, tiles: Tiles, frame: impl FnOnce(Tiles) -> Frame) {
    if frames.last().is_some_and(|last| last.tiles == tiles) {
        return;
    }
    if frames.len() == FRAMES_MAX {
        frames.pop();
    }
    frames.push(frame(tiles));
}
