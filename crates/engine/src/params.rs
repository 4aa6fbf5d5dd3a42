//! Parameters of fetching and observing, with the paper's value named where it has one.

use prepage_core::machine::Nanos;
use prepage_core::params::ParamError;
use prepage_core::ranges;
use prepage_kernel::filemap::FilemapKind;
use serde::{Deserialize, Serialize};

/// How the scheduler treats the threads that fetch anonymous pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadPolicy {
    /// SCHED_FIFO, paced: a thread that holds a lock of the application's address space is never kept off its core, and
    /// the application gets the core whenever it pauses. As `other` where the kernel refuses.
    RealTime,
    /// SCHED_OTHER, paced, with a short slice. A preempted thread keeps its locks until the next tick.
    Other,
    /// SCHED_IDLE, as in ASAP section 5.1. With all cores busy a preempted thread keeps locks that the application
    /// then waits for.
    Idle,
}

/// On which cores, and how, file pages are fetched (ASAP sections 5.2 and 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorePolicy {
    /// The paper's own: one SCHED_OTHER thread on the big cores for large files, one SCHED_IDLE thread on each
    /// other core for the rest. These have nothing to do under [`FileOrder::Access`], whose order is one thread's to keep.
    Asap,
    /// One thread on one big core.
    Big1,
    /// One thread on each big core.
    BigAll,
    /// One thread on one little core.
    Little1,
    /// One thread on each little core.
    LittleAll,
    /// As IORap: one thread, page by page, file pages only. For comparison.
    Iorap,
}

impl CorePolicy {
    /// Every one, in the order of the paper.
    pub const ALL: [Self; 6] = [
        Self::Asap,
        Self::Big1,
        Self::BigAll,
        Self::Little1,
        Self::LittleAll,
        Self::Iorap,
    ];

    /// The word for it, in the configuration, on the command line and in the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Asap => "asap",
            Self::Big1 => "big1",
            Self::BigAll => "big-all",
            Self::Little1 => "little1",
            Self::LittleAll => "little-all",
            Self::Iorap => "iorap",
        }
    }
}

/// In which order file pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileOrder {
    /// In the order in which the application first accesses them, over all files, with a bounded amount in flight: the
    /// application's own reads are not stuck behind pages that it needs later.
    Access,
    /// File by file, large ones first, all at once: the paper's (ASAP section 5.2).
    File,
}

/// How pages are fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchParams {
    /// Anonymous pages that a thread takes from the plan at a time. The paper: 16.
    pub anon_batch_pages: u64,
    /// Scheduling of the threads that fetch anonymous pages. The paper: `idle`.
    pub anon_policy: ThreadPolicy,
    /// Nice value of those threads under `other`.
    pub anon_nice: i32,
    /// Their scheduler slice under `other`, in microseconds (6.12 and later; 0 leaves the kernel's): the
    /// application is kept off a core for no longer.
    pub anon_slice_us: u64,
    /// Threads for anonymous pages; 0 means one for each core. Each is pinned to a core.
    pub anon_threads: usize,
    /// After so many pages a thread pauses, so that the application gets the address space's lock.
    pub pace_pages: u64,
    /// Length of that pause, in microseconds; 0 means none.
    pub pace_us: u64,
    /// Pages of a disk swap device that a thread has read at a time. It submits the next ones before it maps these, so
    /// that twice as many are in flight: what the application itself waits for stands in line behind them.
    pub disk_span_pages: u64,
    /// Most runs of adjacent pages among them: each is a read, and reads are what a disk has a limit for.
    pub disk_span_reads: usize,
    /// Cores and threads for file pages; of `asap`'s, those that wait for idle cores have work with `file_order = "file"` alone.
    /// `prepage policy` changes it until the next start, or until another one is set here and the configuration is read again.
    pub core_policy: CorePolicy,
    /// The big cores; empty: those of the highest capacity in sysfs.
    pub big_cores: Vec<usize>,
    /// The little cores; empty: those of the lowest capacity in sysfs.
    pub little_cores: Vec<usize>,
    /// Most bytes that one readahead call asks for; it is lowered to what the device takes, since the kernel
    /// silently cuts a larger one.
    pub file_call_bytes: u64,
    /// Order in which file pages are read. The paper: `file`.
    pub file_order: FileOrder,
    /// With `file_order = "access"`: most bytes in flight for one thread.
    pub file_depth_bytes: u64,
    /// Most bytes in flight for a launch. What the application reads meanwhile, of files or of directories, waits behind
    /// them.
    pub launch_depth_bytes: u64,
    /// Threads that replay the paths of a launch, beside the one that reads its pages.
    pub path_threads: usize,
    /// With `file_order = "file"`: distance, in pages, at which one page is read ahead of the rest where the file
    /// system maps files by indirect or direct node blocks. The paper: 512.
    pub metadata_stride_pages: u64,
    /// A thread that has been in one system call for this long, in milliseconds, is given up and replaced.
    pub watchdog_ms: u64,
    /// Most threads that hang at once in what is one user's: while more do, nothing is fetched for that user's applications.
    pub replacements_max: usize,
}

impl Default for FetchParams {
    fn default() -> Self {
        Self {
            anon_batch_pages: 16,
            anon_policy: ThreadPolicy::Other,
            anon_nice: 0,
            anon_slice_us: 100,
            anon_threads: 0,
            pace_pages: 64,
            pace_us: 20,
            disk_span_pages: 32,
            disk_span_reads: 4,
            core_policy: CorePolicy::Asap,
            big_cores: Vec::new(),
            little_cores: Vec::new(),
            file_call_bytes: 1 << 20,
            file_order: FileOrder::Access,
            file_depth_bytes: 1 << 20,
            launch_depth_bytes: 512 << 10,
            path_threads: 4,
            metadata_stride_pages: 512,
            watchdog_ms: 1_000,
            replacements_max: 16,
        }
    }
}

/// How switches are observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveParams {
    /// Pages of each core's ring for demand faults. One fault takes 32 bytes. A change needs a restart.
    pub fault_ring_pages: usize,
    /// Pages of each core's ring for file accesses. One access takes about 80 bytes, and the page fault
    /// that it comes from 48. A change needs a
    /// restart.
    pub file_ring_pages: usize,
    /// Demand faults of one core after which the service looks whether a switch has begun. A change needs a restart.
    pub onset_wakeup_faults: u32,
    /// Demand faults up to this long before the signal belong to the switch, in milliseconds: the application may
    /// have been told of it before we were.
    pub lookback_ms: u64,
    /// Most demand faults kept for one switch: the paper's fault buffer.
    pub fault_buffer_pages: usize,
    /// Most distinct (process, file) pairs kept for one switch, of the application's own processes.
    pub file_buffer_files: usize,
    /// Share of the pages that the application faulted on or prepaging mapped that may be swapped out again
    /// at the end of the switch; above it the observation is void.
    pub reclaimed_share_max: f32,
    /// Whether mapped access is taken from the kernel's reports where it has them (6.12 and later). Otherwise a
    /// fetched page counts as used where it is mapped at the end, as in the paper. A change needs a restart.
    pub access_events: bool,
    /// How long the end of a switch waits for fetching threads, in milliseconds.
    pub settle_ms: u64,
    /// An observation that takes longer than this, in milliseconds, is given up; the application's next ones are not
    /// made until it is through.
    pub watchdog_ms: u64,
}

impl ObserveParams {
    /// From when on demand faults belong to a switch with a signal at this time.
    pub(crate) fn lookback_from(&self, signal: Nanos) -> Nanos {
        signal.saturating_sub(self.lookback_ms * 1_000_000)
    }

    /// The tracepoints of file pages that are listened to, where the kernel has them.
    pub(crate) fn filemap_kinds(&self) -> &'static [FilemapKind] {
        match self.access_events {
            true => &FilemapKind::ALL,
            false => &[FilemapKind::Added],
        }
    }
}

impl Default for ObserveParams {
    fn default() -> Self {
        Self {
            fault_ring_pages: 256,
            file_ring_pages: 256,
            onset_wakeup_faults: 32,
            lookback_ms: 100,
            fault_buffer_pages: 65_536,
            file_buffer_files: 4_096,
            reclaimed_share_max: 0.02,
            access_events: true,
            settle_ms: 200,
            watchdog_ms: 5_000,
        }
    }
}

/// All parameters of this crate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineParams {
    /// Fetching.
    pub fetch: FetchParams,
    /// Observing.
    pub observe: ObserveParams,
}

ranges!(FetchParams in "fetch" {
    anon_batch_pages: 1 to 1_024,
    anon_nice: -20 to 19,
    anon_slice_us: 0 to 100_000,
    anon_threads: 0 to 256,
    pace_pages: 1 to 1_000_000,
    pace_us: 0 to 10_000,
    disk_span_pages: 1 to 65_536,
    disk_span_reads: 1 to 65_536,
    file_call_bytes: 4_096 to 1_000_000_000,
    file_depth_bytes: 4_096 to 1_000_000_000,
    launch_depth_bytes: 4_096 to 1_000_000_000,
    path_threads: 1 to 16,
    metadata_stride_pages: 1 to 1_000_000,
    watchdog_ms: 1 to 600_000,
    replacements_max: 0 to 1_024,
});

ranges!(ObserveParams in "observe" {
    fault_ring_pages: power_of_two 1 to 16_384,
    file_ring_pages: power_of_two 1 to 16_384,
    onset_wakeup_faults: 1 to 1_000_000,
    lookback_ms: 0 to 60_000,
    fault_buffer_pages: 1 to 16_777_216,
    file_buffer_files: 1 to 1_048_576,
    reclaimed_share_max: 0 to 1,
    settle_ms: 0 to 60_000,
    watchdog_ms: 1 to 600_000,
});

impl EngineParams {
    /// Checks every range.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ParamError> {
        self.fetch.check_ranges()?;
        self.observe.check_ranges()
    }
}
