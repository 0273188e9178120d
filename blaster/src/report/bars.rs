//! Stacked bars, one per run: the shares of CPU time by use.
//!
//! Where: in one figure of the page.
//! Invariant: the parts of a bar are drawn to scale, and each part's name and share are also text.
//! Source: Pavlik's thesis, section 3.1.2.

use super::chart::Figure;
use super::table::Table;
use super::words::{escaped, number, shortened};
use std::fmt::Write;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The run's name.
    pub name: String,
    /// The name and the share, from 0 to 1, of each part of the bar.
    pub parts: Vec<(&'static str, f64)>,
}

const WIDTH: f64 = 420.0;
/// Height of a bar with its name above it.
const ROW: f64 = 44.0;
const BAR: f64 = 20.0;

/// An HTML `figure`, or an empty text without bars.
#[must_use]
pub fn html(id: &str, title: &str, caption: &str, bars: &[Bar]) -> String {
    let Some(first) = bars.first() else { return String::new() };
    let mut drawing = String::new();
    for (nth, bar) in bars.iter().enumerate() {
        let top = ROW * nth as f64;
        let name = escaped(&shortened(&bar.name, 50));
        let _ = writeln!(drawing, "<text x=\"0\" y=\"{:.1}\">{name}</text>", top + 14.0);
        let mut left = 0.0;
        for (name, share) in &bar.parts {
            let width = share.clamp(0.0, 1.0) * WIDTH;
            let _ = writeln!(
                drawing,
                "<rect class=\"part {name}\" x=\"{left:.2}\" y=\"{:.1}\" width=\"{width:.2}\" \
                 height=\"{BAR}\"><title>{}: {name} {:.1} %</title></rect>",
                top + 20.0,
                escaped(&bar.name),
                100.0 * share
            );
            left += width;
        }
    }
    let head: Vec<&str> =
        std::iter::once("run").chain(first.parts.iter().map(|(name, _)| *name)).collect();
    let mut table = Table::new(&head);
    for bar in bars {
        let shares = bar.parts.iter().map(|(_, share)| number(Some(100.0 * share), 1));
        let cells: Vec<String> = std::iter::once(bar.name.clone()).chain(shares).collect();
        table.row(&cells);
    }
    let sample = |name| format!("<rect class=\"part {name}\" width=\"34\" height=\"12\"/>");
    let legend = first.parts.iter().map(|(name, _)| (sample(name), (*name).to_owned())).collect();
    let size = (WIDTH, ROW * bars.len() as f64);
    Figure { id, title, caption, size, drawing, legend, table: ("Figures, in %", table) }.html()
}
