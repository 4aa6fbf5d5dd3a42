//! What is counted while launches are measured, and why they say nothing, if so.

use super::bench::Bench;
use super::record::Parameters;
use crate::attempts::STRANGERS_LOAD;
use crate::circumstances::{system_and_strangers_since, system_counters};
use crate::clock::process_cpu_us;
use std::collections::BTreeMap;
use std::process::ExitStatus;

/// CPU times and machine-wide counters at one moment.
pub struct Counted {
    own_us: u64,
    measured_us: u64,
    session_us: u64,
    system: BTreeMap<String, f64>,
}

impl Counted {
    /// Reads them.
    pub fn read(bench: &Bench) -> Self {
        Self {
            own_us: process_cpu_us(),
            measured_us: bench.measured_cpu_us(),
            session_us: bench.session_cpu_us(),
            system: system_counters(),
        }
    }

    /// CPU time of what is measured since an earlier moment, and the differences of the counters, strangers' load among them.
    pub fn since(&self, before: &Self) -> (u64, BTreeMap<String, f64>) {
        let cpu_us = self.measured_us.saturating_sub(before.measured_us);
        let session_us = self.session_us.saturating_sub(before.session_us);
        let taking_part_us = cpu_us + self.own_us - before.own_us + session_us;
        let system = system_and_strangers_since(&self.system, &before.system, taking_part_us);
        (cpu_us, system)
    }
}

/// Whether strangers used more of the machine than a sample may have beside it.
pub fn why_disturbed(
    parameters: &Parameters,
    cores: u64,
    counted_ns: u64,
    system: &BTreeMap<String, f64>,
) -> Option<String> {
    // /proc/stat counts in ticks of 10 ms on every processor: so much says nothing.
    const RESOLUTION_MS: f64 = 30.0;
    let window_ms = counted_ns as f64 / 1e6 * cores as f64;
    let strangers_ms_max = window_ms * parameters.strangers_percent_max / 100.0 + RESOLUTION_MS;
    (system["strangers_ms"] > strangers_ms_max).then(|| STRANGERS_LOAD.into())
}

/// Why what exited is no sample, if so.
pub fn why_failed(program: &str, status: Option<ExitStatus>) -> Option<String> {
    let failed = status.filter(|status| !status.success())?;
    Some(format!("{program} failed: {failed}"))
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::run;
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_program_that_fails_is_no_sample_however_fast() {
        let why = why_failed("gcc", Some(ExitStatus::from_raw(1 << 8)));
        assert_eq!(why.as_deref(), Some("gcc failed: exit status: 1"));
        assert_eq!(why_failed("gcc", Some(ExitStatus::from_raw(0))), None);
        assert_eq!(why_failed("gcc", None), None, "it runs on");
    }

    #[test]
    fn strangers_may_use_a_share_of_all_processors() {
        let parameters = run(&[]).parameters;
        let why = |strangers_ms| {
            let system = BTreeMap::from([("strangers_ms".to_owned(), strangers_ms)]);
            why_disturbed(&parameters, 2, 1_000_000_000, &system)
        };
        assert_eq!(why(230.0), None);
        assert_eq!(why(231.0).as_deref(), Some(STRANGERS_LOAD));
    }
}
