//! Estimates with their intervals.

use super::{LEFT, Mark, RIGHT, Scale, WIDTH, draw_mark, legend, open, row_name, vertical_grid};
use crate::statistics::Estimate;
use std::fmt::Write;

/// One mark of an interval plot: an estimate of a scenario or mode.
#[derive(Clone, Debug)]
pub struct Interval {
    /// The word for the scenario or mode.
    pub word: &'static str,
    /// Its colour.
    pub colour: &'static str,
    /// Its estimate.
    pub estimate: Estimate,
}

/// A row for each name, with its estimates one below the other, each word with a shape of its own; `mark` is drawn across.
/// Rows without an estimate are left out.
pub fn intervals(rows: &[(String, Vec<Interval>)], unit: &str, mark: Option<&Mark>) -> String {
    const EACH: f64 = 11.0;
    const GAP: f64 = 12.0;
    const BOTTOM: f64 = 40.0;
    let all = || rows.iter().flat_map(|(_, marks)| marks.iter());
    let high = all()
        .map(|m| m.estimate.high)
        .fold(mark.map_or(0.0, |m| m.value), f64::max)
        .max(f64::MIN_POSITIVE)
        * 1.05;
    let scale = Scale {
        high,
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let mut words: Vec<(&str, &str)> = Vec::new();
    for one in all() {
        if !words.contains(&(one.word, one.colour)) {
            words.push((one.word, one.colour));
        }
    }
    let names: Vec<String> = words.iter().map(|w| w.0.replace('_', " ")).collect();
    let mut inner = String::new();
    let top = legend(&mut inner, &names, (LEFT, WIDTH), |svg, i, x, y| {
        shape(svg, i, words[i].1, (x + 12.0, y), "");
    }) + mark.map_or(0.0, |_| 12.0);
    let shown = || rows.iter().filter(|(_, marks)| !marks.is_empty());
    let height = |marks: &[Interval]| EACH * marks.len() as f64 + GAP;
    let floor = top + shown().map(|(_, marks)| height(marks)).sum::<f64>();
    vertical_grid(&mut inner, scale, top, floor, unit);
    let mut y = top;
    for (name, marks) in shown() {
        row_name(&mut inner, name, y + height(marks) / 2.0);
        for (i, one) in marks.iter().enumerate() {
            let kind = words.iter().position(|w| w.0 == one.word).unwrap_or(0);
            let middle = y + GAP / 2.0 + EACH * (i as f64 + 0.5);
            interval_mark(&mut inner, one, kind, scale, middle);
        }
        y += height(marks);
    }
    if let Some(mark) = mark {
        draw_mark(&mut inner, mark, scale, top, floor);
    }
    open(WIDTH, floor + BOTTOM) + &inner + "</svg>"
}

fn interval_mark(svg: &mut String, one: &Interval, kind: usize, scale: Scale, y: f64) {
    let (colour, e) = (one.colour, one.estimate);
    let (low, high) = (scale.at(e.low), scale.at(e.high));
    let _ = write!(
        svg,
        r##"<line x1="{low:.1}" y1="{y:.1}" x2="{high:.1}" y2="{y:.1}" stroke="{colour}" stroke-width="2"/>"##
    );
    let title = format!(
        "<title>{} {:.2}, 95 % interval {:.2} to {:.2}</title>",
        one.word, e.value, e.low, e.high
    );
    shape(svg, kind, colour, (scale.at(e.value), y), &title);
}

/// A filled shape, one for each kind: colour alone is not to tell kinds apart.
fn shape(svg: &mut String, kind: usize, colour: &str, (x, y): (f64, f64), title: &str) {
    let points = |points: &[(f64, f64)]| -> String {
        let at = |(dx, dy): &(f64, f64)| format!("{:.1},{:.1}", x + dx, y + dy);
        points.iter().map(at).collect::<Vec<_>>().join(" ")
    };
    const R: f64 = 4.5;
    const CORNERS: [&[(f64, f64)]; 5] = [
        &[(-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)],
        &[(0.0, -R), (R, 0.0), (0.0, R), (-R, 0.0)],
        &[(0.0, -R), (R, R - 0.5), (-R, R - 0.5)],
        &[(0.0, R), (R, 0.5 - R), (-R, 0.5 - R)],
        &[(-1.5, -R), (1.5, -R), (1.5, R), (-1.5, R)],
    ];
    let _ = match kind % (CORNERS.len() + 1) {
        0 => write!(
            svg,
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="3.8" fill="{colour}">{title}</circle>"##
        ),
        other => write!(
            svg,
            r##"<polygon points="{}" fill="{colour}">{title}</polygon>"##,
            points(CORNERS[other - 1])
        ),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_shape_and_an_entry_in_the_legend() {
        let of = |word, value| Interval {
            word,
            colour: "#e09f3e",
            estimate: Estimate {
                value,
                low: value - 0.1,
                high: value + 0.1,
                n: 3,
            },
        };
        let rows = [
            (
                "git".to_owned(),
                vec![of("fast", 0.7), of("whole_files", 0.9)],
            ),
            ("gcc".to_owned(), vec![of("fast", 0.5)]),
            ("vim".to_owned(), vec![]),
        ];
        let mark = Mark {
            value: 1.0,
            name: "cold".into(),
        };
        let svg = intervals(&rows, "time over cold", Some(&mark));
        // Of each kind one in the legend, and one for each estimate.
        assert_eq!(svg.matches("<circle").count(), 1 + 2);
        assert_eq!(svg.matches("<polygon").count(), 1 + 1);
        assert!(svg.contains(">whole files</text>") && !svg.contains(">vim</text>"));
        assert!(svg.ends_with("</svg>") && !svg.contains("NaN"));
    }
}
