//! Ticks of a chart's horizontal axis, and the places of the ticks' labels.
//!
//! Where: below each chart; `chart` draws the labels that `labels` places.
//! Invariant: labels do not overlap. A number has no label if there is no room for it; a category
//! always has a label, in one of `ROWS_MAX` rows, and a long name is shown without its middle.
//! Source: none.

use super::{Format, LEFT, LETTER, RIGHT, WIDTH, across};
use crate::plot::axis::{Axis, Spread};
use crate::report::words::elided;

/// Maximum number of rows of labels below a chart.
const ROWS_MAX: usize = 3;
/// Least length of a shortened name in characters.
const CHARS_MIN: usize = 4;

/// Ticks of the horizontal axis.
#[derive(Clone, Debug)]
pub(crate) enum Ticks {
    /// Ticks at round figures.
    Round,
    /// Ticks at these figures, with labels.
    At(Vec<(f64, String)>),
    /// Names in place of figures. The first name is at 0, the second at 1.
    Categories(Vec<String>),
}

/// The places of grid lines and labels, in SVG units.
pub(super) struct Labels {
    pub(super) lines: Vec<f64>,
    /// The middle, the row and the text of each label.
    pub(super) texts: Vec<(f64, usize, String)>,
    /// The number of rows.
    pub(super) rows: usize,
}

impl Ticks {
    /// Returns the label of a figure: its tick's label, or the formatted figure if it has no tick.
    pub(crate) fn word(&self, figure: f64, format: Format) -> String {
        let found = match self {
            Ticks::Round => None,
            Ticks::At(ticks) => ticks.iter().find(|(at, _)| *at == figure).map(|(_, word)| word),
            Ticks::Categories(names) => {
                let found = (0..).zip(names).find(|(at, _)| f64::from(*at) == figure);
                found.map(|(_, name): (u32, _)| name)
            }
        };
        found.map_or_else(|| format(figure), Clone::clone)
    }

    /// Categories have equal distances; other ticks are spread as the argument `spread` says.
    pub(super) fn spread(&self, spread: Spread) -> Spread {
        if matches!(self, Ticks::Categories(_)) { Spread::Within } else { spread }
    }

    /// Figures that the axis must contain, in addition to the figures of the points.
    pub(super) fn edges(&self) -> impl Iterator<Item = f64> {
        let edges = match self {
            Ticks::Categories(names) => vec![-0.5, names.len() as f64 - 0.5],
            _ => Vec::new(),
        };
        edges.into_iter()
    }

    pub(super) fn labels(&self, x: &Axis, format: Format) -> Labels {
        match self {
            Ticks::Round => numbers(x, x.ticks().into_iter().map(|tick| (tick, format(tick)))),
            Ticks::At(ticks) => numbers(x, ticks.iter().cloned()),
            Ticks::Categories(names) => categories(x, names),
        }
    }
}

/// Places labels from the right to the left, so that the last tick has a label.
fn numbers(x: &Axis, ticks: impl Iterator<Item = (f64, String)>) -> Labels {
    let mut ticks: Vec<(f64, String)> =
        ticks.filter_map(|(tick, label)| Some((across(x, tick)?, label))).collect();
    ticks.sort_by(|one, other| other.0.total_cmp(&one.0));
    let lines = ticks.iter().map(|(at, _)| *at).collect();
    let (mut texts, mut free) = (Vec::new(), f64::INFINITY);
    for (at, label) in ticks {
        let half = label.chars().count() as f64 * LETTER / 2.0;
        let at = at.min(WIDTH - half);
        if at + half <= free {
            free = at - half - 2.0 * LETTER;
            texts.push((at, 0, label));
        }
    }
    Labels { lines, texts, rows: 1 }
}

/// Places neighbouring labels in different rows if they do not fit in one row.
fn categories(x: &Axis, names: &[String]) -> Labels {
    let apart = (WIDTH - RIGHT - LEFT) / names.len().max(1) as f64;
    // The last label is moved to the left if its right half is wider than the margin.
    let space = |rows: usize| {
        let moved = ((rows as f64 - 1.0) * apart / 2.0 - RIGHT).max(0.0);
        ((rows as f64 * apart - moved) / LETTER - 1.0).max(0.0)
    };
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let fits = |rows: &usize| space(*rows) >= widest as f64;
    let rows = (1..ROWS_MAX).find(fits).unwrap_or(ROWS_MAX).min(names.len().max(1));
    let chars = (CHARS_MIN..=widest).take_while(|chars| *chars as f64 <= space(rows)).last();
    let mut labels = Labels { lines: Vec::new(), texts: Vec::new(), rows };
    for (nth, name) in names.iter().enumerate() {
        let Some(at) = across(x, nth as f64) else { continue };
        let label = elided(name, chars.unwrap_or(CHARS_MIN));
        let half = label.chars().count() as f64 * LETTER / 2.0;
        labels.lines.push(at);
        labels.texts.push((at.min(WIDTH - half).max(half), nth % rows, label));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::words::count;

    fn categories_of(names: &[&str]) -> (Ticks, Labels) {
        let ticks = Ticks::Categories(names.iter().map(|name| (*name).to_owned()).collect());
        let x = Axis::new(ticks.spread(Spread::Log), ticks.edges());
        let labels = ticks.labels(&x, count);
        (ticks, labels)
    }

    fn overlap(labels: &Labels) -> bool {
        let ends = |(at, row, text): &(f64, usize, String)| {
            let half = text.chars().count() as f64 * LETTER / 2.0;
            (*row, at - half, at + half)
        };
        let all: Vec<(usize, f64, f64)> = labels.texts.iter().map(ends).collect();
        let meet = |a: &(usize, f64, f64), b: &(usize, f64, f64)| {
            a.0 == b.0 && a.1 < b.2 - 0.01 && b.1 < a.2 - 0.01
        };
        let outside = all.iter().any(|one| one.1 < -0.01 || one.2 > WIDTH + 0.01);
        outside || all.iter().enumerate().any(|(nth, one)| all[..nth].iter().any(|b| meet(b, one)))
    }

    #[test]
    fn each_category_has_a_label_that_overlaps_no_other() {
        let long = "hypostyle, nbq-clock and more";
        for count in 1..=16 {
            for name in ["a", "memcached", long] {
                let (_, labels) = categories_of(&vec![name; count]);
                assert_eq!(labels.texts.len(), count);
                assert!(!overlap(&labels), "{count} x {name}: {:?}", labels.texts);
            }
        }
        assert_eq!(categories_of(&["GET", "SET"]).1.rows, 1);
        assert_eq!(categories_of(&["hypostyle", "memcached", "redis", "reflect"]).1.rows, 2);
    }

    #[test]
    fn the_last_number_has_a_label_and_a_near_one_has_none() {
        let ticks = [1.0, 2.0, 900.0, 1000.0].map(|one| (one, format!("{one}"))).to_vec();
        let x = Axis::new(Spread::Linear, ticks.iter().map(|(at, _)| *at));
        let labels = Ticks::At(ticks.clone()).labels(&x, count);
        let texts: Vec<&str> = labels.texts.iter().map(|(_, _, text)| text.as_str()).collect();
        assert_eq!((texts, labels.lines.len()), (vec!["1000", "2"], 4));
        assert!(!overlap(&labels));
    }

    #[test]
    fn a_figure_is_told_by_its_tick() {
        let (ticks, _) = categories_of(&["GET", "SET"]);
        assert_eq!([0.0, 1.0, 7.0].map(|at| ticks.word(at, count)), ["GET", "SET", "7"]);
        let at = Ticks::At(vec![(64.0, "64 B".to_owned())]);
        assert_eq!([64.0, 65.0].map(|one| at.word(one, count)), ["64 B", "65"]);
        assert_eq!(Ticks::Round.word(5e3, count), "5k");
    }
}
