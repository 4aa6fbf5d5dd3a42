//! The first accesses of a warm launch: when it needs which part of its launch sequence. The order in which it does
//! bounds a prefetch that brings pages in while it runs (see [`super::study`]).

use super::cache::SequencePages;
use super::record::{Demand, FirstAccesses};
use crate::clock::{now_ns, sleep_ms};
use crate::error::{Context, Error, Result};
use prepage_core::launch::manager::Decision;
use prepage_core::launch::recording::Recording;
use prepage_core::launch::sequence::LaunchSequence;
use prepage_core::params::launch::LaunchParams;
use prepage_engine::{EngineParams, Launch, Launches, Rights};
use prepage_kernel::filemap::FilemapKind;
use prepage_kernel::support::Support;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// prepage's recorder, in this process.
#[derive(Debug)]
pub struct Recorder {
    launches: Launches,
    began_ns: u64,
}

/// The only launch that it follows at a time.
const ID: u64 = 1;

impl Recorder {
    /// Starts it; `None` where the kernel does not report accesses (before 6.12), of which a warm launch shows nothing.
    pub fn start() -> Result<Option<Self>> {
        let support = Support::probe();
        if !support.filemap_tracepoints.contains(&FilemapKind::GetPages) {
            return Ok(None);
        }
        let (engine, launch) = (EngineParams::default(), LaunchParams::default());
        let launches = Launches::start(&engine, &launch, &support.cpu_capacities);
        let launches = launches.context("start", "prepage's recorder")?;
        Ok(launches.can_record().then_some(Self {
            launches,
            began_ns: 0,
        }))
    }

    /// Records the launch of a process that waits for its exec.
    pub fn begin(&mut self, pid: i32) {
        self.began_ns = now_ns();
        self.launches.begin(Launch {
            id: ID,
            root_pid: pid,
            rights: Rights {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            },
            began: self.began_ns,
            began_wall_ns: 0,
            coldness: None,
            decision: Decision {
                records: true,
                ..Decision::default()
            },
            sequence: Arc::new(LaunchSequence::default()),
            traces_paths: false,
            rings_wait_max: Duration::from_secs(1),
        });
    }

    /// Ends the recording and returns what the launch showed, with times since `t0_ns`, when the process was let go.
    pub fn end(&self, t0_ns: u64) -> Result<Recording> {
        let mut recording = self.wait_for_end()?;
        let waited_us = t0_ns.saturating_sub(self.began_ns) / 1_000;
        for access in &mut recording.accesses {
            access.at_us = access.at_us.saturating_sub(waited_us);
        }
        Ok(recording)
    }

    fn wait_for_end(&self) -> Result<Recording> {
        const LIMIT_NS: u64 = 20_000_000_000;
        const STEP_MS: u64 = 10;
        self.launches.settled(ID);
        let start = now_ns();
        while now_ns() - start < LIMIT_NS {
            if let Some(result) = self.launches.results().pop() {
                let none = || Error::new("record", "a launch", "nothing was recorded");
                return result.recording.ok_or_else(none);
            }
            sleep_ms(STEP_MS);
        }
        Err(Error::new("record", "a launch", "it has no end"))
    }
}

/// When a launch that was recorded, and ended after so long, first accessed which part of a sequence.
pub fn first_accesses(
    program: &str,
    recording: &Recording,
    sequence: &SequencePages,
    t_end_us: u64,
) -> FirstAccesses {
    let (mut certain, mut mapped) = (Vec::new(), Vec::new());
    let (mut certain_pages, mut mapped_pages) = (0, 0);
    for access in &recording.accesses {
        let Some(file) = recording.files.get(access.file as usize) else {
            continue;
        };
        let pages = sequence.pages_in(Path::new(&*file.path), access.extent);
        if pages == 0 || access.at_us > t_end_us {
            continue;
        }
        mapped_pages += pages;
        push(&mut mapped, mapped_pages, access.at_us);
        if access.is_certain {
            certain_pages += pages;
            push(&mut certain, certain_pages, access.at_us);
        }
    }
    FirstAccesses {
        program: program.to_owned(),
        t_end_us,
        sequence_pages: sequence.pages(),
        events_lost: recording.events_lost,
        certain,
        mapped,
    }
}

/// Adds a demand, and drops those before it that bind no prefetch, however fast device and processor are: those below
/// the line from their neighbour to it. What stays is the upper hull: some tens of demands of thousands.
fn push(demands: &mut Vec<Demand>, pages: u64, at_us: u64) {
    let new = (pages, at_us);
    while let [.., first, middle] = demands[..]
        && !is_above(first, middle, new)
    {
        demands.pop();
    }
    demands.push(new);
}

/// Whether the middle one asks for more pages than the line from the first to the last has at its time.
fn is_above(first: Demand, middle: Demand, last: Demand) -> bool {
    let pages = |from: Demand, to: Demand| (to.0 - from.0) as u128;
    let time = |from: Demand, to: Demand| (to.1 - from.1) as u128;
    pages(first, middle) * time(first, last) > pages(first, last) * time(first, middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_demands_that_are_kept_bind_as_all_of_them_do() {
        let mut random = Random::new(3);
        for _ in 0..200 {
            let mut all = vec![(0, 0)];
            for _ in 0..40 {
                let &(pages, at_us) = all.last().expect("not empty");
                let (more, later) = (random.below(9) as u64, random.below(5) as u64);
                all.push((pages + more, at_us + later));
            }
            let mut kept = Vec::new();
            for &(pages, at_us) in &all {
                push(&mut kept, pages, at_us);
            }
            assert!(kept.iter().all(|demand| all.contains(demand)));
            // Whatever a page costs the device, and a microsecond the processor.
            for (device, processor) in [(1, 0), (0, 1), (1, 1), (3, 1), (1, 3), (100, 7)] {
                let largest = |demands: &[Demand]| {
                    let of =
                        |&(pages, at_us): &Demand| device * pages as i64 - processor * at_us as i64;
                    demands.iter().map(of).max()
                };
                assert_eq!(largest(&kept), largest(&all));
            }
        }
    }
}
