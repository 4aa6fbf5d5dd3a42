//! A zram device for the time of a run.

use crate::error::{Context, Error, Result};
use crate::restore::{Restorer, Undo};
use crate::sysfs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sets it up and swaps to it, to be taken down in the end.
pub fn set_up(restorer: &mut Restorer, compressor: &str, bytes: u64) -> Result<()> {
    let (name, added) = free_zram()?;
    let block = Path::new("/sys/block").join(&name);
    restorer.register(&Undo::Zram {
        name: name.clone(),
        added,
    })?;
    set_compressor(&block.join("comp_algorithm"), compressor)?;
    sysfs::write(block.join("disksize"), &bytes.to_string())?;
    let device = format!("/dev/{name}");
    succeed(Command::new("mkswap").arg(&device))?;
    succeed(
        Command::new("swapon")
            .args(["--priority", "100"])
            .arg(&device),
    )
}

/// Not checked against the list beforehand: that leaves out what the kernel's crypto API has beside it.
fn set_compressor(file: &Path, compressor: &str) -> Result<()> {
    sysfs::write(file, compressor).map_err(|_| {
        let offered = sysfs::read(file)
            .unwrap_or_default()
            .replace(['[', ']'], "");
        let cause = format!("this kernel does not offer it to zram; it offers {offered}");
        Error::new("set", format!("compressor {compressor}"), cause)
    })
}

fn free_zram() -> Result<(String, bool)> {
    if !Path::new("/sys/class/zram-control").exists() {
        // Not a module everywhere: whether the devices exist afterwards is what counts.
        let _ = Command::new("modprobe")
            .arg("zram")
            .stderr(Stdio::null())
            .status();
    }
    let unused = |name: &str| sysfs::read_number(format!("/sys/block/{name}/disksize")) == Some(0);
    if let Some(name) = (0..16)
        .map(|i| format!("zram{i}"))
        .find(|name| unused(name))
    {
        return Ok((name, false));
    }
    match sysfs::read_number("/sys/class/zram-control/hot_add") {
        Some(number) => Ok((format!("zram{number}"), true)),
        None => Err(Error::new(
            "set up",
            "swap",
            "no swap is active and this kernel has no zram",
        )),
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().context("run", format!("{command:?}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new("run", format!("{command:?}"), said))
}
