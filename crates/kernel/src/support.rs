//! What this kernel and our rights offer: probed facts. No version is compared and no rule is made here.

use crate::block_trace::{BlockKind, BlockTrace};
use crate::cgroup::{self, Hierarchy, Version};
use crate::exec_trace::ExecTrace;
use crate::filemap::{Filemap, FilemapKind};
use crate::pagemap::{PageEntry, Pagemap, ScanSupport, scan_support};
use crate::perf::{FaultRings, Wakeup};
use crate::process::own_pid;
use crate::process_madvise::{self, Advice};
use crate::reclaim::Domain;
use crate::sched::{self, Policy};
use crate::swaps::SwapArea;
use crate::task_events::TaskRings;
use crate::tracefs::Tracefs;
use crate::zram::Zram;
use crate::{
    Process, block, cachestat, credentials, error::Result, fanotify, fault_around, fiemap, open,
    page, process_vm, psi, ptrace, swaps, text, zram,
};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// Whether something is there, and how we know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// It worked when tried.
    pub available: bool,
    /// What was seen: a value, or the error.
    pub detail: String,
}

impl Fact {
    fn of(result: Result<impl Into<String>>) -> Fact {
        match result {
            Ok(detail) => Fact {
                available: true,
                detail: detail.into(),
            },
            Err(error) => Fact {
                available: false,
                detail: error.to_string(),
            },
        }
    }

    fn when(available: bool, detail: impl Into<String>) -> Fact {
        Fact {
            available,
            detail: detail.into(),
        }
    }
}

/// All facts. Probing takes some ms, changes nothing, and leaves nothing behind.
#[derive(Clone, Debug)]
pub struct Support {
    /// The kernel's release, for reports only.
    pub kernel_release: String,
    /// Page size in bytes.
    pub page_size_bytes: u64,
    /// Our effective user id.
    pub effective_uid: u32,
    /// Our effective capabilities, bit N being capability N.
    pub effective_capabilities: u64,
    /// process_vm_readv, tried on ourselves.
    pub process_vm_readv: Fact,
    /// process_madvise(MADV_WILLNEED).
    pub process_madvise_willneed: Fact,
    /// process_madvise(MADV_COLD).
    pub process_madvise_cold: Fact,
    /// pagemap, tried on ourselves.
    pub pagemap: Fact,
    /// The PAGEMAP_SCAN ioctl.
    pub pagemap_scan: ScanSupport,
    /// cachestat.
    pub cachestat: Fact,
    /// System-wide sampling of major faults.
    pub perf_major_faults: Fact,
    /// tracefs, mounted or detached.
    pub tracefs: Fact,
    /// The filemap tracepoints that there are.
    pub filemap_tracepoints: Vec<FilemapKind>,
    /// The block tracepoints that there are.
    pub block_tracepoints: Vec<BlockKind>,
    /// The exec tracepoint.
    pub exec_tracepoint: Fact,
    /// System-wide records of processes and what they map.
    pub task_records: Fact,
    /// Tracing system calls by ptrace.
    pub ptrace: Fact,
    /// Keeping the kernel from mapping pages around the faults of a traced launch.
    pub single_pages: Fact,
    /// FS_IOC_FIEMAP, tried on our own executable.
    pub fiemap: Fact,
    /// fanotify groups with marks on file systems (tried on /proc's parent file system `/`).
    pub fanotify: Fact,
    /// openat2(2) below a root directory (tried with our own, and `/`).
    pub open_in_root: Fact,
    /// Triggers on /proc/pressure/memory.
    pub psi_trigger: Fact,
    /// The memory controller, and in which version.
    pub cgroup_memory: Option<Version>,
    /// Asking a memory cgroup to reclaim: memory.reclaim of v2 (5.19+), memory.force_empty of v1.
    pub cgroup_reclaim: Fact,
    /// Asking the whole machine.
    pub machine_reclaim: Fact,
    /// The freezer of v1.
    pub freezer_v1: Fact,
    /// The unified hierarchy, which has a freezer.
    pub cgroup_v2: Fact,
    /// Active swap areas.
    pub swap_areas: Vec<SwapArea>,
    /// zram devices.
    pub zram: Vec<Zram>,
    /// zswap: there and enabled.
    pub zswap: Fact,
    /// vm.page-cluster.
    pub page_cluster: Option<u32>,
    /// transparent_hugepage/enabled: always, madvise or never.
    pub thp: Option<String>,
    /// Sizes of multi-size THP (6.8+) that are not `never`, in KiB, with their setting.
    pub mthp: Vec<(u64, String)>,
    /// CPUs and their capacities.
    pub cpu_capacities: Vec<(usize, u32)>,
    /// Custom slices for SCHED_OTHER.
    pub sched_slice: Fact,
    /// What the settings of the device below `/` say about the cap of a readahead call, in KiB.
    pub root_readahead_cap_kib: Option<u64>,
    /// Whether the device file below `/` can be opened, so that a file system's layout can be read from it. `None` where `/`
    /// lies on no block device.
    pub root_device_readable: Option<Fact>,
}

impl Support {
    /// Tries everything.
    pub fn probe() -> Support {
        let hierarchies = cgroup::hierarchies().unwrap_or_default();
        let v1 = |name: &str| mounted(&hierarchies, Version::V1, Some(name));
        let v2 = |name: Option<&str>| mounted(&hierarchies, Version::V2, name);
        let tracefs = Tracefs::open();
        let found = Tracepoints::find(tracefs.as_ref().ok());
        let memory = v1("memory").map(|_| Version::V1);
        Support {
            kernel_release: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            page_size_bytes: page::page_size(),
            effective_uid: credentials::effective_uid(),
            effective_capabilities: credentials::effective_capabilities().unwrap_or(0),
            process_vm_readv: probe_process_vm(),
            process_madvise_willneed: probe_madvise(Advice::WillNeed),
            process_madvise_cold: probe_madvise(Advice::Cold),
            pagemap: probe_pagemap(),
            pagemap_scan: scan_support(),
            cachestat: probe_cachestat(),
            perf_major_faults: probe_perf(),
            tracefs: Fact::of(tracefs.map(|_| "opened")),
            filemap_tracepoints: found.filemap,
            block_tracepoints: found.block,
            exec_tracepoint: found.exec,
            task_records: probe_task_records(),
            ptrace: probe_ptrace(),
            single_pages: Fact::of(fault_around::probe().map(|()| "UFFD_FEATURE_WP_ASYNC")),
            fiemap: probe_fiemap(),
            fanotify: probe_fanotify(),
            open_in_root: probe_open_in_root(),
            psi_trigger: Fact::of(
                psi::trigger(Path::new(psi::MEMORY), 150_000, 2_000_000)
                    .map(|_| "told of waits of 150 ms in 2 s"),
            ),
            cgroup_memory: memory.or(v2(Some("memory")).map(|_| Version::V2)),
            cgroup_reclaim: find_cgroup_reclaim(v1("memory"), v2(Some("memory"))),
            machine_reclaim: find_machine_reclaim(&hierarchies),
            freezer_v1: mount_fact(v1("freezer")),
            cgroup_v2: mount_fact(v2(None)),
            swap_areas: swaps::areas().unwrap_or_default(),
            zram: zram::devices().unwrap_or_default(),
            zswap: match swaps::zswap_enabled() {
                Ok(enabled) => Fact::when(enabled, if enabled { "enabled" } else { "disabled" }),
                Err(error) => Fact::when(false, error.to_string()),
            },
            page_cluster: swaps::page_cluster().ok(),
            thp: transparent_huge_pages("enabled"),
            mthp: multi_size_thp(),
            cpu_capacities: sched::capacities().unwrap_or_default(),
            sched_slice: probe_slice(),
            root_readahead_cap_kib: root_device()
                .and_then(|device| device.readahead_cap_kib())
                .ok(),
            root_device_readable: probe_root_device(),
        }
    }
}

struct Tracepoints {
    filemap: Vec<FilemapKind>,
    block: Vec<BlockKind>,
    exec: Fact,
}

impl Tracepoints {
    fn find(tracefs: Option<&Tracefs>) -> Tracepoints {
        let filemap = tracefs.and_then(|fs| Filemap::find(fs, &FilemapKind::ALL).ok());
        let block = tracefs.and_then(|fs| BlockTrace::find(fs, &BlockKind::ALL).ok());
        Tracepoints {
            filemap: filemap.map_or(Vec::new(), |filemap| filemap.kinds().collect()),
            block: block.map_or(Vec::new(), |block| block.kinds().collect()),
            exec: match tracefs {
                Some(fs) => Fact::of(ExecTrace::find(fs).map(|_| "sched_process_exec")),
                None => Fact::when(false, "no tracefs"),
            },
        }
    }
}

/// Where the hierarchy of this version (with this controller, if one is named) is mounted.
fn mounted<'a>(
    hierarchies: &'a [Hierarchy],
    version: Version,
    controller: Option<&str>,
) -> Option<&'a Path> {
    let has = |hierarchy: &&Hierarchy| {
        let names = &hierarchy.controllers;
        let offers = controller.is_none_or(|name| names.iter().any(|one| one == name));
        hierarchy.version == version && offers
    };
    let found = hierarchies.iter().find(has);
    found.map(|hierarchy| hierarchy.mount_point.as_path())
}

fn mount_fact(at: Option<&Path>) -> Fact {
    match at {
        Some(at) => Fact::when(true, at.to_string_lossy()),
        None => Fact::when(false, "not mounted"),
    }
}

/// Looked for, not tried: it would take somebody's memory.
fn find_cgroup_reclaim(v1: Option<&Path>, v2: Option<&Path>) -> Fact {
    let file = match (v1, v2) {
        (Some(v1), _) => v1.join("memory.force_empty"),
        (None, Some(v2)) => v2.join("memory.reclaim"),
        (None, None) => return Fact::when(false, "no memory controller is mounted"),
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match file.exists() {
        true => Fact::when(true, name),
        false => Fact::when(false, format!("there is no {name}")),
    }
}

/// As above.
fn find_machine_reclaim(hierarchies: &[Hierarchy]) -> Fact {
    match Domain::machine(hierarchies) {
        Some(Domain::Machine { files }) => Fact::when(true, files[0].to_string_lossy()),
        _ => Fact::when(false, "neither a root memory.reclaim nor a node's reclaim"),
    }
}

/// The page of something of our own that is mapped for sure.
fn own_page(value: &u64) -> u64 {
    page::page_of(std::ptr::from_ref(value) as u64)
}

fn probe_process_vm() -> Fact {
    let value = 1;
    match process_vm::touch(own_pid(), &[own_page(&value)]) {
        Ok(1) => Fact::when(true, "read a page of our own"),
        Ok(_) => Fact::when(false, "could not read a page of our own"),
        Err(error) => Fact::when(false, error.to_string()),
    }
}

fn probe_madvise(advice: Advice) -> Fact {
    // The page of our code that is executing: WILLNEED and COLD of it do no harm. Our stack could be
    // locked memory, which takes no such advice.
    let page = page::page_of(probe_madvise as fn(Advice) -> Fact as usize as u64);
    let ranges = std::slice::from_ref(&(page..page + 1)).to_vec();
    match Process::open(own_pid())
        .and_then(|own| process_madvise::advise(own.pidfd(), advice, &ranges))
    {
        Ok(1) => Fact::when(true, "takes a page of our own"),
        Ok(_) => Fact::when(
            false,
            "EINVAL: this kernel does not take such advice, or our memory is locked",
        ),
        Err(error) => Fact::when(false, error.to_string()),
    }
}

fn probe_pagemap() -> Fact {
    let value = 1;
    let mut entries = [PageEntry::default()];
    match Pagemap::open(own_pid()).and_then(|pagemap| pagemap.read(own_page(&value), &mut entries))
    {
        Ok(1) if entries[0].present() => Fact::when(true, "our own stack is in memory"),
        Ok(_) => Fact::when(
            false,
            "our own stack seems not to be in memory: entries are hidden",
        ),
        Err(error) => Fact::when(false, error.to_string()),
    }
}

fn probe_cachestat() -> Fact {
    let opened = std::fs::File::open("/proc/self/exe")
        .map_err(|error| crate::Error::new("open", "/proc/self/exe", error));
    let stat = opened.and_then(|file| cachestat::cachestat(file.as_fd(), 0, 0));
    Fact::of(stat.map(|stat| format!("{} pages of our executable", stat.cached)))
}

fn probe_perf() -> Fact {
    let rings = sched::online_cpus().and_then(|cpus| {
        let rings = FaultRings::open(&cpus, 1, std::num::NonZeroU64::MIN, Wakeup::Events(1))?;
        rings.enable()?;
        rings.disable()?;
        Ok(format!("on {} CPUs", cpus.len()))
    });
    Fact::of(rings)
}

fn probe_task_records() -> Fact {
    let rings = sched::online_cpus().and_then(|cpus| {
        let rings = TaskRings::open(&cpus, 1, Wakeup::Bytes(1))?;
        rings.enable()?;
        rings.disable()?;
        Ok(format!("on {} CPUs", cpus.len()))
    });
    Fact::of(rings)
}

/// Nothing is traced for it: a process that cannot exist is told apart from a request that is refused.
fn probe_ptrace() -> Fact {
    let yama = text::read_line("/proc/sys/kernel/yama/ptrace_scope");
    let detail = match &yama {
        Ok(scope) => format!("Yama's ptrace_scope is {scope}"),
        Err(_) => "no Yama that restricts it".to_owned(),
    };
    match ptrace::seize(i32::MAX) {
        Err(error) if error.is_gone() => Fact::when(yama.as_deref().ok() != Some("3"), detail),
        Err(error) => Fact::when(false, error.to_string()),
        Ok(()) => Fact::when(false, "it claims to trace a process that does not exist"),
    }
}

fn probe_fiemap() -> Fact {
    const EXTENTS_MAX: usize = 1024;
    let opened = std::fs::File::open("/proc/self/exe")
        .map_err(|error| crate::Error::new("open", "/proc/self/exe", error));
    let found = opened.and_then(|file| fiemap::extents(file.as_fd(), EXTENTS_MAX));
    Fact::of(found.map(|found| format!("{} extents of our executable", found.list.len())))
}

fn probe_fanotify() -> Fact {
    let marked = fanotify::Fanotify::new().and_then(|group| group.mark_filesystem(Path::new("/")));
    Fact::of(marked.map(|()| "marked the file system of /"))
}

fn probe_open_in_root() -> Fact {
    let root = open::process_root(own_pid());
    let found = root.and_then(|root| open::stat_in_root(root.as_fd(), Path::new("/")));
    Fact::of(found.map(|_| "our own"))
}

fn probe_slice() -> Fact {
    const SLICE_US: u64 = 400;
    // On a thread of its own, so that the caller's policy stays.
    let thread = std::thread::spawn(|| -> Result<Policy> {
        let nice = match sched::current_thread_policy()? {
            Policy::Other { nice, .. } => nice,
            Policy::Idle => 19,
            Policy::RealTime => 0,
        };
        sched::set_current_thread_policy(Policy::Other {
            nice,
            slice_us: Some(SLICE_US),
        })?;
        sched::current_thread_policy()
    });
    match thread.join() {
        Ok(Ok(Policy::Other {
            slice_us: Some(SLICE_US),
            ..
        })) => Fact::when(true, "400 us, as asked for"),
        Ok(Ok(policy)) => Fact::when(false, format!("400 us were asked for, there is {policy:?}")),
        Ok(Err(error)) => Fact::when(false, error.to_string()),
        Err(_) => Fact::when(false, "the probing thread panicked"),
    }
}

fn root_device() -> Result<block::BlockDevice> {
    block::BlockDevice::of_path(Path::new("/"))
}

fn probe_root_device() -> Option<Fact> {
    let path = format!("/dev/{}", root_device().ok()?.name());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path.as_str(), flags, Mode::empty());
    Some(Fact::of(match opened {
        Ok(_) => Ok(path),
        Err(error) => Err(crate::Error::new("open", path, error)),
    }))
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

fn transparent_huge_pages(file: &str) -> Option<String> {
    let choices = text::read_line(Path::new(THP).join(file)).ok()?;
    Some(zram::selected(&choices).to_owned())
}

fn multi_size_thp() -> Vec<(u64, String)> {
    let Ok(entries) = std::fs::read_dir(THP) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut sizes: Vec<(u64, String)> = names
        .filter_map(|name| {
            let size = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let setting = transparent_huge_pages(&format!("{name}/enabled"))?;
            (setting != "never").then_some((size, setting))
        })
        .collect();
    sizes.sort();
    sizes
}
