//! The JSON form of times, tallies and reports.
//!
//! Where: tallies and reports are written and read here.
//! Invariant: a value that is read back equals the written value. Times are read from the encoded
//! histogram; the figures beside it are for programs that cannot decode histograms.
//! Source: HdrHistogram's V2 compressed encoding, in base64, as in its interval logs.

use super::interval::Interval;
use super::tally::{Tally, VerbTally};
use super::times::{DIGITS, FIGURES, Figure, Times};
use super::watch::Usage;
use crate::workload::VERBS;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::serialization::{Deserializer as Decoder, Serializer as _, V2DeflateSerializer};
use serde::ser::{self, SerializeMap as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;

/// An encoded histogram with more bytes is refused. kvblaster writes fewer bytes.
const ENCODED_BYTES_MAX: usize = 1 << 20;

/// The JSON form of times: their count, their figures (null without times), and the histogram.
struct WrittenTimes<'t> {
    times: &'t Times,
    hdr: Option<String>,
}

impl Serialize for WrittenTimes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &self.times.len())?;
        for (name, figure) in FIGURES {
            let name = name.replace('.', "_") + "_ns";
            match figure {
                Figure::Quantile(share) => {
                    map.serialize_entry(&name, &self.times.quantile_ns(share))?;
                }
                Figure::Time(of) => map.serialize_entry(&name, &of(self.times))?,
                Figure::Computed(of) => map.serialize_entry(&name, &of(self.times))?,
            }
        }
        map.serialize_entry("hdr", &self.hdr)?;
        map.end()
    }
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = |histogram| {
            let mut bytes = Vec::new();
            V2DeflateSerializer::new()
                .serialize(histogram, &mut bytes)
                .map(|_| BASE64.encode(bytes))
        };
        let hdr = self.histogram().map(encoded).transpose().map_err(ser::Error::custom)?;
        WrittenTimes { times: self, hdr }.serialize(serializer)
    }
}

#[derive(Deserialize)]
struct Encoded {
    hdr: Option<String>,
}

/// The JSON form of a report. `headroom` and `totals` are computed, and are not read back.
#[derive(Serialize)]
struct Report<'r> {
    run: u32,
    start_s: f64,
    seconds: f64,
    asked_per_s: Option<f64>,
    reflected_per_s: Option<f64>,
    headroom: Option<f64>,
    busiest: f64,
    totals: Totals<'r>,
    tally: &'r Tally,
    usage: &'r Usage,
}

#[derive(Serialize)]
struct Totals<'t> {
    offered_per_s: f64,
    answered_per_s: f64,
    keys_per_s: f64,
    sent: u64,
    answered: u64,
    hits: u64,
    misses: u64,
    hit_ratio: Option<f64>,
    errors: u64,
    timeouts: u64,
    unsent: u64,
    corrupt: u64,
    failed: u64,
    failure_ratio: Option<f64>,
    late: u64,
    late_ratio: Option<f64>,
    not_done: u64,
    not_found: u64,
    not_found_ratio: Option<f64>,
    response_ns: WrittenTimes<'t>,
    service_ns: WrittenTimes<'t>,
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Interval { run, start_s, seconds, asked_per_s, reflected_per_s, busiest, .. } = *self;
        let (tally, usage, headroom) = (&self.tally, &self.usage, self.headroom());
        let all = tally.total();
        let totals = Totals {
            offered_per_s: self.offered_per_s(),
            answered_per_s: self.achieved_per_s(),
            keys_per_s: self.keys_per_s(),
            sent: all.sent,
            answered: all.answered,
            hits: all.hits,
            misses: all.misses,
            hit_ratio: all.hit_ratio(),
            errors: all.errors,
            timeouts: all.timeouts,
            unsent: all.unsent,
            corrupt: all.corrupt,
            failed: all.failed(),
            failure_ratio: all.failure_ratio(),
            late: all.late,
            late_ratio: all.late_ratio(),
            not_done: all.not_done,
            not_found: tally.not_found().0,
            not_found_ratio: tally.not_found_ratio(),
            response_ns: WrittenTimes { times: &all.response_ns, hdr: None },
            service_ns: WrittenTimes { times: &all.service_ns, hdr: None },
        };
        Report {
            run,
            start_s,
            seconds,
            asked_per_s,
            reflected_per_s,
            headroom,
            busiest,
            totals,
            tally,
            usage,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Times, D::Error> {
        let Some(hdr) = Encoded::deserialize(deserializer)?.hdr else {
            return Ok(Times::default());
        };
        if hdr.len() > ENCODED_BYTES_MAX {
            return Err(de::Error::custom("a histogram is too long"));
        }
        let bytes = BASE64.decode(hdr).map_err(de::Error::custom)?;
        let histogram =
            Decoder::new().deserialize(&mut bytes.as_slice()).map_err(de::Error::custom)?;
        if histogram.sigfig() > DIGITS {
            return Err(de::Error::custom("a histogram has more than 3 significant digits"));
        }
        Ok(Times::from_histogram(histogram))
    }
}

type Tallies = [VerbTally; VERBS.len()];

/// Writes tallies as a map from each verb's name to its tally, without unused verbs.
pub(super) fn by_name<S: Serializer>(tallies: &Tallies, serializer: S) -> Result<S::Ok, S::Error> {
    let nothing = VerbTally::default();
    let named = VERBS.iter().map(|verb| verb.name()).zip(tallies);
    let used: BTreeMap<&str, &VerbTally> = named.filter(|(_, tally)| **tally != nothing).collect();
    used.serialize(serializer)
}

/// Reads the map that `by_name` writes.
pub(super) fn read_by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Tallies, D::Error> {
    let mut tallies = Tallies::default();
    for (name, tally) in BTreeMap::<String, VerbTally>::deserialize(deserializer)? {
        let at = VERBS.iter().position(|verb| verb.name() == name);
        let at = at.ok_or_else(|| de::Error::unknown_variant(&name, &["get", "set"]))?;
        tallies[at] = tally;
    }
    Ok(tallies)
}

#[cfg(test)]
mod tests {
    use crate::measure::{Tally, Times};
    use crate::workload::Verb;

    #[test]
    fn a_tally_is_read_back_as_it_was() {
        let mut tally = Tally::new(7);
        for ns in (0..5_000_u64).map(|one| one * one * one) {
            tally.sent(Verb::Get, 2, 0, ns / 3);
            tally.answered(Verb::Get, ns % 2 == 0, 0, ns / 3, ns);
        }
        tally.timed_out(Verb::Append);
        let text = serde_json::to_string(&tally).unwrap();
        assert_eq!(serde_json::from_str::<Tally>(&text).unwrap(), tally);
        assert!(text.contains("\"p99_9_ns\":") && !text.contains("delete"), "{text}");
        assert!(text.len() < 30_000, "{} bytes", text.len());
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        let text = serde_json::to_string(&Times::default()).unwrap();
        assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), Times::default());
        for hdr in ["\"\"", "\"!\"", "\"HISTFAAA\"", "7", "\"AAAAAAAAAAAAAAAA\""] {
            let text = text.replace("\"hdr\":null", &format!("\"hdr\":{hdr}"));
            assert!(serde_json::from_str::<Times>(&text).is_err(), "{text}");
        }
        let text = text.replace("null}", &format!("\"{}\"}}", "A".repeat(2 << 20)));
        let error = serde_json::from_str::<Times>(&text).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
    }
}
