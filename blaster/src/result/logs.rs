//! Times as HdrHistogram interval logs, for tools such as HistogramLogProcessor and hdr-plot.
//!
//! Where: files in the result's folder.
//! Invariant: each report becomes one interval per type of request, tagged with the type, and an
//! untagged interval for all types. Tools read untagged intervals by default. Times are in ns,
//! except that an interval's longest time is in ms, as Java's tools expect.
//! Source: HdrHistogram's interval log format 1.3.

use super::{ResultError, RunResult};
use crate::measure::{Times, VerbTally};
use crate::workload::VERBS;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::time::{Duration, UNIX_EPOCH};

const DIVISOR: f64 = 1e6;

/// A log: the name of its file, what its times are, and the times of a tally.
type Log = (&'static str, &'static str, fn(&VerbTally) -> &Times);
pub(super) const LOGS: [Log; 2] = [
    ("response.hlog", "response times, from the intended time of sending", |tally| {
        &tally.response_ns
    }),
    ("service.hlog", "service times, from the actual time of sending", |tally| &tally.service_ns),
];

pub(super) fn log(result: &RunResult, (_, name, times): Log) -> Result<Vec<u8>, ResultError> {
    let failed = |error: &dyn std::fmt::Debug| ResultError::Histogram(format!("{error:?}"));
    let mut bytes = Vec::new();
    let mut encoder = V2DeflateSerializer::new();
    let span = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let start = UNIX_EPOCH + span(result.manifest.started_unix_s);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("[Logged with kvblaster {}: {name}]", env!("CARGO_PKG_VERSION")))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(DIVISOR)
        .begin_log_with(&mut bytes, &mut encoder)
        .map_err(|error| failed(&error))?;
    for report in &result.reports {
        let total = report.tally.total();
        let tagged = VERBS.iter().map(|verb| (Tag::new(verb.name()), report.tally.verb(*verb)));
        for (tag, tally) in tagged.chain([(None, &total)]) {
            let Some(histogram) = times(tally).histogram() else { continue };
            log.write_histogram(histogram, span(report.start_s), span(report.seconds), tag)
                .map_err(|error| failed(&error))?;
        }
    }
    Ok(bytes)
}
