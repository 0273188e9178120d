//! The charts of the page, in the order in which they are shown.
//!
//! Where: between the tables. Invariant: a chart without data is left out.
//! Source: the KV-Cache paper, section 6.2; Pavlik's thesis, chapter 3.

use super::bars::{Bar, Bars, Part};
use super::chart::{Chart, Dot, Line, Ticks};
use super::entry::Entry;
use super::words;
use crate::measure::steady::UNSTEADY;
use crate::measure::times::BEYOND_MIN;
use crate::measure::{Interval, Times};
use crate::plot::axis::Spread;
use crate::search::curve::{Point, Row, median, rows};

/// Maximum number of marks on a curve of latency against throughput.
const MARKS_MAX: usize = 24;
/// Number of points of a percentile curve per factor of ten, for example from 90 % to 99 %.
const POINTS_A_DECADE: u32 = 8;
/// Number of factors of ten of a percentile curve, which ends at one request in 10^9.
const DECADES_MAX: u32 = 9;

/// Returns all charts as HTML.
pub(crate) fn all(entries: &[Entry]) -> Vec<String> {
    let charts = [
        curve(entries, "curve-p99", "99th percentile against throughput", |point| {
            point.p99_ns.map(|ns| ns as f64)
        }),
        curve(entries, "curve-mean", "Mean response time against throughput", |point| {
            point.mean_ns
        }),
        percentiles(entries),
        by_time(
            entries,
            ("time-rate", "Throughput by time", "requests/s"),
            words::count,
            Spread::Linear,
            |report| Some(report.achieved_per_s()),
        ),
        by_time(
            entries,
            ("time-p99", "99th percentile by time", "response time"),
            words::time,
            Spread::Log,
            |report| report.tally.total().response_ns.quantile_ns(0.99).map(|ns| ns as f64),
        ),
        by_time(
            entries,
            ("time-hits", "Hit ratio by time", "hits, %"),
            words::plain,
            Spread::Linear,
            |report| report.tally.total().hit_ratio().map(|ratio| 100.0 * ratio),
        ),
    ];
    charts.iter().map(Chart::html).chain([processors(entries)]).collect()
}

fn curve(
    entries: &[Entry],
    id: &'static str,
    title: &str,
    figure: fn(&Point) -> Option<f64>,
) -> Chart {
    let mut lines = Vec::new();
    for (kind, entry) in entries.iter().enumerate() {
        let Some(search) = &entry.result.search else { continue };
        let dot = |row: &Row<'_>| {
            let bound = row.iter().filter(|point| point.client_bound.is_some()).count();
            let is_hollow = 2 * bound > row.len();
            let x = median(row, |point| Some(point.achieved_per_s))?;
            Some(Dot { x, y: median(row, figure)?, is_hollow, range: None })
        };
        let points = rows(&search.curve, MARKS_MAX).iter().filter_map(dot).collect();
        lines.push(Line { name: entry.name.clone(), kind, is_dashed: false, points });
    }
    Chart {
        id: id.into(),
        title: title.to_owned(),
        caption: "Each mark is the median of the trials at about the same requested rate. A \
                  response time counts from the moment when a request was due. Where a line turns \
                  back, the server answered fewer requests although more were due. At hollow marks \
                  the generator was the limit, not the server."
            .to_owned(),
        x: ("requests answered/s".into(), Spread::Linear, words::count),
        y: ("response time".into(), Spread::Log, words::time),
        x_ticks: Ticks::Round,
        y_also: Vec::new(),
        table: None,
        lines,
    }
}

fn percentiles(entries: &[Entry]) -> Chart {
    let mut lines = Vec::new();
    let mut decades = 1.0_f64;
    for (kind, entry) in entries.iter().enumerate() {
        let Some(merged) = &entry.result.merged else { continue };
        let total = merged.tally.total();
        let both = [(&total.response_ns, false), (&total.service_ns, true)];
        // If response and service times are equal, one curve shows both.
        let is_one = total.response_ns == total.service_ns;
        for (times, is_dashed) in both.into_iter().take(if is_one { 1 } else { 2 }) {
            let points = tail(times);
            decades = points.last().map_or(decades, |dot| decades.max(dot.x));
            let mut name = entry.name.clone();
            if is_dashed {
                name += ", service";
            } else if is_one {
                name += ", response and service";
            }
            if entry.result.verdict.has(UNSTEADY) {
                name += " (unsteady)";
            }
            lines.push(Line { name, kind, is_dashed, points });
        }
    }
    let mut ticks = Vec::new();
    let mut tick = 0.0;
    while tick <= decades {
        ticks.push((tick, percent(tick)));
        tick += 1.0;
    }
    Chart {
        id: "percentiles".into(),
        title: "Percentiles".to_owned(),
        caption:
            "The time within which a share of all requests was answered. Response time counts from \
             the moment when a request was due, service time from the moment when the request was \
             sent. Where the two curves differ, requests waited in the generator or for their turn \
             on a connection."
                .to_owned(),
        x: ("share of all requests".into(), Spread::Linear, percent),
        y: ("response time".into(), Spread::Log, words::time),
        x_ticks: Ticks::At(ticks),
        y_also: Vec::new(),
        table: None,
        lines,
    }
}

/// Returns the points of a percentile curve. Its axis is logarithmic: x is 1 at 90 %, 2 at 99 %.
fn tail(times: &Times) -> Vec<Dot> {
    let mut dots = Vec::new();
    for nth in 0..=POINTS_A_DECADE * DECADES_MAX {
        let x = f64::from(nth) / f64::from(POINTS_A_DECADE);
        let beyond = 10f64.powf(-x);
        if beyond * (times.len() as f64) < BEYOND_MIN {
            break;
        }
        let dot = |ns| Dot { x, y: ns as f64, is_hollow: false, range: None };
        dots.extend(times.quantile_ns(1.0 - beyond).map(dot));
    }
    dots
}

/// Formats an x of `tail` as a percentage.
fn percent(x: f64) -> String {
    let percent = 100.0 * (1.0 - 10f64.powf(-x));
    let text = format!("{percent:.7}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    // If x is not a whole number, fewer digits are enough to tell the percentage from others.
    let digits = if x.fract() == 0.0 {
        text.len()
    } else {
        text.len().min(4 + words::plain(x.floor()).len() + 1)
    };
    format!("{} %", text.get(..digits).unwrap_or(text).trim_end_matches('.'))
}

fn by_time(
    entries: &[Entry],
    (id, title, unit): (&'static str, &str, &'static str),
    words: fn(f64) -> String,
    spread: Spread,
    figure: fn(&Interval) -> Option<f64>,
) -> Chart {
    let line = |(kind, entry): (usize, &Entry)| {
        let dot = |report: &Interval| {
            let x = report.start_s + report.seconds;
            Some(Dot { x, y: figure(report)?, is_hollow: false, range: None })
        };
        // The trials of a search have no common clock, so they are not drawn by time.
        let is_course = entry.result.merged.is_some();
        let reports = entry.result.reports.iter().filter(|_| is_course);
        let points = reports.filter_map(dot).collect();
        Line { name: entry.name.clone(), kind, is_dashed: false, points }
    };
    Chart {
        id: id.into(),
        title: title.to_owned(),
        caption: "Each mark is one report, a part of the run, at the time when the report ended."
            .to_owned(),
        x: ("seconds of traffic".into(), Spread::Linear, words::plain),
        y: (unit.into(), spread, words),
        x_ticks: Ticks::Round,
        y_also: Vec::new(),
        table: None,
        lines: entries
            .iter()
            .enumerate()
            .map(line)
            .filter(|line| !line.points.is_empty())
            .collect(),
    }
}

fn processors(entries: &[Entry]) -> String {
    let bar = |entry: &Entry| {
        let machine = entry.result.merged.as_ref()?.usage.machine.as_ref()?;
        let parts = machine.total.named().map(|(name, share)| Part { name, class: name, share });
        Some(Bar { name: entry.name.clone(), parts: parts.into() })
    };
    Bars {
        id: "cpu".into(),
        title: "Use of the CPUs' time".to_owned(),
        caption: "Time of all CPUs of the machine on which kvblaster ran, by category. The CPU \
                  time of a server on the same machine is included."
            .to_owned(),
        bars: entries.iter().filter_map(bar).collect(),
        table: None,
    }
    .html()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_written_as_people_do() {
        let nines = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(percent);
        assert_eq!(nines, ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]);
        assert_eq!(percent(1.5), "96.837 %");
    }

    #[test]
    fn a_tail_ends_where_ten_samples_are_beyond() {
        let mut times = Times::default();
        (0..1000).for_each(|ns| times.record(1000 + ns));
        let dots = tail(&times);
        // Ten of 1000 samples lie beyond 99 %.
        assert_eq!(dots.last().map(|dot| dot.x), Some(2.0));
        assert!(dots.windows(2).all(|pair| pair[0].y <= pair[1].y));
        assert!(tail(&Times::default()).is_empty());
    }
}
