//! Bars that are made of parts.

use super::{LEFT, LETTER, RIGHT, Scale, WIDTH, legend, open, row_name, vertical_grid};
use std::fmt::Write;

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is of.
    pub name: String,
    /// How long each part is, in the order of the legend.
    pub values: Vec<f64>,
}

/// One kind of parts.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// How opaque it is: neighbours of one colour are told apart by it.
    pub opacity: f64,
}

/// Horizontal bars of parts, which are named by the legend, and numbered where there is room; `high` is the end of the
/// scale, by default that of the longest bar.
pub fn bars(rows: &[Bar], parts: &[Part], unit: &str, high: Option<f64>) -> String {
    const ROW: f64 = 24.0;
    const BOTTOM: f64 = 40.0;
    let longest = || {
        let sums = rows.iter().map(|row| row.values.iter().sum::<f64>());
        sums.fold(1.0, f64::max) * 1.02
    };
    let scale = Scale {
        high: high.unwrap_or_else(longest),
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    let mut inner = String::new();
    let top = legend(&mut inner, &names, (LEFT, WIDTH), |svg, i, x, y| {
        part(svg, &parts[i], (x, x + 20.0), y, "");
    });
    let floor = top + ROW * rows.len() as f64;
    vertical_grid(&mut inner, scale, top, floor, unit);
    for (i, row) in rows.iter().enumerate() {
        let middle = top + ROW * (i as f64 + 0.5);
        row_name(&mut inner, &row.name, middle);
        bar(&mut inner, row, parts, scale, middle);
    }
    open(WIDTH, floor + BOTTOM) + &inner + "</svg>"
}

fn bar(svg: &mut String, row: &Bar, parts: &[Part], scale: Scale, middle: f64) {
    let mut sum = 0.0;
    for (value, of) in row.values.iter().zip(parts) {
        let (from, to) = (scale.at(sum), scale.at(sum + value));
        sum += value;
        let title = format!("<title>{}, {}: {value:.1}</title>", row.name, of.name);
        part(svg, of, (from, to), middle, &title);
        let text = format!("{value:.0}");
        if to - from > LETTER * text.len() as f64 + 6.0 {
            let _ = write!(
                svg,
                r##"<text x="{:.1}" y="{:.1}" text-anchor="middle" class="small">{text}</text>"##,
                (from + to) / 2.0,
                middle + 4.0
            );
        }
    }
}

fn part(svg: &mut String, of: &Part, (from, to): (f64, f64), middle: f64, title: &str) {
    let _ = write!(
        svg,
        r##"<rect x="{from:.1}" y="{:.1}" width="{:.1}" height="16" fill="{}" fill-opacity="{:.2}" class="part">{title}</rect>"##,
        middle - 8.0,
        (to - from).max(0.0),
        of.colour,
        of.opacity
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_all_its_parts_and_the_long_ones_are_numbered() {
        let part = |name: &str| Part {
            name: name.into(),
            colour: "#3d7ea6",
            opacity: 0.5,
        };
        let bar = Bar {
            name: "gimp".into(),
            values: vec![1.0, 99.0],
        };
        let svg = bars(&[bar], &[part("1"), part("10 of 10")], "%", Some(100.0));
        assert_eq!(svg.matches("<rect").count(), 2 + 2);
        assert!(svg.contains(">99</text>") && !svg.contains(">1</text></svg>"));
        assert!(svg.contains("gimp, 10 of 10: 99.0") && !svg.contains("NaN"));
    }
}
