//! Charts in SVG: single charts on the page, each with a table, or sheets of several charts.
//!
//! Where: in the figures of the page, and on the sheet that `simulate` draws.
//! Invariant: lines differ in marks and dashes as well as in colour. The page shows the figures of
//! each chart also as text. A chart contains no script and no font. Both axes contain all points,
//! and the ranges of all points.
//! Source: WCAG 2.2, 1.1.1 and 1.4.1.

mod ticks;

use super::table::Table;
use super::words::escaped;
use crate::plot::axis::{Axis, Spread};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
pub(crate) use ticks::Ticks;

/// Size and margins of a chart in SVG units; on a small phone, a unit is a pixel.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 32.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;
/// Width of a label's character on a phone, where labels are largest.
pub(super) const LETTER: f64 = 9.0;
/// Number of line styles in the style sheet.
pub(crate) const KINDS: usize = 8;
/// Maximum width of two charts in a row. Documents shrink a wider sheet until it cannot be read.
const SHEET_MAX: f64 = 1200.0;
/// Space for a chart's title on a sheet.
const TITLE: f64 = 24.0;
/// Least space for the names of a chart's lines on a sheet, and the width of a name's character.
const NAMES: f64 = 130.0;
const NAME_LETTER: f64 = 7.0;
/// Distance between the marks of two lines at the same place of the horizontal axis.
const APART: f64 = 4.0;
/// Maximum distance between the marks of the first and of the last line at the same place.
const ALL_APART_MAX: f64 = 14.0;
/// Height of a line's name on a sheet, and of a row of labels below a chart.
const NAME: f64 = 17.0;
/// Distance in a sheet's legend from the start of a line's sample (a short piece of the line) to
/// the line's name.
const SAMPLE: f64 = 40.0;
const STYLE: &str = include_str!("chart.css");
/// The file that defines the colours of the style sheet.
const COLOURS: &str = include_str!("page.css");
const POINTS_MAX: usize = 2000;

/// A function that formats a figure.
pub(crate) type Format = fn(f64) -> String;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The line's name.
    pub name: String,
    /// Number of the run; lines of the same run have the same colour.
    pub kind: usize,
    /// True for the second line of a run.
    pub is_dashed: bool,
    /// The points, in the order in which the line connects them.
    pub points: Vec<Dot>,
}

/// One point.
#[derive(Clone, Debug)]
pub(crate) struct Dot {
    /// The figure on the horizontal axis.
    pub x: f64,
    /// The figure on the vertical axis.
    pub y: f64,
    /// True if the generator was the limit, so that the figure is not the server's.
    pub is_hollow: bool,
    /// The confidence interval of the figure on the vertical axis, if it is drawn.
    pub range: Option<(f64, f64)>,
}

/// One chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// The HTML id.
    pub id: Cow<'static, str>,
    /// The heading above the chart.
    pub title: String,
    /// The explanation of the chart.
    pub caption: String,
    /// The horizontal axis: name, spread, format.
    pub x: (Cow<'static, str>, Spread, Format),
    /// The vertical axis: name, spread, format.
    pub y: (Cow<'static, str>, Spread, Format),
    /// Figures that the vertical axis must contain, in addition to the figures of the lines.
    pub y_also: Vec<f64>,
    /// Ticks of the horizontal axis.
    pub x_ticks: Ticks,
    /// All lines.
    pub lines: Vec<Line>,
    /// The table of the figures. If it is `None`, the page shows a table with a row for each point.
    pub table: Option<Table>,
}

impl Chart {
    /// Returns an HTML `figure`, or an empty text if there is nothing to draw.
    pub(crate) fn html(&self) -> String {
        if self.lines.iter().all(|line| line.points.is_empty()) {
            return String::new();
        }
        let legend = self.lines.iter().map(|line| (sample(line), line.name.clone()));
        Figure {
            id: &self.id,
            title: &self.title,
            caption: &self.caption,
            size: (WIDTH, HEIGHT),
            drawing: self.drawing(),
            legend: legend.collect(),
            table: ("Figures", self.table.clone().unwrap_or_else(|| self.listed())),
        }
        .html()
    }

    /// A table with a row for each point.
    fn listed(&self) -> Table {
        let mut table = Table::new(&["line", &self.x.0, &self.y.0]);
        for line in &self.lines {
            for dot in line.points.iter().take(POINTS_MAX) {
                let x = self.x_ticks.word(dot.x, self.x.2);
                table.row(&[line.name.clone(), x, (self.y.2)(dot.y)]);
            }
        }
        table
    }

    fn drawing(&self) -> String {
        let mut out = String::new();
        let dots = || self.lines.iter().flat_map(|line| &line.points);
        let xs = dots().map(|dot| dot.x).chain(self.x_ticks.edges());
        let ranges = dots().filter_map(|dot| dot.range).flat_map(|(low, high)| [low, high]);
        let ys = dots().map(|dot| dot.y).chain(ranges).chain(self.y_also.iter().copied());
        let mut plot = Plot {
            x: Axis::new(self.x_ticks.spread(self.x.1), xs),
            y: Axis::new(self.y.1, ys).with_ticks(),
            bottom: HEIGHT - BOTTOM,
        };
        let labels = self.x_ticks.labels(&plot.x, self.x.2);
        plot.bottom -= NAME * labels.rows.saturating_sub(1) as f64;
        self.frame(&mut out, &plot, &labels);
        for (nth, line) in self.lines.iter().enumerate() {
            self.draw(&mut out, line, &plot, self.aside(nth));
        }
        out
    }

    /// Returns the distance by which a line is moved sideways, so that the ranges of lines at the
    /// same place do not cover each other.
    fn aside(&self, nth: usize) -> f64 {
        let dots = || self.lines.iter().flat_map(|line| &line.points);
        let places: BTreeSet<u64> = dots().map(|dot| dot.x.to_bits()).collect();
        if places.len() == dots().count() || dots().all(|dot| dot.range.is_none()) {
            return 0.0;
        }
        let gaps = self.lines.len().saturating_sub(1) as f64;
        (nth as f64 - gaps / 2.0) * APART.min(ALL_APART_MAX / gaps.max(1.0))
    }

    fn frame(&self, out: &mut String, plot: &Plot, labels: &ticks::Labels) {
        let (right, bottom) = (WIDTH - RIGHT, plot.bottom);
        out.push_str("<g aria-hidden=\"true\">");
        for tick in plot.y.ticks() {
            let Some(at) = plot.up(tick) else { continue };
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escaped(&(self.y.2)(tick))
            );
        }
        for at in &labels.lines {
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
            );
        }
        for (at, row, label) in &labels.texts {
            let _ = writeln!(
                out,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0 + NAME * *row as f64,
                escaped(label)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(12 {:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text></g>",
            f64::midpoint(LEFT, right),
            HEIGHT - 8.0,
            escaped(&self.x.0),
            f64::midpoint(TOP, bottom),
            escaped(&self.y.0)
        );
    }

    fn draw(&self, out: &mut String, line: &Line, plot: &Plot, aside: f64) {
        let (mut path, mut marks, mut ranges) = (String::new(), String::new(), String::new());
        for dot in line.points.iter().take(POINTS_MAX) {
            let (Some(at_x), Some(at_y)) = (plot.across(dot.x), plot.up(dot.y)) else { continue };
            let at_x = at_x + aside;
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{at_x:.1} {at_y:.1}");
            if let Some((low, high)) = dot.range {
                // A logarithmic axis has no zero: a range from zero begins at the bottom.
                let low = plot.up(low).unwrap_or(plot.bottom);
                let high = plot.up(high).unwrap_or(at_y);
                let _ = write!(
                    ranges,
                    "M{at_x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6",
                    at_x - 3.0,
                    at_x - 3.0
                );
            }
            let doubt = if dot.is_hollow { " (the generator was the limit)" } else { "" };
            let _ = writeln!(
                marks,
                "<g><title>{}: {}, {}{doubt}</title>{}</g>",
                escaped(&line.name),
                escaped(&self.x_ticks.word(dot.x, self.x.2)),
                escaped(&(self.y.2)(dot.y)),
                if line.is_dashed {
                    // Invisible circles on a dashed line show a text if the pointer hits a circle.
                    format!("<circle class=\"spot\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"5\"/>")
                } else {
                    mark(line.kind, at_x, at_y, dot.is_hollow)
                }
            );
        }
        let class = class(line);
        let _ = writeln!(out, "<path class=\"line {class}\" d=\"{path}\"/>");
        if !ranges.is_empty() {
            let class = format!("range k{}", line.kind % KINDS);
            let _ = writeln!(out, "<path class=\"{class}\" aria-hidden=\"true\" d=\"{ranges}\"/>");
        }
        out.push_str(&marks);
    }
}

/// The axes of a chart, and the vertical position of the horizontal axis in SVG units.
struct Plot {
    x: Axis,
    y: Axis,
    bottom: f64,
}

impl Plot {
    fn across(&self, figure: f64) -> Option<f64> {
        across(&self.x, figure)
    }

    fn up(&self, figure: f64) -> Option<f64> {
        Some(self.bottom - self.y.place(figure)? * (self.bottom - TOP))
    }
}

fn across(axis: &Axis, figure: f64) -> Option<f64> {
    Some(LEFT + axis.place(figure)? * (WIDTH - RIGHT - LEFT))
}

/// A drawing on the page with a legend, a table of its figures, and a text for screen readers.
pub(super) struct Figure<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) caption: &'a str,
    pub(super) size: (f64, f64),
    pub(super) drawing: String,
    /// Entries of the legend: an SVG sample of 34 by 12 units, and a name.
    pub(super) legend: Vec<(String, String)>,
    /// Heading and table of the figures.
    pub(super) table: (&'static str, Table),
}

impl Figure<'_> {
    pub(super) fn html(&self) -> String {
        let Figure { id, size: (width, height), drawing, .. } = self;
        let (title, caption) = (escaped(self.title), escaped(self.caption));
        let mut out = format!(
            "<figure id=\"{id}\"><h3>{title}</h3>\n<svg viewBox=\"0 0 {width} {height}\" \
             role=\"img\" aria-labelledby=\"{id}-title {id}-text\"><title id=\"{id}-title\">\
             {title}</title><desc id=\"{id}-text\">{caption} The figures are in the table \
             below.</desc>\n{drawing}</svg>\n<ul class=\"legend\">"
        );
        for (sample, name) in &self.legend {
            let _ = write!(
                out,
                "<li><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" \
                 aria-hidden=\"true\">{sample}</svg>{}</li>",
                escaped(name)
            );
        }
        let (summary, table) = (self.table.0, self.table.1.html(self.title));
        let _ = write!(
            out,
            "</ul>\n<figcaption>{caption}</figcaption>\n<details><summary>{summary}</summary>\
             {table}</details>\n</figure>\n"
        );
        out
    }
}

/// Draws charts, one or two in a row, as one SVG. Colours are written as values, because some
/// viewers have no CSS variables.
pub(crate) fn sheet(charts: &[Chart]) -> String {
    let mut style = STYLE.to_owned();
    let light = COLOURS.split_once('}').map_or("", |(light, _)| light);
    for (name, colour) in light.split([';', '{']).filter_map(|one| one.trim().split_once(": ")) {
        style = style.replace(&format!("var({name})"), colour);
    }
    let names = charts.iter().flat_map(|chart| &chart.lines).map(|line| line.name.chars().count());
    let names = SAMPLE + names.max().unwrap_or(0) as f64 * NAME_LETTER;
    let (across, down) = (WIDTH + NAMES.max(names), HEIGHT + TITLE);
    let columns = if 2.0 * across > SHEET_MAX { 1 } else { charts.len().clamp(1, 2) };
    let width = columns as f64 * across;
    let height = charts.len().div_ceil(columns).max(1) as f64 * down;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\n\
         <style>{style}</style>\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        let (x, y) = ((at % columns) as f64 * across, (at / columns) as f64 * down);
        let _ = writeln!(
            out,
            "<g transform=\"translate({x} {y})\"><text x=\"{LEFT}\" y=\"18\">{}</text>\n\
             <g transform=\"translate(0 {TITLE})\">{}",
            escaped(&chart.title),
            chart.drawing()
        );
        for (nth, line) in chart.lines.iter().enumerate() {
            let (x, y) = (WIDTH - RIGHT + 12.0, TOP + NAME * nth as f64);
            let _ = writeln!(
                out,
                "<g transform=\"translate({x} {y})\">{}<text x=\"{SAMPLE}\" y=\"10\">{}</text></g>",
                sample(line),
                escaped(&line.name)
            );
        }
        out.push_str("</g></g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the legend's sample of a line, 34 by 12 units.
fn sample(line: &Line) -> String {
    let mark = if line.is_dashed { String::new() } else { mark(line.kind, 17.0, 6.0, false) };
    format!("<path class=\"line {}\" d=\"M0 6H34\"/>{mark}", class(line))
}

fn class(line: &Line) -> String {
    let dashed = if line.is_dashed { " dashed" } else { "" };
    format!("k{}{dashed}", line.kind % KINDS)
}

/// Returns the mark that run `kind` has on its lines.
fn mark(kind: usize, x: f64, y: f64, is_hollow: bool) -> String {
    let class = format!("mark k{}{}", kind % KINDS, if is_hollow { " hollow" } else { "" });
    let shape = match kind % 4 {
        0 => "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
        1 => "m-3 -3h6v6h-6z",
        2 => "m0 -4l4 7h-8z",
        _ => "m0 -4l4 4l-4 4l-4 -4z",
    };
    format!("<path class=\"{class}\" d=\"M{x:.1} {y:.1}{shape}\"/>")
}
