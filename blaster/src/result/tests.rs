//! Tests that results are written, read back, and read by other tools.
//!
//! Where: tests. Invariant: each test has a folder of its own and removes it.

use super::sample;
use super::{FILE, ResultError, RunResult};
use crate::measure::Times;
use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("kvblaster-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_result_is_read_back_as_it_was() {
    let folder = Folder::new("result");
    let result = sample::result("ours", 50);
    result.write(&folder.0).unwrap();
    assert_eq!(RunResult::read(&folder.0).unwrap(), result);
    assert_eq!(RunResult::read(&folder.0.join(FILE)).unwrap(), result);
    let other = sample::result("theirs", 80);
    other.write(&folder.0).unwrap();
    assert_eq!(RunResult::read(&folder.0).unwrap().manifest.label, "theirs");
    let names: BTreeSet<String> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let tables = ["cpus.csv", "curve.csv", "reports.csv"];
    let expected = tables.into_iter().chain(["response.hlog", "result.json", "service.hlog"]);
    assert_eq!(names, expected.map(str::to_owned).collect());
}

#[test]
fn what_is_no_result_is_refused() {
    let folder = Folder::new("refused");
    fs::create_dir_all(&folder.0).unwrap();
    let error = |text: &str| {
        fs::write(folder.0.join(FILE), text).unwrap();
        RunResult::read(&folder.0).unwrap_err()
    };
    assert!(matches!(error(""), ResultError::Contents(..)));
    assert!(matches!(error("{}"), ResultError::Contents(..)));
    assert!(matches!(error("{\"schema\":2}"), ResultError::Schema(_, 2)));
    assert!(matches!(error("{\"schema\":1}"), ResultError::Contents(..)));
    assert!(matches!(error("\u{0}"), ResultError::Contents(..)));
    let gone = RunResult::read(&folder.0.join("nowhere")).unwrap_err();
    assert!(gone.to_string().contains("nowhere"), "{gone}");
}

#[test]
fn an_interval_log_is_read_by_hdrhistogram() {
    let folder = Folder::new("logs");
    let result = sample::result("ours", 50);
    result.write(&folder.0).unwrap();
    let log = fs::read(folder.0.join("response.hlog")).unwrap();
    let (mut merged, mut all) = (Times::default(), Times::default());
    let (mut intervals, mut started, mut tags) = (0, false, BTreeSet::new());
    for entry in IntervalLogIterator::new(&log) {
        match entry.unwrap() {
            LogEntry::Interval(interval) => {
                intervals += 1;
                tags.extend(interval.tag().map(|tag| tag.as_str().to_owned()));
                assert_eq!(interval.duration().as_secs(), 10);
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(interval.encoded_histogram())
                    .unwrap();
                let histogram: Histogram<u64> =
                    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                assert!((interval.max() * 1e6 / histogram.max() as f64 - 1.0).abs() < 0.01);
                let into = if interval.tag().is_some() { &mut merged } else { &mut all };
                into.merge(&Times::from_histogram(histogram));
            }
            LogEntry::StartTime(_) => started = true,
            LogEntry::BaseTime(_) => {}
        }
    }
    assert!(started && intervals == 18, "{intervals} intervals");
    assert_eq!(tags, ["get", "set"].map(str::to_owned).into());
    let expected = result.merged.unwrap().tally.total().response_ns;
    assert_eq!((merged, all), (expected.clone(), expected));
}

#[test]
fn tables_have_a_row_a_report_and_type_and_are_rectangular() {
    let folder = Folder::new("csv");
    sample::result("ours", 50).write(&folder.0).unwrap();
    let reports = fs::read_to_string(folder.0.join("reports.csv")).unwrap();
    let lines: Vec<Vec<&str>> = reports.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + 6 * 3);
    let header = lines[0].len();
    assert!(lines.iter().all(|line| line.len() == header), "{reports}");
    let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
    assert_eq!((lines[3][column("verb")], lines[3][column("answered")]), ("all", "2000"));
    assert_eq!(lines[1][column("asked_per_s")], "200.0");
    assert_eq!(lines[1][column("server_sys_cpus")], "0.4000");
    // Figures of connections and processes are in the row `all` only.
    let last =
        ["verb", "keys_per_s", "fairness", "worst_connection_p99_us", "client_datagrams_dropped"];
    let cells = |row: usize| last.map(|name| lines[row][column(name)]);
    assert_eq!(cells(3), ["all", "200.0", "0.750000", "100663.295", "0"]);
    assert_eq!(cells(1), ["get", "193.5", "", "", ""]);
    let curve = fs::read_to_string(folder.0.join("curve.csv")).unwrap();
    assert_eq!(curve.lines().count(), 9);
    assert!(curve.contains("\"it was, \"\"late\"\"\""), "{curve}");
}

#[test]
fn cpus_have_a_row_each_and_their_shares_are_the_categories() {
    let folder = Folder::new("cpus");
    sample::result("ours", 50).write(&folder.0).unwrap();
    let cpus = fs::read_to_string(folder.0.join("cpus.csv")).unwrap();
    let lines: Vec<Vec<&str>> = cpus.lines().map(|line| line.split(',').collect()).collect();
    // Each of the six reports has a row for all CPUs, and one for each of the two CPUs.
    assert_eq!(lines.len(), 1 + 6 * 3);
    let header = lines[0].clone();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let names: Vec<&str> = lines[1..4].iter().map(|line| line[column("cpu")]).collect();
    assert_eq!(names, ["all", "0", "1"]);
    let figures = |line: &[&str]| {
        ["usr", "sys", "softirq", "irq", "idle", "busy"].map(|name| line[column(name)].to_owned())
    };
    assert_eq!(figures(&lines[2]), ["0.2000", "0.3000", "0.1000", "0.0000", "0.4000", "0.6000"]);
    assert_eq!(lines[18][column("report")], "6");
    let network = |line: &[&str]| {
        ["device_interrupts_per_s", "net_rx_per_s", "packets", "packets_dropped", "squeezed"]
            .map(|name| line[column(name)].to_owned())
    };
    assert_eq!(network(&lines[1]), ["100.0", "141.0", "1600", "0", "4"]);
    assert_eq!(network(&lines[2]), ["50.0", "70.5", "800", "0", "2"]);
    assert!(lines.iter().all(|line| line.len() == header.len()), "{cpus}");
}

/// Adds to `found` the names of all fields of `value`, including nested fields.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                names(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn the_totals_that_the_text_has_are_there() {
    let result = sample::result("ours", 50);
    let value = serde_json::to_value(&result).unwrap();
    for (report, value) in result.reports.iter().zip(value["reports"].as_array().unwrap()) {
        let (all, totals) = (report.tally.total(), &value["totals"]);
        assert_eq!(totals["answered_per_s"], report.achieved_per_s());
        assert_eq!((&totals["failed"], &totals["late"]), (&all.failed().into(), &all.late.into()));
        assert_eq!(totals["hit_ratio"], all.hit_ratio().unwrap());
        assert_eq!(totals["not_found_ratio"], report.tally.not_found_ratio().unwrap());
        let p99 = all.response_ns.quantile_ns(0.99).unwrap();
        assert_eq!(totals["response_ns"]["p99_ns"], p99);
    }
    assert!(value["merged"]["totals"]["response_ns"]["mean_ns"].is_f64());
}

#[test]
fn every_field_is_described() {
    let described = include_str!("../../RESULTS.md");
    let value = serde_json::to_value(sample::result("ours", 50)).unwrap();
    let mut found = BTreeSet::new();
    names(&value, &mut found);
    let missing: Vec<&String> =
        found.iter().filter(|name| !described.contains(&format!("`{name}`"))).collect();
    assert!(found.len() > 100 && missing.is_empty(), "not in RESULTS.md: {missing:?}");
}
