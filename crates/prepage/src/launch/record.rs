//! What one launch did: a line of `prepage run --report`, and of `prepage stats`.

use super::decide::Decided;
use prepage_core::identity::AppId;
use prepage_core::launch::manager::{Help, Phase};
use prepage_core::launch::misses::{Misses, from_accesses, from_requests};
use prepage_core::launch::recording::{LaunchEnd, Recording};
use prepage_engine::{LaunchResult, PrefetchOutcome};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::page::page_size;
use serde::{Deserialize, Serialize};

/// One launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// The application's id.
    pub app: String,
    /// The phase in which it began: `profiling`, `generation`, `prefetch`, or `{"off": why}`.
    pub phase: Phase,
    /// What was decided for it.
    pub decision: DecisionRecord,
    /// From its beginning to its end, in microseconds, without the idle time that showed the end. None where that does not
    /// say how long it took: it was idle, on a kernel that reports no accesses.
    pub launch_us: Option<u64>,
    /// Pages that it accessed in files whose names were not found.
    pub unresolved_pages: u64,
    /// Files that it accessed beyond those that a recording holds.
    #[serde(default)]
    pub files_left_out: u64,
    /// When the device had completed the last block that was read for it, by its processes or ahead of them, in microseconds
    /// since its beginning: the paper's measure. None where it was not recorded, or nothing was read.
    #[serde(default)]
    pub last_block_us: Option<u64>,
    /// Why it was taken to be over.
    pub end: LaunchEnd,
    /// Pages that the device read for it, whoever asked.
    pub device_pages: u64,
    /// What was fetched.
    pub prefetch: Option<PrefetchOutcome>,
    /// What was recorded.
    pub recording: Option<RecordingRecord>,
    /// What it had to read that the sequence does not hold, by accesses: what `launch.r_miss` judges.
    pub misses: Option<Misses>,
    /// The same by block requests, in the paper's classes; none without a block map.
    pub request_misses: Option<Misses>,
    /// What came after it, in nobody's way.
    pub after: AfterRecord,
    /// From its beginning until the command was executed, in microseconds; none where nobody waited for that.
    pub t_begin_to_exec_us: Option<u64>,
    /// From the exec until the prefetch began, in microseconds; none where the launch was announced.
    pub noticed_us: Option<u64>,
}

/// How long what comes after a launch that was recorded took (FAST Table 4, the last step of its cases 4 and 7), in
/// microseconds; 0 without a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterRecord {
    /// To name its files and look them up on their devices (FAST's LBA-to-inode reverse mapper).
    pub named_us: u64,
    /// To count its misses.
    pub misses_us: u64,
    /// To learn from it, which may generate the launch sequence, and to write the profile. Not counted where the service
    /// does it, which writes behind.
    pub learned_us: u64,
}

/// A decision, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// It is recorded.
    pub records: bool,
    /// Its path calls as well.
    pub profiles_paths: bool,
    /// Pages to fetch.
    pub prefetch_pages: u64,
    /// Of these, pages that launches do not use.
    pub gap_pages: u64,
    /// Paths to replay.
    pub paths: u64,
    /// It could be helped and is not.
    pub held_out: bool,
}

/// A recording, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingRecord {
    /// Pages accessed.
    pub pages: u64,
    /// Files.
    pub files: u64,
    /// Path calls.
    pub calls: u64,
    /// Block requests of the machine.
    pub requests: u64,
    /// Events lost.
    pub lost: u64,
    /// CPU time, in microseconds.
    pub cpu_us: u64,
}

impl From<&Decided> for DecisionRecord {
    fn from(decided: &Decided) -> Self {
        let decision = &decided.decision;
        let plan = decision.prefetch.as_ref();
        Self {
            records: decision.records,
            profiles_paths: decision.profiles_paths,
            prefetch_pages: plan.map_or(0, |p| p.pages()),
            gap_pages: plan.map_or(0, |p| p.gap_pages),
            paths: plan.map_or(0, |p| p.paths.len() as u64),
            held_out: decision.is_held_out,
        }
    }
}

impl LaunchRecord {
    /// That of a launch that is over.
    pub fn new(app: &AppId, decided: &Decided, result: &LaunchResult) -> Self {
        let (recording, sequence) = (result.recording.as_ref(), &decided.state.sequence);
        let since_ns = decided.state.began_ns;
        let began = monotonic_ns();
        let known = recording.filter(|_| !sequence.reads.is_empty());
        let by_map = known.zip(result.block_map.as_ref());
        let misses = known.map(|r| from_accesses(r, sequence, since_ns));
        let request_misses =
            by_map.map(|(r, map)| from_requests(r, map, sequence, since_ns, page_size()));
        let counted_us = (monotonic_ns() - began) / 1_000;
        Self {
            app: app.to_string(),
            phase: decided.state.phase,
            decision: DecisionRecord::from(decided),
            launch_us: result.measured.launch_us,
            unresolved_pages: result.unresolved_pages,
            files_left_out: recording.map_or(0, |r| r.files_left_out),
            last_block_us: recording.and_then(Recording::last_block_us),
            end: result.measured.end,
            device_pages: result.measured.device_pages,
            prefetch: result.prefetch,
            recording: recording.map(|r| in_numbers(r, result.measured.recording_us)),
            misses,
            request_misses,
            after: AfterRecord {
                named_us: result.named_us,
                misses_us: known.map_or(0, |_| counted_us),
                learned_us: 0,
            },
            t_begin_to_exec_us: None,
            noticed_us: None,
        }
    }

    /// Whether it was helped, held out, or neither.
    pub fn help(&self) -> Help {
        match (self.prefetch.is_some(), self.decision.held_out) {
            (true, _) => Help::Helped,
            (false, true) => Help::HeldOut,
            (false, false) => Help::None,
        }
    }
}

fn in_numbers(recording: &Recording, cpu_us: u64) -> RecordingRecord {
    RecordingRecord {
        pages: recording.pages(),
        files: recording.files.len() as u64,
        calls: recording.calls.len() as u64,
        requests: recording.requests.len() as u64,
        lost: recording.events_lost,
        cpu_us,
    }
}
