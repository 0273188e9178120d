//! Tests that HdrHistogram's own Java tool reads the same figures from the logs as from the JSON.
//!
//! Where: tests of the files of a result. Invariant: each figure that HistogramLogProcessor prints
//! agrees with the histogram in `result.json`. Without Java or the library, tests fail only in CI.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test")]

use blaster::measure::schedule::MergedTally;
use blaster::measure::watch::Usage;
use blaster::measure::{Interval, Tally, Times};
use blaster::result::manifest::Manifest;
use blaster::result::{RunResult, SCHEMA};
use blaster::workload::Verb;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::skip;

/// The path of the library that Debian's package libhdrhistogram-java installs.
const JAR: &str = "/usr/share/java/hdrhistogram.jar";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_installed() -> bool {
    let has_java = Command::new("java").arg("-version").output().is_ok();
    if has_java && Path::new(JAR).exists() {
        return true;
    }
    skip(&format!("no Java, or no {JAR} (make peers)"));
    false
}

/// Runs HistogramLogProcessor on a log. Returns its output, with times in nanoseconds.
fn processed(log: &Path, options: &[&str]) -> String {
    // Java starts faster with a single compiler tier.
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-cp", JAR, "org.HdrHistogram.HistogramLogProcessor"]);
    java.arg("-i").arg(log).args(["-outputValueUnitRatio", "1"]).args(options);
    let output = java.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success() && err.is_empty(), "{options:?}: {err}");
    out.into_owned()
}

/// Asserts that the rows of the printed table, and the figures below the table, agree with `times`.
fn assert_told(printed: &str, times: &Times, what: &str) {
    let histogram = times.histogram().unwrap_or_else(|| panic!("{what}: nothing"));
    let mut rows = 0;
    for line in printed.lines() {
        let cells: Vec<f64> = line.split_whitespace().map_while(|cell| cell.parse().ok()).collect();
        let [value, _, count, ..] = cells[..] else { continue };
        rows += 1;
        // Java prints a bucket's highest value, so the count includes the whole bucket.
        let ns = std::time::Duration::from_secs_f64(value / 1e9).as_nanos().try_into().unwrap();
        assert_eq!(histogram.count_between(0, ns) as f64, count, "{what}: {line}");
    }
    assert!(rows > 20, "{what}: {rows} rows in\n{printed}");
    let figure = |name: &str| {
        let (_, rest) = printed.split_once(name).unwrap_or_else(|| panic!("{name}: {printed}"));
        let figure = rest.trim_start_matches([' ', '=']).split([',', ']']).next().unwrap();
        figure.trim().parse::<f64>().unwrap_or_else(|_| panic!("{name}: {figure}"))
    };
    assert_eq!(figure("Total count"), times.len() as f64, "{what}");
    for (name, ours) in [
        ("Mean", times.mean_ns().unwrap()),
        ("StdDeviation", times.sd_ns().unwrap()),
        ("[Max", times.max_ns().unwrap() as f64),
    ] {
        let theirs = figure(name);
        assert!((theirs / ours - 1.0).abs() < 1e-3, "{what}: {name} {theirs} for {ours}");
    }
}

/// Writes a result of three one-second reports with growing times. Reads it back and returns it.
fn measured(folder: &Path) -> RunResult {
    let report = |nth: u32| {
        let mut tally = Tally::new(1_000_000);
        for request in 0..20_000_u64 {
            let verb = if request.is_multiple_of(4) { Verb::Set } else { Verb::Get };
            let sent_ns = request * 50_000;
            // Times range from 20 µs to 130 ms. Longer times are rarer.
            let spread = 20_000 * (1 + request % 97) * (1 + (request % 6700) / 6600 * 67);
            let took_ns = spread + u64::from(nth) * 7_000;
            let intended_ns = sent_ns - (request % 3) * 10_000.min(sent_ns / 3);
            tally.sent(verb, 1, intended_ns, sent_ns);
            tally.answered(verb, false, intended_ns, sent_ns, sent_ns + took_ns);
        }
        let merged = MergedTally { tally, busiest: 0.5 };
        Interval::new(merged, f64::from(nth), 1.0, Usage::default())
    };
    let reports: Vec<Interval> = (0..3).map(report).collect();
    let merged = Interval::merged(&reports);
    let manifest = Manifest::here();
    let result = RunResult { schema: SCHEMA, manifest, reports, merged, ..RunResult::default() };
    result.write(folder).unwrap();
    RunResult::read(folder).unwrap()
}

#[test]
fn histogram_log_processor_reads_what_the_json_says() {
    if !is_installed() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("kvblaster-java-{}", std::process::id()));
    let folder = Folder(folder);
    let result = measured(&folder.0);
    let merged = result.merged.as_ref().unwrap();
    let of = |interval: &Interval, verb: Option<Verb>| match verb {
        Some(verb) => interval.tally.verb(verb).clone(),
        None => interval.tally.total(),
    };
    let response = folder.0.join("response.hlog");
    for verb in [None, Some(Verb::Get), Some(Verb::Set)] {
        let tag = verb.map_or(Vec::new(), |verb| vec!["-tag", verb.name()]);
        assert_told(
            &processed(&response, &tag),
            &of(merged, verb).response_ns,
            &format!("{tag:?}"),
        );
    }
    let service = processed(&folder.0.join("service.hlog"), &[]);
    assert_told(&service, &merged.tally.total().service_ns, "service");
    // The tool selects the second report by its start.
    let second = &result.reports[1];
    let [from, to] = [-0.002, 0.002].map(|by| (second.start_s + by).to_string());
    let part = processed(&response, &["-start", &from, "-end", &to, "-tag", "get"]);
    assert_told(&part, &of(second, Some(Verb::Get)).response_ns, "the second report");
    let tags = processed(&response, &["-listtags"]);
    assert!(tags.contains("get") && tags.contains("set"), "{tags}");
}
