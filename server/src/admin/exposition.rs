//! The text formats in which monitoring programs read metrics.
//!
//! Where: `metrics` writes families of samples here.
//! Invariant: all samples of a family follow its head. Hostile bytes in a label's value cannot end
//! the value.
//! Source: the Prometheus text format 0.0.4, and OpenMetrics 1.0.

use std::fmt::{Display, Write};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

/// The type of a family of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A page of metrics that is being written.
#[derive(Debug)]
pub(super) struct Exposition {
    format: Format,
    text: String,
    /// The name before each sample's suffix.
    family: String,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// Chooses OpenMetrics if the header `Accept` names it, unless with a weight of 0.
    pub(super) fn accepted(accept: &str) -> Format {
        let wants = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            parts.next().is_some_and(|name| name.eq_ignore_ascii_case(OPEN_METRICS))
                && !parts.any(|part| {
                    part.strip_prefix("q=").and_then(|weight| weight.parse().ok()) == Some(0.0)
                })
        };
        if accept.split(',').any(wants) { Format::OpenMetrics } else { Format::Prometheus }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Exposition {
    pub(super) fn new(format: Format) -> Exposition {
        Exposition { format, text: String::new(), family: String::new() }
    }

    /// Begins a family. `name` has no suffix: a counter's samples get `_total`.
    pub(super) fn family(&mut self, kind: Kind, name: &str, help: &str) {
        let total = if kind == Kind::Counter { "_total" } else { "" };
        let (word, in_head) = match (kind, self.format) {
            (Kind::Counter, Format::Prometheus) => ("counter", total),
            (Kind::Counter, Format::OpenMetrics) => ("counter", ""),
            (Kind::Gauge, _) => ("gauge", ""),
            (Kind::Histogram, _) => ("histogram", ""),
        };
        self.family = format!("hypostyle_{name}{total}");
        let mut help = help.replace('\\', r"\\").replace('\n', r"\n");
        if self.format == Format::OpenMetrics {
            help = help.replace('"', r#"\""#);
        }
        self.line(format_args!("# HELP hypostyle_{name}{in_head} {help}"));
        self.line(format_args!("# TYPE hypostyle_{name}{in_head} {word}"));
    }

    /// Adds a sample of the family.
    pub(super) fn sample(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.part("", labels, value);
    }

    /// Like `sample`, but for a part of a histogram, such as `_sum`.
    pub(super) fn part(
        &mut self,
        suffix: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| {
                let value = value.to_string().replace('\\', r"\\").replace('"', r#"\""#);
                format!("{name}=\"{}\"", value.replace('\n', r"\n"))
            })
            .collect();
        let family = std::mem::take(&mut self.family);
        match labels.is_empty() {
            true => self.line(format_args!("{family}{suffix} {value}")),
            false => self.line(format_args!("{family}{suffix}{{{}}} {value}", labels.join(","))),
        }
        self.family = family;
    }

    /// Returns the whole page.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Exposition, Format, Kind};

    #[test]
    fn the_header_accept_chooses_the_format() {
        let of = Format::accepted;
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2,*/*";
        assert_eq!(of(prometheus), Format::OpenMetrics);
        assert_eq!(of("text/plain, application/openmetrics-text; q=0"), Format::Prometheus);
        assert_eq!(of("text/html,*/*;q=0.8"), Format::Prometheus);
        assert_eq!(of(""), Format::Prometheus);
    }

    #[test]
    fn names_and_escapes_are_those_of_the_format() {
        let write = |format| {
            let mut page = Exposition::new(format);
            page.family(Kind::Counter, "a", "says \"\\\"\n");
            page.sample(&[("key", &"x\"\\\n")], 7);
            page.finish()
        };
        let sample = "hypostyle_a_total{key=\"x\\\"\\\\\\n\"} 7\n";
        let head = "# HELP hypostyle_a_total says \"\\\\\"\\n\n# TYPE hypostyle_a_total counter\n";
        assert_eq!(write(Format::Prometheus), format!("{head}{sample}"));
        let head = r#"# HELP hypostyle_a says \"\\\"\n"#;
        let head = format!("{head}\n# TYPE hypostyle_a counter\n");
        assert_eq!(write(Format::OpenMetrics), format!("{head}{sample}# EOF\n"));
    }
}
