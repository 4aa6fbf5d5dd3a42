//! The services: a table of real servers with enough data in memory that it hurts to lose it.

use super::protocol::Protocol;
use crate::error::{Context, Error, Result};
use crate::packages::{Needed, require, versions};
use crate::site::words;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// One service of the table.
#[derive(Clone, Copy, Debug)]
pub struct ServiceKind {
    /// Its name on the command line and in records.
    pub name: &'static str,
    /// Debian's packages that it needs.
    pub packages: &'static [&'static str],
    /// The executable that must be there.
    executable: &'static str,
    /// How it is asked.
    pub protocol: Protocol,
    /// How its data gets in.
    pub filling: Filling,
    /// Its data, if nothing else is asked for.
    size_mib: u64,
    /// What a key takes with its record, about.
    bytes_per_key: u64,
    /// Requests a second, if nothing else is asked for: so few that one core is mostly idle with all in memory.
    rate_hz: u32,
    command: fn(&Site<'_>) -> Result<Vec<OsString>>,
}

/// How a service gets its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// It makes it itself before it listens.
    Own,
    /// A client sends it.
    Client,
}

/// Where a service runs and with what.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its own directory.
    pub directory: &'a Path,
    /// Where it listens, on the loopback interface.
    pub port: u16,
    /// Keys that it is to hold.
    pub keys: u32,
    /// Its data, about.
    pub size_mib: u64,
    /// Of all content.
    pub seed: u64,
}

/// Every service there is.
pub const SERVICES: &[ServiceKind] = &[
    ServiceKind {
        name: "redis",
        packages: &["redis-server"],
        executable: "redis-server",
        protocol: Protocol::Resp,
        filling: Filling::Client,
        size_mib: 1024,
        bytes_per_key: 1_130,
        rate_hz: 4_000,
        command: redis,
    },
    ServiceKind {
        name: "node",
        packages: &["nodejs"],
        executable: "node",
        protocol: Protocol::Http,
        filling: Filling::Own,
        size_mib: 512,
        bytes_per_key: 1_800,
        rate_hz: 800,
        command: node,
    },
    ServiceKind {
        name: "jvm",
        packages: &["default-jdk-headless"],
        executable: "java",
        protocol: Protocol::Http,
        filling: Filling::Own,
        size_mib: 512,
        bytes_per_key: 2_000,
        rate_hz: 800,
        command: jvm,
    },
];

fn redis(site: &Site<'_>) -> Result<Vec<OsString>> {
    let port = site.port.to_string();
    let mut command = words(&["redis-server", "--bind", "127.0.0.1", "--port", &port]);
    // Nothing is written to the disk: no snapshot forks the process while it is measured.
    command.extend(words(&["--save", "", "--appendonly", "no", "--dir"]));
    command.push(site.directory.into());
    Ok(command)
}

fn node(site: &Site<'_>) -> Result<Vec<OsString>> {
    let heap = format!("--max-old-space-size={}", site.size_mib * 4);
    script(
        site,
        &["node", &heap],
        "server.js",
        include_str!("content/server.js"),
    )
}

fn jvm(site: &Site<'_>) -> Result<Vec<OsString>> {
    let heap = format!("-Xmx{}m", site.size_mib * 2);
    // Its clients keep their connections while it is idle.
    let idle = "-Dsun.net.httpserver.idleInterval=86400";
    let at_once = "-Dsun.net.httpserver.nodelay=true";
    script(
        site,
        &["java", &heap, idle, at_once],
        "Server.java",
        include_str!("content/Server.java"),
    )
}

fn script(site: &Site<'_>, start: &[&str], name: &str, text: &str) -> Result<Vec<OsString>> {
    let path = site.directory.join(name);
    fs::write(&path, text).context("write", path.display())?;
    let mut command = words(start);
    command.push(path.into());
    let arguments = [
        site.port.to_string(),
        site.keys.to_string(),
        site.seed.to_string(),
    ];
    command.extend(arguments.map(OsString::from));
    Ok(command)
}

/// The services of these names. What is missing is installed if `installs`, and an error otherwise.
pub fn choose(names: &[String], installs: bool) -> Result<Vec<ServiceKind>> {
    let find = |name: &String| {
        let found = SERVICES.iter().find(|service| service.name == name);
        found.copied().ok_or_else(|| {
            let known: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
            let known = format!("known are: {}", known.join(", "));
            Error::new("find", format!("service {name}"), known)
        })
    };
    let chosen: Vec<ServiceKind> = names.iter().map(find).collect::<Result<_>>()?;
    let needed = |service: &ServiceKind| Needed {
        executable: service.executable,
        packages: service.packages,
    };
    let needed: Vec<Needed> = chosen.iter().map(needed).collect();
    require("services", &needed, installs)?;
    Ok(chosen)
}

impl ServiceKind {
    /// The data that it holds, of which `asked_mib` is asked for.
    pub fn size_mib(&self, asked_mib: Option<u64>) -> u64 {
        asked_mib.unwrap_or(self.size_mib)
    }

    /// The keys that so much data has.
    pub fn keys(&self, asked_mib: Option<u64>) -> u32 {
        let keys = (self.size_mib(asked_mib) << 20) / self.bytes_per_key;
        u32::try_from(keys).unwrap_or(u32::MAX).max(1)
    }

    /// Requests a second, of which `asked_hz` are asked for.
    pub fn rate_hz(&self, asked_hz: Option<u32>) -> u32 {
        asked_hz.unwrap_or(self.rate_hz)
    }

    /// Makes its files and returns its command line.
    pub fn prepare(&self, site: &Site<'_>) -> Result<Vec<OsString>> {
        (self.command)(site)
    }

    /// Its packages with their versions.
    pub fn versions(&self) -> BTreeMap<String, String> {
        versions(self.packages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_service_is_an_error_that_lists_the_known() {
        let error = choose(&["radis".into()], false).unwrap_err().to_string();
        assert!(
            error.contains("radis") && error.contains("redis"),
            "{error}"
        );
    }

    #[test]
    fn keys_follow_from_the_size() {
        for service in SERVICES {
            let (small, large) = (service.keys(Some(64)), service.keys(Some(128)));
            assert!(large.abs_diff(small * 2) <= 1);
            assert_eq!(service.keys(Some(0)), 1);
        }
    }
}
