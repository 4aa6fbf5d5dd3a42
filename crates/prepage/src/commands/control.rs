//! `track`, `untrack`, `switch`, `restore`, `mode` and `policy`.

use super::status::missing;
use super::{Context, Failure};
use crate::api::*;
use prepage_core::params::Mode;
use prepage_engine::CorePolicy;
use prepage_kernel::page::page_size;
use serde::Serialize;
use std::time::{Duration, Instant};

/// From one look at how far a restore has come to the next.
const RESTORE_POLL: Duration = Duration::from_millis(2);

/// How often its progress is said.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// `prepage track`
pub fn track(context: &Context, target: &Target) -> Result<(), Failure> {
    let reply: TrackReply = context.call("Track", target)?;
    context.print(&reply, |reply| {
        let verb = if reply.new {
            "tracking"
        } else {
            "already tracking"
        };
        let mut said = format!("{verb} {} ({})", reply.app, reply.members);
        for other in &reply.given_up {
            said += &format!("\nit was tracked as {other}, which is given up");
        }
        with_missing(said, reply.missing)
    })
}

/// What is said, and below it that so many things are missing, if any are.
fn with_missing(said: String, count: u64) -> String {
    said + "\n" + missing(count).trim_start()
}

/// `prepage untrack`
pub fn untrack(context: &Context, target: &Target) -> Result<(), Failure> {
    let reply: AppReply = context.call("Untrack", target)?;
    context.print(&reply, |reply| {
        format!(
            "tracking {} no longer; what was learned is kept, `prepage apps forget` drops it",
            reply.app
        )
    })
}

/// `prepage switch begin`
pub fn begin(context: &Context, target: Target) -> Result<(), Failure> {
    let source = Reporter::Explicit;
    let reply: BeginReply = context.call("SwitchBegin", &BeginParameters { target, source })?;
    context.print(&reply, |reply| {
        let app = reply.app.as_deref().unwrap_or("the application");
        let said = match reply.began {
            true => format!("switch to {app} began"),
            false => {
                format!(
                    "no switch to {app} began: the mode is off, one began a moment ago, or it is left alone (`prepage explain`)"
                )
            }
        };
        with_missing(said, reply.missing)
    })
}

/// `prepage switch end`
pub fn end(context: &Context, target: &Target) -> Result<(), Failure> {
    let reply: EndReply = context.call("SwitchEnd", target)?;
    context.print(&reply, |reply| match reply.ended {
        true => format!("switch to {} ended", reply.app),
        false => format!("no switch to {} was under way", reply.app),
    })
}

/// A restore that is complete.
#[derive(Serialize)]
struct Restored {
    #[serde(flatten)]
    report: RestoreReportReply,
    missing: u64,
}

/// `prepage restore`
pub fn restore(context: &Context, target: &Target) -> Result<(), Failure> {
    let RestoreReply {
        restore, missing, ..
    } = context.call("Restore", target)?;
    let mut said = Instant::now();
    let report = loop {
        let asked = RestoreParameters { restore };
        let report: RestoreReportReply = context.call("RestoreReport", &asked)?;
        if report.took_us.is_some() {
            break report;
        }
        if said.elapsed() >= PROGRESS_EVERY {
            said = Instant::now();
            let (back, out) = (report.back_pages, report.out_pages);
            eprintln!("prepage: {back} of {out} pages");
        }
        std::thread::sleep(RESTORE_POLL);
    };
    context.print(&Restored { report, missing }, |restored| {
        let RestoreReportReply {
            app,
            out_pages,
            back_pages,
            took_us,
        } = &restored.report;
        let mib = back_pages * page_size() / (1 << 20);
        let ms = took_us.unwrap_or_default() / 1_000;
        let rest = match out_pages.saturating_sub(*back_pages) {
            0 => String::new(),
            rest => format!("; {rest} stay out: memory or its limits leave no more, or they were given up meanwhile"),
        };
        with_missing(
            format!("brought back {back_pages} pages ({mib} MiB) of {app} in {ms} ms{rest}"),
            restored.missing,
        )
    })
}

/// `prepage mode`
pub fn mode(context: &Context, mode: Option<Mode>) -> Result<(), Failure> {
    let Some(mode) = mode else {
        let status: StatusReply = context.call("Status", &serde_json::json!({}))?;
        return context.print(&ModeParameters { mode: status.mode }, |p| {
            p.mode.word().into()
        });
    };
    let reply: ModeReply = context.call("SetMode", &ModeParameters { mode })?;
    context.print(&reply, |reply| {
        format!("{} (was {})", reply.mode.word(), reply.before.word())
    })
}

/// `prepage policy`
pub fn core_policy(context: &Context, wanted: Option<CorePolicy>) -> Result<(), Failure> {
    let Some(core_policy) = wanted else {
        let status: StatusReply = context.call("Status", &serde_json::json!({}))?;
        let core_policy = status.core_policy;
        return context.print(&CorePolicyParameters { core_policy }, |p| {
            p.core_policy.word().into()
        });
    };
    let parameters = CorePolicyParameters { core_policy };
    let reply: CorePolicyReply = context.call("SetCorePolicy", &parameters)?;
    context.print(&reply, |reply| {
        format!("{} (was {})", reply.core_policy.word(), reply.before.word())
    })
}
