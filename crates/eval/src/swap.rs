//! What a run swaps to.

mod zram;

use crate::circumstances::swap_devices;
use crate::error::{Context, Error, Result};
use crate::restore::{Restorer, Undo};
use crate::sysfs;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// The kind of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SwapKind {
    /// Compressed memory.
    Zram,
    /// A file on the disk.
    Disk,
    /// The same, with zswap's compressed pool in front of it.
    Zswap,
}

impl SwapKind {
    /// The word for it, on the command line and in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Zram => "zram",
            Self::Disk => "disk",
            Self::Zswap => "zswap",
        }
    }
}

/// What a run needs of swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Nothing: it swaps nothing out.
    None,
    /// Whatever is active; a zram device where there is none.
    Any {
        /// Its compressor.
        compressor: String,
        /// Its size.
        bytes: u64,
    },
    /// This kind, as the only swap there is.
    Only(SwapKind),
}

/// Sees that swap is as a run needs it, until the end of the run; files are made in `directory`.
pub fn ensure(swap: &Swap, directory: &Path, restorer: &mut Restorer) -> Result<()> {
    match swap {
        Swap::None => Ok(()),
        Swap::Any { .. } if !swap_devices().is_empty() => Ok(()),
        Swap::Any { compressor, bytes } => zram::set_up(restorer, compressor, *bytes),
        Swap::Only(kind) => ensure_only(*kind, directory, restorer),
    }
}

const BYTES: u64 = 4 << 30;
const COMPRESSOR: &str = "lz4";
const ZSWAP: &str = "/sys/module/zswap/parameters";

/// Sees that swap of this kind is active and no other, until the end of the run. Swap that is active already and of
/// another kind is not touched: it may hold somebody's memory.
pub fn ensure_only(kind: SwapKind, directory: &Path, restorer: &mut Restorer) -> Result<()> {
    let is_wanted = |on: &str| (on == "zram") == (kind == SwapKind::Zram);
    let active = swap_devices();
    if let Some(other) = active.iter().find(|device| !is_wanted(&device.on)) {
        let cause = format!(
            "{} on {} is active, and would be swapped to as well: `swapoff {0}`, or name its kind with --swap",
            other.path, other.on
        );
        return Err(Error::new("set up", format!("{} swap", kind.word()), cause));
    }
    if kind != SwapKind::Zram {
        set_zswap(kind == SwapKind::Zswap, restorer)?;
    }
    match kind {
        _ if !active.is_empty() => Ok(()),
        SwapKind::Zram => zram::set_up(restorer, COMPRESSOR, BYTES),
        SwapKind::Disk | SwapKind::Zswap => make_file(&directory.join("swap"), restorer),
    }
}

/// Turns zswap on or off; pages that are in its pool stay there.
fn set_zswap(on: bool, restorer: &mut Restorer) -> Result<()> {
    let enabled = Path::new(ZSWAP).join("enabled");
    if !enabled.exists() {
        return match on {
            true => Err(Error::new("set up", "zswap", "not offered by this kernel")),
            false => Ok(()),
        };
    }
    if on {
        // What zram is measured with, where the kernel has it.
        let _ = restorer.change_value(Path::new(ZSWAP).join("compressor"), COMPRESSOR);
    }
    restorer.change_value(enabled, if on { "Y" } else { "N" })
}

/// The settings of zswap, in a line.
pub fn zswap_line() -> String {
    let setting = |name| sysfs::read(Path::new(ZSWAP).join(name));
    match setting("enabled") {
        None => "zswap not offered by this kernel".into(),
        Some(enabled) if enabled.trim() != "Y" => "zswap off".into(),
        Some(_) => format!("zswap {}", setting("compressor").unwrap_or_default().trim()),
    }
}

/// Makes a file on the disk, without holes, as swap needs it, and switches it on.
fn make_file(path: &Path, restorer: &mut Restorer) -> Result<()> {
    restorer.register(&Undo::SwapFile(path.to_path_buf()))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR).context("make", path.display())?;
    fallocate(&file, FallocateFlags::empty(), 0, BYTES).context("allocate", path.display())?;
    for command in ["mkswap", "swapon"] {
        let output = Command::new(command)
            .arg(path)
            .output()
            .context("run", command)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::new("run", command, said));
        }
    }
    Ok(())
}
