//! Stacked bars, one per run or server, that show how CPU time was used.
//!
//! Where: drawn in the CPU figure of the page, and in the profiles of `lab`.
//! Invariant: the parts of a bar are drawn to scale, and each part's name and share are also text.
//! Source: Pavlik's thesis, section 3.1.2.

use super::chart::{Figure, LETTER};
use super::table::Table;
use super::words::{escaped, number, shortened};
use std::borrow::Cow;
use std::fmt::Write;

/// Bars that have the same parts.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// The HTML id.
    pub id: Cow<'static, str>,
    /// The heading above the bars.
    pub title: String,
    /// The explanation of the bars.
    pub caption: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
    /// The table of the shares. If it is `None`, the page shows a table with a row for each bar.
    pub table: Option<Table>,
}

/// A bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// The name of the run or server.
    pub name: String,
    /// The parts, from left to right.
    pub parts: Vec<Part>,
}

/// A part of a bar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The part's name.
    pub name: &'static str,
    /// The part's class in the style sheet.
    pub class: &'static str,
    /// The share of the whole bar, from 0 to 1.
    pub share: f64,
}

const WIDTH: f64 = 420.0;
/// Height of a bar with its name above it.
const ROW: f64 = 44.0;
const BAR: f64 = 20.0;
/// Maximum number of characters of a name above a bar; a longer name is cut.
const NAME_CHARS_MAX: usize = 46;

impl Bars {
    /// Returns an HTML `figure`, or an empty text if there are no bars.
    pub(crate) fn html(&self) -> String {
        let Some(first) = self.bars.first() else { return String::new() };
        let mut drawing = String::new();
        for (nth, bar) in self.bars.iter().enumerate() {
            bar.draw(&mut drawing, ROW * nth as f64);
        }
        let legend = first.parts.iter().map(|Part { name, class, .. }| {
            let sample = format!("<rect class=\"part {class}\" width=\"34\" height=\"12\"/>");
            (sample, (*name).to_owned())
        });
        Figure {
            id: &self.id,
            title: &self.title,
            caption: &self.caption,
            size: (WIDTH, ROW * self.bars.len() as f64),
            drawing,
            legend: legend.collect(),
            table: match &self.table {
                Some(table) => ("Figures", table.clone()),
                None => ("Figures, in %", self.listed(first)),
            },
        }
        .html()
    }

    /// A table with a row for each bar.
    fn listed(&self, first: &Bar) -> Table {
        let head: Vec<&str> =
            std::iter::once("run").chain(first.parts.iter().map(|part| part.name)).collect();
        let mut table = Table::new(&head);
        for bar in &self.bars {
            let shares = bar.parts.iter().map(|part| number(Some(100.0 * part.share), 1));
            let cells: Vec<String> = std::iter::once(bar.name.clone()).chain(shares).collect();
            table.row(&cells);
        }
        table
    }
}

impl Bar {
    fn draw(&self, out: &mut String, top: f64) {
        let name = escaped(&shortened(&self.name, NAME_CHARS_MAX));
        let _ = writeln!(out, "<text x=\"0\" y=\"{:.1}\">{name}</text>", top + 14.0);
        let mut left = 0.0;
        for Part { name, class, share } in &self.parts {
            let width = (share.clamp(0.0, 1.0) * WIDTH).min(WIDTH - left);
            let percent = 100.0 * share;
            let _ = writeln!(
                out,
                "<rect class=\"part {class}\" x=\"{left:.2}\" y=\"{:.1}\" width=\"{width:.2}\" \
                 height=\"{BAR}\"><title>{}: {name} {percent:.1} %</title></rect>",
                top + 20.0,
                escaped(&self.name)
            );
            // Draws the longest label that fits: name and share, only the share, or no label.
            let labels = [format!("{name} {percent:.0} %"), format!("{percent:.0} %")];
            let fits = |label: &&String| (label.chars().count() + 1) as f64 * LETTER <= width;
            if let Some(label) = labels.iter().find(fits) {
                let _ = writeln!(
                    out,
                    "<text class=\"within\" x=\"{:.2}\" y=\"{:.1}\" \
                     text-anchor=\"middle\">{label}</text>",
                    left + width / 2.0,
                    top + 34.5
                );
            }
            left += width;
        }
    }
}
