//! Miss ratio against size, drawn as SVG: one panel a trace, one line a policy.
//!
//! Where: beside the table. Invariant: plain SVG 1.1 without scripts or fonts of its own, so that
//! every browser shows it; names are escaped.

use super::Plan;
use crate::report::words::escaped;
use simulate::jobs::Outcome;
use std::fmt::Write;

/// A panel and its margins, in pixels.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 36.0;
const PLOT_WIDTH: f64 = 330.0;
const PLOT_HEIGHT: f64 = 250.0;
/// Lines across a panel.
const TICKS: u32 = 5;
/// Told apart by most eyes; taken again, dashed, when there are more lines.
const COLOURS: [&str; 8] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#000000"];

/// The whole drawing.
#[must_use]
pub fn svg(plan: &Plan, outcomes: &[Outcome]) -> String {
    let rows = outcomes.len().div_ceil(2).max(1) as f64;
    let (width, height) = (2.0 * WIDTH, rows * HEIGHT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, outcome) in outcomes.iter().enumerate() {
        let (x, y) = ((at % 2) as f64 * WIDTH, (at / 2) as f64 * HEIGHT);
        let _ = writeln!(out, "<g transform=\"translate({x},{y})\">");
        panel(&mut out, plan, outcome);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// Where a panel's figures lie.
struct Scale {
    log_bytes: (f64, f64),
    ratio: (f64, f64),
}

impl Scale {
    fn new(outcome: &Outcome) -> Scale {
        let bytes = outcome.sizes.iter().map(|(bytes, _)| (*bytes as f64).max(1.0).ln());
        let ratios = outcome.sizes.iter().flat_map(|(_, misses)| misses);
        let ratios = ratios.map(|misses| *misses as f64 / outcome.requests as f64);
        Scale { log_bytes: span(bytes), ratio: span(ratios) }
    }

    fn x(&self, bytes: u64) -> f64 {
        let (from, to) = self.log_bytes;
        LEFT + ((bytes as f64).max(1.0).ln() - from) / (to - from) * PLOT_WIDTH
    }

    fn y(&self, ratio: f64) -> f64 {
        let (from, to) = self.ratio;
        TOP + PLOT_HEIGHT - (ratio - from) / (to - from) * PLOT_HEIGHT
    }
}

/// The least and the greatest, never the same.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (from, to) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    if to > from { (from, to) } else { (from - 0.5, from + 0.5) }
}

fn panel(out: &mut String, plan: &Plan, outcome: &Outcome) {
    let scale = Scale::new(outcome);
    let name = escaped(&outcome.trace);
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{name}</text>");
    for tick in 0..=TICKS {
        let (from, to) = scale.ratio;
        let ratio = from + (to - from) * f64::from(tick) / f64::from(TICKS);
        let (y, right) = (scale.y(ratio), LEFT + PLOT_WIDTH);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ratio:.3}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (size, (bytes, _)) in plan.sizes.iter().zip(&outcome.sizes) {
        let (x, y) = (scale.x(*bytes), TOP + PLOT_HEIGHT + 16.0);
        let size = escaped(&size.to_string());
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{size}</text>");
    }
    let (x, y) = (LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 34.0);
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">miss ratio against cache size</text>"
    );
    for (at, contestant) in plan.contestants.iter().enumerate() {
        line(out, outcome, &scale, at, &contestant.to_string());
    }
}

fn line(out: &mut String, outcome: &Outcome, scale: &Scale, at: usize, name: &str) {
    let colour = COLOURS[at % COLOURS.len()];
    let dashes = if at < COLOURS.len() { "" } else { " stroke-dasharray=\"5 3\"" };
    let mut sizes: Vec<&(u64, Vec<u64>)> = outcome.sizes.iter().collect();
    sizes.sort_by_key(|(bytes, _)| *bytes);
    let mut points = String::new();
    for (bytes, misses) in sizes {
        let ratio = misses[at] as f64 / outcome.requests as f64;
        let _ = write!(points, "{:.1},{:.1} ", scale.x(*bytes), scale.y(ratio));
    }
    let (x, y) = (LEFT + PLOT_WIDTH + 12.0, TOP + 10.0 + at as f64 * 17.0);
    let _ = writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes} \
         points=\"{}\"/>\n\
         <line x1=\"{x}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
         stroke-width=\"2\"{dashes}/><text x=\"{:.1}\" y=\"{y}\">{}</text>",
        points.trim_end(),
        y - 4.0,
        x + 22.0,
        y - 4.0,
        x + 28.0,
        escaped(name)
    );
}
