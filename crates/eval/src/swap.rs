//! What a run swaps to.

mod zram;

use crate::circumstances::{ZRAM, swap_devices};
use crate::error::{Context, Error, Result};
use crate::record::SwapDevice;
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

/// The swap that a run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The only swap there is; `None`: whatever is active, and a zram device where nothing is.
    pub kind: Option<SwapKind>,
    /// Compressor of zram or zswap. `None`: lz4 for what the run sets up, any for what is active.
    pub compressor: Option<String>,
    /// Size of what the run sets up.
    pub bytes: u64,
}

impl Swap {
    /// Size of what a run sets up if nothing else is said.
    pub const BYTES: u64 = 4 << 30;

    /// This kind and no other.
    pub fn only(kind: SwapKind) -> Self {
        Self {
            kind: Some(kind),
            compressor: None,
            bytes: Self::BYTES,
        }
    }
}

const COMPRESSOR: &str = "lz4";
const ZSWAP: &str = "/sys/module/zswap/parameters";

/// Sees that swap is as a run needs it, until the end of the run; files are made in `directory`. Swap that is active
/// already is not touched: it may hold somebody's memory.
///
/// # Errors
/// Where active swap is not as it is needed, or the kernel does not offer what is.
pub fn ensure(swap: &Swap, directory: &Path, restorer: &mut Restorer) -> Result<()> {
    let active = swap_devices();
    let compressor = swap.compressor.as_deref();
    refuse_unfit(swap, &active)?;
    if let Some(kind) = swap.kind {
        set_zswap(kind == SwapKind::Zswap, compressor, restorer)?;
    }
    match swap.kind {
        _ if !active.is_empty() => Ok(()),
        None | Some(SwapKind::Zram) => {
            zram::set_up(restorer, compressor.unwrap_or(COMPRESSOR), swap.bytes)
        }
        Some(SwapKind::Disk | SwapKind::Zswap) => {
            make_file(&directory.join("swap"), swap.bytes, restorer)
        }
    }
}

/// What active swap must not be, and what nothing compresses.
fn refuse_unfit(swap: &Swap, active: &[SwapDevice]) -> Result<()> {
    let refusal = |cause: String| {
        let what = swap
            .kind
            .map_or(String::new(), |kind| format!("{} ", kind.word()));
        Err(Error::new("set up", format!("{what}swap"), cause))
    };
    let is_zram = |device: &&SwapDevice| device.on == ZRAM;
    let is_other = |device: &&SwapDevice| {
        swap.kind
            .is_some_and(|kind| is_zram(device) != (kind == SwapKind::Zram))
    };
    if let Some(other) = active.iter().find(is_other) {
        return refusal(format!(
            "{} on {} is active, and would be swapped to as well: `swapoff {0}`, or name its kind with --swap",
            other.path, other.on
        ));
    }
    let Some(wanted) = &swap.compressor else {
        return Ok(());
    };
    if swap.kind == Some(SwapKind::Disk) {
        return refusal(
            "nothing compresses it: leave --compressor out, or swap to zram or zswap".into(),
        );
    }
    let compresses_otherwise = |device: &&SwapDevice| {
        swap.kind != Some(SwapKind::Zswap) && device.compressor.as_ref() != Some(wanted)
    };
    match active.iter().find(compresses_otherwise) {
        Some(device) => refusal(format!(
            "{} is active and does not compress by {wanted}: `swapoff {0}`, or leave --compressor out",
            device.path
        )),
        None => Ok(()),
    }
}

/// Turns zswap on or off; pages that are in its pool stay there.
fn set_zswap(on: bool, compressor: Option<&str>, restorer: &mut Restorer) -> Result<()> {
    let file = |name| Path::new(ZSWAP).join(name);
    if !file("enabled").exists() {
        return match on {
            true => Err(Error::new("set up", "zswap", "not offered by this kernel")),
            false => Ok(()),
        };
    }
    if !on {
        return restorer.change_value(file("enabled"), "N");
    }
    let taken = restorer.change_value(file("compressor"), compressor.unwrap_or(COMPRESSOR));
    restorer.change_value(file("enabled"), "Y")?;
    let in_use = sysfs::read(file("compressor")).unwrap_or_default();
    match compressor {
        // zswap falls back to its default where the kernel's crypto API turns out not to have the one it was told.
        Some(wanted) if taken.is_err() || in_use != wanted => {
            let cause = format!("this kernel does not offer it to zswap, which has {in_use}");
            Err(Error::new("set", format!("compressor {wanted}"), cause))
        }
        _ => Ok(()),
    }
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
fn make_file(path: &Path, bytes: u64, restorer: &mut Restorer) -> Result<()> {
    restorer.register(&Undo::SwapFile(path.to_path_buf()))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR).context("make", path.display())?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes).context("allocate", path.display())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn device(on: &str, compressor: Option<&str>) -> SwapDevice {
        SwapDevice {
            path: format!("/dev/{on}"),
            on: on.into(),
            compressor: compressor.map(str::to_owned),
            ..SwapDevice::default()
        }
    }

    fn refusal(kind: Option<SwapKind>, compressor: Option<&str>, active: &[SwapDevice]) -> String {
        let swap = Swap {
            kind,
            compressor: compressor.map(str::to_owned),
            bytes: Swap::BYTES,
        };
        refuse_unfit(&swap, active).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn active_swap_of_another_kind_or_compressor_is_refused_with_what_to_do() {
        let (zram, file) = (device("zram", Some("lz4")), device("file", None));
        for (kind, compressor, active, expected) in [
            (None, None, vec![zram.clone(), file.clone()], ""),
            (Some(SwapKind::Zram), None, vec![zram.clone()], ""),
            (
                Some(SwapKind::Zram),
                None,
                vec![zram.clone(), file.clone()],
                "swapoff /dev/file",
            ),
            (
                Some(SwapKind::Disk),
                None,
                vec![zram.clone()],
                "swapoff /dev/zram",
            ),
            (Some(SwapKind::Zswap), None, vec![file.clone()], ""),
            (None, Some("lz4"), vec![zram.clone()], ""),
            (None, Some("zstd"), vec![], ""),
            (
                None,
                Some("zstd"),
                vec![zram.clone()],
                "does not compress by zstd",
            ),
            (Some(SwapKind::Zswap), Some("zstd"), vec![file.clone()], ""),
            (Some(SwapKind::Disk), Some("lz4"), vec![], "--compressor"),
        ] {
            let said = refusal(kind, compressor, &active);
            assert!(said.contains(expected), "{kind:?} {compressor:?}: {said}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{said}");
        }
    }
}
