//! Values over a common x.

use super::{Scale, WIDTH, legend, number, open, ticks, vertical_grid};
use std::fmt::Write;

/// One line of a line plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// Points, ascending in x.
    pub points: Vec<(f64, f64)>,
    /// A vertical line of the same look, such as the end of what is shown.
    pub end: Option<f64>,
}

/// How a line plot looks.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// What x is.
    pub x_unit: &'a str,
    /// What y is.
    pub y_unit: &'a str,
    /// The greatest y that is shown; by default what there is.
    pub y_high: Option<f64>,
    /// Single points instead of lines.
    pub is_dots: bool,
    /// One of three beside each other.
    pub is_narrow: bool,
}

/// Draws lines, each with dashes of its own.
pub fn lines(all: &[Line], panel: &Panel<'_>) -> String {
    const BOTTOM: f64 = 40.0;
    let (width, height, left, right) = match panel.is_narrow {
        true => (340.0, 150.0, 58.0, 12.0),
        false => (WIDTH, 260.0, 90.0, 20.0),
    };
    let points = || all.iter().flat_map(|l| l.points.iter());
    let ends = all.iter().filter_map(|l| l.end);
    let x = Scale {
        high: points().map(|p| p.0).chain(ends).fold(1.0, f64::max),
        from: left,
        to: width - right,
    };
    let y_high = panel
        .y_high
        .unwrap_or_else(|| points().map(|p| p.1).fold(1.0, f64::max) * 1.05);
    let names: Vec<String> = all.iter().map(|line| line.name.clone()).collect();
    let mut inner = String::new();
    let top = legend(&mut inner, &names, (left, width), |svg, i, x, y| {
        sample(svg, &all[i], i, (x, y), panel.is_dots);
    });
    // Panels beside each other begin at one height, whatever their legends take.
    let top = if panel.is_narrow { top.max(48.0) } else { top };
    let floor = top + height;
    let y = Scale {
        high: y_high,
        from: floor,
        to: top,
    };
    vertical_grid(&mut inner, x, top, floor, panel.x_unit);
    horizontal_grid(&mut inner, y, (left, width - right), panel.y_unit);
    for (i, line) in all.iter().enumerate() {
        match panel.is_dots {
            true => draw_dots(&mut inner, line, i, x, y),
            false => draw_line(&mut inner, line, i, x, y),
        }
    }
    open(width, floor + BOTTOM) + &inner + "</svg>"
}

fn horizontal_grid(svg: &mut String, y: Scale, (left, right): (f64, f64), unit: &str) {
    for tick in ticks(y.high, 6.0) {
        let at = y.at(tick);
        let _ = write!(
            svg,
            r##"<line x1="{left:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" class="grid"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            left - 6.0,
            at + 4.0,
            number(tick)
        );
    }
    let middle = (y.from + y.to) / 2.0;
    let _ = write!(
        svg,
        r##"<text x="12" y="{middle:.1}" transform="rotate(-90 12 {middle:.1})" text-anchor="middle" class="small">{unit}</text>"##
    );
}

fn dashes(i: usize) -> &'static str {
    const DASHES: [&str; 5] = ["", "7 4", "2 3", "12 4 2 4", "14 3 2 3 2 3"];
    DASHES[i % DASHES.len()]
}

/// The radius of dots, which are hollow in every second line.
fn dot(svg: &mut String, line: &Line, i: usize, (x, y): (f64, f64), title: &str) {
    let colour = line.colour;
    let fill = if i.is_multiple_of(2) { colour } else { "none" };
    let r = 2.5 + (i / 2) as f64;
    let _ = write!(
        svg,
        r##"<circle cx="{x:.1}" cy="{y:.1}" r="{r}" fill="{fill}" stroke="{colour}" opacity=".85">{title}</circle>"##
    );
}

fn sample(svg: &mut String, line: &Line, i: usize, (x, y): (f64, f64), is_dots: bool) {
    if is_dots {
        dot(svg, line, i, (x + 12.0, y), "");
        return;
    }
    let _ = write!(
        svg,
        r##"<line x1="{x:.1}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="{}" stroke-width="2.5" stroke-dasharray="{}"/>"##,
        x + 22.0,
        line.colour,
        dashes(i)
    );
}

fn draw_dots(svg: &mut String, line: &Line, i: usize, x: Scale, y: Scale) {
    for (at, value) in &line.points {
        let title = format!("<title>{}: {value:.1}</title>", line.name);
        dot(svg, line, i, (x.at(*at), y.at(*value)), &title);
    }
}

fn draw_line(svg: &mut String, line: &Line, i: usize, x: Scale, y: Scale) {
    let (colour, dashes) = (line.colour, dashes(i));
    let path: Vec<String> = line
        .points
        .iter()
        .map(|(px, py)| format!("{:.1},{:.1}", x.at(*px), y.at(*py)))
        .collect();
    let _ = write!(
        svg,
        r##"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dashes}"><title>{}</title></polyline>"##,
        path.join(" "),
        line.name
    );
    if let Some(end) = line.end {
        let at = x.at(end);
        let _ = write!(
            svg,
            r##"<line x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}" stroke="{colour}" stroke-width="1.2" stroke-dasharray="{dashes}"><title>{} settled at {end:.0}</title></line>"##,
            y.from, y.to, line.name
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_differ_in_their_dashes() {
        let line = |name: &str| Line {
            name: name.into(),
            colour: "#e09f3e",
            points: vec![(0.0, 0.0), (1.0, 5.0)],
            end: Some(1.0),
        };
        let mut panel = Panel {
            x_unit: "ms",
            y_unit: "%",
            y_high: None,
            is_dots: false,
            is_narrow: true,
        };
        let all = [line("off"), line("full")];
        let svg = lines(&all, &panel);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(r#"dasharray="7 4""#) && !svg.contains("NaN"));
        panel.is_dots = true;
        // Two dots of each line, and one in the legend.
        assert_eq!(lines(&all, &panel).matches("<circle").count(), 2 * 3);
    }
}
