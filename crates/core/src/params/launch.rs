//! Parameters of launch help (FAST, Table 2), with the paper's value named where it has one.

use super::range::{ParamError, check_order};
use crate::ranges;
use serde::{Deserialize, Serialize};

/// In which order a launch's pages are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchOrder {
    /// In the order in which launches first access them: FAST.
    #[default]
    Launch,
    /// By address on the device: the sorted prefetch of FAST section 2.1.
    Lba,
    /// Every file of the sequence from beginning to end. For comparison.
    WholeFiles,
    /// Nothing is fetched.
    None,
}

/// When the application begins to run, seen from its prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchStart {
    /// At the same time: FAST.
    #[default]
    Together,
    /// When the prefetch is complete: sorted prefetch.
    Before,
    /// Not at all: FAST's scenario "prefetcher only", which measures the device's share of a launch.
    Only,
}

/// Parameters of launch help (FAST section 4.4 and Table 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaunchParams {
    /// N_rawseq: recordings that are made before a launch sequence is extracted from them. The paper: 2.
    pub n_rawseq: u32,
    /// N_chk: launches in the prefetch phase from one check of the miss ratio to the next. The paper names no value,
    /// and 1 for a recorder that costs nothing noticeable (section 5.3).
    pub n_chk: u32,
    /// The same where recording costs more than `recording_share_max`.
    pub n_chk_costly: u32,
    /// Recorded launches in the prefetch phase that tell the pages that launches use from those that are mapped along
    /// with them: a quarter of the windows of those that may be either is left out each time, in turns. The paper's
    /// kernel reported what was read, not what was used.
    pub n_refine: u32,
    /// One in so many launches does so: it takes longer, by up to a tenth, for what it may gain later.
    pub refine_every: u32,
    /// Share of a launch's time that recording may take before it is done less often.
    pub recording_share_max: f32,
    /// R_miss: miss ratio above which the sequence is deleted and learned anew. The paper: 0.1.
    pub r_miss: f32,
    /// T_idle: a launch that is recorded is over when it has read nothing from the device, and accessed nothing of its sequence
    /// for the first time, for this long, in milliseconds. Others end with their processes. The paper: 2000.
    pub t_idle_ms: u64,
    /// T_timeout: a launch is over at the latest after this long, in milliseconds. The paper: 30000.
    pub t_timeout_ms: u64,
    /// Order of the prefetch. The paper's FAST: `launch`, its sorted prefetch: `lba`.
    pub order: LaunchOrder,
    /// When the application begins to run. The paper's FAST: `together`, its sorted prefetch: `before`.
    pub start: LaunchStart,
    /// `order` on a rotational device. The paper's best for disks (section 5.3): `lba`.
    pub rotational_order: LaunchOrder,
    /// `start` on a rotational device. The paper's best for disks (section 5.3): `before`.
    pub rotational_start: LaunchStart,
    /// Extents of one file less than this many pages apart are read as one, within `merge_window_pages`: a request costs an
    /// eMMC as much as 8 pages, and the disk that this was measured on 10.
    pub merge_gap_pages: u64,
    /// Extents are merged only among so many consecutive pages of the sequence, so that what is needed first does not
    /// wait for what is needed much later.
    pub merge_window_pages: u64,
    /// A long sequence has at most so many such windows, which are longer then: on a slow device its launch waits for all of it
    /// in any case, which takes as long as the requests do.
    pub merge_windows_max: u64,
    /// Most bytes that one call asks for; it is lowered to what the device takes, since the kernel silently cuts a
    /// larger one, and is a part of `fetch.launch_depth_bytes`, so that several are in flight.
    pub call_bytes: u64,
    /// Most bytes that one launch's prefetch reads, gap pages included.
    pub budget_bytes: u64,
    /// Most bytes of inodes' and directories' blocks that are read through a file system's device, where that works: ext2, ext3 and
    /// ext4 on a device that may be opened. 0 leaves them to the look-ups.
    pub metadata_bytes: u64,
    /// An application whose launch sequence has fewer pages is too small to gain and left alone. Where the kernel
    /// reports accesses, whole fault-around windows count: on Debian 12 `uname` has 689 pages, `git version` 992; the pages of
    /// a traced launch, whose accesses show one by one, count twice. Not applied where it reports insertions only, since few of
    /// them may mean that much was in memory.
    pub pages_min: u64,
    /// An application of which a cold launch takes less than this, in microseconds, is too small to gain and left alone. Warm
    /// launches do not tell. The paper's `uname`: 2200.
    pub launch_us_min: u64,
    /// One in so many launches that could be helped is held out, to measure whether help helps. 0 turns hold-outs off.
    pub holdout_every: u32,
    /// Cold launches, helped and as many held out, that must have been measured before they are compared.
    pub samples_min: usize,
    /// Of an application whose launches took less than this, in microseconds, when they were recorded, as many are held out
    /// as are helped until it is clear whether help helps: its cost, some milliseconds, may be more than it gains.
    pub trial_launch_us: u64,
    /// Launches held out after which their median and that of the helped decide where nothing was clear until then.
    pub trial_samples: usize,
    /// Share by which helped launches must be shorter than those held out; otherwise the prefetch is switched
    /// off.
    pub gain_min: f32,
    /// Launches after which an application that is left alone is learned anew. Doubled each time that this was in vain.
    pub retry_launches: u32,
    /// Most that `retry_launches` is doubled to.
    pub retry_launches_max: u32,
}

impl Default for LaunchParams {
    fn default() -> Self {
        Self {
            n_rawseq: 2,
            n_chk: 1,
            n_chk_costly: 8,
            n_refine: 16,
            refine_every: 8,
            recording_share_max: 0.01,
            r_miss: 0.1,
            t_idle_ms: 2_000,
            t_timeout_ms: 30_000,
            order: LaunchOrder::Launch,
            start: LaunchStart::Together,
            rotational_order: LaunchOrder::Lba,
            rotational_start: LaunchStart::Before,
            merge_gap_pages: 8,
            merge_window_pages: 2_048,
            merge_windows_max: 4,
            call_bytes: 256 << 10,
            budget_bytes: 512 << 20,
            metadata_bytes: 16 << 20,
            pages_min: 768,
            launch_us_min: 3_000,
            holdout_every: 8,
            samples_min: 3,
            trial_launch_us: 40_000,
            trial_samples: 8,
            gain_min: 0.02,
            retry_launches: 32,
            retry_launches_max: 1_024,
        }
    }
}

ranges!(LaunchParams in "launch" {
    n_rawseq: 1 to 16,
    n_chk: 1 to 1_000_000,
    n_chk_costly: 1 to 1_000_000,
    n_refine: 0 to 1_000_000,
    refine_every: 1 to 1_000_000,
    recording_share_max: 0 to 1,
    r_miss: 0 to 1,
    t_idle_ms: 1 to 600_000,
    t_timeout_ms: 1 to 600_000,
    merge_gap_pages: 0 to 4_096,
    merge_window_pages: 1 to 65_536,
    merge_windows_max: 1 to 1_000_000,
    call_bytes: 4_096 to 1_000_000_000,
    budget_bytes: 4_096 to 1_000_000_000_000,
    metadata_bytes: 0 to 1_000_000_000,
    pages_min: 0 to 1_000_000,
    launch_us_min: 0 to 60_000_000,
    holdout_every: 0 to 1_000_000,
    samples_min: 1 to TIMES_MAX,
    trial_launch_us: 0 to 60_000_000,
    trial_samples: 1 to TIMES_MAX,
    gain_min: 0 to 1,
    retry_launches: 1 to 1_000_000,
    retry_launches_max: 1 to 1_000_000,
});

impl LaunchParams {
    /// Checks every range, and what parameters must be to each other.
    ///
    /// # Errors
    /// The first parameter that is not what it may be.
    pub fn check(&self) -> Result<(), ParamError> {
        self.check_ranges()?;
        check_order(
            ("launch.n_chk", self.n_chk),
            ("launch.n_chk_costly", self.n_chk_costly),
        )?;
        check_order(
            ("launch.t_idle_ms", self.t_idle_ms),
            ("launch.t_timeout_ms", self.t_timeout_ms),
        )?;
        check_order(
            ("launch.samples_min", self.samples_min),
            ("launch.trial_samples", self.trial_samples),
        )?;
        check_order(
            ("launch.retry_launches", self.retry_launches),
            ("launch.retry_launches_max", self.retry_launches_max),
        )
    }
}

/// Launch times kept of each kind, helped and held out.
pub const TIMES_MAX: usize = 16;
