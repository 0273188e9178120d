//! The JSON form of times, tallies and reports.
//!
//! Where: tallies and reports are written and read here.
//! Invariant: a value that is read back equals the written value. Times are read from the encoded
//! histogram; the figures beside it are for programs that cannot decode histograms.
//! Source: HdrHistogram's V2 compressed encoding, in base64, as in its interval logs.

use super::interval::Interval;
use super::tally::VerbTally;
use super::times::{DIGITS, FIGURES, Figure, Times};
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
impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("run", &self.run)?;
        map.serialize_entry("start_s", &self.start_s)?;
        map.serialize_entry("seconds", &self.seconds)?;
        map.serialize_entry("asked_per_s", &self.asked_per_s)?;
        map.serialize_entry("reflected_per_s", &self.reflected_per_s)?;
        map.serialize_entry("headroom", &self.headroom())?;
        map.serialize_entry("busiest", &self.busiest)?;
        map.serialize_entry("totals", &Totals(self))?;
        map.serialize_entry("tally", &self.tally)?;
        map.serialize_entry("usage", &self.usage)?;
        map.end()
    }
}

/// The sums of a report over all types of request.
struct Totals<'r>(&'r Interval);

impl Serialize for Totals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (report, all) = (self.0, self.0.tally.total());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("offered_per_s", &report.offered_per_s())?;
        map.serialize_entry("answered_per_s", &report.achieved_per_s())?;
        map.serialize_entry("keys_per_s", &report.keys_per_s())?;
        map.serialize_entry("sent", &all.sent)?;
        map.serialize_entry("answered", &all.answered)?;
        map.serialize_entry("hits", &all.hits)?;
        map.serialize_entry("misses", &all.misses)?;
        map.serialize_entry("hit_ratio", &all.hit_ratio())?;
        map.serialize_entry("errors", &all.errors)?;
        map.serialize_entry("timeouts", &all.timeouts)?;
        map.serialize_entry("unsent", &all.unsent)?;
        map.serialize_entry("corrupt", &all.corrupt)?;
        map.serialize_entry("failed", &all.failed())?;
        map.serialize_entry("failure_ratio", &all.failure_ratio())?;
        map.serialize_entry("late", &all.late)?;
        map.serialize_entry("late_ratio", &all.late_ratio())?;
        map.serialize_entry("not_done", &all.not_done)?;
        map.serialize_entry("not_found", &report.tally.not_found().0)?;
        map.serialize_entry("not_found_ratio", &report.tally.not_found_ratio())?;
        for (name, times) in [("response_ns", &all.response_ns), ("service_ns", &all.service_ns)] {
            map.serialize_entry(name, &WrittenTimes { times, hdr: None })?;
        }
        map.end()
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
