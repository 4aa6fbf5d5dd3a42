//! `doctor`: works without the service.

use super::table::wrapped;
use super::{Context, Failure};
use crate::client::Client;
use crate::error::{Error, START_HINT};
use crate::service::{Finding, State, findings, note, works};
use crate::sources::focus::FocusWatch;
use prepage_kernel::support::Support;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report {
    service: String,
    findings: Vec<Finding>,
}

/// `prepage doctor`
pub fn doctor(context: &Context) -> Result<(), Failure> {
    let service = match Client::connect(&context.socket) {
        Ok(_) => format!("running at {}", context.socket.display()),
        Err(Error::NotRunning { socket, source }) => {
            let socket = socket.display();
            format!("not running: nothing answers at {socket}: {source}\n{START_HINT}")
        }
        Err(error) => error.to_string(),
    };
    let mut findings = findings(&Support::probe());
    findings.push(focus());
    context.print(&Report { service, findings }, words)
}

/// Who tells the focus of windows in the session of whoever asks.
fn focus() -> Finding {
    let what = "window focus";
    match FocusWatch::open(None) {
        Ok((watch, None)) => {
            let detail = format!(
                "{} tells `prepage agent`, where that runs (systemctl --user status prepage-agent)",
                watch.teller()
            );
            works(what, detail)
        }
        Err(_) if !FocusWatch::is_in_session() => note(what, "asked outside of a session"),
        Ok((_, Some(error))) | Err(error) => {
            let error = error.to_string();
            let reason = error.lines().next().unwrap_or_default();
            let detail = format!(
                "the session's compositor does not tell `prepage agent`: {reason}. GNOME Shell reports it by its extension \
                 (gnome-extensions enable prepage@prepage.org); where nothing does, switches are found by the onset of \
                 demand faults"
            );
            note(what, detail)
        }
    }
}

fn words(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let sign = match finding.state {
            State::Works => "ok",
            State::Missing => "MISSING",
            State::Note => "",
        };
        text += &wrapped(sign, &format!("{}: {}", finding.what, finding.detail));
        if !finding.cost.is_empty() {
            text += &wrapped("", &format!("-> {}", finding.cost));
        }
    }
    let of_state = |state| report.findings.iter().filter(move |f| f.state == state);
    let summary = match of_state(State::Missing).count() {
        n if !rustix::process::geteuid().is_root() => format!(
            "{n} things are missing to this user: `sudo prepage doctor` shows what root has, `prepage status` what the service \
             lacks."
        ),
        0 => "Everything that prepage uses is here.".to_owned(),
        1 => "1 thing is missing; the rest works without it.".to_owned(),
        n => format!("{n} things are missing; the rest works without them."),
    };
    format!("{text}\nThe service is {}\n{summary}", report.service)
}
