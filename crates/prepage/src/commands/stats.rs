//! `stats`: what each of the last switches did.

use super::status::missing;
use super::table::{bytes, columns, row};
use super::{Context, Failure, launches};
use crate::api::{StatsParameters, StatsReply, SwitchOf};
use crate::launch::record::LaunchRecord;
use prepage_core::outcome::{Late, Outcome, Share, SwitchRecord};
use std::collections::BTreeMap;

/// `prepage stats`
pub fn stats(context: &Context, app: Option<String>) -> Result<(), Failure> {
    let reply: StatsReply = context.ask("Stats", &StatsParameters { app })?;
    context.print(&reply, words)
}

fn words(stats: &StatsReply) -> String {
    if !stats.kept.is_empty() {
        return launches::kept_table(&stats.kept);
    }
    if stats.switches.is_empty() && stats.launches.is_empty() {
        let nothing =
            "no switch and no launch is on record: the service keeps those since its start\n";
        return nothing.to_owned() + missing(stats.missing);
    }
    type Records<'a> = (Vec<&'a SwitchRecord>, Vec<&'a LaunchRecord>);
    let mut by_app: BTreeMap<&str, Records<'_>> = BTreeMap::new();
    for SwitchOf { app, record } in &stats.switches {
        by_app.entry(app).or_default().0.push(record);
    }
    for record in &stats.launches {
        by_app.entry(&record.app).or_default().1.push(record);
    }
    let of_app = |(app, (switches, launches)): (&&str, &Records<'_>)| {
        let mut text = format!("{app}\n");
        if !switches.is_empty() {
            text += &records_table(switches);
        }
        if !launches.is_empty() {
            text += "launches\n";
            text += &launches::records_table(launches);
        }
        text
    };
    by_app.iter().map(of_app).collect::<Vec<_>>().join("\n") + missing(stats.missing)
}

/// A line for each kind of pages of each switch; of what was not observed, dashes.
pub fn records_table(records: &[&SwitchRecord]) -> String {
    let mut rows = vec![row([
        "switch",
        "mode",
        "source",
        "ms",
        "pages",
        "faults",
        "planned",
        "fetched",
        "used",
        "unknown",
        "overtaken",
        "missed",
        "late",
        "late ms",
        "precision",
        "hold-out precision",
        "recall",
        "wasted",
        "path ms",
        "CPU ms",
        "note",
    ])];
    for record in records {
        rows.push(line(record, "anon", Some(&record.anon), true));
        rows.push(line(record, "file", record.file.as_ref(), false));
    }
    columns(&rows)
}

fn line(record: &SwitchRecord, kind: &str, outcome: Option<&Outcome>, first: bool) -> Vec<String> {
    let timing = &record.timing;
    let once = |text: String| if first { text } else { String::new() };
    let known = |text: fn(&Outcome) -> String| outcome.map_or("-".to_owned(), text);
    let mut line = vec![
        once(record.number.to_string()),
        once(record.mode.word().into()),
        once(format!("{:?}", record.source).to_lowercase()),
        once(record.duration_ms.to_string()),
        kind.to_owned(),
    ];
    let late = |show: fn(Late) -> String| outcome.and_then(|o| o.late).map_or("-".to_owned(), show);
    line.extend([
        known(|of| of.demanded.to_string()),
        known(|of| of.planned.to_string()),
        known(|of| of.fetched.to_string()),
        known(|of| of.used.to_string()),
        known(|of| of.unknown.to_string()),
        known(|of| of.overtaken.to_string()),
        known(|of| of.missed.to_string()),
        late(|late| late.pages.to_string()),
        late(|late| ms(late.wait_us)),
        known(|of| share(of.precision)),
        known(|of| share(of.holdout_precision)),
        known(|of| share(of.holdout_recall)),
        known(|of| bytes(of.wasted() * prepage_kernel::page::page_size())),
        once(ms(timing.switch_path_us)),
        once(ms(timing.fetch_cpu_us + timing.management_cpu_us)),
        once(note(record)),
    ]);
    line
}

fn ms(us: u64) -> String {
    format!("{:.1}", us as f64 / 1_000.0)
}

/// `87 % (n 1200)`, or `-` where nothing was looked at.
fn share(share: Share) -> String {
    let percent = share.ratio().map(|ratio| (ratio * 100.0).round());
    percent.map_or("-".into(), |percent| {
        format!("{percent} % (n {})", share.of)
    })
}

fn note(record: &SwitchRecord) -> String {
    let mut notes = Vec::new();
    if let Some(void) = record.void {
        notes.push(format!("void: {void:?}").to_lowercase());
    }
    if record.events_lost > 0 {
        notes.push(format!("{} events lost", record.events_lost));
    }
    if record.unresolved > 0 {
        notes.push(format!("{} pages of unknown files", record.unresolved));
    }
    notes.join(", ")
}
