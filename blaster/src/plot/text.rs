//! Plots made of characters, for terminals: the frame, its labels and its marks.
//!
//! ```text
//!  1.00 ms |        b   |    the margin, the frame's left side, a row, the frame's right side
//! ```
//!
//! Where: printed below the tables of `simulate` and `capacity`, for users without a browser.
//! Invariant: no line is longer than `COLUMNS` if the labels on the left fit the margin.

use crate::plot::axis::Axis;
use std::fmt::Write;

/// Width in characters of the narrowest terminal on which plots fit.
pub(crate) const COLUMNS: usize = 80;

/// Maps a fraction between 0 and 1 to the nearest of the positions 0 to `places - 1`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and a few dozen"
)]
pub(crate) fn place(part: f64, places: usize) -> usize {
    (part.clamp(0.0, 1.0) * places.saturating_sub(1) as f64).round() as usize
}

/// Returns the least and the greatest value.
pub(crate) fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

/// The frame of a plot, with a margin for labels on its left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Number of columns of the margin.
    pub left: usize,
    /// Number of columns inside the frame.
    pub width: usize,
    /// Number of rows inside the frame.
    pub height: usize,
}

impl Frame {
    /// Appends the frame to `out`. `beside(row)` returns the label of a row, and `cell(row,
    /// column)` the character in a cell.
    pub(crate) fn draw(
        &self,
        out: &mut String,
        beside: impl Fn(usize) -> Option<String>,
        cell: impl Fn(usize, usize) -> char,
    ) {
        let (left, edge) = (self.left, "-".repeat(self.width));
        let _ = writeln!(out, "{:left$}+{edge}+", "");
        for row in 0..self.height {
            match beside(row) {
                Some(label) => {
                    let _ = write!(out, "{label:>w$} ", w = left.saturating_sub(1));
                }
                None => {
                    let _ = write!(out, "{:left$}", "");
                }
            }
            let cells: String = (0..self.width).map(|column| cell(row, column)).collect();
            let _ = writeln!(out, "|{cells}|");
        }
        let _ = writeln!(out, "{:left$}+{edge}+", "");
    }

    /// Appends a line with names below their columns. `names` must be sorted by column. If there is
    /// no room for a name, omits the name.
    pub(crate) fn below(&self, out: &mut String, names: &[(usize, String)]) {
        let mut line = String::new();
        for (column, name) in names {
            let width = name.chars().count();
            let middle = column.saturating_sub(width / 2);
            let from = middle.min(self.width.saturating_sub(width));
            let end = line.chars().count();
            if (end == 0 || from > end) && width <= self.width {
                let _ = write!(line, "{:gap$}{name}", "", gap = from - end);
            }
        }
        let _ = writeln!(out, "{:w$} {line}", "", w = self.left);
    }
}

/// A frame with axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot {
    /// The plot's frame.
    pub frame: Frame,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
}

impl Plot {
    /// Returns the column of a figure.
    pub(crate) fn column(&self, x: f64) -> Option<usize> {
        Some(place(self.x.place(x)?, self.frame.width))
    }

    /// Returns the row of a figure. Row 0 is at the top.
    pub(crate) fn row(&self, y: f64) -> Option<usize> {
        Some(place(1.0 - self.y.place(y)?, self.frame.height))
    }

    /// Appends the plot to `out`. One row in `every` has a label, which `words` formats: the figure
    /// at the row's middle. Each of `names` is written below the column of its figure.
    pub(crate) fn draw(
        &self,
        out: &mut String,
        (every, words): (usize, impl Fn(f64) -> String),
        cell: impl Fn(usize, usize) -> char,
        names: &[(f64, String)],
    ) {
        let last = self.frame.height.saturating_sub(1).max(1) as f64;
        let middle = |row: usize| self.y.at(1.0 - row as f64 / last);
        self.frame.draw(out, |row| row.is_multiple_of(every).then(|| words(middle(row))), cell);
        let names = names.iter().filter_map(|(x, name)| Some((self.column(*x)?, name.clone())));
        self.frame.below(out, &names.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_holds_what_it_is_given() {
        let frame = Frame { left: 4, width: 8, height: 2 };
        let mut out = String::new();
        let beside = |row: usize| (row == 0).then(|| "up".to_owned());
        frame.draw(&mut out, beside, |row, column| if column == row { 'x' } else { ' ' });
        frame.below(&mut out, &[(0, "a".into()), (1, "left out".into()), (7, "bcd".into())]);
        let expected =
            "    +--------+\n up |x       |\n    | x      |\n    +--------+\n     a    bcd\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn parts_of_the_way_have_their_places() {
        assert_eq!(
            [-1.0, 0.0, 0.5, 1.0, 2.0, f64::NAN].map(|part| place(part, 5)),
            [0, 0, 2, 4, 4, 0]
        );
        assert_eq!(place(1.0, 0), 0);
        assert_eq!(span([3.0, 1.0, 2.0].into_iter()), (1.0, 3.0));
    }
}
