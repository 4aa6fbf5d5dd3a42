//! `explain`: what is known, what would be fetched and why, what the last switches did.

use super::stats::records_table;
use super::status::missing;
use super::table::{columns, row};
use super::{Context, Failure, launches};
use crate::api::{AppParameters, ExplainReply, ExplainedTable};
use prepage_core::outcome::SwitchRecord;

/// Most files shown; `--json` has more.
const FILES_SHOWN_MAX: usize = 10;

/// `prepage explain`
pub fn explain(context: &Context, app: String) -> Result<(), Failure> {
    let reply: ExplainReply = context.ask("Explain", &AppParameters { app })?;
    context.print(&reply, words)
}

fn words(known: &ExplainReply) -> String {
    let tracked = if known.tracked {
        "tracked"
    } else {
        "not tracked"
    };
    let mut text = format!(
        "{}: {tracked}, mode {}, {} switches seen, {} of {} profiling switches done\n",
        known.app,
        known.mode.word(),
        known.switches,
        known.profiled.0,
        known.profiled.1
    );
    text += &format!(
        "fetched are anonymous pages that are used with a probability of {:.2} or more, file pages with {:.2}: {}\n",
        known.confidence, known.file_confidence, known.confidence_reason
    );
    if known.left_alone > 0 {
        text += &format!(
            "left alone for {} switches: its demand went on long after all that was planned was fetched, as a busy \
             service's does, and help would stand in its way (switch.endless_ms)\n",
            known.left_alone
        );
    }
    text += &section("Anonymous pages", &known.processes, usize::MAX);
    text += &section("File pages", &known.files, FILES_SHOWN_MAX);
    let hidden = known.files.len().saturating_sub(FILES_SHOWN_MAX) as u64 + known.files_left_out;
    if hidden > 0 {
        text += &format!("and {hidden} more files\n");
    }
    if known.last.is_empty() {
        text += "\nNo switch is on record: the service keeps those since its start.\n";
    } else {
        let records: Vec<&SwitchRecord> = known.last.iter().collect();
        text += "\nThe last switches\n";
        text += &records_table(&records);
    }
    text + &launches::explained(&known.launch) + missing(known.missing)
}

fn section(title: &str, tables: &[ExplainedTable], shown_max: usize) -> String {
    if tables.is_empty() {
        return format!("\n{title}: none known\n");
    }
    let sum = |count: fn(&ExplainedTable) -> u64| tables.iter().map(count).sum::<u64>();
    let (known, planned) = (sum(|t| t.known_pages), sum(|t| t.planned_pages));
    let mut text = format!("\n{title}: {known} known, {planned} would be fetched\n");
    let mut rows = vec![row([
        "of",
        "table",
        "history",
        "pages",
        "probability",
        "fetched",
    ])];
    for table in tables.iter().take(shown_max) {
        for (at, class) in table.classes.iter().enumerate() {
            rows.push(row([
                if at == 0 { &table.of } else { "" },
                &class.table,
                &format!("[{}]", class.history),
                &class.pages.to_string(),
                &format!("{:.2}", class.probability),
                &class.planned_pages.to_string(),
            ]));
        }
    }
    text += &columns(&rows);
    text
}
