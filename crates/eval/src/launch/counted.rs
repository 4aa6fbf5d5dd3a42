//! What is counted while launches are measured, and why they say nothing, if so.

use super::bench::Bench;
use crate::strangers::Moment;
use std::collections::BTreeMap;
use std::process::ExitStatus;

/// CPU times and machine-wide counters at one moment.
pub struct Counted {
    measured_us: u64,
    moment: Moment,
}

impl Counted {
    /// Reads them.
    pub fn read(bench: &Bench) -> Self {
        let measured_us = bench.measured_cpu_us();
        Self {
            measured_us,
            moment: Moment::read(measured_us + bench.session_cpu_us()),
        }
    }

    /// CPU time of what is measured since an earlier moment, and the differences of the counters.
    pub fn since(&self, before: &Self) -> (u64, BTreeMap<String, f64>) {
        let cpu_us = self.measured_us.saturating_sub(before.measured_us);
        (cpu_us, self.moment.since(&before.moment))
    }
}

/// Why what exited is no sample, if so.
pub fn why_failed(program: &str, status: Option<ExitStatus>) -> Option<String> {
    let failed = status.filter(|status| !status.success())?;
    Some(format!("{program} failed: {failed}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_program_that_fails_is_no_sample_however_fast() {
        let why = why_failed("gcc", Some(ExitStatus::from_raw(1 << 8)));
        assert_eq!(why.as_deref(), Some("gcc failed: exit status: 1"));
        assert_eq!(why_failed("gcc", Some(ExitStatus::from_raw(0))), None);
        assert_eq!(why_failed("gcc", None), None, "it runs on");
    }
}
