//! The calls of `prepage run`.

use super::Service;
use super::calls::{
    Answer, may_act, not_found, reply, require_pid, require_printable, unknown_process,
};
use super::launches::{Begun, LAUNCHES_OF_USER_MAX, Launching, UnderWay};
use crate::api::{
    ApiError, LaunchBeginParameters, LaunchBeginReply, LaunchEndParameters, LaunchOutcome,
    LaunchPrefetchedReply, LaunchReportReply,
};
use crate::discover;
use crate::identity::{is_first_of_unit, program};
use crate::launch::record::DecisionRecord;
use crate::sources::api::Caller;
use prepage_core::launch::manager::Phase;
use prepage_core::params::launch::LaunchStart;
use prepage_engine::launch::LAUNCHES_MAX;
use prepage_kernel::clock::monotonic_ns;
use std::time::Duration;

/// Longest path that a caller may name, in bytes.
const PATH_BYTES_MAX: usize = 4_096;

impl Service {
    /// `LaunchBegin`: the caller's own process is about to execute a program.
    pub(super) fn call_launch_begin(
        &mut self,
        caller: Caller,
        given: &LaunchBeginParameters,
    ) -> Answer {
        require_printable(&given.exe, "exe", PATH_BYTES_MAX)?;
        require_printable(&given.name, "name", PATH_BYTES_MAX)?;
        let owner = caller.uid;
        let help = self.launches.as_ref().ok_or_else(|| ApiError::Failed {
            reason: "launches are not helped here: see `prepage doctor`".into(),
        })?;
        if !help.has_room(owner) {
            let reason = format!(
                "too many launches are under way: {LAUNCHES_OF_USER_MAX} of yours, or {LAUNCHES_MAX} in all"
            );
            return Err(ApiError::Failed { reason });
        }
        let pid = require_pid(caller)?;
        let unknown = |error: prepage_kernel::Error| unknown_process(pid, &error);
        // Its own arguments are those of who asks, and may be long.
        let named = || Ok(vec![given.name.clone()]);
        let (mut process, parent) = discover::facts_with(pid, named).map_err(unknown)?;
        process.exe = Some(given.name.clone());
        let mut chain = discover::chain(process, parent).map_err(unknown)?;
        let identity = discover::identify_main(&chain, &self.around)
            .filter(|_| is_first_of_unit(&chain, &self.around));
        let app = identity.map(|i| i.app).or_else(|| program(&chain[0]));
        let app = app.filter(|app| app.owner == owner);
        let app = app.ok_or_else(|| not_found("that is no application of yours"))?;
        chain[0].exe = Some(given.exe.clone());
        let begun = self.begin_launch(Launching {
            app: app.clone(),
            process: &chain[0],
            began: monotonic_ns(),
            options: given.options,
            is_announced: true,
            tracing: given.tracing,
        });
        let awaits_tracer = matches!(begun, Begun::AwaitsTracer);
        let begun = match &begun {
            Begun::Launch(id, decided) => Some((*id, decided.as_ref())),
            Begun::Alone | Begun::AwaitsTracer => None,
        };
        let stored = self.store.load(&app);
        let phase = stored.map_or(Phase::default(), |s| s.launch.phase);
        let plan = begun.and_then(|(_, d)| d.decision.prefetch.as_ref());
        reply(LaunchBeginReply {
            app: app.to_string(),
            launch: begun.map(|(id, _)| id),
            phase: begun.map_or(phase, |(_, d)| d.state.phase),
            waits: plan.is_some_and(|plan| plan.start != LaunchStart::Together),
            decision: begun
                .map(|(_, d)| DecisionRecord::from(d))
                .unwrap_or_default(),
            awaits_tracer,
        })
    }

    pub(super) fn own_launch(
        &mut self,
        caller: Caller,
        id: u64,
    ) -> Result<&mut UnderWay, ApiError> {
        let help = self.launches.as_mut();
        let launch = help.and_then(|help| help.under_way.get_mut(&id));
        launch
            .filter(|launch| may_act(caller, &launch.app))
            .ok_or_else(|| not_found(format!("no launch {id} of yours is under way")))
    }

    /// `LaunchEnd`: the caller knows how it went on.
    pub(super) fn call_launch_end(&mut self, caller: Caller, given: LaunchEndParameters) -> Answer {
        let launch = self.own_launch(caller, given.launch)?;
        launch.has_failed |= given.outcome == LaunchOutcome::Failed;
        if let Some(help) = &self.launches {
            help.engine.settled(given.launch);
        }
        reply(serde_json::json!({}))
    }

    /// `LaunchPrefetched`: answered at once.
    pub(super) fn call_launch_prefetched(&mut self, caller: Caller, id: u64) -> Answer {
        let is_under_way = self.own_launch(caller, id).is_ok();
        let help = self.launches.as_ref().filter(|_| is_under_way);
        let complete = help.is_none_or(|help| help.engine.wait_prefetched(id, Duration::ZERO));
        reply(LaunchPrefetchedReply { complete })
    }

    /// `LaunchReport`: what a launch did, once it is over.
    pub(super) fn call_launch_report(&mut self, caller: Caller, id: u64) -> Answer {
        if self.own_launch(caller, id).is_ok() {
            return reply(LaunchReportReply { record: None });
        }
        let kept = self.launches.iter().flat_map(|help| &help.records);
        let own = kept.filter(|(app, _)| may_act(caller, app));
        let found = own
            .flat_map(|(_, records)| records)
            .find(|(of, _)| *of == id);
        match found {
            Some((_, record)) => reply(LaunchReportReply {
                record: Some(record.clone()),
            }),
            None => Err(not_found(format!(
                "launch {id} is none of yours, or long over"
            ))),
        }
    }
}
