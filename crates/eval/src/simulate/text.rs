//! A simulation as a table of text. Memory is that of the largest application, in 1,024 bytes.

use super::Simulation;
use super::row::Row;
use crate::study::text::table;
use prepage_core::outcome::Share;
use prepage_core::replay::Tally;

/// The whole simulation.
pub fn show(simulation: &Simulation) -> String {
    let bars = |bars: &[u64; 10]| bars.map(|bar| bar.to_string()).join(" ");
    let mut out = format!(
        "{} applications; counted from switch {}; pages are those of a switch\n\
         watched: pages fetched in such a way that their use is seen, which costs the application a minor fault each\n\
         as seen: the precision that the service would see, of the pages whose use it observes; predictors see all\n\
         accessed in 1, 2, ... 10 of the first ten switches: anonymous pages {}; file pages {}\n\n",
        simulation.apps,
        simulation.from,
        bars(&simulation.anon_recurrence),
        bars(&simulation.file_recurrence),
    );
    let mut rows = vec![row(HEAD.map(str::to_owned))];
    rows.extend(simulation.rows.iter().map(line));
    out += &table(&rows);
    for learned in simulation.rows.iter().filter(|r| !r.learning.is_empty()) {
        out += &format!("\n{}\n", learned.name);
        out += &learning(learned, simulation.apps as u64);
    }
    out
}

const HEAD: [&str; 12] = [
    "",
    "anon precision %",
    "recall %",
    "fetched",
    "wasted",
    "watched",
    "as seen %",
    "file precision %",
    "recall %",
    "fetched",
    "wasted",
    "memory, kB",
];

fn row(cells: impl IntoIterator<Item = String>) -> Vec<String> {
    cells.into_iter().collect()
}

fn percent(share: Share) -> String {
    share
        .ratio()
        .map_or("-".into(), |ratio| format!("{:.1}", ratio * 100.0))
}

/// Precision, recall, pages fetched and pages wasted by switch.
fn tally(tally: &Tally, switches: u64) -> [String; 4] {
    [
        percent(tally.precision()),
        percent(tally.recall()),
        each(tally.fetched + tally.gap, switches),
        each(tally.wasted(), switches),
    ]
}

fn each(pages: u64, switches: u64) -> String {
    format!("{:.0}", pages as f64 / switches.max(1) as f64)
}

fn line(of: &Row) -> Vec<String> {
    let mut cells = vec![of.name.clone()];
    cells.extend(tally(&of.anon, of.switches));
    cells.push(each(of.anon.watched, of.switches));
    cells.push(percent(of.anon_seen));
    cells.extend(tally(&of.file, of.switches));
    cells.push((of.bytes_max / 1024).to_string());
    cells
}

fn learning(of: &Row, apps: u64) -> String {
    let heads = HEAD[1..5].iter().chain(&HEAD[7..11]);
    let mut rows = vec![row(std::iter::once("switch")
        .chain(heads.copied())
        .map(str::to_owned))];
    for (number, (anon, file)) in (1..).zip(&of.learning) {
        let mut cells: Vec<String> = vec![format!("{number}")];
        cells.extend(tally(anon, apps));
        cells.extend(tally(file, apps));
        rows.push(cells);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_every_column_and_nothing_is_divided_by_nothing() {
        let learned = Row {
            name: "default".into(),
            switches: 2,
            anon: Tally {
                fetched: 10,
                used: 9,
                gap: 2,
                demanded: 12,
                spared: 9,
                watched: 6,
                ..Tally::default()
            },
            bytes_max: 4096,
            learning: vec![Default::default(), Default::default()],
            ..Row::default()
        };
        let shown = show(&Simulation {
            apps: 1,
            from: 11,
            anon_recurrence: [1; 10],
            file_recurrence: [0; 10],
            rows: vec![learned],
        });
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let row = shown.lines().find(|line| line.contains("default"));
        let row = words(row.expect("a row"));
        assert_eq!(row.len(), HEAD.len(), "{shown}");
        // Gap pages are fetched and wasted, and in no precision.
        assert_eq!(row[1..5], ["90.0", "75.0", "6", "2"], "{shown}");
        assert_eq!(
            (row[5].as_str(), row[6].as_str(), row[11].as_str()),
            ("3", "-", "4")
        );
        assert_eq!(
            shown.lines().filter(|l| words(l).len() == 9).count(),
            2,
            "{shown}"
        );
    }
}
