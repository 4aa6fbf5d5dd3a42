//! Paths of launches that whoever launches traces (`prepage run`): nobody else is asked for the right to. They are a user's claim
//! about that user's own launch: bounded here, and looked up with that user's rights only, by the prefetch.

use super::Service;
use super::calls::{Answer, not_found, reply};
use crate::api::{LaunchPathsParameters, LaunchPathsReply};
use crate::sources::api::Caller;
use prepage_core::launch::paths::{PATH_BYTES_MAX, PATHS_BYTES_MAX};
use prepage_core::launch::recording::{CALLS_MAX, PathCall, Recording};
use prepage_core::machine::Nanos;
use prepage_engine::LaunchResult;
use prepage_kernel::clock::monotonic_ns;

/// Most launches traced at once, and most of one user's, root's apart: what is kept of one may be a megabyte.
const TRACED_MAX: usize = 4;
const TRACED_OF_USER_MAX: usize = 2;

/// Whether one more launch of this user's may be traced, beside those of these users.
pub(super) fn may_trace(owner: u32, traced: impl Iterator<Item = u32>) -> bool {
    let (mut all, mut own) = (0, 0);
    for of in traced {
        all += 1;
        own += usize::from(of == owner);
    }
    all < TRACED_MAX && (owner == 0 || own < TRACED_OF_USER_MAX)
}

/// How long the result of a launch that is over waits for the paths that its tracer has yet to tell.
const PATHS_WAIT_NS: u64 = 2_000_000_000;

/// What a launch's tracer has told so far.
#[derive(Debug, Default)]
pub(super) struct Traced {
    calls: Vec<PathCall>,
    bytes: usize,
    /// Once these are all that it tells: whether they are all of the launch.
    complete: Option<bool>,
    /// The launch's result, which waits for the rest of them, until then.
    waiting: Option<(LaunchResult, Nanos)>,
}

impl Traced {
    fn add(&mut self, call: PathCall) -> bool {
        let path = &*call.path;
        let is_path = path.starts_with('/') && !path.chars().any(char::is_control);
        self.bytes += path.len();
        let has_room = self.calls.len() < CALLS_MAX && self.bytes <= PATHS_BYTES_MAX;
        let is_taken = is_path && path.len() < PATH_BYTES_MAX && has_room;
        if is_taken {
            self.calls.push(call);
        }
        is_taken
    }

    /// The result, unless it has to wait.
    pub(super) fn take_result(&mut self, result: LaunchResult) -> Option<LaunchResult> {
        if self.complete.is_some() {
            return Some(result);
        }
        self.waiting = Some((result, monotonic_ns() + PATHS_WAIT_NS));
        None
    }

    /// The result that has waited long enough at `now`.
    pub(super) fn take_waited(&mut self, now: Nanos) -> Option<LaunchResult> {
        let is_over = |(_, until): &mut (LaunchResult, Nanos)| *until <= now;
        self.waiting.take_if(is_over).map(|(result, _)| result)
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.waiting.as_ref().map(|(_, until)| *until)
    }

    /// Adds what was told to what was seen of a launch.
    pub(super) fn complete(self, recording: &mut Recording) {
        if !self.calls.is_empty() {
            recording.calls = self.calls;
            recording.is_path_profile = self.complete == Some(true);
        }
    }
}

impl Service {
    /// `LaunchPaths`: the tracer of a launch tells what it saw.
    pub(super) fn call_launch_paths(
        &mut self,
        caller: Caller,
        given: LaunchPathsParameters,
    ) -> Answer {
        let launch = self.own_launch(caller, given.launch)?;
        let traced = launch.traced.as_mut();
        let traced = traced.filter(|traced| traced.complete.is_none());
        let traced = traced.ok_or_else(|| not_found("nobody is asked for its paths"))?;
        let mut is_whole = true;
        for (kind, path, is_found) in given.calls {
            let path = path.into();
            is_whole &= traced.add(PathCall {
                kind,
                path,
                is_found,
            });
        }
        // What is left out cannot be told later.
        traced.complete = match is_whole {
            true => given.complete,
            false => Some(false),
        };
        let over = traced.waiting.is_some();
        if traced.complete.is_some() {
            let waited = traced.take_waited(Nanos::MAX);
            waited.into_iter().for_each(|result| self.conclude(result));
        }
        reply(LaunchPathsReply { over })
    }

    /// Does without the paths that did not come in time.
    pub(super) fn end_waiting_for_paths(&mut self, now: Nanos) {
        let help = self.launches.iter_mut();
        let traced = help.flat_map(|help| help.traced());
        let waited: Vec<LaunchResult> = traced.filter_map(|t| t.take_waited(now)).collect();
        waited.into_iter().for_each(|result| self.conclude(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::launch::recording::CallKind;

    fn call(path: &str) -> PathCall {
        PathCall {
            kind: CallKind::Open,
            path: path.into(),
            is_found: false,
        }
    }

    #[test]
    fn what_is_traced_of_one_user_leaves_room_for_others() {
        let may = |owner, traced: &[u32]| may_trace(owner, traced.iter().copied());
        let own = [1_000; TRACED_OF_USER_MAX];
        assert!(may(1_000, &own[1..]) && !may(1_000, &own));
        assert!(may(1_001, &own) && may(0, &own));
        assert!(may(0, &[0; TRACED_MAX - 1]) && !may(0, &[0; TRACED_MAX]));
        assert!(!may(1_000, &[0; TRACED_MAX]));
    }

    #[test]
    fn what_is_told_is_bounded_and_a_path() {
        let mut traced = Traced::default();
        for path in [
            "relative",
            "",
            "/a\0b",
            "/a\x1b[2Jb",
            &"/x".repeat(PATH_BYTES_MAX),
        ] {
            assert!(!traced.add(call(path)), "{path:?}");
        }
        let mut traced = Traced::default();
        let path = format!("/{}", "x".repeat(1_023));
        let taken = (0..2_000).filter(|_| traced.add(call(&path))).count();
        assert_eq!(taken, PATHS_BYTES_MAX / 1_024);
        let mut traced = Traced::default();
        let taken = (0..2 * CALLS_MAX)
            .filter(|_| traced.add(call("/x")))
            .count();
        assert_eq!(taken, CALLS_MAX);
    }
}
