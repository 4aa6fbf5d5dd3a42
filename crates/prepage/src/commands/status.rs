//! `status`.

use super::launches::phase;
use super::table::{bytes, columns, row};
use super::{Context, Failure};
use crate::api::StatusReply;

/// `prepage status`
pub fn status(context: &Context) -> Result<(), Failure> {
    let reply: StatusReply = context.call("Status", &serde_json::json!({}))?;
    context.print(&reply, words)
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
        text += "some things are missing on this machine: see `prepage doctor`\n";
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
