//! What /proc says of the processes of one side: faults and CPU time, summed by role.

use prepage_kernel::ProcessId;
use prepage_kernel::process::{self, ProcessStat};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;

/// Counters since a process began, or the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// How many processes these are.
    pub processes: u64,
    /// Major faults: pages that had to be read from swap or disk while a thread waited.
    pub majflt: u64,
    /// Minor faults.
    pub minflt: u64,
    /// CPU time in clock ticks, user and system.
    pub cpu_ticks: u64,
}

/// Counters by role, such as `renderer`.
pub type ByRole = BTreeMap<String, Counters>;

/// Remembers each process's role: asking for it later would touch the process's own memory, which is to stay swapped out.
#[derive(Debug, Default)]
pub struct Roles {
    known: HashMap<ProcessId, String>,
}

/// Counters of the processes at one moment, by identity.
pub type Reading = HashMap<ProcessId, Counters>;

fn counters_of(stat: &ProcessStat) -> Counters {
    Counters {
        processes: 1,
        minflt: stat.minor_faults,
        majflt: stat.major_faults,
        cpu_ticks: stat.utime_ticks + stat.stime_ticks,
    }
}

/// Major faults until now of those of these processes that still run.
pub fn major_faults(pids: impl IntoIterator<Item = i32>) -> u64 {
    let stats = pids.into_iter().filter_map(|pid| process::stat(pid).ok());
    stats.map(|stat| stat.major_faults).sum()
}

/// Whether a program of this name is executed by any process.
pub fn are_running(name: &str) -> bool {
    let pids = process::processes().unwrap_or_default();
    pids.into_iter()
        .any(|pid| process::exe_name(pid).is_ok_and(|own| own == name))
}

impl Roles {
    /// Reads the counters of these processes. A process that is gone by now is left out.
    pub fn read(&mut self, pids: &[i32]) -> Reading {
        let mut reading = Reading::new();
        for &pid in pids {
            let Ok(stat) = process::stat(pid) else {
                continue;
            };
            let id = ProcessId {
                pid,
                start_ticks: stat.start_ticks,
            };
            self.known
                .entry(id)
                .or_insert_with(|| role_of(pid, &stat.comm.to_string_lossy()));
            reading.insert(id, counters_of(&stat));
        }
        reading
    }

    /// The differences by role. A process that began in between counts from zero; one that ended is lost.
    pub fn difference(&self, before: &Reading, after: &Reading) -> ByRole {
        let mut roles = ByRole::new();
        for (key, now) in after {
            let then = before.get(key).copied().unwrap_or_default();
            let sum = roles.entry(self.known[key].clone()).or_default();
            sum.processes += 1;
            sum.majflt += now.majflt.saturating_sub(then.majflt);
            sum.minflt += now.minflt.saturating_sub(then.minflt);
            sum.cpu_ticks += now.cpu_ticks.saturating_sub(then.cpu_ticks);
        }
        roles
    }
}

/// Browsers say in `--type=` what a process is for; others are known by their name.
fn role_of(pid: i32, name: &str) -> String {
    let command = process::cmdline(pid).unwrap_or_default();
    let command = command.join(OsStr::new(" "));
    role(&command.to_string_lossy(), name)
}

fn role(command: &str, name: &str) -> String {
    let argument = |prefix: &str| {
        command
            .split(' ')
            .find_map(|word| word.strip_prefix(prefix))
    };
    match (argument("--type="), argument("--utility-sub-type=")) {
        (Some(kind), Some(sub)) => format!("{kind}:{}", sub.split('.').next().unwrap_or(sub)),
        (Some(kind), None) => kind.to_owned(),
        (None, _) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        assert_eq!(
            role("/usr/lib/chromium/chromium --type=renderer --x", "chromium"),
            "renderer"
        );
        let network = "chromium --type=utility --utility-sub-type=network.mojom.NetworkService";
        assert_eq!(role(network, "chromium"), "utility:network");
        assert_eq!(role("/usr/bin/gimp --no-splash", "gimp-2.10"), "gimp-2.10");
    }

    #[test]
    fn differences_are_summed_by_role_and_new_processes_count_from_zero() {
        let id = |pid| ProcessId {
            pid,
            start_ticks: 1,
        };
        let counters = |majflt| Counters {
            processes: 1,
            majflt,
            ..Counters::default()
        };
        let known = [(1, "a"), (2, "a"), (3, "b")];
        let roles = Roles {
            known: known.map(|(pid, role)| (id(pid), role.to_owned())).into(),
        };
        let before = Reading::from([(id(1), counters(5)), (id(3), counters(1))]);
        let after = Reading::from([(id(1), counters(7)), (id(2), counters(4))]);
        let difference = roles.difference(&before, &after);
        assert_eq!(
            difference["a"],
            Counters {
                processes: 2,
                majflt: 6,
                ..Counters::default()
            }
        );
        assert!(!difference.contains_key("b"));
    }
}
