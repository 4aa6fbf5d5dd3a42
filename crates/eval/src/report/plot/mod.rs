//! Plots as SVG text. Pure. What is told apart by colour is told apart by shape, dashes or a written word as well.

mod bars;
mod intervals;
mod lines;
mod spans;
mod strips;

use crate::launch::scenario::Scenario;
use crate::record::Mode;
pub use bars::{Bar, Part, bars};
pub use intervals::{Interval, intervals};
pub use lines::{Line, Panel, lines};
use prepage_engine::CorePolicy;
pub use spans::{Spans, spans};
use std::fmt::Write;
pub use strips::{Strip, strips};

/// Width of a plot that has a line to itself, in units of its own coordinates.
const WIDTH: f64 = 880.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 20.0;
/// What a letter takes, about.
const LETTER: f64 = 7.4;

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

/// A vertical line with a name.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub value: f64,
    /// What it is.
    pub name: String,
}

/// A round step that makes at most so many ticks up to `high`.
fn tick_step(high: f64, ticks_max: f64) -> f64 {
    let least = (high / ticks_max).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= least)
        .unwrap_or(power * 10.0)
}

fn ticks(high: f64, ticks_max: f64) -> Vec<f64> {
    let step = tick_step(high, ticks_max);
    (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|v| *v <= high * 1.0001)
        .collect()
}

/// The number at a tick, in thousands where it has many digits.
fn number(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{}k", number(value / 1_000.0))
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// The colour of a mode, the same in every plot and readable on light and dark.
pub fn colour(mode: Mode) -> &'static str {
    match mode {
        Mode::Launch => "#7d6b5d",
        Mode::Resident => "#2a9d5c",
        Mode::ResidentObserve => "#8ab17d",
        Mode::ResidentFull => "#5b8e7d",
        Mode::FilesDropped => "#8d7fd1",
        Mode::Off => "#d1495b",
        Mode::Observe => "#9a8c98",
        Mode::Anon => "#3d7ea6",
        Mode::File => "#c77dba",
        Mode::Full => "#e09f3e",
        Mode::FullOnset => "#b08968",
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
        Scenario::Detected => "#43aa8b",
        Scenario::PrefetchOnly => "#9a8c98",
        Scenario::WholeFiles => "#c77dba",
        Scenario::Vmtouch => "#7d6b5d",
        Scenario::Record => "#e5989b",
        Scenario::FastUnrecorded => "#b5838d",
        Scenario::FastRecorded => "#f4a261",
        Scenario::Preload => "#6a4c93",
        Scenario::Profile => "#8f2d56",
        Scenario::Generate => "#d8789b",
        Scenario::LeftAlone => "#8ab17d",
        Scenario::OtherOffsets => "#457b9d",
        Scenario::OtherProgram => "#1d3557",
        Scenario::OtherVersions => "#84a9ac",
    }
}

/// The colour of one of many lines that have none of their own. Dashes go round in fives: forty look different.
pub fn series_colour(i: usize) -> &'static str {
    const COLOURS: [&str; 8] = [
        "#d1495b", "#3d7ea6", "#e09f3e", "#2a9d5c", "#8d7fd1", "#c77dba", "#7d6b5d", "#43aa8b",
    ];
    COLOURS[i % COLOURS.len()]
}

fn open(width: f64, height: f64) -> String {
    format!(
        r##"<svg viewBox="0 0 {width} {height:.0}" role="img" xmlns="http://www.w3.org/2000/svg">"##
    )
}

/// The grid of a horizontal scale, its numbers and its unit.
fn vertical_grid(svg: &mut String, scale: Scale, top: f64, floor: f64, unit: &str) {
    const APART: f64 = 55.0;
    let ticks_max = ((scale.to - scale.from) / APART).clamp(2.0, 10.0);
    for tick in ticks(scale.high, ticks_max) {
        let x = scale.at(tick);
        let _ = write!(
            svg,
            r##"<line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{floor:.1}" class="grid"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
            floor + 16.0,
            number(tick)
        );
    }
    let middle = (scale.from + scale.to) / 2.0;
    let _ = write!(
        svg,
        r##"<text x="{middle:.1}" y="{:.1}" text-anchor="middle" class="small">{unit}</text>"##,
        floor + 33.0
    );
}

/// The name of a row, left of it.
fn row_name(svg: &mut String, name: &str, middle: f64) {
    let _ = write!(
        svg,
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end">{name}</text>"##,
        LEFT - 12.0,
        middle + 4.0
    );
}

/// A line across the plot, named above it.
fn draw_mark(svg: &mut String, mark: &Mark, scale: Scale, top: f64, floor: f64) {
    let x = scale.at(mark.value);
    let _ = write!(
        svg,
        r##"<line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{floor:.1}" class="mark"/><text x="{x:.1}" y="{:.1}" text-anchor="middle" class="small">{}</text>"##,
        top - 5.0,
        mark.name
    );
}

/// Draws what each entry looks like, `sample` at a place, with its name, in as many lines as it takes; returns their height.
fn legend(
    svg: &mut String,
    names: &[String],
    (left, width): (f64, f64),
    mut sample: impl FnMut(&mut String, usize, f64, f64),
) -> f64 {
    const LINE: f64 = 18.0;
    let (mut x, mut y) = (left, 12.0);
    for (i, name) in names.iter().enumerate() {
        let takes = 26.0 + LETTER * name.chars().count() as f64 + 16.0;
        if x > left && x + takes > width {
            (x, y) = (left, y + LINE);
        }
        sample(svg, i, x, y);
        let _ = write!(
            svg,
            r##"<text x="{:.1}" y="{:.1}">{name}</text>"##,
            x + 26.0,
            y + 4.0
        );
        x += takes;
    }
    y + LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(100.0, 8.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for high in [0.3, 1.0, 7.0, 418.0, 29_686.0] {
            let ticks = ticks(high, 8.0);
            assert!((4..=9).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }

    #[test]
    fn a_legend_takes_as_many_lines_as_it_needs() {
        let names: Vec<String> = (0..8).map(|i| format!("{i} of the modes")).collect();
        let mut svg = String::new();
        let mut lines = Vec::new();
        let height = legend(&mut svg, &names, (0.0, 300.0), |_, _, _, y| lines.push(y));
        lines.dedup();
        assert_eq!(lines.len(), 4);
        assert!(height > lines[3]);
    }
}
