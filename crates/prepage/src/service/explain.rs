//! What is known of an application, with what only the service knows.

use super::Service;
use crate::api::{ExplainReply, ExplainedLaunch};
use crate::explain::explain;
use prepage_core::app::AppModel;
use prepage_core::identity::AppId;
use prepage_core::launch::manager::LaunchState;

/// Most of the last switches listed.
const LAST_MAX: usize = 8;

impl Service {
    /// Explains a tracked application, or one of which a profile is kept.
    pub(super) fn explain(&self, app: &AppId) -> ExplainReply {
        let stored = self.store.load(app);
        let tracked = self.machine.app(app);
        let kept;
        let model = match tracked {
            Some(model) => model,
            None => {
                let profile = stored.map(|s| s.profile.clone()).unwrap_or_default();
                kept = AppModel::new(profile, self.machine.params());
                &kept
            }
        };
        let unknown = LaunchState::default();
        let launch = stored.map_or(&unknown, |s| &s.launch);
        // Of an application that is not tracked the plan is made for this answer, and knows of no pressure.
        let pressure = tracked.is_some() && self.pressure.as_ref().is_some_and(|p| p.is_on());
        let (params, mode) = (self.machine.params(), self.machine.mode());
        let known = explain(app, model, launch, params, mode, pressure);
        let skipped = self.machine.records(app).count().saturating_sub(LAST_MAX);
        let launches = self.launches.iter().flat_map(|l| l.records(app));
        ExplainReply {
            tracked: self.tracking.contains(app),
            left_alone: self.machine.rest_left(app),
            missing: self.missing_count(),
            last: self.machine.records(app).skip(skipped).cloned().collect(),
            launch: ExplainedLaunch {
                last: launches.cloned().collect(),
                ..known.launch
            },
            ..known
        }
    }
}
