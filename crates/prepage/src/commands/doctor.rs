//! `doctor`: works without the service.

use super::{Context, Failure};
use crate::client::Client;
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
            State::Works => "ok      ",
            State::Missing => "MISSING ",
            State::Note => "        ",
        };
        text += &format!("{sign}{}: {}\n", finding.what, finding.detail);
        if !finding.cost.is_empty() {
            text += &format!("           {}\n", finding.cost);
        }
    }
    let missing = report
        .findings
        .iter()
        .filter(|f| f.state == State::Missing)
        .count();
    let summary = match missing {
        0 => "Everything that prepage uses is here.".to_owned(),
        1 => "1 thing is missing; the rest works without it.".to_owned(),
        n => format!("{n} things are missing; the rest works without them."),
    };
    format!("{text}\nThe service: {}\n{summary}", report.service)
}
