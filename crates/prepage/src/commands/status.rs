//! `status`.

use super::launches::phase;
use super::table::{bytes, columns, row, wrapped};
use super::{Context, Failure};
use crate::api::StatusReply;

/// `prepage status`
pub fn status(context: &Context) -> Result<(), Failure> {
    let reply: StatusReply = context.call("Status", &serde_json::json!({}))?;
    context.print(&reply, words)
}

/// Said by those commands whose answer depends on what the machine offers, where something is missing.
pub fn missing(count: u64) -> &'static str {
    match count {
        0 => "",
        _ => {
            "\nsomething is missing on this machine, which this depends on: see `prepage status`\n"
        }
    }
}

fn words(status: &StatusReply) -> String {
    let mut text = format!(
        "prepaged {} (process {}), mode {}\n",
        status.version,
        status.pid,
        status.mode.word()
    );
    if status.under_pressure {
        text += "tasks wait for memory, on the whole machine or in a control group at its limit:\n\
            until that is over, only surer pages are fetched (budget.confidence_pressure)\n";
    }
    if !status.missing.is_empty() {
        text += "missing on this machine (`prepage doctor` shows all that is looked for):\n";
        text.extend(status.missing.iter().map(|missing| wrapped("", missing)));
    }
    if status.reclaimed_ahead_times > 0 {
        let (times, size) = (
            status.reclaimed_ahead_times,
            bytes(status.reclaimed_ahead_bytes),
        );
        text += &format!(
            "reclaimed ahead of switches since the start, where memory was full: {size} ({times} times)\n"
        );
    }
    if status.threads_given_up > 0 {
        let threads = status.threads_given_up;
        text += &format!(
            "threads given up, since a disk, a file system or a process did not answer: {threads}\n"
        );
    }
    if status.apps.is_empty() {
        return text + "no application of yours is tracked: see `prepage track --help`";
    }
    let heading = [
        "application",
        "state",
        "processes",
        "switches",
        "planned anon",
        "file",
        "tables",
        "launches",
        "launch phase",
        "members",
    ];
    let mut rows = vec![row(heading)];
    rows.extend(status.apps.iter().map(|app| {
        row([
            &app.app,
            &app.state,
            &app.processes.to_string(),
            &app.switches.to_string(),
            &app.anon_planned_pages.to_string(),
            &app.file_planned_pages.to_string(),
            &bytes(app.table_bytes),
            &app.launches.to_string(),
            phase(app.launch_phase),
            &app.members,
        ])
    }));
    text + "\n" + &columns(&rows)
}
