//! The figures of the paper on launches (FAST), drawn from a record.

use super::html::{escape, figure, table};
use super::plot::{
    Interval, Line, Mark, Panel, Spans, intervals, lines, scenario_colour, series_colour, spans,
};
use crate::launch::activity::Stretch;
use crate::launch::study::{LaunchStudy, ProgramRow, ScenarioRow, SimultaneousRow};
use crate::launch::tables;
use crate::launch::usage::UsageRow;

/// Figure 5: how the launch sequences shrink with the recordings that they are learned from.
pub fn sequence_sizes(study: &LaunchStudy) -> String {
    let line = |(i, program): (usize, &ProgramRow)| {
        let pages = tables::recorded_pages(program);
        let first = pages.first().copied().filter(|&first| first > 0)? as f64;
        let point = |(n, &pages): (usize, &u64)| (n as f64 + 1.0, 100.0 * pages as f64 / first);
        (pages.len() > 1).then(|| Line {
            name: escape(&program.program),
            colour: series_colour(i),
            points: pages.iter().enumerate().map(point).collect(),
            end: None,
        })
    };
    let all: Vec<Line> = study.programs.iter().enumerate().filter_map(line).collect();
    if all.is_empty() {
        return String::new();
    }
    let panel = Panel {
        x_unit: "recordings",
        y_unit: "% of the pages of the first",
        y_high: None,
        is_dots: false,
        is_narrow: false,
    };
    figure(
        "FAST's Figure 5. Size of the launch sequence by the launches that it was learned from",
        "The paper found no significant change beyond two, and learns from two. Here two are recorded whole; those after them, \
         which are helped, show which pages were only mapped along with others.",
        &lines(&all, &panel),
    )
}

/// Figure 6: every scenario over cold, by program.
pub fn over_cold(study: &LaunchStudy) -> String {
    let mark = |row: &ScenarioRow| {
        Some(Interval {
            word: row.scenario.word(),
            colour: scenario_colour(row.scenario),
            estimate: row.ratio_to_cold?,
        })
    };
    let row = |program: &ProgramRow| {
        let marks = program.scenarios.iter().filter_map(mark).collect();
        (escape(&program.program), marks)
    };
    let rows: Vec<(String, Vec<Interval>)> = study.programs.iter().map(row).collect();
    if rows.iter().all(|(_, marks)| marks.is_empty()) {
        return String::new();
    }
    let cold = Mark {
        value: 1.0,
        name: "cold".into(),
    };
    figure(
        "FAST's Figure 6. Time over cold",
        "The median of the pairs with its interval; warm is all that there is to gain.",
        &intervals(&rows, "time over cold", Some(&cold)),
    )
}

/// Figure 7: when processors and disk are busy during a launch.
pub fn usage(study: &LaunchStudy) -> String {
    let measured = study.programs.iter().filter(|p| !p.usage.is_empty());
    let plots: String = measured
        .map(|program| {
            let svg = usage_plot(&program.usage);
            let name = escape(&program.program);
            format!("<h4>{name}</h4><div class=\"plot\">{svg}</div>")
        })
        .collect();
    match plots.is_empty() {
        true => plots,
        false => format!(
            "<figure><h3>FAST's Figure 7. When processors and disk are busy during a launch</h3>{plots}<figcaption>Of each \
             scenario the launch whose time is the median, of those that were read over time and not timed otherwise. CPU: one \
             core at least has a task to run; disk: a request is in flight, or a task waits for one. The paper found next to no \
             overlap of the two in cold launches, the processors busy throughout in warm ones, and with FAST an overlap, but for \
             the beginning, when the program waits for what is not there yet.</figcaption></figure>\n{}",
            table(&tables::usage_rows(study))
        ),
    }
}

fn usage_plot(rows: &[UsageRow]) -> String {
    let of_row = |(i, row): (usize, &UsageRow)| {
        let word = row.scenario.word();
        let spans_of = |what: &str, begins_group, is_so: fn(&Stretch) -> bool| Spans {
            name: format!("{word}, {what}"),
            colour: scenario_colour(row.scenario),
            spans: joined(&row.typical.stretches, is_so),
            end: row.typical.time_ms,
            begins_group,
        };
        [
            spans_of("CPU", i > 0, |s| s.is_cpu_busy),
            spans_of("disk", false, |s| s.is_disk_busy),
        ]
    };
    let all: Vec<Spans> = rows.iter().enumerate().flat_map(of_row).collect();
    spans(&all, "ms since the launch began", 1.0)
}

/// When something was so: neighbours are one.
fn joined(stretches: &[Stretch], is_so: fn(&Stretch) -> bool) -> Vec<(f64, f64)> {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for stretch in stretches.iter().filter(|s| is_so(s)) {
        match joined.last_mut() {
            Some(last) if last.1 == stretch.from_ms => last.1 = stretch.to_ms,
            _ => joined.push((stretch.from_ms, stretch.to_ms)),
        }
    }
    joined
}

/// Figure 8: until the last of several programs that are launched at once has finished.
pub fn at_once(study: &LaunchStudy) -> String {
    let mut rows: Vec<(usize, Vec<Interval>)> = Vec::new();
    for several in &study.simultaneous {
        let SimultaneousRow {
            count, scenario, ..
        } = *several;
        let Some(estimate) = several.last_ms else {
            continue;
        };
        let mark = Interval {
            word: scenario.word(),
            colour: scenario_colour(scenario),
            estimate,
        };
        match rows.last_mut() {
            Some((of, marks)) if *of == count => marks.push(mark),
            _ => rows.push((count, vec![mark])),
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let named = |(count, marks)| (format!("{count} at once"), marks);
    let rows: Vec<(String, Vec<Interval>)> = rows.into_iter().map(named).collect();
    figure(
        "FAST's Figure 8. Until the last of several programs launched at once has finished",
        "The paper gained 20 % with five and 7 % with twenty; sorted, nothing beyond ten.",
        &intervals(&rows, "ms", None),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::record::Line as RecordLine;
    use crate::launch::scenario::Scenario;
    use crate::launch::study::study_lines;
    use crate::launch::study::tests::lines as record;
    use crate::launch::usage::tests::over_time;

    #[test]
    fn neighbouring_stretches_are_one() {
        let stretch = |from_ms, is_cpu_busy| Stretch {
            from_ms,
            to_ms: from_ms + 1.0,
            is_cpu_busy,
            is_disk_busy: false,
        };
        let stretches =
            [(0.0, true), (1.0, true), (2.0, false), (3.0, true)].map(|(f, b)| stretch(f, b));
        assert_eq!(
            joined(&stretches, |s| s.is_cpu_busy),
            [(0.0, 2.0), (3.0, 4.0)]
        );
        assert!(joined(&stretches, |s| s.is_disk_busy).is_empty());
    }

    #[test]
    fn processors_and_disk_have_a_row_for_each_scenario() {
        let mut lines = record();
        assert!(
            usage(&study_lines(lines.clone())).is_empty(),
            "nothing was read"
        );
        for scenario in [Scenario::Cold, Scenario::Warm, Scenario::Fast] {
            let launches = over_time("git", scenario).into_iter();
            lines.extend(launches.map(|launch| RecordLine::LaunchActivity(Box::new(launch))));
        }
        let html = usage(&study_lines(lines));
        for row in ["cold, CPU", "cold, disk", "warm, CPU", "fast, disk"] {
            assert_eq!(
                html.matches(&format!("{row}, until 80.0")).count(),
                1,
                "{row}"
            );
        }
        assert_eq!(html.matches("<svg").count(), 1);
        assert!(!html.contains("NaN"));
    }
}
