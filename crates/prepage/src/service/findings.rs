//! What this kernel and this machine offer, what is missing, and what that costs: facts in, sentences out.

use prepage_kernel::block_trace::BlockKind;
use prepage_kernel::cgroup::Version;
use prepage_kernel::filemap::FilemapKind;
use prepage_kernel::pagemap::ScanSupport;
use prepage_kernel::support::{Fact, Support};
use prepage_kernel::swaps::SwapArea;
use serde::Serialize;

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Works,
    /// It does not, and that costs something.
    Missing,
    /// Neither good nor bad.
    Note,
}

/// One line of `prepage doctor`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub what: &'static str,
    /// Whether it works.
    pub state: State,
    /// What was seen.
    pub detail: String,
    /// What works without it and what does not; empty where it works.
    pub cost: &'static str,
}

impl Finding {
    /// What is missing and what that costs, in one line; `None` where nothing is.
    pub fn missing_line(&self) -> Option<String> {
        let Self {
            what, detail, cost, ..
        } = self;
        (self.state == State::Missing).then(|| format!("{what}: {detail}: {cost}"))
    }
}

/// What [`swap`] is about.
pub const SWAP: &str = "swap";

/// A fact, what it is about, and what its absence costs.
type Rule<'a> = (&'static str, &'a Fact, &'static str);

/// Everything worth saying, in the order of importance.
pub fn findings(support: &Support) -> Vec<Finding> {
    let mut list = vec![rights(support), swap(&support.swap_areas)];
    list.extend(events(support));
    list.extend(rules(support).into_iter().map(of_fact));
    list.extend([
        pagemap_scan(support),
        root_device(support),
        memory_controller(support),
        thaw(support),
    ]);
    list.extend(notes(support));
    list
}

/// What comes as perf events: nothing does where they are denied, which is said once.
fn events(support: &Support) -> Vec<Finding> {
    let faults = (
        "system-wide events (perf)",
        &support.perf_major_faults,
        "nothing is learned, neither of switches nor of launches, and neither the onset of faults nor an exec is a signal; what \
         profiles hold is fetched as ever, and focus, thaw and explicit calls still work. It takes root with CAP_PERFMON, which \
         containers do without (docker run --cap-add PERFMON, with a seccomp profile that lets perf_event_open pass): run \
         prepage outside of it, or give it that",
    );
    if !faults.1.available {
        return vec![of_fact(faults)];
    }
    let of_launches = [
        (
            "launches (exec tracepoint)",
            &support.exec_tracepoint,
            "a launch is seen only where somebody announces it",
        ),
        (
            "processes and mapped files of a launch (perf task records)",
            &support.task_records,
            "the processes and mapped files of a launch come from /proc, which misses what is short-lived",
        ),
    ];
    let facts = [faults].into_iter().chain(of_launches).map(of_fact);
    let accesses = [file_accesses(support), block_requests(support)];
    facts.chain(accesses).collect()
}

fn rules(support: &Support) -> [Rule<'_>; 15] {
    [
        (
            "page table view (pagemap)",
            &support.pagemap,
            "the use of prepaged anonymous pages stays unknown, so that none is fetched with confidence",
        ),
        (
            "swap-in and mapping (process_vm_readv)",
            &support.process_vm_readv,
            "anonymous pages can be brought to the swap cache only: the application still faults, briefly",
        ),
        (
            "swap readahead (process_madvise WILLNEED)",
            &support.process_madvise_willneed,
            "Linux has it from 5.10 on: without it pages come from a disk one by one, and their use cannot be watched",
        ),
        (
            "cooling (process_madvise COLD)",
            &support.process_madvise_cold,
            "pages that were fetched for nothing look used to the kernel, which may push out better ones for them",
        ),
        (
            "page cache view (cachestat)",
            &support.cachestat,
            "Linux has it from 6.5 on, and gives it to who may write the file: without it pages that are in memory already are asked \
             for again, at little cost",
        ),
        (
            "tracepoints (tracefs)",
            &support.tracefs,
            "file accesses are not seen: file pages are not learned; that takes root, and a kernel that has tracefs",
        ),
        (
            "files below an application's root (openat2)",
            &support.open_in_root,
            "Linux has it from 5.6 on; RestrictSUIDSGID= of a unit takes it away: no file page is learned or fetched",
        ),
        (
            "paths of files (fanotify)",
            &support.fanotify,
            "paths come from /proc only: files that are read and closed at once stay unresolved; it takes CAP_SYS_ADMIN",
        ),
        (
            "paths of a launch (ptrace)",
            &support.ptrace,
            "the paths that a launch looks up, missing ones too, are not learned: only pages of files are fetched",
        ),
        (
            "single pages of a launch (userfaultfd)",
            &support.single_pages,
            "Linux has it from 6.7 on, prepage on x86-64: without it a launch shows what the kernel maps around its faults, and it takes some \
             twenty cold launches to learn which of these pages it uses",
        ),
        (
            "places of files on disk (FIEMAP)",
            &support.fiemap,
            "block requests of a launch cannot be traced back to files; file accesses still are",
        ),
        (
            "memory pressure (PSI trigger)",
            &support.psi_trigger,
            "Linux has it from 5.2 on, some kernels with psi=1 at boot only; before 6.5 it takes CAP_SYS_RESOURCE, which a drop-in \
             of prepaged.service adds by CapabilityBoundingSet=CAP_SYS_RESOURCE: without it as much is fetched as ever while \
             tasks wait for memory",
        ),
        (
            "reclaim ahead of switches, below a memory limit",
            &support.cgroup_reclaim,
            "Linux has it from 5.19 on: without it pages that are fetched while a memory limit is reached push out others first, and \
             help little",
        ),
        (
            "reclaim ahead of switches, of the machine",
            &support.machine_reclaim,
            "Linux has it from 5.19 on with memory controlled by version 2 of cgroups, else from 6.17 on: without it pages that are \
             fetched while memory is full push out others first, and help little",
        ),
        (
            "scheduler slice",
            &support.sched_slice,
            "Linux has it from 6.12 on: without it fetching threads may keep the application off a core for a few ms when all \
             cores are busy",
        ),
    ]
}

fn of_fact((what, fact, cost): Rule<'_>) -> Finding {
    match fact.available {
        true => works(what, fact.detail.clone()),
        false => missing(what, fact.detail.clone(), cost),
    }
}

/// What works.
pub fn works(what: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        what,
        state: State::Works,
        detail: detail.into(),
        cost: "",
    }
}

fn missing(what: &'static str, detail: impl Into<String>, cost: &'static str) -> Finding {
    Finding {
        what,
        state: State::Missing,
        detail: detail.into(),
        cost,
    }
}

/// What is neither good nor bad.
pub fn note(what: &'static str, detail: impl Into<String>) -> Finding {
    Finding {
        what,
        state: State::Note,
        detail: detail.into(),
        cost: "",
    }
}

fn rights(support: &Support) -> Finding {
    match support.effective_uid {
        0 => works(
            "rights",
            format!("root, capabilities {:#x}", support.effective_capabilities),
        ),
        uid => missing(
            "rights",
            format!("user {uid}, not root"),
            "the service runs as root, and has more than what follows, which is this user's: `sudo prepage doctor` \
             shows root's, and `prepage status` what the service lacks",
        ),
    }
}

/// Whether there is swap now: it comes and goes.
pub fn swap(areas: &[SwapArea]) -> Finding {
    if areas.is_empty() {
        return missing(
            SWAP,
            "no swap area is active",
            "what applications hold in memory (anonymous pages) is never swapped out, so there is nothing to fetch of it; \
             pages of files are fetched as ever. zram is the usual choice: see zramctl(8) and swapon(8)",
        );
    }
    let area = |area: &SwapArea| {
        let (used, size) = (area.used_kib >> 10, area.size_kib >> 10);
        format!("{} ({used} of {size} MiB used)", area.path.display())
    };
    let areas: Vec<String> = areas.iter().map(area).collect();
    works(SWAP, areas.join(", "))
}

fn pagemap_scan(support: &Support) -> Finding {
    let what = "page table scan (PAGEMAP_SCAN)";
    match support.pagemap_scan {
        ScanSupport::Absent => missing(
            what,
            "this kernel has none",
            "Linux has it from 6.7 on: without it observing a switch takes a few ms more of CPU time, after the switch",
        ),
        ScanSupport::Plain => works(what, "does not tell guard pages (from 6.15 on)"),
        ScanSupport::WithGuard => works(what, "tells guard pages"),
    }
}

fn file_accesses(support: &Support) -> Finding {
    let what = "file accesses (filemap tracepoints)";
    let kinds = &support.filemap_tracepoints;
    if kinds.contains(&FilemapKind::GetPages) && kinds.contains(&FilemapKind::Fault) {
        return works(what, "reads and mapped accesses");
    }
    match kinds.contains(&FilemapKind::Added) {
        true => missing(
            what,
            "only pages read from disk",
            "Linux reports accesses from 6.12 on: here the use of a fetched file page shows only where it is mapped, and \
             learning takes more switches",
        ),
        false => missing(
            what,
            "none",
            "file pages are not learned; anonymous pages work",
        ),
    }
}

fn block_requests(support: &Support) -> Finding {
    let what = "block requests (block tracepoints)";
    match support.block_tracepoints.contains(&BlockKind::Issue) {
        true => works(what, "issue and completion"),
        false => missing(
            what,
            "none",
            "the requests of a launch are not recorded; file accesses still are",
        ),
    }
}

fn memory_controller(support: &Support) -> Finding {
    let what = "memory control groups";
    match support.cgroup_memory {
        Some(Version::V1) => works(what, "version 1"),
        Some(Version::V2) => works(what, "version 2"),
        None => missing(
            what,
            "no memory controller",
            "fetched pages are charged to nobody, and reclaim during a switch is noticed from pages only",
        ),
    }
}

fn thaw(support: &Support) -> Finding {
    let what = "thawing as a signal";
    match (support.cgroup_v2.available, support.freezer_v1.available) {
        (false, false) => missing(
            what,
            "no freezer is mounted",
            "a thawed application is no signal; focus, the onset of faults and explicit calls are",
        ),
        (true, true) => works(what, "control groups of versions 1 and 2"),
        (true, false) => works(what, "control groups of version 2"),
        (false, true) => works(what, "control groups of version 1"),
    }
}

fn root_device(support: &Support) -> Finding {
    let what = "metadata blocks of a launch (device of /)";
    match &support.root_device_readable {
        None => note(
            what,
            "/ lies on no block device: inodes and directories are read by look-ups only",
        ),
        Some(fact) if fact.available => works(
            what,
            format!(
                "on ext2 to ext4 inodes and directories are read ahead, on ext4 requests of the journal told apart, from {}",
                fact.detail
            ),
        ),
        Some(fact) => missing(
            what,
            fact.detail.clone(),
            "inodes and directories of a launch are read by look-ups only, and misses of the journal are not known; it takes \
             root, and a unit or container that denies no block devices: before systemd 252 ProtectClock= does, as DeviceAllow= and \
             DevicePolicy= do",
        ),
    }
}

fn notes(support: &Support) -> Vec<Finding> {
    let zram = support
        .zram
        .iter()
        .map(|z| format!("{} ({})", z.name, z.algorithm));
    let zram: Vec<String> = zram.collect();
    let none_or = |text: String| {
        if text.is_empty() {
            "none".to_owned()
        } else {
            text
        }
    };
    let mthp = support
        .mthp
        .iter()
        .map(|(kib, setting)| format!("{kib} KiB {setting}"));
    let mthp: Vec<String> = mthp.collect();
    let cap = support.root_readahead_cap_kib;
    vec![
        note("kernel", support.kernel_release.clone()),
        note("page size", format!("{} bytes", support.page_size_bytes)),
        note("cores", format!("{}", support.cpu_capacities.len())),
        note("zram", none_or(zram.join(", "))),
        note("zswap", support.zswap.detail.clone()),
        note(
            "swapped pages that a fault reads (vm.page-cluster)",
            support
                .page_cluster
                .map_or("unknown".into(), |n| (1_u64 << n.min(16)).to_string()),
        ),
        note(
            "transparent huge pages",
            support.thp.clone().unwrap_or_else(|| "none".into()),
        ),
        note("multi-size huge pages (mTHP)", none_or(mthp.join(", "))),
        note(
            "longest readahead call on /",
            cap.map_or("unknown".into(), |kib| format!("{kib} KiB")),
        ),
    ]
}
