//! What switches access.

use crate::record::{Footprint, Mode};
use crate::report::html::{escape, figure};
use crate::report::plot::{Bar, Line, Panel, Part, bars, colour, lines, series_colour};
use crate::study::Studies;
use crate::study::footprint::curve;
use crate::study::switches::Switches;

/// The observed applications.
fn observed(apps: &[Switches]) -> Vec<(&Switches, &Footprint)> {
    apps.iter()
        .filter_map(|app| Some((app, app.application.footprint.as_ref()?)))
        .collect()
}

/// Figures 5 and 6: in how many of the observed switches a page was accessed.
pub fn recurrence(apps: &[Switches]) -> String {
    let observed = observed(apps);
    let most = observed.iter().map(|(_, f)| f.switches).max().unwrap_or(0);
    if most < 2 {
        return String::new();
    }
    let draw = |title: &str, mode: Mode, of: fn(&Footprint) -> &[u64]| {
        let bar = |(app, footprint): &(&Switches, &Footprint)| {
            let counts = of(footprint);
            let all = counts.iter().sum::<u64>().max(1) as f64;
            Bar {
                name: format!("{} ({})", escape(&app.app), footprint.switches),
                values: counts.iter().map(|&n| 100.0 * n as f64 / all).collect(),
            }
        };
        let part = |times: usize| Part {
            name: times.to_string(),
            colour: colour(mode),
            opacity: 0.1 + 0.85 * times as f64 / most as f64,
        };
        let parts: Vec<Part> = (1..=most).map(part).collect();
        let rows: Vec<Bar> = observed.iter().map(bar).collect();
        figure(
            title,
            "Hundredths of the pages that any of the switches accessed, from those that one did, on the left, to those that all did. \
             In brackets: switches that were observed, nothing prepaged.",
            &bars(
                &rows,
                &parts,
                "% of the pages, by the switches that accessed them",
                Some(100.0),
            ),
        )
    };
    draw(
        "Figure 5. File pages by how often they recur",
        Mode::File,
        |f| &f.file_by_recurrence,
    ) + &draw(
        "Figure 6. Anonymous pages by how often they recur",
        Mode::Anon,
        |f| &f.anon_by_recurrence,
    )
}

/// Figure 7: how many pages a switch accesses.
pub fn sizes(studies: &Studies) -> String {
    let bar = |study: &crate::study::Study| {
        let footprint = study.footprint.as_ref()?;
        Some(Bar {
            name: escape(&study.app),
            values: vec![footprint.anon_pages, footprint.file_pages],
        })
    };
    let rows: Vec<Bar> = studies.apps.iter().filter_map(bar).collect();
    if rows.is_empty() {
        return String::new();
    }
    let part = |name: &str, mode| Part {
        name: name.into(),
        colour: colour(mode),
        opacity: 0.6,
    };
    let parts = [
        part("anonymous pages", Mode::Anon),
        part("file pages", Mode::File),
    ];
    figure(
        "Figure 7. The footprint of a switch",
        "Pages that a switch accesses, the median over the observed switches.",
        &bars(&rows, &parts, "pages", None),
    )
}

/// Figure 10: in which files the accessed pages lie.
pub fn by_file_size(apps: &[Switches]) -> String {
    let line = |(i, (app, footprint)): (usize, (&Switches, &Footprint))| Line {
        name: escape(&app.app),
        colour: series_colour(i),
        points: curve(footprint),
        end: None,
    };
    let all: Vec<Line> = observed(apps).into_iter().enumerate().map(line).collect();
    if all.is_empty() {
        return String::new();
    }
    let panel = Panel {
        x_unit: "% of the accessed files, the smallest first",
        y_unit: "% of the accessed pages",
        y_high: Some(100.0),
        is_dots: false,
        is_narrow: false,
    };
    figure(
        "Figure 10. In which files the accessed pages lie",
        "Pages of all observed switches, cumulated over the files by their size.",
        &lines(&all, &panel),
    )
}
