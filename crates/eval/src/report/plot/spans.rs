//! When something was so over time.

use super::{LEFT, RIGHT, Scale, WIDTH, open, row_name, vertical_grid};
use std::fmt::Write;

/// One row: something that is so at times.
#[derive(Clone, Debug)]
pub struct Spans {
    /// What it is.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// When it is so: from and to, ascending.
    pub spans: Vec<(f64, f64)>,
    /// The end of what is shown.
    pub end: f64,
    /// Whether a gap is left before it: another group of rows begins.
    pub begins_group: bool,
}

/// Rows over one scale, whose end is at least `high`: filled where it is so, framed up to the end.
pub fn spans(rows: &[Spans], unit: &str, high: f64) -> String {
    const ROW: f64 = 22.0;
    const GAP: f64 = 10.0;
    const TOP: f64 = 8.0;
    const BOTTOM: f64 = 40.0;
    let scale = Scale {
        high: rows.iter().map(|row| row.end).fold(high, f64::max),
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let gaps = rows.iter().filter(|row| row.begins_group).count();
    let floor = TOP + ROW * rows.len() as f64 + GAP * gaps as f64;
    let mut svg = open(WIDTH, floor + BOTTOM);
    vertical_grid(&mut svg, scale, TOP, floor, unit);
    let mut y = TOP;
    for row in rows {
        y += if row.begins_group { GAP } else { 0.0 };
        row_name(&mut svg, &row.name, y + ROW / 2.0);
        for &(from, to) in &row.spans {
            rectangle(&mut svg, (scale.at(from), scale.at(to)), y, row.colour, "");
        }
        let title = format!("<title>{}, until {:.1}</title>", row.name, row.end);
        let frame = (scale.at(0.0), scale.at(row.end));
        rectangle(&mut svg, frame, y, "none", &title);
        y += ROW;
    }
    svg + "</svg>"
}

/// A frame has the colour of the grid and takes the pointer, by which its title is seen.
fn rectangle(svg: &mut String, (from, to): (f64, f64), y: f64, fill: &str, title: &str) {
    let frame = match fill {
        "none" => r#" class="grid" pointer-events="all""#,
        _ => "",
    };
    let _ = write!(
        svg,
        r##"<rect x="{from:.1}" y="{:.1}" width="{:.1}" height="16" fill="{fill}"{frame}>{title}</rect>"##,
        y + 3.0,
        (to - from).max(0.3)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_filled_and_every_row_framed() {
        let row = |begins_group| Spans {
            name: "cold, CPU".into(),
            colour: "#d1495b",
            spans: vec![(0.0, 10.0), (30.0, 50.0)],
            end: 60.0,
            begins_group,
        };
        let svg = spans(&[row(false), row(true)], "ms", 100.0);
        assert_eq!(svg.matches(r##"fill="#d1495b""##).count(), 2 * 2);
        assert_eq!(svg.matches("cold, CPU, until 60.0").count(), 2);
        assert!(svg.ends_with("</svg>") && !svg.contains("NaN"));
    }
}
