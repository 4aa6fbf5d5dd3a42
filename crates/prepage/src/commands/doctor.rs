//! `doctor`: works without the service.

use super::table::wrapped;
use super::{Context, Failure};
use crate::client::Client;
use crate::error::{Error, START_HINT};
use crate::service::{Finding, State, findings};
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
    let report = Report {
        service,
        findings: findings(&Support::probe()),
    };
    context.print(&report, words)
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
            "{n} things are missing to this user: `sudo prepage doctor` shows what the service has."
        ),
        0 => "Everything that prepage uses is here.".to_owned(),
        1 => "1 thing is missing; the rest works without it.".to_owned(),
        n => format!("{n} things are missing; the rest works without them."),
    };
    format!("{text}\nThe service is {}\n{summary}", report.service)
}
