//! Links the unwinder into the program where the C compiler brings it as a static library. `prepage run` starts with a
//! cold page cache: to look libgcc_s.so up and read it costs each launch 0.4 ms (docs/measurements/launch.md).

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    // What links the program knows best where its libraries are; another one, or none, leaves the shared library.
    let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(linker)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let found = asked.ok().and_then(|o| String::from_utf8(o.stdout).ok());
    // Without such a file the answer is its bare name.
    if found.is_some_and(|path| Path::new(path.trim()).is_absolute()) {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
