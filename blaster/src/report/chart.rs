//! Lines in a frame, as SVG that grows with the page, with the same figures as a table below.
//!
//! Where: each figure of the page but the bars. Invariant: a line is told from the others by its
//! marks and dashes as well as by its colour; what is drawn can be read as text.
//! Source: WCAG 2.2, 1.1.1 and 1.4.1.

use super::axis::{Axis, Spread};
use super::table::Table;
use super::words::escaped;
use std::fmt::Write;

/// The frame, in units that are pixels on a small phone.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 32.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;
/// The width of a letter of a label, where they are largest: on a phone.
const LETTER: f64 = 9.0;
/// Kinds of lines in the style sheet.
const KINDS: usize = 8;
/// Points of one line that are drawn.
const POINTS_MAX: usize = 2000;

/// How figures are written.
pub type Words = fn(f64) -> String;

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The number of what it belongs to: lines of one run look alike.
    pub kind: usize,
    /// A second line of the same run.
    pub is_dashed: bool,
    /// Its points, in their order.
    pub points: Vec<Dot>,
}

/// One point.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// It is not to be trusted.
    pub is_hollow: bool,
}

/// One chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// For links and tests.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// Across: its name, its spread, its words.
    pub x: (&'static str, Spread, Words),
    /// Up.
    pub y: (&'static str, Spread, Words),
    /// Ticks across where they are not round figures.
    pub x_ticks: Option<Vec<f64>>,
    /// All lines.
    pub lines: Vec<Line>,
}

impl Chart {
    /// As a `figure` of HTML; nothing if there is nothing to draw.
    #[must_use]
    pub fn html(&self) -> String {
        if self.lines.iter().all(|line| line.points.is_empty()) {
            return String::new();
        }
        let (id, title) = (self.id, escaped(&self.title));
        let caption = escaped(&self.caption);
        let mut out = format!(
            "<figure id=\"{id}\"><h3>{title}</h3>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" aria-labelledby=\"{id}-title {id}-text\"><title id=\"{id}-title\">\
             {title}</title><desc id=\"{id}-text\">{caption} The figures are in the table \
             below.</desc>\n"
        );
        let dots = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::of(self.x.1, dots().map(|dot| dot.x));
        let y = Axis::of(self.y.1, dots().map(|dot| dot.y));
        self.frame(&mut out, &x, &y);
        for line in &self.lines {
            draw(&mut out, line, &x, &y, (self.x.2, self.y.2));
        }
        out.push_str("</svg>\n");
        self.legend(&mut out);
        let _ = write!(out, "<figcaption>{caption}</figcaption>\n{}</figure>\n", self.table());
        out
    }

    fn frame(&self, out: &mut String, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        out.push_str("<g aria-hidden=\"true\">");
        for tick in y.ticks() {
            let Some(at) = up(y, tick) else { continue };
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escaped(&(self.y.2)(tick))
            );
        }
        let ticks = self.x_ticks.clone().unwrap_or_else(|| x.ticks());
        let ticks = ticks.into_iter().filter_map(|tick| Some((across(x, tick)?, (self.x.2)(tick))));
        let ticks: Vec<(f64, String)> = ticks.collect();
        let every = label_every(&ticks);
        for (nth, (at, label)) in ticks.iter().rev().enumerate() {
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
            );
            if nth.is_multiple_of(every) {
                let half = label.chars().count() as f64 * LETTER / 2.0;
                let at = at.min(WIDTH - half);
                let _ = writeln!(
                    out,
                    "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    bottom + 16.0,
                    escaped(label)
                );
            }
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(12 {:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text></g>",
            f64::midpoint(LEFT, right),
            HEIGHT - 8.0,
            escaped(self.x.0),
            f64::midpoint(TOP, bottom),
            escaped(self.y.0)
        );
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">");
        for line in &self.lines {
            let mark =
                if line.is_dashed { String::new() } else { mark(line.kind, 17.0, 6.0, false) };
            let _ = write!(
                out,
                "<li><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">\
                 <path class=\"line {}\" d=\"M0 6H34\"/>{}</svg>{}</li>",
                class(line),
                mark,
                escaped(&line.name)
            );
        }
        out.push_str("</ul>\n");
    }

    /// All points, a row each.
    fn table(&self) -> String {
        let mut table = Table::new(&["line", self.x.0, self.y.0]);
        for line in &self.lines {
            for dot in line.points.iter().take(POINTS_MAX) {
                table.row(&[line.name.clone(), (self.x.2)(dot.x), (self.y.2)(dot.y)]);
            }
        }
        format!("<details><summary>Figures</summary>{}</details>\n", table.html(&self.title))
    }
}

/// Every how manieth tick has room for its label, the last one having it in any case.
fn label_every(ticks: &[(f64, String)]) -> usize {
    let widest = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let apart = ticks.windows(2).map(|pair| (pair[1].0 - pair[0].0).abs());
    let apart = apart.fold(f64::INFINITY, f64::min);
    let fits = |every: &usize| *every as f64 * apart >= (widest + 2) as f64 * LETTER;
    (1..=ticks.len()).find(fits).unwrap_or(ticks.len().max(1))
}

fn across(axis: &Axis, figure: f64) -> Option<f64> {
    Some(LEFT + axis.place(figure)? * (WIDTH - RIGHT - LEFT))
}

fn up(axis: &Axis, figure: f64) -> Option<f64> {
    Some(HEIGHT - BOTTOM - axis.place(figure)? * (HEIGHT - BOTTOM - TOP))
}

/// A line's class in the style sheet.
fn class(line: &Line) -> String {
    let dashed = if line.is_dashed { " dashed" } else { "" };
    format!("k{}{dashed}", line.kind % KINDS)
}

fn draw(out: &mut String, line: &Line, x: &Axis, y: &Axis, words: (Words, Words)) {
    let mut path = String::new();
    let mut marks = String::new();
    for dot in line.points.iter().take(POINTS_MAX) {
        let (Some(at_x), Some(at_y)) = (across(x, dot.x), up(y, dot.y)) else { continue };
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{step}{at_x:.1} {at_y:.1}");
        let doubt = if dot.is_hollow { " (the generator was the limit)" } else { "" };
        let _ = writeln!(
            marks,
            "<g><title>{}: {}, {}{doubt}</title>{}</g>",
            escaped(&line.name),
            escaped(&words.0(dot.x)),
            escaped(&words.1(dot.y)),
            if line.is_dashed {
                // A second line is told by its dashes; its points only by pointing at them.
                format!("<circle class=\"spot\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"5\"/>")
            } else {
                mark(line.kind, at_x, at_y, dot.is_hollow)
            }
        );
    }
    let class = class(line);
    let _ = writeln!(out, "<path class=\"line {class}\" d=\"{path}\"/>{marks}");
}

/// A mark by the kind of its line.
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
