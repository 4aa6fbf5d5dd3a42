//! zram devices: /sys/block/zramN.

use crate::error::{Error, Result};
use crate::text;
use std::path::PathBuf;

/// A zram device's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zram {
    /// `zram0`.
    pub name: String,
    /// The compression in use: `lz4`, `lzo-rle`, ...
    pub algorithm: String,
    /// Where incompressible or idle pages are written back to, if anywhere (CONFIG_ZRAM_WRITEBACK): such pages are read
    /// from that disk.
    pub backing_device: Option<PathBuf>,
}

/// The zram devices. None is a normal answer.
pub fn devices() -> Result<Vec<Zram>> {
    let failed = |error| Error::new("read directory", "/sys/block", error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/sys/block").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.extend(
            name.to_str()
                .filter(|name| name.starts_with("zram"))
                .map(str::to_owned),
        );
    }
    names.sort();
    names.iter().map(|name| read(name)).collect()
}

/// Reads one device, by its name (`zram0`).
pub fn read(name: &str) -> Result<Zram> {
    let directory = PathBuf::from("/sys/block").join(name);
    let algorithms = text::read_line(directory.join("comp_algorithm"))?;
    let backing = text::read_line(directory.join("backing_dev")).unwrap_or_default();
    Ok(Zram {
        name: name.to_owned(),
        algorithm: selected(&algorithms).to_owned(),
        backing_device: (!backing.is_empty() && backing != "none").then(|| PathBuf::from(backing)),
    })
}

/// The choice that sysfs marks with brackets: `lzo-rle [lz4]`. A list of one without brackets is its own choice.
pub(crate) fn selected(choices: &str) -> &str {
    let bracketed = choices
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(choices.trim(), |(choice, _)| choice)
}

#[cfg(test)]
mod tests {
    #[test]
    fn selected_choice() {
        assert_eq!(super::selected("lzo-rle [lz4] zstd"), "lz4");
        assert_eq!(super::selected("lzo\n"), "lzo");
        assert_eq!(super::selected("[always] never"), "always");
    }
}
