//! Plots as SVG text. Pure.

use crate::launch::scenario::Scenario;
use crate::record::Mode;
use crate::statistics::Estimate;
use prepage_engine::CorePolicy;
use std::fmt::Write;

const WIDTH: f64 = 880.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 20.0;

/// A linear scale from values to pixels.
#[derive(Clone, Copy, Debug)]
struct Scale {
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.high).clamp(0.0, 1.0)
    }
}

/// A round step that makes at most eight ticks up to `high`.
fn tick_step(high: f64) -> f64 {
    const TICKS_MAX: f64 = 8.0;
    let least = (high / TICKS_MAX).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= least)
        .unwrap_or(power * 10.0)
}

fn ticks(high: f64) -> Vec<f64> {
    let step = tick_step(high);
    (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|v| *v <= high * 1.0001)
        .collect()
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// The colour of a mode, the same in every plot and readable on light and dark.
pub fn colour(mode: Mode) -> &'static str {
    match mode {
        Mode::Resident => "#2a9d5c",
        Mode::ResidentObserve => "#8ab17d",
        Mode::Off => "#d1495b",
        Mode::Observe => "#9a8c98",
        Mode::Anon => "#3d7ea6",
        Mode::File => "#c77dba",
        Mode::Full => "#e09f3e",
        Mode::FullBy(CorePolicy::Asap) => "#9c6644",
        Mode::FullBy(CorePolicy::Big1) => "#577590",
        Mode::FullBy(CorePolicy::BigAll) => "#277da1",
        Mode::FullBy(CorePolicy::Little1) => "#90be6d",
        Mode::FullBy(CorePolicy::LittleAll) => "#43aa8b",
        Mode::FullBy(CorePolicy::Iorap) => "#b56576",
    }
}

/// The colour of a scenario, by the same rule; what has a counterpart among the modes has its colour.
pub fn scenario_colour(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Warm => "#2a9d5c",
        Scenario::Cold => "#d1495b",
        Scenario::Sorted => "#3d7ea6",
        Scenario::Fast => "#e09f3e",
        Scenario::PrefetchOnly => "#9a8c98",
        Scenario::WholeFiles => "#c77dba",
        Scenario::Vmtouch => "#7d6b5d",
        Scenario::Record => "#e5989b",
        Scenario::FastUnrecorded => "#b5838d",
    }
}

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

/// A vertical line with a name.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub value: f64,
    /// What it is.
    pub name: String,
}

/// Every sample as a dot, a row a mode, with the median and its interval; `mark` is drawn across.
pub fn strips(rows: &[Strip], unit: &str, mark: Option<&Mark>) -> String {
    const ROW: f64 = 44.0;
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
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let floor = height - BOTTOM;
    let mut svg = open(height);
    vertical_grid(&mut svg, scale, TOP, floor, unit);
    for (i, row) in rows.iter().enumerate() {
        let middle = TOP + ROW * (i as f64 + 0.5);
        strip(&mut svg, row, scale, middle, unit);
    }
    if let Some(mark) = mark {
        let x = scale.at(mark.value);
        let _ = write!(
            svg,
            r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{floor}" class="mark"/><text x="{x:.1}" y="14" text-anchor="middle" class="small">{}</text>"##,
            mark.name
        );
    }
    svg + "</svg>"
}

fn open(height: f64) -> String {
    format!(
        r##"<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">"##
    )
}

fn vertical_grid(svg: &mut String, scale: Scale, top: f64, floor: f64, unit: &str) {
    for tick in ticks(scale.high) {
        let x = scale.at(tick);
        let _ = write!(
            svg,
            r##"<line x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{floor}" class="grid"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
            floor + 16.0,
            number(tick)
        );
    }
    let middle = (scale.from + scale.to) / 2.0;
    let _ = write!(
        svg,
        r##"<text x="{middle:.1}" y="{:.1}" text-anchor="middle" class="small">{unit}</text>"##,
        floor + 34.0
    );
}

fn strip(svg: &mut String, row: &Strip, scale: Scale, middle: f64, unit: &str) {
    let colour = row.colour;
    let _ = write!(
        svg,
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
        LEFT - 12.0,
        middle + 4.0,
        row.name
    );
    if let Some(m) = row.median {
        let (low, high, at) = (scale.at(m.low), scale.at(m.high), scale.at(m.value));
        let _ = write!(
            svg,
            r##"<rect x="{low:.1}" y="{:.1}" width="{:.1}" height="28" fill="{colour}" opacity=".22"/><line x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}" stroke="{colour}" stroke-width="3"><title>median {:.1} {unit}, 95 % interval {:.1} to {:.1}</title></line>"##,
            middle - 14.0,
            (high - low).max(1.0),
            middle - 16.0,
            middle + 16.0,
            m.value,
            m.low,
            m.high
        );
    }
    for (i, value) in row.values.iter().enumerate() {
        // Spread evenly by place in the run: no chance is needed to keep dots apart.
        let y = middle + ((i * 5) % 11) as f64 * 2.0 - 10.0;
        let _ = write!(
            svg,
            r##"<circle cx="{:.1}" cy="{y:.1}" r="3" fill="{colour}" opacity=".75"><title>{value:.1} {unit}</title></circle>"##,
            scale.at(*value)
        );
    }
}

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

/// A row for each name, with its estimates one below the other; `mark` is drawn across.
pub fn intervals(rows: &[(String, Vec<Interval>)], unit: &str, mark: &Mark) -> String {
    const EACH: f64 = 9.0;
    const GAP: f64 = 12.0;
    const TOP: f64 = 44.0;
    const BOTTOM: f64 = 40.0;
    let all = || rows.iter().flat_map(|(_, marks)| marks.iter());
    let high = all()
        .map(|m| m.estimate.high)
        .fold(mark.value, f64::max)
        .max(f64::MIN_POSITIVE)
        * 1.05;
    let scale = Scale {
        high,
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let heights: Vec<f64> = rows
        .iter()
        .map(|(_, marks)| EACH * marks.len() as f64 + GAP)
        .collect();
    let floor = TOP + heights.iter().sum::<f64>();
    let mut svg = open(floor + BOTTOM);
    vertical_grid(&mut svg, scale, TOP, floor, unit);
    let mut top = TOP;
    for ((name, marks), height) in rows.iter().zip(heights) {
        let _ = write!(
            svg,
            r##"<text x="{:.1}" y="{:.1}" text-anchor="end">{name}</text>"##,
            LEFT - 12.0,
            top + height / 2.0 + 4.0
        );
        for (i, one) in marks.iter().enumerate() {
            let y = top + GAP / 2.0 + EACH * (i as f64 + 0.5);
            interval_mark(&mut svg, one, scale, y);
        }
        top += height;
    }
    let x = scale.at(mark.value);
    let _ = write!(
        svg,
        r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{floor:.1}" class="mark"/><text x="{x:.1}" y="{:.1}" text-anchor="middle" class="small">{}</text>"##,
        TOP - 6.0,
        mark.name
    );
    let mut entries: Vec<(&str, String)> = Vec::new();
    for one in all() {
        let entry = (one.colour, one.word.replace('_', " "));
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    legend(&mut svg, entries.into_iter());
    svg + "</svg>"
}

fn interval_mark(svg: &mut String, one: &Interval, scale: Scale, y: f64) {
    let (colour, e) = (one.colour, one.estimate);
    let (low, high, at) = (scale.at(e.low), scale.at(e.high), scale.at(e.value));
    let _ = write!(
        svg,
        r##"<line x1="{low:.1}" y1="{y:.1}" x2="{high:.1}" y2="{y:.1}" stroke="{colour}" stroke-width="2"/><circle cx="{at:.1}" cy="{y:.1}" r="3.5" fill="{colour}"><title>{} {:.2}, 95 % interval {:.2} to {:.2}</title></circle>"##,
        one.word, e.value, e.low, e.high
    );
}

/// One line of a line plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// The mode.
    pub mode: Mode,
    /// Points, ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common x. With `dots`, single points instead.
pub fn lines(all: &[Line], x_unit: &str, y_unit: &str, y_high: Option<f64>, dots: bool) -> String {
    const TOP: f64 = 34.0;
    const HEIGHT: f64 = 340.0;
    const BOTTOM: f64 = 40.0;
    let floor = HEIGHT - BOTTOM;
    let points = || all.iter().flat_map(|l| l.points.iter());
    let x = Scale {
        high: points().map(|p| p.0).fold(1.0, f64::max),
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let y_high = y_high.unwrap_or_else(|| points().map(|p| p.1).fold(1.0, f64::max) * 1.05);
    let y = Scale {
        high: y_high,
        from: floor,
        to: TOP,
    };
    let mut svg = open(HEIGHT);
    vertical_grid(&mut svg, x, TOP, floor, x_unit);
    for tick in ticks(y_high) {
        let at = y.at(tick);
        let _ = write!(
            svg,
            r##"<line x1="{LEFT}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}" class="grid"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            number(tick)
        );
    }
    let _ = write!(
        svg,
        r##"<text x="22" y="{:.1}" transform="rotate(-90 22 {:.1})" text-anchor="middle" class="small">{y_unit}</text>"##,
        (TOP + floor) / 2.0,
        (TOP + floor) / 2.0
    );
    for line in all {
        draw_line(&mut svg, line, x, y, dots);
    }
    let entries = all
        .iter()
        .map(|line| (colour(line.mode), line.mode.word().replace('_', " ")));
    legend(&mut svg, entries);
    svg + "</svg>"
}

fn draw_line(svg: &mut String, line: &Line, x: Scale, y: Scale, dots: bool) {
    let colour = colour(line.mode);
    if dots {
        for (at, value) in &line.points {
            let _ = write!(
                svg,
                r##"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{colour}" opacity=".8"><title>{}: {value:.1}</title></circle>"##,
                x.at(*at),
                y.at(*value),
                line.mode.word()
            );
        }
        return;
    }
    let path: Vec<String> = line
        .points
        .iter()
        .map(|(px, py)| format!("{:.1},{:.1}", x.at(*px), y.at(*py)))
        .collect();
    let _ = write!(
        svg,
        r##"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2.5"><title>{}</title></polyline>"##,
        path.join(" "),
        line.mode.word()
    );
}

fn legend(svg: &mut String, entries: impl Iterator<Item = (&'static str, String)>) {
    for (i, (colour, name)) in entries.enumerate() {
        let x = LEFT + 105.0 * i as f64;
        let _ = write!(
            svg,
            r##"<rect x="{x:.1}" y="8" width="14" height="10" fill="{colour}"/><text x="{:.1}" y="18">{name}</text>"##,
            x + 20.0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for high in [0.3, 1.0, 7.0, 418.0, 29_686.0] {
            let ticks = ticks(high);
            assert!((4..=9).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }

    #[test]
    fn plots_are_whole() {
        let estimate = Estimate {
            value: 2.0,
            low: 1.0,
            high: 3.0,
            n: 3,
        };
        let median = Some(estimate);
        let svg = strips(
            &[Strip {
                name: "off".into(),
                colour: colour(Mode::Off),
                values: vec![1.0, 2.0, 3.0],
                median,
            }],
            "ms",
            None,
        );
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"));
        let svg = lines(
            &[Line {
                mode: Mode::Full,
                points: vec![(0.0, 0.0), (1.0, 5.0)],
            }],
            "ms",
            "%",
            None,
            false,
        );
        assert_eq!(svg.matches("<polyline").count(), 1);
        let scenario = Scenario::Fast;
        let mark = Mark {
            value: 1.0,
            name: "cold".into(),
        };
        let rows = [(
            "git".to_owned(),
            vec![Interval {
                word: scenario.word(),
                colour: scenario_colour(scenario),
                estimate,
            }],
        )];
        let svg = intervals(&rows, "time over cold", &mark);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains(">fast</text>") && svg.ends_with("</svg>") && !svg.contains("NaN"));
    }
}
