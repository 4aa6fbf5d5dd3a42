//! What a result depends on and a reader must know: the machine, its swap, its disk, its settings.

use crate::clock::now_ns;
use crate::group::Hierarchies;
use crate::mthp;
use crate::record::{Machine, SwapDevice};
use crate::sysfs;
use crate::throttle::Throttle;
use prepage_kernel::block::BlockDevice;
use prepage_kernel::mountinfo;
use prepage_kernel::swaps::{self, SwapArea, SwapKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What [`SwapDevice::on`] is of a zram device.
pub const ZRAM: &str = "zram";

/// What the settings of mTHP begin with in a record; the size follows, as in `64kB`.
const MTHP: &str = "mthp_";

/// What this program is called in records.
pub const OWN: &str = "prepage-eval";

/// Its version, with the commit that it is built from where that is known.
pub const VERSION: &str = env!("PREPAGE_EVAL_VERSION");

/// Seconds since 1970.
pub fn time_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

/// The versions of this program, with the commit that it is built from, and, where it takes part, of prepage.
pub fn versions(prepage: Option<String>) -> BTreeMap<String, String> {
    let own = (OWN.to_owned(), VERSION.to_owned());
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
    Machine {
        kernel: kernel(),
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
        disk_read_bytes_per_s: None,
        settings: settings(),
    }
}

/// The kernel's release and build.
pub fn kernel() -> String {
    let release = sysfs::read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = sysfs::read("/proc/sys/kernel/version").unwrap_or_default();
    format!("{release} {build}")
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
            SwapKind::Zram => ZRAM,
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

/// The kernel's directory of the disk under a path.
pub fn disk_directory(place: &Path) -> Option<PathBuf> {
    let device = BlockDevice::of_path(place).ok()?;
    Some(Path::new("/sys/block").join(device.name()))
}

/// The queue settings of the disk under a path.
pub fn disk_queue(place: &Path) -> Option<PathBuf> {
    Some(disk_directory(place)?.join("queue"))
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
        (
            "zswap_compressor",
            "/sys/module/zswap/parameters/compressor",
        ),
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
    for (size_kb, enabled) in mthp::sizes() {
        if let Some(list) = sysfs::read(enabled) {
            let chosen = sysfs::bracketed(&list).to_owned();
            found.insert(format!("{MTHP}{size_kb}kB"), chosen);
        }
    }
    found
}

/// Swap, disk and mTHP of a run, in a line.
pub fn factors_line(machine: &Machine, throttle: Option<Throttle>) -> String {
    let disk = throttle.map_or("as it is".into(), |limits| format!("held to {limits}"));
    format!(
        "swap {}, disk {disk}, {}",
        swap_words(machine),
        mthp_words(machine)
    )
}

fn swap_words(machine: &Machine) -> String {
    let named = |on: &str, compressor: Option<&String>| match compressor {
        Some(by) => format!("{on} ({by})"),
        None => on.to_owned(),
    };
    let is_zswap = machine.settings.get("zswap").is_some_and(|on| on == "Y");
    let zswap = is_zswap.then(|| named("zswap", machine.settings.get("zswap_compressor")));
    let devices = machine.swap.iter();
    let devices = devices.map(|device| named(&device.on, device.compressor.as_ref()));
    let all: Vec<String> = zswap.into_iter().chain(devices).collect();
    match all.is_empty() {
        true => "none".into(),
        false => all.join(" and "),
    }
}

fn mthp_words(machine: &Machine) -> String {
    let settings = machine.settings.iter();
    let sizes = settings.filter_map(|(name, value)| {
        let size_kb = name.strip_prefix(MTHP)?.strip_suffix("kB")?;
        Some((size_kb.parse::<u64>().ok()?, value.as_str()))
    });
    let mut on: Vec<(u64, &str)> = sizes.collect();
    if on.is_empty() {
        return "no mTHP".into();
    }
    on.retain(|(_, value)| *value == "always");
    on.sort_unstable();
    let on: Vec<String> = on.iter().map(|(size_kb, _)| size_kb.to_string()).collect();
    match on.is_empty() {
        true => "mTHP off".into(),
        false => format!("mTHP of {} kB", on.join(", ")),
    }
}

/// In them: the time of all processors.
pub const CAPACITY: &str = "capacity_ms";

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
    counters.insert(CAPACITY.into(), now_ns() as f64 / 1e6 * processors(&stat));
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

/// The processors that are online, by /proc/stat.
fn processors(stat: &str) -> f64 {
    let numbered = |line: &&str| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(numbered).count() as f64
}

/// The load of the last minute.
pub fn load() -> f64 {
    sysfs::read("/proc/loadavg")
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::Disk;

    fn machine(swap: &[(&str, Option<&str>)], settings: &[(&str, &str)]) -> Machine {
        let device = |&(on, compressor): &(&str, Option<&str>)| SwapDevice {
            on: on.into(),
            compressor: compressor.map(str::to_owned),
            ..SwapDevice::default()
        };
        let setting = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Machine {
            swap: swap.iter().map(device).collect(),
            settings: settings.iter().map(setting).collect(),
            ..Machine::default()
        }
    }

    #[test]
    fn the_own_version_begins_with_the_packages() {
        let versions = versions(None);
        assert!(versions[OWN].starts_with(env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn the_line_says_what_the_machine_was_set_to() {
        let off = [
            ("zswap", "N"),
            ("zswap_compressor", "lzo"),
            ("mthp_2048kB", "inherit"),
            ("mthp_64kB", "never"),
        ];
        assert_eq!(
            factors_line(&machine(&[("zram", Some("lz4"))], &off), None),
            "swap zram (lz4), disk as it is, mTHP off"
        );
        let on = [
            ("zswap", "Y"),
            ("zswap_compressor", "lz4"),
            ("mthp_16kB", "always"),
            ("mthp_128kB", "always"),
            ("mthp_64kB", "always"),
        ];
        assert_eq!(
            factors_line(&machine(&[("file", None)], &on), Disk::Emmc.throttle()),
            "swap zswap (lz4) and file, disk held to 250 MB and 8000 requests a second (what 9 ms allow at once), \
             mTHP of 16, 64, 128 kB"
        );
        assert_eq!(
            factors_line(&machine(&[], &[]), None),
            "swap none, disk as it is, no mTHP"
        );
    }
}
