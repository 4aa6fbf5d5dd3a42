//! The page.

use super::plot::{Line, Mark, Strip, lines, strips};
use super::{Chapter, idle, launches, overall};
use crate::circumstances::factors_line;
use crate::idle::study::IdleStudy;
use crate::launch::study::LaunchStudy;
use crate::record::{Machine, Mode, Run, Switch};
use crate::statistics::{Estimate, median};
use crate::study::Study;
use crate::study::switches::{Switches, demand_faults, settled_ms};
use crate::study::text::{
    comparison_rows, cost_rows, interval, mode_rows, percent, setting_words, share_rows,
};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The whole page: chapters of switches, of launches, then of services that sat idle.
pub fn page(chapters: &[Chapter], launches: &[LaunchStudy], idle: &[IdleStudy]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>prepage-eval</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>\n{STYLE}</style></head><body>\n\
         <h1>How fast applications come back and launch</h1>\n\
         <p>Every number is a median with its 95 % bootstrap interval; comparisons are paired within blocks that hold \
         every mode or scenario once, in random order. What has no interval is not shown.</p>\n"
    );
    for chapter in chapters {
        out += &overall::section(&chapter.studies);
        for (study, switches) in chapter.studies.apps.iter().zip(&chapter.switches) {
            out += &app_section(study, switches);
        }
    }
    for study in launches {
        out += &launches::section(study);
    }
    for study in idle {
        out += &idle::section(study);
    }
    out += PAPERS;
    out + "</body></html>\n"
}

/// What the papers reached, on their machines: for orientation, not as a comparison.
const PAPERS: &str = "<h2>What the papers reached on their machines</h2>\n\
    <p>ASAP (ATC'21), on phones: switch time -22.2 % and -28.3 %; anonymous precision 68.4 %, recall 60.4 %; file \
    precision 79.3 %, recall 52.2 %; 14 ms on the switch path and 40 ms of CPU a switch.</p>\n\
    <p>FAST (FAST'11), on a personal computer with an SSD: launch time -28 % in the mean of 22 applications (16 to 46 %); \
    sorted prefetch -7 %.</p>\n";

fn app_section(study: &Study, switches: &Switches) -> String {
    let mut out = format!(
        "<section><h2>{}: {}</h2>\n",
        escape(&study.app),
        setting_words(study.run.parameters.setting)
    );
    let factors = factors_line(&study.run.machine, study.run.parameters.factors.throttle);
    let _ = writeln!(out, "<p>{}</p>", escape(&factors));
    out += &key_numbers(study);
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
    for rows in [mode_rows, comparison_rows, share_rows, cost_rows] {
        out += &table(&rows(study));
    }
    out += &watching(study);
    out += &discarded(study, switches);
    out += &circumstances(&study.run);
    out + "</section>\n"
}

fn key_numbers(study: &Study) -> String {
    let mut out = String::from("<div class=\"keys\">");
    for c in &study.comparisons {
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
    format!("<figure><h3>{title}</h3>{svg}<figcaption>{caption}</figcaption></figure>\n")
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
    let line = |mode: Mode| {
        let point = |i: usize| {
            let t = end * i as f64 / POINTS as f64;
            (
                t,
                median(&switches.values(mode, |s| share_of_picture(s, t))).unwrap_or(0.0),
            )
        };
        Line {
            mode,
            points: (0..=POINTS).map(point).collect(),
        }
    };
    let all: Vec<Line> = study.modes.iter().map(|m| line(m.mode)).collect();
    lines(
        &all,
        "ms since the activation",
        "% of the tiles",
        Some(100.0),
        false,
    )
}

fn order_plot(study: &Study, switches: &Switches) -> String {
    let line = |mode: Mode| {
        let numbered = switches
            .samples
            .iter()
            .enumerate()
            .filter(|(_, s)| s.slot.mode == mode);
        Line {
            mode,
            points: numbered
                .map(|(i, s)| (i as f64 + 1.0, settled_ms(s)))
                .collect(),
        }
    };
    let all: Vec<Line> = study.modes.iter().map(|m| line(m.mode)).collect();
    lines(&all, "switch", "ms", None, true)
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
        _ => format!("<table>{}{rows}</table>\n", line(head, "th")),
    }
}

fn watching(study: &Study) -> String {
    study.watching_ms.map_or_else(String::new, |watching| {
        format!(
            "<p>Observe against off, all resident: {} ms ({} pairs).</p>\n",
            interval(Some(watching), 2),
            watching.n
        )
    })
}

fn discarded(study: &Study, switches: &Switches) -> String {
    let listed: Vec<String> = study
        .discarded
        .iter()
        .map(|(reason, n)| format!("{n} ({})", escape(reason)))
        .collect();
    let listed = if listed.is_empty() {
        "none".to_owned()
    } else {
        listed.join(", ")
    };
    format!(
        "<p>Discarded switches: {listed}. Switches to learn from, before the samples: {}.</p>\n",
        switches.warmups
    )
}

fn circumstances(run: &Run) -> String {
    let parameters = serde_json::to_string(&run.parameters).unwrap_or_default();
    let rows = [
        vec!["versions".into(), pairs(&run.versions)],
        vec!["parameters".into(), parameters],
    ];
    folded(
        "Circumstances",
        &[&machine_rows(&run.machine)[..], &rows].concat(),
    )
}

/// Rows of names and values that are shown when asked for.
pub fn folded(title: &str, rows: &[Vec<String>]) -> String {
    format!(
        "<details><summary>{title}</summary>{}</details>\n",
        table(rows)
    )
}

/// Names and values in one cell.
pub fn pairs(map: &std::collections::BTreeMap<String, String>) -> String {
    let pairs = map.iter().map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

/// The machine, row by row.
pub fn machine_rows(m: &Machine) -> Vec<Vec<String>> {
    let mut rows = vec![
        vec![String::new(); 2],
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
    ];
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
    use crate::record::Line as RecordLine;
    use crate::record::tests::{run, switch};
    use crate::study::study_apps;

    #[test]
    fn the_page_is_self_contained() {
        let modes = [Mode::Resident, Mode::Off, Mode::Full];
        let mut circumstances = run(&modes);
        circumstances.parameters.apps = ["chromium", "gimp"].map(String::from).into();
        let mut lines = vec![RecordLine::Run(Box::new(circumstances))];
        for (app, slow) in [("chromium", 1.0), ("gimp", 0.3)] {
            for (block, (mode, ms)) in (0..6).flat_map(|block| {
                let each = modes.into_iter().zip([100.0, 400.0, 200.0]);
                each.map(move |one| (block, one))
            }) {
                let mut sample = switch(block, mode, ms * slow);
                sample.slot.app = app.to_owned();
                lines.push(RecordLine::Sample(Box::new(sample)));
            }
        }
        let switches = Switches::by_app(lines);
        let chapter = Chapter {
            studies: study_apps(&switches),
            switches,
        };
        let launches = crate::launch::study::study_lines(crate::launch::study::tests::lines());
        let html = page(&[chapter], &[launches], &[]);
        // One of both applications and four of each; one of all programs' launches, and one of each of the four programs.
        assert_eq!(html.matches("<svg").count(), 1 + 2 * 4 + 1 + 4);
        assert!(
            html.contains("2 applications:") && html.contains("2 of 2</span> applications faster")
        );
        // The only address is the name of SVG's namespace.
        assert_eq!(
            html.matches("http").count(),
            html.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!html.contains("NaN") && !html.contains("<script"));
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
