//! Launches in words.

use super::table::{columns, row};
use crate::api::{ExplainedLaunch, KeptLaunches};
use crate::launch::record::LaunchRecord;
use prepage_core::launch::manager::{Help, OffReason, Phase};
use prepage_core::launch::misses::Misses;
use prepage_core::launch::recording::FILES_MAX;

/// Most files of a launch sequence shown; `--json` has more.
const FILES_SHOWN_MAX: usize = 10;

/// What is done for an application's launches.
pub fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Profiling => "profiling",
        Phase::Generation => "generation",
        Phase::Prefetch => "prefetch",
        Phase::Off(OffReason::TooSmall) => "left alone: too small to gain",
        Phase::Off(OffReason::NotHelping) => "left alone: help did not help",
        Phase::Off(OffReason::Unsteady) => {
            "left alone: its launches differ, or do, too much to be learned"
        }
    }
}

/// A line for each launch.
pub fn records_table(records: &[&LaunchRecord]) -> String {
    let mut rows = vec![row([
        "phase",
        "help",
        "ms",
        "last block ms",
        "end",
        "read pages",
        "planned",
        "fetched",
        "complete ms",
        "paths",
        "recorded pages",
        "missed",
        "CPU ms",
        "note",
    ])];
    rows.extend(records.iter().map(|record| line(record)));
    columns(&rows)
}

fn line(record: &LaunchRecord) -> Vec<String> {
    let ms = |us: u64| format!("{:.1}", us as f64 / 1_000.0);
    let prefetch = record.prefetch.as_ref();
    let recording = record.recording.as_ref();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let help = match record.help() {
        Help::Helped => "helped",
        Help::HeldOut => "held out",
        Help::None => "none",
    };
    let cpu_us = prefetch.map_or(0, |p| p.cpu_us) + recording.map_or(0, |r| r.cpu_us);
    row([
        phase(record.phase),
        help,
        &or_none(record.launch_us.map(ms)),
        &or_none(record.last_block_us.map(ms)),
        &format!("{:?}", record.end).to_lowercase(),
        &record.device_pages.to_string(),
        &record.decision.prefetch_pages.to_string(),
        &or_none(prefetch.map(|p| p.pages.to_string())),
        &or_none(prefetch.and_then(|p| p.completed_us).map(ms)),
        &or_none(prefetch.map(|p| p.paths.to_string())),
        &or_none(recording.map(|r| r.pages.to_string())),
        &or_none(record.misses.as_ref().map(missed)),
        &ms(cpu_us),
        &note(record),
    ])
}

/// Missed requests, of those of the sequence.
fn missed(misses: &Misses) -> String {
    format!("{} of {}", misses.all(), misses.sequence_requests)
}

/// A count, or that it is not known.
fn known(count: Option<u64>) -> String {
    count.map_or("not known".into(), |count| count.to_string())
}

fn note(record: &LaunchRecord) -> String {
    let mut notes = Vec::new();
    if let Some(us) = record.noticed_us {
        notes.push(format!("seen {us} us after its exec"));
    }
    if let Some(recording) = record.recording.filter(|r| r.lost > 0) {
        notes.push(format!("{} events lost", recording.lost));
    }
    if record.unresolved_pages > 0 {
        notes.push(format!(
            "{} pages of unknown files",
            record.unresolved_pages
        ));
    }
    if record.files_left_out > 0 {
        notes.push(format!("{} files left out", record.files_left_out));
    }
    notes.join(", ")
}

/// A line for each application: what a store keeps of its launches, all together.
pub fn kept_table(kept: &[KeptLaunches]) -> String {
    let mut rows = vec![row([
        "application",
        "launches",
        "launch phase",
        "helped",
        "held out",
        "missed",
    ])];
    rows.extend(kept.iter().map(|kept| {
        row([
            &kept.app,
            &kept.launches.to_string(),
            phase(kept.phase),
            &median(kept.helped_us),
            &median(kept.held_out_us),
            &kept.misses.as_ref().map_or("-".into(), missed),
        ])
    }));
    columns(&rows)
}

/// What is known of an application's launches.
pub fn explained(launch: &ExplainedLaunch) -> String {
    let mut text = format!(
        "\nLaunches: {} seen, {}",
        launch.launches,
        phase(launch.phase)
    );
    match launch.phase {
        Phase::Profiling => {
            let (made, of) = launch.recordings;
            text += &format!(", {made} of {of} recordings made");
        }
        Phase::Off(_) => text += &format!(", learned anew in {} launches", launch.left_alone),
        Phase::Generation | Phase::Prefetch => {}
    }
    text += &format!(
        "\nlaunch sequence: {} pages of {} files, {} paths\n",
        launch.sequence_pages, launch.sequence_files, launch.sequence_paths
    );
    if launch.metadata_pages > 0 {
        text += &format!(
            "and {} pages of inodes and directories, by their device\n",
            launch.metadata_pages
        );
    }
    if launch.files_left_out > 0 {
        text += &format!(
            "left out: {} files that the last recorded launch used beyond the {FILES_MAX} that a recording holds\n",
            launch.files_left_out
        );
    }
    text += &compared(launch);
    if let Some(misses) = &launch.misses {
        text += &format!(
            "missed at the last check: {} requests (daemons: {}; journal: {}; swap: {}; transient: {}; others: {})\n",
            missed(misses),
            known(misses.daemons),
            known(misses.journal),
            known(misses.swap),
            misses.transient,
            misses.others
        );
    }
    if !launch.files.is_empty() {
        let mut rows = vec![row(["of", "pages", "recordings"])];
        rows.extend(launch.files.iter().take(FILES_SHOWN_MAX).map(|file| {
            let (pages, recordings) = (file.pages.to_string(), file.recordings.to_string());
            row([&file.path, &pages, &recordings])
        }));
        text += &columns(&rows);
    }
    if !launch.last.is_empty() {
        let records: Vec<&LaunchRecord> = launch.last.iter().collect();
        text += "\nThe last launches\n";
        text += &records_table(&records);
    }
    text
}

/// The median of so many cold launches.
fn median((us, count): (Option<u64>, u64)) -> String {
    match us {
        Some(us) => format!("{:.1} ms (n {count})", us as f64 / 1_000.0),
        None => "none".into(),
    }
}

fn compared(launch: &ExplainedLaunch) -> String {
    match (launch.helped_us.0, launch.held_out_us.0) {
        (None, None) => String::new(),
        _ => format!(
            "median of cold launches: helped {}, held out {}\n",
            median(launch.helped_us),
            median(launch.held_out_us)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_shown_as_none() {
        let launch = ExplainedLaunch {
            launches: 3,
            phase: Phase::Prefetch,
            recordings: (2, 2),
            left_alone: 0,
            sequence_pages: 9,
            sequence_paths: 0,
            metadata_pages: 0,
            sequence_files: 1,
            files: Vec::new(),
            files_left_out: 0,
            misses: Some(Misses {
                swap: Some(0),
                others: 4,
                sequence_requests: 100,
                ..Misses::default()
            }),
            helped_us: (None, 0),
            held_out_us: (None, 0),
            last: Vec::new(),
        };
        let said = explained(&launch);
        let expected = "4 of 100 requests (daemons: not known; journal: not known; swap: 0; transient: 0; others: 4)";
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("left out"), "{said}");
    }
}
