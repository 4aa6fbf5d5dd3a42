//! The onset of demand faults: a switch that nobody announced. Pure.

use prepage_core::identity::AppId;
use prepage_core::machine::Nanos;
use prepage_core::params::SwitchParams;
use prepage_engine::FaultBurst;
use std::collections::BTreeMap;

/// Demand faults of one application within one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Nanos,
    faults: u64,
}

/// Counts demand faults by application, in windows.
#[derive(Clone, Debug, Default)]
pub struct OnsetWindows {
    windows: BTreeMap<AppId, Window>,
}

impl OnsetWindows {
    /// Takes in a burst. Where the application reached `onset_faults` within `onset_window_ms`, returns since when they came, at
    /// most a window ago, and the count begins anew.
    pub fn add(&mut self, app: &AppId, burst: &FaultBurst, params: &SwitchParams) -> Option<Nanos> {
        if params.onset_faults == 0 || burst.count == 0 {
            return None;
        }
        let length = params.onset_window_ms.saturating_mul(1_000_000).max(1);
        let window = self.windows.entry(app.clone()).or_default();
        if burst.first_at >= window.since.saturating_add(length) {
            *window = Window {
                since: burst.first_at,
                faults: 0,
            };
        }
        let span = burst.last_at.saturating_sub(burst.first_at).max(1);
        // A burst longer than the window counts by its rate.
        window.faults += match span > length {
            true => u64::from(burst.count) * length / span,
            false => u64::from(burst.count),
        };
        let since = window.since.max(burst.last_at.saturating_sub(length));
        let reached = window.faults >= u64::from(params.onset_faults);
        if reached {
            self.windows.remove(app);
        }
        reached.then_some(since)
    }

    /// Forgets an application.
    pub fn remove(&mut self, app: &AppId) {
        self.windows.remove(app);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::identity::AppKind;

    const MS: u64 = 1_000_000;

    fn app() -> AppId {
        AppId {
            kind: AppKind::Named,
            name: "x".into(),
            owner: 0,
        }
    }

    fn reached(bursts: &[(u32, u64, u64)]) -> Vec<bool> {
        let params = SwitchParams {
            onset_faults: 10,
            onset_window_ms: 100,
            ..SwitchParams::default()
        };
        let app = app();
        let mut windows = OnsetWindows::default();
        let burst = |&(count, first, last): &(u32, u64, u64)| FaultBurst {
            pid: 1,
            count,
            first_at: first * MS,
            last_at: last * MS,
        };
        bursts
            .iter()
            .map(|b| windows.add(&app, &burst(b), &params).is_some())
            .collect()
    }

    #[test]
    fn faults_count_within_their_window_only() {
        assert_eq!(reached(&[(10, 1000, 1010)]), [true]);
        assert_eq!(reached(&[(9, 1000, 1010)]), [false]);
        assert_eq!(reached(&[(5, 1000, 1010), (5, 1050, 1060)]), [false, true]);
        assert_eq!(reached(&[(5, 1000, 1010), (5, 1100, 1110)]), [false, false]);
        assert_eq!(reached(&[(10, 1000, 1010), (9, 1020, 1030)]), [true, false]);
        // 20 faults over a second are 2 in 100 ms.
        assert_eq!(reached(&[(20, 1000, 2000)]), [false]);
        assert_eq!(reached(&[(0, 1000, 1000)]), [false]);
    }

    #[test]
    fn no_faults_wanted_means_off() {
        let params = SwitchParams {
            onset_faults: 0,
            ..SwitchParams::default()
        };
        let app = app();
        let burst = FaultBurst {
            pid: 1,
            count: 1000,
            first_at: 0,
            last_at: 1,
        };
        assert_eq!(OnsetWindows::default().add(&app, &burst, &params), None);
    }
}
