//! All path calls of one launch (FAST section 4.2: the system-call profiler).

use crate::error::Result;
use crate::launch::sandboxes::Sandboxes;
use crate::locked::locked;
use prepage_core::launch::recording::{CALLS_MAX, CallKind, PathCall};
use prepage_kernel::path_calls::{self, PathCallKind, PathTracer, TraceEnd};
use std::sync::{Arc, Mutex};

/// A launch whose system calls are traced.
#[derive(Debug)]
pub struct PathProfile {
    tracer: PathTracer,
    calls: Arc<Mutex<Vec<PathCall>>>,
}

impl PathProfile {
    /// Traces a process that waits for its exec, and what it starts; returns once it is traced.
    ///
    /// # Errors
    /// As [`PathTracer::start`].
    pub fn start(pid: i32) -> Result<Self> {
        let calls = Arc::new(Mutex::default());
        let noted = Arc::clone(&calls);
        let mut sandboxes = Sandboxes::of(pid);
        let note = move |call: path_calls::PathCall<'_>| {
            note(&mut locked(&noted), &mut sandboxes, &call);
        };
        let tracer = PathTracer::start(pid, note)?;
        Ok(Self { tracer, calls })
    }

    /// Whether nobody is traced any more.
    pub fn is_over(&self) -> bool {
        self.tracer.is_over()
    }

    /// Lets go of the launch. Returns its calls in order, and whether these are all.
    pub fn finish(self) -> (Vec<PathCall>, bool) {
        let traced = self.tracer.detach();
        let calls = std::mem::take(&mut *locked(&self.calls));
        let is_whole = traced.is_ok_and(|traced| {
            !matches!(traced.end, TraceEnd::OtherTracer | TraceEnd::FileServer)
        });
        let is_complete = is_whole && calls.len() < CALLS_MAX;
        (calls, is_complete)
    }
}

fn note(calls: &mut Vec<PathCall>, sandboxes: &mut Sandboxes, call: &path_calls::PathCall<'_>) {
    // A sandbox is entered by a process that executes the application then.
    if sandboxes.is_new(call.pid) || call.kind == PathCallKind::Exec {
        sandboxes.look_at(call.pid);
    }
    // A path that is not text cannot be shipped or shown.
    let path = std::str::from_utf8(call.path).ok();
    let Some(path) = path.and_then(|path| sandboxes.outside(call.pid, path)) else {
        return;
    };
    if calls.len() < CALLS_MAX {
        calls.push(PathCall {
            kind: match call.kind {
                PathCallKind::Open => CallKind::Open,
                PathCallKind::Stat => CallKind::Stat,
                PathCallKind::ReadLink => CallKind::ReadLink,
                PathCallKind::ReadDir => CallKind::ReadDir,
                PathCallKind::Exec => CallKind::Exec,
            },
            path: path.into(),
            is_found: call.found,
        });
    }
}
