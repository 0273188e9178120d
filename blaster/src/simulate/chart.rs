//! Miss ratio against size, drawn in letters below each trace's table.
//!
//! Where: in the report, for who has a terminal and no browser; `plot` draws the same as SVG.
//! Invariant: no line is longer than `COLUMNS`, whatever the names and figures; a curve passes
//! within half a row of each of its points. Where several pass, their letters take turns.

use crate::letters::{COLUMNS, Frame, place, span};
use simulate::jobs::{Outcome, Plan};
use std::fmt::Write;

/// Before the frame: a ratio and a space.
const LEFT: usize = 7;
/// Columns and rows between the frame's sides.
const WIDTH: usize = 68;
const HEIGHT: usize = 21;
/// Rows between two ratios that are told.
const TICK_ROWS: usize = 5;
const _: () = assert!(LEFT + WIDTH + 2 <= COLUMNS);

/// A curve's letter, the baseline's first. More curves share the last one.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// Appends a plot of all contestants, where there are sizes enough for one.
pub fn draw(out: &mut String, plan: &Plan, outcome: &Outcome) {
    let Some(scale) = Scale::of(outcome) else { return };
    let curves: Vec<Curve> =
        (0..plan.contestants.len()).map(|at| curve(outcome, &scale, at)).collect();
    let frame = Frame { left: LEFT, width: WIDTH, height: HEIGHT };
    let told =
        |row: usize| row.is_multiple_of(TICK_ROWS).then(|| format!("{:.4}", scale.ratio_at(row)));
    frame.draw(out, told, |row, column| cell(&curves, row, column));
    frame.below(out, &sizes(plan, outcome, &scale));
    legend(out, plan);
}

/// Where figures lie in the frame.
struct Scale {
    log_bytes: (f64, f64),
    ratio: (f64, f64),
    requests: f64,
}

impl Scale {
    /// `None`: a single size, or no misses to tell apart.
    fn of(outcome: &Outcome) -> Option<Scale> {
        let requests = (outcome.requests as f64).max(1.0);
        let bytes = outcome.sizes.iter().map(|(bytes, _)| (*bytes as f64).max(1.0).ln());
        let ratios = outcome.sizes.iter().flat_map(|(_, misses)| misses);
        let ratios = ratios.map(|misses| *misses as f64 / requests);
        let (log_bytes, ratio) = (span(bytes), span(ratios));
        let told_apart = log_bytes.1 > log_bytes.0 && ratio.1 > ratio.0;
        told_apart.then_some(Scale { log_bytes, ratio, requests })
    }

    /// The column of a size.
    fn column(&self, bytes: u64) -> usize {
        let (from, to) = self.log_bytes;
        place(((bytes as f64).max(1.0).ln() - from) / (to - from), WIDTH)
    }

    /// The row of a ratio, the highest first.
    fn row(&self, ratio: f64) -> usize {
        let (from, to) = self.ratio;
        place((to - ratio) / (to - from), HEIGHT)
    }

    /// The ratio in the middle of a row.
    fn ratio_at(&self, row: usize) -> f64 {
        let (from, to) = self.ratio;
        to - (to - from) * row as f64 / (HEIGHT - 1) as f64
    }
}

/// A contestant's sizes and ratios, by size.
fn points(outcome: &Outcome, scale: &Scale, at: usize) -> Vec<(usize, f64)> {
    let mut points: Vec<(u64, u64)> =
        outcome.sizes.iter().map(|(bytes, misses)| (*bytes, misses[at])).collect();
    points.sort_unstable();
    let shown = |(bytes, misses)| (scale.column(bytes), misses as f64 / scale.requests);
    points.into_iter().map(shown).collect()
}

/// The row of a curve in each column.
type Curve = [usize; WIDTH];

/// One curve, straight from point to point; sizes span all columns.
fn curve(outcome: &Outcome, scale: &Scale, at: usize) -> Curve {
    let mut rows = [0; WIDTH];
    for pair in points(outcome, scale, at).windows(2) {
        let ((from, first), (to, last)) = (pair[0], pair[1]);
        for (column, row) in rows.iter_mut().enumerate().take(to + 1).skip(from) {
            let part = (column - from) as f64 / (to - from).max(1) as f64;
            *row = scale.row(first + (last - first) * part);
        }
    }
    rows
}

/// What stands in a cell: of the curves that pass there, the one whose turn it is.
fn cell(curves: &[Curve], row: usize, column: usize) -> char {
    let passing: Vec<usize> = (0..curves.len()).filter(|at| curves[*at][column] == row).collect();
    let turn = passing.get(column % passing.len().max(1));
    turn.map_or(' ', |at| letter(*at))
}

fn letter(at: usize) -> char {
    char::from(LETTERS[at.min(LETTERS.len() - 1)])
}

/// The sizes with their columns, the least first.
fn sizes(plan: &Plan, outcome: &Outcome, scale: &Scale) -> Vec<(usize, String)> {
    let mut names: Vec<(u64, String)> = plan
        .sizes
        .iter()
        .zip(&outcome.sizes)
        .map(|(size, (b, _))| (*b, size.to_string()))
        .collect();
    names.sort();
    names.into_iter().map(|(bytes, name)| (scale.column(bytes), name)).collect()
}

/// Whose letter is whose.
fn legend(out: &mut String, plan: &Plan) {
    let mut line = format!("{:LEFT$}", "");
    for (at, contestant) in plan.contestants.iter().enumerate() {
        let entry = format!(" {} {contestant} ", letter(at));
        if line.len() + entry.len() > COLUMNS {
            let _ = writeln!(out, "{}", line.trim_end());
            line = format!("{:LEFT$}", "");
        }
        line.push_str(&entry);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::flags::plan;
    use simulate::contestant::Contestant;

    fn drawn(sizes: &[&str], bytes: &[u64], misses: &[&[u64]]) -> String {
        let mut plan = plan().asked();
        plan.sizes = sizes.iter().map(|size| size.parse().unwrap()).collect();
        plan.contestants = Contestant::all();
        plan.contestants.truncate(misses[0].len());
        let sizes = bytes.iter().zip(misses).map(|(bytes, misses)| (*bytes, misses.to_vec()));
        let outcome =
            Outcome { trace: "t".into(), requests: 1000, keys: 9, sizes: sizes.collect() };
        let mut out = String::new();
        draw(&mut out, &plan, &outcome);
        out
    }

    #[test]
    fn curves_go_from_their_first_to_their_last_point() {
        let text = drawn(&["1k", "1m"], &[1 << 10, 1 << 20], &[&[900, 900], &[900, 100]]);
        let rows: Vec<&str> = text.lines().collect();
        // Where both are, they take turns; from there on one is alone.
        assert_eq!(rows[1], format!("0.9000 |ab{}|", "a".repeat(WIDTH - 2)), "{text}");
        assert!(rows[HEIGHT].ends_with(" bb|"), "{text}");
        assert!(rows[HEIGHT].starts_with("0.1000 | "), "{text}");
        // It leaves no column out but the first, where it is not its turn; and it is explained.
        assert_eq!(text.matches('b').count(), WIDTH - 1 + 1, "{text}");
        assert_eq!(rows[HEIGHT + 2], format!("{:8}1k{:64}1m", "", ""));
        assert_eq!(rows[HEIGHT + 3].trim(), "a lru  b memcached");
    }

    #[test]
    fn no_line_is_too_long_and_no_name_runs_into_another() {
        let many: Vec<String> = (1..=40).map(|size| format!("{size}.000000000000%")).collect();
        let sizes: Vec<&str> = many.iter().map(String::as_str).collect();
        let bytes: Vec<u64> = (1..=40).map(|size| size * 1000).collect();
        let misses: Vec<Vec<u64>> =
            (1..=40).map(|size| (0..11).map(|who| 1000 - size * who).collect()).collect();
        let misses: Vec<&[u64]> = misses.iter().map(Vec::as_slice).collect();
        let text = drawn(&sizes, &bytes, &misses);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        let names = text.lines().nth(HEIGHT + 2).unwrap();
        assert!(names.split_whitespace().all(|name| sizes.contains(&name)), "{text}");
    }

    #[test]
    fn what_is_no_curve_is_not_drawn() {
        assert_eq!(drawn(&["1k"], &[1 << 10], &[&[900, 800]]), "");
        assert_eq!(drawn(&["1k", "2k"], &[1 << 10, 2 << 10], &[&[9, 9], &[9, 9]]), "");
    }
}
