//! What a result depends on and a reader must know: the machine, its swap, its disk, its settings.

use crate::group::Hierarchies;
use crate::record::{Machine, SwapDevice};
use crate::sysfs;
use prepage_kernel::block::BlockDevice;
use prepage_kernel::mountinfo;
use prepage_kernel::swaps::{self, SwapArea, SwapKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub fn time_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

/// The versions of this program and, where it takes part, of prepage.
pub fn versions(prepage: Option<String>) -> BTreeMap<String, String> {
    let own = (
        "prepage-eval".to_owned(),
        env!("CARGO_PKG_VERSION").to_owned(),
    );
    let prepage = prepage.map(|version| ("prepage".to_owned(), version));
    [own].into_iter().chain(prepage).collect()
}

/// Reads the circumstances. What a machine does not have is left out.
pub fn machine(hierarchies: &Hierarchies, disk_place: &Path) -> Machine {
    let cpuinfo = sysfs::read("/proc/cpuinfo").unwrap_or_default();
    let value_of = |text: &str, name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .and_then(|l| l.split_once(':'))
            .map(|(_, v)| v.trim().to_owned())
    };
    let meminfo = sysfs::read("/proc/meminfo").unwrap_or_default();
    let total = value_of(&meminfo, "MemTotal").unwrap_or_default();
    let release = sysfs::read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = sysfs::read("/proc/sys/kernel/version").unwrap_or_default();
    Machine {
        kernel: format!("{release} {build}"),
        cpu_model: value_of(&cpuinfo, "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory_bytes: total
            .split(' ')
            .next()
            .and_then(|kb| kb.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024,
        page_bytes: rustix::param::page_size() as u64,
        memory_cgroup: if hierarchies.memory_v1 { "v1" } else { "v2" }.into(),
        swap: swap_devices(),
        disk: disk(disk_place),
        settings: settings(),
    }
}

/// The swap devices in use.
pub fn swap_devices() -> Vec<SwapDevice> {
    let areas = swaps::areas().unwrap_or_default();
    areas.iter().map(swap_device).collect()
}

fn swap_device(area: &SwapArea) -> SwapDevice {
    const KIB: u64 = 1024;
    let name = area.path.file_name().unwrap_or_default();
    let list = sysfs::read(Path::new("/sys/block").join(name).join("comp_algorithm"));
    SwapDevice {
        path: area.path.display().to_string(),
        on: match area.kind {
            SwapKind::Zram => "zram",
            SwapKind::Disk => "disk",
            SwapKind::File => "file",
        }
        .into(),
        bytes: area.size_kib * KIB,
        used_bytes: area.used_kib * KIB,
        priority: area.priority.into(),
        compressor: list.map(|list| sysfs::bracketed(&list).to_owned()),
    }
}

/// The queue settings of the disk under a path.
pub fn disk_queue(place: &Path) -> Option<PathBuf> {
    let device = BlockDevice::of_path(place).ok()?;
    Some(Path::new("/sys/block").join(device.name()).join("queue"))
}

fn disk(place: &Path) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    if let (Ok(device), Some(queue)) = (BlockDevice::of_path(place), disk_queue(place)) {
        facts.insert("device".into(), device.name().to_owned());
        for setting in [
            "read_ahead_kb",
            "max_sectors_kb",
            "scheduler",
            "rotational",
            "nr_requests",
        ] {
            if let Some(value) = sysfs::read(queue.join(setting)) {
                facts.insert(setting.into(), sysfs::bracketed(&value).to_owned());
            }
        }
    }
    let mounts = mountinfo::read().unwrap_or_default();
    if let Some(mount) = fs::canonicalize(place)
        .ok()
        .and_then(|place| mountinfo::mount_of(&mounts, &place))
    {
        facts.insert("file_system".into(), mount.fs_type.clone());
    }
    facts
}

fn settings() -> BTreeMap<String, String> {
    const FILES: &[(&str, &str)] = &[
        ("page_cluster", "/proc/sys/vm/page-cluster"),
        ("swappiness", "/proc/sys/vm/swappiness"),
        ("thp", "/sys/kernel/mm/transparent_hugepage/enabled"),
        (
            "thp_shmem",
            "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
        ("zswap", "/sys/module/zswap/parameters/enabled"),
        ("mglru", "/sys/kernel/mm/lru_gen/enabled"),
        ("vma_ra_enabled", "/sys/kernel/mm/swap/vma_ra_enabled"),
        (
            "cpu_governor",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        ),
    ];
    let mut found: BTreeMap<String, String> = FILES
        .iter()
        .filter_map(|(name, path)| {
            Some((
                name.to_string(),
                sysfs::bracketed(&sysfs::read(path)?).to_owned(),
            ))
        })
        .collect();
    if let Ok(entries) = fs::read_dir("/sys/kernel/mm/transparent_hugepage") {
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(size) = name.strip_prefix("hugepages-")
                && let Some(list) = sysfs::read(entry.path().join("enabled"))
            {
                found.insert(format!("mthp_{size}"), sysfs::bracketed(&list).to_owned());
            }
        }
    }
    found
}

/// Machine-wide counters of which a sample records the difference.
pub fn system_counters() -> BTreeMap<String, f64> {
    const NAMES: &[&str] = &[
        "pswpin",
        "pswpout",
        "pgmajfault",
        "pgpgin",
        "pgpgout",
        "swpin_zero",
        "allocstall_normal",
    ];
    let vmstat = sysfs::read("/proc/vmstat").unwrap_or_default();
    let mut counters: BTreeMap<String, f64> = sysfs::parse_pairs(&vmstat)
        .filter(|(name, _)| NAMES.contains(name))
        .map(|(name, value)| (name.to_owned(), value as f64))
        .collect();
    let stat = sysfs::read("/proc/stat").unwrap_or_default();
    let cpu: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    let ms_per_tick = 1000.0 / rustix::param::clock_ticks_per_second() as f64;
    // user, nice, system, irq, softirq; what a virtual machine's guests use is in user already.
    let busy: f64 = [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|&field| cpu.get(field))
        .sum();
    counters.insert("busy_ms".into(), busy * ms_per_tick);
    for (name, field) in [("idle_ms", 3), ("iowait_ms", 4), ("steal_ms", 7)] {
        counters.insert(
            name.into(),
            cpu.get(field).copied().unwrap_or(0.0) * ms_per_tick,
        );
    }
    counters
}

/// The load of the last minute.
pub fn load() -> f64 {
    sysfs::read("/proc/loadavg")
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}
