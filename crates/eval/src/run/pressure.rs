//! The pressure setting: other applications push the measured one out under a shared limit, by being used.

use super::bench::{Bench, Desk, Running, group_becomes_idle, launch};
use crate::apps::App;
use crate::display::session::command_in;
use crate::error::{Context, Error, Result};
use crate::group::{Group, GroupResidency};
use crate::random::Random;
use crate::reclaim::{self, State};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use x11rb::protocol::xproto::Window;

/// The others: a second instance of the application with other content, and a process with a large working set.
#[derive(Debug)]
pub struct Others {
    /// Their group.
    pub group: Group,
    window: Window,
    hog: Hog,
    /// Held: the second instance.
    _process: Child,
}

/// A process that holds memory and touches all of it when told to.
#[derive(Debug)]
struct Hog {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Parts in which the process goes over its working set.
const PARTS: usize = 16;
/// It goes over it at most so often between two switches.
const PASSES_MAX: usize = 3;
/// The others are used until so many hundredths of the application's swappable pages are out.
pub const OUT_PERCENT: u64 = 85;

impl Others {
    /// Starts them.
    pub fn start(
        app: &App,
        seed: u64,
        hog_mib: u64,
        desk: &Desk<'_>,
        group: Group,
    ) -> Result<Self> {
        let (process, window) = launch(app, "other", seed ^ 0x5eed, desk, &group)?;
        let own = std::env::current_exe().context("find", "own executable")?;
        let mut hog = command_in(&group, &own.to_string_lossy())?
            .args([
                "hog",
                "--mib",
                &hog_mib.to_string(),
                "--seed",
                &seed.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start", "hog")?;
        let input = hog.stdin.take().expect("piped");
        let output = BufReader::new(hog.stdout.take().expect("piped"));
        Ok(Self {
            group,
            window,
            hog: Hog {
                _process: hog,
                input,
                output,
            },
            _process: process,
        })
    }

    /// Uses them: a person works in the second instance for a moment, then the process goes over its working set, part
    /// by part, until the application is out. Returns how many parts that took.
    fn work(&mut self, bench: &Bench, running: &Running, random: &mut Random) -> Result<u64> {
        const ACTIONS: usize = 3;
        const IDLE_LIMIT_MS: u64 = 5_000;
        bench.display.activate_and_wait(self.window)?;
        let app = &running.app;
        // One that answers to no key is drawn again by its window alone.
        if !app.answer_key.is_empty() {
            bench.type_keys(&[app.answer_key])?;
        }
        for _ in 0..ACTIONS {
            bench.type_keys(app.contexts[random.below(app.contexts.len())].keys)?;
        }
        group_becomes_idle(&self.group, IDLE_LIMIT_MS);
        for part in 0..PARTS * PASSES_MAX {
            if out_percent(&running.group.residency()) >= OUT_PERCENT {
                return Ok(part as u64);
            }
            self.hog.touch(part % PARTS)?;
        }
        Ok((PARTS * PASSES_MAX) as u64)
    }
}

impl Hog {
    fn touch(&mut self, part: usize) -> Result<()> {
        let mut line = String::new();
        writeln!(self.input, "{part}").context("tell", "hog")?;
        self.output.read_line(&mut line).context("hear", "hog")?;
        if line.trim() == "done" {
            Ok(())
        } else {
            Err(Error::new("use", "hog", "it is gone"))
        }
    }
}

/// The body of the hidden `hog` command: half of every page is noise, so that it compresses about two to one.
pub fn hog(mib: u64, seed: u64) {
    let page_words = rustix::param::page_size() / 8;
    let mut random = Random::stream(seed, "hog");
    let mut words = vec![0u64; (mib << 20) as usize / 8];
    for page in words.chunks_mut(page_words) {
        page[..page_words / 2].fill_with(|| random.next_u64());
    }
    let part_words = words.len().div_ceil(PARTS).max(1);
    for line in std::io::stdin().lock().lines() {
        let part = line.ok().and_then(|line| line.trim().parse::<usize>().ok());
        let Some(words) = part.and_then(|part| words.chunks_mut(part_words).nth(part)) else {
            return;
        };
        for page in words.chunks_mut(page_words) {
            page[0] = page[0].wrapping_add(1);
        }
        println!("done");
    }
}

/// Uses the others until the application is largely out.
pub fn push_out(
    bench: &mut Bench,
    running: &Running,
    random: &mut Random,
) -> Result<std::result::Result<State, (String, State)>> {
    let mut others = bench
        .others
        .take()
        .expect("the pressure setting has others");
    let worked = others.work(bench, running, random);
    bench.others = Some(others);
    let rounds = worked?;
    bench.display.activate_and_wait(bench.other.window)?;
    let mut state = reclaim::look(&running.group, bench.service_group())?;
    state.rounds = rounds;
    // A little may have come back since: its timers run.
    if out_percent(&state.group) + 5 >= OUT_PERCENT {
        Ok(Ok(state))
    } else {
        Ok(Err((
            "the others did not push the application out".to_owned(),
            state,
        )))
    }
}

/// How many hundredths of an application's swappable pages are out.
pub fn out_percent(group: &GroupResidency) -> u64 {
    let all = group.swap_bytes + group.anon_bytes + group.shmem_bytes;
    100 * group.swap_bytes / all.max(1)
}
