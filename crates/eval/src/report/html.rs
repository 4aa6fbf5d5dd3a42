//! The page.

use super::plot::{Line, Mark, Panel, Strip, lines, strips};
use super::{Chapter, figures, idle, launches, limits, overall};
use crate::idle::{self as idle_services, study::IdleStudy};
use crate::launch::{self, study::LaunchStudy};
use crate::record::{Machine, Mode, Run, Switch};
use crate::source::Source;
use crate::statistics::{COVERAGE, Estimate, median};
use crate::study::Study;
use crate::study::rows::utilization_rows;
use crate::study::switches::{Switches, demand_faults, settled_ms};
use crate::study::text::{comparison_rows, cost_rows, mode_rows, percent, remarks, share_rows};
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The whole page: chapters of switches, of launches, then of services that sat idle.
pub fn page(chapters: &[Chapter], launches: &[LaunchStudy], idle: &[IdleStudy]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>prepage-eval</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>\n{STYLE}</style></head><body>\n\
         <h1>How fast applications come back and launch</h1>\n\
         <p>Numbers are medians with their 95 % bootstrap intervals; comparisons are paired within blocks that hold every \
         mode or scenario once, in an order drawn by lot. n, or a number in brackets, is what a number is of. What stands without an \
         interval was counted, is the most that was seen, or is a mean or median of which none is claimed. {COVERAGE}</p>\n"
    );
    let of_chapters = chapters.iter().filter_map(|chapter| {
        let (title, factors) = (escape(&chapter.title()?), escape(&chapter.factors()?));
        let section = chapter_section(&title, &factors, chapter);
        Some((format!("{title}; {factors}"), section))
    });
    let of_launches = launches.iter().map(|study| {
        (
            escape(&launch::text::heading(study)),
            launches::section(study),
        )
    });
    let of_idle = idle.iter().map(|study| {
        (
            escape(&idle_services::text::heading(study)),
            idle::section(study),
        )
    });
    let sections: Vec<(String, String)> = of_chapters.chain(of_launches).chain(of_idle).collect();
    out += &contents(&sections);
    for (i, (_, section)) in sections.iter().enumerate() {
        let _ = writeln!(out, "<div id=\"s{i}\">{section}</div>");
    }
    out += &of_asap(chapters);
    out += &of_fast(launches);
    out + "</body></html>\n"
}

/// What the paper on switches shows, where it is here, and what this hardware cannot show; nothing where no switch was
/// measured.
fn of_asap(chapters: &[Chapter]) -> String {
    match chapters.is_empty() {
        true => String::new(),
        false => format!(
            "<h2>What ASAP (USENIX ATC 2021) shows, what these records have of it, and what this hardware cannot show</h2>\n{}",
            words(&limits::inventory(chapters))
        ),
    }
}

/// What the paper on launches shows, and where it is here; nothing where no launch was measured.
fn of_fast(launches: &[LaunchStudy]) -> String {
    match launches.is_empty() {
        true => String::new(),
        false => format!(
            "<h2>What FAST (FAST'11) shows, and what these records have of it</h2>\n{}",
            words(&launch::paper::inventory(launches))
        ),
    }
}

/// The titles of several sections, to jump to.
fn contents(sections: &[(String, String)]) -> String {
    let entry = |(i, (title, _)): (usize, &(String, String))| {
        format!("<li><a href=\"#s{i}\">{title}</a></li>")
    };
    match sections.len() {
        0 | 1 => String::new(),
        _ => {
            let entries: String = sections.iter().enumerate().map(entry).collect();
            format!("<nav><ul>{entries}</ul></nav>\n")
        }
    }
}

/// One record: what all applications come to, the paper's figures, then each application by itself, folded where there are
/// several.
fn chapter_section(title: &str, factors: &str, chapter: &Chapter) -> String {
    let studies = &chapter.studies;
    let mut out = format!(
        "<section><h2>{title}</h2>\n<p>{factors}</p>\n{}",
        source_line(&chapter.source)
    );
    out += &overall::key_numbers(studies);
    if let [only] = studies.apps.as_slice() {
        out += &key_numbers(only);
    }
    out += &figures::section(chapter);
    out += &overall::tables(studies);
    for (study, switches) in studies.apps.iter().zip(&chapter.switches) {
        let app = app_section(study, switches);
        out += &match studies.apps.len() {
            1 => app,
            _ => format!(
                "<details class=\"app\"><summary>{}</summary>{}{app}</details>\n",
                escape(&study.app),
                key_numbers(study)
            ),
        };
    }
    let run = studies
        .apps
        .first()
        .map(|study| circumstances(&chapter.source, &study.run));
    out + &run.unwrap_or_default() + "</section>\n"
}

fn app_section(study: &Study, switches: &Switches) -> String {
    let mut out = String::new();
    out += &figure(
        "Time until the picture stays as it finally is",
        "A dot is a switch; the bar is the median, the band its interval.",
        &settled_plot(study, switches),
    );
    out += &figure(
        "How much of the final picture is there",
        "Tiles that are as they finally will be; the median over the switches of a mode.",
        &picture_plot(study, switches),
    );
    out += &figure(
        "Demand faults until then",
        "Major faults of all processes of the application.",
        &strips(
            &strip_rows(study, switches, demand_faults, |m| m.demand_faults),
            "faults",
            None,
        ),
    );
    out += &figure(
        "In the order of measuring",
        "A drift of the machine would show here, in every mode alike.",
        &order_plot(study, switches),
    );
    for rows in [
        mode_rows,
        comparison_rows,
        share_rows,
        utilization_rows,
        cost_rows,
    ] {
        out += &table(&rows(study));
    }
    out += &remark_lines(study);
    out + &discarded(study, switches)
}

fn key_numbers(study: &Study) -> String {
    let mut out = String::from("<div class=\"keys\">");
    for c in study.comparisons.iter().filter(|c| c.mode.is_helped()) {
        let Some(gap) = c.gap_closed else { continue };
        let _ = write!(
            out,
            "<div><b style=\"color:{}\">{}</b><span>{}</span> of the gap closed</div>",
            super::plot::colour(c.mode),
            c.mode.word(),
            percent(Some(gap))
        );
    }
    if let Some(bound) = &study.bound {
        let _ = write!(
            out,
            "<div><b>bound</b><span>{}</span> is all that the processors allow: ({:.0} ms application CPU + {:.0} pages x \
             {:.1} us) / {} cores</div>",
            percent(Some(bound.gap_closed)),
            bound.app_cpu_ms,
            bound.pages,
            bound.us_per_page,
            study.run.machine.cores
        );
    }
    out + "</div>\n"
}

/// A plot with its title and what it shows.
pub fn figure(title: &str, caption: &str, svg: &str) -> String {
    format!(
        "<figure><h3>{title}</h3><div class=\"plot\">{svg}</div><figcaption>{caption}</figcaption></figure>\n"
    )
}

fn strip_rows(
    study: &Study,
    switches: &Switches,
    value: fn(&Switch) -> f64,
    median: fn(&crate::study::ModeRow) -> Option<Estimate>,
) -> Vec<Strip> {
    let row = |m: &crate::study::ModeRow| Strip {
        name: m.mode.word().replace('_', " "),
        colour: super::plot::colour(m.mode),
        values: switches.values(m.mode, value),
        median: median(m),
    };
    study.modes.iter().map(row).collect()
}

fn settled_plot(study: &Study, switches: &Switches) -> String {
    let mark = study.bound.as_ref().map(|b| Mark {
        value: b.settled_ms.value,
        name: "bound".into(),
    });
    strips(
        &strip_rows(study, switches, settled_ms, |m| m.settled_ms),
        "ms",
        mark.as_ref(),
    )
}

/// Hundredths of the final picture that a switch shows at a time.
fn share_of_picture(switch: &Switch, t_ms: f64) -> f64 {
    let shown = switch
        .frames
        .iter()
        .take_while(|f| f.t_ns as f64 / 1e6 <= t_ms)
        .last();
    shown.map_or(0.0, |f| {
        100.0 * (switch.tiles - f.from_final) as f64 / switch.tiles as f64
    })
}

fn picture_plot(study: &Study, switches: &Switches) -> String {
    const POINTS: usize = 240;
    let times = switches
        .samples
        .iter()
        .map(settled_ms)
        .collect::<Vec<f64>>();
    let end = crate::statistics::quantile(&times, 0.98).unwrap_or(1.0) * 1.1;
    let of_mode = |mode: Mode| {
        let point = |i: usize| {
            let t = end * i as f64 / POINTS as f64;
            (
                t,
                median(&switches.values(mode, |s| share_of_picture(s, t))).unwrap_or(0.0),
            )
        };
        line(mode, (0..=POINTS).map(point).collect())
    };
    let all: Vec<Line> = study.modes.iter().map(|m| of_mode(m.mode)).collect();
    let panel = Panel {
        x_unit: "ms since the activation",
        y_unit: "% of the tiles",
        y_high: Some(100.0),
        is_dots: false,
        is_narrow: false,
    };
    lines(&all, &panel)
}

fn line(mode: Mode, points: Vec<(f64, f64)>) -> Line {
    Line {
        name: mode.word().replace('_', " "),
        colour: super::plot::colour(mode),
        points,
        end: None,
    }
}

fn order_plot(study: &Study, switches: &Switches) -> String {
    let of_mode = |mode: Mode| {
        let numbered = switches
            .samples
            .iter()
            .enumerate()
            .filter(|(_, s)| s.slot.mode == mode);
        let point = |(i, s): (usize, &Switch)| (i as f64 + 1.0, settled_ms(s));
        line(mode, numbered.map(point).collect())
    };
    let all: Vec<Line> = study.modes.iter().map(|m| of_mode(m.mode)).collect();
    let panel = Panel {
        x_unit: "switch",
        y_unit: "ms",
        y_high: None,
        is_dots: true,
        is_narrow: false,
    };
    lines(&all, &panel)
}

/// Rows of cells, of which the first is the head.
pub fn table(rows: &[Vec<String>]) -> String {
    let [head, rows @ ..] = rows else {
        return String::new();
    };
    let line = |cells: &[String], tag: &str| {
        let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escape(cell));
        format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
    };
    let rows: String = rows.iter().map(|cells| line(cells, "td")).collect();
    match rows.as_str() {
        "" => String::new(),
        _ => format!(
            "<div class=\"table\"><table>{}{rows}</table></div>\n",
            line(head, "th")
        ),
    }
}

/// The same of rows that are sentences.
fn words(rows: &[Vec<String>]) -> String {
    format!("<div class=\"words\">{}</div>\n", table(rows))
}

fn remark_lines(study: &Study) -> String {
    let lines = remarks(study).into_iter();
    lines.map(|line| format!("<p>{line}.</p>\n")).collect()
}

fn discarded(study: &Study, switches: &Switches) -> String {
    let discarded = discarded_words("switches", &study.discarded);
    let between = match switches.warmups_between {
        0 => String::new(),
        between => format!(", and {between} between them"),
    };
    format!(
        "<p>{discarded} Switches to learn from: {} before the samples{between}.</p>\n",
        switches.warmups
    )
}

/// How many of these were discarded, by reason.
pub fn discarded_words(what: &str, discarded: &BTreeMap<String, usize>) -> String {
    let reasons = discarded.iter();
    let listed: Vec<String> = reasons
        .map(|(reason, n)| format!("{n} ({})", escape(reason)))
        .collect();
    let listed = match listed.is_empty() {
        true => "none".into(),
        false => listed.join(", "),
    };
    format!("Discarded {what}: {listed}.")
}

/// Which record a section is of.
pub fn source_line(source: &Source) -> String {
    format!("<p class=\"note\">{}</p>\n", escape(&source.words()))
}

fn circumstances(source: &Source, run: &Run) -> String {
    let parameters = serde_json::to_string(&run.parameters).unwrap_or_default();
    let rows = [
        vec!["versions".into(), pairs(&run.versions)],
        vec!["parameters".into(), parameters],
    ];
    folded(
        "Circumstances",
        &[&machine_rows(source, &run.machine)[..], &rows].concat(),
    )
}

/// Rows of names and values that are shown when asked for.
pub fn folded(title: &str, rows: &[Vec<String>]) -> String {
    format!(
        "<details><summary>{title}</summary>{}</details>\n",
        table(rows)
    )
}

/// A table under its title; nothing where it has no row.
pub fn headed(title: &str, table: &str) -> String {
    match table.is_empty() {
        true => String::new(),
        false => format!("<h3>{title}</h3>\n{table}"),
    }
}

/// Names and values in one cell.
pub fn pairs(map: &std::collections::BTreeMap<String, String>) -> String {
    let pairs = map.iter().map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

/// The record and the machine, row by row.
pub fn machine_rows(source: &Source, m: &Machine) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new(); 2]];
    rows.extend(source.rows());
    rows.extend([
        vec!["kernel".into(), m.kernel.clone()],
        vec!["processor".into(), format!("{} x {}", m.cores, m.cpu_model)],
        vec![
            "memory".into(),
            format!(
                "{} MiB, pages of {} bytes, cgroup {}",
                m.memory_bytes >> 20,
                m.page_bytes,
                m.memory_cgroup
            ),
        ],
    ]);
    for s in &m.swap {
        let compressor = s
            .compressor
            .as_deref()
            .map(|c| format!(" ({c})"))
            .unwrap_or_default();
        rows.push(vec![
            "swap".into(),
            format!("{} on {}{compressor}, {} MiB", s.path, s.on, s.bytes >> 20),
        ]);
    }
    rows.push(vec!["disk".into(), pairs(&m.disk)]);
    rows.push(vec!["settings".into(), pairs(&m.settings)]);
    rows
}

/// Text in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{run, switch};
    use crate::record::{Application, Footprint, Line as RecordLine, Timeline};
    use crate::study::study_apps;
    use std::path::Path;

    /// A switch with everything that a run records of it.
    fn whole(app: &str, block: u32, mode: Mode, ms: f64) -> Switch {
        let mut sample = switch(block, mode, ms);
        sample.slot.app = app.to_owned();
        sample.timeline = Some(Timeline {
            t_us: vec![10_000, 20_000],
            app_cpu_us: vec![4_000, 8_000],
            service_cpu_us: vec![0, 1_000],
            others_cpu_us: vec![100, 100],
            disk_read_sectors: vec![800, 0],
            majflt: vec![300, 20],
            pswpin: vec![400, 10],
            reading_us: 200,
        });
        if mode == Mode::Full {
            let share = serde_json::json!({"hits": 9, "of": 10});
            let kind = serde_json::json!({"precision": share, "unused": 1, "gap": 0});
            let timing = serde_json::json!({"switch_path_us": 400, "management_cpu_us": 3000});
            sample.prepage =
                vec![serde_json::json!({"anon": kind, "file": kind, "timing": timing})];
        }
        sample
    }

    fn chapter() -> Chapter {
        let modes = [Mode::Resident, Mode::FilesDropped, Mode::Off, Mode::Full];
        let mut circumstances = run(&modes);
        circumstances.parameters.apps = ["chromium", "gimp"].map(String::from).into();
        circumstances.machine.disk_read_bytes_per_s = Some(1 << 30);
        let mut lines = vec![RecordLine::Run(Box::new(circumstances))];
        for (app, slow) in [("chromium", 1.0), ("gimp", 0.3)] {
            for block in 0..6 {
                for (mode, ms) in modes.into_iter().zip([100.0, 150.0, 400.0, 200.0]) {
                    let sample = whole(app, block, mode, ms * slow);
                    lines.push(RecordLine::Sample(Box::new(sample)));
                }
            }
            for block in 0..4 {
                let mut launch = switch(block, Mode::Launch, 900.0);
                launch.slot.app = app.to_owned();
                lines.push(RecordLine::Sample(Box::new(launch)));
            }
            let footprint = Footprint {
                switches: 4,
                anon_by_recurrence: vec![1, 0, 0, 9],
                file_by_recurrence: vec![2, 0, 0, 8],
                anon_by_switch: vec![9; 4],
                file_by_switch: vec![8; 4],
                file_by_size: vec![1, 2, 31],
            };
            lines.push(RecordLine::Application(Box::new(Application {
                app: app.to_owned(),
                footprint: Some(footprint),
                table_bytes: Some(90_000),
            })));
        }
        let switches = Switches::by_app(lines);
        Chapter {
            source: Source::of(Path::new("target/some.jsonl.gz"), 1_795_395_835),
            studies: study_apps(&switches),
            switches,
        }
    }

    #[test]
    fn the_page_is_self_contained() {
        let launches = crate::launch::study::study_lines(crate::launch::study::tests::lines());
        let html = page(&[chapter()], &[launches], &[]);
        for figure in [
            "Figure 1.",
            "Figures 2 and 3, processors.",
            "Figures 2 and 3, disk.",
            "Figure 5.",
            "Figure 6.",
            "Figure 7.",
            "Figure 10.",
            "Figure 11.",
            "Figure 12.",
            "Figures 13 and 14.",
            "FAST's Figure 6.",
            "FAST's Table 3.",
        ] {
            let title = format!("<h3>{figure}");
            assert_eq!(html.matches(&title).count(), 1, "{figure}");
        }
        // Of both applications one of each figure, and three panels of each; four of each application by itself; one of
        // all programs' launches, and one of each of the four programs.
        assert_eq!(html.matches("<svg").count(), 9 + 2 * 3 + 2 * 4 + 1 + 4);
        assert!(
            html.contains("href=\"#s1\"")
                && html.contains("2 applications:")
                && html.contains("2 of 2</span> applications faster")
        );
        // Of each application its launches in Figure 1, and in no other plot.
        assert_eq!(html.matches("<title>launch 900.00, ").count(), 2);
        assert!(html.contains("Beside the paper") && html.contains("Section 6.6."));
        // Which record it was, under the title and in the circumstances.
        assert_eq!(html.matches("some.jsonl.gz").count(), 2);
        assert_eq!(html.matches("2026-11-23 01:03 UTC").count(), 2);
        // The only address is the name of SVG's namespace.
        assert_eq!(
            html.matches("http").count(),
            html.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!html.contains("NaN") && !html.contains("inf") && !html.contains("<script"));
    }

    #[test]
    fn a_record_from_before_has_the_figures_that_it_can_have() {
        let lines = vec![
            RecordLine::Run(Box::new(run(&[Mode::Off, Mode::Full]))),
            RecordLine::Sample(Box::new(switch(0, Mode::Off, 400.0))),
            RecordLine::Sample(Box::new(switch(0, Mode::Full, 200.0))),
        ];
        let switches = Switches::by_app(lines);
        let studies = study_apps(&switches);
        let html = page(
            &[Chapter {
                source: Source::default(),
                studies,
                switches,
            }],
            &[],
            &[],
        );
        assert!(!html.contains("<h3>Figure"), "two switches say nothing");
        assert_eq!(html.matches("<svg").count(), 4);
        assert!(!html.contains("NaN"));
    }

    #[test]
    fn switches_to_learn_from_are_counted_where_they_were() {
        let lines = [
            RecordLine::Run(Box::new(run(&[Mode::Off]))),
            RecordLine::Warmup(Box::new(switch(0, Mode::Full, 200.0))),
            RecordLine::Sample(Box::new(switch(0, Mode::Off, 400.0))),
            RecordLine::Warmup(Box::new(switch(1, Mode::Full, 200.0))),
        ];
        let text = |lines: &[RecordLine]| {
            let switches = Switches::by_app(lines.to_vec());
            let studies = study_apps(&switches);
            discarded(&studies.apps[0], &switches[0])
        };
        assert!(text(&lines).contains("learn from: 1 before the samples, and 1 between them."));
        assert!(text(&lines[..3]).contains("learn from: 1 before the samples.<"));
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
