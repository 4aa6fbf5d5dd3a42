//! How long single page faults and mapping calls of an application take while a switch is watched.
//!
//! Every fault of every process is noted twice, which takes some 2 us: so this is for switches of its own.

use crate::error::{Context, Result};
use crate::readings::{Pace, Recorder};
use crate::record::Longest;
use prepage_kernel::sched;
use prepage_kernel::spans::{Mark, Span, SpanKind, SpanRings, pair};
use std::collections::HashSet;

/// How often the rings are emptied: for longer than the longest switch is watched.
const PACE: Pace = Pace {
    interval_ns: 20_000_000,
    readings_max: 1_000,
};

/// Room for some 30,000 faults of a core between two readings, more than one core can have.
const RING_PAGES: usize = 256;

/// What a reading found, or all of them.
#[derive(Debug, Default)]
pub struct SeenSpans {
    marks: Vec<Mark>,
    sees_calls: bool,
    lost: u64,
}

/// The faults and calls of all processes, from its start to its end.
#[derive(Debug)]
pub struct Spans(Recorder<SeenSpans>);

impl Spans {
    /// Starts noting them.
    pub fn start() -> Result<Self> {
        let mut rings = open()?;
        rings.enable().context("start", "noting faults and calls")?;
        Ok(Self(Recorder::start(PACE, move || read(&mut rings))))
    }

    /// Ends it.
    pub fn finish(self) -> SeenSpans {
        let mut all = SeenSpans::default();
        for mut reading in self.0.finish() {
            all.marks.append(&mut reading.marks);
            all.sees_calls = reading.sees_calls;
            all.lost += reading.lost;
        }
        all
    }
}

/// Says on standard error why the longest faults, or only calls, cannot be seen here; whether anything can.
pub fn is_possible() -> bool {
    match open() {
        Ok(rings) => {
            if let Some(why) = rings.why_no_calls() {
                eprintln!("the longest mapping calls are not measured: {why}");
            }
            true
        }
        Err(why) => {
            eprintln!("the longest faults and mapping calls are not measured: {why}");
            false
        }
    }
}

fn open() -> Result<SpanRings> {
    let cpus = sched::online_cpus().context("list", "processors")?;
    SpanRings::open(&cpus, RING_PAGES).context("open", "perf rings of faults")
}

fn read(rings: &mut SpanRings) -> SeenSpans {
    let mut marks = Vec::new();
    let drained = rings.drain(|mark| marks.push(mark));
    SeenSpans {
        marks,
        sees_calls: rings.why_no_calls().is_none(),
        lost: drained.lost + drained.malformed + drained.full,
    }
}

impl SeenSpans {
    /// The longest of these processes, of what began and ended within that time.
    pub fn longest(mut self, pids: &HashSet<i32>, from_ns: u64, until_ns: u64) -> Longest {
        self.marks.retain(|mark| pids.contains(&mark.pid));
        let mut longest = Longest {
            call_ns: self.sees_calls.then_some(0),
            lost: self.lost,
            ..Longest::default()
        };
        let is_within = |span: &Span| from_ns <= span.begin_ns && span.end_ns <= until_ns;
        for span in pair(&mut self.marks).into_iter().filter(is_within) {
            match span.kind {
                SpanKind::Fault { .. } => {
                    longest.faults += 1;
                    longest.fault_ns = longest.fault_ns.max(span.len_ns());
                }
                SpanKind::Call(call) => {
                    longest.calls += 1;
                    if Some(span.len_ns()) > longest.call_ns {
                        longest.call_ns = Some(span.len_ns());
                        longest.call = Some(call.name().to_owned());
                    }
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;
    use prepage_kernel::process::own_pid;
    use prepage_kernel::spans::{Edge, MapCall};
    use std::hint::black_box;

    fn ends(pid: i32, kind: SpanKind, begin_ns: u64, end_ns: u64) -> [Mark; 2] {
        let mark = |time_ns, edge| Mark {
            time_ns,
            pid,
            tid: pid,
            kind,
            edge,
        };
        [mark(begin_ns, Edge::Begin), mark(end_ns, Edge::End)]
    }

    #[test]
    fn the_longest_is_that_of_the_application_while_it_is_watched() {
        const FAULT: SpanKind = SpanKind::Fault { address: 0x1000 };
        let (app, other) = (7, 8);
        let marks = [
            ends(app, FAULT, 90, 110),
            ends(app, FAULT, 120, 150),
            ends(app, FAULT, 160, 165),
            ends(other, FAULT, 120, 180),
            ends(app, SpanKind::Call(MapCall::Mmap), 100, 104),
            ends(app, SpanKind::Call(MapCall::Brk), 151, 157),
            ends(app, SpanKind::Call(MapCall::Munmap), 190, 210),
        ];
        let seen = SeenSpans {
            marks: marks.concat(),
            sees_calls: true,
            lost: 0,
        };
        let expected = Longest {
            fault_ns: 30,
            faults: 2,
            call_ns: Some(6),
            call: Some("brk".into()),
            calls: 2,
            lost: 0,
        };
        assert_eq!(seen.longest(&HashSet::from([app]), 100, 200), expected);
        let unseen = SeenSpans::default().longest(&HashSet::from([app]), 100, 200);
        assert_eq!((unseen.call_ns, unseen.call), (None, None));
    }

    #[test]
    fn a_large_region_that_is_given_back_is_the_longest_call() {
        const LEN: usize = 128 << 20;
        assert!(is_possible(), "this test needs perf events, as root");
        let region = black_box(vec![1_u8; LEN]);
        let spans = Spans::start().expect("rings");
        let from_ns = now_ns();
        drop(region);
        let until_ns = now_ns();
        let longest = spans
            .finish()
            .longest(&HashSet::from([own_pid()]), from_ns, until_ns);
        let call_ns = longest
            .call_ns
            .expect("this test needs CONFIG_FTRACE_SYSCALLS");
        assert_eq!(longest.call.as_deref(), Some("munmap"), "{longest:?}");
        let waited_ns = until_ns - from_ns;
        assert!(
            call_ns <= waited_ns && call_ns > waited_ns / 2 && longest.lost == 0,
            "{longest:?} of {waited_ns} ns"
        );
    }

    #[test]
    fn the_faults_of_a_new_region_are_seen() {
        // More than malloc keeps of what was given back.
        const LEN: usize = 64 << 20;
        let spans = Spans::start().expect("rings");
        let from_ns = now_ns();
        drop(black_box(vec![1_u8; LEN]));
        let until_ns = now_ns();
        let longest = spans
            .finish()
            .longest(&HashSet::from([own_pid()]), from_ns, until_ns);
        assert!(longest.faults > 0 && longest.fault_ns > 0, "{longest:?}");
        assert_eq!(longest.lost, 0, "{longest:?}");
    }
}
