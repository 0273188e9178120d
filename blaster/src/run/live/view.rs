//! The lines of the live display, and the line for a report if stderr is no terminal.
//!
//! Where: called by `live`, which displays the lines.
//! Invariant: the lines depend only on the arguments. No line is wider than the given width:
//! figures that do not fit go on the next line.

use crate::measure::Tally;
use crate::measure::schedule::Schedule;
use crate::words::{grouped, percent, time, whole};
use console::{measure_text_width, style, truncate_str};
use std::time::Duration;

/// Maximum number of values of a curve, which shows one value per second.
pub(super) const CURVE_MAX: usize = 60;
const NAMES: usize = 10;
/// The characters of a curve, from the lowest to the highest.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) name: String,
    /// The fraction of the phase that is done, up to 1.
    pub(super) part: f64,
    pub(super) left: Option<Duration>,
    /// Rates, times and hits of the last second.
    pub(super) offered_per_s: Option<f64>,
    pub(super) sent_per_s: f64,
    pub(super) answered_per_s: f64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) max_ns: Option<u64>,
    pub(super) hit_ratio: Option<f64>,
    /// Numbers of failed and of late requests since the phase began.
    pub(super) failed: u64,
    pub(super) late: Option<u64>,
    /// The number of outstanding requests now, and the CPU use in the last second.
    pub(super) under_way: u64,
    pub(super) server_cpus: Option<f64>,
    pub(super) own_cpus: Option<f64>,
    pub(super) idle: Option<f64>,
    /// The rate of answers and the 99th percentile of response times, one value per second.
    pub(super) rates: Vec<f64>,
    pub(super) p99s: Vec<f64>,
}

impl View {
    pub(super) fn lines(&self, columns: usize, is_coloured: bool) -> Vec<String> {
        let mut lines = Lines { columns, lines: Vec::new() };
        let per_s = |rate: f64| format!("{}/s", grouped(rate));
        let mut rates = Vec::new();
        rates.extend(self.offered_per_s.map(|rate| format!("due {}", per_s(rate))));
        rates.push(format!("sent {}", per_s(self.sent_per_s)));
        rates.push(format!("answered {}", per_s(self.answered_per_s)));
        lines.flow("requests", &rates);
        let named = |name: &str, ns: Option<u64>| ns.map(|ns| format!("{name} {}", time(ns)));
        let times =
            [named("p50", self.p50_ns), named("p99", self.p99_ns), named("max", self.max_ns)];
        lines.flow("response", &times.into_iter().flatten().collect::<Vec<_>>());
        let mut answers = Vec::new();
        answers.extend(self.hit_ratio.map(|ratio| format!("hits {}", percent(ratio))));
        let is_alarming = is_coloured && self.failed > 0;
        let failed = style(format!("failed {}", self.failed)).red();
        answers.push(failed.force_styling(is_alarming).to_string());
        answers.extend(self.late.map(|late| format!("late {late}")));
        answers.push(format!("under way {}", self.under_way));
        lines.flow("answers", &answers);
        let used = |name: &str, cpus: Option<f64>| cpus.map(|cpus| format!("{name} {cpus:.2}"));
        let idle = self.idle.map(|idle| format!("machine idle {}", percent(idle)));
        let cpus = [used("server", self.server_cpus), used("kvblaster", self.own_cpus), idle];
        lines.flow("CPUs", &cpus.into_iter().flatten().collect::<Vec<_>>());
        lines.curve("rate", &self.rates, |most| format!("up to {}/s", grouped(most)));
        lines.curve("p99", &self.p99s, |most| format!("up to {}", time(whole(most))));
        lines.lines
    }
}

/// Formats a report as a line, for logs.
pub(super) fn report(epoch: u32, schedule: &Schedule, tally: &Tally) -> String {
    let total = tally.total();
    let seconds = schedule.report.as_secs_f64();
    let mut line = format!(
        "report {epoch} of {}: {}/s answered",
        schedule.reports,
        grouped(total.answered as f64 / seconds)
    );
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        if let Some(ns) = total.response_ns.quantile_ns(quantile) {
            line += &format!(", {name} {}", time(ns));
        }
    }
    if let Some(ratio) = total.hit_ratio() {
        line += &format!(", hits {}", percent(ratio));
    }
    line + &format!(", failed {}, late {}", total.failed(), total.late_or_lost())
}

struct Lines {
    columns: usize,
    lines: Vec<String>,
}

impl Lines {
    /// Adds a name and its figures, on several lines if one line is too short.
    fn flow(&mut self, name: &str, figures: &[String]) {
        if figures.is_empty() {
            return;
        }
        let (mut line, mut used) = (format!("{name:NAMES$}"), NAMES);
        for figure in figures {
            let width = measure_text_width(figure);
            if used > NAMES && used + 2 + width > self.columns {
                self.push(line);
                (line, used) = (" ".repeat(NAMES), NAMES);
            }
            if used > NAMES {
                line.push_str("  ");
                used += 2;
            }
            line.push_str(figure);
            used += width;
        }
        self.push(line);
    }

    /// Adds a line. The line is cut only if a single figure is wider than the terminal.
    fn push(&mut self, line: String) {
        self.lines.push(truncate_str(&line, self.columns, "").into_owned());
    }

    /// Adds a curve of the last seconds, scaled from 0 to the greatest value.
    fn curve(&mut self, name: &str, values: &[f64], most: impl Fn(f64) -> String) {
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let most = most(greatest);
        let room = self.columns.saturating_sub(NAMES + measure_text_width(&most) + 1);
        if values.len() < 2 || greatest <= 0.0 || room < STEPS.len() {
            return;
        }
        let from = values.len().saturating_sub(room);
        let step = |value: &f64| STEPS[crate::plot::text::place(value / greatest, STEPS.len())];
        let marks: String = values[from..].iter().map(step).collect();
        self.lines.push(format!("{name:NAMES$}{marks} {most}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Verb;

    fn view() -> View {
        View {
            name: "report 3 of 6".to_owned(),
            part: 0.5,
            left: Some(Duration::from_millis(29_100)),
            offered_per_s: Some(100_000.0),
            sent_per_s: 99_998.0,
            answered_per_s: 99_990.4,
            p50_ns: Some(98_000),
            p99_ns: Some(1_230_000),
            max_ns: Some(2_000_000_000),
            hit_ratio: Some(0.94217),
            failed: 0,
            late: Some(17),
            under_way: 12,
            server_cpus: Some(0.871),
            own_cpus: Some(1.5),
            idle: Some(0.213),
            rates: vec![0.0, 50_000.0, 100_000.0],
            p99s: vec![1_000_000.0, 2_000_000.0, 250_000.0],
        }
    }

    #[test]
    fn all_is_seen_at_a_glance() {
        let expected = "\
requests  due 100,000/s  sent 99,998/s  answered 99,990/s
response  p50 98.0 µs  p99 1.23 ms  max 2.00 s
answers   hits 94.22 %  failed 0  late 17  under way 12
CPUs      server 0.87  kvblaster 1.50  machine idle 21.30 %
rate      ▁▅█ up to 100,000/s
p99       ▅█▂ up to 2.00 ms";
        assert_eq!(view().lines(80, false).join("\n"), expected);
    }

    #[test]
    fn a_narrow_terminal_has_more_lines() {
        let expected = "\
requests  due 100,000/s  sent 99,998/s
          answered 99,990/s
response  p50 98.0 µs  p99 1.23 ms
          max 2.00 s
answers   hits 94.22 %  failed 0  late 17
          under way 12
CPUs      server 0.87  kvblaster 1.50
          machine idle 21.30 %
rate      ▁▅█ up to 100,000/s
p99       ▅█▂ up to 2.00 ms";
        assert_eq!(view().lines(43, false).join("\n"), expected);
        let mut failing = view();
        failing.failed = u64::MAX;
        for columns in 1..100 {
            for is_coloured in [false, true] {
                let lines = failing.lines(columns, is_coloured);
                let fits = lines.iter().all(|line| measure_text_width(line) <= columns);
                assert!(fits, "{columns}: {lines:#?}");
            }
        }
    }

    #[test]
    fn colours_only_add_to_the_text() {
        let mut failing = view();
        failing.failed = 3;
        let coloured = failing.lines(80, true);
        assert!(coloured[2].contains("\x1b[31mfailed 3\x1b[0m"), "{coloured:?}");
        let plain = failing.lines(80, false).join("\n");
        assert!(!plain.contains('\x1b'), "{plain}");
        assert_eq!(console::strip_ansi_codes(&coloured.join("\n")), plain);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let view = View { name: "populate 0 of 5 keys".to_owned(), ..View::default() };
        let expected = "\
requests  sent 0/s  answered 0/s
answers   failed 0  under way 0";
        assert_eq!(view.lines(80, false).join("\n"), expected);
    }

    #[test]
    fn a_report_is_a_line() {
        let mut tally = Tally::new(1_000);
        for _ in 0..10 {
            tally.sent(Verb::Get, 1, 0, 0);
            tally.found(Verb::Get, crate::measure::KeyAnswer::Hit);
            tally.answered(Verb::Get, false, 0, 0, 1_000_000);
        }
        let schedule = "1s+3x2s".parse().unwrap();
        let expected = "report 2 of 3: 5/s answered, p50 1.00 ms, p99 1.00 ms, max 1.00 ms, \
                        hits 100.00 %, failed 0, late 10";
        assert_eq!(report(2, &schedule, &tally), expected);
    }
}
