//! The profile of an experiment: the kinds of the servers' work as stacked bars, and as a table.
//!
//! Where: after the charts of an experiment with figures whose names begin with `PREFIX`.
//! Invariant: each bar shows all of a server's work. The kinds with the greatest shares have their
//! own parts of the bar; all other kinds share one part. The table has all kinds.
//! Source: "Performance Analysis of Memcached", section 5.1.

use super::charts::{Cell, cell, told};
use super::entry::slug;
use crate::lab::experiment::Experiment;
use crate::lab::figures::PREFIX;
use crate::lab::figures::{self, Unit};
use crate::lab::record::Record;
use crate::report::bars::{Bar, Bars, Part};
use crate::report::chart::KINDS;
use crate::report::table::Table;

/// The CSS classes of a bar's parts.
const CLASSES: [&str; KINDS] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

/// Draws a bar for each server at each point. `None` if no kind of work was measured.
pub(crate) fn profile(experiment: &Experiment, record: &Record) -> Option<Bars> {
    let names = experiment.figures.iter().filter(|one| one.y.starts_with(PREFIX));
    let names: Vec<&'static str> =
        names.filter_map(|one| Some(figures::named(&one.y)?.name)).collect();
    let mut rows: Vec<(String, Vec<Option<Cell>>)> = Vec::new();
    for at in record.points(experiment) {
        let place = experiment.place(&at);
        for server in &experiment.servers {
            let cells: Vec<Option<Cell>> =
                names.iter().map(|figure| cell(record, &server.name, &at, figure)).collect();
            let separator = if place.is_empty() { "" } else { ", " };
            if cells.iter().any(Option::is_some) {
                rows.push((format!("{}{separator}{place}", server.name), cells));
            }
        }
    }
    let share = |cell: &Option<Cell>| cell.map_or(0.0, |cell| cell.estimate.value);
    let total = |nth: usize| rows.iter().map(|(_, cells)| share(&cells[nth])).sum::<f64>();
    let mut greatest: Vec<usize> = (0..names.len()).collect();
    greatest.sort_by(|one, other| total(*other).total_cmp(&total(*one)));
    greatest.truncate(KINDS - 1);
    greatest.sort_unstable();
    let kind = |nth: usize| names[nth].trim_start_matches(PREFIX);
    let bar = |(name, cells): &(String, Vec<Option<Cell>>)| {
        let own = greatest.iter().zip(CLASSES).map(|(nth, class)| Part {
            name: kind(*nth),
            class,
            share: share(&cells[*nth]),
        });
        let mut parts: Vec<Part> = own.collect();
        let rest = 1.0 - parts.iter().map(|part| part.share).sum::<f64>();
        parts.push(Part { name: "all other", class: CLASSES[KINDS - 1], share: rest.max(0.0) });
        Bar { name: name.clone(), parts }
    };
    let bars: Vec<Bar> = rows.iter().map(bar).collect();
    let head: Vec<&str> =
        std::iter::once("kind of work").chain(rows.iter().map(|(name, _)| name.as_str())).collect();
    let mut table = Table::new(&head);
    for nth in 0..names.len() {
        let cells = rows.iter().map(|(_, cells)| told(cells[nth], Unit::Share));
        let cells: Vec<String> = std::iter::once(kind(nth).to_owned()).chain(cells).collect();
        table.row(&cells);
    }
    let caption = "Shares of the servers' CPU time by kind of work, sampled by perf, without idle \
                   time and other programs. The table has all kinds of work, and the 95 % \
                   intervals.";
    (!bars.is_empty()).then(|| Bars {
        id: format!("{}-profile", slug(&experiment.name)).into(),
        title: "Kinds of work".to_owned(),
        caption: caption.to_owned(),
        bars,
        table: Some(table),
    })
}
