//! Every sample as a dot.

use super::{LEFT, Mark, RIGHT, Scale, WIDTH, draw_mark, open, row_name, vertical_grid};
use crate::statistics::Estimate;
use std::fmt::Write;

/// One row of a strip plot.
#[derive(Clone, Debug)]
pub struct Strip {
    /// What it is: a mode or a scenario.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// Every sample.
    pub values: Vec<f64>,
    /// The median with its interval.
    pub median: Option<Estimate>,
}

/// Every sample as a dot, a row a mode, with the median and its interval; `mark` is drawn across.
pub fn strips(rows: &[Strip], unit: &str, mark: Option<&Mark>) -> String {
    const ROW: f64 = 36.0;
    const TOP: f64 = 22.0;
    const BOTTOM: f64 = 40.0;
    let all = rows.iter().flat_map(|r| r.values.iter().copied());
    let high = all
        .chain(mark.map(|m| m.value))
        .fold(0.0, f64::max)
        .max(1.0)
        * 1.05;
    let scale = Scale {
        high,
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let floor = TOP + ROW * rows.len() as f64;
    let mut svg = open(WIDTH, floor + BOTTOM);
    vertical_grid(&mut svg, scale, TOP, floor, unit);
    for (i, row) in rows.iter().enumerate() {
        let middle = TOP + ROW * (i as f64 + 0.5);
        strip(&mut svg, row, scale, middle, unit);
    }
    if let Some(mark) = mark {
        draw_mark(&mut svg, mark, scale, TOP, floor);
    }
    svg + "</svg>"
}

fn strip(svg: &mut String, row: &Strip, scale: Scale, middle: f64, unit: &str) {
    let colour = row.colour;
    row_name(svg, &row.name, middle);
    if let Some(m) = row.median {
        let (low, high, at) = (scale.at(m.low), scale.at(m.high), scale.at(m.value));
        let _ = write!(
            svg,
            r##"<rect x="{low:.1}" y="{:.1}" width="{:.1}" height="24" fill="{colour}" opacity=".22"/><line x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}" stroke="{colour}" stroke-width="3"><title>median {:.1} {unit}, 95 % interval {:.1} to {:.1}</title></line>"##,
            middle - 12.0,
            (high - low).max(1.0),
            middle - 14.0,
            middle + 14.0,
            m.value,
            m.low,
            m.high
        );
    }
    for (i, value) in row.values.iter().enumerate() {
        // Spread evenly by place in the run: no chance is needed to keep dots apart.
        let y = middle + ((i * 5) % 11) as f64 * 1.8 - 9.0;
        let _ = write!(
            svg,
            r##"<circle cx="{:.1}" cy="{y:.1}" r="3" fill="{colour}" opacity=".75"><title>{value:.1} {unit}</title></circle>"##,
            scale.at(*value)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_a_dot() {
        let median = Some(Estimate {
            value: 2.0,
            low: 1.0,
            high: 3.0,
            n: 3,
        });
        let row = Strip {
            name: "off".into(),
            colour: "#d1495b",
            values: vec![1.0, 2.0, 3.0],
            median,
        };
        let svg = strips(&[row], "ms", None);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"));
    }
}
