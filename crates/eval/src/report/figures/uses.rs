//! Use of processors and disk.

use crate::record::{Mode, Switch, Timeline};
use crate::report::html::{escape, figure};
use crate::report::plot::{Interval, Line, Panel, colour, intervals, lines};
use crate::statistics::Estimate;
use crate::study::Studies;
use crate::study::switches::{Switches, settled_ms};
use crate::study::utilization::Utilization;

/// The modes that are shown over time: without help, and with all of it.
const MODES: [Mode; 2] = [Mode::Off, Mode::Full];

/// Figures 2 and 3: hundredths of what processors and disk can do.
pub fn shares(studies: &Studies) -> String {
    let of = |value: fn(&Utilization) -> Option<Estimate>| {
        let row = |study: &crate::study::Study| {
            let shown = study.utilization.iter().filter(|u| MODES.contains(&u.mode));
            let mark = |u: &Utilization| {
                Some(Interval {
                    word: u.mode.word(),
                    colour: colour(u.mode),
                    estimate: value(u)?,
                })
            };
            (escape(&study.app), shown.filter_map(mark).collect())
        };
        let rows: Vec<(String, Vec<Interval>)> = studies.apps.iter().map(row).collect();
        rows.iter()
            .any(|(_, marks)| !marks.is_empty())
            .then_some(rows)
    };
    let mut out = String::new();
    if let Some(rows) = of(|u| u.cpu_percent) {
        out += &figure(
            "Figures 2 and 3, processors. How much of them a switch uses",
            "Application, prepage, display and measurement, of all cores, from the activation until the picture settled.",
            &intervals(&rows, "% of all cores", None),
        );
    }
    if let Some(rows) = of(|u| u.disk_percent) {
        out += &figure(
            "Figures 2 and 3, disk. How much of it a switch uses",
            "Bytes read from the disk, of what it reads sequentially, measured when the run began.",
            &intervals(&rows, "% of the disk's sequential reads", None),
        );
    }
    out
}

/// Figures 13 and 14: one switch of each mode over time, of each application that has such.
pub fn timelines(apps: &[Switches]) -> String {
    let rows: String = apps.iter().map(timeline_row).collect();
    match rows.is_empty() {
        true => rows,
        false => format!(
            "<figure><h3>Figures 13 and 14. One switch over time</h3>{rows}<figcaption>Of each mode the switch whose time is the \
             median; a vertical line is where its picture settled. Not normalized to the time of off, as the paper's are. Demanded: \
             major faults of the application; swapped in: by the application and by prepage.</figcaption></figure>\n"
        ),
    }
}

/// The sample of a mode whose time is the lower median of those that were recorded over time.
fn typical(switches: &Switches, mode: Mode) -> Option<(&Switch, &Timeline)> {
    let of_mode = switches.samples.iter().filter(|s| s.slot.mode == mode);
    let mut timed: Vec<(&Switch, &Timeline)> = of_mode
        .filter_map(|s| Some((s, s.timeline.as_ref()?)))
        .collect();
    timed.sort_by(|a, b| settled_ms(a.0).total_cmp(&settled_ms(b.0)));
    timed.get(timed.len().saturating_sub(1) / 2).copied()
}

fn timeline_row(switches: &Switches) -> String {
    let shown: Vec<(&Switch, &Timeline)> = MODES
        .into_iter()
        .filter_map(|mode| typical(switches, mode))
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let cores = switches.run.machine.cores.max(1) as f64;
    let cpu = |t: &Timeline, i: usize| {
        let us = t.app_cpu_us[i] + t.service_cpu_us[i] + t.others_cpu_us[i];
        100.0 * us as f64 / bin_us(t, i) / cores
    };
    let disk = |t: &Timeline, i: usize| 512.0 * t.disk_read_sectors[i] as f64 / bin_us(t, i);
    let line = |value: &dyn Fn(&Timeline, usize) -> f64| -> Vec<Line> {
        let of = |(switch, timeline): &(&Switch, &Timeline)| {
            named(switch, String::new(), steps(timeline, value))
        };
        shown.iter().map(of).collect()
    };
    let panel = |y_unit, y_high| Panel {
        x_unit: "ms since the activation",
        y_unit,
        y_high,
        is_dots: false,
        is_narrow: true,
    };
    format!(
        "<h4>{}</h4><div class=\"panels\">{}{}{}</div>",
        escape(&switches.app),
        lines(&line(&cpu), &panel("% of all cores", Some(100.0))),
        lines(&line(&disk), &panel("MB/s read", None)),
        lines(&page_lines(&shown), &panel("pages, so far", None)),
    )
}

/// How long a bin is; what is counted in none took no time.
fn bin_us(timeline: &Timeline, i: usize) -> f64 {
    let before = if i == 0 { 0 } else { timeline.t_us[i - 1] };
    timeline.t_us[i].saturating_sub(before).max(1) as f64
}

/// A value that holds for a bin, as a line with steps.
fn steps(timeline: &Timeline, value: &dyn Fn(&Timeline, usize) -> f64) -> Vec<(f64, f64)> {
    let ms = |i: usize| timeline.t_us[i] as f64 / 1e3;
    let bin = |i: usize| {
        let from = if i == 0 { 0.0 } else { ms(i - 1) };
        let value = value(timeline, i);
        [(from, value), (ms(i), value)]
    };
    (0..timeline.t_us.len()).flat_map(bin).collect()
}

fn named(switch: &Switch, what: String, points: Vec<(f64, f64)>) -> Line {
    let mode = switch.slot.mode;
    Line {
        name: format!("{}{what}", mode.word()),
        colour: colour(mode),
        points,
        end: Some(settled_ms(switch)),
    }
}

/// Pages demanded in each mode, and swapped in where prepage takes part.
fn page_lines(shown: &[(&Switch, &Timeline)]) -> Vec<Line> {
    let mut all = Vec::new();
    for (switch, timeline) in shown {
        all.push(named(
            switch,
            " demanded".into(),
            cumulated(timeline, &timeline.majflt),
        ));
        if switch.slot.mode == Mode::Full {
            let points = cumulated(timeline, &timeline.pswpin);
            all.push(named(switch, " swapped in".into(), points));
        }
    }
    all
}

fn cumulated(timeline: &Timeline, counts: &[u64]) -> Vec<(f64, f64)> {
    let mut sum = 0;
    let sums = timeline.t_us.iter().zip(counts).map(|(us, count)| {
        sum += count;
        (*us as f64 / 1e3, sum as f64)
    });
    std::iter::once((0.0, 0.0)).chain(sums).collect()
}
