//! A plot of miss ratio against size, drawn in characters, below each trace's table.
//!
//! Where: in the report, for users without a browser. `plot` draws the same curves as SVG.
//! Invariant: no line is longer than `COLUMNS`. A curve passes within half a row of each of its
//! points. Where several curves cross the same cells, their letters alternate.

use crate::plot::axis::{Axis, Spread};
use crate::plot::text::{COLUMNS, Frame, Plot, span};
use simulate::jobs::{Outcome, Plan};
use std::fmt::Write;

/// Number of columns to the left of the frame, for a ratio and a space.
const LEFT: usize = 7;
/// Number of columns inside the frame.
const WIDTH: usize = 68;
const HEIGHT: usize = 21;
/// Number of rows between two labels of ratios.
const TICK_ROWS: usize = 5;
const _: () = assert!(LEFT + WIDTH + 2 <= COLUMNS);

/// The letters of the curves. The baseline has `a`. Curves after the 26th share `z`.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// Appends a plot of all policies, unless there is only one size or all ratios are equal.
pub(crate) fn draw(out: &mut String, plan: &Plan, outcome: &Outcome) {
    let Some(plot) = plot(outcome) else { return };
    let curves: Vec<Curve> = (0..plan.policies.len()).map(|at| curve(outcome, &plot, at)).collect();
    let mut names: Vec<(f64, String)> = plan
        .sizes
        .iter()
        .zip(&outcome.sizes)
        .map(|(size, one)| (bytes(one), size.to_string()))
        .collect();
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let told = (TICK_ROWS, |ratio| format!("{ratio:.4}"));
    plot.draw(out, told, |row, column| cell(&curves, row, column), &names);
    legend(out, plan);
}

/// Makes the frame and the axes. `None` if there is only one size or if all ratios are equal.
fn plot(outcome: &Outcome) -> Option<Plot> {
    let sizes = || outcome.sizes.iter().map(bytes);
    let misses = || outcome.sizes.iter().flat_map(|(_, misses)| misses);
    let ratios = || misses().map(|misses| ratio(outcome, *misses));
    let is_wide = |(least, most)| most > least;
    let is_drawn = is_wide(span(sizes())) && is_wide(span(ratios()));
    let frame = Frame { left: LEFT, width: WIDTH, height: HEIGHT };
    let (x, y) = (Axis::new(Spread::Log, sizes()), Axis::new(Spread::Within, ratios()));
    is_drawn.then_some(Plot { frame, x, y })
}

fn bytes((bytes, _): &(u64, Vec<u64>)) -> f64 {
    (*bytes as f64).max(1.0)
}

fn ratio(outcome: &Outcome, misses: u64) -> f64 {
    misses as f64 / (outcome.requests as f64).max(1.0)
}

/// A curve's row in each column. `None` in columns that the curve does not cross.
type Curve = [Option<usize>; WIDTH];

/// Draws the curve of policy `at` as straight lines between its points.
fn curve(outcome: &Outcome, plot: &Plot, at: usize) -> Curve {
    let mut points: Vec<(usize, f64)> = outcome
        .sizes
        .iter()
        .filter_map(|size| Some((plot.column(bytes(size))?, ratio(outcome, size.1[at]))))
        .collect();
    points.sort_by_key(|(column, _)| *column);
    let mut rows = [None; WIDTH];
    for pair in points.windows(2) {
        let ((from, first), (to, last)) = (pair[0], pair[1]);
        for (column, row) in rows.iter_mut().enumerate().take(to + 1).skip(from) {
            let part = (column - from) as f64 / (to - from).max(1) as f64;
            *row = plot.row(first + (last - first) * part);
        }
    }
    rows
}

/// Returns the letter of a curve that crosses the cell. If several curves cross the cell, their
/// letters alternate from column to column.
fn cell(curves: &[Curve], row: usize, column: usize) -> char {
    let passing: Vec<usize> =
        (0..curves.len()).filter(|at| curves[*at][column] == Some(row)).collect();
    let turn = passing.get(column % passing.len().max(1));
    turn.map_or(' ', |at| letter(*at))
}

fn letter(at: usize) -> char {
    char::from(LETTERS[at.min(LETTERS.len() - 1)])
}

fn legend(out: &mut String, plan: &Plan) {
    let mut line = format!("{:LEFT$}", "");
    for (at, contestant) in plan.policies.iter().enumerate() {
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
    use simulate::contestant::SimulatedPolicy;

    fn drawn(sizes: &[&str], bytes: &[u64], misses: &[&[u64]]) -> String {
        let mut plan = plan().jobs_plan();
        plan.sizes = sizes.iter().map(|size| size.parse().unwrap()).collect();
        plan.policies = SimulatedPolicy::all();
        plan.policies.truncate(misses[0].len());
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
        // Both curves start in the same cells, where their letters alternate, and then diverge.
        assert_eq!(rows[1], format!("0.9000 |ab{}|", "a".repeat(WIDTH - 2)), "{text}");
        assert!(rows[HEIGHT].ends_with(" bb|"), "{text}");
        assert!(rows[HEIGHT].starts_with("0.1000 | "), "{text}");
        // `b` is once in every column except the first, which shows `a`, and once in the legend.
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
