//! Traces a launch that the service helps, for its paths: as whoever launches it, who may trace it, while the service, which could
//! trace anybody's, traces nobody. A process is split off for that, and lets go as soon as the service has seen the launch's end.

use super::by_service::fork_for_launch;
use crate::api::*;
use crate::client::Client;
use prepage_core::launch::recording::{CallKind, PathCall};
use prepage_engine::PathProfile;
use prepage_kernel::spawn::{Detached, Held, Launched};
use std::collections::BTreeSet;
use std::io::{PipeWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the command waits to be traced.
const HOLD_MAX: Duration = Duration::from_millis(40);

/// How long the right to trace it is waited for.
const GRANT_MAX: Duration = Duration::from_millis(20);

/// How often the service is asked whether the launch is over. Whoever waits for the command does not wait for that.
const OVER_POLL: Duration = Duration::from_millis(100);

/// How long a launch is traced at most: `launch.t_timeout_ms` at its longest, and a margin.
const TRACE_MAX: Duration = Duration::from_secs(620);

/// Bytes of the paths of one message, encoded; the service takes 16 KiB from an ordinary user.
const PATHS_BYTES_MAX: usize = 12 << 10;

/// A process that will trace this one, once the launch has begun. Without it, dropped, it ends.
pub struct Tracer {
    held: Held,
    launch: PipeWriter,
}

impl Tracer {
    /// Splits it off, before the launch begins: what is forked after that is taken for a part of it.
    pub fn start(socket: &Path) -> std::io::Result<Self> {
        let socket = socket.to_path_buf();
        let trace = move |detached: &Detached, launch| trace(&socket, detached, launch);
        let (held, launch) = fork_for_launch(trace)?;
        Ok(Self { held, launch })
    }

    /// Has it trace this process, which is to execute the command by what is returned.
    pub fn trace(mut self, launch: u64) -> Held {
        // It may have been killed: then the service waits for its paths in vain, and not for long.
        if self.launch.write_all(&launch.to_ne_bytes()).is_ok() {
            let _ = self.held.wait(HOLD_MAX);
        }
        self.held
    }
}

fn trace(socket: &Path, detached: &Detached, launch: u64) -> Option<()> {
    let mut client = Client::connect(socket).ok()?;
    // Where nobody has to grant it, nobody answers.
    let _ = detached.ask_to_trace(GRANT_MAX);
    // The command waits for so long and no longer. One that runs already would be interrupted in its calls, and the first are missed.
    let waits = || matches!(detached.wait_exec(Duration::ZERO), Ok(Launched::TimedOut));
    let profile = waits()
        .then(|| PathProfile::start(detached.original_pid()).ok())
        .flatten()
        .filter(|_| waits());
    detached.release();
    let Some(profile) = profile else {
        return tell(&mut client, launch, Vec::new(), Some(false)).map(drop);
    };
    let until = Instant::now() + TRACE_MAX;
    while !profile.is_over() && Instant::now() < until {
        std::thread::sleep(OVER_POLL);
        if tell(&mut client, launch, Vec::new(), None)? {
            break;
        }
    }
    let (calls, is_complete) = profile.finish();
    let mut messages = messages(calls).into_iter().peekable();
    while let Some(message) = messages.next() {
        let is_last = messages.peek().is_none();
        tell(&mut client, launch, message, is_last.then_some(is_complete))?;
    }
    Some(())
}

/// Tells the service of path calls. Returns whether the launch is over; none where nobody wants to know of it any more.
fn tell(
    client: &mut Client,
    launch: u64,
    calls: Vec<(CallKind, String, bool)>,
    complete: Option<bool>,
) -> Option<bool> {
    let parameters = LaunchPathsParameters {
        launch,
        calls,
        complete,
    };
    let reply: LaunchPathsReply = client.call("LaunchPaths", &parameters).ok()?;
    Some(reply.over)
}

/// The calls, each once, by message; one at least.
fn messages(calls: Vec<PathCall>) -> Vec<Vec<(CallKind, String, bool)>> {
    let (mut messages, mut bytes) = (vec![Vec::new()], 0);
    let mut told = BTreeSet::new();
    for call in calls {
        let call = (call.kind, call.path.to_string(), call.is_found);
        let encoded = serde_json::to_vec(&call).map_or(usize::MAX, |text| text.len() + 1);
        if encoded > PATHS_BYTES_MAX || !told.insert(call.clone()) {
            continue;
        }
        bytes += encoded;
        if bytes > PATHS_BYTES_MAX {
            messages.push(Vec::new());
            bytes = encoded;
        }
        messages
            .last_mut()
            .into_iter()
            .for_each(|last| last.push(call.clone()));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::SMALL_REQUEST_BYTES_MAX;

    #[test]
    fn every_message_is_one_that_any_user_may_send() {
        let call = |n: usize| PathCall {
            kind: CallKind::ReadLink,
            path: format!("/{}/\u{1}\"", "x".repeat(n % 9_000)).into(),
            is_found: n.is_multiple_of(2),
        };
        let calls: Vec<PathCall> = (0..2_000).chain(0..2_000).map(|n| call(n * 37)).collect();
        let messages = messages(calls);
        let told: usize = messages.iter().map(Vec::len).sum();
        assert_eq!(told, 2_000);
        for calls in messages {
            let parameters = LaunchPathsParameters {
                launch: u64::MAX,
                calls,
                complete: Some(false),
            };
            let text = serde_json::to_string(&parameters).expect("text");
            assert!(text.len() + 100 < SMALL_REQUEST_BYTES_MAX, "{}", text.len());
        }
        assert_eq!(super::messages(Vec::new()), [Vec::new()]);
    }
}
