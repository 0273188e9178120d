//! The charts of an experiment's figures, each with a table of all values and intervals.
//!
//! ```text
//! rows -> points that were measured -> axes that vary -> grid: line by point -> chart, table
//! ```
//!
//! Where: in each section of the report.
//! Invariant: chart and table show the same estimates. An axis with a single measured point is in
//! the title. A chart has at most `KINDS` lines, unless there are more servers.
//! Source: none.

use super::entry::slug;
use super::glossary::meaning;
use crate::lab::estimate::{Estimate, estimate};
use crate::lab::experiment::{self, Experiment};
use crate::lab::figures::PREFIX;
use crate::lab::figures::{self, Unit};
use crate::lab::record::Record;
use crate::plot::axis::Spread;
use crate::report::chart::{Chart, Dot, Format, KINDS, Line, Ticks};
use crate::report::table::Table;
use crate::report::words::{self, UNKNOWN};
use crate::words::{size, without_suffix};

/// The mark in a table for values at which kvblaster was the limit.
const BOUND: &str = " ○";

/// The value of a server's figure at one point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// The estimate over the rounds.
    pub(crate) estimate: Estimate,
    /// True if kvblaster was the limit in most rounds.
    pub(crate) is_bound: bool,
}

/// One line of a chart: a server, or a server at one point of the second axis.
#[derive(Debug)]
struct Series {
    name: String,
    kind: usize,
    cells: Vec<Option<Cell>>,
}

#[derive(Debug)]
struct Grid {
    /// The end of the title, which names the axes that do not vary in this chart.
    fixed: String,
    /// The horizontal axis. `None` if each server has a single value.
    x: Option<experiment::Axis>,
    labels: Vec<String>,
    series: Vec<Series>,
}

/// Estimates a server's figure at a point. `None` if the figure was not measured there.
pub(crate) fn cell(record: &Record, server: &str, at: &[String], figure: &str) -> Option<Cell> {
    let values: Vec<f64> = record.values(server, at, figure).into_values().collect();
    let rows = || record.rows.iter().filter(|row| row.server == server && row.at == at);
    let bound = rows().filter(|row| row.bound.is_some()).count();
    let of = figures::named(figure)?;
    let is_bound = of.is_bound && 2 * bound > rows().count();
    Some(Cell { estimate: estimate(&values)?.within(of.unit), is_bound })
}

/// Returns the different labels of these points on one axis, in the order of the points.
pub(crate) fn labels(points: &[Vec<String>], axis: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for label in points.iter().filter_map(|at| at.get(axis)) {
        if !found.contains(label) {
            found.push(label.clone());
        }
    }
    found
}

/// Returns the labels as numbers. `None` if a label is no number, or two numbers are equal.
pub(crate) fn numbers(labels: &[String]) -> Option<Vec<f64>> {
    let number =
        |label: &String| without_suffix(label).parse().ok().filter(|one: &f64| one.is_finite());
    let found: Vec<f64> = labels.iter().map(number).collect::<Option<_>>()?;
    let is_twice = (1..found.len()).any(|nth| found[..nth].contains(&found[nth]));
    (!is_twice).then_some(found)
}

/// Draws all figures of an experiment that were measured, except the kinds of work.
pub(crate) fn charts(experiment: &Experiment, record: &Record) -> Vec<Chart> {
    let mut charts = Vec::new();
    for figure in experiment.figures.iter().filter(|one| !one.y.starts_with(PREFIX)) {
        let grids = grids(experiment, record, &figure.y);
        // All charts of a figure have the same vertical axis.
        let all =
            grids.iter().flat_map(|grid| &grid.series).flat_map(|one| one.cells.iter().flatten());
        let ends = |cell: &Cell| {
            let (low, high) =
                cell.estimate.interval.unwrap_or((cell.estimate.value, cell.estimate.value));
            [low, cell.estimate.value, high]
        };
        let scale: Vec<f64> = all.flat_map(ends).collect();
        for grid in &grids {
            let id = format!("{}-{}", slug(&experiment.name), charts.len() + 1);
            charts.extend(grid.chart(id, figure, &scale));
        }
    }
    charts
}

fn grids(experiment: &Experiment, record: &Record, figure: &str) -> Vec<Grid> {
    let points = record.points(experiment);
    let all: Vec<Vec<String>> =
        (0..experiment.axes.len()).map(|axis| labels(&points, axis)).collect();
    let varied: Vec<usize> = (0..all.len()).filter(|axis| all[*axis].len() > 1).collect();
    let named = |axis: usize, label: &String| format!(", {} = {label}", experiment.axes[axis].name);
    let fixed = all.iter().enumerate().filter(|(_, labels)| labels.len() == 1);
    let fixed: String = fixed.map(|(axis, labels)| named(axis, &labels[0])).collect();
    let measured = Measured { record, points: &points, figure };
    let servers = || experiment.servers.iter().map(|server| server.name.as_str()).enumerate();
    let Some(x) = varied.first().copied() else {
        let series = |(kind, name): (usize, &str)| {
            let cell = points.first().and_then(|at| cell(record, name, at, figure));
            Series { name: name.to_owned(), kind, cells: vec![cell] }
        };
        let series = servers().map(series).collect();
        return vec![Grid { fixed, x: None, labels: Vec::new(), series }];
    };
    let grid = |fixed: String, series: Vec<Series>| {
        let (x_axis, labels) = (experiment.axes.get(x).cloned(), all[x].clone());
        Grid { fixed, x: x_axis, labels, series }
    };
    let of_servers = |second: Option<(usize, &String)>| {
        let series = |(kind, server): (usize, &str)| {
            let cells = measured.cells(server, (x, &all[x]), second);
            Series { name: server.to_owned(), kind, cells }
        };
        servers().map(series).collect()
    };
    let Some(second) = varied.get(1).copied() else { return vec![grid(fixed, of_servers(None))] };
    let seconds = &all[second];
    if experiment.servers.len() * seconds.len() > KINDS {
        let each = seconds.iter().map(|label| {
            grid(fixed.clone() + &named(second, label), of_servers(Some((second, label))))
        });
        return each.collect();
    }
    let mut series = Vec::new();
    for (_, server) in servers() {
        for label in seconds {
            let cells = measured.cells(server, (x, &all[x]), Some((second, label)));
            let name = format!("{server}{}", named(second, label));
            series.push(Series { name, kind: series.len(), cells });
        }
    }
    vec![grid(fixed, series)]
}

/// A figure at the measured points of a record.
struct Measured<'a> {
    record: &'a Record,
    points: &'a [Vec<String>],
    figure: &'a str,
}

impl Measured<'_> {
    /// Returns a server's values along the axis `x`, at the label `second` of the other axis.
    fn cells(
        &self,
        server: &str,
        (x, labels): (usize, &[String]),
        second: Option<(usize, &String)>,
    ) -> Vec<Option<Cell>> {
        let is_second =
            |at: &Vec<String>| second.is_none_or(|(axis, one)| at.get(axis) == Some(one));
        let at = |label: &String| {
            self.points.iter().find(|at| at.get(x) == Some(label) && is_second(at))
        };
        labels.iter().map(|label| cell(self.record, server, at(label)?, self.figure)).collect()
    }
}

impl Grid {
    /// Draws the values. `None` if there are no values.
    fn chart(&self, id: String, figure: &experiment::Figure, scale: &[f64]) -> Option<Chart> {
        let of = figures::named(&figure.y)?;
        // A logarithmic axis cannot show 0, so the axis is linear if all values are 0.
        let is_log = figure.log && scale.iter().any(|value| *value > 0.0);
        let series: Vec<&Series> =
            self.series.iter().filter(|one| one.cells.iter().any(Option::is_some)).collect();
        if series.is_empty() {
            return None;
        }
        let x_name = self.x.as_ref().map_or("server", |axis| &axis.name);
        let has_place = |x: &f64| !self.is_log() || *x > 0.0;
        let xs = numbers(&self.labels).filter(|xs| self.x.is_some() && xs.iter().all(has_place));
        let x_ticks = match &xs {
            Some(xs) => Ticks::At(xs.iter().copied().zip(self.labels.iter().cloned()).collect()),
            None if self.x.is_none() => {
                Ticks::Categories(series.iter().map(|one| one.name.clone()).collect())
            }
            None => Ticks::Categories(self.labels.clone()),
        };
        let line = |(nth, one): (usize, &&Series)| {
            let dot = |(at, cell): (usize, &Option<Cell>)| {
                let cell = (*cell)?;
                let x = match &xs {
                    Some(xs) => *xs.get(at)?,
                    None if self.x.is_none() => nth as f64,
                    None => at as f64,
                };
                let Estimate { value: y, interval: range, .. } = cell.estimate;
                Some(Dot { x, y, is_hollow: cell.is_bound, range })
            };
            let mut points: Vec<Dot> = one.cells.iter().enumerate().filter_map(dot).collect();
            points.sort_by(|one, other| one.x.total_cmp(&other.x));
            Line { name: one.name.clone(), kind: one.kind, is_dashed: one.kind >= KINDS, points }
        };
        let lines = series.iter().enumerate().map(line).collect();
        let spread = |is_log| if is_log { Spread::Log } else { Spread::Linear };
        Some(Chart {
            id: id.into(),
            title: format!("{} by {x_name}{}", figure.y, self.fixed),
            caption: format!(
                "{} {}",
                meaning(&figure.y),
                caption(of.less_is_better, is_log, &series)
            ),
            x: (x_name.to_owned().into(), spread(self.is_log()), words::plain),
            y: (figure.y.clone().into(), spread(is_log), format_of(of.unit)),
            y_also: scale.to_vec(),
            x_ticks,
            lines,
            table: Some(self.table(&figure.y, of.unit, &series)),
        })
    }

    fn is_log(&self) -> bool {
        self.x.as_ref().is_some_and(|axis| axis.log)
    }

    fn table(&self, figure: &str, unit: Unit, series: &[&Series]) -> Table {
        let Some(x) = &self.x else {
            let mut table = Table::new(&["server", figure]);
            for one in series {
                table.row(&[one.name.clone(), told(one.cells.first().copied().flatten(), unit)]);
            }
            return table;
        };
        let head: Vec<&str> = std::iter::once(x.name.as_str())
            .chain(series.iter().map(|one| one.name.as_str()))
            .collect();
        let mut table = Table::new(&head);
        for (nth, label) in self.labels.iter().enumerate() {
            let values = series.iter().map(|one| told(one.cells.get(nth).copied().flatten(), unit));
            let cells: Vec<String> = std::iter::once(label.clone()).chain(values).collect();
            table.row(&cells);
        }
        table
    }
}

/// Explains the marks of a chart.
fn caption(less_is_better: bool, is_log: bool, series: &[&Series]) -> String {
    let cells = || series.iter().flat_map(|one| one.cells.iter().flatten());
    let mut caption = if less_is_better { "Less is better." } else { "More is better." }.to_owned();
    if cells().any(|cell| cell.estimate.interval.is_some()) {
        caption += " Bars are 95 % intervals.";
    }
    if cells().any(|cell| cell.is_bound) {
        caption +=
            " At hollow marks, and where the table has ○, kvblaster was the limit, not the server.";
    }
    if is_log && cells().any(|cell| cell.estimate.value <= 0.0) {
        caption += " A value of 0 has no mark, because the axis is logarithmic.";
    }
    caption
}

/// Formats the value and the interval.
pub(crate) fn told(cell: Option<Cell>, unit: Unit) -> String {
    let Some(Cell { estimate, is_bound }) = cell else { return UNKNOWN.to_owned() };
    let interval = estimate.interval.map_or_else(String::new, |(low, high)| {
        format!(" [{}, {}]", unit.format(low), unit.format(high))
    });
    let bound = if is_bound { BOUND } else { "" };
    format!("{}{interval}{bound}", unit.format(estimate.value))
}

/// Returns the function that formats values of a unit on an axis.
fn format_of(unit: Unit) -> Format {
    match unit {
        Unit::PerSecond => words::count,
        Unit::Ns => words::time,
        Unit::Bytes => size,
        Unit::Share => |share| format!("{} %", words::plain(100.0 * share)),
        Unit::Number => words::plain,
    }
}
