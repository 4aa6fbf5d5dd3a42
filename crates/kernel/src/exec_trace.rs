//! The tracepoint sched:sched_process_exec (3.4+): a process execs. It is how a launch is seen that nobody announces.
//!
//! It comes when the new program and its interpreter are mapped and before they run; nothing makes a ring readable
//! while nobody execs. Time and process are those of the sample ([`crate::ring::TracepointSample`]).

use crate::error::{Error, Result};
use crate::tracefs::{EventFormat, Field, Tracefs};

/// The tracepoint, as this kernel lays it out.
#[derive(Clone, Debug)]
pub struct ExecTrace {
    id: u32,
    filename: Field,
}

/// A decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecEvent<'a> {
    /// The path that was given to execve: maybe relative, maybe a script's. The program is that of
    /// [`crate::process::exe`].
    pub path: &'a [u8],
}

impl ExecTrace {
    /// Looks the tracepoint up; [`Error::is_not_found`] where this kernel does not have it.
    pub fn find(tracefs: &Tracefs) -> Result<ExecTrace> {
        let format = tracefs.event("sched", "sched_process_exec")?;
        layout(&format).ok_or_else(|| {
            Error::malformed("parse", "sched_process_exec", "it has no field `filename`")
        })
    }

    /// Its id, for [`crate::perf::TracepointRings::open`].
    pub fn event_id(&self) -> u32 {
        self.id
    }

    /// Decodes a sample; `None` for another tracepoint's or a malformed one.
    pub fn decode<'a>(&self, event_id: u32, raw: &'a [u8]) -> Option<ExecEvent<'a>> {
        if event_id != self.id {
            return None;
        }
        let path = self.filename.dynamic(raw)?;
        Some(ExecEvent {
            path: path.strip_suffix(&[0]).unwrap_or(path),
        })
    }
}

fn layout(format: &EventFormat) -> Option<ExecTrace> {
    Some(ExecTrace {
        id: format.id,
        filename: format.field("filename")?.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::parse_format;

    #[test]
    fn decodes_paths() {
        let format =
            "ID: 365\n\tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n";
        let trace = layout(&parse_format(format).expect("well formed")).expect("complete");
        let mut raw = vec![0; 8];
        raw.extend((12_u32 | 8 << 16).to_ne_bytes());
        raw.extend(b"/bin/sh\0");
        let event = trace.decode(365, &raw).expect("well formed");
        assert_eq!(event.path, b"/bin/sh");
        assert_eq!(trace.decode(364, &raw), None, "another tracepoint");
        assert_eq!(trace.decode(365, &raw[..19]), None, "truncated");
    }
}
