//! Every parameter of the estimators, the plan and the switch, with the paper's value named where it has one.
//!
//! The configuration file has one table for each struct here and one key for each field. What a number may be is said once,
//! by [`ranges!`](crate::ranges).

pub mod launch;
pub mod range;

use crate::ranges;
use launch::LaunchParams;
pub use range::ParamError;
use range::check_order;
use serde::{Deserialize, Serialize};

/// What prepage does at a switch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing: no observing, no learning, no fetching.
    Off,
    /// Observe and learn, never fetch.
    Observe,
    /// Fetch anonymous pages only (the paper's Anon-only).
    Anon,
    /// Fetch file pages only (the paper's File-only).
    File,
    /// Fetch both (the paper's ASAP).
    #[default]
    Full,
}

impl Mode {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Off, Self::Observe, Self::Anon, Self::File, Self::Full];

    /// The word for it, in the configuration, on the command line and in the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Anon => "anon",
            Self::File => "file",
            Self::Full => "full",
        }
    }

    /// Whether this mode fetches anything.
    pub const fn fetches(self) -> bool {
        self.fetches_anon() || self.fetches_files()
    }

    /// Whether this mode fetches anonymous pages.
    pub const fn fetches_anon(self) -> bool {
        matches!(self, Self::Anon | Self::Full)
    }

    /// Whether this mode fetches file pages.
    pub const fn fetches_files(self) -> bool {
        matches!(self, Self::File | Self::Full)
    }
}

/// Which rule chooses the target pages among those known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnonRule {
    /// ASAP section 4.3: every page of the target table is fetched until its timeout counter evicts it.
    Paper,
    /// Pages whose history was, in this application, followed by use with at least the plan's confidence.
    History,
}

/// Which rule chooses the file pages that may become targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileCandidates {
    /// ASAP section 4.2: pages accessed in more than `profile_accesses_min` of `profile_switches` switches.
    Offline,
    /// Pages whose history was, in this application, followed by use with at least the plan's confidence: helps
    /// from the second switch on. It stays precise because the probability is measured by history, not assumed: a
    /// history that is not followed by use falls below the confidence after one switch and is fetched no more.
    Online,
}

/// Parameters of the estimator for anonymous pages (ASAP section 4.3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnonParams {
    /// Rule that chooses the targets. The paper: `paper`.
    pub rule: AnonRule,
    /// Observed switches without access after which a page is evicted from its table. The paper: 5.
    pub timeout_switches: u8,
    /// A target page that is mapped directly is observed at least once in this many switches (it is then brought
    /// to the swap cache only, where its use can be seen). Pages newly promoted or in doubt are observed more
    /// often: the interval grows sixteenfold with each observed use from 1 up to this.
    pub observe_interval_max: u8,
    /// Most runs of pages kept for one application, over all its processes; 8 bytes each, and 4 for each run of at most 64
    /// pages that is planned. `budget.table_bytes_max` bounds them as well.
    pub runs_max: usize,
}

impl Default for AnonParams {
    fn default() -> Self {
        Self {
            rule: AnonRule::History,
            timeout_switches: 5,
            observe_interval_max: 16,
            runs_max: 24_000,
        }
    }
}

/// Most switches that the profiling phase may take.
pub const PROFILE_SWITCHES_MAX: u8 = 100;

/// Parameters of the estimator for file pages (ASAP section 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileParams {
    /// Rule that chooses the candidates. The paper: `offline`.
    pub file_candidates: FileCandidates,
    /// Switches of the profiling phase. The paper: 10.
    pub profile_switches: u8,
    /// A page accessed in more than this many of them is a candidate. The paper: 8.
    pub profile_accesses_min: u8,
    /// Extents less than this many pages apart, of one place in the order of first access, are read as one. The paper
    /// knows no order, and merges all of a file. The paper: 16.
    pub merge_gap_pages: u64,
    /// Observed switches without access after which a page that is no target is forgotten.
    pub timeout_switches: u8,
    /// Where what is planned is what is used, file accesses are observed in one of so many helped switches: from every one,
    /// the interval doubles up to this. 1 observes each switch. The paper: 1.
    pub observe_interval_max: u8,
    /// Most files known for one application.
    pub files_max: usize,
    /// Most runs of pages kept for one application, over all files; 10 bytes each, and up to 56 where they are planned.
    /// `budget.table_bytes_max` bounds them as well.
    pub runs_max: usize,
}

impl Default for FileParams {
    fn default() -> Self {
        Self {
            file_candidates: FileCandidates::Online,
            profile_switches: 10,
            profile_accesses_min: 8,
            merge_gap_pages: 16,
            timeout_switches: 10,
            observe_interval_max: 4,
            files_max: 512,
            runs_max: 4_500,
        }
    }
}

/// Parameters of the switch: when it begins and ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchParams {
    /// A switch ends when no demand fault was seen for this long, in milliseconds.
    pub quiet_ms: u64,
    /// Fewer demand faults than this within `quiet_ms` are quiet: applications never stop altogether.
    pub quiet_faults: u64,
    /// A switch ends at the latest after this long, in milliseconds.
    pub cap_ms: u64,
    /// Demand that goes on for this long, in milliseconds, after all of the plan is in does not end: the application is asked
    /// for something else all the time, as a service is, and help would only stand in its way.
    pub endless_ms: u64,
    /// Such an application is left alone for so many switches, and twice as many each time that it is found so again.
    pub retry_switches: u32,
    /// Most switches that it is left alone for.
    pub retry_switches_max: u32,
    /// Demand faults within `onset_window_ms` that are taken as the beginning of a switch, where the application
    /// is largely swapped out. 0 turns this signal off.
    pub onset_faults: u32,
    /// Window of `onset_faults`, in milliseconds.
    pub onset_window_ms: u64,
    /// The plan knows what faults begin where at least this share of them is of planned anonymous pages. Other faults are
    /// observed, and nothing is fetched: they are those of timers in the background, or of a switch that the plan does not know
    /// yet.
    pub onset_planned_share: f32,
    /// For so long after a switch, in milliseconds, demand faults are no beginning of another: the application is in
    /// use, or being reclaimed. Twice as long each time that such a switch is undone by reclaim, or turns out to be none, up to
    /// 32 times, planned faults are taken as unplanned ones: what an application does in the background is not to be held in
    /// memory against reclaim.
    pub onset_pause_ms: u64,
    /// Where the plan knows the faults, they begin a switch if as many planned pages again as `onset_faults` are swapped out;
    /// where it does not, if at least this share of the anonymous memory of the process that faults is.
    pub onset_swapped_share: f32,
    /// Least time between two switches of one application, in milliseconds: a signal within it is a repetition.
    pub repeat_ms: u64,
}

impl Default for SwitchParams {
    fn default() -> Self {
        Self {
            quiet_ms: 250,
            quiet_faults: 32,
            cap_ms: 3_000,
            endless_ms: 1_000,
            retry_switches: 16,
            retry_switches_max: 1024,
            onset_faults: 256,
            onset_window_ms: 100,
            onset_planned_share: 0.3,
            onset_pause_ms: 2_000,
            onset_swapped_share: 0.3,
            repeat_ms: 300,
        }
    }
}

/// Parameters of the plan and its budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetParams {
    /// Least measured probability of use with which an anonymous page is fetched. A page that is fetched for
    /// nothing costs about as much as one that the application has to swap in itself.
    pub confidence: f32,
    /// The same for a file page. It is lower: who misses a page waits for the device, behind all that is in flight,
    /// for as long as it takes to read a hundred others.
    pub file_confidence: f32,
    /// Both under memory pressure: tasks stall on memory, anywhere on the machine (`service.pressure_percent`).
    pub confidence_pressure: f32,
    /// Most pages that a plan may be expected to waste: pages times one minus their probability.
    pub waste_pages_max: u64,
    /// Mapped pages with a lower probability of use than this, of which nothing saw the use, are made cold again
    /// at the end of the switch.
    pub cool_below: f32,
    /// Weight that the calibration's counts keep from one switch to the next.
    pub calibration_keep: f32,
    /// Most bytes of memory that one application's tables and plan take. Where they would take more, runs of pages are evicted:
    /// the least used first.
    pub table_bytes_max: usize,
}

impl Default for BudgetParams {
    fn default() -> Self {
        Self {
            confidence: 0.6,
            file_confidence: 0.4,
            confidence_pressure: 0.7,
            waste_pages_max: 16_384,
            cool_below: 0.9,
            calibration_keep: 0.8,
            table_bytes_max: 300_000,
        }
    }
}

/// Parameters of the headroom that is made ahead of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReclaimParams {
    /// Whether the kernel is asked, while nobody waits, to reclaim what the next switch will need, where a memory limit or the
    /// machine has not as much left (proactive reclaim). Fetching is for nothing there without: each page pushes out another.
    pub ahead: bool,
    /// How long after a switch that is looked after, in milliseconds, and again after twice that, and so on.
    pub after_ms: u64,
    /// The longest time from one look to the next, in milliseconds. After it nothing is looked after until the next switch, or
    /// until memory pressure is over.
    pub after_ms_max: u64,
    /// How much is wanted, as a multiple of what is out of the plan, since a switch allocates more; besides, what the plans of the
    /// last switches missed.
    pub plan_multiple: f32,
    /// Largest share of a limit, or of the machine's memory, that is kept free.
    pub share_max: f32,
    /// Percent of the time in which some task waits for memory, anywhere on the machine, at which reclaiming ahead pauses:
    /// somebody needs what is to be taken.
    pub stall_percent_max: u32,
}

impl Default for ReclaimParams {
    fn default() -> Self {
        Self {
            ahead: true,
            after_ms: 1_000,
            after_ms_max: 64_000,
            plan_multiple: 1.5,
            share_max: 0.25,
            stall_percent_max: 10,
        }
    }
}

/// All parameters of the pure part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Estimator for anonymous pages.
    pub anon: AnonParams,
    /// Estimator for file pages.
    pub file: FileParams,
    /// Begin and end of a switch.
    pub switch: SwitchParams,
    /// Plan and budget.
    pub budget: BudgetParams,
    /// Headroom ahead of a switch.
    pub reclaim: ReclaimParams,
    /// Launch help.
    pub launch: LaunchParams,
}

ranges!(AnonParams in "anon" {
    timeout_switches: 1 to 127,
    observe_interval_max: power_of_two 1 to 128,
    runs_max: 64 to 1_048_576,
});

ranges!(FileParams in "file" {
    profile_switches: 1 to PROFILE_SWITCHES_MAX,
    profile_accesses_min: 0 to PROFILE_SWITCHES_MAX - 1,
    merge_gap_pages: 0 to 4_096,
    timeout_switches: 1 to 127,
    observe_interval_max: 1 to 64,
    files_max: 1 to 65_536,
    runs_max: 64 to 1_048_576,
});

ranges!(SwitchParams in "switch" {
    quiet_ms: 1 to 60_000,
    quiet_faults: 1 to 1_000_000,
    cap_ms: 1 to 60_000,
    endless_ms: 1 to 60_000,
    retry_switches: 1 to 1_000_000,
    retry_switches_max: 1 to 1_000_000,
    onset_faults: 0 to 1_000_000,
    onset_window_ms: 1 to 60_000,
    onset_planned_share: 0 to 1,
    onset_pause_ms: 0 to 3_600_000,
    onset_swapped_share: 0 to 1,
    repeat_ms: 0 to 60_000,
});

ranges!(BudgetParams in "budget" {
    confidence: 0 to 1,
    file_confidence: 0 to 1,
    confidence_pressure: 0 to 1,
    waste_pages_max: 0 to 1_000_000_000,
    cool_below: 0 to 1,
    calibration_keep: 0 to 1,
    table_bytes_max: 8_192 to 1_000_000_000,
});

ranges!(ReclaimParams in "reclaim" {
    after_ms: 100 to 600_000,
    after_ms_max: 100 to 86_400_000,
    plan_multiple: 0 to 16,
    share_max: 0 to 1,
    stall_percent_max: 1 to 100,
});

impl Params {
    /// Checks every range, and what parameters must be to each other.
    ///
    /// # Errors
    /// The first parameter that is not what it may be.
    pub fn check(&self) -> Result<(), ParamError> {
        self.anon.check_ranges()?;
        self.file.check_ranges()?;
        self.switch.check_ranges()?;
        self.budget.check_ranges()?;
        self.reclaim.check_ranges()?;
        let (file, switch) = (&self.file, &self.switch);
        if file.profile_accesses_min >= file.profile_switches {
            let expected = format!("below file.profile_switches ({})", file.profile_switches);
            let (name, found) = ("file.profile_accesses_min", file.profile_accesses_min);
            return Err(ParamError::new(name, expected, found));
        }
        check_order(
            ("switch.quiet_ms", switch.quiet_ms),
            ("switch.cap_ms", switch.cap_ms),
        )?;
        check_order(
            ("switch.retry_switches", switch.retry_switches),
            ("switch.retry_switches_max", switch.retry_switches_max),
        )?;
        check_order(
            ("reclaim.after_ms", self.reclaim.after_ms),
            ("reclaim.after_ms_max", self.reclaim.after_ms_max),
        )?;
        self.launch.check()
    }
}
