//! Multi-size THP (mTHP; 6.8 and later): private anonymous memory in folios of a few pages, which kernels from 6.12 on
//! also swap in whole from zram. Off is the kernel's default.

use crate::error::{Context, Error, Result};
use crate::restore::Restorer;
use crate::sysfs;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// Where the kernel keeps its settings; each size has a directory.
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// The largest size that is turned on, in kB: what swap-in brings in by one fault then.
const LARGEST_KB: u64 = 64;

/// Whether anonymous memory is in folios of several pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Mthp {
    /// Single pages: the kernel's default.
    #[default]
    Off,
    /// Folios of up to 64 kB wherever one fits.
    On,
}

impl Mthp {
    /// What is written for a size below that of a THP.
    fn value(self, size_kb: u64) -> &'static str {
        match self {
            Self::On if size_kb <= LARGEST_KB => "always",
            Self::On | Self::Off => "never",
        }
    }
}

/// The sizes that this kernel has, in kB, with the files that turn them on; none before mTHP.
pub fn sizes() -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(THP).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let size = name.to_str()?.strip_prefix("hugepages-")?;
        let size_kb = size.strip_suffix("kB")?.parse().ok()?;
        Some((size_kb, entry.path().join("enabled")))
    };
    entries.filter_map(size).collect()
}

/// Sets every size below that of a THP, which has a setting of its own, until the end of the run.
///
/// # Errors
/// Where mTHP is to be on and this kernel has none, or a setting cannot be written.
pub fn set(mthp: Mthp, restorer: &mut Restorer) -> Result<()> {
    let thp_bytes = sysfs::read_number(PathBuf::from(THP).join("hpage_pmd_size")).unwrap_or(0);
    let mut sizes = sizes();
    sizes.retain(|(size_kb, _)| size_kb * 1024 < thp_bytes);
    if mthp == Mthp::On && !sizes.iter().any(|&(size_kb, _)| size_kb <= LARGEST_KB) {
        let cause = format!("this kernel has none ({THP}/hugepages-64kB): leave --mthp out");
        return Err(Error::new("turn on", "mTHP", cause));
    }
    for (size_kb, file) in sizes {
        restorer
            .change_value(&file, mthp.value(size_kb))
            .context("set", file.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_folios_are_turned_on() {
        let values = |mthp: Mthp| [16, 64, 128, 1024].map(|size_kb| mthp.value(size_kb));
        assert_eq!(values(Mthp::On), ["always", "always", "never", "never"]);
        assert_eq!(values(Mthp::Off), ["never"; 4]);
    }
}
