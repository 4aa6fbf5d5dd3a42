//! A launch that the service helps: it is told, and answers once the prefetch has begun.

use super::progress::Progress;
use super::tracer::Tracer;
use super::{Asked, append_record, execute, execute_held, words};
use crate::api::*;
use crate::client::Client;
use prepage_kernel::spawn::{Detached, Held, fork_detached};
use std::io::{PipeWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a whole prefetch may take (`launch.start = "before"`), after which the command runs beside it.
const PREFETCH_MAX: Duration = Duration::from_secs(30);

/// How often the service is asked whether it is complete.
const PREFETCH_POLL: Duration = Duration::from_millis(1);

/// How often the service is asked whether the launch is over, for its report. Nobody waits for that.
const REPORT_POLL: Duration = Duration::from_millis(200);

/// How long a report may take: `launch.t_timeout_ms` at its longest, and a margin.
const REPORT_MAX: Duration = Duration::from_secs(620);

/// Runs the command, helped as far as the service can.
pub fn run(mut client: Client, socket: &Path, asked: &Asked) -> ExitCode {
    let arguments = &asked.arguments;
    let exe = asked.process.exe.clone().unwrap_or_default();
    // Before the launch begins: what it forks after that is taken for a part of it.
    let reporter = arguments.report.as_deref().and_then(|report| {
        let reporter = start_reporter(socket, report);
        reporter
            .map_err(|e| arguments.say(format_args!("no report: {e}")))
            .ok()
    });
    let mut begin = |tracing| -> Result<LaunchBeginReply, _> {
        let parameters = LaunchBeginParameters {
            exe: exe.clone(),
            name: asked.app.name.to_string(),
            options: asked.options,
            tracing,
        };
        client.call("LaunchBegin", &parameters)
    };
    let mut begun = begin(Tracing::Possible);
    let mut tracer = None;
    if begun.as_ref().is_ok_and(|begun| begun.awaits_tracer) {
        let started = Tracer::start(socket);
        tracer = started
            .map_err(|e| arguments.say(format_args!("not traced: {e}")))
            .ok();
        begun = begin(match tracer {
            Some(_) => Tracing::Ready,
            None => Tracing::No,
        });
    }
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => {
            arguments.say(format_args!("not helped: {error}"));
            return execute(arguments);
        }
    };
    arguments.say(words::begun(&begun));
    let Some(launch) = begun.launch else {
        return execute(arguments);
    };
    if begun.waits {
        wait_prefetched(&mut client, launch, arguments.progress());
    }
    if let Some(mut reporter) = reporter {
        // It may have been killed.
        let _ = reporter.write_all(&launch.to_ne_bytes());
    }
    let tracer = tracer.filter(|_| begun.decision.profiles_paths);
    let status = execute_held(tracer.map(|tracer| tracer.trace(launch)), arguments);
    if arguments.runs_command() {
        let outcome = LaunchOutcome::Failed;
        let told = client.call("LaunchEnd", &LaunchEndParameters { launch, outcome });
        // The service will see that the process ended.
        let _: Result<serde_json::Value, _> = told;
    }
    status
}

/// Splits off a process that waits for a launch's number, and for its report.
fn start_reporter(socket: &Path, report: &Path) -> std::io::Result<PipeWriter> {
    let (socket, report) = (socket.to_path_buf(), report.to_path_buf());
    let wait = move |_: &Detached, launch| wait_for_report(&socket, &report, launch);
    let (_, launch) = fork_for_launch(wait)?;
    Ok(launch)
}

/// Splits off a process that does this for the launch whose number is written to the pipe, and ends where none is.
pub fn fork_for_launch(
    work: impl FnOnce(&Detached, u64) -> Option<()>,
) -> std::io::Result<(Held, PipeWriter)> {
    let (mut number, writer) = std::io::pipe()?;
    let mut ours = Some(writer);
    let kept = &mut ours;
    let held = fork_detached(move |detached| {
        // The copy that this process has: the pipe's end is seen where no launch began.
        drop(kept.take());
        let mut launch = [0; 8];
        let read = number.read_exact(&mut launch).ok();
        let done = read.and_then(|()| work(&detached, u64::from_ne_bytes(launch)));
        i32::from(done.is_none())
    });
    let held = held.map_err(std::io::Error::other)?;
    Ok((held, ours.ok_or(std::io::ErrorKind::BrokenPipe)?))
}

fn wait_prefetched(client: &mut Client, launch: u64, mut progress: Progress) {
    let until = Instant::now() + PREFETCH_MAX;
    while Instant::now() < until {
        progress.look();
        let asked = client.call("LaunchPrefetched", &LaunchParameters { launch });
        match asked {
            Ok(LaunchPrefetchedReply { complete: false }) => std::thread::sleep(PREFETCH_POLL),
            Ok(_) | Err(_) => return,
        }
    }
}

fn wait_for_report(socket: &Path, report: &Path, launch: u64) -> Option<()> {
    let until = Instant::now() + REPORT_MAX;
    while Instant::now() < until {
        std::thread::sleep(REPORT_POLL);
        let mut client = Client::connect(socket).ok()?;
        let reply = client.call("LaunchReport", &LaunchParameters { launch });
        let reply: LaunchReportReply = reply.ok()?;
        if let Some(record) = reply.record {
            return append_record(report, &record).ok();
        }
    }
    None
}
