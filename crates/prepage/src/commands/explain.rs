//! `explain`: what is known, what would be fetched and why, what the last switches did.

use super::stats::records_table;
use super::status::missing;
use super::table::{columns, row};
use super::{Context, Failure, launches};
use crate::api::{AppParameters, ExplainReply, ExplainedClass, ExplainedTable};
use prepage_core::outcome::SwitchRecord;
use std::cmp::Reverse;

/// Most processes shown, and files; `--json` has more.
const TABLES_SHOWN_MAX: usize = 10;

/// Most histories shown of each; `--json` has all.
const CLASSES_SHOWN_MAX: usize = 8;

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
    let (known_pages, planned_pages) = known.pages_left_out;
    let files = LeftOut {
        tables: known.files_left_out,
        known_pages,
        planned_pages,
    };
    let none = LeftOut::default();
    text += &section("Anonymous pages", &known.processes, &none, "processes");
    text += &section("File pages", &known.files, &files, "files");
    if known.last.is_empty() {
        text += "\nNo switch is on record: the service keeps those since its start.\n";
    } else {
        let records: Vec<&SwitchRecord> = known.last.iter().collect();
        text += "\nThe last switches\n";
        text += &records_table(&records);
    }
    text + &launches::explained(&known.launch) + missing(known.missing)
}

/// Tables beside those that are listed, and their pages.
#[derive(Default)]
struct LeftOut {
    tables: u64,
    known_pages: u64,
    planned_pages: u64,
}

fn section(title: &str, tables: &[ExplainedTable], left_out: &LeftOut, what: &str) -> String {
    if tables.is_empty() {
        return format!("\n{title}: none known\n");
    }
    let sum = |count: fn(&ExplainedTable) -> u64| tables.iter().map(count).sum::<u64>();
    let known = left_out.known_pages + sum(|t| t.known_pages);
    let planned = left_out.planned_pages + sum(|t| t.planned_pages);
    let mut text = format!("\n{title}: {known} known, {planned} would be fetched\n");
    let mut rows = vec![row([
        "of",
        "table",
        "history",
        "pages",
        "probability",
        "fetched",
    ])];
    let shown = tables.iter().take(TABLES_SHOWN_MAX);
    rows.extend(shown.flat_map(table_rows));
    text += &columns(&rows);
    let hidden = tables.len().saturating_sub(TABLES_SHOWN_MAX) as u64 + left_out.tables;
    if hidden > 0 {
        text += &format!("and {hidden} more {what}\n");
    }
    text
}

/// The histories that most pages have, the likeliest first, and the others in one row.
fn table_rows(table: &ExplainedTable) -> Vec<Vec<String>> {
    let mut by_pages: Vec<usize> = (0..table.classes.len()).collect();
    by_pages.sort_by_key(|&at| Reverse(table.classes[at].pages));
    let others = by_pages.split_off(by_pages.len().min(CLASSES_SHOWN_MAX));
    by_pages.sort();
    let of = |at| if at == 0 { table.of.as_str() } else { "" };
    let mut rows = Vec::new();
    for class in by_pages.into_iter().map(|at| &table.classes[at]) {
        rows.push(row([
            of(rows.len()),
            &class.table,
            &format!("[{}]", class.history),
            &class.pages.to_string(),
            &format!("{:.2}", class.probability),
            &class.planned_pages.to_string(),
        ]));
    }
    if !others.is_empty() {
        let sum = |count: fn(&ExplainedClass) -> u64| {
            let counts = others.iter().map(|&at| count(&table.classes[at]));
            counts.sum::<u64>().to_string()
        };
        rows.push(row([
            "",
            "",
            &format!("{} more", others.len()),
            &sum(|class| class.pages),
            "",
            &sum(|class| class.planned_pages),
        ]));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(pages: u64, probability: f32) -> ExplainedClass {
        ExplainedClass {
            table: "target".into(),
            history: "+-".into(),
            pages,
            probability,
            planned_pages: pages / 2,
        }
    }

    fn table(of: &str, classes: Vec<ExplainedClass>) -> ExplainedTable {
        let sum = |count: fn(&ExplainedClass) -> u64| classes.iter().map(count).sum();
        ExplainedTable {
            of: of.into(),
            known_pages: sum(|class| class.pages),
            planned_pages: sum(|class| class.planned_pages),
            classes,
        }
    }

    #[test]
    fn histories_of_few_pages_share_a_row() {
        let classes = |count: u32| {
            (0..count)
                .map(|at| class(u64::from(at) * 10, 0.5))
                .collect()
        };
        let (few, many) = (table("a", classes(8)), table("b", classes(75)));
        assert_eq!(table_rows(&few).len(), 8);
        let rows = table_rows(&many);
        assert_eq!(rows.len(), 9);
        let pages: Vec<&str> = rows.iter().map(|row| &*row[3]).collect();
        // Those of the most pages, in their order, and the sum of 0 to 660.
        let most = ["670", "680", "690", "700", "710", "720", "730", "740"];
        assert_eq!(pages[..8], most);
        assert_eq!(
            (pages[8], &*rows[8][2], &*rows[8][5]),
            ("22110", "67 more", "11055")
        );
        assert_eq!((&*rows[0][0], &*rows[1][0]), ("b", ""));
    }

    #[test]
    fn tables_beyond_those_shown_are_counted() {
        let tables: Vec<_> = (0..12)
            .map(|at| table(&format!("file {at}"), vec![class(2, 1.0)]))
            .collect();
        let left_out = LeftOut {
            tables: 3,
            known_pages: 100,
            planned_pages: 50,
        };
        let text = section("File pages", &tables, &left_out, "files");
        assert!(
            text.contains("File pages: 124 known, 62 would be fetched"),
            "{text}"
        );
        assert!(
            text.contains("file 9") && !text.contains("file 10"),
            "{text}"
        );
        assert!(text.ends_with("and 5 more files\n"), "{text}");
        assert_eq!(
            section("File pages", &[], &LeftOut::default(), "files"),
            "\nFile pages: none known\n"
        );
    }
}
