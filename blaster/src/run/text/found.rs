//! The result of a capacity search as text: a table, a plot and sentences.
//!
//! Where: printed by `main` when a search is over.
//! Invariant: trials at nearly the same rate share a row, which shows the medians of their figures.
//! A capacity is shown with its confidence interval, and with the reason why it is not higher.
//! Source: the KV-Cache paper, section 6.1. The curve shows the knee: the rate from which times
//! rise sharply.

use super::Plan;
use crate::measure::interval::ACHIEVED_SHARE_MIN;
use crate::measure::objective::share;
use crate::plot::axis::{Axis, Spread};
use crate::plot::text::{Frame, Plot, span};
use crate::result::RunResult;
use crate::search::bracket::Limit;
use crate::search::curve::{Point, Row, median, rows};
use crate::search::{Capacity, SearchResult};
use crate::words::{grouped, percent, sentence, time, time_or_dash, whole, wrapped};
use std::fmt::Write;

const ROWS_MAX: usize = 24;
/// Share of failed requests above which the report gives failures as the cause of a missed
/// objective.
const FAILED_MAX: f64 = 0.001;
/// The mark of a row at whose rate kvblaster itself could not keep up.
const MARK: &str = " *";
const FRAME: Frame = Frame { left: 9, width: 68, height: 19 };
/// Number of rows of the plot between two labels of the vertical axis, which shows times.
const TICK_ROWS: usize = 6;
/// Number of labels of the horizontal axis, which shows rates, without the label at 0.
const RATES: u32 = 4;
/// A curve of the plot: a character, a name, and the function that returns a trial's time.
type Curve = (char, &'static str, fn(&Point) -> Option<f64>);
/// The curves, in the order in which they are drawn: a later curve covers earlier curves.
const CURVES: [Curve; 3] = [
    ('#', "p99.9", |point| point.p99_9_ns.map(|ns| ns as f64)),
    ('9', "p99", |point| point.p99_ns.map(|ns| ns as f64)),
    ('m', "mean", |point| point.mean_ns),
];

/// Returns the whole report.
pub fn text(plan: &Plan, done: &RunResult, found: &SearchResult) -> String {
    let mut out = String::new();
    super::head(&mut out, plan, &done.manifest);
    table(&mut out, found);
    plot(&mut out, plan, found);
    super::agents(&mut out, &done.agents);
    for capacity in &found.capacities {
        out.push_str(&capacity_text(found, capacity));
    }
    if !found.is_complete {
        out.push_str("The search ended before it was complete.\n");
    }
    out.extend(done.verdict.remarks.iter().map(super::remarked));
    let remark = found.remark().filter(|remark| !done.verdict.has(&remark.rule));
    out.extend(remark.map(|remark| super::remarked(&remark)));
    super::left(&mut out, done);
    out
}

fn table(out: &mut String, found: &SearchResult) {
    let _ = writeln!(
        out,
        "{:>9}{:>7}{:>11}{:>9}{:>9}{:>9}{:>9}{:>7}  met",
        "due/s", "trials", "answered/s", "mean", "p99", "p99.9", "max", "late %"
    );
    let mut is_marked = false;
    for row in rows(&found.curve, ROWS_MAX) {
        let held = holds(found, &row);
        is_marked |= held.ends_with(MARK);
        let shown = |of: fn(&Point) -> Option<f64>| time_or_dash(median(&row, of));
        let _ = writeln!(
            out,
            "{:>9.0}{:>7}{:>11.0}{:>9}{:>9}{:>9}{:>9}{:>7.2}  {}",
            median(&row, |point| Some(point.asked_per_s)).unwrap_or(0.0),
            row.len(),
            median(&row, |point| Some(point.achieved_per_s)).unwrap_or(0.0),
            shown(CURVES[2].2),
            shown(CURVES[1].2),
            shown(CURVES[0].2),
            shown(|point| point.max_ns.map(|ns| ns as f64)),
            100.0 * median(&row, |point| Some(point.late_ratio)).unwrap_or(0.0),
            held
        );
    }
    if is_marked {
        let meant = "kvblaster was behind schedule, which may be why an objective failed";
        let _ = writeln!(out, "{MARK} {meant}");
    }
    out.push('\n');
}

/// Returns the objectives that most trials of the row met. Appends `MARK` if objectives may have
/// been missed only because kvblaster was the limit.
fn holds(found: &SearchResult, row: &Row<'_>) -> String {
    let is_most = |count: usize| 2 * count > row.len();
    let is_bound = is_most(row.iter().filter(|point| point.client_bound.is_some()).count());
    let names = found.capacities.iter().map(|capacity| capacity.name.as_str());
    let met = |name: &&str| {
        is_most(row.iter().filter(|point| point.met.iter().any(|one| one == name)).count())
    };
    let met: Vec<&str> = names.filter(met).collect();
    let held = match met.len() {
        0 => "none".to_owned(),
        count if count == found.capacities.len() && count > 1 => "all".to_owned(),
        _ => met.join(" "),
    };
    if is_bound && met.len() < found.capacities.len() { held + MARK } else { held }
}

/// Draws rates on the horizontal axis, and times on the vertical axis, which is logarithmic.
fn plot(out: &mut String, plan: &Plan, found: &SearchResult) {
    let rows = rows(&found.curve, ROWS_MAX);
    let mut marks: Vec<(char, f64, f64)> = Vec::new();
    for (letter, _, of) in CURVES {
        for row in &rows {
            let rate = median(row, |point| Some(point.achieved_per_s));
            marks.extend(rate.zip(median(row, of)).map(|(rate, ns)| (letter, rate, ns.max(1.0))));
        }
    }
    let rates = || marks.iter().map(|(_, rate, _)| *rate);
    let times = || marks.iter().map(|(_, _, ns)| *ns);
    let (most, (shortest, longest)) = (span(rates()).1, span(times()));
    let is_drawn = rows.len() > 1 && most > 0.0 && longest > shortest;
    if !is_drawn {
        return;
    }
    let (x, y) = (Axis::new(Spread::Linear, rates()), Axis::new(Spread::Log, times()));
    let plot = Plot { frame: FRAME, x, y };
    let late_ns = plan.late.as_nanos() as f64;
    let is_inside = y.place(late_ns).is_some_and(|place| (0.0..=1.0).contains(&place));
    let late = plot.row(late_ns).filter(|_| is_inside);
    let mut cells = vec![[' '; FRAME.width]; FRAME.height];
    if let Some(late) = late {
        cells[late] = ['.'; FRAME.width];
    }
    for (letter, rate, ns) in marks {
        if let (Some(row), Some(column)) = (plot.row(ns), plot.column(rate)) {
            cells[row][column] = letter;
        }
    }
    let legend: Vec<String> = CURVES.map(|(letter, name, _)| format!("{letter} {name}")).to_vec();
    let late = late.map_or(String::new(), |_| format!("  . --late {}", time(whole(late_ns))));
    let _ = writeln!(out, "response time by answered requests/s: {}{late}", legend.join("  "));
    let names = (0..=RATES).map(|nth| f64::from(nth) / f64::from(RATES) * most);
    let names: Vec<(f64, String)> = names.map(|rate| (rate, grouped(rate.round()))).collect();
    let told = (TICK_ROWS, |ns| time(whole(ns)));
    plot.draw(out, told, |row, column| cells[row][column], &names);
    out.push('\n');
}

fn capacity_text(found: &SearchResult, capacity: &Capacity) -> String {
    let what = format!("Cap_{} ({}): ", capacity.name, capacity.objective);
    let Some(rate) = capacity.rate_per_s else {
        return wrapped(&what, &sentence(none(capacity.limit)));
    };
    let mut text = format!("{} requests/s", grouped(rate));
    if let Some((least, most)) = capacity.interval_per_s {
        text += &format!(
            ", between {} and {} with {:.0} % confidence ({} round{}{})",
            grouped(least),
            grouped(most),
            found.confidence * 100.0,
            capacity.rounds_per_s.len(),
            if capacity.rounds_per_s.len() == 1 { "" } else { "s" },
            match capacity.rounds_of_none() {
                0 => String::new(),
                none => {
                    format!("; in {none} of them no rate met the objective, which counts as 0")
                }
            }
        );
    }
    text += &match capacity.limit {
        Limit::Server => above(found, capacity, rate),
        Limit::HighestRate => {
            ". The capacity may be higher: the objective was met at the highest rate allowed \
             (--highest)."
                .to_owned()
        }
        Limit::Generator => ". The capacity may be higher: kvblaster could not send more \
                             requests. Give kvblaster more --threads, or a machine of its own."
            .to_owned(),
        Limit::LowestRate => ".".to_owned(),
        Limit::Unknown => " so far; the search ended before it was complete.".to_owned(),
    };
    wrapped(&what, &text)
}

fn none(limit: Limit) -> &'static str {
    match limit {
        Limit::LowestRate | Limit::Server => "the objective is not met even at the lowest rate",
        Limit::Generator => {
            "no rate was found that meets the objective, perhaps only because kvblaster was behind \
             schedule even at the lowest rate that it tried. Give kvblaster more --threads, a \
             machine of its own, or a lower --first"
        }
        Limit::HighestRate | Limit::Unknown => {
            "the search ended before it found a rate that meets the objective"
        }
    }
}

fn above(found: &SearchResult, capacity: &Capacity, rate: f64) -> String {
    let fails = |point: &&Point| {
        let is_own = point.client_bound.is_none();
        is_own && point.asked_per_s > rate && !point.met.contains(&capacity.name)
    };
    let first = found.curve.iter().filter(fails);
    let first = first.min_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s));
    let Some(point) = first else { return ".".to_owned() };
    let kept = point.achieved_per_s / point.offered_per_s.max(1.0);
    let mut why = match point {
        _ if kept < ACHIEVED_SHARE_MIN => {
            format!("only {} of the requests were answered", percent(kept))
        }
        _ if point.failure_ratio > FAILED_MAX => {
            format!("{} of the requests failed", percent(point.failure_ratio))
        }
        _ => {
            format!(
                "the mean response time was {}, p99 {}, p99.9 {}, the maximum {}",
                time_or_dash(point.mean_ns),
                time_or_dash(CURVES[1].2(point)),
                time_or_dash(CURVES[0].2(point)),
                time_or_dash(point.max_ns.map(|ns| ns as f64))
            )
        }
    };
    if (f64::MIN_POSITIVE..=FAILED_MAX).contains(&point.failure_ratio) {
        why += &format!(", {} of the requests failed", share(point.failure_ratio));
    }
    if let Some(cpus) = point.server_cpus {
        why += &format!(", and the server kept {cpus:.2} CPUs busy");
    }
    format!(
        ". The server was the limit: at {}/s it no longer met the objective; {why}.",
        grouped(point.asked_per_s)
    )
}
